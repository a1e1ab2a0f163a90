package cli

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/console"
)

// consoleFlags are the flags of serve that say what the console shows.
type consoleFlags struct {
	off        bool
	hideBodies bool
	headers    []string
}

func (f *consoleFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.off, "no-console", false, "serve the interface alone, without pages for people")
	flags.BoolVar(&f.hideBodies, "console-hide-bodies", false, "show no bodies and headers of messages in the console")
	flags.StringArrayVar(&f.headers, "console-show-header", nil, "show the header `NAME` all the same (repeatable)")
}

func (f *consoleFlags) check() error {
	switch {
	case f.off && (f.hideBodies || len(f.headers) > 0):
		return usagef("--no-console goes without --console-hide-bodies and --console-show-header")
	case len(f.headers) > 0 && !f.hideBodies:
		return usagef("--console-show-header goes with --console-hide-bodies, which hides the other ones")
	}
	return nil
}

// consoleServer has the functions of the server that the console calls.
type consoleServer struct {
	authenticate func(*http.Request) (*access.Principal, error)
	consumers    func(context.Context, string) (punctual.Consumers, error)
}

// newConsole returns the console of a store, or nil when the flags turn it off.
func (a *app) newConsole(s punctual.Store, f *runFlags, beside consoleServer) (*console.Console, error) {
	if f.console.off {
		return nil, nil
	}
	return console.New(s, &console.Options{
		Version: a.version(), HideBodies: f.console.hideBodies, ShowHeaders: f.console.headers, Logger: a.logger(), API: "/",
		LoginByToken: f.tokens != "", Consumers: beside.consumers, Authenticate: beside.authenticate,
	})
}
