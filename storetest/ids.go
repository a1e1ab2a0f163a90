package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// idsCases: does a claim by ID lease the messages that it names, and only those that any claim
// could lease? Claim.IDs says what is right.
func idsCases() []testCase {
	return []testCase{
		{"in the order asked for", p12, idsOrder},
		{"each situation", p3, idsSituations},
		{"at most Max", p3, idsMax},
		{"named twice", p3, idsTwice},
		{"never early", p2, idsEarly},
		{"length of the lease", p3, idsLease},
		{"ordinary claims get the rest", p1, idsRest},
		{"beside a pause", p3, idsPaused},
		{"beside a bound", p3, idsBound},
		{"beside a bound that is used up by what ran out", p3, idsBoundLapsed},
		{"beside a rate", p3, idsRate},
		{"expired", p6, idsExpired},
		{"attempts used up", p6, idsUsedUp},
		{"cancelled under its last lease", p5, idsCancelled},
		{"a lease that ran out", p4, idsLapsed},
		{"a topic that does not exist", p3, idsNoTopic},
		{"the same ID in two topics", p3, idsTwoTopics},
		{"of groups", p3, idsGroup},
		{"a follow-up", p3, idsFollow},
		{"far behind many others", p12, idsFar},
		{"many", p3, idsMany},
		{"after a restart", p1, idsReopen},
		{"sent again", p13, idsRepeat},
		{"claimed by several at once", p3, idsTogether},
		{"malformed", p13, idsMalformed},
	}
}

// byID claims messages of orders by ID.
func (s *harness) byID(ids ...string) []punctual.Delivery {
	s.Helper()
	return s.claim(punctual.Claim{Topics: []string{orders}, IDs: ids})
}

// getsByID claims messages of orders by ID and wants some of them, in this order.
func (s *harness) getsByID(asked, want []string, when string) []punctual.Delivery {
	s.Helper()
	ds := s.byID(asked...)
	if !slices.Equal(ids(ds), append([]string{}, want...)) {
		s.fail("%s, a claim of %v got %v; want %v", when, asked, ids(ds), want)
	}
	return ds
}

func idsOrder(s *harness) {
	for i, id := range []string{"a", "b", "c", "d"} {
		s.push(order(id, time.Duration(i)*time.Second))
	}
	s.advance(time.Minute)
	asked := []string{"c", "a", "d"}
	for i, d := range s.getsByID(asked, asked, "when all are ready") {
		if d.Attempt != 1 || string(d.Body) != "body of "+asked[i] || d.Token == 0 {
			s.fail("%s came as attempt %d with body %q and token %d", d.ID, d.Attempt, d.Body, d.Token)
		}
		s.ack(d)
	}
	s.wantState(orders, "b", punctual.StateReady)
}

// idsSituations: what is not ready is left out, and stays as it is.
func idsSituations(s *harness) {
	s.eachSituation(func(s *harness, at situation, last punctual.Delivery) {
		before, counts := s.snapshot(orders, x)
		var want []string
		if at.state == punctual.StateReady {
			want = []string{x}
		}
		s.getsByID([]string{x}, want, "of a message that is "+at.name)
		if len(want) > 0 {
			s.wantState(orders, x, punctual.StateLeased)
			return
		}
		if after, now := s.snapshot(orders, x); after.State != before.State || after.Attempt != before.Attempt || counts != now {
			s.fail("a claim by ID changed a message that is %s: %+v, %s became %+v, %s", at.name, before, counts, after, now)
		}
		if at.name == isLeased {
			s.ack(last)
		}
	})
}

func idsMax(s *harness) {
	s.ready(5)
	for _, step := range []struct {
		max  int
		want []string
	}{{2, []string{"e", "a"}}, {9, []string{"d"}}, {0, []string{"b", "c"}}} {
		asked := []string{"e", "absent", "a", "d"}
		if step.max == 0 {
			asked = []string{"a", "b", "c"}
		}
		ds := s.claim(punctual.Claim{Topics: []string{orders}, IDs: asked, Max: step.max})
		if !slices.Equal(ids(ds), step.want) {
			s.fail("a claim of at most %d of %v got %v; want %v", step.max, asked, ids(ds), step.want)
		}
	}
}

func idsTwice(s *harness) {
	s.ready(2)
	s.getsByID([]string{"a", "b", "a", "a"}, []string{"a", "b"}, "of IDs named again")
}

func idsEarly(s *harness) {
	for _, f := range fractions() {
		t := newHarness(s.T, s.promise, s.opener)
		t.push(order(x, time.Second))
		t.clock.Set(noon.Add(time.Second - time.Millisecond + f))
		t.getsByID([]string{x}, nil, "a millisecond early")
		t.clock.Set(noon.Add(time.Second + f))
		t.getsByID([]string{x}, []string{x}, "when it is due")
	}
}

func idsLease(s *harness) {
	s.ready(2)
	a := s.claim(punctual.Claim{Topics: []string{orders}, IDs: []string{"a"}, Lease: time.Hour})
	b := s.byID("b")
	if len(a) != 1 || len(b) != 1 || !a[0].LeaseUntil.Equal(noon.Add(time.Hour)) || !b[0].LeaseUntil.Equal(noon.Add(30*time.Second)) {
		s.fail("claims by ID with a lease of an hour and without one got %+v and %+v; want leases of an hour and of the topic's 30s", a, b)
	}
}

func idsRest(s *harness) {
	s.ready(4)
	s.getsByID([]string{"b"}, []string{"b"}, "of one of four")
	s.wantOrder(s.take(orders, 10), "a", "c", "d")
	s.advance(time.Minute)
	if ds := s.take(orders, 10); len(ds) != 4 {
		s.fail("when all leases have run out, a claim got %v; want all four", ids(ds))
	}
}

func idsPaused(s *harness) {
	s.configure(orders, punctual.SettingsPatch{DeliveryPaused: ptr(true)})
	s.ready(2)
	s.getsByID([]string{"a", "b"}, nil, "while deliveries are paused")
	s.configure(orders, punctual.SettingsPatch{DeliveryPaused: ptr(false)})
	s.getsByID([]string{"a", "b"}, []string{"a", "b"}, "after the pause")
}

func idsBound(s *harness) {
	s.bounded(2, limits.Rate{})
	s.ready(4)
	ds := s.getsByID([]string{"d", "c", "b"}, []string{"d", "c"}, "at a bound of 2")
	s.getsByID([]string{"a"}, nil, "with 2 leased")
	s.gets(0, "with 2 leased by ID")
	s.ack(ds[0])
	s.getsByID([]string{"c", "b", "a"}, []string{"b"}, "after an ack")
}

// idsBoundLapsed: a message whose lease ran out has a place already, and needs no other.
func idsBoundLapsed(s *harness) {
	s.bounded(1, limits.Rate{})
	s.ready(3)
	old := s.getsByID([]string{"b"}, []string{"b"}, "at a bound of 1")[0]
	s.advance(time.Minute)
	s.push(punctual.NewMessage{Topic: orders, ID: "expired", ExpireAfter: time.Minute})
	s.advance(time.Minute)
	d := s.getsByID([]string{"a", "expired", "b", "c"}, []string{"b"}, "when the lease of b has run out")[0]
	s.wantState(orders, "expired", punctual.StateReady) // it had no room, so nobody has met it
	if d.Attempt != 2 || d.Token <= old.Token {
		s.fail("b came as attempt %d with token %d; want 2, and a token above %d", d.Attempt, d.Token, old.Token)
	}
	s.ack(d)
	s.getsByID([]string{"expired", "a"}, []string{"a"}, "after the ack")
	s.wantDead(orders, "expired", punctual.ReasonExpired)
}

func idsRate(s *harness) {
	s.bounded(0, limits.PerSecond(1))
	s.ready(3)
	s.advance(time.Hour) // a store may not know what its rate was before it was opened
	s.getsByID([]string{"c", "b", "a"}, []string{"c"}, "at a rate of 1 in a second")
	s.getsByID([]string{"b", "a"}, nil, "in the same second")
	s.gets(0, "in the same second")
	s.advance(time.Second)
	s.getsByID([]string{"b", "a"}, []string{"b"}, "a second later")
}

func idsExpired(s *harness) {
	s.push(punctual.NewMessage{Topic: orders, ID: "expired", ExpireAfter: time.Minute})
	s.push(punctual.NewMessage{Topic: orders, ID: "dropped", ExpireAfter: time.Minute, DropExpired: true})
	s.push(punctual.NewMessage{Topic: orders, ID: "other", ExpireAfter: time.Minute})
	s.push(order("a", 0))
	s.advance(time.Minute)
	s.getsByID([]string{"expired", "dropped", "a"}, []string{"a"}, "beside two that have expired")
	s.wantDead(orders, "expired", punctual.ReasonExpired)
	s.wantState(orders, "dropped", punctual.StateNone)
	s.wantState(orders, "other", punctual.StateReady) // nobody has asked for it
}

func idsUsedUp(s *harness) {
	m := order("a", 0)
	m.MaxAttempts = 1
	s.push(m)
	s.getsByID([]string{"a"}, []string{"a"}, "of the only attempt")
	s.advance(time.Minute)
	s.getsByID([]string{"a"}, nil, "when the attempts are used up")
	s.wantDead(orders, "a", punctual.ReasonAttemptsUsedUp)
}

func idsCancelled(s *harness) {
	s.ready(1)
	s.getsByID([]string{"a"}, []string{"a"}, "of one that is ready")
	s.outcome(cancel(orders, "a"), punctual.ErrLeased, isLeased)
	s.advance(time.Minute)
	s.getsByID([]string{"a"}, nil, "of one that was cancelled under its last lease")
	s.wantState(orders, "a", punctual.StateNone)
}

func idsLapsed(s *harness) {
	s.ready(2)
	old := s.getsByID([]string{"a"}, []string{"a"}, "of one that is ready")[0]
	s.advance(time.Minute)
	d := s.getsByID([]string{"a"}, []string{"a"}, "when its lease has run out")[0]
	if d.Attempt != 2 || len(d.Failures) != 1 || !d.Failures[0].At.Equal(noon.Add(time.Minute)) {
		s.fail("it came as attempt %d with failures %+v; want 2, and that of the lease", d.Attempt, d.Failures)
	}
	s.wantFenced(old, "a claim by ID")
	s.ack(d)
}

func idsNoTopic(s *harness) {
	s.getsByID([]string{"a"}, nil, "of a topic that does not exist")
	if s.hasInspector() {
		if all, err := s.inspector().Topics(s.ctx); err != nil || len(all) > 0 {
			s.fail("after a claim by ID from a topic that does not exist, the topics are %+v, %v; want none", all, err)
		}
	}
}

func idsTwoTopics(s *harness) {
	s.ready(1)
	s.push(punctual.NewMessage{Topic: mails, ID: "a"})
	if ds := s.claim(punctual.Claim{Topics: []string{mails}, IDs: []string{"a"}}); len(ds) != 1 || ds[0].Topic != mails {
		s.fail("a claim of a in %s got %+v", mails, ds)
	}
	s.getsByID([]string{"a"}, []string{"a"}, "of the one in orders")
}

func idsGroup(s *harness) {
	group := punctual.GroupTopic(orders, "billing")
	s.push(punctual.NewMessage{Topic: group, ID: "a"})
	s.push(punctual.NewMessage{Topic: group, ID: "b"})
	if ds := s.claim(punctual.Claim{Topics: []string{group}, IDs: []string{"b"}}); len(ds) != 1 || ds[0].ID != "b" {
		s.fail("a claim of b in a group got %v", ids(ds))
	}
}

// idsFollow: who stores a follow-up may go on with it at once.
func idsFollow(s *harness) {
	s.follows(storekit.ReachFamily)
	s.ready(1)
	d := s.getsByID([]string{"a"}, []string{"a"}, "of one that is ready")[0]
	s.follow(d, punctual.SettleAck, order("a~next", 0), order("a~later", time.Hour))
	s.getsByID([]string{"a~later", "a", "a~next"}, []string{"a~next"}, "of follow-ups")
}

// idsFar: the messages asked for stand behind many that are due earlier, and some of them are
// claimed before, so that a store has part of the topic in memory.
func idsFar(s *harness) {
	const n = 3000
	ms := make([]punctual.NewMessage, n)
	for i := range ms {
		ms[i] = order(fmt.Sprint(i), time.Duration(i)*time.Millisecond)
	}
	for some := range slices.Chunk(ms, 1000) {
		s.pushAll(some...)
	}
	s.advance(time.Minute)
	leased := s.take(orders, 10)[3].ID
	s.getsByID([]string{"2999", "1500", leased, "2000"}, []string{"2999", "1500", "2000"}, "of some far behind")
	got := map[string]bool{}
	for range n {
		ds := s.take(orders, 1000)
		for _, d := range ds {
			got[d.ID] = true
			s.ack(d)
		}
		if len(ds) == 0 {
			break
		}
	}
	if len(got) != n-13 || got["2999"] || got["1500"] || got["2000"] {
		s.fail("behind claims of 13 of %d, ordinary claims got %d; want all others", n, len(got))
	}
}

func idsMany(s *harness) {
	var asked []string
	for i := range 700 {
		asked = append(asked, fmt.Sprint(i))
	}
	var ms []punctual.NewMessage
	for _, id := range asked {
		ms = append(ms, order(id, 0))
	}
	s.pushAll(ms...)
	slices.Reverse(asked)
	s.getsByID(asked, asked, "of 700")
	s.none(orders, "when all are leased")
}

func idsReopen(s *harness) {
	s.ready(4)
	s.getsByID([]string{"b"}, []string{"b"}, "before a restart")
	s.reopen()
	d := s.getsByID([]string{"d", "b", "a"}, []string{"d", "a"}, "after a restart")
	s.ack(d[0])
	s.reopen()
	s.getsByID([]string{"a", "b", "c", "d"}, []string{"c"}, "after another restart")
	s.advance(time.Minute)
	for _, d := range s.getsByID([]string{"d", "b", "a"}, []string{"b", "a"}, "when the leases have run out") {
		if d.Attempt != 2 {
			s.fail("%s came as attempt %d; want 2", d.ID, d.Attempt)
		}
	}
}

// idsRepeat: a claim by ID that is sent again has the answer that the first copy got, and a key is
// not for another claim.
func idsRepeat(s *harness) {
	s.repeater()
	s.ready(3)
	s.push(order("c~2", 0)) // in the partition of c, which has the key
	var tokens []int64
	s.again("claim", func() {
		tokens = append(tokens, s.getsByID([]string{"c"}, []string{"c"}, "that is sent twice")[0].Token)
	})
	if tokens[0] != tokens[1] {
		s.fail("a claim that was sent again has token %d after %d: it leased a second time", tokens[1], tokens[0])
	}
	ctx := storekit.WithRequest(s.ctx, storekit.Request{Key: "claim"})
	ds, err := s.store.Claim(ctx, punctual.Claim{Topics: []string{orders}, IDs: []string{"c~2"}})
	s.noneWith(err, ds)
	s.wantErr(err, punctual.ErrInvalid, "a claim of another message under the same key")
}

// idsTogether: of several claims of the same messages each message goes to one.
func idsTogether(s *harness) {
	const n = 40
	var asked []string
	for i := range n {
		asked = append(asked, fmt.Sprint(i))
		s.push(order(asked[i], 0))
	}
	var (
		mu     sync.Mutex
		holds  = map[string]int{} // guarded by mu
		failed error              // guarded by mu
		all    sync.WaitGroup
	)
	for i := range 6 {
		c := punctual.Claim{Topics: []string{orders}, IDs: slices.Clone(asked)}
		switch {
		case i == 5:
			c = punctual.Claim{Topics: []string{orders}, Max: n}
		case i%2 == 1:
			slices.Reverse(c.IDs)
		}
		all.Go(func() {
			ds, err := s.store.Claim(s.ctx, c)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			for _, d := range ds {
				holds[d.ID]++
			}
		})
	}
	all.Wait()
	if failed != nil {
		s.fail("claims of the same messages: unexpected error: %v", failed)
	}
	for id, times := range holds {
		if times > 1 {
			s.fail("%s was leased to %d claims at the same time", id, times)
		}
	}
	for _, d := range s.byID(asked...) { // a claim that met another one may have left some out
		holds[d.ID]++
	}
	if len(holds) != n {
		s.fail("claims of the same %d messages got %d of them", n, len(holds))
	}
}

func idsMalformed(s *harness) {
	s.ready(1)
	many := make([]string, limits.MaxClaim+1)
	for i := range many {
		many[i] = "a"
	}
	one := []string{orders}
	for name, c := range map[string]punctual.Claim{
		"an empty ID":            {Topics: one, IDs: []string{"a", ""}},
		"an ID with a line feed": {Topics: one, IDs: []string{"a", "b\n"}},
		"an ID of 129 bytes":     {Topics: one, IDs: []string{"a", strings.Repeat("i", limits.MaxIDBytes+1)}},
		"10001 IDs":              {Topics: one, IDs: many},
		"two topics":             {Topics: []string{orders, mails}, IDs: []string{"a"}},
		"no topic":               {IDs: []string{"a"}},
		"Wait":                   {Topics: one, IDs: []string{"a"}, Wait: time.Second},
		"PerTopic":               {Topics: one, IDs: []string{"a"}, PerTopic: 1},
		"Max -1":                 {Topics: one, IDs: []string{"a"}, Max: -1},
		"Max beyond MaxClaim":    {Topics: one, IDs: []string{"a"}, Max: limits.MaxClaim + 1},
		"a short lease":          {Topics: one, IDs: []string{"a"}, Lease: limits.MinLease - 1},
		"no IDs and Max 0":       {Topics: one, IDs: []string{}},
	} {
		ds, err := s.store.Claim(s.ctx, c)
		s.wantErr(err, punctual.ErrInvalid, "a claim by ID with %s", name)
		s.noneWith(err, ds)
	}
	if d := s.getsByID(many[:limits.MaxClaim], []string{"a"}, "behind malformed ones")[0]; d.Attempt != 1 {
		s.fail("behind malformed claims a came as attempt %d; want 1", d.Attempt)
	}
}
