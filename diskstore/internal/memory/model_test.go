package memory

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/storekit/lifecycle"
	"pgregory.net/rapid"
)

// TestSlowModel lets claims, transactions, settlements and a loader make steps on an index in
// random order. It compares each step with a small model: what is on disk, and the one state in
// which each message is. Nothing waits for a disk, so many steps are cheap: go test -run Model
// -rapid.checks 100000.
func TestSlowModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(t)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			r.step()
			r.compare()
		}
	})
}

// The states of a message in the model. A free message is on disk alone or in the window.
const (
	free = iota
	pending
	reserved
	leased
	ackedState
)

// modelled is a message that is on disk.
type modelled struct {
	topic     *Topic
	at        record.Position
	rec       []byte
	id        string
	state     int
	by        *modelClaim  // the claim that has reserved the message
	moved     int          // how often the message was stored or moved on disk; tells publish whether a later transaction has moved it
	last      record.Lease // the last lease since the message was moved; token 0 if there was none
	cancelled bool
	remember  bool // its ID is to be remembered when it finishes, so that its ack changes the disk
}

// next is when the message next needs attention.
func (m *modelled) next() int64 {
	if m.last.Token != 0 {
		return m.last.Until
	}
	return m.at.Ms
}

// modelClaim is a claim on its way, after Reserve or after Grant.
type modelClaim struct {
	reserved []*Reserved
	granted  bool
	leases   map[*Reserved]record.Lease // of a granted one
	stepped  bool                       // the clock has stepped back since Reserve
}

// modelTxn is a transaction that is applied and not durable.
type modelTxn struct {
	expected Expected
	seqs     []uint64
	moved    []int
}

// waiter is a claim that sleeps until a time, unless the index wakes it.
type waiter struct {
	topic string
	until int64
}

type rig struct {
	*rapid.T
	x       *Index
	room    int64 // what messages may cost
	now     int64
	topics  []*Topic
	paused  map[*Topic]bool
	seq     uint64
	disk    map[uint64]*modelled
	claims  []*modelClaim
	txns    []*modelTxn
	load    *Load
	search  *Search
	first   record.Position // what the search has found
	waiters []waiter
	until   int64            // when the loader wakes by itself
	tokens  map[int64]uint64 // the numbers of the messages by the tokens of all leases ever made, also those that are over
}

func newRig(t *rapid.T) *rig {
	r := &rig{T: t, now: 1 << 32, paused: make(map[*Topic]bool), disk: make(map[uint64]*modelled), tokens: make(map[int64]uint64)}
	r.room = int64(rapid.IntRange(4, 60).Draw(t, "room")) * MessageBytes
	r.open(1)
	for i := range 2 {
		r.topics = append(r.topics, r.x.AddTopic(fmt.Sprint(i), uint32(i), settings(false)))
	}
	return r
}

// open makes a new index, which gives out lease tokens from the given one on.
func (r *rig) open(token int64) {
	r.x = New(r.room, func(topic string, at int64) {
		r.waiters = slices.DeleteFunc(r.waiters, func(w waiter) bool { return w.topic == topic && at < w.until })
	})
	r.x.StartTokens(token, token)
	if s := r.x.Stats(); s.NextToken != token || s.TokenLimit != token {
		r.Fatalf("tokens %d to %d may be given out, want none before %d", s.NextToken, s.TokenLimit, token)
	}
	r.x.StartTokens(token, 1<<40)
}

func settings(paused bool) *punctual.Settings {
	s := punctual.DefaultSettings()
	s.Lease, s.DeliveryPaused = 5_000_000_000, paused
	return &s
}

func (r *rig) n(low, high int) int      { return rapid.IntRange(low, high).Draw(r.T, "n") }
func (r *rig) topic() *Topic            { return r.topics[r.n(0, len(r.topics)-1)] }
func (r *rig) state(m *modelled, s int) { m.state, m.by = s, nil }

// message picks a message that is in one of the states, or any if none is given. It returns nil if
// there is no such message.
func (r *rig) message(states ...int) *modelled {
	var seqs []uint64
	for seq, m := range r.disk {
		if len(states) == 0 || slices.Contains(states, m.state) {
			seqs = append(seqs, seq)
		}
	}
	if len(seqs) == 0 {
		return nil
	}
	slices.Sort(seqs)
	return r.disk[seqs[r.n(0, len(seqs)-1)]]
}

func (r *rig) step() {
	steps := []func(){
		r.passTime, r.stepClock, r.push, r.reserve, r.reserve, r.reserveAt, r.reserveAt, r.grant, r.confirm, r.putBack, r.settle, r.settle, r.settleStored, r.settleTogether, r.amend,
		r.endReserved, r.restart, r.loader, r.publish, r.publish, r.beginLoad, r.endLoad, r.endLoad, r.detachAcked, r.pause, r.dropTopic, r.clearTopic,
		r.find, r.found,
	}
	steps[r.n(0, len(steps)-1)]()
}

func (r *rig) passTime() { r.now += int64(r.n(0, 6000)) }

// locked tells that the write lock is taken: by a load, the only thing that the model does with it
// in several steps.
func (r *rig) locked() bool { return r.load != nil }

func (r *rig) push() {
	if r.locked() || len(r.disk) > 40 {
		return
	}
	t := r.topic()
	txn := &modelTxn{}
	var added []Added
	for range r.n(1, 3) {
		r.seq++
		m := &modelled{topic: t, at: record.Position{Ms: r.now + int64(r.n(0, 15_000)), Seq: r.seq}, rec: make([]byte, r.n(0, 1500)), id: fmt.Sprint(r.seq), remember: r.n(0, 2) == 0}
		r.disk[r.seq] = m
		added = append(added, r.add(txn, m))
	}
	r.apply(txn, added)
}

// add notes that a transaction stores a message, or moves it.
func (r *rig) add(txn *modelTxn, m *modelled) Added {
	m.moved++
	r.state(m, pending)
	m.last, m.cancelled = record.Lease{}, false
	txn.seqs, txn.moved = append(txn.seqs, m.at.Seq), append(txn.moved, m.moved)
	return Added{Topic: m.topic, At: m.at, Record: m.rec}
}

func (r *rig) apply(txn *modelTxn, added []Added) {
	txn.expected = r.x.Expect(added, r.now)
	r.txns = append(r.txns, txn)
}

// publish makes the oldest transaction durable.
func (r *rig) publish() {
	if len(r.txns) == 0 {
		return
	}
	txn := r.txns[0]
	r.txns = r.txns[1:]
	for i, seq := range txn.seqs {
		if m := r.disk[seq]; m != nil && m.moved == txn.moved[i] && m.state == pending {
			r.state(m, free)
		}
	}
	r.x.Publish(txn.expected, r.now)
}

// claimable are the messages of a topic that a claim may reserve now or once their time has come,
// in their order.
func (r *rig) claimable(t *Topic) (ms []*modelled) {
	for _, m := range r.disk {
		if m.topic == t && !r.paused[t] && (m.state == free || m.state == leased) {
			ms = append(ms, m)
		}
	}
	slices.SortFunc(ms, func(a, b *modelled) int {
		return cmp.Or(cmp.Compare(a.next(), b.next()), cmp.Compare(a.last.Token, b.last.Token), cmp.Compare(a.at.Seq, b.at.Seq))
	})
	return ms
}

func (r *rig) reserve() {
	t, n := r.topic(), r.n(1, 4)
	result := r.x.Reserve(t.Name, r.now, n)
	r.compareReserved(t, result.Reserved, true)
	left := r.claimable(t)
	switch {
	case result.TokensShort:
		r.Fatal("tokens are short")
	case result.Load != nil && (result.Load != t || len(result.Reserved) > 0):
		r.Fatalf("topic %s is to be loaded after %d messages of topic %s", result.Load.Name, len(result.Reserved), t.Name)
	case result.Load == nil && result.Next > r.now:
		if len(left) > 0 && left[0].next() < result.Next {
			r.Fatalf("P11: the claim sleeps until %d, message %v needs attention at %d", result.Next, left[0].at, left[0].next())
		}
		if len(result.Reserved) == 0 {
			r.waiters = append(r.waiters, waiter{t.Name, result.Next})
		}
	}
}

// reserveAt reserves a message by its place, as a claim by ID does.
func (r *rig) reserveAt() {
	m := r.message()
	if m == nil || r.locked() {
		return
	}
	result := m.topic.ReserveAt(m.at, r.now)
	if may := slices.Contains(r.claimable(m.topic), m) && m.next() <= r.now; may != (len(result.Reserved) == 1) {
		r.Fatalf("P2, P3: a claim of message %v at %d reserved it: %v; the model has it as %+v", m.at, r.now, !may, m)
	}
	r.compareReserved(m.topic, result.Reserved, false)
}

// compareReserved compares what a claim got with what it may get. ordered says that the claim takes
// the earliest first.
func (r *rig) compareReserved(t *Topic, cs []*Reserved, ordered bool) {
	if len(cs) == 0 {
		return
	}
	claim := &modelClaim{reserved: cs}
	for i, c := range cs {
		want := r.claimable(t)
		m := r.disk[c.Last.At.Seq]
		switch {
		case m == nil || !slices.Contains(want, m) || m.next() > r.now:
			r.Fatalf("P2, P3: the claim reserved message %v at %d, which the model has as %+v", c.Last.At, r.now, m)
		case ordered && m.next() != want[0].next():
			r.Fatalf("P12: the claim reserved message %v of %d before %v of %d", m.at, m.next(), want[0].at, want[0].next())
		case c.Last.Token != m.last.Token || c.Cancelled != m.cancelled || c.Topic != m.topic || c.Last.At != m.at:
			r.Fatalf("the claim reserved %+v, which the model has as %+v", c, m)
		case i > 0 && c.Token <= cs[i-1].Token:
			r.Fatalf("token %d came after %d", c.Token, cs[i-1].Token)
		}
		r.state(m, reserved)
		m.by = claim
	}
	r.claims = append(r.claims, claim)
}

// claim removes the first claim that was granted, or that was not, and returns it; nil if there is
// none.
func (r *rig) claim(granted bool) *modelClaim {
	for i, c := range r.claims {
		if c.granted == granted {
			r.claims = slices.Delete(r.claims, i, i+1)
			return c
		}
	}
	return nil
}

// has returns the message that a claim has reserved, or nil if the message is not reserved by that
// claim any more.
func (r *rig) has(claim *modelClaim, c *Reserved) *modelled {
	if m := r.disk[c.Last.At.Seq]; m != nil && m.state == reserved && m.by == claim {
		return m
	}
	return nil
}

// back gives a message that a claim has reserved and does not deliver the state that it had before.
func (r *rig) back(m *modelled) {
	if m.last.Token != 0 {
		r.state(m, leased)
	} else {
		r.state(m, free)
	}
}

func (r *rig) grant() {
	claim := r.claim(false)
	if claim == nil {
		return
	}
	for _, c := range claim.reserved {
		c.Message = &record.Record{ID: r.id(c), Message: lifecycle.Message{Attempts: c.Last.Attempt + 1}}
		if r.n(0, 5) == 0 {
			c.Message.FirstDue, c.Message.ExpireAfter = r.now-1, 1
		}
		if m := r.disk[c.Last.At.Seq]; m != nil && m.remember {
			c.Message.Remember = 60_000
		}
	}
	granted, leases := r.x.Grant(claim.reserved, 0, r.clock)
	next := &modelClaim{granted: true, leases: make(map[*Reserved]record.Lease)}
	for _, c := range claim.reserved {
		m := r.has(claim, c)
		i := slices.Index(granted, c)
		switch {
		case m == nil || claim.stepped || c.Message.Expired(r.now):
			if i >= 0 {
				r.Fatalf("P3, P5: message %v was granted although it was taken away or has expired, or was judged before a step of the clock", c.Last.At)
			}
			if m != nil {
				r.back(m)
			}
		case i < 0 || leases[i].Token != c.Token || leases[i].Until != r.now+5000 || leases[i].Since != r.now:
			r.Fatalf("message %v was not granted as asked: %v", c.Last.At, leases)
		default:
			m.by = next
			next.leases[c] = leases[i]
			next.reserved = append(next.reserved, c)
		}
	}
	if len(next.reserved) != len(granted) {
		r.Fatalf("%d messages were granted, want %d", len(granted), len(next.reserved))
	}
	r.claims = append(r.claims, next)
}

func (r *rig) id(c *Reserved) string { return fmt.Sprint(c.Last.At.Seq) }

func (r *rig) confirm() {
	claim := r.claim(true)
	if claim == nil {
		return
	}
	made, ended := r.x.Confirm(claim.reserved, r.clock)
	if len(made)+len(ended) != len(claim.reserved) {
		r.Fatalf("of %d leases %d were made and %d not", len(claim.reserved), len(made), len(ended))
	}
	for _, c := range claim.reserved {
		m := r.has(claim, c)
		isMade := slices.Contains(made, c)
		if m != nil && !reflect.DeepEqual(*c.Lease, claim.leases[c]) {
			r.Fatalf("P3: the lease of message %v is %+v, want %+v", c.Last.At, *c.Lease, claim.leases[c])
		}
		if isMade != (m != nil && c.Lease.Until > r.now) {
			r.Fatalf("P3, P5: lease of message %v until %d was made: %v at %d; the model has it as %+v", c.Last.At, c.Lease.Until, isMade, r.now, m)
		}
		switch {
		case isMade:
			r.state(m, leased)
			m.last = *c.Lease
			r.tokens[c.Token] = m.at.Seq
		case m != nil:
			if r.back(m); m.state == leased { // the lease before is in the claim log under the new token, and so in memory
				m.last.Token, m.last.Renewed = c.Token, 1
				if claim.stepped {
					m.last.Renewed += claim.leases[c].Renewed
				}
				r.tokens[c.Token] = m.at.Seq
			}
		}
	}
}

func (r *rig) clock() int64 { return r.now }

// stepClock steps the clock back.
func (r *rig) stepClock() {
	if r.locked() {
		return
	}
	s := lifecycle.Step{From: r.now, To: r.now - int64(r.n(1, 6000))}
	moved := r.x.Step(func() (lifecycle.Step, bool) { return s, true })
	r.now, r.waiters = s.To, nil
	n := 0
	for _, m := range r.disk {
		if m.last.Token != 0 && m.state != ackedState && m.last.Carry(s) {
			n++
		}
	}
	for _, claim := range r.claims {
		claim.stepped = true
		for c, l := range claim.leases {
			if l.Carry(s) && r.has(claim, c) != nil {
				n++
			}
			claim.leases[c] = l
		}
	}
	if len(moved) != n {
		r.Fatalf("a step of the clock from %d to %d has moved %d leases, want %d: %+v", s.From, s.To, len(moved), n, moved)
	}
}

func (r *rig) putBack() {
	claim := r.claim(r.n(0, 1) == 0)
	if claim == nil {
		return
	}
	for _, c := range claim.reserved {
		if m := r.has(claim, c); m != nil {
			r.back(m)
		}
	}
	r.x.PutBack(claim.reserved)
}

// settlement makes a settlement of a lease that there is, of one that there was, or of one that
// there never was. m is the leased message for which its token is current, or nil.
func (r *rig) settlement(v punctual.Verb) (st punctual.Settlement, m *modelled) {
	m = r.message(leased)
	st = punctual.Settlement{Verb: v, Topic: r.topic().Name, ID: "none", Token: int64(r.n(1, 50))}
	if seq, ok := r.tokens[st.Token]; ok {
		st.ID = fmt.Sprint(seq)
	}
	if m != nil && r.n(0, 3) > 0 {
		st.Topic, st.ID, st.Token = m.topic.Name, m.id, m.last.Token
	}
	for _, m := range r.disk {
		if m.state == leased && m.last.Token == st.Token && m.id == st.ID && m.topic.Name == st.Topic {
			return st, m
		}
	}
	return st, nil
}

func (r *rig) settle() {
	verb := []punctual.Verb{punctual.SettleAck, punctual.SettleExtend}[r.n(0, 1)]
	st, m := r.settlement(verb)
	done, ok := r.x.Settle([]punctual.Settlement{st}, r.clock)
	var want error
	if m != nil && m.remember && verb == punctual.SettleAck {
		if ok {
			r.Fatalf("P7: the ack of %+v changes the disk", m)
		}
		return
	}
	switch {
	case m == nil:
		want = punctual.ErrLeaseLost
	case verb == punctual.SettleAck:
		r.state(m, ackedState)
	case m.cancelled:
		want = punctual.ErrCancelled
	default:
		m.last.Until, m.last.Since = r.now+5000, r.now
		m.last.Renewed++
	}
	if !ok || !errors.Is(done.Errs[0], want) || want == nil && len(done.Acked)+len(done.Extended) != 1 {
		r.Fatalf("P4: %s at %d: %v, %v; want %v of %+v", verb, r.now, ok, done, want, m)
	}
}

// settleStored moves or deletes a leased message, as a settlement in a transaction does. Between
// Holder and DetachHeld, where a store reads the disk, another call may ack the message.
func (r *rig) settleStored() {
	if r.locked() {
		return
	}
	st, m := r.settlement(punctual.SettleRetry)
	if _, ok := r.x.Settle([]punctual.Settlement{st}, r.clock); ok {
		r.Fatal("a retry changes the disk")
	}
	h, ok := r.x.Holder(&st)
	if ok != (m != nil) || ok && (h.Lease.At != m.at || h.Cancelled != m.cancelled || h.Remembers != m.remember) {
		r.Fatalf("P4: the holder of %v is %v; want %+v", st, h, m)
	}
	if !ok {
		return
	}
	acked := !m.remember && r.n(0, 4) == 0 // by another call, meanwhile
	if acked {
		r.x.Settle([]punctual.Settlement{{Verb: punctual.SettleAck, Topic: st.Topic, ID: st.ID, Token: st.Token}}, r.clock)
		r.state(m, ackedState)
	}
	if _, ok := r.x.DetachHeld(h); ok == acked {
		r.Fatalf("P4: the message was detached: %v, although acked: %v", ok, acked)
	}
	if !acked {
		r.move(m)
	}
}

// settleTogether acks a leased message with follow-ups that depend on other messages. Between
// Holder and DetachTogether, where a store reads the disk, other calls may ack any of these
// messages.
func (r *rig) settleTogether() {
	if r.locked() {
		return
	}
	st, m := r.settlement(punctual.SettleAck)
	st.Then = []punctual.NewMessage{{Topic: "t"}}
	if _, ok := r.x.Settle([]punctual.Settlement{st}, r.clock); ok {
		r.Fatal("an ack with a follow-up changes the disk")
	}
	h, ok := r.x.Holder(&st)
	if ok != (m != nil) {
		r.Fatalf("P4: the holder of %v is %v; want %+v", st, h, m)
	}
	if !ok {
		return
	}
	var others []*modelled
	var beside []Beside
	for range r.n(0, 3) {
		if other := r.message(); other != m && !slices.Contains(others, other) {
			others, beside = append(others, other), append(beside, Beside{other.topic, other.at, r.n(0, 1) == 0})
		}
	}
	for _, other := range append(slices.Clone(others), m) { // acked by other calls, meanwhile
		if other.state == leased && !other.remember && r.n(0, 5) == 0 {
			r.x.Settle([]punctual.Settlement{{Verb: punctual.SettleAck, Topic: other.topic.Name, ID: other.id, Token: other.last.Token}}, r.clock)
			r.state(other, ackedState)
		}
	}
	isAcked := func(m *modelled) bool { return m.state == ackedState }
	want := m.state == leased && !slices.ContainsFunc(others, isAcked)
	d, replaced, ok := r.x.DetachTogether(h, beside)
	if ok != want || ok && (d.Lease.At != m.at || d.Lease.Token != st.Token) {
		r.Fatalf("P4: %+v was detached beside %v: %v, want %v", d, beside, ok, want)
	}
	if !ok {
		return // the next comparison fails if a message was detached all the same
	}
	delete(r.disk, m.at.Seq)
	for i, b := range beside {
		if !b.Goes {
			continue
		}
		if len(replaced) == 0 || replaced[0].Lease.At != b.At || replaced[0].Topic != b.Topic {
			r.Fatalf("%+v was detached; want the message at %v first", replaced, b.At)
		}
		replaced = replaced[1:]
		delete(r.disk, others[i].at.Seq)
	}
	if len(replaced) > 0 {
		r.Fatalf("%+v was detached, which nothing replaces", replaced)
	}
}

// move is a transaction that moves a message that was detached, or deletes it.
func (r *rig) move(m *modelled) {
	txn := &modelTxn{}
	if r.n(0, 1) == 0 {
		delete(r.disk, m.at.Seq)
		return
	}
	m.at.Ms = r.now + int64(r.n(0, 15_000))
	r.apply(txn, []Added{r.add(txn, m)})
}

// amend cancels, reschedules or replaces a message.
func (r *rig) amend() {
	m := r.message()
	if r.locked() || m == nil {
		return
	}
	isLeased := m.state == leased && r.now < m.last.Until
	st, due, next, cancelled := m.topic.State(m.at, r.now)
	wantDue := cmp.Or(m.last.Due, m.at.Ms)
	want := punctual.StateScheduled
	switch {
	case m.state == ackedState:
		want = punctual.StateNone
	case isLeased:
		want = punctual.StateLeased
	case wantDue <= r.now:
		want = punctual.StateReady
	}
	if st != want || due != wantDue || isLeased && next != m.last.Until || cancelled != m.cancelled {
		r.Fatalf("message %v is %v until %d, cancelled %v; want %v of %+v", m.at, st, next, cancelled, want, m)
	}
	var d Detached
	ok := true
	switch r.n(0, 2) {
	case 0:
		d = m.topic.Detach(m.at)
		isLeased = false
	case 1:
		d, ok = m.topic.DetachUnleased(m.at, r.now)
	case 2:
		if d, ok = m.topic.Cancel(m.at, r.now); !ok {
			m.cancelled = true
		}
	}
	switch {
	case ok == isLeased:
		r.Fatalf("P5: message %v was detached: %v, although leased: %v", m.at, ok, isLeased)
	case !ok:
	case d.Acked != (m.state == ackedState) || d.Lease.At != m.at || d.Lease.Token != m.last.Token || d.Topic != m.topic:
		r.Fatalf("detached %+v; the model has it as %+v", d, m)
	case d.Acked:
		delete(r.disk, m.at.Seq)
	default:
		r.move(m)
	}
}

// endReserved ends a message that a claim must not deliver.
func (r *rig) endReserved() {
	if r.locked() || len(r.claims) == 0 || r.claims[0].granted {
		return
	}
	claim := r.claims[0]
	c := claim.reserved[0]
	claim.reserved = claim.reserved[1:]
	if len(claim.reserved) == 0 {
		r.claims = r.claims[1:]
	}
	m := r.has(claim, c)
	if _, ok := r.x.DetachReserved(c); ok != (m != nil && !claim.stepped) {
		r.Fatalf("P5: message %v was detached: %v; the model has it as %+v", c.Last.At, ok, m)
	}
	switch {
	case m != nil && claim.stepped:
		r.back(m)
	case m != nil:
		delete(r.disk, m.at.Seq)
	}
}

func (r *rig) detachAcked() {
	if r.locked() {
		return
	}
	n, had := r.n(1, 3), 0
	for _, m := range r.disk {
		if m.state == ackedState {
			had++
		}
	}
	ds, more := r.x.DetachAcked(n)
	if len(ds) != min(n, had) || more != (had > n) {
		r.Fatalf("of %d acked messages %d were detached, more: %v; asked for %d", had, len(ds), more, n)
	}
	for _, d := range ds {
		if m := r.disk[d.Lease.At.Seq]; m == nil || m.state != ackedState || m.id != d.ID {
			r.Fatalf("P1: %+v is to be deleted; the model has it as %+v", d, m)
		}
		delete(r.disk, d.Lease.At.Seq)
	}
}

func (r *rig) beginLoad() {
	if r.locked() {
		return
	}
	if l, ok := r.topic().BeginLoad(r.now + 2000); ok {
		r.load = &l
	}
}

// loader wakes the loader, which asks what is to be loaded, and sleeps again. The loads are steps
// of their own: beginLoad and endLoad.
func (r *rig) loader() {
	select {
	case <-r.x.LoadHint():
	default:
	}
	for i, t := range r.x.Loads(r.now) {
		if t.diskNext.Ms > r.now+loadLead || i == 0 && t != r.x.toLoad[0] {
			r.Fatalf("topic %s is to be loaded at %d, and next on disk is %v", t.Name, r.now, t.diskNext)
		}
	}
	r.until = r.x.NextLoad(0)
}

// find begins a search for the first message that is on disk alone, and reads the disk.
func (r *rig) find() {
	if r.search != nil {
		return
	}
	s, ok := r.topic().BeginSearch()
	if !ok {
		return
	}
	r.search, r.first = &s, record.MaxPosition
	for _, m := range r.disk {
		if m.topic == s.Topic && !m.at.Less(s.From) && m.at.Less(r.first) {
			r.first = m.at
		}
	}
}

// found ends the search, after whatever came in between.
func (r *rig) found() {
	switch {
	case r.search == nil:
		return
	case r.n(0, 9) == 0:
		r.x.AbandonSearch(*r.search)
	default:
		r.x.EndSearch(*r.search, r.first)
	}
	r.search = nil
}

func (r *rig) endLoad() {
	if r.load == nil {
		return
	}
	l := *r.load
	r.load = nil
	if r.n(0, 9) == 0 {
		r.x.Abandon(l)
		return
	}
	var all []*modelled
	for _, m := range r.disk { // acked or not, durable or not: it is on disk
		if m.topic == l.Topic && l.From.Less(m.at) {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *modelled) int {
		return cmp.Or(cmp.Compare(a.at.Ms, b.at.Ms), cmp.Compare(a.at.Seq, b.at.Seq))
	})
	var read []record.Stored
	next, size := record.MaxPosition, int64(0)
	for _, m := range all {
		if m.at.Ms > l.Until || len(read) > 0 && size >= l.Room {
			next = m.at
			break
		}
		read = append(read, record.Stored{At: m.at, Record: m.rec})
		size += int64(MessageBytes + cap(m.rec))
	}
	r.compareReserved(l.Topic, r.x.Merge(l, read, next, r.n(0, 3), r.now), true)
}

func (r *rig) pause() {
	t := r.topic()
	r.paused[t] = !r.paused[t]
	t.Configure(settings(r.paused[t]), r.now)
	r.waiters = slices.DeleteFunc(r.waiters, func(w waiter) bool { return w.topic == t.Name }) // the caller of Configure wakes them
}

// clearTopic deletes all messages of a topic.
func (r *rig) clearTopic() {
	if r.locked() || r.n(0, 9) > 0 {
		return
	}
	t := r.topic()
	had := r.deleteAll(t)
	if n := t.Clear(); n != had {
		r.Fatalf("the topic that was cleared had %d acked messages; want %d", n, had)
	}
}

// deleteAll deletes all messages of a topic from disk, and returns how many were acked.
func (r *rig) deleteAll(t *Topic) (had int) {
	for seq, m := range r.disk {
		if m.topic == t {
			if m.state == ackedState {
				had++
			}
			delete(r.disk, seq)
		}
	}
	return had
}

// dropTopic deletes a topic, and makes one with the same name.
func (r *rig) dropTopic() {
	if r.locked() || r.n(0, 9) > 0 {
		return
	}
	i := r.n(0, len(r.topics)-1)
	t := r.topics[i]
	had := r.deleteAll(t)
	if n := t.Drop(); n != had {
		r.Fatalf("the topic had %d acked messages; want %d", n, had)
	}
	r.topics[i] = r.x.AddTopic(t.Name, t.Num+10, settings(r.paused[t]))
	r.paused[r.topics[i]] = r.paused[t]
}

// restart makes a new index from what is on disk and in the claim log. All transactions that were
// applied count as durable.
func (r *rig) restart() {
	if r.n(0, 9) > 0 {
		return
	}
	leases := r.x.Leases()
	next := r.x.Stats().NextToken
	r.claims, r.txns, r.load, r.search, r.waiters, r.until = nil, nil, nil, nil, nil, 0
	r.open(next)
	for i, t := range r.topics {
		low, has := record.Position{Ms: r.now}, false
		for _, m := range r.disk {
			if m.topic == t {
				low, has = t.Lowest(r.now), true
			}
		}
		r.topics[i] = r.x.AddTopic(t.Name, t.Num, settings(r.paused[t]))
		r.topics[i].Stored(low, has)
		r.paused[r.topics[i]] = r.paused[t]
		for _, m := range r.disk {
			if m.topic != t {
				continue
			}
			m.topic = r.topics[i]
			if m.state != ackedState {
				r.state(m, free)
				continue
			}
			for range 2 { // the claim log may tell of an ack twice
				m.topic.RestoreAcked(m.at, m.id)
			}
		}
	}
	for _, l := range leases {
		m := r.disk[l.At.Seq]
		m.topic.Restore(l, m.id, m.cancelled, m.remember)
		r.state(m, leased)
		m.last = l
		r.tokens[l.Token] = l.At.Seq
	}
	for _, m := range r.disk {
		if m.state == ackedState {
			m.last, m.cancelled = record.Lease{}, false // RestoreAcked restores no lease, and no mark of a cancel
		}
	}
}

// compareViews compares the views of the index with the leases and the acked messages of the model.
func (r *rig) compareViews() {
	want := make(map[uint32]View)
	for _, t := range r.topics {
		want[t.Num] = View{make(map[uint64]Held), make(map[uint64]record.Position)}
	}
	for _, m := range r.disk {
		one := View{make(map[uint64]Held), make(map[uint64]record.Position)}
		switch {
		case m.state == ackedState:
			want[m.topic.Num].Acked[m.at.Seq], one.Acked[m.at.Seq] = m.at, m.at
		case m.last.Token != 0:
			h := Held{Topic: m.topic, ID: m.id, Lease: m.last, Cancelled: m.cancelled, Remembers: m.remember}
			want[m.topic.Num].Leases[m.at.Seq], one.Leases[m.at.Seq] = h, h
		}
		if got := m.topic.ViewOf(m.at); !reflect.DeepEqual(got, one) {
			r.Fatalf("message %v is seen as %+v, want %+v", m.at, got, one)
		}
	}
	all := r.x.ViewAll()
	for _, t := range r.topics {
		if got := t.View(); !reflect.DeepEqual(got, want[t.Num]) {
			r.Fatalf("topic %s is seen as %+v, want %+v", t.Name, got, want[t.Num])
		}
		if got, ok := all[t.Num]; ok && !reflect.DeepEqual(got, want[t.Num]) || !ok && len(want[t.Num].Leases)+len(want[t.Num].Acked) > 0 {
			r.Fatalf("among all topics %s is seen as %+v, want %+v", t.Name, got, want[t.Num])
		}
	}
}

// compare compares the index with the model.
func (r *rig) compare() {
	if err := r.x.Verify(); err != nil {
		r.Fatal(err)
	}
	reading := int64(0)
	if r.load != nil {
		reading = r.load.Room
	}
	if got := r.x.account.reading; got != reading {
		r.Fatalf("P10: %d bytes are kept free for loads, want %d", got, reading)
	}
	r.compareViews()
	known := 0
	for _, t := range r.topics {
		known += len(t.messages)
	}
	leases := 0
	for _, m := range r.disk {
		e := m.topic.messages[m.at.Seq]
		if e == nil {
			if m.state != free || !m.topic.loaded.Less(m.at) || m.at.Less(m.topic.diskNext) {
				r.Fatalf("P1: message %v is not in memory, in state %d; its topic is loaded to %v, and next on disk is %v", m.at, m.state, m.topic.loaded, m.topic.diskNext)
			}
			continue
		}
		known--
		want := map[int]state{free: stateWindow, pending: statePending, reserved: stateReserved, leased: stateLeased, ackedState: stateAcked}[m.state]
		if e.state != want || e.lease.At != m.at || e.lease.Token != m.last.Token || e.next != m.next() && m.state != ackedState || e.cancelled != m.cancelled && m.state != ackedState {
			r.Fatalf("message %v is in state %d, next at %d, token %d; the model has it as %+v", e.lease.At, e.state, e.next, e.lease.Token, m)
		}
		if e.granted != nil || m.last.Token != 0 && m.state != ackedState {
			leases++
		}
		if low := m.topic.Lowest(r.now); m.at.Less(low) {
			r.Fatalf("message %v lies below the lowest, %v", m.at, low)
		}
	}
	if known != 0 {
		r.Fatalf("the index knows %d messages that are not on disk", known)
	}
	if got := len(r.x.Leases()); got != leases {
		r.Fatalf("there are %d leases; want %d", got, leases)
	}
	for _, w := range r.waiters {
		for _, t := range r.topics {
			if ms := r.claimable(t); t.Name == w.topic && len(ms) > 0 && ms[0].next() < w.until {
				r.Fatalf("P11: a claim of topic %s sleeps until %d, and message %v needs attention at %d", w.topic, w.until, ms[0].at, ms[0].next())
			}
		}
	}
	if toLoad := r.x.toLoad; len(toLoad) > 0 && len(r.x.loadHint) == 0 {
		if next := toLoad[0].diskNext.Ms - loadLead; next < r.until && (!r.x.crowded || r.x.HasRoom()) {
			r.Fatalf("P11: the loader sleeps until %d, and topic %s is to be loaded at %d", r.until, toLoad[0].Name, next)
		}
	}
	if s := r.x.Stats(); s.Pending == 0 && s.Bytes > s.Bound+2000 {
		r.Fatalf("P10: messages cost %d bytes; the bound is %d", s.Bytes, s.Bound)
	}
}
