package settings_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/settings"
	"github.com/punctualmq/punctual/storekit"
)

var update = flag.Bool("update", false, "write what is made of the table into docs")

// TestTablesInDocs: what the pages say about each setting is made of the table. 'go generate
// ./internal/settings' writes it.
func TestTablesInDocs(t *testing.T) {
	defaults := punctual.DefaultSettings()
	kept, err := storekit.EncodeSettings(defaults)
	if err != nil {
		t.Fatal(err)
	}
	table := func(header string, row func(*settings.Setting) string) change {
		lines := []string{header, regexp.MustCompile(`[^|]+`).ReplaceAllString(header, "---")}
		for _, r := range settings.Table {
			lines = append(lines, row(r))
		}
		return change{regexp.QuoteMeta(header) + `(?:\n\|.*)*`, strings.Join(lines, "\n")}
	}
	shown := []string{`{"topic":"order.cancel"`}
	for _, r := range settings.Table {
		shown = append(shown, fmt.Sprintf(`"%s":%s`, r.Name, r.JSON(&defaults)))
	}
	for page, changes := range map[string][]change{
		"format.md": {
			{`\{"lease":"30s".*`, string(kept)},
			table("| name | form | default |", func(r *settings.Setting) string { return storedRow(t, r) }),
		},
		"cli-formats.md": {
			{"`\\{\"topic\":\"order.cancel\",\"lease\".*`", "`" + strings.Join(shown, ",") + "}`"},
		},
		"cli.md": {
			table("| setting | what it is | takes | default | flag of `topic set` |", userRow),
		},
	} {
		file := "../../docs/" + page
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		made := string(text)
		for _, c := range changes {
			place := regexp.MustCompile(`(?m)^` + c.place)
			if n := len(place.FindAllString(made, -1)); n != 1 {
				t.Fatalf("docs/%s has %d places like %s; want one", page, n, c.place)
			}
			made = place.ReplaceAllLiteralString(made, c.text)
		}
		if made == string(text) {
			continue
		}
		if !*update {
			t.Errorf("docs/%s is not what the table says: run 'go generate ./internal/settings'", page)
			continue
		}
		if err := os.WriteFile(file, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// change is a text for the lines that match place.
type change struct{ place, text string }

// storedRow says how a store keeps the setting.
func storedRow(t *testing.T, r *settings.Setting) string {
	defaults := punctual.DefaultSettings()
	kept, err := r.Stored(&defaults)
	if err != nil {
		t.Fatal(err)
	}
	form := map[settings.Kind]string{
		settings.Duration: "duration", settings.Count: "number", settings.Truth: "`true` or `false`",
		settings.Backoff: "`delays`, a list of durations; or `base` and `max`, durations, and `jitter`, a number",
		settings.List:    "a list of names",
		settings.Events:  "names of events with commas between them, or `none`",
	}[r.Kind()]
	if r.Quiet {
		form += ", left out at its default"
	}
	if r.Zero != "" {
		form += "; `0s`: " + r.Zero
	}
	return fmt.Sprintf("| `%s` | %s | `%s` |", r.Name, form, strings.Trim(string(kept), `"`))
}

// userRow says what the setting is for.
func userRow(r *settings.Setting) string {
	flag := "`--" + r.Flag() + "`"
	if r.Pause {
		flag = "`topic pause --" + strings.TrimSuffix(r.Flag(), "-paused") + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | `%s` | %s |", r.Name, r.Meaning(), r.Allowed(), r.Default(), flag)
}

// TestCommentsOfSettings: the comment on each field of Settings and SettingsPatch says which values
// it takes, and that of Settings the default.
func TestCommentsOfSettings(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../inspector.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						comments[spec.Name.Name+"."+strings.ToLower(name.Name)] = strings.Join(strings.Fields(f.Doc.Text()), " ")
					}
				}
			}
		}
		return true
	})
	for _, r := range settings.Table {
		name := strings.ReplaceAll(r.Name, "_", "")
		of, patch := comments["Settings."+name], comments["SettingsPatch."+name]
		if !strings.Contains(of, "Allowed: "+r.Allowed()) || !strings.Contains(of, "Default: "+r.Default()) {
			t.Errorf("the comment on Settings.%s is %q; want it to say %q and %q", name, of, "Allowed: "+r.Allowed(), "Default: "+r.Default())
		}
		if !strings.Contains(patch, "Allowed: "+r.Allowed()) {
			t.Errorf("the comment on SettingsPatch.%s is %q; want it to say %q", name, patch, "Allowed: "+r.Allowed())
		}
	}
}
