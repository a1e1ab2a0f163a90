package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
)

// round is the n-th round of a scenario.
type round struct {
	scenario scenario
	n        int
}

// runner runs the planned rounds of one call of bench run.
type runner struct {
	runOptions
	machine Machine
	stderr  io.Writer
	rounds  []round
	done    int
	// left is a guess of how long the rounds that are not done take.
	left time.Duration
}

func runAll(ctx context.Context, o runOptions, stderr io.Writer) (err error) {
	if o.dir, err = makeDir(o.dir); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, os.RemoveAll(o.dir))
	}()
	r := &runner{runOptions: o, stderr: stderr, rounds: plan(o), machine: describeMachine(o.dir, o.sizes)}
	if len(r.rounds) == 0 {
		return errors.New("no scenario matches -only: see bench list")
	}
	if err := r.checkSpace(); err != nil {
		return err
	}
	if err := appendLine(o.results, r.machine); err != nil {
		return err
	}
	for _, p := range r.rounds {
		r.left += p.scenario.takes(o.sizes)
	}
	failed, err := r.runRounds(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "%d rounds measured, %d failed; results are in %s\n", r.done-failed, failed, o.results)
	if failed > 0 {
		return fmt.Errorf("%d rounds failed", failed)
	}
	return nil
}

// runRounds runs the planned rounds. A round that fails is noted with its error, and the others are
// still measured.
func (r *runner) runRounds(ctx context.Context) (failed int, err error) {
	for _, p := range r.rounds {
		result, err := r.runRound(ctx, p)
		if ctx.Err() != nil {
			return failed, context.Cause(ctx)
		}
		if err != nil {
			failed++
			fmt.Fprintln(r.stderr, "bench:", err)
			result = &Result{Kind: "result", Scenario: p.scenario.name, Round: p.n, Procs: procsOf(p.scenario), Error: err.Error()}
		}
		result.Run = r.machine.Run
		if err := appendLine(r.results, result); err != nil {
			return failed, err
		}
		r.done++
		r.left -= p.scenario.takes(r.sizes)
	}
	return failed, nil
}

// makeDir makes the folder for the stores, which must not exist yet, and returns its full path.
func makeDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(abs, 0o755); err != nil {
		return "", fmt.Errorf("the folder for the stores is made and removed by the bench, so it must not exist yet: %w", err)
	}
	return abs, nil
}

// plan lists the rounds: first those on fresh stores, then those on the large store. On fresh
// stores the first round of every scenario comes before the second round of any, so that a minute
// in which the machine is busy does not fall into all rounds of one scenario. On the large store
// all rounds of a scenario follow each other.
func plan(o runOptions) []round {
	var rounds []round
	for n := 1; n <= o.rounds; n++ {
		for _, s := range scenarios() {
			if !s.pending && o.wants(s, n) {
				rounds = append(rounds, round{s, n})
			}
		}
	}
	for _, s := range scenarios() {
		for n := 1; s.pending && n <= o.rounds; n++ {
			if o.wants(s, n) {
				rounds = append(rounds, round{s, n})
			}
		}
	}
	return rounds
}

func (o runOptions) wants(s scenario, n int) bool {
	return !s.hidden && o.only.MatchString(s.name) && (s.maxRounds == 0 || n <= s.maxRounds)
}

// checkSpace returns an error when the run could fill the disk.
func (r *runner) checkSpace() error {
	free, err := freeSpace(r.dir)
	if err != nil {
		return err
	}
	// 10 million messages take about 3 GB when they are stored, and as much again while the
	// database compacts.
	need := uint64(r.sizes.Pending)*800 + 4<<30
	if free < need {
		return fmt.Errorf("%s has %d GB free and this run may need %d GB: choose another disk with -dir, or less with -pending", r.dir, free>>30, need>>30)
	}
	return nil
}

// runRound runs one round and returns its result. If the scenario names another one in after, that
// runs first and is killed.
func (r *runner) runRound(ctx context.Context, p round) (*Result, error) {
	s := p.scenario
	kept := filepath.Join(r.dir, "kept")
	dir := filepath.Join(r.dir, "store")
	if s.pending {
		dir = filepath.Join(r.dir, "pending")
	} else {
		defer os.RemoveAll(dir)
	}
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return nil, err
	}
	if s.pending && s.name != fillScenario {
		if _, err := os.Stat(samplePath(kept)); err != nil {
			return nil, fmt.Errorf("%s needs the store that %s makes, which failed or was not chosen with -only: %w", s.name, fillScenario, err)
		}
	}
	t := task{Scenario: s.name, Round: p.n, Dir: dir, Kept: kept, Profile: r.profile, Sizes: r.sizes}
	if s.after != "" {
		first := t
		first.Scenario, first.Profile = s.after, ""
		if _, err := r.child(ctx, first, s, p.n, killAfter(r.sizes)); err != nil {
			return nil, err
		}
	}
	return r.child(ctx, t, s, p.n, 0)
}

// child runs a task in a process of its own and returns its result. If kill is not 0, the process
// is killed that long after it has reported that it is ready, and the result is nil.
func (r *runner) child(ctx context.Context, t task, s scenario, n int, kill time.Duration) (*Result, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	arg, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, childVerb, string(arg))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(procsOf(s)))
	cmd.Stderr = r.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	result := r.listen(out, cmd, t, n, kill)
	err = cmd.Wait()
	switch {
	case kill > 0 && cmd.ProcessState.ExitCode() == -1 && ctx.Err() == nil:
		return nil, nil // killed, as it should be
	case err != nil:
		return nil, fmt.Errorf("%s round %d: %w", t.Scenario, n, err)
	case result == nil:
		return nil, fmt.Errorf("%s round %d ended without a result", t.Scenario, n)
	}
	return result, nil
}

// procsOf returns the GOMAXPROCS of a scenario's process. Unless the scenario says otherwise it is
// at least 4, because cmd/punctual raises it to 4.
func procsOf(s scenario) int {
	if s.procs != 0 {
		return s.procs
	}
	return max(4, runtime.NumCPU())
}

// listen reads a child's reports to the end, shows its progress, and returns its result. If kill is
// not 0, it kills the child that long after the child has reported that it is ready.
func (r *runner) listen(out io.Reader, cmd *exec.Cmd, t task, n int, kill time.Duration) (result *Result) {
	r.progress(t, n, "")
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var rep report
		if err := json.Unmarshal(lines.Bytes(), &rep); err != nil {
			fmt.Fprintf(r.stderr, "bench: %s says %q\n", t.Scenario, lines.Text())
			continue
		}
		switch {
		case rep.Result != nil:
			result = rep.Result
		case rep.Ready && kill > 0:
			time.AfterFunc(kill, func() { _ = cmd.Process.Kill() })
		case rep.Say != "":
			r.progress(t, n, rep.Say)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintf(r.stderr, "bench: read from %s: %v\n", t.Scenario, err)
	}
	return result
}

// progress shows which round is under way, and in which phase it is.
func (r *runner) progress(t task, n int, say string) {
	if say != "" {
		say = ": " + say
	}
	fmt.Fprintf(r.stderr, "[%d/%d, about %v left] %s round %d%s\n",
		r.done+1, len(r.rounds), r.left.Round(time.Second), t.Scenario, n, say)
}
