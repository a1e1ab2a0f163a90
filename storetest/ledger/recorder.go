package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/compare"
)

// Recorder is a store that writes down for a Ledger each call that the Ledger has to know, one line
// before the call and one after it. Its exported methods are safe for concurrent use.
type Recorder struct {
	store punctual.Store
	in    punctual.Inspector // nil when the store has none
	emit  func(Line)
	clock func() time.Time
	calls atomic.Int64
	// hold, if not nil, holds a claim's answer back on its way to the caller.
	hold func(ctx context.Context)
}

var (
	_ punctual.Store     = (*Recorder)(nil)
	_ punctual.Inspector = (*Recorder)(nil)
)

// NewRecorder returns a recorder of the calls of one process, whose number no other has. emit takes
// a line and is called concurrently; when it returns, the line must survive the end of the process.
// clock is that of the store's machine; nil is time.Now.
func NewRecorder(s punctual.Store, process int64, clock func() time.Time, emit func(Line)) *Recorder {
	if clock == nil {
		clock = time.Now
	}
	r := &Recorder{emit: emit, clock: clock}
	r.below(s)
	r.calls.Store(FirstCall(process))
	return r
}

// below makes s the store to which the Recorder hands the calls.
func (r *Recorder) below(s punctual.Store) {
	r.store = s
	r.in, _ = punctual.As[punctual.Inspector](s)
}

// Unwrap returns the store, so that punctual.As finds there the optional interfaces that a Recorder
// does not have itself. Their methods change nothing that a Ledger would have to know.
func (r *Recorder) Unwrap() punctual.Store { return r.store }

// do makes one call and writes it down.
func (r *Recorder) do(before Line, call func(answer *Line) error) {
	before.N = r.calls.Add(1)
	before.At = r.now()
	r.emit(before)
	answer := Line{Call: before.Call, N: before.N, Answer: true}
	if err := call(&answer); err != nil {
		answer = Line{Call: before.Call, N: before.N, Answer: true, Code: storekit.ErrorCode(err), Err: err.Error(), Definite: punctual.Definite(err)}
	}
	answer.At = r.now()
	r.emit(answer)
}

func (r *Recorder) now() int64 { return r.clock().UnixMilli() }

// Push implements punctual.Store.
func (r *Recorder) Push(ctx context.Context, in []punctual.NewMessage) (out []punctual.PushResult, err error) {
	before := Line{Call: CallPush, Facts: make([]Fact, len(in))}
	for i := range in {
		before.Facts[i] = pushFact(&in[i])
	}
	r.do(before, func(answer *Line) error {
		out, err = r.store.Push(ctx, in)
		for _, p := range out {
			f := Fact{ID: p.ID, Due: due(p.Due), State: p.Existing, Status: word(p.Status.String(), p.Err)}
			if p.Status == punctual.PushDuplicate {
				f.Status = "kept"
			}
			answer.Facts = append(answer.Facts, f)
		}
		return err
	})
	return out, err
}

// pushFact returns what a push or a follow-up asks for.
func pushFact(m *punctual.NewMessage) Fact {
	f := Fact{
		Topic: m.Topic, ID: m.ID, Due: due(m.Due), Delay: storekit.CeilDuration(m.Delay), MaxAttempts: m.MaxAttempts,
		ExpireAfter: storekit.CeilDuration(m.ExpireAfter), Drop: m.DropExpired, IfExists: m.IfExists, IfDue: due(m.IfDue),
	}
	f.content(m.Body, m.Headers)
	return f
}

// due returns a time in ms, rounded up, or 0 for the zero Time.
func due(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return storekit.CeilMillis(t)
}

// word returns the outcome of one item in one word.
func word(status string, err error) string {
	if err != nil {
		return storekit.ErrorCode(err)
	}
	return status
}

// manyTopics is how many topics of a claim are written down by name at most. A claim of more is
// written down as one of all topics.
const manyTopics = 16

// Claim implements punctual.Store.
func (r *Recorder) Claim(ctx context.Context, c punctual.Claim) (out []punctual.Delivery, err error) {
	before := Line{Call: CallClaim, Facts: []Fact{{Delay: storekit.CeilDuration(c.Lease)}}}
	if len(c.Topics) <= manyTopics {
		before.Topics = slices.Clone(c.Topics)
	}
	r.do(before, func(answer *Line) error {
		out, err = r.store.Claim(context.WithValue(ctx, claimKey{}, claimUnderWay{r, answer.N}), c)
		for i := range out {
			f := deliveryFact(&out[i])
			if !slices.Contains(c.Topics, f.Topic) {
				f.Broken = "a topic that was not asked for"
			}
			answer.Facts = append(answer.Facts, f)
		}
		return err
	})
	if r.hold != nil && len(out) > 0 {
		r.hold(ctx)
	}
	return out, err
}

// claimKey is the key of the claimUnderWay in the context of a claim that a Recorder makes.
type claimKey struct{}

type claimUnderWay struct {
	r *Recorder
	n int64
}

// GaveBack writes down what a claim had leased and is about to give back, because the leases ran
// out before its answer was there. The claim calls it with its own context. An empty ds says that
// the claim may have leased messages and does not know which. A ledger of a store all of whose
// claims call GaveBack may have TellsGivenBack.
func GaveBack(ctx context.Context, ds []punctual.Delivery) {
	c, ok := ctx.Value(claimKey{}).(claimUnderWay)
	if !ok {
		return
	}
	e := Line{Call: LineGaveBack, N: c.n, At: c.r.now()}
	for i := range ds {
		e.Facts = append(e.Facts, deliveryFact(&ds[i]))
	}
	c.r.emit(e)
}

func deliveryFact(d *punctual.Delivery) Fact {
	f := messageFact(&d.Message)
	f.Token, f.At, f.Until, f.Failures = d.Token, due(d.Delivered), due(d.LeaseUntil), historyText(d.Failures)
	return f
}

func messageFact(m *punctual.Message) Fact {
	f := Fact{
		Topic: m.Topic, ID: m.ID, Due: due(m.Due), Attempt: m.Attempt, MaxAttempts: m.MaxAttempts, Created: due(m.Created),
		Expires: due(m.Expires), Drop: m.DropExpired,
	}
	if isEvents(m.Topic) {
		f.event(m.Body)
		return f
	}
	f.content(m.Body, m.Headers)
	if hasKeys(m.Topic) && m.Key != storekit.Stem(m.ID) {
		f.Broken = fmt.Sprintf("the key %q", m.Key)
	}
	return f
}

// event notes what the body of an event says.
func (f *Fact) event(body []byte) {
	e, err := event.Parse(body)
	if err != nil {
		f.Broken = err.Error()
		return
	}
	f.Event = &EventFact{Event: e.Event.String(), Topic: e.Topic, ID: e.ID, Reason: e.Reason, At: due(e.At)}
}

// historyText returns a history as the ledger keeps it.
func historyText(all []punctual.Failure) string {
	parts := make([]string, len(all))
	for i, x := range all {
		parts[i] = strconv.Itoa(x.Attempt) + " " + digest(x.Error)
	}
	return strings.Join(parts, "|")
}

// digest returns the text of an error, or a checksum of it if it is long or has the "|" that
// separates failures.
func digest(text string) string {
	if len(text) <= 24 && !strings.Contains(text, "|") {
		return text
	}
	return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(text)))
}

// Settle implements punctual.Store.
func (r *Recorder) Settle(ctx context.Context, in []punctual.Settlement) (out []error, err error) {
	before := Line{Call: CallSettle, Facts: make([]Fact, len(in))}
	for i, s := range in {
		before.Facts[i] = Fact{Topic: s.Topic, ID: s.ID, Token: s.Token, Verb: s.Verb, Due: due(s.Due), Delay: storekit.CeilDuration(s.Delay), Failure: digest(storekit.TrimError(s.Error))}
		for j := range s.Then {
			before.Facts[i].Then = append(before.Facts[i].Then, pushFact(&s.Then[j]))
		}
		if s.Delay == punctual.UseBackoff {
			before.Facts[i].Delay = -1
		}
	}
	r.do(before, func(answer *Line) error {
		out, err = r.store.Settle(ctx, in)
		for _, e := range out {
			answer.Facts = append(answer.Facts, Fact{Status: word("ok", e)})
		}
		return err
	})
	return out, err
}

// Amend implements punctual.Store.
func (r *Recorder) Amend(ctx context.Context, in []punctual.Amendment) (out []punctual.Amended, err error) {
	before := Line{Call: CallAmend, Facts: make([]Fact, len(in))}
	for i, a := range in {
		before.Facts[i] = Fact{Topic: a.Topic, ID: a.ID, Change: a.Change, Due: due(a.Due), Delay: storekit.CeilDuration(a.Delay), IfDue: due(a.IfDue)}
	}
	r.do(before, func(answer *Line) error {
		out, err = r.store.Amend(ctx, in)
		for _, o := range out {
			answer.Facts = append(answer.Facts, Fact{Due: due(o.Due), Status: word(doneWord(in[len(answer.Facts)].Change), o.Err)})
		}
		return err
	})
	return out, err
}

// doneWord returns the Status of a change that was made.
func doneWord(c punctual.Change) string {
	switch c {
	case punctual.ChangeCancel:
		return "cancelled"
	case punctual.ChangeReschedule:
		return "rescheduled"
	case punctual.ChangeDelete:
		return "deleted"
	}
	return "requeued"
}

// Now implements punctual.Store.
func (r *Recorder) Now(ctx context.Context) (time.Time, error) { return r.store.Now(ctx) }

// Close implements punctual.Store.
func (r *Recorder) Close() error { return r.store.Close() }

func infoFact(i *punctual.Info) Fact {
	f := messageFact(&i.Message)
	f.State, f.Until, f.Cancel, f.Died, f.Reason = i.State, due(i.LeaseUntil), i.CancelRequested, due(i.Died), i.Reason
	f.Failures = historyText(i.Failures)
	return f
}

// Get implements punctual.Inspector.
func (r *Recorder) Get(ctx context.Context, topic, id string) (out punctual.Info, err error) {
	r.do(Line{Call: CallGet, Facts: []Fact{{Topic: topic, ID: id}}}, func(answer *Line) error {
		out, err = r.in.Get(ctx, topic, id)
		switch {
		case err == nil:
			answer.Facts = []Fact{infoFact(&out)}
		case errors.Is(err, punctual.ErrNotFound):
			answer.Facts = []Fact{{Topic: topic, ID: id, Status: "not_found"}}
			return nil
		}
		return err
	})
	return out, err
}

// ReadRecord reads the finished record of an ID, and writes down how the message ended. The store
// has to keep finished records.
func (r *Recorder) ReadRecord(ctx context.Context, topic, id string) error {
	k, err := punctual.As[punctual.FinishedKeeper](r.store)
	if err != nil {
		return err
	}
	r.do(Line{Call: CallFinished, Facts: []Fact{{Topic: topic, ID: id}}}, func(answer *Line) error {
		var f punctual.Finished
		f, err = k.Finished(ctx, topic, id)
		if errors.Is(err, punctual.ErrNotFound) {
			err = nil
		}
		answer.Facts = []Fact{{Topic: topic, ID: id, Status: string(f.Outcome)}}
		return err
	})
	return err
}

// List implements punctual.Inspector.
func (r *Recorder) List(ctx context.Context, q punctual.ListQuery) (out punctual.Page, err error) {
	r.do(Line{Call: CallGet, Facts: []Fact{{Topic: q.Topic, State: q.State}}}, func(answer *Line) error {
		out, err = r.in.List(ctx, q)
		for i := range out.Messages {
			answer.Facts = append(answer.Facts, infoFact(&out.Messages[i]))
		}
		return err
	})
	return out, err
}

// Topics implements punctual.Inspector.
func (r *Recorder) Topics(ctx context.Context) ([]punctual.TopicStats, error) {
	return r.in.Topics(ctx)
}

// Stats implements punctual.Inspector.
func (r *Recorder) Stats(ctx context.Context, topic string) (out punctual.TopicStats, err error) {
	r.do(Line{Call: CallStats, Facts: []Fact{{Topic: topic}}}, func(answer *Line) error {
		out, err = r.in.Stats(ctx, topic)
		answer.Facts = []Fact{{Counts: []int64{out.Scheduled, out.Ready, out.Leased, out.Dead}}}
		answer.Settings = &out.Settings
		return err
	})
	return out, err
}

// Forecast implements punctual.Inspector.
func (r *Recorder) Forecast(ctx context.Context, q punctual.ForecastQuery) (punctual.Forecast, error) {
	return r.in.Forecast(ctx, q)
}

// Settings implements punctual.Inspector.
func (r *Recorder) Settings(ctx context.Context, topic string) (out punctual.Settings, err error) {
	r.do(Line{Call: CallSettings, Facts: []Fact{{Topic: topic}}}, func(answer *Line) error {
		out, err = r.in.Settings(ctx, topic)
		answer.Settings = &out
		return err
	})
	return out, err
}

// Configure implements punctual.Inspector. The patch must set every setting that may differ from
// its default afterwards, except Partitions, because the ledger takes the default settings with the
// patch applied for the new ones.
func (r *Recorder) Configure(ctx context.Context, topic string, p punctual.SettingsPatch) (out punctual.Settings, err error) {
	asked, err := storekit.ApplySettings(punctual.DefaultSettings(), p, storekit.AllAbilities())
	if err != nil {
		return out, err
	}
	r.do(Line{Call: CallConfigure, Facts: []Fact{{Topic: topic}}, Settings: &asked}, func(answer *Line) error {
		out, err = r.in.Configure(ctx, topic, p)
		answer.Settings = &out
		return err
	})
	return out, err
}

// Purge implements punctual.Inspector.
func (r *Recorder) Purge(ctx context.Context, q punctual.PurgeQuery) (n int64, err error) {
	f := Fact{Topic: q.Topic, State: q.State, From: due(q.From), To: due(q.To)}
	r.do(Line{Call: CallPurge, Facts: []Fact{f}}, func(answer *Line) error {
		n, err = r.in.Purge(ctx, q)
		answer.Facts = []Fact{{Count: n}}
		return err
	})
	return n, err
}

// DeleteTopic implements punctual.Inspector.
func (r *Recorder) DeleteTopic(ctx context.Context, topic string) (n int64, err error) {
	r.do(Line{Call: CallDelete, Facts: []Fact{{Topic: topic}}}, func(answer *Line) error {
		n, err = r.in.DeleteTopic(ctx, topic)
		answer.Facts = []Fact{{Count: n}}
		return err
	})
	return n, err
}

// Look reads all messages of all topics, and writes them down as one call. Nobody may change the
// store meanwhile; only time may pass.
func (r *Recorder) Look(ctx context.Context) error {
	var err error
	r.do(Line{Call: CallLook}, func(answer *Line) error {
		answer.Facts, err = r.all(ctx)
		return err
	})
	return err
}

// all returns the messages of all topics. It lists the scheduled and the leased ones before the
// ready ones, because time makes them ready: so a message that becomes ready meanwhile is seen at
// least once.
func (r *Recorder) all(ctx context.Context) (out []Fact, err error) {
	topics, err := r.in.Topics(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range topics {
		for _, state := range []punctual.State{punctual.StateScheduled, punctual.StateLeased, punctual.StateReady, punctual.StateDead} {
			found, err := compare.List(ctx, r.in, punctual.ListQuery{Topic: t.Topic, State: state, Limit: 1000})
			if err != nil {
				return nil, err
			}
			for i := range found {
				out = append(out, infoFact(&found[i]))
			}
		}
	}
	return out, nil
}

// Handler returns a handler that calls h, and writes down when it starts and stops.
func (r *Recorder) Handler(h punctual.Handler) punctual.Handler {
	return punctual.HandlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
		f := Fact{Topic: d.Topic, ID: d.ID, Token: d.Token, Attempt: d.Attempt, Until: due(d.LeaseUntil)}
		f.content(d.Body, d.Headers)
		r.emit(Line{Call: LineStart, N: r.calls.Load(), At: r.now(), Facts: []Fact{f}})
		defer func() {
			r.emit(Line{Call: LineStop, N: r.calls.Load(), At: r.now(), Facts: []Fact{f}})
		}()
		return h.Handle(ctx, d)
	})
}

// The content of messages. A body begins with the name of its message (Fact.Life), and each of its
// bytes follows from name and size.

const nameHeader = "name"

// contentOf returns the body and the headers of a message.
func contentOf(life string, size int, headers bool) ([]byte, map[string]string) {
	var h map[string]string
	if headers {
		h = map[string]string{nameHeader: life, "kind": "order", "empty": ""}
	}
	if size == 0 {
		return nil, h
	}
	return bodyOf(life, max(size, len(life)+1)), h
}

// pattern is a text that does not repeat within any block of a database.
var pattern = func() []byte {
	b := make([]byte, 1<<16)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}()

func bodyOf(life string, size int) []byte {
	b := make([]byte, 0, size)
	b = append(b, life...)
	b = append(b, '|')
	from := int(crc32.ChecksumIEEE(b)) & (len(pattern) - 1)
	for len(b) < size {
		b = append(b, pattern[from:min(len(pattern), from+size-len(b))]...)
		from = 0
	}
	return b
}

// content notes the name in body and headers, the size of the body, a checksum of the headers, and
// what is wrong with them.
func (f *Fact) content(body []byte, headers map[string]string) {
	f.Size = len(body)
	f.Life = headers[nameHeader]
	for _, k := range slices.Sorted(maps.Keys(headers)) {
		f.Headers = crc32.Update(f.Headers, crc32.IEEETable, []byte(k+"="+headers[k]+"\n"))
	}
	if len(body) == 0 {
		return
	}
	life, _, found := bytes.Cut(body[:min(len(body), 64)], []byte("|"))
	switch {
	case !found:
		f.Broken = "a body without a name"
	case f.Life != "" && f.Life != string(life):
		f.Broken = "the body of another message"
	case !bytes.Equal(body, bodyOf(string(life), len(body))):
		f.Broken = "a body that is damaged"
	}
	f.Life = string(life)
}
