package pgstore

import (
	"os"
	"path/filepath"
	"testing"

	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
	"github.com/punctualmq/punctual/storetest/ledger"
)

// failovers names the environment variable that says how many failovers to make. Without it there
// are none, because each takes a copy of the server.
const failovers = "PUNCTUAL_FAILOVERS"

// P1 to P8: processes work with class replicated while primaries are killed and their synchronous
// standbys take over, again and again. Nothing that was acknowledged is lost. No call ends early
// here: the server may then show what no standby has.
func TestSlowReplicatedKills(t *testing.T) {
	t.Parallel()
	if os.Getenv(failovers) == "" {
		t.Skipf("%s asks for failovers: make torture-postgres", failovers)
	}
	primary := pgrig.Start(t)
	k := newKillRun(t, primary)
	k.class, k.deadlines = "replicated", false
	k.ledger.Expected = append(k.ledger.Expected, "durability")
	var replica *pgrig.Server
	k.before = func() {
		replica = pgrig.StartReplica(t, k.server)
		if err := k.server.Set("synchronous_standby_names", replica.Name); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "the standby is synchronous", func() bool {
			return doIt(t, k.server, "select count(*) from pg_stat_replication where sync_state = 'sync' and application_name = '"+replica.Name+"'") == "1"
		})
		k.address = k.server.Addr + "," + replica.Addr
	}
	rounds := ledger.FromEnv(t, failovers, 1)
	k.run(rounds, func(int) {
		k.pause(200, 700)
		old := k.server
		timeline := doIt(t, old, timelineOf)
		k.outage(old.Kill, replica.Promote)
		// The next standby is a new one. Until it is there, commits must not wait for a standby.
		doIt(t, replica, "set synchronous_commit = local", "alter system set synchronous_standby_names = ''", "select pg_reload_conf()")
		k.server = replica
		if again := doIt(t, replica, timelineOf); again == timeline {
			t.Errorf("this test shows nothing: the timeline is still %s", again)
		}
		k.pause(300, 900)
		if err := os.RemoveAll(filepath.Dir(old.Dir)); err != nil {
			t.Error(err)
		}
	})
	k.audit()
	t.Logf("%d failovers with %d calls under way", rounds, k.underWay)
}

// timelineOf reads a server's timeline.
const timelineOf = "select substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
