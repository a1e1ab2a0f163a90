// Command bench measures Punctual and, beside it, other systems. Most scenarios use Punctual as a
// program would, through Queue and Worker; some call the methods of a Store. Beside many figures
// stands what the machine, or the same server without a queue, can do.
//
//	bench run                     measure everything (about two hours) and note the results
//	bench run -only ^redis        measure the store on Redis (about 15 minutes)
//	bench run -only ^postgres     measure the store on PostgreSQL, beside River (about 45 minutes: 10 for postgres-size, 20 for postgres-held)
//	bench run -only 'follow|groups|bulk'   measure follow-ups and groups on each store, and a bulk change on the embedded one (about 8 minutes)
//	bench run -only ^server       measure the server beside others (about 10 minutes)
//	bench run -only steady -quick measure a part, with much smaller sizes
//	bench report                  write the tables of docs/performance.md and docs/lab/measurements.md, and the charts
//	bench list                    name the scenarios
//
// Each round of a scenario runs in a process of its own, so that each round has its own memory and
// its own GOMAXPROCS. Results are lines of JSON (result.go).
//
// The name of a file begins with what the file measures: disk is the embedded store, follow is what
// one message leads to (follow-ups, copies for groups, bulk changes), and redis, postgres, server
// and console are what they say. The other files are shared: the command line (main.go), scenarios
// and rounds (scenario.go, run.go, child.go, process.go, system_linux.go, system_other.go,
// fleet.go, consumer.go), the means of measuring (pace.go, histogram.go, messages.go), and results,
// tables and charts (result.go, report.go, numbers.go, chart.go).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		stop()
		os.Exit(1)
	}
}

const synopsis = "usage: bench run|report|list [flags]; bench run -help tells the flags"

func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return errors.New(synopsis)
	}
	switch verb, rest := args[0], args[1:]; verb {
	case "run":
		return runCommand(ctx, rest, stderr)
	case "report":
		return reportCommand(rest, stderr)
	case "list":
		for _, s := range scenarios() {
			fmt.Fprintf(stdout, "%-28s %s\n", s.name, s.about)
		}
		return nil
	case childVerb:
		return childCommand(ctx, rest, stdout, stderr)
	case servePunctualVerb, serveNATSVerb:
		return serverCommand(ctx, verb, rest, stdout)
	case consumerVerb:
		return consumerCommand(ctx, rest, os.Stdin, stdout)
	default:
		return fmt.Errorf("%q is not a verb: %s", verb, synopsis)
	}
}

// runOptions are the flags of bench run.
type runOptions struct {
	dir     string
	results string
	profile string
	rounds  int
	only    *regexp.Regexp
	sizes   sizes
}

func runCommand(ctx context.Context, args []string, stderr io.Writer) error {
	var o runOptions
	flags := flag.NewFlagSet("bench run", flag.ContinueOnError)
	flags.SetOutput(stderr)
	full := fullSizes()
	flags.StringVar(&o.dir, "dir", "data", "folder for the stores, on the disk to be measured; made and removed")
	today := filepath.Join(resultsDir, time.Now().UTC().Format(time.DateOnly)+".ndjson")
	flags.StringVar(&o.results, "results", today, "file to which results are appended")
	flags.StringVar(&o.profile, "profile", "", "folder for CPU, mutex and block profiles; none when empty")
	flags.IntVar(&o.rounds, "rounds", 3, "rounds of each scenario; long ones have fewer")
	only := flags.String("only", "", "regular expression: measure only the scenarios that match (bench list names them)")
	quick := flags.Bool("quick", false, "much smaller, to see that it works")
	flags.DurationVar(&o.sizes.Span, "span", full.Span, "length of each measurement of a rate")
	flags.DurationVar(&o.sizes.Window, "window", full.Window, "length of each measurement of lateness")
	flags.IntVar(&o.sizes.Burst, "burst", full.Burst, "messages due in one instant")
	flags.IntVar(&o.sizes.Pending, "pending", full.Pending, "messages pending in the scenarios pending/*")
	flags.DurationVar(&o.sizes.RedisSpan, "redis-span", full.RedisSpan, "length of each measurement of a rate on Redis")
	flags.DurationVar(&o.sizes.RedisWindow, "redis-window", full.RedisWindow, "length of each measurement of lateness on Redis")
	flags.IntVar(&o.sizes.RedisBurst, "redis-burst", full.RedisBurst, "messages due in one instant on Redis")
	flags.IntVar(&o.sizes.RedisPending, "redis-pending", full.RedisPending, "messages pending in redis-cost/memory")
	flags.DurationVar(&o.sizes.PostgresHeld, "postgres-held", full.PostgresHeld, "how long postgres-held/* hold a snapshot")
	flags.IntVar(&o.sizes.PostgresLives, "postgres-lives", full.PostgresLives, "messages of postgres-size")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *quick {
		o.sizes = quickSizes()
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if o.rounds < 1 || !o.sizes.positive() {
		return errors.New("rounds and sizes must be positive")
	}
	return runAll(ctx, o, stderr)
}

// sizes say how much each scenario does.
type sizes struct {
	Span    time.Duration `json:"span"`    // of each measurement of a rate
	Window  time.Duration `json:"window"`  // of each measurement of lateness (busy/* use a quarter of it), and of CPU time in console/*
	Burst   int           `json:"burst"`   // messages due in one instant, and those of bulk/shift
	Pending int           `json:"pending"` // messages pending in pending/* and console/diskstore

	// The next four are the same sizes on Redis. Scenarios of PostgreSQL and of the server use the
	// first three of them, too. RedisPending is for redis-cost/memory, for the number of topics of
	// topics/redis, and for the console on Redis and PostgreSQL.
	RedisSpan    time.Duration `json:"redis_span"`
	RedisWindow  time.Duration `json:"redis_window"`
	RedisBurst   int           `json:"redis_burst"`
	RedisPending int           `json:"redis_pending"`

	// PostgresLives are the messages that postgres-size takes through their lives.
	PostgresLives int `json:"postgres_lives,omitempty"`
	// PostgresHeld is how long postgres-held/* hold a snapshot.
	PostgresHeld time.Duration `json:"postgres_held,omitempty"`
}

func fullSizes() sizes {
	return sizes{
		Span: 5 * time.Second, Window: 30 * time.Second, Burst: 1_000_000, Pending: 10_000_000,
		RedisSpan: 1200 * time.Millisecond, RedisWindow: 8 * time.Second, RedisBurst: 100_000, RedisPending: 1_000_000, PostgresLives: 10_000_000,
		PostgresHeld: 10 * time.Minute,
	}
}

func quickSizes() sizes {
	return sizes{
		Span: 500 * time.Millisecond, Window: 2 * time.Second, Burst: 20_000, Pending: 200_000,
		RedisSpan: 200 * time.Millisecond, RedisWindow: 2 * time.Second, RedisBurst: 20_000, RedisPending: 100_000, PostgresLives: 100_000,
		PostgresHeld: 10 * time.Second,
	}
}

// positive tells whether every size is greater than zero.
func (z sizes) positive() bool {
	return min(z.Burst, z.Pending, z.RedisBurst, z.RedisPending, z.PostgresLives) > 0 && min(z.Span, z.Window, z.RedisSpan, z.RedisWindow, z.PostgresHeld) > 0
}
