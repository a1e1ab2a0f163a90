package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/punctualmq/punctual"
)

// A setting is to be found in everything that shows or stores settings. That is the flags and the JSON of the
// command line, its page, and the pages of both formats. That stores keep it is for storetest.
func TestEverySettingIsEverywhere(t *testing.T) {
	flags := make(map[string]bool)
	for _, path := range []string{"topic set", "topic pause"} {
		cmd, _, err := newRoot(newApp(Streams{})).Find(strings.Fields(path))
		if err != nil {
			t.Fatal(err)
		}
		for f := range reflect.TypeFor[punctual.Settings]().Fields() {
			name := strings.TrimSuffix(words(f.Name, "-"), "-paused") // push and delivery are paused by a command of their own
			flags[f.Name] = flags[f.Name] || cmd.Flags().Lookup(name) != nil
		}
	}
	shown := make(map[string]bool)
	for f := range reflect.TypeFor[settingsJSON]().Fields() {
		shown[f.Tag.Get("json")] = true
	}
	pages := make(map[string]string)
	for _, page := range []string{"cli.md", "format.md", "format-redis.md"} {
		text, err := os.ReadFile(filepath.Join("../../docs", page))
		if err != nil {
			t.Fatal(err)
		}
		pages[page] = string(text)
	}
	for f := range reflect.TypeFor[punctual.Settings]().Fields() {
		name := words(f.Name, "_")
		if !flags[f.Name] {
			t.Errorf("%s: no flag of topic set or topic pause changes it", f.Name)
		}
		if !shown[name] {
			t.Errorf("%s: topic show --json does not show %s", f.Name, name)
		}
		for page, text := range pages {
			if !strings.Contains(text, "`"+name+"`") && !strings.Contains(text, `"`+name+`":`) {
				t.Errorf("%s: docs/%s does not have %s", f.Name, page, name)
			}
		}
	}
}

// words is a Go name in lower case, its words joined by sep.
func words(name, sep string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteString(sep)
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
