package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// runnable calls f with each command below cmd that does something, except help and the like, and
// with arguments that the command takes.
func runnable(cmd *cobra.Command, f func(words, args []string, cmd *cobra.Command)) {
	for _, c := range cmd.Commands() {
		runnable(c, f)
	}
	if cmd.HasSubCommands() || !cmd.HasParent() || slices.Contains([]string{"help", "completion", "exit-codes", "store"}, strings.Fields(cmd.CommandPath())[1]) {
		return
	}
	for n := range 4 {
		args := slices.Repeat([]string{"x"}, n)
		if cmd.ValidateArgs(args) == nil {
			f(strings.Fields(cmd.CommandPath())[1:], args, cmd)
			return
		}
	}
	panic(cmd.CommandPath() + " takes none of the arguments tried")
}

// required are the flags that are marked as required, with values, except for the flag but.
func required(cmd *cobra.Command, but string) (out []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[cobra.BashCompOneRequiredFlag] != nil && f.Name != but {
			out = append(out, "--"+f.Name+"=all")
		}
	})
	return out
}

// A flag with an empty value, as a shell passes it for a variable that is not set, is wrong usage.
// This holds for every flag but --after.
func TestEmptyFlags(t *testing.T) {
	tried := 0
	runnable(newRoot(newRig(t).app(nil, nil)), func(words, args []string, cmd *cobra.Command) {
		cmd.InheritedFlags() // are among Flags from here on
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" || f.Name == "after" || f.Hidden {
				return
			}
			tried++
			line := slices.Concat(words, args, required(cmd, f.Name), []string{"--" + f.Name + "="})
			newRig(t).run(line...).exits(exitUsage, "--"+f.Name).prints("")
		})
	})
	if tried < 200 {
		t.Errorf("%d flags were tried", tried)
	}
}

// An empty argument is wrong usage, except for the body of a message.
func TestEmptyArguments(t *testing.T) {
	tried := 0
	runnable(newRoot(newRig(t).app(nil, nil)), func(words, args []string, cmd *cobra.Command) {
		if len(args) == 0 && cmd.ValidateArgs([]string{"x"}) == nil {
			args = []string{"x"} // an argument that may be left out
		}
		for i := range args {
			tried++
			empty := slices.Clone(args)
			empty[i] = ""
			if words[0] == "push" && i == 1 {
				newRig(t).run(slices.Concat(words, empty)...).exits(exitOK)
				continue
			}
			newRig(t).run(slices.Concat(words, empty, required(cmd, ""))...).exits(exitUsage, fmt.Sprintf("argument %d is empty", i+1)).prints("")
		}
	})
	if tried < 20 {
		t.Errorf("%d arguments were tried", tried)
	}
}

// An empty value in a configuration is refused, unless the command line or the environment gives
// another one, because such a file is often made from a template, whose variables may be unset.
func TestEmptyKeys(t *testing.T) {
	for _, text := range []string{"tls-cert: ''\n", "hosts: ['']\n", "hosts: ''\n"} {
		if err := newConfigured().apply(t, nil, nil, text); err == nil || !strings.Contains(err.Error(), "if one is empty, leave the key out") || !strings.Contains(err.Error(), ":1: ") {
			t.Errorf("%q: %v; want it refused with its line", text, err)
		}
	}
}

// A line of NDJSON may say drop_expired, also against the command line, and at in place of due.
func TestNDJSONNames(t *testing.T) {
	r := newRig(t)
	r.runInput(`{"id":"a","body":"","at":"2026-11-21T10:00:00Z","expire":"1h","drop_expired":true}`+"\n", "push", "t", "--ndjson").ok()
	if m := r.get("t", "a"); !m.DropExpired || !m.Due.Equal(start.Add(24*time.Hour)) {
		t.Errorf("%+v", m)
	}
	r.runInput(`{"id":"b","body":"","drop_expired":false}`+"\n"+`{"id":"c","body":""}`+"\n", "push", "t", "--ndjson", "--expire", "1h", "--drop-expired").ok()
	if b, c := r.get("t", "b"), r.get("t", "c"); b.DropExpired || !c.DropExpired {
		t.Errorf("b %v, c %v; want c alone to be dropped", b.DropExpired, c.DropExpired)
	}
	r.runInput(`{"body":"","at":"2026-11-21T10:00:00Z","due":"2026-11-21T10:00:00Z"}`+"\n", "push", "t", "--ndjson").exits(exitError, "both given")
}
