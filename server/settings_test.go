package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/settings"
)

// A bad value of a setting is refused with the text that package settings has for it, for the
// command line and the console as well. The text names the setting, and the topic is not made.
func TestBadSettings(t *testing.T) {
	for _, row := range settings.Table {
		for _, text := range []string{"", "sometimes", "0", "-1", "-1s", "1000001", "99999d", "delays", "1s,-1s", "exp:2s..1s"} {
			var p punctual.SettingsPatch
			want := row.Parse(&p, text)
			if want == nil {
				set := punctual.DefaultSettings()
				row.Apply(&set, &p)
				want = row.Check(&set)
			}
			value := text
			switch row.Kind() {
			case settings.Count:
			case settings.List:
				value, want = `["`+text+`"]`, row.Check(&punctual.Settings{Groups: []string{text}})
			default:
				value = `"` + text + `"`
			}
			if want == nil || row.Kind() == settings.Truth || row.Kind() == settings.Count && strings.Trim(text, "-0123456789") != "" || value == "" {
				continue // a good value, or no such value in JSON
			}
			r := newRig(t, nil)
			problem := r.ask("PATCH /v1/topics/t/settings", `{"`+row.Name+`":`+value+`}`).problem(t, http.StatusBadRequest, "invalid")
			if !strings.HasPrefix(want.Error(), row.Words()+" ") && !strings.HasPrefix(want.Error(), row.Words()+": ") || !strings.Contains(problem.Detail, want.Error()) {
				t.Errorf("%s of %q: %s; want %v", row.Name, text, problem.Detail, want)
			}
			r.ask("GET /v1/topics/t", "").problem(t, http.StatusNotFound, "not_found")
		}
	}
}
