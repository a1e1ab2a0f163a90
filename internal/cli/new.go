package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cli/scaffold"
)

const newHelp = `New writes a small program into the directory DIR, which must be empty or not exist, and says how to
run it. The program sends a payment notice: its first attempt fails, the second one succeeds. Put
your own work into its function handle.

  go       a program with a store of its own, in a directory: the library (the default)
  go-http  a worker in Go that speaks to a server, with the standard library alone
  python   the same in Python 3.8 or newer
  node     the same in Node 18 or newer

The workers speak to http://localhost:7878, or to the server that PUNCTUAL_SERVER names, so start
one first: punctual serve. If it wants a token, they read it from PUNCTUAL_TOKEN.

A program of the kind go imports the library. While no version is published it uses a clone: the one
that --clone names, else the one in DIR, above it or beside it in a directory called punctual.`

const newExample = `  punctual new notify && go run -C notify .
  punctual new notify --clone ~/src/punctual
  punctual new worker --kind python && python3 worker/worker.py
  punctual new worker --kind node --json`

// newJSON is what new prints.
type newJSON struct {
	Dir   string        `json:"dir"`
	Kind  scaffold.Kind `json:"kind"`
	Files []string      `json:"files"`
	Run   string        `json:"run"`
}

func newNew(a *app) *cobra.Command {
	var kind, clone string
	cmd := &cobra.Command{
		Use:     "new DIR",
		Short:   "Write a small program that runs at once",
		Long:    newHelp,
		Example: newExample,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(_ context.Context, args []string) error {
			k := scaffold.Kind(kind)
			if !k.Valid() {
				return usagef("--kind %q: use go, go-http, python or node", kind)
			}
			if clone != "" && k != scaffold.KindGo {
				return usagef("--clone belongs to --kind go: the others do not import the library")
			}
			return a.writeProgram(args[0], k, clone)
		}),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	cmd.Flags().StringVar(&kind, "kind", string(scaffold.KindGo), "what to write: go, go-http, python or node")
	cmd.Flags().StringVar(&clone, "clone", "", "the `DIR` of a clone of Punctual, for --kind go")
	var kinds []string
	for _, k := range scaffold.Kinds() {
		kinds = append(kinds, string(k))
	}
	completeFlag(cmd, "kind", kinds...)
	if err := cmd.MarkFlagDirname("clone"); err != nil {
		panic("punctual: no flag clone: " + err.Error()) // it was just made
	}
	return cmd
}

func (a *app) writeProgram(dir string, k scaffold.Kind, clone string) error {
	var from scaffold.Source
	if k == scaffold.KindGo {
		build, _ := debug.ReadBuildInfo()
		var err error
		if from, err = sourceOf(dir, clone, build); err != nil {
			return err
		}
	}
	files, err := scaffold.Write(dir, k, from)
	if errors.Is(err, scaffold.ErrNotEmpty) {
		return fmt.Errorf("%s %w: name one that is empty or not there: %w", dir, err, punctual.ErrInvalid)
	}
	if err != nil {
		return err
	}
	run := k.Run(dir)
	if from.Version != "" {
		run = "go mod tidy -C " + scaffold.Quote(dir) + " && " + run
	}
	if a.json {
		return a.out.writeJSON(newJSON{dir, k, files, run})
	}
	for _, name := range files {
		a.printf("wrote %s\n", filepath.Join(dir, name))
	}
	if k.NeedsServer() {
		a.printf("\nStart a server in another terminal, unless one runs:  punctual serve\n")
	} else {
		a.printf("\n")
	}
	a.printf("Run it:  %s     (Ctrl-C ends it)\n", run)
	return nil
}

// sourceOf says where a program in dir finds the library: in the clone that was named, as the published version that this program
// is of, or in a clone near dir.
func sourceOf(dir, clone string, build *debug.BuildInfo) (scaffold.Source, error) {
	if clone != "" {
		if !scaffold.IsClone(clone) {
			return scaffold.Source{}, usagef("--clone %s: it has no go.mod of %s", clone, scaffold.Module)
		}
		return scaffold.Source{Clone: clone}, nil
	}
	if build != nil && released.MatchString(build.Main.Version) {
		return scaffold.Source{Version: build.Main.Version}, nil
	}
	full, err := filepath.Abs(dir)
	if err != nil {
		return scaffold.Source{}, err
	}
	found, err := scaffold.Find(full)
	if err != nil {
		return scaffold.Source{}, usagef("%v near %s, and no version is published yet: name the clone by --clone DIR", err, dir)
	}
	return scaffold.Source{Clone: found}, nil
}

// released matches the version of a release, but not that of a commit between two releases.
var released = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)
