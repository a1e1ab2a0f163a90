package cli

import (
	"strings"
	"testing"

	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
)

func TestPostgresStore(t *testing.T) {
	store := pgrig.Start(t, "fsync=off").URL("postgres")
	runOn(t, store, "topics").exits(exitError, "no store in this database")
	runOn(t, store, "migrate", "status").ok().contains("tables are of version 0").contains("pending: 001_tables")
	runOn(t, store, "doctor").contains("migrate up")
	runOn(t, store, "push", "orders", "close order 42", "--id", "42").ok().prints("42\n")
	runOn(t, store, "push", "orders", "close order 43", "--id", "43", "--in", "1h").ok().prints("43\n")
	runOn(t, store, "cancel", "43", "--topic", "orders").ok()
	runOn(t, store, "consume", "orders", "--until-empty").exits(exitOK).contains(`"body":"close order 42"`)
	runOn(t, store, "topics").ok().contains("orders")
	runOn(t, store, "check").exits(exitOK)
	runOn(t, store, "migrate", "status", "--json").ok().contains(`"pending":[]`)
	runOn(t, store+"&schema=other", "migrate", "up").ok().contains("version 1")
	runOn(t, store+"&schema=other", "topics").exits(exitOK, "no topics")
}

func TestBadPostgresURL(t *testing.T) {
	r := runOn(t, "postgres://user:secret@host/db?durability=some", "topics").exits(exitUsage, "postgres://host")
	if strings.Contains(r.err, "secret") {
		t.Errorf("standard error tells the password: %s", r.err)
	}
	runOn(t, "mem:", "migrate", "up").exits(exitUsage, "PostgreSQL")
}
