package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// largeCases: what if one call carries more bytes than a store writes in one step? Its items take
// effect in their order all the same, and each has its own result.
func largeCases() []testCase {
	return []testCase{
		{"push", p7, largePush},
		{"amend", p5, largeAmend},
		{"settle", p4, largeSettle},
	}
}

// largeItems is how many messages with bodies of the largest size a call carries.
const largeItems = 12

// largeBody returns the body of message i of these cases.
func largeBody(i int) []byte {
	return bytes.Repeat([]byte{byte(i)}, limits.DefaultMaxBody)
}

func largeOrders(delay time.Duration) []punctual.NewMessage {
	ms := make([]punctual.NewMessage, largeItems)
	for i := range ms {
		ms[i] = order(fmt.Sprint(i), delay)
		ms[i].Body = largeBody(i)
	}
	return ms
}

// wantLarge claims, and checks that all messages came but the one with the ID without, and that
// their bodies are those that body returns.
func (s *harness) wantLarge(without string, body func(i int) []byte) []punctual.Delivery {
	s.Helper()
	ds := s.take(orders, largeItems)
	got := make(map[string][]byte, len(ds))
	for _, d := range ds {
		got[d.ID] = d.Body
	}
	for i := range largeItems {
		id := fmt.Sprint(i)
		if b, there := got[id]; there == (id == without) || there && !bytes.Equal(b, body(i)) {
			s.Fatalf("%s: message %s of %d of 1 MiB came: %v, with %d bytes that begin with %x", p1, id, largeItems, there, len(b), b[:min(len(b), 4)])
		}
	}
	return ds
}

func largePush(s *harness) {
	ms := largeOrders(time.Hour)
	again := []punctual.NewMessage{order("0", time.Minute), order("1", time.Minute), order("2", time.Minute), order("", 0)}
	again[1].IfExists, again[2].IfExists = punctual.IfExistsReplace, punctual.IfExistsFail
	again[1].Body, again[3].Topic = []byte("new"), "no topic"
	rs := s.pushAll(append(append(ms, again...), order("0", 2*time.Minute))...)
	for i, r := range rs[:largeItems] {
		if r.Status != punctual.PushStored || r.ID != fmt.Sprint(i) || r.Err != nil {
			s.fail("message %d of a push of %d MiB: %+v; want stored", i, largeItems, r)
		}
	}
	rs = rs[largeItems:]
	for i, r := range []punctual.PushResult{rs[0], rs[4]} {
		if r.Status != punctual.PushDuplicate || r.Existing != punctual.StateScheduled || !r.Due.Equal(noon.Add(time.Hour)) {
			s.fail("the same ID %d times again in a push of %d MiB: %+v; want duplicate of a scheduled message due %v", i+1, largeItems, r, noon.Add(time.Hour))
		}
	}
	if rs[1].Status != punctual.PushReplaced {
		s.fail("a replacement in a push of %d MiB: %+v; want replaced", largeItems, rs[1])
	}
	s.wantErr(rs[2].Err, punctual.ErrDuplicate, "a taken ID in a push of %d MiB", largeItems)
	s.wantErr(rs[3].Err, punctual.ErrInvalid, "a malformed item in a push of %d MiB", largeItems)
	s.advance(time.Hour)
	s.wantLarge("", func(i int) []byte {
		if i == 1 {
			return []byte("new")
		}
		return largeBody(i)
	})
}

func largeAmend(s *harness) {
	s.pushAll(largeOrders(time.Hour)...)
	var as []punctual.Amendment
	var want []error
	add := func(a punctual.Amendment, o error) {
		as, want = append(as, a), append(want, o)
	}
	add(cancel(orders, "0"), nil)
	for i := 1; i < largeItems; i++ {
		add(reschedule(orders, fmt.Sprint(i), time.Minute), nil)
	}
	add(cancel(orders, "0"), punctual.ErrNotFound)
	add(requeue(orders, "1", 0), punctual.ErrNotDead)
	add(reschedule(orders, "1", time.Second), nil)
	s.wantOutcomes(as, want)
	s.advance(time.Second)
	if d := s.one(orders); d.ID != "1" || !bytes.Equal(d.Body, largeBody(1)) {
		s.fail("after it was rescheduled twice in one call %s came with %d bytes; want 1", d.ID, len(d.Body))
	} else {
		s.done(d, punctual.SettleSnooze, time.Second)
	}
	s.advance(time.Minute)
	for _, d := range s.wantLarge("0", largeBody) {
		s.done(d, punctual.SettleDiscard, 0)
	}
	as, want = nil, nil
	for i := 1; i < largeItems; i++ {
		add(requeue(orders, fmt.Sprint(i), 0), nil)
	}
	s.wantOutcomes(as, want)
	s.wantLarge("0", largeBody)
}

func (s *harness) wantOutcomes(as []punctual.Amendment, want []error) {
	s.Helper()
	os, err := s.store.Amend(s.ctx, as)
	if err != nil || len(os) != len(as) {
		s.fail("%d amendments of messages of 1 MiB: %d outcomes, unexpected error of the call: %v", len(as), len(os), err)
	}
	for i, o := range os {
		if !errors.Is(o.Err, want[i]) {
			s.fail("amendment %d, %s of %s: %v; want %v", i, as[i].Change, as[i].ID, o.Err, want[i])
		}
	}
}

func largeSettle(s *harness) {
	s.pushAll(largeOrders(0)...)
	ds := s.wantLarge("", largeBody)
	var ss []punctual.Settlement
	for _, d := range ds {
		ss = append(ss, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleRetry, Delay: time.Minute, Error: "busy"})
	}
	ss[1].Verb, ss[1].Delay, ss[1].Error = punctual.SettleAck, 0, ""
	errs, err := s.store.Settle(s.ctx, append(ss, ss[0], ss[1]))
	if err != nil || len(errs) != len(ss)+2 {
		s.fail("settling %d messages of 1 MiB: %d answers, unexpected error of the call: %v", len(ss), len(errs), err)
	}
	for _, err := range errs[len(ss):] {
		s.wantErr(err, punctual.ErrLeaseLost, "the same token again in a call that settles %d MiB", largeItems)
	}
	if err := errors.Join(errs[:len(ss)]...); err != nil {
		s.fail("settling %d messages of 1 MiB: %v", len(ss), err)
	}
	s.none(orders, "right after all were acked or given back")
	s.advance(time.Minute)
	for _, d := range s.wantLarge(ds[1].ID, largeBody) {
		if d.Attempt != 2 || len(d.Failures) != 1 {
			s.fail("%s after one retry is attempt %d with history %v", d.ID, d.Attempt, d.Failures)
		}
	}
}
