package pgstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
	"github.com/punctualmq/punctual/storekit"
)

// P1, P4: logical replication brings the tables to another server, but not the numbers that
// sequences have given. When that server is used instead, no event is overwritten, no token is
// given again, and an examination says how new topics become possible.
func TestLogicalReplica(t *testing.T) {
	t.Parallel()
	origin, target := pgrig.Start(t, "wal_level=logical"), pgrig.StartAnew(t, "wal_level=logical")
	old := openStore(t, newPool(t, origin), &Options{Migrate: true, OwnPool: true})
	emit := punctual.EventAcked
	if _, err := old.Configure(t.Context(), "orders", punctual.SettingsPatch{Emit: &emit}); err != nil {
		t.Fatal(err)
	}
	const messages = 20
	work := func(s *Store, prefix string) (tokens []int64) { // each message is claimed alone, and each ack is told of
		t.Helper()
		for n := range messages {
			if rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: fmt.Sprint(prefix, n)}}); err != nil || rs[0].Err != nil {
				t.Fatalf("push: %+v, %v", rs, err)
			}
			ds := claimOrders(t, s, 0)
			if len(ds) != 1 {
				t.Fatalf("a claim of the message %d has %d", n, len(ds))
			}
			tokens = append(tokens, ds[0].Token)
		}
		return tokens
	}
	events := func(s *Store) int64 {
		t.Helper()
		st, err := s.Stats(t.Context(), "orders@events")
		if err != nil {
			t.Fatal(err)
		}
		return st.Live()
	}
	before := work(old, "old")
	const keyless = "select c.relname from pg_class c where c.relnamespace = 'punctual'::regnamespace and c.relkind = 'r' and not exists (select 1 from pg_index i where i.indrelid = c.oid and i.indisprimary)"
	if got := doIt(t, origin, keyless); got != "" {
		t.Errorf("the tables %q have no primary key, so a server that publishes them refuses their changes", got)
	}

	pool := newPool(t, target)
	if err := Migrate(t.Context(), pool, nil); err != nil {
		t.Fatal(err)
	}
	doIt(t, target, "DO $$ BEGIN EXECUTE (SELECT 'TRUNCATE ' || string_agg(format('%I.%I', schemaname, tablename), ', ') FROM pg_tables WHERE schemaname = 'punctual'); END $$")
	doIt(t, origin, "CREATE PUBLICATION moved FOR ALL TABLES")
	doIt(t, target, "CREATE SUBSCRIPTION moved CONNECTION '"+origin.URL("postgres")+"' PUBLICATION moved")
	const content = "select count(*) from punctual.message union all select count(*) from punctual.store union all select count(*) from punctual.topic"
	waitUntil(t, "the tables are copied", func() bool { return doIt(t, target, content) == doIt(t, origin, content) })
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	doIt(t, target, "ALTER SUBSCRIPTION moved DISABLE", "ALTER SUBSCRIPTION moved SET (slot_name = NONE)", "DROP SUBSCRIPTION moved")
	const numbers = "select coalesce(last_value, 0) from pg_sequences where schemaname = 'punctual' order by sequencename"
	if got := doIt(t, target, numbers); got == doIt(t, origin, numbers) || !strings.HasPrefix(got, "0") {
		t.Fatalf("this test shows nothing: the sequences are at %q on both servers", got)
	}
	if same := doIt(t, target, timelineOf); same != doIt(t, origin, timelineOf) {
		t.Fatalf("this test shows nothing: the target is in timeline %s", same)
	}

	sequences := func() (finding storekit.Finding, found bool) {
		t.Helper()
		all, err := Examine(t.Context(), pool, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			if f.Name == "sequences" {
				return f, true
			}
		}
		return finding, false
	}
	finding, found := sequences()
	_, remedy, named := strings.Cut(finding.Remedy, "run ")
	if !found || !named {
		t.Fatalf("an examination says %+v of the sequences; want a remedy", finding)
	}
	s := openStore(t, pool, &Options{OwnPool: true})
	had := events(s)
	if had != messages {
		t.Fatalf("the target has %d events; want %d", had, messages)
	}
	if rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "new"}}); err == nil && rs[0].Err == nil {
		t.Error("this test shows nothing: a new topic is possible without the remedy")
	}
	after := work(s, "new")
	for _, token := range after {
		if token <= before[len(before)-1] {
			t.Errorf("P4: a claim on the target has the token %d, and the last one on the origin was %d", token, before[len(before)-1])
		}
	}
	if got := events(s); got != 2*messages {
		t.Errorf("P1: %d events are stored; want the %d of before and as many new ones", got, messages)
	}
	doIt(t, target, remedy)
	if finding, found = sequences(); found {
		t.Errorf("behind the remedy an examination says %+v", finding)
	}
	if rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "another", Delay: time.Hour}}); err != nil || rs[0].Err != nil {
		t.Errorf("a push to a new topic behind the remedy: %+v, %v", rs, err)
	}
}
