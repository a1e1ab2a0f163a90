package httproute

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	table := New([]string{"GET /", "GET /a", "POST /a", "GET /a/{x}", "PUT /a/{x}", "GET /a/{x}/b/{y}", "GET /{x}/c"}, func(line string) (method, path string) {
		method, path, _ = strings.Cut(line, " ")
		return method, path
	})
	for _, c := range []struct {
		method, path string // without the first slash
		want         string // the route, or the methods allowed
		values       map[string]string
	}{
		{"GET", "", "GET /", nil},
		{"HEAD", "a", "GET /a", nil},
		{"POST", "a", "POST /a", nil},
		{"DELETE", "a", "GET,POST", nil},
		{"HEAD", "b", "", nil},
		{"GET", "a/1", "GET /a/{x}", map[string]string{"x": "1"}},
		{"GET", "a/c", "GET /a/{x}", map[string]string{"x": "c"}}, // the first of two that fit
		{"PUT", "a/{x}", "PUT /a/{x}", map[string]string{"x": "{x}"}},
		{"POST", "a/c", "GET,PUT,GET", nil},
		{"GET", "a/1/b/2", "GET /a/{x}/b/{y}", map[string]string{"x": "1", "y": "2"}},
		{"GET", "a/1/d/2", "", nil},
		{"GET", "a/1/b", "", nil},
		{"GET", "b/c", "GET /{x}/c", map[string]string{"x": "b"}},
		{"get", "a", "GET,POST", nil},
	} {
		var segments []string
		if c.path != "" {
			segments = strings.Split(c.path, "/")
		}
		route, values, allowed, ok := table.Find(c.method, segments)
		if ok != strings.Contains(c.want, " ") || route+strings.Join(allowed, ",") != c.want || !maps.Equal(values, c.values) {
			t.Errorf("%s /%s: %q, %v, allowed %v, %v; want %q, %v", c.method, c.path, route, values, allowed, ok, c.want, c.values)
		}
	}
	for segment, want := range map[string]bool{"a": true, "": false, "c": false} {
		if table.Begins(segment) != want {
			t.Errorf("a path begins with %q: %v", segment, !want)
		}
	}
	// A caller that changes the values of one request does not change those of the next.
	_, values, _, _ := table.Find("GET", slices.Clone([]string{"a", "1"}))
	values["x"] = "changed"
	if _, values, _, _ := table.Find("GET", []string{"a", "1"}); values["x"] != "1" {
		t.Errorf("the parameter is %q", values["x"])
	}
}
