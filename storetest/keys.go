package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// keyCases: do the messages of a key wait for each other as the topic's bounds say, and for nothing
// else? NewMessage.Key and Settings.Keyed, MaxKeyLeases, MaxKeyRate and InOrder say what is right.
func keyCases() []testCase {
	return []testCase{
		{"refused by a store that cannot", p13, keyRefused},
		{"malformed", p13, keyMalformed},
		{"in a topic without keys", p13, keyUnkeyed},
		{"the first one makes a topic with keys", p13, keyFirst},
		{"comes back", p1, keyHandedOn},
		{"take turns", p12, keyTurns},
		{"of which one is full", p12, keyOneFull},
		{"beside messages without a key", p12, keyBeside},
		{"so many at once", p3, keyAtOnce},
		{"each way to end a lease makes room", p1, keyEnds},
		{"a lease that ran out keeps its place", p3, keyLapsed},
		{"attempts used up make room", p1, keyUsedUp},
		{"woken by an ack", p11, keyWake},
		{"woken by a bound that is raised", p11, keyRaised},
		{"woken by the end of order", p11, keyOrderEnds},
		{"lowered under way", p3, keyLowered},
		{"in order", p12, keyInOrder},
		{"in order, and not overtaken", p12, keyNotOvertaken},
		{"in order, and let pass", p12, keyLetPass},
		{"out of order", p12, keyOutOfOrder},
		{"a rate of each key", p3, keyRate},
		{"a rate with a burst", p3, keyBurst},
		{"a rate counts leases that ran out", p3, keyRateLapsed},
		{"a rate that is forgotten", p3, keyRateForgotten},
		{"woken by the rate", p11, keyRateWake},
		{"a wait for the key is no lateness", p8, keyNotLate},
		{"cancelled while it waits", p5, keyCancelled},
		{"moved while it waits", p5, keyMoved},
		{"replaced and deleted while it waits", p7, keyReplaced},
		{"dead and requeued", p6, keyRequeued},
		{"expired while it waits", p6, keyExpired},
		{"counted and listed", p13, keyCounted},
		{"purged", p1, keyPurged},
		{"claimed by ID", p3, keyIDs},
		{"beside a pause", p3, keyPaused},
		{"beside bounds of the topic", p3, keyTopicBound},
		{"beside a deletion of the topic", p1, keyDeleted},
		{"beside follow-ups", p1, keyFollow},
		{"beside groups", p3, keyGroups},
		{"many of one that is full", p12, keyMany},
		{"kept over a restart", p3, keyReopen},
		{"behind a step of the clock", p8, keyStep},
		{"a turn behind a step of the clock", p8, keyTurnStep},
		{"in several partitions", p3, keyDivided},
		{"together", p3, keyTogether},
		{"at random", p12, keyRandom},
	}
}

// keyed makes orders a topic with keys, and sets what p sets. It skips the case if the store has no
// keys.
func (s *harness) keyed(p punctual.SettingsPatch) {
	s.Helper()
	if !s.abilities().Keys {
		s.Skipf("skipped: the store has no messages with keys (storekit.Abilities.Keys)")
	}
	p.Keyed = ptr(true)
	s.undivided(&p)
	s.configure(orders, p)
}

// undivided has a topic that is made with p be of one partition, because what comes first of
// several keys, and what a bound of the topic lets begin, is so within a partition.
func (s *harness) undivided(p *punctual.SettingsPatch) {
	if s.opener.partition != nil {
		p.Partitions = ptr(1)
	}
}

// oneAtATime are the settings with which one message of each key is leased at a time.
func oneAtATime() punctual.SettingsPatch { return punctual.SettingsPatch{MaxKeyLeases: ptr(1)} }

// ofKey returns a message whose key is the stem of its ID: that of "a~1" is "a".
func ofKey(id string, delay time.Duration) punctual.NewMessage {
	m := order(id, delay)
	m.Key = storekit.Stem(id)
	return m
}

// pushKeys pushes messages that are ready, a millisecond between them so that their order is
// certain, and goes to the next millisecond.
func (s *harness) pushKeys(ids ...string) {
	s.Helper()
	for _, id := range ids {
		s.push(ofKey(id, 0))
		s.advance(time.Millisecond)
	}
}

// wantClaim wants a claim of up to 100 messages of orders to get these, in any order.
func (s *harness) wantClaim(when string, want ...string) map[string]punctual.Delivery {
	s.Helper()
	got := map[string]punctual.Delivery{}
	for _, d := range s.claim(punctual.Claim{Topics: []string{orders}, Max: 100}) {
		got[d.ID] = d
		if d.Key != "" && (d.Turn.Before(d.Due) || d.Turn.After(d.Delivered)) {
			s.fail("the turn of %s came at %v; it was due at %v and delivered at %v", d.ID, d.Turn, d.Due, d.Delivered)
		}
	}
	for _, id := range want {
		if got[id].ID == "" || len(got) != len(want) {
			s.fail("%s, a claim got %v; want %v", when, keysOf(got), want)
		}
	}
	if len(got) != len(want) {
		s.fail("%s, a claim got %v; want %v", when, keysOf(got), want)
	}
	return got
}

func keysOf(m map[string]punctual.Delivery) (ids []string) {
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// inTurn claims one message after the other, a millisecond between them, and wants these in this
// order and no further.
func (s *harness) inTurn(want ...string) (ds []punctual.Delivery) {
	s.Helper()
	var got []string
	for range len(want) + 1 {
		for _, d := range s.claim(punctual.Claim{Topics: []string{orders}, Max: 1}) {
			ds, got = append(ds, d), append(got, d.ID)
		}
		s.advance(time.Millisecond)
	}
	if !slices.Equal(got, want) {
		s.fail("claims of one message each got %v; want %v", got, want)
	}
	return ds
}

// wantWaiting wants exactly these messages of orders to wait for their keys.
func (s *harness) wantWaiting(want ...string) {
	s.Helper()
	var got []string
	for _, i := range s.list(punctual.ListQuery{Topic: orders, State: punctual.StateReady}) {
		if i.Waiting {
			got = append(got, i.ID)
		}
		if one := s.get(orders, i.ID); one.Waiting != i.Waiting {
			s.fail("%s waits for its key: %v by Get, %v in a list", i.ID, one.Waiting, i.Waiting)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.fail("%v wait for their keys; want %v", got, want)
	}
	if st, err := s.inspector().Stats(s.ctx, orders); err != nil || st.Waiting != int64(len(want)) {
		s.fail("stats are %+v, %v; want %d messages that wait for their keys", st, err, len(want))
	}
}

func keyRefused(s *harness) {
	if !s.hasInspector() || s.abilities().Keys {
		s.Skipf("skipped: the store has no settings, or has messages with keys")
	}
	s.refused(ofKey("a~1", 0), punctual.ErrUnsupported, "a message with a key in a store without keys")
	_, err := s.inspector().Configure(s.ctx, orders, punctual.SettingsPatch{Keyed: ptr(true)})
	s.wantErr(err, punctual.ErrUnsupported, "Configure of keyed in a store without keys")
	s.configure(orders, punctual.SettingsPatch{Keyed: ptr(false)})
	if s.reach() == storekit.ReachNone {
		return
	}
	s.push(order("x", 0))
	d := s.one(orders)
	s.unfollowed(punctual.Settlement{
		Topic: orders, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck,
		Then: []punctual.NewMessage{order("x~1", 0), ofKey("x~2", 0)},
	}, punctual.ErrUnsupported, 2, "a follow-up with a key in a store without keys")
}

func keyMalformed(s *harness) {
	s.keyed(punctual.SettingsPatch{})
	for what, key := range map[string]string{
		"a key of 129 bytes": strings.Repeat("k", limits.MaxKeyBytes+1), "a key with a ~": "a~b", "a key with a tab": "a\tb", "a key that is no ASCII": "ä", "a key with a DEL": "a\x7f",
	} {
		m := order("a", 0)
		m.Key = key
		s.refused(m, punctual.ErrInvalid, what)
	}
	long := ofKey(strings.Repeat("k", limits.MaxKeyBytes), 0)
	long.Key = long.ID
	s.push(long)
	if d := s.one(orders); d.Key != long.Key {
		s.fail("the longest key came back as %q", d.Key)
	}
}

func keyUnkeyed(s *harness) {
	if !s.abilities().Keys {
		s.Skipf("skipped: the store has no messages with keys")
	}
	s.push(order("x", 0))
	s.refused(ofKey("a~1", 0), punctual.ErrInvalid, "a message with a key in a topic without keys")
	companion := ofKey("a~1", 0)
	companion.Topic = orders + "@mine"
	s.refused(companion, punctual.ErrInvalid, "a message with a key in a new companion of a topic without keys")
	if s.reach() != storekit.ReachNone {
		d := s.one(orders)
		s.unfollowed(punctual.Settlement{
			Topic: orders, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck, Then: []punctual.NewMessage{ofKey("x~1", 0)},
		}, punctual.ErrInvalid, 1, "a follow-up with a key in a topic without keys")
	}
	s.wantTopics(orders)
	before := s.settings(orders)
	for what, p := range map[string]punctual.SettingsPatch{
		"keyed of a topic that exists":     {Keyed: ptr(true)},
		"leases of a key without keys":     {MaxKeyLeases: ptr(1)},
		"a rate of a key without keys":     {MaxKeyRate: ptr(limits.PerSecond(1))},
		"an order of a key without keys":   {InOrder: ptr(true)},
		"less than no lease of a key":      {Keyed: ptr(false), MaxKeyLeases: ptr(-1)},
		"a rate of no lease in no time":    {MaxKeyRate: &limits.Rate{Burst: 1}},
		"everything of a topic that exist": {Keyed: ptr(true), MaxKeyLeases: ptr(1), InOrder: ptr(true)},
	} {
		_, err := s.inspector().Configure(s.ctx, orders, p)
		s.wantErr(err, punctual.ErrInvalid, "%s", what)
	}
	s.wantSettings(orders, before)
	s.configure(orders, punctual.SettingsPatch{Keyed: ptr(false)})
	s.configure(mails, punctual.SettingsPatch{Keyed: ptr(true)})
	_, err := s.inspector().Configure(s.ctx, mails, punctual.SettingsPatch{Keyed: ptr(false)})
	s.wantErr(err, punctual.ErrInvalid, "a topic with keys that is to have none")
	_, err = s.inspector().Configure(s.ctx, mails+"@mine", punctual.SettingsPatch{Keyed: ptr(true)})
	s.wantErr(err, punctual.ErrInvalid, "keyed of a companion")
}

func keyFirst(s *harness) {
	if !s.abilities().Keys {
		s.Skipf("skipped: the store has no messages with keys")
	}
	s.push(ofKey("a~1", 0))
	if !s.settings(orders).Keyed {
		s.fail("a topic that came into being with a key has none")
	}
	m := ofKey("b~1", 0)
	m.Topic = mails + "@mine"
	s.push(m)
	for _, topic := range []string{mails, mails + "@mine"} {
		if !s.settings(topic).Keyed {
			s.fail("%s has no keys, after a companion came into being with one", topic)
		}
	}
	plain := order("c", 0)
	plain.Topic = orders + "@mine"
	s.push(plain)
	m.Topic = plain.Topic
	s.push(m)
	s.configure(orders, punctual.SettingsPatch{MaxKeyLeases: ptr(1)})
	s.wantClaim("after a first push with a key", "a~1")
}

func keyHandedOn(s *harness) {
	s.keyed(punctual.SettingsPatch{})
	s.push(ofKey("a~1", 0))
	for range 2 {
		if i := s.get(orders, "a~1"); i.Key != "a" {
			s.fail("the key of a message is %q by Get; want a", i.Key)
		}
		d := s.one(orders)
		if d.Key != "a" || d.Turn.IsZero() {
			s.fail("a message came with the key %q and the turn %v", d.Key, d.Turn)
		}
		s.done(d, punctual.SettleRetry, time.Second)
		s.advance(time.Second)
		if s.opener.reopen != nil {
			s.reopen()
		}
	}
	s.push(order("plain", 0))
	s.ack(s.wantClaim("with a message without a key", "a~1", "plain")["a~1"])
	if i := s.get(orders, "plain"); i.Key != "" {
		s.fail("a message without a key has %q", i.Key)
	}
}

func keyTurns(s *harness) {
	s.keyed(punctual.SettingsPatch{})
	s.pushKeys("a~1", "a~2", "a~3", "b~1", "b~2", "c~1")
	s.inTurn("a~1", "b~1", "c~1", "a~2", "b~2", "a~3")
}

// keyOneFull: a key that has as many leases as it may is passed over, and loses no turn.
func keyOneFull(s *harness) {
	s.keyed(oneAtATime())
	s.pushKeys("a~1", "a~2", "b~1", "b~2")
	ds := s.inTurn("a~1", "b~1")
	s.push(ofKey("c~1", 0))
	s.advance(time.Millisecond)
	s.ack(ds[0])
	s.inTurn("c~1", "a~2")
	s.ack(ds[1])
	s.inTurn("b~2")
}

func keyBeside(s *harness) {
	s.keyed(oneAtATime())
	s.pushKeys("a~1", "a~2")
	for i := range 3 {
		s.push(order(fmt.Sprint("x", i), 0))
	}
	got := s.wantClaim("with one key and messages without one", "a~1", "x0", "x1", "x2")
	if turn := got["x0"].Turn; !turn.IsZero() {
		s.fail("the turn of a message without a key is %v", turn)
	}
}

func keyAtOnce(s *harness) {
	s.keyed(punctual.SettingsPatch{MaxKeyLeases: ptr(2)})
	s.pushKeys("a~1", "a~2", "a~3", "a~4", "b~1")
	got := s.wantClaim("at two leases of a key", "a~1", "a~2", "b~1")
	s.wantClaim("with two of a leased")
	s.wantWaiting("a~3", "a~4")
	s.done(got["a~1"], punctual.SettleExtend, time.Hour)
	s.wantClaim("after an extension")
	s.ack(got["a~2"])
	s.ack(s.wantClaim("after an ack", "a~3")["a~3"])
	s.wantClaim("after another ack", "a~4")
	s.wantWaiting()
}

func keyEnds(s *harness) {
	s.keyed(oneAtATime())
	ends := s.leaseEnds(ofKey)
	ends["replace by one of another key"] = func(d punctual.Delivery) {
		m := ofKey(d.ID, time.Hour)
		m.Key, m.IfExists = "other", punctual.IfExistsReplace
		if storekit.Stem(m.ID) != m.Key && s.settings(orders).Partitions > 1 {
			s.outcome(remove(orders, d.ID), nil, "leased")
		} else if r := s.try(m); r.Status != punctual.PushReplaced {
			s.fail("a replacing push of another key is %v, %v", r.Status, r.Err)
		}
	}
	for name, end := range ends {
		s.pushKeys(name+"~1", name+"~2")
		d := s.wantClaim("at one lease of a key", name+"~1")[name+"~1"]
		s.wantClaim("with one leased")
		end(d)
		s.ack(s.wantClaim("after "+name, name+"~2")[name+"~2"])
	}
}

func keyLapsed(s *harness) {
	s.keyed(oneAtATime())
	s.pushKeys("a~1", "a~2")
	s.wantClaim("at one lease of a key", "a~1")
	s.advance(time.Minute)
	d := s.wantClaim("when the lease has run out", "a~1")["a~1"]
	if d.Attempt != 2 {
		s.fail("the message came again as attempt %d", d.Attempt)
	}
	s.advance(time.Minute)
	s.ack(d) // its token is current until another claim
	s.wantClaim("after an ack of a lease that had run out", "a~2")
}

func keyUsedUp(s *harness) {
	s.keyed(punctual.SettingsPatch{MaxKeyLeases: ptr(1), MaxAttempts: ptr(1)})
	s.pushKeys("a~1", "a~2", "a~3")
	s.wantClaim("at one lease of a key", "a~1")
	s.outcome(cancel(orders, "a~2"), nil, "waiting")
	s.advance(time.Minute)
	var got []string
	for range 2 { // a store may end a~1 in one claim, and use its room in the next
		for _, d := range s.take(orders, 9) {
			got = append(got, d.ID)
		}
	}
	if !slices.Equal(got, []string{"a~3"}) {
		s.fail("when the only attempt of a~1 had run out, claims got %v; want a~3", got)
	}
	s.wantDead(orders, "a~1", punctual.ReasonAttemptsUsedUp)
}

// keyWakes starts a claim that finds nothing, and wants event to wake it with the message.
func (s *harness) keyWakes(id, after string, event func()) {
	s.Helper()
	s.wantClaim("before " + after)
	w := s.wait(s.ctx, punctual.Claim{Topics: []string{orders}, Max: 1, Wait: time.Hour})
	asleep()
	event()
	s.ack(w.wakes(id, after))
}

func keyWake(s *harness) {
	s.keyed(oneAtATime())
	s.pushKeys("a~1", "a~2")
	d := s.one(orders)
	s.keyWakes("a~2", "an ack of the same key", func() { s.ack(d) })
}

func keyRaised(s *harness) {
	s.keyed(oneAtATime())
	s.pushKeys("a~1", "a~2")
	s.one(orders)
	s.keyWakes("a~2", "its bound was raised", func() { s.configure(orders, punctual.SettingsPatch{MaxKeyLeases: ptr(2)}) })
}

func keyOrderEnds(s *harness) {
	s.keyed(punctual.SettingsPatch{InOrder: ptr(true)})
	s.pushKeys("a~1", "a~2")
	s.done(s.one(orders), punctual.SettleRetry, time.Hour)
	s.keyWakes("a~2", "its topic ceased to keep order", func() { s.configure(orders, punctual.SettingsPatch{InOrder: ptr(false)}) })
}

func keyLowered(s *harness) {
	s.keyed(punctual.SettingsPatch{})
	s.pushKeys("a~1", "a~2", "a~3", "a~4")
	ds := s.take(orders, 2)
	s.configure(orders, oneAtATime())
	s.wantClaim("with two leased and a bound of 1 by now")
	s.wantWaiting("a~3", "a~4")
	s.ack(ds[0])
	s.wantClaim("with one leased and a bound of 1")
	s.ack(ds[1])
	s.wantClaim("with none leased", "a~3")
	s.configure(orders, punctual.SettingsPatch{MaxKeyLeases: ptr(0)})
	s.wantClaim("without a bound", "a~4")
}

func keyInOrder(s *harness) {
	s.keyed(punctual.SettingsPatch{InOrder: ptr(true)})
	s.push(ofKey("a~3", 30*time.Second))
	s.push(ofKey("a~2", 20*time.Second))
	s.push(ofKey("a~1", 10*time.Second))
	s.push(ofKey("b~1", 10*time.Second))
	s.wantClaim("before anything is due")
	s.advance(time.Minute)
	for _, id := range []string{"a~1", "a~2", "a~3"} {
		for _, d := range s.take(orders, 9) {
			if d.Key == "a" && d.ID != id {
				s.fail("a claim got %s; want %s first", d.ID, id)
			}
			s.ack(d)
		}
	}
	s.pushKeys("c~9", "c~1", "c~5") // those of the same due time in the order of their pushes
	for _, id := range []string{"c~9", "c~1", "c~5"} {
		s.ack(s.wantClaim("in the order of pushes", id)[id])
	}
}

func keyNotOvertaken(s *harness) {
	s.keyed(punctual.SettingsPatch{InOrder: ptr(true)})
	s.pushKeys("a~1", "a~2", "b~1")
	for _, v := range []punctual.Verb{punctual.SettleRetry, punctual.SettleSnooze} {
		got := s.wantClaim("in order", "a~1", "b~1")
		s.done(got["b~1"], punctual.SettleRelease, 0)
		s.done(got["a~1"], v, time.Minute)
		s.advance(59 * time.Second)
		s.done(s.wantClaim("while the first of its key is not due again", "b~1")["b~1"], punctual.SettleRelease, 0)
		s.wantWaiting("a~2")
		s.advance(time.Second)
	}
	s.ack(s.wantClaim("when it is due again", "a~1", "b~1")["a~1"])
	s.wantClaim("after its ack", "a~2")
}

func keyLetPass(s *harness) {
	s.keyed(punctual.SettingsPatch{InOrder: ptr(true)})
	for name, end := range map[string]func(d punctual.Delivery){
		"dead": func(d punctual.Delivery) { s.done(d, punctual.SettleDiscard, 0) },
		"cancelled": func(d punctual.Delivery) {
			s.done(d, punctual.SettleRetry, time.Hour)
			s.outcome(cancel(orders, d.ID), nil, "given back")
		},
		"rescheduled": func(d punctual.Delivery) {
			s.done(d, punctual.SettleRetry, time.Hour)
			s.outcome(reschedule(orders, d.ID, 2*time.Hour), nil, "given back")
		},
		"deleted": func(d punctual.Delivery) { s.outcome(remove(orders, d.ID), nil, "leased") },
	} {
		s.pushKeys(name+"~1", name+"~2")
		end(s.wantClaim("in order", name+"~1")[name+"~1"])
		s.ack(s.wantClaim("after the first is "+name, name+"~2")[name+"~2"])
	}
}

func keyOutOfOrder(s *harness) {
	s.keyed(oneAtATime())
	s.pushKeys("a~1", "a~2")
	s.done(s.one(orders), punctual.SettleRetry, time.Minute)
	s.ack(s.wantClaim("while the first of its key is not due again", "a~2")["a~2"])
	s.push(ofKey("a~3", 2*time.Minute))
	s.advance(time.Minute)
	s.wantClaim("when it is due again", "a~1")
}

func keyRate(s *harness) {
	s.keyed(punctual.SettingsPatch{MaxKeyRate: ptr(limits.PerSecond(10))})
	s.pushKeys("a~1", "a~2", "a~3")
	s.ack(s.wantClaim("at a rate of 10 a second of each key", "a~1")["a~1"])
	s.wantWaiting("a~2", "a~3")
	s.advance(50 * time.Millisecond)
	s.push(ofKey("b~1", 0))
	s.wantClaim("of another key", "b~1")
	s.advance(49 * time.Millisecond)
	s.wantClaim("a millisecond before the rate of a lets a lease begin")
	s.advance(time.Millisecond)
	s.wantClaim("100ms after the last lease of a", "a~2")
	s.advance(time.Second)
	s.wantClaim("a second later", "a~3")
}

func keyBurst(s *harness) {
	s.keyed(punctual.SettingsPatch{MaxKeyRate: &limits.Rate{N: 10, Per: time.Second, Burst: 3}})
	s.pushKeys("a~1", "a~2", "a~3", "a~4", "a~5", "b~1")
	s.wantClaim("with a burst of 3", "a~1", "a~2", "a~3", "b~1")
	s.wantClaim("at once after that")
	s.advance(100 * time.Millisecond)
	s.wantClaim("100ms later", "a~4")
}

func keyRateLapsed(s *harness) {
	s.keyed(punctual.SettingsPatch{MaxKeyRate: &limits.Rate{N: 1, Per: time.Minute}, Lease: ptr(time.Second)})
	s.pushKeys("a~1")
	s.wantClaim("at a rate of 1 a minute", "a~1")
	s.advance(30 * time.Second)
	s.wantClaim("when the lease has run out and the rate lets no lease begin")
	s.wantState(orders, "a~1", punctual.StateReady)
	s.wantWaiting("a~1")
	s.advance(30 * time.Second)
	s.ack(s.wantClaim("a minute after the lease", "a~1")["a~1"])
}

// keyRateForgotten: a key without messages keeps what its rate has counted, and no longer than
// that.
func keyRateForgotten(s *harness) {
	s.keyed(punctual.SettingsPatch{MaxKeyRate: &limits.Rate{N: 1, Per: time.Minute}})
	for range 3 {
		s.pushKeys("a~1")
		s.ack(s.wantClaim("at a rate of 1 a minute", "a~1")["a~1"])
		s.advance(58 * time.Second)
		s.pushKeys("a~1")
		s.wantClaim("after the only message of the key was acked, within a minute")
		s.outcome(cancel(orders, "a~1"), nil, "waiting")
		s.advance(2 * time.Second)
	}
}

func keyRateWake(s *harness) {
	s.keyed(punctual.SettingsPatch{MaxKeyRate: &limits.Rate{N: 1, Per: time.Minute}})
	s.pushKeys("a~1", "a~2")
	s.ack(s.one(orders))
	s.keyWakes("a~2", "the rate of its key let the next lease begin", func() {
		s.advance(59*time.Second + 999*time.Millisecond)
		asleep()
		s.advance(time.Millisecond)
	})
}

// keyNotLate: the turn of a message comes when the one before it leaves, its rate lets it, or its
// key was last served; ReadyFor counts from there.
func keyNotLate(s *harness) {
	s.keyed(punctual.SettingsPatch{InOrder: ptr(true)})
	s.pushKeys("a~1", "a~2", "a~3")
	d := s.one(orders)
	s.advance(20 * time.Second)
	nextDue := func(when string, want time.Time) {
		s.Helper()
		if st, err := s.inspector().Stats(s.ctx, orders); err != nil || !st.NextDue.Equal(want) {
			s.fail("%s, the next due time is %v, %v; want %v", when, st.NextDue, err, want)
		}
	}
	nextDue("with two that wait for their key", time.Time{})
	s.ack(d)
	freed := s.now()
	nextDue("after an ack 20s later", freed)
	s.advance(3 * time.Second)
	if d = s.one(orders); !d.Turn.Equal(freed) || d.ReadyFor() != 3*time.Second {
		s.fail("the turn of a~2 came at %v, ready for %v; the one before was acked at %v, 3s before the claim", d.Turn, d.ReadyFor(), freed)
	}
	s.done(d, punctual.SettleRetry, time.Hour)
	s.advance(time.Minute)
	s.outcome(cancel(orders, d.ID), nil, "given back")
	freed = s.now()
	s.advance(time.Second)
	if d = s.one(orders); d.ID != "a~3" || !d.Turn.Equal(freed) {
		s.fail("the turn of %s came at %v; the one before was cancelled at %v, before it was due", d.ID, d.Turn, freed)
	}
	s.configure(orders, punctual.SettingsPatch{MaxAttempts: ptr(50)}) // which arranges the keys anew
	s.advance(d.LeaseUntil.Sub(s.now()))
	if d = s.one(orders); d.ID != "a~3" || !d.Turn.Equal(freed) {
		s.fail("after a lease that ran out the turn of %s came at %v; before that it had come at %v", d.ID, d.Turn, freed)
	}
	s.ack(d)
	s.configure(orders, punctual.SettingsPatch{InOrder: ptr(false), MaxKeyRate: &limits.Rate{N: 1, Per: time.Minute}})
	s.pushKeys("b~1", "b~2")
	first := s.wantClaim("of another key", "b~1")["b~1"]
	s.ack(first)
	s.advance(61 * time.Second)
	if d = s.one(orders); !d.Turn.Equal(first.Delivered.Add(time.Minute)) {
		s.fail("the turn of b~2 came at %v; the rate lets it begin a minute after %v", d.Turn, first.Delivered)
	}
}

func keyCancelled(s *harness) {
	s.keyed(oneAtATime())
	s.pushKeys("a~1", "a~2", "a~3", "a~4")
	d := s.one(orders)
	s.outcome(cancel(orders, "a~3"), nil, "waiting")
	s.ack(d)
	s.outcome(cancel(orders, "a~2"), nil, "the first of its key")
	s.wantClaim("after two cancels", "a~4")
	s.wantState(orders, "a~2", punctual.StateNone)
	s.wantState(orders, "a~3", punctual.StateNone)
}

func keyMoved(s *harness) {
	s.keyed(oneAtATime())
	s.push(ofKey("a~1", time.Minute))
	s.push(ofKey("a~2", 2*time.Minute))
	s.push(ofKey("a~3", 3*time.Minute))
	s.outcome(reschedule(orders, "a~3", time.Second), nil, "scheduled behind others of its key")
	s.advance(time.Second)
	s.ack(s.wantClaim("after the last of a key was moved to the front", "a~3")["a~3"])
	s.outcome(reschedule(orders, "a~1", 10*time.Minute), nil, "the first of its key")
	s.advance(2 * time.Minute)
	d := s.wantClaim("after the first of a key was moved to the back", "a~2")["a~2"]
	s.push(ofKey("a~0", 0))
	s.advance(10 * time.Minute)
	s.wantErr(s.settle(d, punctual.SettleAck, 0), nil, "ack of a lease that ran out")
	s.inTurn("a~0")
}

func keyReplaced(s *harness) {
	s.keyed(oneAtATime())
	s.pushKeys("a~1", "a~2", "a~3")
	d := s.one(orders)
	m := ofKey("a~2", time.Hour)
	m.IfExists = punctual.IfExistsReplace
	if r := s.try(m); r.Status != punctual.PushReplaced {
		s.fail("a replacing push of a message that waits is %v, %v", r.Status, r.Err)
	}
	if r := s.try(ofKey("a~3", 0)); r.Status != punctual.PushDuplicate || r.Existing != punctual.StateReady {
		s.fail("a repeated push of a message that waits is %+v; want a duplicate of a ready one", r)
	}
	s.ack(d)
	s.outcome(remove(orders, "a~3"), nil, "the first of its key")
	s.wantClaim("after a replace and a delete")
	s.advance(time.Hour)
	s.wantClaim("an hour later", "a~2")
}

func keyRequeued(s *harness) {
	s.keyed(oneAtATime())
	s.pushKeys("a~1", "a~2")
	s.done(s.one(orders), punctual.SettleDiscard, 0)
	d := s.wantClaim("when the first is dead", "a~2")["a~2"]
	s.outcome(requeue(orders, "a~1", 0), nil, "dead")
	s.wantClaim("with a message of the same key leased")
	s.wantWaiting("a~1")
	s.ack(d)
	d = s.wantClaim("after its ack", "a~1")["a~1"]
	s.done(d, punctual.SettleDiscard, 0)
	s.wantClaim("when the key has no live message")
	s.outcome(requeue(orders, "a~1", 0), nil, "dead, and the only one of its key")
	s.wantWaiting()
	s.checkSound()
	s.wantClaim("after the requeue", "a~1")
}

func keyExpired(s *harness) {
	s.keyed(oneAtATime())
	s.pushKeys("a~1")
	for i := range 3 {
		m := ofKey(fmt.Sprint("a~", 2+i), 0)
		m.ExpireAfter, m.DropExpired = time.Second, i == 0
		s.push(m)
		s.advance(time.Millisecond)
	}
	s.push(ofKey("a~9", 0))
	d := s.one(orders)
	s.advance(2 * time.Second)
	s.wantWaiting("a~2", "a~3", "a~4", "a~9")
	s.ack(d)
	var got []string
	for range 5 { // a store may end some in one claim, and deliver in the next
		for _, d := range s.take(orders, 9) {
			got = append(got, d.ID)
		}
	}
	if !slices.Equal(got, []string{"a~9"}) {
		s.fail("behind three that expired while they waited, claims got %v; want a~9", got)
	}
	s.wantState(orders, "a~2", punctual.StateNone)
	s.wantDead(orders, "a~3", punctual.ReasonExpired)
	s.wantDead(orders, "a~4", punctual.ReasonExpired)
}

func keyCounted(s *harness) {
	s.keyed(oneAtATime())
	s.pushKeys("a~1", "a~2", "a~3", "b~1", "b~2")
	s.push(ofKey("a~4", time.Hour))
	s.push(order("plain", 0))
	s.take(orders, 1)
	st, err := s.inspector().Stats(s.ctx, orders)
	if err != nil || st.Leased != 1 || st.Ready != 5 || st.Waiting != 3 || st.Scheduled != 1 {
		s.fail("stats are %+v, %v; want 1 leased, 5 ready of which 3 wait, 1 scheduled", st, err)
	}
	s.wantWaiting("a~2", "a~3", "b~2")
	s.wantList(punctual.ListQuery{Topic: orders, State: punctual.StateReady}, "a~2", "a~3", "b~1", "b~2", "plain")
	s.wantList(punctual.ListQuery{Topic: orders, State: punctual.StateReady, Descending: true, Limit: 2}, "plain", "b~2", "b~1", "a~3", "a~2")
	s.wantList(punctual.ListQuery{Topic: orders, State: punctual.StateScheduled}, "a~4")
	f, err := s.inspector().Forecast(s.ctx, punctual.ForecastQuery{Topic: orders, Step: time.Hour, Buckets: 2})
	if err != nil || f.Overdue != 6 || f.Counts[0]+f.Counts[1] != 1 {
		s.fail("the forecast is %+v, %v; want 6 overdue and 1 ahead", f, err)
	}
	s.checkSound()
}

func keyPurged(s *harness) {
	s.keyed(oneAtATime())
	s.pushKeys("a~1", "a~2", "b~1", "b~2")
	ds := s.inTurn("a~1", "b~1")
	s.purge(punctual.PurgeQuery{Topic: orders, State: punctual.StateReady}, 2)
	s.pushKeys("a~3")
	s.wantWaiting("a~3")
	s.ack(ds[0])
	s.ack(s.wantClaim("after a purge of what waited", "a~3")["a~3"])
	s.purge(punctual.PurgeQuery{Topic: orders}, 1)
	s.pushKeys("b~4")
	s.wantClaim("after a purge of everything", "b~4")
}

// keyIDs: a claim by ID passes over a message whose turn it is not.
func keyIDs(s *harness) {
	s.keyed(oneAtATime())
	s.pushKeys("a~1", "a~2", "b~1")
	claim := func(when string, want ...string) {
		s.Helper()
		ds := s.claim(punctual.Claim{Topics: []string{orders}, IDs: []string{"a~2", "b~1", "a~1"}, Max: 9})
		if got := ids(ds); !slices.Equal(got, want) {
			s.fail("%s, a claim by ID got %v; want %v", when, got, want)
		}
	}
	claim("with a~1 before a~2", "b~1", "a~1")
	s.advance(time.Minute)
	claim("when the leases have run out", "b~1", "a~1")
	s.configure(orders, punctual.SettingsPatch{MaxKeyRate: &limits.Rate{N: 1, Per: time.Hour}})
	s.advance(time.Minute)
	claim("when these have run out, too", "b~1", "a~1")
	s.advance(time.Minute)
	claim("within an hour of that")
}

func keyPaused(s *harness) {
	s.keyed(oneAtATime())
	s.pushKeys("a~1", "a~2", "b~1")
	d := s.wantClaim("at first", "a~1", "b~1")["a~1"]
	s.configure(orders, punctual.SettingsPatch{DeliveryPaused: ptr(true)})
	s.ack(d)
	s.wantClaim("while the topic is paused")
	s.configure(orders, punctual.SettingsPatch{DeliveryPaused: ptr(false)})
	s.wantClaim("after the pause", "a~2")
}

func keyTopicBound(s *harness) {
	s.keyed(oneAtATime())
	s.bounded(2, limits.Rate{})
	s.pushKeys("a~1", "a~2", "b~1", "c~1")
	got := s.wantClaim("at first", "a~1", "b~1")
	s.ack(got["a~1"])
	ds := s.inTurn("c~1")
	s.ack(ds[0])
	s.inTurn("a~2")
	s.advance(time.Minute)
	s.wantClaim("when both leases have run out", "a~2", "b~1")
}

func keyDeleted(s *harness) {
	s.keyed(oneAtATime())
	s.pushKeys("a~1", "a~2")
	s.one(orders)
	if _, err := s.inspector().DeleteTopic(s.ctx, orders); err != nil {
		s.fail("DeleteTopic: %v", err)
	}
	s.push(order("x", 0))
	s.refused(ofKey("a~1", 0), punctual.ErrInvalid, "a key in a topic that came into being anew without keys")
	if _, err := s.inspector().DeleteTopic(s.ctx, orders); err != nil {
		s.fail("DeleteTopic: %v", err)
	}
	s.keyed(oneAtATime())
	s.pushKeys("a~1", "a~2")
	s.wantClaim("in a topic that came into being anew with keys", "a~1")
}

func keyFollow(s *harness) {
	s.keyed(oneAtATime())
	s.follows(storekit.ReachFamily)
	s.pushKeys("a~1", "a~2")
	d := s.one(orders)
	s.follow(d, punctual.SettleAck, ofKey("a~3", 0), ofKey("a~4", 0))
	d = s.wantClaim("after an ack with follow-ups of the same key", "a~2")["a~2"]
	s.wantWaiting("a~3", "a~4")
	s.advance(time.Millisecond)
	s.follow(d, punctual.SettleSnooze, ofKey("a~5", 0))
	s.ack(s.wantClaim("after a snooze with a follow-up of the same key", "a~3")["a~3"])
	if s.abilities().Follow != storekit.ReachAny {
		return
	}
	d = s.wantClaim("after an ack", "a~4")["a~4"]
	s.follow(d, punctual.SettleAck, punctual.NewMessage{Topic: mails, ID: "plain"}, punctual.NewMessage{Topic: mails, ID: "a~1", Key: "a"})
	if !s.settings(mails).Keyed {
		s.fail("follow-ups, one of them with a key, made a topic without keys")
	}
	if ds := s.take(mails, 9); len(ds) != 2 {
		s.fail("a claim of two follow-ups in a topic that they made got %v", ids(ds))
	}
}

func keyGroups(s *harness) {
	s.keyed(oneAtATime())
	group := punctual.GroupTopic(orders, "billing")
	s.configure(orders, punctual.SettingsPatch{Groups: &[]string{"billing"}})
	if !s.settings(group).Keyed {
		s.fail("the topic of a group of a topic with keys has none")
	}
	s.configure(group, punctual.SettingsPatch{MaxKeyLeases: ptr(2)})
	for i := range 3 {
		m := ofKey(fmt.Sprint("a~", i), 0)
		m.Topic = group
		s.push(m)
	}
	if ds := s.take(group, 9); len(ds) != 2 {
		s.fail("a claim of a group with 2 leases of a key got %v", ids(ds))
	}
}

// keyMany: of 3000 ready messages of a key that is full, and of 300 with one message each, a claim
// meets those it can lease.
func keyMany(s *harness) {
	s.keyed(oneAtATime())
	var ms []punctual.NewMessage
	for i := range 3000 {
		ms = append(ms, ofKey(fmt.Sprint("a~", i), 0))
	}
	s.pushAll(ms...)
	s.one(orders)
	s.advance(time.Second)
	ms = ms[:0]
	for i := range 300 {
		ms = append(ms, ofKey(fmt.Sprintf("k%d~1", i), 0))
	}
	s.pushAll(ms...)
	got := 0
	for got < 300 {
		ds := s.take(orders, 70)
		for _, d := range ds {
			if d.Key == "a" {
				s.fail("a claim got %s, whose key is full", d.ID)
			}
		}
		if got += len(ds); len(ds) == 0 {
			s.fail("behind 2999 messages of a key that is full claims got %d of 300", got)
		}
	}
	if st, err := s.inspector().Stats(s.ctx, orders); err != nil || st.Waiting != 2999 {
		s.fail("stats are %+v, %v; want 2999 that wait", st, err)
	}
}

func keyReopen(s *harness) {
	if s.opener.reopen == nil {
		s.Skipf("skipped: the store is not durable")
	}
	s.keyed(oneAtATime())
	s.pushKeys("a~1", "a~2", "a~3", "b~1", "b~2")
	got := s.wantClaim("at first", "a~1", "b~1")
	s.reopen()
	s.wantWaiting("a~2", "a~3", "b~2")
	s.wantClaim("after a restart, with one of each key leased")
	s.ack(got["a~1"])
	s.reopen()
	s.wantClaim("after an ack and a restart", "a~2")
	s.advance(time.Minute)
	s.reopen()
	s.wantClaim("when the leases have run out", "a~2", "b~1")
}

func keyStep(s *harness) {
	s.keyed(punctual.SettingsPatch{MaxKeyLeases: ptr(1), Lease: ptr(time.Hour)})
	s.pushKeys("a~1", "a~2", "b~1")
	var got map[string]punctual.Delivery
	s.ahead(3*time.Hour, func() {
		got = s.wantClaim("at first", "a~1", "b~1")
		s.ack(got["b~1"])
		s.pushKeys("b~2", "b~3", "c~1", "c~2")
	})
	for _, id := range []string{"b~2", "b~3", "c~1", "c~2"} {
		s.info(orders, id, func(i punctual.Info) bool { return i.State == punctual.StateReady })
	}
	s.wantWaiting("a~2", "b~3", "c~2")
	more := s.wantClaim("behind a step of the clock, with one of a leased", "b~2", "c~1")
	s.ack(got["a~1"])
	s.ack(more["b~2"])
	s.wantClaim("behind a step of the clock, after two acks", "a~2", "b~3")
}

// keyTurnStep: a lease from before a step of the clock holds up the next of its key no longer than
// without the step.
func keyTurnStep(s *harness) {
	s.keyed(punctual.SettingsPatch{Lease: ptr(time.Hour)})
	s.pushKeys("a~1", "a~2")
	s.ahead(3*time.Hour, func() {
		if ds := s.take(orders, 1); len(ds) != 1 || ds[0].ID != "a~1" {
			s.fail("a claim of one message got %v; want a~1", ids(ds))
		}
	})
	s.wantWaiting()
	if d := s.soon(punctual.Claim{Topics: []string{orders}, Max: 100}); d.ID != "a~2" {
		s.fail("behind a step of the clock a claim got %s; want a~2", d.ID)
	}
}

// keyDivided: in a topic of several partitions all messages of a key are in one, because their IDs
// begin with the key; so the bounds of keys hold there as in any topic.
func keyDivided(s *harness) {
	if !s.abilities().Keys {
		s.Skipf("skipped: the store has no messages with keys (storekit.Abilities.Keys)")
	}
	_, err := s.inspector().Configure(s.ctx, orders, punctual.SettingsPatch{Partitions: ptr(4), Keyed: ptr(true), MaxKeyLeases: ptr(1)})
	if errors.Is(err, punctual.ErrUnsupported) {
		s.Skipf("skipped: the store keeps each topic in one partition")
	} else if err != nil {
		s.fail("Configure of a topic with keys and 4 partitions: %v", err)
	}
	wrong := ofKey("b~1", 0)
	wrong.Key = "a"
	s.refused(wrong, punctual.ErrInvalid, "an ID that does not begin with the key, in a topic of several partitions")
	long := punctual.NewMessage{Topic: orders, Key: strings.Repeat("k", limits.MaxKeyBytes)}
	s.refused(long, punctual.ErrInvalid, "a key with which a made-up ID would be too long")
	const keys, each = 12, 3
	for i := range keys * each {
		m := ofKey(fmt.Sprintf("k%d~%d", i%keys, i), 0)
		if i >= keys {
			m.ID = ""
		}
		if r := s.try(m); r.Err != nil || storekit.Stem(r.ID) != m.Key {
			s.fail("a push of the key %s got the ID %s, %v; want one that begins with the key", m.Key, r.ID, r.Err)
		}
		s.advance(time.Millisecond)
	}
	for range each {
		got := map[string]punctual.Delivery{}
		for {
			ds := s.claim(punctual.Claim{Topics: []string{orders}, Max: 100})
			if len(ds) == 0 {
				break
			}
			for _, d := range ds {
				if _, again := got[d.Key]; again {
					s.fail("two messages of the key %s are leased at once", d.Key)
				}
				got[d.Key] = d
			}
		}
		if len(got) != keys {
			s.fail("claims got messages of %d keys; want %d", len(got), keys)
		}
		if s.reach() != storekit.ReachNone { // a follow-up of the same key is at home beside its message
			s.follow(got["k0"], punctual.SettleAck, punctual.NewMessage{Topic: orders, Key: "k0", Delay: time.Hour})
			delete(got, "k0")
		}
		for _, d := range got {
			s.ack(d)
		}
	}
	for _, i := range s.list(punctual.ListQuery{Topic: orders, State: punctual.StateScheduled}) {
		if i.Key != "k0" || storekit.Stem(i.ID) != i.Key {
			s.fail("a follow-up of the key %s has the ID %s; want one that begins with the key", i.Key, i.ID)
		}
	}
	if st, err := s.inspector().Stats(s.ctx, orders); err != nil || st.Ready != 0 || st.Waiting != 0 || st.Leased != 0 {
		s.fail("behind all of them stats are %+v, %v", st, err)
	}
	s.checkSound()
}

// keyTogether: pushes, claims and settlements of many goroutines at once keep the bounds of every
// key, and deliver everything.
func keyTogether(s *harness) {
	const bound, keys, each, goroutines = 2, 5, 60, 8
	s.keyed(punctual.SettingsPatch{MaxKeyLeases: ptr(bound)})
	var mu sync.Mutex
	underWay, most, acked := map[string]int{}, map[string]int{}, map[string]bool{}
	next := 0
	errs := make([]error, goroutines)
	var work sync.WaitGroup
	for g := range goroutines {
		work.Go(func() {
			for round := 0; errs[g] == nil; round++ {
				mu.Lock()
				done := len(acked) == keys*each
				var push []punctual.NewMessage
				for range 3 {
					if next < keys*each {
						push = append(push, ofKey(fmt.Sprintf("k%d~%d", next%keys, next), 0))
						next++
					}
				}
				mu.Unlock()
				if done {
					return
				}
				if len(push) > 0 {
					_, errs[g] = s.store.Push(s.ctx, push)
				}
				ds, err := s.store.Claim(s.ctx, punctual.Claim{Topics: []string{orders}, Max: 3})
				errs[g] = cmp.Or(errs[g], err)
				mu.Lock()
				for _, d := range ds {
					underWay[d.Key]++
					most[d.Key] = max(most[d.Key], underWay[d.Key])
				}
				mu.Unlock()
				for i, d := range ds {
					x := punctual.Settlement{Topic: orders, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}
					if (round+i)%5 == 0 {
						x.Verb = punctual.SettleRelease
					}
					mu.Lock()
					underWay[d.Key]-- // before the settlement, because its room is free before its answer comes
					if x.Verb == punctual.SettleAck {
						acked[d.ID] = true
					}
					mu.Unlock()
					results, err := s.store.Settle(s.ctx, []punctual.Settlement{x})
					errs[g] = cmp.Or(errs[g], errors.Join(append(results, err)...))
				}
			}
		})
	}
	work.Wait()
	if err := errors.Join(errs...); err != nil {
		s.fail("pushes, claims and settlements at once: %v", err)
	}
	for key, n := range most {
		if n > bound {
			s.fail("%d messages of %s were under way at once; the bound is %d", n, key, bound)
		}
	}
	s.none(orders, "after everything was acked")
}

// keyRandom makes random calls for messages of few keys. After each of them it compares what waits
// with what the bounds say, and after a claim that was not full it wants nothing left that could be
// leased. Leases are so long that none runs out.
func keyRandom(s *harness) {
	long := punctual.SettingsPatch{Lease: ptr(24 * time.Hour)}
	s.keyed(long)
	for seed := range uint64(5) {
		h := &keyHistory{harness: newHarness(s.T, s.promise, s.opener), r: rand.New(rand.NewPCG(seed, 39)), held: map[string]punctual.Delivery{}}
		h.keyed(long)
		h.run(80)
	}
}

// keyHistory is one history of keyRandom. held has the messages under a lease by their IDs, and
// bound is how many leases a key may have, 0 for no bound.
type keyHistory struct {
	*harness
	r       *rand.Rand
	held    map[string]punctual.Delivery
	pushed  []string // in the order of the pushes
	bound   int
	inOrder bool
}

func (h *keyHistory) run(calls int) {
	for i := range calls {
		switch call := h.r.IntN(12); {
		case call < 5:
			id := fmt.Sprintf("%c~%d", 'a'+h.r.IntN(3), i)
			m := ofKey(id, time.Duration(h.r.IntN(3)*1000+i)*time.Millisecond) // no two are due at once
			if h.r.IntN(6) == 0 {
				m.Key = ""
			}
			h.push(m)
			h.pushed = append(h.pushed, id)
		case call < 8:
			h.claims(1 + h.r.IntN(3))
		case call < 10:
			h.settles(i)
		case call == 10 && len(h.pushed) > 0:
			id := h.pushed[h.r.IntN(len(h.pushed))]
			change := []punctual.Amendment{cancel(orders, id), remove(orders, id), reschedule(orders, id, time.Duration(h.r.IntN(2)*1000+i)*time.Millisecond), requeue(orders, id, 0)}[h.r.IntN(4)]
			if h.amend(change).Err == nil && change.Change == punctual.ChangeDelete {
				delete(h.held, id)
			}
		default:
			h.bound, h.inOrder = h.r.IntN(3), h.r.IntN(3) == 0
			h.configure(orders, punctual.SettingsPatch{MaxKeyLeases: ptr(h.bound), InOrder: ptr(h.inOrder)})
			if h.inOrder {
				h.bound = 1
			}
		}
		h.advance(time.Duration(h.r.IntN(1000)) * time.Millisecond)
		h.compare(i)
	}
	h.checkSound()
}

func (h *keyHistory) claims(n int) {
	ds := h.take(orders, n)
	for _, d := range ds {
		h.held[d.ID] = d
	}
	leased := map[string]int{}
	for _, d := range h.held {
		leased[d.Key]++
	}
	for _, d := range ds {
		if d.Key != "" && h.bound > 0 && leased[d.Key] > h.bound {
			h.fail("a claim got %v; %s has %d leases by now, and may have %d", ids(ds), d.Key, leased[d.Key], h.bound)
		}
	}
	if len(ds) == n {
		return
	}
	for _, i := range h.list(punctual.ListQuery{Topic: orders, State: punctual.StateReady}) {
		if !i.Waiting {
			h.fail("a claim of %d got %v, and left %s, which does not wait", n, ids(ds), i.ID)
		}
	}
}

// settles ends one of the leases, if there is any.
func (h *keyHistory) settles(i int) {
	if len(h.held) == 0 {
		return
	}
	id := slices.Min(slices.Collect(maps.Keys(h.held)))
	d := h.held[id]
	v := []punctual.Verb{punctual.SettleAck, punctual.SettleAck, punctual.SettleRetry, punctual.SettleSnooze, punctual.SettleRelease, punctual.SettleDiscard}[h.r.IntN(6)]
	var delay time.Duration
	if v == punctual.SettleRetry || v == punctual.SettleSnooze {
		delay = time.Duration(h.r.IntN(2)*1000+i) * time.Millisecond
	}
	if err := h.settle(d, v, delay); err != nil && !errors.Is(err, punctual.ErrCancelled) {
		h.fail("%s of %s: %v", v, id, err)
	}
	delete(h.held, id)
}

// compare compares Info.Waiting of each ready message with what the bounds say.
func (h *keyHistory) compare(call int) {
	h.Helper()
	leased := map[string]int{}
	for _, d := range h.held {
		leased[d.Key]++
	}
	ready := h.list(punctual.ListQuery{Topic: orders, State: punctual.StateReady})
	all := slices.Concat(ready, h.list(punctual.ListQuery{Topic: orders, State: punctual.StateScheduled}))
	before := func(a, b *punctual.Info) int {
		x, y := a.Due, b.Due
		if h.inOrder {
			x, y = a.FirstDue, b.FirstDue
		}
		return cmp.Or(x.Compare(y), slices.Index(h.pushed, a.ID)-slices.Index(h.pushed, b.ID))
	}
	first := map[string]*punctual.Info{}
	for i := range all {
		if m := &all[i]; first[m.Key] == nil || before(m, first[m.Key]) < 0 {
			first[m.Key] = m
		}
	}
	for _, m := range ready {
		waits := m.Key != "" && (first[m.Key].ID != m.ID || h.bound > 0 && leased[m.Key] >= h.bound)
		if m.Waiting != waits {
			h.fail("after call %d, %s waits for its key: %v; want %v, with %s (due %v) before it (due %v), %d leases and a bound of %d, in order %v",
				call, m.ID, m.Waiting, waits, first[m.Key].ID, first[m.Key].Due, m.Due, leased[m.Key], h.bound, h.inOrder)
		}
	}
}
