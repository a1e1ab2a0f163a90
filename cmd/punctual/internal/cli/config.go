package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"
)

// The configuration of serve. Each of its flags, except those of notConfigured, can also be given
// by an environment variable or in a YAML file: --tls-cert as PUNCTUAL_TLS_CERT or "tls-cert:". The
// command line takes precedence over the environment, the environment over the file, and the file
// over the default.

// config says where the flags of a command get their values from.
type config struct {
	path  string
	print bool
	// of has, for each flag that was set, where its value comes from: "flag", the name of a
	// variable, or a line of the file.
	of map[string]string
	// fileStore is the line of the file that names a store while PUNCTUAL_STORE names one, too,
	// which takes precedence.
	fileStore string
}

// storeFrom says of a store that PUNCTUAL_STORE has named where to change that, for the end of an
// error.
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

// notConfigured are flags that settable leaves out, because they say what a run prints, or where
// the configuration is.
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

// apply sets the flags of cmd that the command line does not have, from the environment and the
// file. An error names the variable or the file.
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
	keys, err := readYAML(text)
	switch {
	case err != nil && colonAtEnd.Match(text):
		return usagef("%s: %v; a value that ends with a colon needs quotes: store: \"mem:\"", c.path, err)
	case err != nil:
		return usagef("%s: %v", c.path, err)
	}
	for _, key := range slices.SortedFunc(maps.Keys(keys), func(a, b string) int { return cmp.Compare(keys[a].Line, keys[b].Line) }) {
		node := keys[key]
		at := fmt.Sprintf("%s:%d", c.path, node.Line)
		flag := cmd.Flags().Lookup(key)
		if flag == nil || flag.Hidden || slices.Contains(notConfigured, key) {
			return usagef("%s: unknown key %q: 'punctual %s --help' has those that there are", at, key, cmd.Name())
		}
		if c.of[key] != "" {
			if key == "store" && c.of[key] == "PUNCTUAL_STORE" {
				c.fileStore = at
			}
			continue
		}
		c.of[key] = at
		if err := setFromYAML(flag, &node); err != nil {
			return usagef("%s: %s: %v", at, key, err)
		}
	}
	return nil
}

// setFromYAML sets a flag to a value, or to a list of values.
func setFromYAML(flag *pflag.Flag, node *yaml.Node) error {
	items := []*yaml.Node{node}
	if node.Kind == yaml.SequenceNode {
		items = node.Content
	}
	var values []string
	for _, item := range items {
		if item.Kind != yaml.ScalarNode || item.Value == "" || item.ShortTag() == "!!null" {
			return errors.New("write one value, or a list of values; if one is empty, leave the key out")
		}
		values = append(values, item.Value)
	}
	if node.Kind != yaml.SequenceNode {
		return flag.Value.Set(values[0])
	}
	if many, ok := flag.Value.(pflag.SliceValue); ok {
		return many.Replace(values)
	}
	return errors.New("a list where one value belongs")
}

// colonAtEnd matches a line whose value ends with a colon, which YAML takes for a key.
var colonAtEnd = regexp.MustCompile(`(?m)^[a-z-]+:[ \t]+[^"'#\s]*:[ \t]*\r?$`)

// readYAML reads the keys of the one document of a file, a mapping, with their values. A file that
// has none, or comments alone, has no keys.
func readYAML(text []byte) (keys map[string]yaml.Node, err error) {
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	switch err := loader.Load(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	case len(doc.Content) == 1 && doc.Content[0].Kind != yaml.MappingNode && doc.Content[0].ShortTag() != "!!null":
		return nil, fmt.Errorf("line %d: write keys and values, like key: value", doc.Content[0].Line)
	}
	if err := doc.Decode(&keys); err != nil {
		return nil, inYAML(err)
	}
	if err := loader.Load(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("a second document begins, or what follows the first one is no YAML: write one, without '---' in between")
	}
	return keys, nil
}

// inYAML returns an error of YAML without the words that say nothing.
func inYAML(err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), "yaml: construct errors: "))
}

// text returns the configuration in force as a YAML file that gives the same configuration, except
// that xxxxx stands in place of a password in a URL. A comment at each value says where the value
// comes from. A flag that was not given, and whose default is empty or a 0 that stands for another
// value, is only a comment.
func (c *config) text(cmd *cobra.Command) (string, error) {
	var out strings.Builder
	var failed error
	settable(cmd, func(f *pflag.Flag) {
		text, from := f.Value.String(), cmp.Or(c.of[f.Name], "default")
		stands := defaultInUsage.FindStringSubmatch(f.Usage)
		if from == "default" && (text == "" || text == "[]" || text == "0" && stands != nil) {
			if stands != nil && text != "[]" {
				fmt.Fprintf(&out, "# from: default, which is %s\n", stands[1])
			}
			fmt.Fprintf(&out, "# %s:\n", f.Name)
			return
		}
		line, err := lineOf(f)
		failed = errors.Join(failed, err)
		fmt.Fprintf(&out, "# from: %s\n%s", from, line)
	})
	return out.String(), failed
}

// lineOf returns the value of a flag as a line of YAML, or several.
func lineOf(f *pflag.Flag) ([]byte, error) {
	var value any = redacted(f.Value.String())
	if many, ok := f.Value.(pflag.SliceValue); ok {
		var list []string
		for _, v := range many.GetSlice() {
			list = append(list, redacted(v))
		}
		value = list
	}
	if slices.Contains([]string{"string", "stringSlice", "stringArray"}, f.Value.Type()) {
		return yaml.Dump(map[string]any{f.Name: value})
	}
	return fmt.Appendf(nil, "%s: %v\n", f.Name, value), nil // as it is: a number or a word
}

// defaultInUsage matches the part of a flag's help that has the default for which an empty value,
// or 0, stands.
var defaultInUsage = regexp.MustCompile(`\(default:? ([^;)]+)`)

// redacted returns value, with xxxxx in place of the password if value is a URL that has one,
// before the host or among the parameters.
func redacted(value string) string {
	u, err := url.Parse(value)
	if err != nil {
		return value
	}
	parameters, hidden := u.Query(), u.User != nil
	for _, name := range []string{"password", "sslpassword"} { // parameters of a URL of PostgreSQL
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

// knownVariables returns the names of the variables that commands read, and of one for each flag of
// serve's own that can be configured, sorted. The variables that consume --exec sets are among
// them, because the command that it runs may be this program; those for headers are left to
// ofOthers.
func knownVariables(root *cobra.Command) []string {
	known := []string{"PUNCTUAL_STORE", "PUNCTUAL_TOKEN", "PUNCTUAL_TOKEN_FILE", "PUNCTUAL_TOKENS", "PUNCTUAL_CONFIG", fromVariable, "PUNCTUAL_ID", "PUNCTUAL_TOPIC", "PUNCTUAL_ATTEMPT", "PUNCTUAL_DUE"}
	for _, cmd := range root.Commands() {
		if cmd.Flags().Lookup("print-config") != nil {
			settable(cmd, func(f *pflag.Flag) { known = append(known, variableOf(f.Name)) })
		}
	}
	slices.Sort(known)
	return slices.Compact(known)
}

// ofOthers reports whether a variable is one that consume --exec sets for a header, or one that
// Kubernetes or Docker set for a service called punctual, or punctual-NAME: PUNCTUAL_SERVICE_HOST,
// PUNCTUAL_PORT_7878_TCP and others.
func ofOthers(name, value string) bool {
	return strings.HasPrefix(name, "PUNCTUAL_HEADER_") || strings.HasPrefix(name, "PUNCTUAL_ENV_") || serviceName.MatchString(name) ||
		strings.HasSuffix(name, "_PORT") && serviceAddress.MatchString(value)
}

var (
	serviceName    = regexp.MustCompile(`^PUNCTUAL_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)
	serviceAddress = regexp.MustCompile(`^(tcp|udp|sctp)://`)
)

// warnOfVariables logs a warning about each variable that has a value and begins as Punctual's own
// do, but has no effect, perhaps because it is misspelt. serve, which reads its flags from the
// environment, calls it.
func (a *app) warnOfVariables(root *cobra.Command) {
	known := knownVariables(root)
	for _, entry := range a.environ() {
		name, value, _ := strings.Cut(entry, "=")
		if _, found := slices.BinarySearch(known, name); !found && strings.HasPrefix(name, "PUNCTUAL_") && value != "" && !ofOthers(name, value) {
			a.logger().Warn("a variable of the environment has no effect: each flag of 'punctual serve --help' has one, and this belongs to none", "variable", name)
		}
	}
}
