package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// badInputCases: is what breaks the rules refused, before anything is stored?
func badInputCases() []testCase {
	return []testCase{
		{"topic bytes", p13, badTopicBytes},
		{"topic lengths", p13, badTopicLengths},
		{"ID bytes", p13, badIDBytes},
		{"ID lengths", p13, badIDLengths},
		{"body over the limit", p13, badBody},
		{"headers over the limit", p13, badHeaders},
		{"numbers and times", p13, badNumbers},
		{"batch over the limit", p13, badBatch},
		{"unknown ID", p13, badUnknown},
		{"ended context", p13, badContext},
	}
}

// refused pushes a malformed message, which must be refused with want, and the error must be
// definite.
func (s *harness) refused(m punctual.NewMessage, want error, what string) {
	s.Helper()
	r := s.try(m)
	s.wantErr(r.Err, want, "a push with %s", what)
	if r.Status != punctual.PushNone {
		s.fail("a push with %s was refused with status %q; want none", what, r.Status)
	}
	if !punctual.Definite(r.Err) {
		s.fail("a push with %s was refused with an error that is not definite: %v", what, r.Err)
	}
}

func badTopicBytes(s *harness) {
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-"
	for c := range 256 {
		for _, topic := range []string{string([]byte{byte(c)}), string([]byte{'a', byte(c), 'b'})} {
			m := punctual.NewMessage{Topic: topic, ID: x}
			if topic == "a@b" {
				continue // a companion; see companions.go
			}
			if strings.IndexByte(allowed, byte(c)) < 0 {
				s.refused(m, punctual.ErrInvalid, fmt.Sprintf("topic %q", topic))
				continue
			}
			s.push(m)
			if d := s.one(topic); d.Topic != topic {
				s.fail("a message of topic %q came back with topic %q", topic, d.Topic)
			}
		}
	}
}

func badTopicLengths(s *harness) {
	s.refused(punctual.NewMessage{ID: x}, punctual.ErrInvalid, "no topic")
	longest := strings.Repeat("t", limits.MaxTopicBytes)
	s.refused(punctual.NewMessage{Topic: longest + "t", ID: x}, punctual.ErrInvalid, "a topic of 129 bytes")
	s.push(punctual.NewMessage{Topic: longest, ID: strings.Repeat("i", limits.MaxIDBytes)})
	s.ack(s.one(longest))
}

func badIDBytes(s *harness) {
	for c := range 256 {
		if c >= ' ' && c <= '~' {
			continue // the case "every printable ID" of group push pushes these
		}
		for _, id := range []string{string([]byte{byte(c)}), string([]byte{'a', byte(c), 'b'})} {
			s.refused(punctual.NewMessage{Topic: orders, ID: id}, punctual.ErrInvalid, fmt.Sprintf("ID %q", id))
		}
	}
	s.none(orders, "after pushes with malformed IDs")
}

func badIDLengths(s *harness) {
	longest := strings.Repeat("i", limits.MaxIDBytes)
	s.refused(order(longest+"i", 0), punctual.ErrInvalid, "an ID of 129 bytes")
	s.push(order(longest, 0))
	if d := s.one(orders); d.ID != longest {
		s.fail("an ID of 128 bytes came back as %q", d.ID)
	}
}

func badBody(s *harness) {
	m := order(x, 0)
	m.Body = make([]byte, limits.DefaultMaxBody+1)
	s.refused(m, punctual.ErrTooLarge, "a body of one byte more than the limit")
	m.Body = m.Body[:limits.DefaultMaxBody]
	s.push(m)
	s.ack(s.one(orders))
}

func badHeaders(s *harness) {
	m := order(x, 0)
	m.Headers = map[string]string{"a": strings.Repeat("v", limits.MaxHeaderBytes/2-1), "b": strings.Repeat("v", limits.MaxHeaderBytes/2)}
	s.refused(m, punctual.ErrTooLarge, "headers of one byte more than the limit")
	m.Headers = map[string]string{strings.Repeat("k", limits.MaxHeaderBytes+1): ""}
	s.refused(m, punctual.ErrTooLarge, "a header name longer than the limit")
	m.Headers = map[string]string{"a": strings.Repeat("v", limits.MaxHeaderBytes/2-1), "b": strings.Repeat("v", limits.MaxHeaderBytes/2-1)}
	s.push(m)
	s.ack(s.one(orders))
}

func badNumbers(s *harness) {
	for what, m := range map[string]punctual.NewMessage{
		"a negative delay":      {Delay: -1},
		"a very negative delay": {Delay: -1 << 63},
		"a due and a delay":     {Due: noon, Delay: time.Second},
		"negative MaxAttempts":  {MaxAttempts: -1},
		"too many attempts":     {MaxAttempts: limits.MaxAttemptsLimit + 1},
		"a negative expiry":     {ExpireAfter: -1},
		"a negative Remember":   {Remember: -1},
		"a negative Timeout":    {Timeout: -1},
		"too long a Timeout":    {Timeout: limits.MaxTimeout + 1},
		"too long a Remember":   {Remember: limits.MaxFinishedRetention + 1},
		"an unknown IfExists":   {IfExists: 4},
	} {
		m.Topic, m.ID = orders, x
		s.refused(m, punctual.ErrInvalid, what)
	}
	s.none(orders, "after malformed pushes")
	s.push(punctual.NewMessage{Topic: orders, ID: x, MaxAttempts: limits.MaxAttemptsLimit})
	s.ack(s.one(orders))
}

// badBatch: a call with too many items fails as a whole, and none of its items is carried out.
func badBatch(s *harness) {
	n := limits.MaxBatch + 1
	ms := make([]punctual.NewMessage, n)
	as := make([]punctual.Amendment, n)
	ss := make([]punctual.Settlement, n)
	s.push(order("first", 0))
	d := s.one(orders)
	for i := range n {
		ms[i] = order(fmt.Sprint(i), 0)
		as[i] = cancel(orders, "first")
		ss[i] = punctual.Settlement{Topic: orders, ID: "first", Token: d.Token, Verb: punctual.SettleAck}
	}
	_, err := s.store.Push(s.ctx, ms)
	s.wantErr(err, punctual.ErrTooLarge, "a push of %d messages", n)
	_, err = s.store.Settle(s.ctx, ss)
	s.wantErr(err, punctual.ErrTooLarge, "a settle of %d leases", n)
	_, err = s.store.Amend(s.ctx, as)
	s.wantErr(err, punctual.ErrTooLarge, "an amend of %d messages", n)
	s.none(orders, "after a batch that was refused")
	s.done(d, punctual.SettleExtend, 0)
	s.ack(d)
}

func badUnknown(s *harness) {
	s.push(order(x, time.Hour))
	for _, name := range [][2]string{{orders, "y"}, {"never-heard-of", x}, {mails, x}} {
		s.outcome(cancel(name[0], name[1]), punctual.ErrNotFound, isUnknown)
		s.outcome(reschedule(name[0], name[1], 0), punctual.ErrNotFound, isUnknown)
		s.outcome(requeue(name[0], name[1], 0), punctual.ErrNotFound, isUnknown)
		s.wantFenced(punctual.Delivery{Message: punctual.Message{Topic: name[0], ID: name[1]}, Token: 1}, "of an unknown message")
	}
	s.wantState(orders, x, punctual.StateScheduled)
}

// badContext: a call whose context has ended returns the error of the context, which is definite,
// and changes nothing. Group contract checks, with malformed and with empty calls, that this error
// comes before those of the call.
func badContext(s *harness) {
	ended, end := context.WithCancelCause(s.ctx)
	end(errors.New("the user left")) // the error must be context.Canceled all the same, and not this cause
	s.push(order("kept", time.Hour))
	s.push(order("held", 0))
	held := s.one(orders)

	_, err := s.store.Push(ended, []punctual.NewMessage{order(x, 0)})
	s.wantEnded(err, "push")
	s.none(orders, "after a push with an ended context")
	_, err = s.store.Amend(ended, []punctual.Amendment{cancel(orders, "kept")})
	s.wantEnded(err, "cancel")
	s.outcome(cancel(orders, "kept"), nil, isScheduled)
	_, err = s.store.Settle(ended, []punctual.Settlement{ackOf(held)})
	s.wantEnded(err, "ack")
	s.ack(held)
}

// wantEnded checks the error of a call whose context had been cancelled before the call began.
func (s *harness) wantEnded(err error, what string) {
	s.Helper()
	if !errors.Is(err, context.Canceled) || !punctual.Definite(err) {
		s.fail("%s with an ended context: got error %v; want %v, which is definite", what, err, context.Canceled)
	}
}
