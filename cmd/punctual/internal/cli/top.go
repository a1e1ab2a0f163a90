package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/top"
)

func newTop(a *app) *cobra.Command {
	var utc bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch a store live on a terminal",
		Long: `Top shows a store live on a terminal: whether messages are in time, what falls due when, and what
needs attention. Keys open topics and their messages, in each state. Other keys change them, for
example c cancels a message, always after a question; ? lists all keys. Times are in the local time
zone (TZ), or with --utc in UTC. The numbers are read anew every second, less often when that takes
the store long.`,
		Example: `  punctual top
  punctual top --store redis://localhost
  punctual top --utc`,
	}
	cmd.RunE = a.action(func(ctx context.Context, _ []string) error {
		out, ok := a.out.Stream().(*os.File)
		if !ok || !a.out.IsTerminal() || !term.IsTerminal(a.in) || a.json {
			return usagef("top needs a terminal to show itself on: in a script use 'punctual stats --json' or 'punctual forecast --json'")
		}
		zone := a.localZone()
		if utc {
			zone = time.UTC
		}
		readTime := func(s string) (time.Time, error) {
			t, _, err := a.readTime(s, zone) // the question that follows names the instant
			return t, err
		}
		held := &heldLines{}
		a.log = slog.New(slog.NewTextHandler(held, &slog.HandlerOptions{Level: slog.LevelWarn}))
		err := a.withInspector(ctx, mustExist, func(i punctual.Inspector, s punctual.Store) error {
			return top.Run(ctx, i, s, top.Options{In: a.in, Out: out, Environ: a.terminalEnv(), Zone: zone, ReadTime: readTime})
		})
		return errors.Join(err, held.writeTo(a.errs))
	})
	cmd.Flags().BoolVar(&utc, "utc", false, "times are those of UTC")
	return cmd
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

// heldLines keeps what the store logs while the screen is in use, because a line on the terminal
// would spoil it. Of a long log it keeps the end.
type heldLines struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

// mostHeld bounds the bytes that are kept of a log.
const mostHeld = 64 << 10

// Write keeps the last mostHeld bytes of all that was written.
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
