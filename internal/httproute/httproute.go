// Package httproute finds the row of a table of routes that a request is for, in the server and in
// the console. It is not http.ServeMux, which redirects a path with // instead of refusing it, and
// writes answers of its own for a path or a method that it does not know.
package httproute

import (
	"net/http"
	"slices"
	"strings"
)

// Table has the routes of a handler. R is whatever the handler knows of a route. A Table does not
// change, so it is safe for concurrent use.
type Table[R any] struct{ rows []row[R] }

type row[R any] struct {
	method   string
	segments []string // of the pattern
	route    R
}

// New returns a table of routes. pattern gives the method of a route and its path, in which a
// segment in braces is a parameter: "/v1/topics/{topic}". A route for GET also has the requests
// with HEAD.
func New[R any](routes []R, pattern func(R) (method, path string)) *Table[R] {
	t := &Table[R]{rows: make([]row[R], len(routes))}
	for i, route := range routes {
		method, path := pattern(route)
		t.rows[i] = row[R]{method, split(path), route}
	}
	return t
}

// split returns the segments of a pattern; "/" has none.
func split(path string) []string {
	if path == "/" {
		return nil
	}
	return strings.Split(path[1:], "/")
}

// Find returns the route for a method and the decoded segments of a path, with the values of its
// parameters by name. When none has both, ok is false, and allowed names the methods that the path
// does have.
func (t *Table[R]) Find(method string, segments []string) (route R, values map[string]string, allowed []string, ok bool) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for i := range t.rows {
		row := &t.rows[i]
		switch values, fits := row.match(segments); {
		case !fits:
		case row.method == method:
			return row.route, values, nil, true
		default:
			allowed = append(allowed, row.method)
		}
	}
	return route, nil, allowed, false
}

// match compares the segments of a path with those of the pattern, and returns the values of the
// parameters.
func (r *row[R]) match(segments []string) (values map[string]string, ok bool) {
	if len(r.segments) != len(segments) {
		return nil, false
	}
	for i, want := range r.segments {
		if name, isParam := strings.CutPrefix(want, "{"); isParam {
			if values == nil {
				values = make(map[string]string, 2)
			}
			values[strings.TrimSuffix(name, "}")] = segments[i]
		} else if want != segments[i] {
			return nil, false
		}
	}
	return values, true
}

// Begins tells whether the path of some route begins with this segment.
func (t *Table[R]) Begins(segment string) bool {
	return slices.ContainsFunc(t.rows, func(r row[R]) bool { return len(r.segments) > 0 && r.segments[0] == segment })
}
