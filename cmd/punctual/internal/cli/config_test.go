package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual/internal/wire"
)

// configured is a command with flags of several kinds.
type configured struct {
	cmd     *cobra.Command
	config  config
	name    string
	count   int
	hosts   []string
	lasts   time.Duration
	verbose bool
}

func newConfigured() *configured {
	c := &configured{cmd: &cobra.Command{Use: "serve"}}
	flags := c.cmd.Flags()
	flags.StringVar(&c.name, "tls-cert", "", "")
	flags.IntVar(&c.count, "count", 7, "")
	flags.StringSliceVar(&c.hosts, "hosts", nil, "")
	durationVar(flags, &c.lasts, "lasts", "")
	flags.BoolVar(&c.verbose, "verbose", false, "")
	c.config.addTo(c.cmd)
	return c
}

func (c *configured) apply(t *testing.T, args []string, env map[string]string, file string) error {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "punctual.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	if err := c.cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return c.config.apply(c.cmd, func(name string) string { return env[name] })
}

func TestConfigPrecedence(t *testing.T) {
	const file = "tls-cert: file\ncount: 1\nlasts: 10s\nhosts: [a, b]\nverbose: true\n"
	for _, c := range []struct {
		args []string
		env  map[string]string
		file string
		want string
	}{
		{want: ":7::"},
		{file: "# nothing\n", want: ":7::"},
		{file: "---\n", want: ":7::"},
		{file: file, want: "file:1:10s:a b"},
		{file: "count: 0x10\nhosts: a,b\n", want: ":16::a b"},
		{env: map[string]string{"PUNCTUAL_TLS_CERT": "env", "PUNCTUAL_HOSTS": "x,y"}, want: "env:7::x y"},
		{env: map[string]string{"PUNCTUAL_TLS_CERT": "env", "PUNCTUAL_HOSTS": "x,y"}, file: file, want: "env:1:10s:x y"},
		{args: []string{"--tls-cert", "flag", "--hosts", "z"}, env: map[string]string{"PUNCTUAL_TLS_CERT": "env", "PUNCTUAL_LASTS": "2m"}, file: file, want: "flag:1:2m:z"},
		{args: []string{"--count", "7"}, file: file, want: "file:7:10s:a b"}, // the default, but asked for
	} {
		got := newConfigured()
		if err := got.apply(t, c.args, c.env, c.file); err != nil {
			t.Errorf("%q %q %q: %v", c.args, c.env, c.file, err)
			continue
		}
		text := strings.Join([]string{got.name, got.cmd.Flag("count").Value.String(), wire.DurationText(got.lasts), strings.Join(got.hosts, " ")}, ":")
		if text != c.want {
			t.Errorf("%q %q %q: %s, want %s", c.args, c.env, c.file, text, c.want)
		}
	}
}

func TestConfigRefuses(t *testing.T) {
	for file, want := range map[string]string{
		"coutn: 1":                    `:1: unknown key "coutn"`,
		"count: 1\nconfig: x":         `:2: unknown key "config"`,
		"count: 1\n# c\ncount: 2":     `line 3: mapping key "count" already defined at line 1`,
		"count: many":                 ":1: count:",
		"count: [1]":                  ":1: count: a list where one value belongs",
		"count:":                      ":1: count: write one value",
		"count: {a: 1}":               ":1: count: write one value",
		"hosts: [[a]]":                ":1: hosts: write one value",
		"hosts: [a, ~]":               ":1: hosts: write one value",
		"- count":                     "line 1: write keys and values",
		"count: 1\n---\ncount: 2":     "punctual.yaml: ",
		"count: 1\n  hosts: [":        "punctual.yaml: ",
		"a: &x 1\ncount: *x":          `:1: unknown key "a"`,
		"lasts: soon":                 ":1: lasts: ",
		"\x00":                        "punctual.yaml: ",
		"verbose: perhaps\ncount: 33": ":1: verbose:",
	} {
		c := newConfigured()
		err := c.apply(t, nil, nil, file)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "punctual.yaml") {
			t.Errorf("%q: %v, want %q", file, err, want)
		}
	}
	if err := newConfigured().apply(t, nil, map[string]string{"PUNCTUAL_COUNT": "many"}, ""); err == nil || !strings.Contains(err.Error(), `PUNCTUAL_COUNT="many"`) {
		t.Errorf("a bad variable: %v", err)
	}
	if err := newConfigured().apply(t, []string{"--config", "/nowhere/x.yaml"}, nil, ""); err == nil || !strings.Contains(err.Error(), "/nowhere/x.yaml") {
		t.Errorf("a file that is missing: %v", err)
	}
}

// The text that --print-config prints reads back as the same configuration, except for a value with
// a password.
func TestPrintedConfigReadsBack(t *testing.T) {
	first := newConfigured()
	err := first.apply(t, []string{"--tls-cert", "redis://me:secret@host/0", "--lasts", "90s"}, map[string]string{"PUNCTUAL_HOSTS": "a: b,c"}, "verbose: true")
	if err != nil {
		t.Fatal(err)
	}
	text, err := first.config.text(first.cmd)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "secret") {
		t.Errorf("the password is shown:\n%s", text)
	}
	for _, want := range []string{"# from: default\ncount: 7\n", "# from: PUNCTUAL_HOSTS\nhosts:", "# from: flag\nlasts: 90s\n", "punctual.yaml:1\nverbose: "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	again := newConfigured()
	if err := again.apply(t, nil, nil, text); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if again.count != 7 || again.lasts != 90*time.Second || strings.Join(again.hosts, "|") != "a: b|c" || !again.verbose {
		t.Errorf("%d %v %q %v read from\n%s", again.count, again.lasts, again.hosts, again.verbose, text)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add("count: 1\nhosts: [a, b]\n")
	f.Add("tls-cert: |\n  a\n  b\n")
	f.Add("a: &x [*x]")
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := readYAML([]byte(text))
		if err != nil && keys != nil {
			t.Fatalf("%q: %v beside %v", text, err, keys)
		}
		for name, node := range keys {
			c := newConfigured()
			flag := c.cmd.Flags().Lookup("hosts")
			if err := setFromYAML(flag, &node); err == nil && len(c.hosts) == 0 {
				t.Fatalf("%q: %s sets no host", text, name)
			}
		}
	})
}
