package pgstore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/punctualmq/punctual"
)

// Which class of durability (P1) the server gives. docs/durability.md has the table.

// oldest is the first version of PostgreSQL that will do.
const oldest = 130000

// server is what server.sql reads: the settings that decide about durability, and what else Open
// and Examine look at.
type server struct {
	version          int
	standby          bool
	fsync, pages     string // fsync and full_page_writes
	commit, standbys string // synchronous_commit and synchronous_standby_names of the session
	readOnly         string
}

// guarantee is what the server gives to the messages in it, and what was asked for.
type guarantee struct {
	db   *database
	want punctual.Durability // Options.Durability
	log  *slog.Logger

	mu         sync.Mutex
	durability punctual.Durability // guarded by mu: what the server gave when it was last checked
	refusing   error               // guarded by mu: why pushes are refused, or nil
}

func (g *guarantee) readServer(ctx context.Context) (v server, err error) {
	err = g.db.read(ctx, func() *step {
		return g.db.step().add("server", nil, func(rows scanner) error {
			return rows.Scan(&v.version, &v.standby, &v.fsync, &v.pages, &v.commit, &v.standbys, &v.readOnly)
		})
	})
	return v, err
}

// class returns the class that the server gives to a store whose transactions raise
// synchronous_commit to needs, and what to set for a higher one.
func (v *server) class(needs string) (d punctual.Durability, why string) {
	commit := v.commit
	if commit == "off" || needs == "on" && commit != "remote_apply" {
		commit = needs
	}
	switch {
	case v.fsync != "on":
		return punctual.Volatile, "set fsync to on (it is off)"
	case v.pages != "on":
		return punctual.Volatile, "set full_page_writes to on (it is off, so a power cut may tear pages)"
	case v.standbys == "":
		return punctual.Fsync, "name standbys in synchronous_standby_names (it is empty)"
	case commit != "on" && commit != "remote_apply":
		return punctual.Fsync, "set synchronous_commit to on (it is " + commit + "), or ask for class replicated"
	}
	return punctual.Replicated, ""
}

// checkServer reads the settings of the server, and keeps the durability that they give. A server
// that is too old or a standby is an error. One that does not give enough is an error while the
// store opens; later on pushes are refused.
func (g *guarantee) checkServer(ctx context.Context) error {
	v, err := g.readServer(ctx)
	if err != nil {
		return err
	}
	if v.version < oldest {
		return fmt.Errorf("PostgreSQL %d.%d is too old: use 13 or newer: %w", v.version/10000, v.version%10000, punctual.ErrUnsupported)
	}
	if v.standby {
		return fmt.Errorf("the server is a standby, which takes no changes: name the primary: %w", punctual.ErrUnreachable)
	}
	got, why := v.class(g.db.needs)
	refusing := g.refuses(got, why)
	g.mu.Lock()
	defer g.mu.Unlock()
	opened := g.durability != ""
	if refusing != nil && !opened {
		return refusing
	}
	if refusing != nil && g.refusing == nil {
		g.log.Error("postgres store refuses pushes", "error", refusing)
	}
	g.durability, g.refusing = got, refusing
	return nil
}

// refuses returns the error for a class that was asked for and is not given, or nil. A higher class
// than was asked for will do.
func (g *guarantee) refuses(got punctual.Durability, why string) error {
	want := g.want
	if want == "" || want == got || want == punctual.Volatile || want == punctual.Fsync && got == punctual.Replicated {
		return nil
	}
	return fmt.Errorf("the server gives %q, not %q: %s: %w", got, want, why, punctual.ErrDurability)
}

// refusal returns why pushes are refused, or nil.
func (g *guarantee) refusal() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refusing
}
