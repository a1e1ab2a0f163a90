package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/punctualmq/punctual/storetest/promise"
)

// track is what the ledger knows of one ID in one topic.
type track struct {
	name
	states  []*state // in which the ID may be, behind all that was checked
	ops     []*op    // to be checked
	seen    int64    // first line of the last call whose answer told of the ID
	listed  bool     // it is in topicHistory.ids
	givenUp bool     // there were too many explanations or open ops, or a promise was broken: the ID is checked no more
	was     name     // what the ledger called it before anybody was told its ID
}

// op is one item of a call, as it concerns one ID.
type op struct {
	*call
	kind opKind
	ask  *Fact // what was asked for; of a delivery and a read what was told
	got  *Fact // the answer; nil when there is none
	// must tells that the answer was seen: the op took effect between its lines. Otherwise it may
	// have taken effect or not.
	must bool
	// before is an earlier op of the same call for the same ID; items take effect in their order.
	before *op
	// awaited tells that the op is the before of another one.
	awaited bool
	// since is a line before which no call for the ID is still open.
	since int64
	topic *topicHistory
	// lengths are the possible lengths of the lease, for a claim whose answer nobody saw
	// (opUnseen).
	lengths span
	// earlier is Ledger.Earlier, for a delivery.
	earlier int64
	// group is the number of the settlement without an answer that the op is a part of, or 0; see
	// links.
	group int64
	// met are the states in which a call that counts may have met the message, as bits.
	met uint8
}

type opKind uint8

const (
	opPush opKind = iota + 1
	opDeliver
	opUnseen // a claim whose answer nobody saw may have leased the message
	opSettle
	opFollow // a follow-up of a settlement that succeeded, or may have
	opRefuse // a follow-up for which a settlement was refused
	opAmend
	opGet
	opFinished
	opPurge
	opDelete
	opCount // Stats, which counted the ID or not
	opCut   // a failover
)

// pushed hands the messages of a push to their IDs, and those follow-ups of settlements that have
// no ID.
func (l *Ledger) pushed(c *call, touched map[name]*track) {
	switch c.Call {
	case CallPush:
		l.asked(c, opPush, touched)
	case CallSettle:
		l.unnamedFollowUps(c, touched)
	}
}

// items hands the items of a call that is no push to the IDs that they name.
func (l *Ledger) items(c *call, touched map[name]*track) {
	switch c.Call {
	case CallSettle:
		l.asked(c, opSettle, touched)
	case CallAmend:
		l.asked(c, opAmend, touched)
	case CallClaim:
		l.claimed(c, touched)
	case CallGet, CallLook:
		l.read(c, touched)
	case CallFinished:
		if c.answer != nil {
			l.asked(c, opFinished, touched)
		}
	}
}

// spread hands a call to all the IDs that it may concern without naming them.
func (l *Ledger) spread(c *call, touched map[name]*track) (counts []*countOp) {
	switch c.Call {
	case CallClaim:
		l.unseen(c, touched)
	case CallLook:
		l.missing(c, touched)
	case LineFailover:
		l.cut(c, touched)
	case CallPurge, CallDelete, CallStats:
		counts = l.wholeTopic(c, touched)
	case CallSettings, CallConfigure:
		l.toldSettings(c)
	}
	return counts
}

// of returns the track of an ID; it begins as one that was never pushed.
func (l *Ledger) of(n name) *track {
	t := l.ids[n]
	if t == nil {
		t = &track{name: n, states: []*state{{why: "it was never pushed"}}}
		l.ids[n] = t
	}
	l.list(t)
	return t
}

// list puts an ID on the list of its topic.
func (l *Ledger) list(t *track) {
	if !t.listed {
		t.listed = true
		h := l.history(t.topic)
		h.ids = append(h.ids, t)
	}
}

func (l *Ledger) add(n name, touched map[name]*track, o op) *op {
	t := l.of(n)
	touched[n] = t
	o.topic = l.history(n.topic)
	o.since = t.seen
	for i := len(t.ops) - 1; i >= 0 && o.before == nil && t.ops[i].call == o.call; i-- {
		o.before = t.ops[i]
		o.before.awaited = true
	}
	t.ops = append(t.ops, &o)
	return &o
}

func (l *Ledger) asked(c *call, kind opKind, touched map[name]*track) {
	if c.answer != nil && len(c.answer.Facts) != len(c.Facts) {
		l.broken(c.to, "%s: %s of %d messages has %d results", promise.P13, c.Call, len(c.Facts), len(c.answer.Facts))
		return
	}
	for i := range c.Facts {
		o := op{call: c, kind: kind, ask: &c.Facts[i]}
		n := name{o.ask.Topic, o.ask.ID}
		if isEvents(n.topic) {
			continue
		}
		l.told.noteEnding(c, i)
		if c.answer != nil {
			o.got = &c.answer.Facts[i]
			if o.must = o.got.Status != openStatus; !o.must {
				continue // call.open has put this item into a call of its own
			}
			n.id = cmp.Or(n.id, o.got.ID)
		}
		if n.id == "" {
			n.id = "?" + o.ask.Life // until an answer tells the ID
			l.unnamed[o.ask.Life] = l.of(n)
		}
		if kind == opSettle && len(o.ask.Then) > 0 && c.answer == nil {
			o.group = l.groupOf(c, o.ask)
		}
		l.add(n, touched, o)
		l.joins(o.group, n)
		if kind == opSettle {
			l.followUps(c, i, touched, func(f *Fact) bool { return f.ID != "" })
		}
	}
}

func (l *Ledger) claimed(c *call, touched map[name]*track) {
	if c.answer == nil {
		return
	}
	for i := range c.answer.Facts {
		f := &c.answer.Facts[i]
		n := name{f.Topic, f.ID}
		l.Deliveries++
		if isEvents(n.topic) {
			l.told.saw(l, c, f)
			continue
		}
		l.add(n, touched, op{call: c, kind: opDeliver, ask: f, got: f, must: true, earlier: l.Earlier})
	}
}

// unseen hands a claim whose answer nobody saw to all IDs that it may have leased. A store whose
// claims are served by polls (Earlier) polls again within the same claim when an answer is lost. If
// the claim was longer than a lease, such a poll may have leased the message a second time.
func (l *Ledger) unseen(c *call, touched map[name]*track) {
	if c.answer != nil {
		return
	}
	for _, t := range l.tracksOf(c.Topics, touched) {
		if t.mayBeDue(c.end) {
			o := l.add(t.name, touched, op{call: c, kind: opUnseen})
			if l.Earlier > 0 && c.end-c.At >= cmp.Or(o.request().Delay, l.leasesOf(t.topic).lo) {
				l.add(t.name, touched, op{call: c, kind: opUnseen})
			}
		}
	}
}

// name gives the messages of an answer whose IDs nobody was told the IDs that the answer has for
// them. check does this for all answers before it hands out their items. Otherwise a claim that
// began early and returned a later message with such an ID would make a track for the ID, before
// the answer with the first message was looked at.
func (l *Ledger) name(c *call) {
	if c.answer == nil || c.Call != CallClaim && c.Call != CallGet && c.Call != CallLook {
		return
	}
	for i := range c.answer.Facts {
		if f := &c.answer.Facts[i]; f.Life != "" {
			l.identify(name{f.Topic, f.ID}, f)
		}
	}
}

// identify gives a message the ID that the store made, which its push never told.
func (l *Ledger) identify(n name, f *Fact) {
	t := l.unnamed[f.Life]
	if t == nil || t.topic != n.topic || l.ids[n] != nil {
		return
	}
	delete(l.unnamed, f.Life)
	delete(l.ids, t.name)
	t.was, t.name = t.name, n
	l.ids[n] = t
}

func (l *Ledger) read(c *call, touched map[name]*track) {
	if c.answer == nil {
		return
	}
	for i := range c.answer.Facts {
		f := &c.answer.Facts[i]
		n := name{f.Topic, f.ID}
		if isEvents(n.topic) {
			l.told.saw(l, c, f)
			continue
		}
		l.add(n, touched, op{call: c, kind: opGet, ask: f, got: f, must: true})
	}
}

// missing hands a CallLook to the IDs that it has not found.
func (l *Ledger) missing(c *call, touched map[name]*track) {
	if c.answer == nil {
		return
	}
	found := make(map[name]bool, len(c.answer.Facts))
	for i := range c.answer.Facts {
		found[name{c.answer.Facts[i].Topic, c.answer.Facts[i].ID}] = true
	}
	for _, t := range l.tracksOf(nil, touched) {
		if !found[t.name] {
			f := &Fact{Topic: t.topic, ID: t.id, Status: "not_found"}
			l.add(t.name, touched, op{call: c, kind: opGet, ask: f, got: f, must: true})
		}
	}
}

func (l *Ledger) wholeTopic(c *call, touched map[name]*track) []*countOp {
	kind := map[string]opKind{CallPurge: opPurge, CallDelete: opDelete, CallStats: opCount}[c.Call]
	f := &c.Facts[0]
	if kind == opCount && c.answer == nil {
		return nil
	}
	count := &countOp{call: c, kind: kind}
	topics := []string{f.Topic}
	if kind == opDelete {
		topics = l.family(f.Topic)
	}
	for _, t := range l.tracksOf(topics, touched) {
		o := l.add(t.name, touched, op{call: c, kind: kind, ask: f, must: c.answer != nil})
		count.ops = append(count.ops, o)
		count.tracks = append(count.tracks, t)
	}
	return []*countOp{count}
}

// tracksOf returns the IDs of the topics, or of all topics if none is named, that were touched or
// of which there may be something.
func (l *Ledger) tracksOf(topics []string, touched map[name]*track) (out []*track) {
	some := func(h *topicHistory) {
		for _, t := range h.ids {
			if touched[t.name] != nil || t.mayBeThere() {
				out = append(out, t)
			}
		}
	}
	for _, topic := range topics {
		some(l.history(topic))
	}
	if len(topics) == 0 {
		for _, topic := range l.topicNames() {
			some(l.history(topic))
		}
	}
	return out
}

// mayBeThere tells whether there may be a message, a remembered ID or a finished record. It is also
// true of an ID that was given up, of which nothing is known.
func (t *track) mayBeThere() bool {
	return t.givenUp || slices.ContainsFunc(t.states, func(s *state) bool { return s.phase != phaseAbsent || s.told != "" })
}

// mayBeDue tells whether a claim may lease the message until a time. An op that was not checked yet
// may have pushed one that is due.
func (t *track) mayBeDue(at int64) bool {
	return len(t.ops) > 0 || slices.ContainsFunc(t.states, func(s *state) bool { return s.phase == phaseLive && s.attention().lo <= at })
}

// The search.

// explanation is one explanation of the lines so far: a state, and which of the open ops took
// effect.
type explanation struct {
	state *state
	done  uint64
}

type search struct {
	l       *Ledger
	t       *track
	intern  *intern
	configs []explanation
	open    [64]*op
	over    map[*call]bool  // failovers that are over
	reasons map[string]bool // why the op that has to be explained is impossible
	before  []explanation   // those after the last answer that could be explained
	left    int             // how many more explanations the search may follow
}

// The ledger gives an ID up when it has too many explanations, or more than 64 open ops at once.
// One line may have maxExplanations, and all lines together firstExplanations and
// explanationsPerLine more for each line.
const maxExplanations, firstExplanations, explanationsPerLine = 1000, 4000, 20

type edge struct {
	line int64
	end  bool
	op   *op
}

// explain checks the ops of an ID.
func (l *Ledger) explain(t *track) {
	ops := t.ops
	t.ops = nil
	if t.givenUp {
		return
	}
	slices.SortStableFunc(ops, func(a, b *op) int { return cmp.Compare(a.from, b.from) })
	likenUnseen(ops)
	var edges []edge
	for _, o := range ops {
		edges = append(edges, edge{o.from, false, o}, edge{o.to, true, o})
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Compare(a.line, b.line) })
	s := &search{l: l, t: t, intern: l.newIntern(), over: make(map[*call]bool), left: firstExplanations + explanationsPerLine*len(edges)}
	for _, st := range t.states {
		s.configs = append(s.configs, explanation{state: s.intern.of(*st)})
	}
	for _, e := range edges {
		if !e.end {
			e.op.since = max(e.op.since, s.since(t.seen))
			s.begin(e.op)
		} else if !s.finish(e.op) {
			s.report(e.op, ops)
			t.givenUp = true
			break
		}
		if t.givenUp {
			break
		}
		if e.end && e.op.must && e.op.kind != opCut {
			t.seen = max(t.seen, e.op.from)
		}
	}
	t.states = t.states[:0]
	for _, c := range s.configs {
		if st := s.intern.of(c.state.settled(l.now)); !slices.Contains(t.states, st) {
			t.states = append(t.states, st)
		}
	}
}

// likenUnseen makes claims whose answer nobody saw and that ended at the same time alike, except
// for their begin: each may give a lease of any length that one of them may give. Then it matters
// only how many of them took effect, not which ones. A kill leaves many such claims.
func likenUnseen(ops []*op) {
	byEnd := make(map[int64]span)
	for _, o := range ops {
		if o.kind != opUnseen {
			continue
		}
		for _, x := range o.sets() {
			length := cmp.Or(o.request().Delay, ms(x.Lease))
			all, ok := byEnd[o.end]
			if !ok {
				all = exactly(length)
			}
			byEnd[o.end] = span{min(all.lo, length), max(all.hi, length)}
		}
	}
	for _, o := range ops {
		o.lengths = byEnd[o.end]
	}
}

// stoodFor tells whether another open op that has not taken effect allows all that q allows, so
// that q need not be tried: see likenUnseen.
func (s *search) stoodFor(c explanation, q *op) bool {
	for i, p := range s.open {
		if p != nil && p != q && p.kind == opUnseen && c.done>>i&1 == 0 && p.end == q.end && p.lost == q.lost && p.from < q.from && p.At <= q.At {
			return true
		}
	}
	return false
}

// since returns a line, at most the given one, before which no open op began.
func (s *search) since(line int64) int64 {
	for _, o := range s.open {
		if o != nil {
			line = min(line, o.from)
		}
	}
	return line
}

func (s *search) begin(o *op) {
	i := slices.Index(s.open[:], nil)
	if i < 0 {
		s.giveUp()
		return
	}
	s.open[i] = o
}

func (s *search) giveUp() {
	s.t.givenUp = true
	s.l.GivenUp++
}

func (s *search) slot(o *op) int { return slices.Index(s.open[:], o) }

// finish lets an op take effect at the latest now, and any other open one before it. It reports
// whether an explanation is left, or the ID was given up.
func (s *search) finish(o *op) bool {
	slot := s.slot(o)
	bit := uint64(1) << slot
	s.reasons = make(map[string]bool)
	found := make(map[explanation]bool)
	var out []explanation
	work := slices.Clone(s.configs)
	keep := func(c explanation) {
		if c.done&bit == 0 {
			work = append(work, c)
		}
	}
	s.before, s.configs = s.configs, nil
	for _, c := range work {
		found[c] = true
	}
	for len(work) > 0 {
		c := work[len(work)-1]
		work = work[:len(work)-1]
		if c.done&bit != 0 || !o.must {
			out = append(out, c)
		}
		if c.done&bit != 0 {
			continue
		}
		for i, q := range s.open {
			if q == nil || c.done>>i&1 != 0 || q.before != nil && s.waits(c, q.before) || q.kind == opUnseen && s.stoodFor(c, q) || s.untimely(c, q) {
				continue
			}
			next, reason := q.apply(s.intern, c.state)
			if q == o && len(next) == 0 {
				s.reasons[reason] = true
			}
			for _, st := range next {
				n := explanation{st, c.done | uint64(1)<<i}
				if found[n] {
					continue
				}
				found[n] = true
				if n.done&bit != 0 {
					out = append(out, n)
				} else {
					keep(n)
				}
			}
		}
		if len(found) > maxExplanations || len(found) > s.left {
			s.giveUp()
			return true
		}
	}
	s.left -= len(found)
	s.open[slot] = nil
	if o.kind == opCut {
		s.over[o.call] = true
	}
	seen := make(map[explanation]bool, len(out))
	for _, c := range out {
		if o.group != 0 {
			if c.state = s.closeLink(o, c.state, c.done&bit != 0); c.state == nil {
				continue
			}
		}
		c.done &^= bit
		if !seen[c] {
			seen[c] = true
			s.configs = append(s.configs, c)
		}
	}
	return len(s.configs) > 0
}

// waits tells whether an op has to wait for before, which is open and has not taken effect.
func (s *search) waits(c explanation, before *op) bool {
	i := s.slot(before)
	return i >= 0 && c.done>>i&1 == 0
}

// report says what an answer contradicts: the reason for each state in which the ID could be.
func (s *search) report(o *op, ops []*op) {
	reasons := make([]string, 0, len(s.reasons))
	for r := range s.reasons {
		reasons = append(reasons, r)
	}
	slices.Sort(reasons)
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\t%s: %v", strings.Join(reasons, "; or "), s.t.name, o)
	fmt.Fprintf(&b, "\n\tit was one of:")
	shown := make(map[*state]bool)
	for _, c := range s.before {
		if !shown[c.state] && len(shown) < 4 {
			shown[c.state] = true
			fmt.Fprintf(&b, "\n\t\t%v", c.state)
		}
	}
	fmt.Fprintf(&b, "\n\tafter:")
	at := slices.Index(ops, o)
	for _, p := range told(ops[:at], 12) {
		fmt.Fprintf(&b, "\n\t\t%v", p)
	}
	for _, p := range ops[at+1:] {
		if p.from < o.to {
			fmt.Fprintf(&b, "\n\t\t(at the same time) %v", p)
		}
	}
	s.l.broken(o.to, "%s", b.String())
}

func (o *op) String() string {
	when := fmt.Sprintf("lines %d-%d, at %d-%d: ", o.from, o.to, o.At, o.end)
	what := o.Call
	if o.kind == opUnseen {
		return when + "a claim whose answer nobody saw"
	}
	if o.kind == opCut {
		return when + "a failover"
	}
	f := *o.ask
	f.Topic, f.ID = "", ""
	text := when + what + " " + f.String()
	switch {
	case !o.must:
		text += " -> no answer"
		if o.lost != nil {
			text = when + "lost with the primary: " + what + " " + f.String()
		}
	case o.got != nil && o.got != o.ask:
		g := *o.got
		g.Topic, g.ID = "", ""
		text += " -> " + g.String()
	}
	return text
}

// told returns the last n ops that say something of the ID. Counts do not, and neither do purges
// and deletions that have not met it.
func told(ops []*op, n int) []*op {
	out := slices.DeleteFunc(slices.Clone(ops), func(o *op) bool {
		return o.kind == opCount || (o.kind == opPurge || o.kind == opDelete) && o.met&^1 == 0
	})
	return out[max(0, len(out)-n):]
}
