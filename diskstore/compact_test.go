package diskstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// noise returns a body that does not compress.
func noise(seed uint64, size int) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

const largeBody = 128 << 10

// fillTables pushes n large messages that are due into a topic and flushes them into tables.
func fillTables(t *testing.T, s *Store, topic string, n int) {
	t.Helper()
	for i := range n {
		push(t, s, punctual.NewMessage{Topic: topic, ID: fmt.Sprint(i), Body: noise(uint64(i), largeBody), Due: time.UnixMilli(int64(i + 1))})
	}
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
}

// finish claims n messages of a topic and settles all of them.
func finish(t *testing.T, s *Store, topic string, n int, verb punctual.Verb) {
	t.Helper()
	var ss []punctual.Settlement
	for len(ss) < n { // because one claim brings no more than claimBytes and one message
		ds := claim(t, s, topic, n-len(ss))
		for _, d := range ds {
			ss = append(ss, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: verb})
		}
		if len(ds) == 0 {
			t.Fatalf("claimed %d messages, want %d", len(ss), n)
		}
	}
	if errs, err := s.Settle(t.Context(), ss); err != nil || errors.Join(errs...) != nil {
		t.Fatalf("settle %d messages: %v, %v", len(ss), errs, err)
	}
}

// TestSlowSpaceComesBack deletes most or all of many large messages, in several ways. The tables
// must shrink to about what is left, without a push or a reopening. The messages that were not
// deleted must still be there.
func TestSlowSpaceComesBack(t *testing.T) {
	const n, kept = 64, 4
	for _, c := range []struct {
		name       string
		end        func(t *testing.T, s *Store)
		live, dead int64
	}{
		{"acked", func(t *testing.T, s *Store) { finish(t, s, "o", n-kept, punctual.SettleAck) }, kept, 0},
		{"all acked", func(t *testing.T, s *Store) { finish(t, s, "o", n, punctual.SettleAck) }, 0, 0},
		{"cancelled", func(t *testing.T, s *Store) {
			var as []punctual.Amendment
			for i := range n - kept {
				as = append(as, punctual.Amendment{Change: punctual.ChangeCancel, Topic: "o", ID: fmt.Sprint(i)})
			}
			if _, err := s.Amend(t.Context(), as); err != nil {
				t.Fatal(err)
			}
			finish(t, s, "o", kept, punctual.SettleRelease) // claims encounter the messages after the cancelled ones
		}, kept, 0},
		{"cancelled behind the first", func(t *testing.T, s *Store) {
			var as []punctual.Amendment
			for i := kept; i < n; i++ {
				as = append(as, punctual.Amendment{Change: punctual.ChangeCancel, Topic: "o", ID: fmt.Sprint(i)})
			}
			if _, err := s.Amend(t.Context(), as); err != nil {
				t.Fatal(err)
			}
		}, kept, 0},
		{"cancelled in between", func(t *testing.T, s *Store) {
			var as []punctual.Amendment
			for i := range n {
				if i%(n/kept) != n/kept-1 {
					as = append(as, punctual.Amendment{Change: punctual.ChangeCancel, Topic: "o", ID: fmt.Sprint(i)})
				}
			}
			if _, err := s.Amend(t.Context(), as); err != nil {
				t.Fatal(err)
			}
		}, kept, 0},
		{"dead and purged", func(t *testing.T, s *Store) {
			finish(t, s, "o", n-kept, punctual.SettleDiscard)
			if err := s.db.Flush(); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Purge(t.Context(), punctual.PurgeQuery{Topic: "o", State: punctual.StateDead}); err != nil {
				t.Fatal(err)
			}
		}, kept, 0},
		{"topic deleted", func(t *testing.T, s *Store) {
			if _, err := s.DeleteTopic(t.Context(), "o"); err != nil {
				t.Fatal(err)
			}
		}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openAt(t, t.TempDir(), nil)
			fillTables(t, s, "o", n)
			before := s.tableBytes()
			if before < n*largeBody {
				t.Fatalf("%d messages of %d bytes take %d bytes in tables", n, largeBody, before)
			}
			c.end(t, s)
			if err := s.writer.DeleteAcked(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := s.reclaim(t.Context(), s.db.NewReclaimer(), 1<<20); err != nil {
				t.Fatal(err)
			}
			if after, want := s.tableBytes(), uint64(c.live+1)*largeBody+1<<20; after > want {
				t.Errorf("tables have %d bytes of %d for %d live messages of %d, want at most %d", after, before, c.live, largeBody, want)
			}
			if r := mustBeSound(t, s); r.Live != c.live || r.Dead != c.dead {
				t.Errorf("P1 no loss: %d live and %d dead messages, want %d and %d", r.Live, r.Dead, c.live, c.dead)
			}
			if ds := claim(t, s, "o", n); int64(len(ds)) != c.live || len(ds) > 0 && string(ds[0].Body) != string(noise(numberOf(t, ds[0].ID), largeBody)) {
				t.Errorf("P1 no loss: %d messages came, want %d with their bodies", len(ds), c.live)
			}
		})
	}
}

// numberOf returns the number that is a message's ID.
func numberOf(t *testing.T, id string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (s *Store) tableBytes() uint64 {
	return s.db.Stats().TableBytes
}

// TestReclaimLeavesWhatIsWorthLittle: a stretch of keys is not compacted when its messages live,
// when few of its bytes are deleted, or when an earlier compaction could not drop the deleted keys
// because a snapshot still needs them.
func TestReclaimLeavesWhatIsWorthLittle(t *testing.T) {
	s := openAt(t, t.TempDir(), nil)
	fillTables(t, s, "o", 16)
	flushes := func() int64 { return s.db.Stats().Flushes }
	reclaimer := s.db.NewReclaimer()
	reclaim := func(least uint64) (flushed bool) {
		t.Helper()
		push(t, s, punctual.NewMessage{Topic: "o", Due: testStart}) // so that a compaction has something to flush
		before := flushes()
		if err := s.reclaim(t.Context(), reclaimer, least); err != nil {
			t.Fatal(err)
		}
		return flushes() > before
	}
	if reclaim(1 << 20) {
		t.Error("what lives was compacted")
	}
	view := s.db.Snapshot() // needs what is deleted from now on
	finish(t, s, "o", 12, punctual.SettleAck)
	if err := s.writer.DeleteAcked(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reclaim(16 << 20) {
		t.Error("little was compacted")
	}
	if !reclaim(1 << 20) {
		t.Error("much was not compacted")
	}
	if reclaim(1 << 20) {
		t.Error("what somebody still reads was compacted again")
	}
	if err := view.Close(); err != nil {
		t.Fatal(err)
	}
}
