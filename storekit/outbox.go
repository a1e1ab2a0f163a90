package storekit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// A settlement stores its follow-ups in one atomic step, and some stores reach only the family of
// the message's topic in one step (ReachFamily). A follow-up beyond that takes two steps. The
// settlement stores an envelope of it in the companion T@out, which is within reach, so that the
// follow-up is stored if and only if the message is settled. Then a duty of package duty or of a
// Worker forwards the follow-up: it pushes the follow-up to its own topic and acks the envelope.
//
//	orders/A-17 acked --+-- one step --> orders@out/A-17~01KB3...  -- forwarded --> invoice/A-17~invoice
//
// The envelope has the body and the headers of the follow-up, and one header more, ForwardHeader,
// with all else. So a follow-up that is forwarded may have a body as long as any other.

// OutTopic returns the topic of the envelopes of a topic and its companions: "orders@out" for
// "orders" and "orders@g.billing".
func OutTopic(topic string) string {
	parent, _ := Companion(topic)
	return parent + "@out"
}

// A Reacher is a store that reaches only some follow-ups in one step with a settlement, and knows
// which. punctual.As finds it.
type Reacher interface {
	// Reaches reports whether the store can store the follow-up m in one step with a settlement of
	// the message id of topic. Where m has no ID the store makes one within reach, so only its
	// topic counts.
	Reaches(ctx context.Context, topic, id string, m *punctual.NewMessage) (bool, error)
}

// ForwardHeader is the header of an envelope that says where its follow-up goes. Its value is JSON
// with the topic, the ID and all else of the follow-up that the envelope does not have itself.
const ForwardHeader = "punctual-forward"

// Settle is s.Settle for those who make settlements for others: a Worker and a server. In a store
// that reaches only a family it puts the follow-ups that are beyond reach into envelopes. When the
// store has answered, Settle calls moved, if not nil, with the number of envelopes for each such
// settlement that was made or may have been made. The store refuses a settlement that is malformed,
// or whose envelopes are, as it refuses any other. To a store that reaches everywhere, or nothing,
// Settle passes the settlements as they are. ss is not changed.
//
// A store that is a Reacher is asked which follow-ups are within reach. Any other store of a family
// is asked to settle first. Where its answer is ErrUnsupported, the settlement is made with every
// follow-up in an envelope that is not surely within reach.
func Settle(ctx context.Context, s punctual.Store, ss []punctual.Settlement, moved func(x *punctual.Settlement, envelopes int)) ([]error, error) {
	if !slices.ContainsFunc(ss, func(x punctual.Settlement) bool { return len(x.Then) > 0 }) {
		return s.Settle(ctx, ss)
	}
	p := postman{ids: newEnvelopeIDs(ctx), envelopes: make([]int, len(ss))}
	answers, err := p.settle(ctx, s, ss)
	for i, n := range p.envelopes {
		answer := err
		if err == nil {
			answer = answers[i]
		}
		if n > 0 && moved != nil && (answer == nil || !punctual.Definite(answer)) {
			moved(&ss[i], n)
		}
	}
	return answers, err
}

// settle is Settle without moved.
func (p *postman) settle(ctx context.Context, s punctual.Store, ss []punctual.Settlement) ([]error, error) {
	if r, err := punctual.As[Reacher](s); err == nil {
		ss = p.pack(ss, nil, func(x *punctual.Settlement, m *punctual.NewMessage) bool {
			ok, err := r.Reaches(ctx, x.Topic, x.ID, m)
			return ok || err != nil // the store says itself what is wrong
		})
	}
	answers, err := s.Settle(ctx, ss)
	if err != nil || !reachesFamily(ctx, s, ss, answers) {
		return answers, err
	}
	again := p.pack(ss, answers, surelyInReach)
	part, at := changed(ss, again)
	if len(part) == 0 {
		return answers, nil
	}
	rest, err := s.Settle(nextRequest(ctx), part)
	for i, n := range at {
		if err != nil {
			answers[n] = err
		} else {
			answers[n] = rest[i]
		}
	}
	return answers, nil
}

// reachesFamily reports whether the store has refused a settlement with follow-ups because they are
// beyond its reach, and reaches a family.
func reachesFamily(ctx context.Context, s punctual.Store, ss []punctual.Settlement, answers []error) bool {
	refused := func(x punctual.Settlement, err error) bool {
		return len(x.Then) > 0 && errors.Is(err, punctual.ErrUnsupported)
	}
	for i, err := range answers {
		if refused(ss[i], err) {
			r, err := punctual.As[AbilityReporter](s)
			if err != nil {
				return false
			}
			can, err := r.Abilities(ctx)
			return err == nil && can.Follow == ReachFamily
		}
	}
	return false
}

// surelyInReach reports whether a store of a family reaches m however many partitions the topic
// has.
func surelyInReach(x *punctual.Settlement, m *punctual.NewMessage) bool {
	from, _ := Companion(x.Topic)
	to, _ := Companion(m.Topic)
	return from == to && (m.ID == "" || Stem(m.ID) == Stem(x.ID))
}

// postman puts follow-ups into envelopes.
type postman struct {
	ids *envelopeIDs
	// envelopes is how many envelopes each settlement has.
	envelopes []int
}

// pack returns ss with each follow-up that is not reached in an envelope. Where answers are given
// it changes only the settlements that were refused with ErrUnsupported. A settlement that is
// malformed stays as it is, and so does a follow-up that goes to the OutTopic itself, or whose
// times JSON cannot have.
func (p *postman) pack(ss []punctual.Settlement, answers []error, reached func(*punctual.Settlement, *punctual.NewMessage) bool) []punctual.Settlement {
	ss = slices.Clone(ss)
	for i := range ss {
		x := &ss[i]
		if len(x.Then) == 0 || answers != nil && !errors.Is(answers[i], punctual.ErrUnsupported) || CheckThen(x, math.MaxInt) != nil {
			continue
		}
		then, n := slices.Clone(x.Then), 0
		for j := range then {
			if then[j].Topic == OutTopic(x.Topic) || reached(x, &then[j]) {
				continue
			}
			e, err := p.envelope(x, &then[j])
			if err != nil {
				continue // the store refuses the follow-up
			}
			then[j] = e
			n++
		}
		if n == 0 {
			continue
		}
		x.Then = then
		p.envelopes[i] += n
	}
	return ss
}

// changed returns the settlements whose follow-ups differ between was and is, and where they stand.
func changed(was, is []punctual.Settlement) (part []punctual.Settlement, at []int) {
	for i := range is {
		if len(is[i].Then) > 0 && &is[i].Then[0] != &was[i].Then[0] {
			part, at = append(part, is[i]), append(at, i)
		}
	}
	return part, at
}

// forward is what ForwardHeader says of a follow-up.
type forward struct {
	Topic       string            `json:"topic"`
	ID          string            `json:"id"`
	Due         time.Time         `json:"due,omitzero"`
	Delay       time.Duration     `json:"delay_ns,omitzero"`
	MaxAttempts int               `json:"max_attempts,omitzero"`
	ExpireAfter time.Duration     `json:"expire_after_ns,omitzero"`
	DropExpired bool              `json:"drop_expired,omitzero"`
	IfExists    punctual.IfExists `json:"if_exists,omitzero"`
	IfDue       time.Time         `json:"if_due,omitzero"`
	// Header is the follow-up's own header of the name ForwardHeader, which the envelope cannot
	// have beside its own.
	Header *string `json:"header,omitzero"`
	// Attributes is the block of Attributes, so that a further attribute travels without a further
	// member.
	Attributes []byte `json:"attributes,omitzero"`
}

// envelope returns the message that carries m from a settlement of x to its topic. m gets its ID
// here, so that the envelope can be forwarded twice and m is stored once.
func (p *postman) envelope(x *punctual.Settlement, m *punctual.NewMessage) (punctual.NewMessage, error) {
	f := forward{
		Topic: m.Topic, ID: m.ID, Due: ceilTime(m.Due), Delay: m.Delay, MaxAttempts: m.MaxAttempts, ExpireAfter: m.ExpireAfter,
		DropExpired: m.DropExpired, IfExists: m.IfExists, IfDue: ceilTime(m.IfDue), Attributes: NewAttributes(m).Block(),
	}
	if f.ID == "" {
		f.ID = p.ids.next()
	}
	if own, ok := m.Headers[ForwardHeader]; ok {
		f.Header = &own
	}
	text, err := json.Marshal(f)
	if err != nil {
		return punctual.NewMessage{}, Invalidf("a time lies outside the years 0 to 9999: %v", err)
	}
	e := punctual.NewMessage{Topic: OutTopic(x.Topic), ID: Stem(x.ID) + "~" + p.ids.next(), Body: m.Body, Headers: maps.Clone(m.Headers)}
	if len(e.ID) > limits.MaxIDBytes {
		e.ID = "" // the store makes one within reach
	}
	if e.Headers == nil {
		e.Headers = make(map[string]string, 1)
	}
	e.Headers[ForwardHeader] = string(text)
	return e, nil
}

func ceilTime(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return FromMillis(CeilMillis(t))
}

// Forwarded returns the follow-up in an envelope, or an ErrInvalid if m is none. Its due time is
// absolute: a delay counts from when the envelope was stored, which is when the message was
// settled.
func Forwarded(m *punctual.Message) (punctual.NewMessage, error) {
	var f forward
	if err := json.Unmarshal([]byte(m.Headers[ForwardHeader]), &f); err != nil {
		return punctual.NewMessage{}, Invalidf("%s of %s is no follow-up to forward, its header %s is not as it should be: %v", m.ID, m.Topic, ForwardHeader, err)
	}
	n := punctual.NewMessage{
		Topic: f.Topic, ID: f.ID, Body: m.Body, Due: f.Due, MaxAttempts: f.MaxAttempts, ExpireAfter: f.ExpireAfter,
		DropExpired: f.DropExpired, IfExists: f.IfExists, IfDue: f.IfDue,
	}
	a, err := ReadAttributes(f.Attributes)
	if err != nil {
		return n, Invalidf("%s of %s is no follow-up to forward: %v", m.ID, m.Topic, err)
	}
	a.SetNew(&n)
	if n.Due.IsZero() {
		n.Due = m.Created
		if f.Delay > 0 {
			// Created is rounded down, so that the delay could end a millisecond early.
			n.Due = FromMillis(m.Created.UnixMilli() + 1 + CeilDuration(f.Delay))
		}
	}
	n.Headers = maps.Clone(m.Headers)
	delete(n.Headers, ForwardHeader)
	if f.Header != nil {
		n.Headers[ForwardHeader] = *f.Header
	}
	if len(n.Headers) == 0 {
		n.Headers = nil
	}
	err = CheckPush(&n, math.MaxInt)
	if err == nil {
		err = CheckID(n.ID)
	}
	if err != nil {
		return n, fmt.Errorf("%s of %s: %w", m.ID, m.Topic, err)
	}
	return n, nil
}

// envelopeIDs makes IDs for the envelopes of a call and their follow-ups. Every copy of a call with
// a key makes the same ones.
type envelopeIDs struct {
	key  string
	made int
}

func newEnvelopeIDs(ctx context.Context) *envelopeIDs {
	ids := &envelopeIDs{}
	if r, ok := RequestOf(ctx); ok {
		ids.key = "out " + r.Key
	}
	return ids
}

func (ids *envelopeIDs) next() string {
	if ids.key == "" {
		return NewID(time.Now())
	}
	ids.made++
	return IDOfKey(ids.key, ids.made)
}

// nextRequest returns the context of a second call that belongs to the call of ctx. Its key follows
// from that of the first, so that a copy of the whole finds the answers of both.
func nextRequest(ctx context.Context) context.Context {
	r, ok := RequestOf(ctx)
	if !ok {
		return ctx
	}
	r.Key = IDOfKey("out "+r.Key, 0)
	return WithRequest(ctx, r)
}
