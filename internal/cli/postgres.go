package cli

import (
	"context"
	"errors"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/pgstore"
)

// postgresSchemes are the kinds of stores in PostgreSQL: one, under the two names that PostgreSQL's own programs know.
func postgresSchemes() []scheme {
	return []scheme{
		{"postgres", "postgres://HOST/DATABASE", openPostgres("postgres:"), examinePostgres("postgres:"), openPostgres("postgres:")},
		{"postgresql", "", openPostgres("postgresql:"), examinePostgres("postgresql:"), openPostgres("postgresql:")},
	}
}

// openPostgres returns a function that opens the store of a URL of which the command line has cut off the scheme. A command that may
// make a store makes the tables.
func openPostgres(scheme string) func(context.Context, place) (punctual.Store, error) {
	return func(ctx context.Context, p place) (punctual.Store, error) {
		s, err := pgstore.OpenURL(ctx, scheme+p.where, &pgstore.Options{Logger: p.log, Migrate: p.create})
		switch {
		case errors.Is(err, punctual.ErrNotFound):
			return nil, &failure{
				code: codeNoStore, exit: exitError, definite: true,
				text: "no store in this database, or not in this schema: push something first or name another with --store",
			}
		case err != nil:
			return nil, err // not s: a nil *Store in an interface is not nil
		}
		return s, nil
	}
}

func examinePostgres(scheme string) func(context.Context, place) ([]punctual.Finding, error) {
	return func(ctx context.Context, p place) ([]punctual.Finding, error) {
		return pgstore.ExamineURL(ctx, scheme+p.where, &pgstore.Options{Logger: p.log})
	}
}
