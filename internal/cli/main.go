package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/punctualmq/punctual/redisstore"
)

// Main carries out the command line of this process and returns its exit code. The
// first SIGINT or SIGTERM ends the run's context, the second the process.
func Main() int {
	a := newApp(Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	redisstore.LogClient(slog.New(slog.DiscardHandler)) // not on standard error, because the errors of commands say the same
	ctx, interrupt := context.WithCancelCause(context.Background())
	defer interrupt(nil)

	// SIGPIPE is caught, so that a write to a closed pipe fails instead of ending the process. It is not ignored,
	// because the commands of consume --exec would inherit that.
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go a.watch(signals, interrupt) // lasts as long as the process

	return a.run(ctx, os.Args[1:])
}

// watch ends the run at the first signal, and the process at the second.
func (a *app) watch(signals <-chan os.Signal, interrupt context.CancelCauseFunc) {
	first := <-signals
	interrupt(fmt.Errorf("%v: %w", first, context.Canceled))
	a.logger().Warn("finishing what is under way; the next signal ends at once", "signal", first.String())
	second := <-signals
	a.children.kill()
	os.Exit(exitCodeOf(second))
}

func exitCodeOf(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return exitSignal + int(n)
	}
	return exitError
}
