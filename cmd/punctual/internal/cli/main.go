package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/punctualmq/punctual/redisstore"
)

// Main carries out the command line of this process and returns its exit code. The first SIGINT,
// SIGTERM or SIGHUP ends the run's context, a later one the process. A SIGHUP that was ignored
// before, as by nohup, stays ignored.
func Main() int {
	a := newApp(Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	redisstore.LogClient(slog.New(slog.DiscardHandler)) // not on standard error, because the errors of commands say the same
	ctx, interrupt := context.WithCancelCause(context.Background())
	defer interrupt(nil)

	// SIGPIPE is caught, so that a write to a closed pipe fails instead of ending the process. It
	// is not ignored, because the commands of consume --exec would inherit that.
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	var force context.CancelFunc
	a.forced, force = context.WithCancel(context.Background())
	ended := make(chan struct{})
	go a.watch(signals, interrupt, force, ended) // lasts as long as the process

	code := a.run(ctx, os.Args[1:])
	close(ended)
	if a.forced.Err() != nil {
		select {} // watch ends the process
	}
	return code
}

// sameSignal is how long after the first signal another one counts as the same. Commands such as
// timeout send a signal to a process and to its group, and a terminal that is closed sends a SIGHUP
// after the shell's.
const sameSignal = 500 * time.Millisecond

// giveBackTime is how long a command may take after the second signal to give back the messages
// that it handles.
const giveBackTime = time.Second

// watch ends the run at the first signal. At the next one that comes sameSignal later or more it
// has the command give up what is under way, and ends the process when the command has ended, or
// after giveBackTime.
func (a *app) watch(signals <-chan os.Signal, interrupt context.CancelCauseFunc, force context.CancelFunc, ended <-chan struct{}) {
	first := <-signals
	interrupt(fmt.Errorf("%v: %w", first, context.Canceled))
	a.logger().Warn("finishing what is under way; the next signal ends at once", "signal", first.String())
	began := time.Now()
	second := <-signals
	for time.Since(began) < sameSignal {
		second = <-signals
	}
	force()
	select {
	case <-ended:
	case <-time.After(giveBackTime):
	}
	a.children.kill()
	os.Exit(exitCodeOf(second))
}

func exitCodeOf(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return exitSignal + int(n)
	}
	return exitError
}
