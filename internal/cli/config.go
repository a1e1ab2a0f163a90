package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"
)

// The configuration of serve. Each of its flags, except those of notConfigured, can also be given by an environment variable or in
// a YAML file: --tls-cert as PUNCTUAL_TLS_CERT or "tls-cert:". The command line takes precedence over the environment, the
// environment over the file, and the file over the default.

// config says where the flags of a command get their values from.
type config struct {
	path  string
	print bool
	// of has, for each flag that was set, where its value comes from: "flag", the name of a variable, or a line of the file.
	of map[string]string
	// fileStore is the line of the file that names a store while PUNCTUAL_STORE names one, too, which takes precedence.
	fileStore string
}

// storeFrom says of a store that PUNCTUAL_STORE has named where to change that, for the end of an error.
func (c *config) storeFrom() string {
	if c.of["store"] == "PUNCTUAL_STORE" {
		return ", or unset PUNCTUAL_STORE"
	}
	return ""
}

// addTo adds the flags of the configuration itself to a command.
func (c *config) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.path, "config", "", "read flags from `FILE`, in YAML (PUNCTUAL_CONFIG)")
	cmd.Flags().BoolVar(&c.print, "print-config", false, "print the configuration in force and where it comes from, and end")
}

// notConfigured are flags that settable leaves out, because they say what a run prints, or where the configuration is.
var notConfigured = []string{"help", "config", "print-config", "json"}

// settable calls f with each flag that the environment and the file can set, sorted by name.
func settable(cmd *cobra.Command, f func(*pflag.Flag)) {
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if !slices.Contains(notConfigured, flag.Name) && !flag.Hidden {
			f(flag)
		}
	})
}

func variableOf(flag string) string {
	return "PUNCTUAL_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// apply sets the flags of cmd that the command line does not have, from the environment and the file. An error names the
// variable or the file.
func (c *config) apply(cmd *cobra.Command, getenv func(string) string) error {
	c.of = make(map[string]string)
	settable(cmd, func(f *pflag.Flag) {
		if f.Changed {
			c.of[f.Name] = "flag"
		}
	})
	var problems []error
	settable(cmd, func(f *pflag.Flag) {
		value := getenv(variableOf(f.Name))
		if value == "" || c.of[f.Name] != "" {
			return
		}
		c.of[f.Name] = variableOf(f.Name)
		if err := f.Value.Set(value); err != nil {
			problems = append(problems, usagef("%s=%q: %v", variableOf(f.Name), value, err))
		}
	})
	if err := errors.Join(problems...); err != nil {
		return problems[0] // one at a time, as for flags
	}
	if c.path == "" {
		c.path = getenv("PUNCTUAL_CONFIG")
	}
	if c.path == "" {
		return nil
	}
	text, err := os.ReadFile(c.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usagef("there is no configuration %s", c.path)
	case err != nil:
		return fmt.Errorf("read the configuration: %w", err)
	}
	return c.applyFile(cmd, text)
}

// applyFile sets the flags that neither the command line nor the environment has.
func (c *config) applyFile(cmd *cobra.Command, text []byte) error {
	entries, err := readConfig(text)
	if err != nil {
		return usagef("%s: %v", c.path, err)
	}
	for _, e := range entries {
		flag := cmd.Flags().Lookup(e.key)
		if flag == nil || flag.Hidden || slices.Contains(notConfigured, e.key) {
			return usagef("%s:%d: unknown key %q: 'punctual %s --help' has those that there are", c.path, e.line, e.key, cmd.Name())
		}
		if c.of[e.key] != "" {
			if e.key == "store" && c.of[e.key] == "PUNCTUAL_STORE" {
				c.fileStore = fmt.Sprintf("%s:%d", c.path, e.line)
			}
			continue
		}
		if slices.Contains(e.values, "") {
			return usagef("%s:%d: %s is empty: give a value, or leave the key out", c.path, e.line, e.key)
		}
		c.of[e.key] = fmt.Sprintf("%s:%d", c.path, e.line)
		if err := e.set(flag); err != nil {
			return usagef("%s:%d: %s: %v", c.path, e.line, e.key, err)
		}
	}
	return nil
}

// configEntry is one key of a file, with its value or its list of values.
type configEntry struct {
	key    string
	line   int
	values []string
	list   bool
}

func (e configEntry) set(flag *pflag.Flag) error {
	if !e.list {
		return flag.Value.Set(e.values[0])
	}
	many, ok := flag.Value.(pflag.SliceValue)
	if !ok {
		return errors.New("a list where one value belongs")
	}
	return many.Replace(e.values)
}

// colonAtEnd matches a line whose value ends with a colon, which YAML takes for a key.
var colonAtEnd = regexp.MustCompile(`(?m)^[a-z-]+:[ \t]+[^"'#\s]*:[ \t]*\r?$`)

// readConfig reads a mapping of keys to values, or to lists of values.
func readConfig(text []byte) ([]configEntry, error) {
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	var doc, another yaml.Node
	switch err := loader.Load(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil // nothing, or comments alone
	case err != nil && colonAtEnd.Match(text):
		return nil, fmt.Errorf("%w; a value that ends with a colon needs quotes: store: \"mem:\"", err)
	case err != nil:
		return nil, err
	}
	if err := loader.Load(&another); !errors.Is(err, io.EOF) || len(doc.Content) != 1 {
		return nil, errors.New("it is not one document of keys and values")
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: write keys and values: listen: 127.0.0.1:7878", root.Line)
	}
	var entries []configEntry
	for i := 0; i+1 < len(root.Content); i += 2 {
		e, err := entryOf(root.Content[i], root.Content[i+1])
		if err != nil {
			return nil, err
		}
		if j := slices.IndexFunc(entries, func(o configEntry) bool { return o.key == e.key }); j >= 0 {
			return nil, fmt.Errorf("line %d: %s stands on line %d already", e.line, e.key, entries[j].line)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func entryOf(key, value *yaml.Node) (configEntry, error) {
	e := configEntry{key: key.Value, line: key.Line}
	items := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		e.list, items = true, value.Content
	}
	if key.Kind != yaml.ScalarNode {
		return e, fmt.Errorf("line %d: a key is a word", key.Line)
	}
	for _, item := range items {
		if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
			return e, fmt.Errorf("line %d: %s: write one value, or a list of values", item.Line, e.key)
		}
		e.values = append(e.values, item.Value)
	}
	return e, nil
}

// text returns the configuration in force as a YAML file that gives the same configuration, except that xxxxx stands in place of a
// password in a URL. A comment at each value says where the value comes from. A flag that was not given, and whose default is empty or a 0
// that stands for another value, is only a comment.
func (c *config) text(cmd *cobra.Command) (string, error) {
	var out strings.Builder
	var failed error
	settable(cmd, func(f *pflag.Flag) {
		from := c.of[f.Name]
		if from == "" {
			from = "default"
		}
		var value any = redacted(f.Value.String())
		if values, ok := f.Value.(pflag.SliceValue); ok {
			var list []string
			for _, v := range values.GetSlice() {
				list = append(list, redacted(v))
			}
			value = list
		}
		line := fmt.Appendf(nil, "%s: %v\n", f.Name, value) // as it is: a number or a word
		if text := []string{"string", "stringSlice", "stringArray"}; slices.Contains(text, f.Value.Type()) {
			var err error
			line, err = yaml.Dump(map[string]any{f.Name: value})
			failed = errors.Join(failed, err)
		}
		if from == "default" && !many(f) && slices.Contains([]string{"", "0"}, f.Value.String()) {
			if m := defaultInUsage.FindStringSubmatch(f.Usage); m != nil {
				from = "default, which is " + m[1]
				fmt.Fprintf(&out, "# from: %s\n# %s:\n", from, f.Name)
				return
			}
		}
		empty := f.Value.String() == "" || f.Value.String() == "[]"
		switch {
		case empty && from == "default":
			fmt.Fprintf(&out, "# %s:\n", f.Name)
		default:
			fmt.Fprintf(&out, "# from: %s\n%s", from, line)
		}
	})
	return out.String(), failed
}

// defaultInUsage matches the part of a flag's help that has the default for which an empty value, or 0, stands.
var defaultInUsage = regexp.MustCompile(`\(default:? ([^;)]+)`)

func many(f *pflag.Flag) bool {
	_, is := f.Value.(pflag.SliceValue)
	return is
}

// redacted returns value, with xxxxx in place of the password if value is a URL that has one, before the host or among the parameters.
func redacted(value string) string {
	u, err := url.Parse(value)
	if err != nil {
		return value
	}
	parameters, hidden := u.Query(), u.User != nil
	for _, name := range []string{"password", "sslpassword"} { // which PostgreSQL takes
		if parameters.Has(name) {
			parameters.Set(name, "xxxxx")
			u.RawQuery, hidden = parameters.Encode(), true
		}
	}
	if !hidden {
		return value // as it was written
	}
	return u.Redacted()
}
