package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/memstore"
)

// defaultStore is opened when neither --store nor PUNCTUAL_STORE names one.
const defaultStore = "disk:punctual-data"

// scheme is one kind of store that --store can name: `NAME:WHERE`.
type scheme struct {
	name string
	// form shows users what to write; empty for a variant of another one.
	form string
	open func(ctx context.Context, p place) (punctual.Store, error)
	// examine says what the store stands on, without opening it: it may refuse to.
	examine func(ctx context.Context, p place) ([]punctual.Finding, error)
}

// place is which store to open, and how.
type place struct {
	// where is the text behind the colon.
	where string
	// create makes a store that does not exist. Otherwise that is a failure (noStore), and
	// nothing must be made.
	create bool
	// log gets what the store has to say on its own.
	log *slog.Logger
}

// schemes is the table of stores. A new kind of store is one more row.
func schemes() []scheme {
	return append([]scheme{
		{"disk", "disk:PATH", openDisk, examineDisk},
		{"mem", "mem:", openMemory, examineMemory},
	}, redisSchemes()...)
}

func openMemory(_ context.Context, p place) (punctual.Store, error) {
	if err := noPlace(p); err != nil {
		return nil, err
	}
	return memstore.New(nil), nil
}

func examineMemory(_ context.Context, p place) ([]punctual.Finding, error) {
	if err := noPlace(p); err != nil {
		return nil, err
	}
	return memstore.Examine(), nil
}

func noPlace(p place) error {
	if p.where != "" {
		return usagef("store \"mem:%s\": a store in memory has no place: use mem:", p.where)
	}
	return nil
}

func examineDisk(ctx context.Context, p place) ([]punctual.Finding, error) {
	if err := namesDirectory(p); err != nil {
		return nil, err
	}
	return diskstore.Examine(ctx, p.where, &diskstore.Options{Logger: p.log})
}

func namesDirectory(p place) error {
	if p.where == "" {
		return usagef("store \"disk:\" names no directory: use disk:PATH")
	}
	return nil
}

func openDisk(_ context.Context, p place) (punctual.Store, error) {
	if err := namesDirectory(p); err != nil {
		return nil, err
	}
	if !p.create {
		if err := diskExists(p.where); err != nil {
			return nil, err
		}
	}
	s, err := diskstore.Open(p.where, &diskstore.Options{Logger: p.log})
	if err != nil {
		return nil, err // not s: a nil *Store in an interface is not nil
	}
	return s, nil
}

// diskExists returns a noStore failure unless the directory holds a store.
func diskExists(dir string) error {
	there, err := diskstore.Exists(dir)
	switch {
	case err != nil:
		return fmt.Errorf("open the store: %w", err)
	case !there:
		return noStore(dir)
	}
	return nil
}

func noStore(dir string) error {
	if full, err := filepath.Abs(dir); err == nil {
		dir = full
	}
	return &failure{
		code: codeNoStore, exit: exitError, definite: true,
		text: fmt.Sprintf("no store at %s: push something first or name another with --store", dir),
	}
}

func (a *app) storeForms() string {
	var forms []string
	for _, s := range a.schemes {
		if s.form != "" {
			forms = append(forms, s.form)
		}
	}
	return strings.Join(forms, " or ")
}

// storeName is what --store, PUNCTUAL_STORE or the default say, in this order.
func (a *app) storeName() string {
	if a.storeFlag != "" {
		return a.storeFlag
	}
	if name := a.getenv("PUNCTUAL_STORE"); name != "" {
		return name
	}
	return defaultStore
}

// How withStore treats a store that does not exist.
const (
	mustExist = false
	orCreate  = true
)

// withStore opens the store, lets f use it, and closes it.
func (a *app) withStore(ctx context.Context, create bool, f func(punctual.Store) error) error {
	s, err := a.openStore(ctx, create)
	if err != nil {
		return err
	}
	err = f(s)
	if closing := s.Close(); closing != nil {
		err = errors.Join(err, fmt.Errorf("close the store: %w", closing))
	}
	return err
}

func (a *app) openStore(ctx context.Context, create bool) (punctual.Store, error) {
	s, where, err := a.scheme()
	if err != nil {
		return nil, err
	}
	return s.open(ctx, place{where: where, create: create, log: a.logger()})
}

// scheme is the kind of the store that is named, and the text behind the colon.
func (a *app) scheme() (s scheme, where string, err error) {
	name := a.storeName()
	kind, where, ok := strings.Cut(name, ":")
	for _, s := range a.schemes {
		if ok && s.name == kind {
			return s, where, nil
		}
	}
	return s, "", usagef("store %q is of no known kind: use %s", name, a.storeForms())
}

// withInspector is withStore for the commands that look into a store which exists
// already or steer its topics.
func (a *app) withInspector(ctx context.Context, create bool, f func(punctual.Inspector, punctual.Store) error) error {
	return a.withStore(ctx, create, func(s punctual.Store) error {
		i, err := punctual.AsInspector(s)
		if err != nil {
			return err
		}
		return f(i, s)
	})
}
