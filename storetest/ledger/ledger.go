// Package ledger judges what callers of a store saw while a test took the store through faults, and
// has what such a test needs: a recorder of all calls, a journal that survives a kill, a workload,
// and child processes that are killed.
package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/promise"
)

// The ledger judges tests that take a store through faults. It knows nothing of any store. It
// reads the lines that callers wrote down, one before each call and one after it, and is told of
// crashes (End, PowerCut, ServerKilled). From these it says which promise was broken. Audit and
// ReadRecords alone ask the store itself, too.
//
// For each message ID the ledger keeps the set of states in which the ID may be. A call maps a
// state to the states that may follow, by the contract of the root package. An answer keeps the
// states from which that answer may come. A call without an answer, or with one that is not
// definite, keeps both what was and what would be. A set that becomes empty is a broken promise:
// nothing that the contract allows explains what the callers saw.
//
// A list of forbidden patterns would need special cases; one rule for each transition needs none.
// The rule holds for a message's several lives, overlapping calls, repeated IDs in one call and
// reads. It stays tractable because IDs are independent of one another, so each is searched alone,
// and because few calls for one ID overlap. Overlapping calls are tried in each order, but only
// when an answer has to be explained (Lowe, "Testing for linearizability": just-in-time
// linearization).
//
// Times are spans: the clock of the caller before and behind a call bounds what the store's clock
// showed when the call took effect. An answer that tells a time narrows the span to it.
//
// What concerns more than one ID has rules of its own: settings (topic.go), counts (counts.go),
// what handlers saw (handlers.go), follow-ups (followups.go), events (told.go), bounds (bounds.go)
// and failovers (failover.go). Occurrences (occurrences.go) judges recurring schedules without a
// Ledger.

// A Line is one line of the history of a store.
type Line struct {
	// Call is the kind of line: one of the constants that begin with Call or Line.
	Call string `json:"c"`
	// N is the number of the call, the same before and behind it. Its upper 32 bits are the number
	// of the process that made it.
	N int64 `json:"n"`
	// Answer is false before the call and true behind it.
	Answer bool `json:"b,omitempty"`
	// At is the clock, in ms, just before the call or just behind it.
	At int64 `json:"t"`
	// Code and Err are the error of a call that failed as a whole, Definite is what Definite said
	// of it.
	Code     string `json:"e,omitempty"`
	Err      string `json:"x,omitempty"`
	Definite bool   `json:"f,omitempty"`
	// Topics are those of a claim or a failover; none stands for all.
	Topics []string `json:"o,omitempty"`
	// Settings are those asked for, or answered.
	Settings *punctual.Settings `json:"g,omitempty"`
	// Facts are what the line says of messages, or of a topic. The one fact before a claim is about
	// neither: its Delay is the lease asked for.
	Facts []Fact `json:"i,omitempty"`
}

// The kinds of lines.
const (
	CallPush      = "push"
	CallClaim     = "claim"
	CallSettle    = "settle"
	CallAmend     = "amend"
	CallGet       = "get"      // Get of one message, or what a List has found
	CallFinished  = "finished" // the finished record of an ID
	CallLook      = "look"     // all messages of all topics, read while nothing else was done
	CallStats     = "stats"    // one fact: the counts of a topic
	CallSettings  = "settings"
	CallConfigure = "configure"
	CallPurge     = "purge"  // one fact: topic, state and bounds; the answer has the count
	CallDelete    = "delete" // one fact: the topic; the answer has the count

	// LineStart and LineStop say that a handler began and ended; they are no calls.
	LineStart = "start"
	LineStop  = "stop"
	// LineGaveBack has what the claim N leased and is about to give back; see GaveBack.
	LineGaveBack = "gave back"
	// LineFailover is written just before a primary is killed and, as its answer, once it is gone
	// and before its replica takes over. What the replica did not have is lost. Topics are those of
	// the primary; none stands for all.
	LineFailover = "failover"
	// LineEnd says that the process of N's upper half is gone: its calls without a definite answer
	// have taken effect by now or never will.
	LineEnd = "end"
)

// ProcessOf returns the number of the process that made the call n.
func ProcessOf(n int64) int64 { return n >> 32 }

// FirstCall returns the number before that of the first call of a process.
func FirstCall(process int64) int64 { return process << 32 }

// A Fact is what a line says of one message or one topic. Times and lengths are in ms.
type Fact struct {
	Topic string `json:"t,omitempty"`
	ID    string `json:"i,omitempty"`
	// Life is the name of the message in its body or headers, which no other push has. Size is that
	// of the body, Headers a checksum of the headers, Broken what is wrong with the message.
	Life    string `json:"l,omitempty"`
	Size    int    `json:"z,omitempty"`
	Headers uint32 `json:"h,omitempty"`
	Broken  string `json:"b,omitempty"`
	// Due is the time asked for or told. Delay is used where Due is 0; before a claim it is the
	// lease asked for, of a retry -1 stands for UseBackoff.
	Due   int64 `json:"d,omitempty"`
	Delay int64 `json:"y,omitempty"`
	// MaxAttempts, ExpireAfter and Drop are those of a push. A delivery or a read tells
	// MaxAttempts, Drop and Expires.
	MaxAttempts int   `json:"m,omitempty"`
	ExpireAfter int64 `json:"x,omitempty"`
	Expires     int64 `json:"p,omitempty"`
	Drop        bool  `json:"o,omitempty"`
	Created     int64 `json:"c,omitempty"`
	// IfExists is that of a push, Change that of an amendment, Verb that of a settlement.
	IfExists punctual.IfExists `json:"u,omitempty"`
	Change   punctual.Change   `json:"g,omitempty"`
	Verb     punctual.Verb     `json:"v,omitempty"`
	// Token, Attempt, At and Until are those of a delivery; Until is the end of the lease. A
	// settlement has Token alone, a read Attempt and Until.
	Token   int64 `json:"k,omitempty"`
	Attempt int   `json:"n,omitempty"`
	At      int64 `json:"a,omitempty"`
	Until   int64 `json:"e,omitempty"`
	// Failure is the text that a settlement adds to the history, Failures the history that an
	// answer told, each shortened (digest).
	Failure  string `json:"q,omitempty"`
	Failures string `json:"f,omitempty"`
	// State is the one that a read told, the one that a push met, or the one to list or to purge.
	State  punctual.State       `json:"s,omitempty"`
	Reason punctual.DeathReason `json:"r,omitempty"`
	Died   int64                `json:"w,omitempty"`
	Cancel bool                 `json:"j,omitempty"` // CancelRequested
	// From and To bound a purge.
	From int64 `json:"1,omitempty"`
	To   int64 `json:"2,omitempty"`
	// Status is the outcome in a word: "ok" of a settlement; "stored", "replaced" or "kept" of a
	// push; what an amendment did; or the code of an error. Of a finished record it is how the
	// message ended, and "" when there is no record.
	Status string `json:"3,omitempty"`
	// Count is how many messages a purge or deletion removed. Counts are those of a topic by state,
	// from scheduled to dead.
	Count  int64   `json:"4,omitempty"`
	Counts []int64 `json:"5,omitempty"`
	// Then are the follow-ups of a settlement, IfDue is the condition of a push or an amendment.
	Then  []Fact `json:"6,omitempty"`
	IfDue int64  `json:"7,omitempty"`
	// Event is what a message of a companion events tells.
	Event *EventFact `json:"8,omitempty"`
}

// EventFact is one event of a companion T@events: what it says happened to the message with this
// topic and ID. At is in ms.
type EventFact struct {
	Event  string               `json:"e"`
	Topic  string               `json:"t"`
	ID     string               `json:"i"`
	Reason punctual.DeathReason `json:"r,omitempty"`
	At     int64                `json:"a"`
}

// Durable says what a store keeps when its medium loses all that was not synced.
type Durable uint8

// What a store keeps.
const (
	// KeepsAll: all that was acknowledged is kept by each kind of crash of the run.
	KeepsAll Durable = iota
	// KeepsTransactions: claims with what they end, extensions, and acks that leave nothing in the
	// store (see op.acked) may be taken back; all other changes that were acknowledged or read are
	// kept.
	KeepsTransactions
	// KeepsConfirmed: pushes, amendments, purges and deletions that were acknowledged are kept.
	// Claims, settlements and all that was not acknowledged may be taken back, also after a read or
	// a claim has met it.
	KeepsConfirmed
)

// Ledger checks the history of one store through all its crashes. Make one with New.
type Ledger struct {
	// Expected are the codes of errors that a call may fail with as a whole. Others are reported,
	// except not_found, which is judged as an answer.
	Expected []string
	// Grace is how long after the end of its lease, in ms, a handler may be seen to start. It
	// covers what passes between the worker's reading of the clock and the first line of the
	// handler. With 0 it is not checked when handlers start.
	Grace int64
	// Earlier is how long before a claim, in ms, a lease may begin that the claim returns. A store
	// may lease on behalf of a claim that has returned by the time of the answer, and hand the
	// answer to the next claim of the same process. With 0 a lease begins within its claim.
	Earlier int64
	// Anew is for stores that ask a server again when no answer to a claim has come for so long, in
	// ms. Both copies may lease messages. What the first copy has leased is given back when its
	// answer comes, so the ledger assumes that a claim which took so long may have leased and given
	// back any message, unless TellsGivenBack is set. With 0 nobody asks again.
	Anew int64
	// GivesBack is for stores where a claim whose context ended may have leased messages. The store
	// gives them back, and where it never learns what the claim had leased, the leases run out.
	GivesBack bool
	// TellsGivenBack is for stores whose claims say by GaveBack what they leased and give back. For
	// any other store the ledger assumes that a claim which took longer than its leases last may
	// have leased and given back any message.
	TellsGivenBack bool
	// Lossy is for stores behind a server, whose answers may be lost. A claim that failed may then
	// have leased messages, which are given back after its answer or whose leases run out.
	Lossy bool

	durable    Durable
	line       int64
	now        int64 // the latest clock of any line
	calls      map[int64]*call
	gaveBack   map[int64][]*call // by claim under way: the releases of what it leased, with the deliveries as their answers
	indefinite []*call           // answered, and not definite: they may take effect until their process ends
	failed     map[int64]bool    // processes that were told that their store has failed
	kills      []span            // clocks between which a server was killed
	failovers  []*call           // since the last check
	failing    *call             // a failover whose end was not told yet, or nil
	done       []*call           // to be checked
	ids        map[name]*track
	topics     map[string]*topicHistory
	leases     map[string]span   // the shortest and the longest lease that a topic may ever have had by its settings, in ms
	unnamed    map[string]*track // messages whose ID nobody was told, by life
	handlers   handlerHistory
	links      links
	told       eventHistory
	bounds     map[string]*boundTopic
	problems   []string

	// Calls acknowledged, deliveries seen, crashes, calls under way at kills and failovers, and IDs
	// given up because there were too many explanations or overlapping calls.
	Acknowledged, Deliveries, Crashes, UnderWay, GivenUp int
}

// name is a message's topic and ID.
type name struct{ topic, id string }

func (n name) String() string { return n.topic + "/" + n.id }

// call is a call under way or to be checked.
type call struct {
	*Line
	from, to int64                  // lines
	end      int64                  // clock
	answer   *Line                  // nil when nobody saw it, or when it says nothing definite
	lives    map[*Fact]*incarnation // the messages of a push, and the follow-ups of settlements
	// groups are the numbers of those settlements of the call whose follow-ups took effect with
	// them or not at all; see links.
	groups map[*Fact]int64
	// lost is the failover that took away what this copy of a call did; another copy is the call as
	// it was answered.
	lost *call
}

// New returns a ledger of a store that keeps what d says.
func New(d Durable) *Ledger {
	return &Ledger{
		durable: d, calls: make(map[int64]*call), gaveBack: make(map[int64][]*call), failed: make(map[int64]bool), ids: make(map[name]*track), topics: make(map[string]*topicHistory),
		leases: make(map[string]span), unnamed: make(map[string]*track), handlers: newHandlerHistory(),
		links: newLinks(), told: newEventHistory(), bounds: make(map[string]*boundTopic),
	}
}

// maxProblems is how many broken promises a ledger reports.
const maxProblems = 20

func (l *Ledger) broken(line int64, format string, args ...any) {
	if len(l.problems) < maxProblems {
		l.problems = append(l.problems, fmt.Sprintf("line %d: ", line)+fmt.Sprintf(format, args...))
	}
}

// Problems returns what is wrong so far, each beginning with the line that shows it and the
// promise.
func (l *Ledger) Problems() []string {
	l.check(false)
	return l.problems
}

// String sums the history up.
func (l *Ledger) String() string {
	return fmt.Sprintf("%d crashes with %d calls under way, %d calls acknowledged, %d message IDs, %d deliveries, %d handlers, %d IDs given up",
		l.Crashes, l.UnderWay, l.Acknowledged, len(l.ids), l.Deliveries, l.handlers.starts, l.GivenUp)
}

// checkAfter is how many calls the ledger gathers before it checks them at a quiet moment.
const checkAfter = 5000

// Add takes the next line.
func (l *Ledger) Add(e Line) {
	l.line++
	l.now = max(l.now, e.At)
	switch {
	case e.Call == LineStart || e.Call == LineStop:
		l.handlers.add(l, &e)
	case e.Call == LineGaveBack:
		l.gaveBack[e.N] = append(l.gaveBack[e.N], &call{Line: releases(&e), from: l.line, answer: &e})
	case e.Call == LineFailover:
		l.failedOver(&e)
	case e.Call == LineEnd:
		l.ended(ProcessOf(e.N), e.At)
	case !e.Answer:
		l.calls[e.N] = &call{Line: &e, from: l.line}
		l.noteLease(&e)
		l.noteBounds(&e)
	default:
		l.answered(&e)
	}
}

func (l *Ledger) answered(e *Line) {
	c := l.calls[e.N]
	if c == nil {
		l.broken(l.line, "%s: call %d was answered without having been made", promise.P13, e.N)
		return
	}
	delete(l.calls, e.N)
	c.to, c.end = l.line, e.At
	if e.Code == storekit.ErrorCode(punctual.ErrStoreFailed) {
		l.failed[ProcessOf(e.N)] = true
	}
	l.done = append(l.done, l.lostInKills(c)...)
	l.indefinite = append(l.indefinite, l.toldGivenBack(c)...)
	switch {
	case e.Code == "":
		l.Acknowledged++
		c.answer = e
		l.done = append(l.done, c)
		l.handlers.extended(l, c)
		l.noteLeases(c)
		if other := c.open(); len(other.Facts) > 0 {
			l.indefinite = append(l.indefinite, other)
		}
		l.indefinite = append(l.indefinite, l.givenBack(c, false)...)
	case e.Code == "not_found":
		c.answer = e
		l.done = append(l.done, c)
	case !slices.Contains(l.Expected, e.Code):
		l.broken(l.line, "%s: %s failed with %s: %s", promise.P13, e.Call, e.Code, e.Err)
		fallthrough
	default:
		ctxEnded := e.Code == storekit.ErrorCode(context.Canceled) || e.Code == storekit.ErrorCode(context.DeadlineExceeded)
		if given := l.givenBack(c, false); len(given) > 0 {
			l.indefinite = append(l.indefinite, given...)
		} else if !e.Definite || c.Call == CallClaim && (l.Lossy || l.GivesBack && ctxEnded) {
			l.indefinite = append(l.indefinite, c)
		}
	}
	if len(l.calls)+len(l.indefinite) == 0 && len(l.done) >= checkAfter {
		l.check(false)
	}
}

// openStatus is that of an item that may or may not have been done.
const openStatus = "indeterminate"

// open returns a call that has those items of c, which was answered, of which nobody knows whether
// they were done. The store may carry them out later than the answer.
func (c *call) open() *call {
	other := *c
	line := *c.Line
	other.Line, other.answer = &line, nil
	line.Facts = nil
	for i, f := range c.answer.Facts {
		if f.Status == openStatus && c.Call != CallClaim && i < len(c.Facts) {
			ask := c.Facts[i]
			ask.ID = cmp.Or(ask.ID, f.ID)
			line.Facts = append(line.Facts, ask)
		}
	}
	return &other
}

// mostGivenBack is how often the ledger assumes at most that one claim gave back what it had
// leased. For each time more the process has to stand still once more, and the ledger has more
// states to follow.
const mostGivenBack = 4

// givenBack returns copies of a claim that took longer than its leases last, or than Anew. There is
// one for each time that the claim may have leased messages and given them back, because the leases
// had run out meanwhile or because a later copy was answered first, but no more than mostGivenBack.
// The claim may have done so after its answer. The ledger treats each copy as a claim whose answer
// nobody saw. With TellsGivenBack there are copies only of a claim that was killed, because that
// one may not have come to tell what it gives back.
func (l *Ledger) givenBack(c *call, killed bool) (copies []*call) {
	if c.Call != CallClaim || l.TellsGivenBack != killed {
		return nil
	}
	lease := c.Facts[0].Delay
	if lease == 0 {
		lease = ms(punctual.DefaultSettings().Lease)
		for topic, lengths := range l.leases {
			if len(c.Topics) == 0 || slices.Contains(c.Topics, topic) {
				lease = min(lease, lengths.lo)
			}
		}
	}
	if l.Anew > 0 {
		lease = min(lease, l.Anew)
	}
	for range min((c.end-c.At)/max(lease, 1), mostGivenBack) {
		other := *c
		copies = append(copies, &other)
	}
	return copies
}

// releases returns the settlement by which a claim gives messages back.
func releases(e *Line) *Line {
	out := &Line{Call: CallSettle, N: e.N, At: e.At}
	for _, f := range e.Facts {
		out.Facts = append(out.Facts, Fact{Topic: f.Topic, ID: f.ID, Token: f.Token, Verb: punctual.SettleRelease})
	}
	return out
}

// toldGivenBack adds a copy of a claim that delivers what the claim said it had leased (GaveBack).
// It returns the releases, of which nobody was told whether they were done: if they were not, the
// leases run out. Where the claim did not say what it had leased, it returns a copy of the claim
// whose answer nobody saw instead.
func (l *Ledger) toldGivenBack(c *call) []*call {
	given := l.gaveBack[c.N]
	delete(l.gaveBack, c.N)
	for _, g := range given {
		if len(g.Facts) == 0 { // it may have leased anything
			*g = *c
			g.answer = nil
			continue
		}
		leased := *c
		leased.answer = g.answer
		l.done = append(l.done, &leased)
		g.to, g.end, g.answer = c.to, c.end, nil
	}
	return given
}

// noteLease notes the lease that a Configure asks for, when the call begins. topicHistory gets it
// only when the calls are checked, which is too late for givenBack and for handlerHistory.extended.
func (l *Ledger) noteLease(e *Line) {
	if e.Call != CallConfigure || e.Settings == nil {
		return
	}
	topic, lease := e.Facts[0].Topic, ms(e.Settings.Lease)
	lengths := l.leasesOf(topic)
	l.leases[topic] = span{min(lengths.lo, lease), max(lengths.hi, lease)}
}

// leasesOf returns the shortest and the longest lease that a topic may have had by its settings, in
// ms.
func (l *Ledger) leasesOf(topic string) span {
	if lengths, ok := l.leases[topic]; ok {
		return lengths
	}
	return exactly(ms(punctual.DefaultSettings().Lease))
}

// ServerKilled notes that a server between the callers and the store was killed between two times.
// The next server does not know its answers. So a claim under way is made anew, and the leases of
// the first one run out. An extension is made anew, too, and then takes effect twice. Call
// ServerKilled before Add takes the lines of answers after the kill.
func (l *Ledger) ServerKilled(from, to int64) { l.kills = append(l.kills, span{from, to}) }

// lostInKills returns the first copies of a claim or of extensions whose answers a killed server
// took with it. c is the later copy.
func (l *Ledger) lostInKills(c *call) (lost []*call) {
	for _, kill := range l.kills {
		if c.At > kill.hi || c.end < kill.lo {
			continue
		}
		other, line := *c, *c.Line
		other.Line, other.end, other.answer = &line, max(kill.hi, c.At), nil
		switch c.Call {
		case CallClaim:
			lost = append(lost, &other)
		case CallSettle:
			line.Facts = slices.DeleteFunc(slices.Clone(c.Facts), func(f Fact) bool { return f.Verb != extend })
			lost = append(lost, &other)
		}
	}
	return lost
}

// ended closes the calls of a process that is gone. Each of them may have taken effect or not.
func (l *Ledger) ended(process, at int64) {
	var gone []*call
	for _, n := range slices.Sorted(maps.Keys(l.calls)) {
		if ProcessOf(n) == process {
			gone = append(gone, l.calls[n])
			delete(l.calls, n)
		}
	}
	l.indefinite = slices.DeleteFunc(l.indefinite, func(c *call) bool {
		if ProcessOf(c.N) != process {
			return false
		}
		gone = append(gone, c)
		return true
	})
	gone = append(gone, l.keptByFailure(process, gone)...)
	delete(l.failed, process)
	for _, c := range gone {
		open := c.to == 0
		c.to, c.end, c.answer = l.line, max(at, c.At), nil
		l.done = append(l.done, c)
		l.done = append(l.done, l.toldGivenBack(c)...)
		if open {
			l.done = append(l.done, l.lostInKills(c)...)
			l.done = append(l.done, l.givenBack(c, true)...)
		}
	}
	l.handlers.ended(process)
	if len(l.calls)+len(l.indefinite) == 0 && len(l.done) >= checkAfter {
		l.check(false)
	}
}

// keptByFailure returns, for a process whose store has failed, copies of claims that may have
// leased more than they returned. While such a claim was under way, a transaction detached the
// message from it, and then could not be made. The store had written the lease down, and could not
// write that the lease was not given. gone are the calls whose outcome is open.
func (l *Ledger) keptByFailure(process int64, gone []*call) (leased []*call) {
	if !l.failed[process] {
		return nil
	}
	for _, c := range l.done {
		if c.Call != CallClaim || ProcessOf(c.N) != process {
			continue
		}
		if slices.ContainsFunc(gone, func(g *call) bool {
			return g.changes() && g.from < c.to && (g.to == 0 || c.from < g.to)
		}) {
			other := *c
			leased = append(leased, &other)
		}
	}
	return leased
}

// changes tells whether a call may detach messages that a claim is about to lease.
func (c *call) changes() bool {
	return c.Call == CallPush || c.Call == CallAmend || c.Call == CallPurge || c.Call == CallDelete
}

// End notes that processes are gone; none stands for all. All that was acknowledged to their
// callers is kept.
func (l *Ledger) End(at int64, processes ...int64) {
	l.Crashes++
	l.forgetRates(at)
	for n := range l.calls {
		if len(processes) == 0 || slices.Contains(processes, ProcessOf(n)) {
			l.UnderWay++
		}
	}
	l.end(at, processes)
	if len(processes) == 0 {
		l.kills = nil
	}
}

func (l *Ledger) end(at int64, processes []int64) {
	if len(processes) == 0 {
		seen := make(map[int64]bool)
		for n := range l.calls {
			seen[ProcessOf(n)] = true
		}
		for _, c := range l.indefinite {
			seen[ProcessOf(c.N)] = true
		}
		processes = slices.Sorted(maps.Keys(seen))
	}
	for _, p := range processes {
		l.Add(Line{Call: LineEnd, N: FirstCall(p), At: at})
	}
}

// PowerCut notes that all processes are gone, and with them what the store's medium had not synced.
func (l *Ledger) PowerCut(at int64) {
	l.Crashes++
	l.endLeases(at)
	l.end(at, nil)
	l.check(true)
}

// check explains all calls gathered, unless a call or a failover is under way or a call without a
// definite answer may still take effect. power tells that a power cut followed them.
func (l *Ledger) check(power bool) {
	if len(l.calls)+len(l.indefinite) > 0 || l.failing != nil {
		return
	}
	done := append(l.done, l.lostInFailovers()...)
	l.done = nil
	slices.SortFunc(done, func(a, b *call) int { return cmp.Compare(a.from, b.from) })
	touched := make(map[name]*track)
	var counts []*countOp
	for _, c := range done {
		l.noteSettings(c)
	}
	// The pushes come first, because a claim or a read that began before a push may return its
	// message under an ID that the push never told.
	for _, c := range done {
		l.pushed(c, touched)
	}
	for _, c := range done {
		l.name(c)
	}
	for _, c := range done {
		l.items(c, touched)
	}
	for _, c := range done {
		counts = append(counts, l.spread(c, touched)...)
	}
	for _, t := range l.ordered(touched) {
		l.explain(t)
	}
	l.agree()
	for _, c := range counts {
		c.check(l)
	}
	if power && l.durable != KeepsAll {
		for _, t := range l.ids {
			t.powerCut()
			if !t.listed { // the message was gone, and may be there again from here on
				t.seen = l.line
				l.list(t)
			}
		}
	}
	l.checkBounds()
	for _, h := range l.topics {
		h.forget(l.line)
	}
	l.failovers = nil
}

func (l *Ledger) ordered(tracks map[name]*track) []*track {
	out := slices.Collect(maps.Values(tracks))
	slices.SortFunc(out, func(a, b *track) int {
		return cmp.Or(strings.Compare(a.topic, b.topic), strings.Compare(a.id, b.id))
	})
	return out
}

// String returns the fact as JSON, for reports.
func (f Fact) String() string {
	text, err := json.Marshal(f)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
