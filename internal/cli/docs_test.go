package cli

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual/internal/cli/demo"
	"github.com/punctualmq/punctual/internal/cli/top"
	"github.com/punctualmq/punctual/internal/wire"
)

func readDocs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tableBehind is the rows of the table whose header line is given.
func tableBehind(t *testing.T, docs, header string) [][]string {
	t.Helper()
	_, rest, ok := strings.Cut(docs, "\n"+header+"\n")
	if !ok {
		t.Fatalf("docs/cli.md has no table %q", header)
	}
	var rows [][]string
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.ReplaceAll(strings.Trim(line, "|"), `\|`, "¦"), "|")
		for n := range cells {
			cells[n] = strings.TrimSpace(cells[n])
		}
		rows = append(rows, cells)
	}
	return rows[1:] // behind the line of dashes
}

func TestDocsHaveTheExitCodes(t *testing.T) {
	var want [][]string
	for _, e := range exitCodes() {
		want = append(want, []string{e.code, e.meaning})
	}
	if got := tableBehind(t, readDocs(t), "| exit code | meaning |"); !reflect.DeepEqual(got, want) {
		t.Errorf("docs/cli.md has the exit codes\n%v\nthe code has\n%v", got, want)
	}
}

func TestDocsHaveTheErrorCodes(t *testing.T) {
	var want [][]string
	for _, e := range errorCodes() {
		want = append(want, []string{"`" + e.code + "`", fmt.Sprint(e.exit)})
	}
	if got := tableBehind(t, readDocs(t), "| code | exit code |"); !reflect.DeepEqual(got, want) {
		t.Errorf("docs/cli.md has the error codes\n%v\nthe code has\n%v", got, want)
	}
}

// Every command stands in the docs with its flags, and nothing else does.
func TestDocsHaveTheCommands(t *testing.T) {
	documented := make(map[string]string)
	for _, row := range tableBehind(t, readDocs(t), "| command | does |") {
		words := commandWords.FindString(strings.Trim(row[0], "`"))
		documented[words] += row[0] + " " + row[1]
	}
	root := newRoot(newRig(t).app(&buffer{}, &buffer{}))
	root.InitDefaultCompletionCmd()
	for _, c := range leaves(root) {
		path := strings.TrimPrefix(c.CommandPath(), "punctual ")
		text, ok := documented[path]
		if !ok {
			t.Errorf("docs/cli.md does not have the command %q", path)
		}
		delete(documented, path)
		if path == "completion" {
			continue
		}
		for _, flag := range flagsOf(c) {
			if !strings.Contains(text, "--"+flag) {
				t.Errorf("docs/cli.md does not have the flag --%s of %q", flag, path)
			}
		}
		for _, flag := range flagWords.FindAllString(text, -1) {
			if !slices.Contains(flagsOf(c), strings.TrimPrefix(flag, "--")) {
				t.Errorf("docs/cli.md has the flag %s of %q, which does not exist", flag, path)
			}
		}
	}
	for path := range documented {
		t.Errorf("docs/cli.md has the command %q, which does not exist", path)
	}
}

var (
	commandWords = regexp.MustCompile(`^[a-z]+( [a-z]+)*`)
	flagWords    = regexp.MustCompile(`--[a-z-]+`)
)

// leaves are the commands that do something; those of completion count as one.
func leaves(c *cobra.Command) []*cobra.Command {
	if c.Name() == "completion" || !c.HasSubCommands() && c.Runnable() && c.Name() != "help" {
		return []*cobra.Command{c}
	}
	var out []*cobra.Command
	for _, sub := range c.Commands() {
		out = append(out, leaves(sub)...)
	}
	return out
}

func flagsOf(c *cobra.Command) []string {
	var names []string
	for _, field := range strings.Fields(c.LocalNonPersistentFlags().FlagUsages()) {
		if name, ok := strings.CutPrefix(field, "--"); ok && c.LocalNonPersistentFlags().Lookup(name) != nil && name != "help" {
			names = append(names, name)
		}
	}
	return names
}

// The names in the examples of JSON are those of the shapes.
func TestDocsHaveTheShapes(t *testing.T) {
	docs := readDocs(t)
	examples := regexp.MustCompile("(?m)`(\\{\".*\\})`|^(\\{\".*\\})$").FindAllStringSubmatch(docs, -1)
	shapes := []any{
		&wire.PushResult{}, &wire.Delivery{}, &amendJSON{}, &messageJSON{}, &wire.Finished{}, &topicJSON{}, &settingsJSON{}, &wire.Purged{},
		&forecastJSON{}, &wire.CheckReport{}, &clockJSON{}, &wire.Finding{}, &versionJSON{}, &errorJSON{}, &demo.Report{}, &lineJSON{}, &importJSON{}, &rejectJSON{}, &consumerJSON{}, &backupJSON{}, &copyJSON{}, &wire.BulkReport{},
	}
	found := make([]bool, len(shapes))
	for _, e := range examples {
		text := e[1] + e[2]
		if strings.Contains(text, "{…}") {
			continue // an abridged one
		}
		fits := false
		for n, shape := range shapes {
			v := reflect.New(reflect.TypeOf(shape).Elem()).Interface()
			if wire.DecodeRequest([]byte(text), v) == nil && sameNames(t, text, v) {
				found[n], fits = true, true
			}
		}
		if !fits {
			t.Errorf("docs/cli.md shows JSON that no command prints: %s", text)
		}
	}
	for n, ok := range found {
		if !ok {
			t.Errorf("docs/cli.md shows no example of %T", shapes[n])
		}
	}
}

// sameNames tells whether v prints the names that text has, no more and no less. Input shapes print
// nulls for what is not there, which do not count.
func sameNames(t *testing.T, text string, v any) bool {
	t.Helper()
	printed, err := jsonLine(v)
	if err != nil {
		t.Fatal(err)
	}
	got, want := decode(t, string(printed)).(map[string]any), decode(t, text).(map[string]any)
	for name, value := range got {
		if value == nil {
			delete(got, name)
		}
	}
	return reflect.DeepEqual(got, want)
}

// The keys of top stand in the docs as ? shows them.
func TestDocsHaveTheKeys(t *testing.T) {
	var want, got [][]string
	for _, k := range top.Keys() {
		want = append(want, []string{strings.Join(strings.Fields(k[0]), " "), k[1]})
	}
	for _, row := range tableBehind(t, readDocs(t), "| key | does |") {
		got = append(got, []string{strings.ReplaceAll(row[0], "`", ""), row[1]})
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("docs/cli.md has the keys\n%v\nthe code has\n%v", got, want)
	}
}
