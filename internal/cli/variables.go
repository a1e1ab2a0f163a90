package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

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
