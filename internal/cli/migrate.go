package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual/pgstore"
)

const migrateHelp = `Migrate brings the tables of a store in PostgreSQL to the version that this program needs.
Commands that push, and programs that open the store with Options.Migrate, do so by themselves.
Stores of other kinds have nothing to migrate.`

const migrateExample = `  punctual migrate status --store postgres://localhost/shop
  punctual migrate up --store postgres://localhost/shop
  punctual migrate up --store 'postgres://localhost/shop?schema=queue'`

func newMigrate(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:     "migrate",
		Short:   "Bring the tables of a store in PostgreSQL to this version",
		Long:    migrateHelp,
		Example: migrateExample,
	}, newMigrateUp(a), newMigrateStatus(a))
}

const migrateUpHelp = `Up makes the tables of a store in PostgreSQL where there are none, and brings older ones to the
version that this program needs. Several processes may do so at once.`

const migrateUpExample = `  punctual migrate up --store postgres://localhost/shop
  punctual migrate up --store 'postgres://localhost/shop?schema=queue'
  PUNCTUAL_STORE=postgres://localhost/shop punctual migrate up`

func newMigrateUp(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "up",
		Short:   "Apply what is pending",
		Long:    migrateUpHelp,
		Example: migrateUpExample,
		Args:    cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			url, err := a.postgresURL()
			if err != nil {
				return err
			}
			if err := pgstore.MigrateURL(ctx, url, &pgstore.Options{Logger: a.logger()}); err != nil {
				return err
			}
			return a.showMigration(ctx, url)
		}),
	}
}

const migrateStatusHelp = `Status says which version the tables of a store in PostgreSQL have, and what is pending. It
changes nothing.`

const migrateStatusExample = `  punctual migrate status --store postgres://localhost/shop
  punctual migrate status --store 'postgres://localhost/shop?schema=queue'
  punctual migrate status --store postgres://localhost/shop --json`

func newMigrateStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Say which version the tables have",
		Long:    migrateStatusHelp,
		Example: migrateStatusExample,
		Args:    cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			url, err := a.postgresURL()
			if err != nil {
				return err
			}
			return a.showMigration(ctx, url)
		}),
	}
}

// postgresURL is the store that is named, which must be one in PostgreSQL.
func (a *app) postgresURL() (string, error) {
	name := a.storeName()
	if kind, _, _ := strings.Cut(name, ":"); kind != "postgres" && kind != "postgresql" {
		return "", usagef("only stores in PostgreSQL have something to migrate: name one with --store postgres://HOST/DATABASE")
	}
	return name, nil
}

func (a *app) showMigration(ctx context.Context, url string) error {
	v, err := pgstore.MigrationStatusURL(ctx, url, &pgstore.Options{Logger: a.logger()})
	if err != nil {
		return err
	}
	if a.json {
		pending := v.Pending
		if pending == nil {
			pending = []string{}
		}
		return a.out.writeJSON(migrationJSON{Tables: v.Tables, Program: v.Program, Pending: pending})
	}
	a.printf("tables are of version %d, this program needs %d\n", v.Tables, v.Program)
	for _, name := range v.Pending {
		a.printf("pending: %s\n", name)
	}
	return nil
}

// migrationJSON is what migrate up and migrate status print.
type migrationJSON struct {
	Tables  int      `json:"tables"`
	Program int      `json:"program"`
	Pending []string `json:"pending"`
}
