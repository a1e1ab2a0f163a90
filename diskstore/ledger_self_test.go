package diskstore

import (
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
)

// A judge that never complains proves nothing: each history here breaks one promise.
func TestLedgerNotices(t *testing.T) {
	pushed := []event{
		{Kind: "push", N: 1, Items: []fact{{ID: "a", Due: 10, Max: plenty}}},
		{Kind: "push", N: 1, Done: true, Items: []fact{{ID: "a", Status: "stored"}}},
	}
	claim := func(n int64, f fact) []event {
		return []event{{Kind: "claim", N: n}, {Kind: "claim", N: n, Done: true, Items: []fact{f}}}
	}
	ask := func(kind string, n int64, f fact, status string) []event {
		return []event{{Kind: kind, N: n, Items: []fact{f}}, {Kind: kind, N: n, Done: true, Items: []fact{{ID: f.ID, Status: status}}}}
	}
	first := fact{ID: "a", Due: 10, At: 10, Until: 40, Token: 5, Attempt: 1}
	second := fact{ID: "a", Due: 10, At: 40, Until: 70, Token: 6, Attempt: 2}
	both := []fact{{ID: "a", Due: 50, Token: 5, Verb: punctual.SettleRetry}, {ID: "a", Due: 60, Token: 6, Verb: punctual.SettleRetry}}
	twice := []event{
		{Kind: "settle", N: 4, Items: both},
		{Kind: "settle", N: 4, Done: true, Items: []fact{{ID: "a", Status: "lease_lost"}, {ID: "a", Status: "ok"}}},
	}
	third := fact{ID: "a", Due: 60, At: 60, Until: 90, Token: 7, Attempt: 3}
	with := func(f fact, change func(*fact)) fact {
		change(&f)
		return f
	}
	for _, c := range []struct {
		name, want string
		events     [][]event
		drained    bool
	}{
		{"sound", "", [][]event{pushed, claim(2, first), claim(3, second), ask("settle", 4, fact{ID: "a", Token: 6, Verb: punctual.SettleAck}, "ok")}, false},
		{"sound backlog", "", [][]event{pushed, ask("reschedule", 2, fact{ID: "a", Due: 20}, "rescheduled")}, true},
		{"two leases of a message settled at once", "", [][]event{pushed, claim(2, first), claim(3, second), twice, claim(5, third)}, true},
		{"at the time of the lost one of two", "possible were", [][]event{pushed, claim(2, first), claim(3, second), twice, claim(5, with(third, func(f *fact) { f.Due = 50 }))}, true},
		{"lost", "P1 no loss", [][]event{pushed}, false},
		{"lost after a late cancel that did nothing", "P1 no loss", [][]event{pushed, ask("settle", 2, fact{ID: "a", Verb: punctual.SettleAck}, "lease_lost")}, false},
		{"not found", "finds nothing", [][]event{pushed, ask("cancel", 2, fact{ID: "a"}, "not_found")}, true},
		{"invented", "never pushed", [][]event{claim(2, first)}, false},
		{"early", "P2 never early", [][]event{pushed, claim(2, with(first, func(f *fact) { f.At = 9 }))}, true},
		{"at the old time", "possible were", [][]event{pushed, ask("reschedule", 2, fact{ID: "a", Due: 20}, "rescheduled"), claim(3, first)}, true},
		{"after its ack", "P5, P1", [][]event{pushed, claim(2, first), ask("settle", 3, fact{ID: "a", Token: 5, Verb: punctual.SettleAck}, "ok"), claim(4, second)}, false},
		{"back after a cancel", "is back", [][]event{pushed, ask("cancel", 2, fact{ID: "a"}, "cancelled")}, true},
		{"attempt after a late cancel", "P5 cancel", [][]event{pushed, claim(2, first), ask("cancel", 3, fact{ID: "a"}, "leased"), claim(4, second)}, true},
		{"attempt not counted", "P6 attempts are durable", [][]event{pushed, claim(2, first), claim(3, with(second, func(f *fact) { f.Attempt = 1 }))}, true},
		{"attempt invented", "at most", [][]event{pushed, claim(2, with(first, func(f *fact) { f.Attempt = 3 }))}, true},
		{"token twice", "P4", [][]event{pushed, claim(2, first), claim(3, with(second, func(f *fact) { f.Token = 5 }))}, true},
		{"two holders", "P3", [][]event{pushed, claim(2, first), claim(3, with(second, func(f *fact) { f.At = 39 }))}, true},
		{"foreign body", "not its own", [][]event{pushed, claim(2, with(first, func(f *fact) { f.Broken = true }))}, true},
		{"discarded and gone", "not among the dead", [][]event{pushed, claim(2, first), ask("settle", 3, fact{ID: "a", Token: 5, Verb: punctual.SettleDiscard}, "ok")}, false},
	} {
		l := newLedger()
		for _, es := range c.events {
			for _, e := range es {
				l.add(e)
			}
		}
		l.close(map[string]bool{"a": c.drained}, nil)
		got := strings.Join(l.problems, "; ")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: the ledger says %q, want %q", c.name, got, c.want)
		}
	}
}
