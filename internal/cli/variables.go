package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The environment variables. A misspelt variable would have no effect, and a command might work on another store than was
// meant. So a variable that begins with namePrefix, has a value and is nearly a known one is an error. One that resembles none may
// belong to another program; serve, which reads its flags from the environment, too, logs a warning about it.

// namePrefix is the beginning of the names of all variables that are Punctual's own.
const namePrefix = "PUNCTUAL_"

// knownVariables returns the names of the variables that commands read, and of one for each flag of serve's own that can be
// configured, sorted. The variables that consume --exec sets are among them, because the command that it runs may be this
// program; those for headers are left to ofOthers.
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

// ofOthers reports whether a variable is one that consume --exec sets for a header, or one that Kubernetes or Docker set for a
// service called punctual, or punctual-NAME: PUNCTUAL_SERVICE_HOST, PUNCTUAL_PORT_7878_TCP and others.
func ofOthers(name, value string) bool {
	return strings.HasPrefix(name, "PUNCTUAL_HEADER_") || strings.HasPrefix(name, "PUNCTUAL_ENV_") || serviceName.MatchString(name) ||
		strings.HasSuffix(name, "_PORT") && serviceAddress.MatchString(value)
}

var (
	serviceName    = regexp.MustCompile(`^PUNCTUAL_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)
	serviceAddress = regexp.MustCompile(`^(tcp|udp|sctp)://`)
)

// unknownVariables returns the names in the environment that begin with namePrefix and are not known, in the order of the
// environment. Variables without a value, and those of ofOthers, are left out.
func (a *app) unknownVariables(known []string) []string {
	var unknown []string
	for _, entry := range a.environ() {
		name, value, _ := strings.Cut(entry, "=")
		if _, found := slices.BinarySearch(known, name); !found && strings.HasPrefix(name, namePrefix) && value != "" && !ofOthers(name, value) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// refuseSlips returns an error of usage for a variable whose name is nearly a known one. It is called before a store is opened.
func (a *app) refuseSlips(root *cobra.Command) error {
	known := knownVariables(root)
	for _, name := range a.unknownVariables(known) {
		if near := nearest(name, known); near != "" {
			return usagef("there is no variable %s: %s was meant? correct it, or unset it", name, near)
		}
	}
	return nil
}

// warnOfVariables logs a warning about variables that have no effect.
func (a *app) warnOfVariables(root *cobra.Command) {
	for _, name := range a.unknownVariables(knownVariables(root)) {
		a.logger().Warn("a variable of the environment has no effect: each flag of 'punctual serve --help' has one, and this belongs to none", "variable", name)
	}
}

// nearest returns the one of names of which name may be a misspelling, or "". At most two letters may differ, in short names only one.
func nearest(name string, names []string) string {
	best, least := "", 3
	for _, n := range names {
		length := len(n) - len(namePrefix)
		if d := slips(name, n); d < least && d <= max(length/3, 1) && length > 2 {
			best, least = n, d
		}
	}
	return best
}

// slips returns how many letters at least have to be added, left out, changed, or swapped with their neighbour to make b from a.
func slips(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now := make([]int, len(b)+1)
		now[0] = i
		for j := 1; j <= len(b); j++ {
			differ := 1
			if a[i-1] == b[j-1] {
				differ = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+differ)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last = last, now
	}
	return last[len(b)]
}
