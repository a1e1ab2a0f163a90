package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
)

// childVerb is the verb of the process of a round. The bench starts itself again with this verb and
// a task, and reads lines of JSON from the standard output of that process.
const childVerb = "child"

// task says which round a child runs, and with which folders and sizes.
type task struct {
	Scenario string `json:"scenario"`
	Round    int    `json:"round"`
	Dir      string `json:"dir"`
	Kept     string `json:"kept"`
	Profile  string `json:"profile,omitempty"`
	Sizes    sizes  `json:"sizes"`
}

// report is one line from a child.
type report struct {
	Say    string  `json:"say,omitempty"`
	Ready  bool    `json:"ready,omitempty"`
	Result *Result `json:"result,omitempty"`
}

func childCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) != 1 {
		return errors.New("child is for the bench itself: use bench run")
	}
	var t task
	if err := json.Unmarshal([]byte(args[0]), &t); err != nil {
		return fmt.Errorf("child: %w", err)
	}
	return runTask(ctx, t, stdout)
}

// runTask runs a round and writes its reports to out, the result last.
func runTask(ctx context.Context, t task, out io.Writer) error {
	s, err := scenarioNamed(t.Scenario)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(out)
	tell := func(r report) {
		if err := lines.Encode(r); err != nil {
			fmt.Fprintln(os.Stderr, "bench: tell the parent:", err)
		}
	}
	e := &env{
		dir: t.Dir, kept: t.Kept, sizes: t.Sizes, round: t.Round,
		say:   func(format string, args ...any) { tell(report{Say: fmt.Sprintf(format, args...)}) },
		ready: func() { tell(report{Ready: true}) },
		out: &Result{
			Kind: "result", Scenario: t.Scenario, Round: t.Round, Procs: runtime.GOMAXPROCS(0), Values: make(map[string]float64),
		},
	}
	stop, err := startProfiles(t)
	if err != nil {
		return err
	}
	used, err := takeUsage()
	if err == nil {
		err = s.run(ctx, e)
	}
	if perr := stop(); err == nil {
		err = perr
	}
	if err == nil {
		err = e.out.setOthers(used)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", t.Scenario, err)
	}
	return lines.Encode(report{Result: e.out})
}

// startProfiles begins the profiles that the task asks for; the returned function writes them.
func startProfiles(t task) (stop func() error, err error) {
	if t.Profile == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(t.Profile, 0o755); err != nil {
		return nil, err
	}
	path := func(kind string) string {
		name := strings.ReplaceAll(t.Scenario, "/", "-")
		return filepath.Join(t.Profile, fmt.Sprintf("%s-%d.%s.prof", name, t.Round, kind))
	}
	cpu, err := os.Create(path("cpu"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, errors.Join(err, cpu.Close())
	}
	runtime.SetMutexProfileFraction(10)
	runtime.SetBlockProfileRate(100_000) // one sample for each 100 µs blocked
	return func() error {
		pprof.StopCPUProfile()
		err := cpu.Close()
		for _, kind := range []string{"mutex", "block", "allocs"} {
			err = errors.Join(err, writeProfile(kind, path(kind)))
		}
		return err
	}, nil
}

func writeProfile(kind, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup(kind).WriteTo(f, 0), f.Close())
}
