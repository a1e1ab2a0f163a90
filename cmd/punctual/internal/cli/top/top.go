// Package top is what punctual top shows: a store, live on a terminal. The model (model.go) holds
// what is shown and where the user stands in it; keys.go says what each key does, and makes the
// changes of the store once the user has answered a question; draw.go draws the screen. bubbletea
// calls the model from one goroutine; what takes long runs beside it and comes back as a message.
package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/overview"
)

// Options are the terminal on which Run shows a store, and how it writes and reads times. All of
// them are needed.
type Options struct {
	// In and Out are the terminal, Environ what the environment says about it, such as TERM and
	// NO_COLOR.
	In      io.Reader
	Out     *os.File
	Environ []string
	// Zone is the time zone of the times that are shown.
	Zone *time.Location
	// ReadTime reads a time that the user types.
	ReadTime func(string) (time.Time, error)
}

// Run shows the store until the user leaves it, or until ctx ends; it then returns the cause of
// that. While Run runs, nothing else may write to the terminal.
func Run(ctx context.Context, i punctual.Inspector, s punctual.Store, o Options) (err error) {
	r, err := overview.New(s, &overview.Options{Zone: o.Zone})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	within, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	t := newModel(i, s, r, o)
	p := tea.NewProgram(t,
		tea.WithContext(ctx), tea.WithoutSignalHandler(), tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithEnvironment(o.Environ))
	t.run = func(f func(context.Context) tea.Msg) {
		work.Go(func() { p.Send(f(within)) })
	}
	work.Go(func() { tickEach(within, interval, func() { p.Send(tickMsg{}) }) })
	if _, err := p.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("show the store on the terminal: %w", err)
	}
	return nil
}

// interval is how often top reads the store. The reader itself reads less often when a reading
// takes long.
const interval = time.Second

// tickEach calls f at once, and again whenever the time each has passed, until ctx ends.
func tickEach(ctx context.Context, each time.Duration, f func()) {
	ticker := time.NewTicker(each)
	defer ticker.Stop()
	for {
		f()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
