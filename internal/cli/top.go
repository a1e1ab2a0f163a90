package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/overview"
)

const topHelp = `Top shows a store live on a terminal: are messages in time, what falls due when, what needs
attention. Keys lead into topics, messages and dead messages, and change them after a question;
? lists the keys. Times are in the local time zone (TZ), or with --utc in UTC. It looks each
second, more seldom when the store takes long.`

const topExample = `  punctual top
  punctual top --store redis://localhost
  punctual top --utc`

func newTop(a *app) *cobra.Command {
	var utc bool
	cmd := &cobra.Command{
		Use:     "top",
		Short:   "Watch a store live on a terminal",
		Long:    topHelp,
		Example: topExample,
		Args:    cobra.NoArgs,
	}
	cmd.RunE = a.action(func(ctx context.Context, _ []string) error {
		out, ok := a.out.w.(*os.File)
		if !ok || !isTerminal(a.out) || !isTerminal(a.in) || a.json {
			return usagef("top needs a terminal to show itself on: in a script use 'punctual stats --json' or 'punctual forecast --json'")
		}
		zone := a.localZone()
		if utc {
			zone = time.UTC
		}
		held := &heldLines{}
		a.log = slog.New(slog.NewTextHandler(held, &slog.HandlerOptions{Level: slog.LevelWarn}))
		err := a.withInspector(ctx, mustExist, func(i punctual.Inspector, s punctual.Store) error {
			return a.top(ctx, i, s, zone, out)
		})
		return errors.Join(err, held.writeTo(a.errs))
	})
	cmd.Flags().BoolVar(&utc, "utc", false, "times are those of UTC")
	return cmd
}

// top shows the store until the user leaves.
func (a *app) top(ctx context.Context, i punctual.Inspector, s punctual.Store, zone *time.Location, out *os.File) (err error) {
	r, err := overview.New(s, &overview.Options{Zone: zone})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	within, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	t := newTopModel(a, i, s, r, zone)
	p := tea.NewProgram(t,
		tea.WithContext(ctx), tea.WithoutSignalHandler(), tea.WithInput(a.in), tea.WithOutput(out), tea.WithEnvironment(a.terminalEnv()))
	t.run = func(f func(context.Context) tea.Msg) {
		work.Go(func() { p.Send(f(within)) })
	}
	work.Go(func() { tickEach(within, topEach, func() { p.Send(topTick{}) }) })
	if _, err := p.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("show the store on the terminal: %w", err)
	}
	return nil
}

// topEach is how often top looks. The reader looks more seldom when the store takes long.
const topEach = time.Second

// tickEach calls f at once and then each so often until ctx ends.
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

// terminalEnv is what the environment says of the terminal and its colours.
func (a *app) terminalEnv() []string {
	var env []string
	for _, name := range []string{"TERM", "COLORTERM", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM_PROGRAM", "TMUX", "STY", "WT_SESSION", "SSH_TTY"} {
		if value := a.getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// heldLines keeps what the store logs while the screen is in use, at most so much.
type heldLines struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

// mostHeld bounds the bytes that are kept of a log.
const mostHeld = 64 << 10

// Write keeps the newest lines.
func (h *heldLines) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text = append(h.text, p...)
	h.text = h.text[max(0, len(h.text)-mostHeld):]
	return len(p), nil
}

// writeTo writes what was kept.
func (h *heldLines) writeTo(o *output) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := o.Write(h.text)
	return err
}
