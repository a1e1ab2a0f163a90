package ledger

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storetest/promise"
)

// The ledger knows what the bounds of a topic allow. Each history ends with a claim of "k1~last";
// it is sound unless broken names a promise.
func TestLedgerKnowsBounds(t *testing.T) {
	one := func(x *punctual.Settings) { x.MaxLeases = 1 }
	oneOfKey := func(x *punctual.Settings) { x.MaxKeyLeases = 1 }
	rate := func(x *punctual.Settings) { x.MaxRate = limits.Rate{N: 10, Per: time.Second, Burst: 1} }
	keyRate := func(x *punctual.Settings) { x.MaxKeyRate = limits.Rate{N: 10, Per: time.Second, Burst: 1} }
	order := func(x *punctual.Settings) { x.InOrder = true }
	none := func(*punctual.Settings) {}
	settled := func(verb punctual.Verb) func(s *script, id string) {
		return func(s *script, id string) { s.settle(s.claim(s.push(message(id)), 1), verb, "ok") }
	}
	leased := func(s *script, id string) { s.claim(s.push(message(id)), 1) }
	lapsed := func(s *script, id string) { leased(s, id); s.sleep(scriptLease) }
	later := func(s *script, id string) { settled(punctual.SettleAck)(s, id); s.sleep(95) }
	pushed := func(s *script, id string) { s.push(message(id)) }
	for name, c := range map[string]struct {
		bounds func(*punctual.Settings)
		first  func(s *script, id string)
		id     string
		broken string
	}{
		"two at once":                            {one, leased, "x", promise.P14},
		"two at once, without a bound":           {none, leased, "x", ""},
		"one behind the other":                   {one, settled(punctual.SettleRelease), "x", ""},
		"the first lease has run out":            {one, lapsed, "x", ""},
		"two of a key at once":                   {oneOfKey, leased, "k1~a", promise.P12},
		"two keys at once":                       {oneOfKey, leased, "k2~a", ""},
		"one of a key behind the other":          {oneOfKey, settled(punctual.SettleAck), "k1~a", ""},
		"faster than the rate":                   {rate, settled(punctual.SettleAck), "x", promise.P14},
		"within the rate":                        {rate, later, "x", ""},
		"faster than the rate of a key":          {keyRate, settled(punctual.SettleAck), "k1~a", promise.P14},
		"another key within its rate":            {keyRate, settled(punctual.SettleAck), "k2~a", ""},
		"an earlier one of the key waits":        {order, pushed, "k1~a", promise.P12},
		"an earlier one of the key is retried":   {order, settled(punctual.SettleRetry), "k1~a", promise.P12},
		"an earlier one of the key is acked":     {order, settled(punctual.SettleAck), "k1~a", ""},
		"an earlier one of the key is discarded": {order, settled(punctual.SettleDiscard), "k1~a", ""},
		"an earlier one of another key waits":    {order, pushed, "k2~a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			s.configure(c.bounds)
			c.first(s, c.id)
			last := message("k1~last")
			last.Due = firstMillisecond + 1
			told := s.push(last)
			sound := len(s.lines)
			s.claim(told, 1)
			if problems := s.broken(sound); len(problems) > 0 {
				t.Fatalf("before the last claim the ledger says %q", problems)
			}
			problems := s.broken(len(s.lines))
			if found := slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, c.broken) }); found != (c.broken != "") {
				t.Errorf("the ledger says %q; want %q broken", problems, c.broken)
			}
		})
	}
}

// One that was pushed after the first lease of a later one does not have to come before it. Bounds
// that were changed are judged no more, and neither are leases across a power cut.
func TestLedgerLeavesBoundsAlone(t *testing.T) {
	later := message("k1~later")
	later.Due++
	for name, write := range map[string]func(s *script){
		"an earlier one comes late": func(s *script) {
			s.configure(func(x *punctual.Settings) { x.InOrder = true })
			told := s.push(later)
			s.claim(told, 1)
			s.push(message("k1~earlier"))
			s.sleep(scriptLease)
			told.Failures = "1 lease ran out"
			s.claim(told, 2)
		},
		"the bound was raised": func(s *script) {
			s.configure(func(x *punctual.Settings) { x.MaxLeases = 1 })
			s.claim(s.push(message("a")), 1)
			s.configure(func(x *punctual.Settings) { x.MaxLeases = 2 })
			s.claim(s.push(message("b")), 1)
		},
		"another message takes the place of the leased one": func(s *script) {
			s.configure(func(x *punctual.Settings) { x.MaxLeases = 1 })
			s.claim(s.push(message("a")), 1)
			anew := message("a")
			anew.Life, anew.IfExists = "another", punctual.IfExistsReplace
			n, told := s.beginPush(anew)
			s.end(CallPush, n, pushAnswer(told, "replaced"))
			s.claim(s.push(message("b")), 1)
		},
		"a power cut": func(s *script) {
			s.configure(func(x *punctual.Settings) { x.MaxLeases, x.MaxRate = 1, limits.Rate{N: 1, Per: time.Minute, Burst: 1} })
			s.claim(s.push(message("a")), 1)
			s.gone()
			s.powerCut()
			s.claim(s.push(message("b")), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			write(s)
			if problems := s.broken(len(s.lines)); len(problems) > 0 {
				t.Errorf("the ledger says %q", problems)
			}
		})
	}
}
