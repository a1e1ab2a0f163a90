package cli

import (
	"cmp"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/demo"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/top"
	"github.com/punctualmq/punctual/internal/importer"
	"github.com/punctualmq/punctual/internal/wire"
)

// readDocs returns the pages of the command line, one behind the other.
func readDocs(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, name := range []string{"cli.md", "cli-commands.md", "cli-formats.md", "copying.md", "doctor-and-top.md"} {
		text, err := os.ReadFile("../../../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// tableBehind returns the rows of the table whose header line is given.
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

//go:generate echo "building the test binary of cmd/punctual/internal/cli, which takes minutes when little of it is compiled yet"
//go:generate go test -run TestCommandPage -update .

const commandPage = "../../../../docs/cli-commands.md"

// docs/cli-commands.md is made of the commands: their help, flags and examples.
func TestCommandPage(t *testing.T) {
	root := newRoot(newApp(Streams{Out: &buffer{}, Err: &buffer{}})) // with the stores of the program
	root.InitDefaultCompletionCmd()
	want := commandPageText(root)
	if *update {
		if err := os.WriteFile(commandPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(commandPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/cli-commands.md is not what the commands say: renew it with go generate ./cmd/punctual/internal/cli")
	}
	overview, err := os.ReadFile("../../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range leaves(root) {
		name, _, _ := strings.Cut(strings.TrimPrefix(c.CommandPath(), "punctual "), " ")
		if !strings.Contains(string(overview), "`"+name) {
			t.Errorf("docs/cli.md does not name the command %s", name)
		}
	}
}

// commandPageText is the page of the commands below root.
func commandPageText(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Commands\n\n<!-- Written by go generate ./cmd/punctual/internal/cli; change the commands' help. -->\n\n")
	b.WriteString("[The command line](cli.md) says how to name a store and how durations and times are written, [formats](cli-formats.md) what `--json` prints.\n\n")
	b.WriteString("| every command has | |\n|---|---|\n")
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { b.WriteString(flagRow(f)) })
	commands := leaves(root)
	b.WriteString("\n| command | does |\n|---|---|\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", escape(commandLine(c)), anchorOf(c), escape(c.Short))
	}
	for _, c := range commands {
		fmt.Fprintf(&b, "\n## %s\n\n`punctual %s`\n\n```text\n%s\n```\n", strings.TrimPrefix(c.CommandPath(), "punctual "), commandLine(c), strings.TrimSpace(cmp.Or(c.Long, c.Short)))
		if flags := c.LocalNonPersistentFlags(); flags.HasAvailableFlags() {
			rows := ""
			flags.VisitAll(func(f *pflag.Flag) {
				if !f.Hidden && f.Name != "help" {
					rows += flagRow(f)
				}
			})
			if rows != "" {
				b.WriteString("\n| flag | meaning |\n|---|---|\n" + rows)
			}
		}
		if c.Example != "" {
			fmt.Fprintf(&b, "\n```sh\n%s\n```\n", unindent(c.Example))
		}
	}
	return b.String()
}

// commandLine is how a command is typed, without "punctual" in front.
func commandLine(c *cobra.Command) string {
	_, arguments, _ := strings.Cut(c.Use, " ")
	return strings.TrimSpace(strings.TrimPrefix(c.CommandPath(), "punctual ") + " " + arguments)
}

func anchorOf(c *cobra.Command) string {
	return strings.ReplaceAll(strings.TrimPrefix(c.CommandPath(), "punctual "), " ", "-")
}

// flagRow is the row of a flag: its name and value, what it means, and its default where there is
// one.
func flagRow(f *pflag.Flag) string {
	value, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if value != "" {
		name += " " + value
	}
	if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" && f.DefValue != "[]" && !strings.Contains(usage, "default") {
		usage += " (default " + f.DefValue + ")"
	}
	return "| `" + escape(name) + "` | " + escape(usage) + " |\n"
}

// escape makes text fit into the cell of a table.
func escape(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(text)
}

// unindent takes the two spaces off the lines of an example.
func unindent(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimPrefix(strings.TrimRight(line, "\n"), "  "))
	}
	return strings.Join(lines, "\n")
}

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

// Each example of JSON in the pages, unless {…} abridges it, is what one of the shapes prints, and
// each shape has an example.
func TestDocsHaveTheShapes(t *testing.T) {
	docs := readDocs(t)
	examples := regexp.MustCompile("(?m)`(\\{\".*\\})`|^(\\{\".*\\})$").FindAllStringSubmatch(docs, -1)
	shapes := []any{
		&wire.PushResult{}, &wire.Delivery{}, &amendJSON{}, &messageJSON{}, &wire.Finished{}, &topicJSON{}, &settingsJSON{}, &wire.Purged{},
		&forecastJSON{}, &wire.CheckReport{}, &wire.ClockState{}, &wire.Finding{}, &versionJSON{}, &errorJSON{}, &demo.Report{}, &lineJSON{}, &importer.Report{}, &rejectJSON{}, &consumerJSON{}, &backupJSON{}, &copyJSON{}, &bulkJSON{},
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
			_, input := v.(*lineJSON) // which no command prints
			if wire.DecodeRequest([]byte(text), v) == nil && (input || sameNames(t, text, v)) {
				found[n], fits = true, true
			}
		}
		if !fits {
			t.Errorf("docs/cli-formats.md shows JSON that no command prints: %s", text)
		}
	}
	for n, ok := range found {
		if !ok {
			t.Errorf("docs/cli-formats.md shows no example of %T", shapes[n])
		}
	}
}

// sameNames tells whether v, which was read from text, prints the same JSON: no member more and
// none less.
func sameNames(t *testing.T, text string, v any) bool {
	t.Helper()
	printed, err := jsonLine(v)
	if err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(decode(t, string(printed)), decode(t, text))
}

// docs/doctor-and-top.md has the keys of top as ? shows them.
func TestDocsHaveTheKeys(t *testing.T) {
	var want, got [][]string
	for _, k := range top.Keys() {
		want = append(want, []string{strings.Join(strings.Fields(k[0]), " "), k[1]})
	}
	for _, row := range tableBehind(t, readDocs(t), "| key | does |") {
		got = append(got, []string{strings.ReplaceAll(row[0], "`", ""), row[1]})
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("docs/doctor-and-top.md has the keys\n%v\nthe code has\n%v", got, want)
	}
}
