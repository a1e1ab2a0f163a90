package pgstore

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// severities are those of findings, by their names.
func severities(found []storekit.Finding) map[string]storekit.Severity {
	out := make(map[string]storekit.Severity)
	for _, f := range found {
		out[f.Name] = f.Severity
	}
	return out
}

func TestExamine(t *testing.T) {
	t.Parallel()
	pool := newPool(t, shared)
	t.Cleanup(pool.Close)
	o := &Options{Schema: fresh()}
	found, err := Examine(t.Context(), pool, o)
	if got := severities(found); err != nil || got["tables"] != storekit.SeverityWarning || got["role"] != storekit.SeverityGood {
		t.Errorf("without a store: %+v, %v; want a warning of the tables", found, err)
	}
	o.Migrate = true
	s := openStore(t, pool, o)
	found, err = s.Examine(t.Context())
	got := severities(found)
	if err != nil || got["tables"] != storekit.SeverityGood || got["durability"] != storekit.SeverityWarning {
		t.Errorf("with fsync off: %+v, %v; want good tables and a warning of durability", found, err)
	}
	for _, f := range found {
		if (f.Remedy == "") != (f.Severity == storekit.SeverityGood) {
			t.Errorf("finding %+v: a remedy goes with what is not good, and only with that", f)
		}
		if f.Name == "durability" && !strings.Contains(f.Remedy, "fsync") {
			t.Errorf("the remedy of %+v does not name fsync", f)
		}
	}
}

// Examine warns of three kinds of pools: one that was full, one that is too small, and one that is
// larger than the server allows.
func TestExaminePool(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		conns  int32
		full   bool
		remedy string
	}{
		{conns: 10},
		{conns: 3, remedy: "set pool_max_conns to 4 or more"},
		{conns: 1000, remedy: "max_connections"},
		{conns: 10, full: true, remedy: "what handlers hold at a time"},
	} {
		s := openStore(t, poolOf(t, shared, c.conns), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
		if c.full {
			holdAll(t, s)
			pushOrders(t, s, 1, 0)
		}
		found, err := s.Examine(t.Context())
		i := slices.IndexFunc(found, func(f storekit.Finding) bool { return f.Name == "pool" })
		if err != nil || i < 0 {
			t.Fatalf("pool of %d, full %v: %+v, %v; want a finding", c.conns, c.full, found, err)
		}
		if f := found[i]; !strings.Contains(f.Remedy, c.remedy) || (f.Severity == storekit.SeverityGood) != (c.remedy == "") {
			t.Errorf("pool of %d, full %v: %+v; want %q as the remedy", c.conns, c.full, f, c.remedy)
		}
	}
}

// Open refuses where there are no tables, and says what to do, and refuses tables of a newer
// program. Migrate makes the tables, and changes nothing when it is called again.
func TestOpenNeedsTables(t *testing.T) {
	t.Parallel()
	pool := newPool(t, shared)
	t.Cleanup(pool.Close)
	o := &Options{Schema: fresh()}
	if _, err := Open(t.Context(), pool, o); storekit.ErrorCode(err) != "not_found" || !strings.Contains(err.Error(), "migrate up") {
		t.Errorf("Open without tables: %v; want not found, with what to do", err)
	}
	v, err := MigrationStatus(t.Context(), pool, o)
	if err != nil || v.Tables != 0 || len(v.Pending) != v.Program {
		t.Errorf("MigrationStatus without tables: %+v, %v; want all pending", v, err)
	}
	for range 2 {
		if err := Migrate(t.Context(), pool, o); err != nil {
			t.Fatal(err)
		}
	}
	if v, err := MigrationStatus(t.Context(), pool, o); err != nil || v.Tables != v.Program || len(v.Pending) != 0 {
		t.Errorf("MigrationStatus after Migrate: %+v, %v; want none pending", v, err)
	}
	openStore(t, pool, o)
	if _, err := pool.Exec(t.Context(), inSchema("INSERT INTO punctual.migration (version) VALUES (99)", o.Schema)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), pool, o); storekit.ErrorCode(err) != "unsupported" {
		t.Errorf("Open on tables of a newer program: %v; want unsupported", err)
	}
}

// Several processes may make the tables at once.
func TestMigrateTogether(t *testing.T) {
	t.Parallel()
	o := &Options{Schema: fresh()}
	const processes = 4
	errs := make(chan error, processes)
	for range processes {
		pool := newPool(t, shared)
		t.Cleanup(pool.Close)
		go func() { errs <- Migrate(context.Background(), pool, o) }()
	}
	for range processes {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// A server that cannot give a class is refused, with the name of the setting to change.
func TestDurabilityRefused(t *testing.T) {
	t.Parallel()
	pool := newPool(t, shared)
	t.Cleanup(pool.Close)
	for want, setting := range map[punctual.Durability]string{punctual.Fsync: "fsync", punctual.Replicated: "fsync"} {
		_, err := Open(t.Context(), pool, &Options{Schema: fresh(), Migrate: true, Durability: want})
		if storekit.ErrorCode(err) != "durability" || !strings.Contains(err.Error(), setting) {
			t.Errorf("Open with class %s on a server with fsync off: %v; want one that names %s", want, err, setting)
		}
	}
}
