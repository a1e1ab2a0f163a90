package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
)

// ownershipCases: whose are the slices and maps that go in and out?
func ownershipCases() []testCase {
	return []testCase{
		{"caller reuses what it pushed", p1, ownPushed},
		{"caller changes what it claimed", p1, ownClaimed},
		{"caller changes the history it was given", p6, ownHistory},
		{"caller changes what it looked up", p1, ownLookedUp},
		{"caller reuses settings", p13, ownSettings},
		{"caller reuses the lists of a call", p13, ownLists},
	}
}

func spoil(b []byte) {
	for i := range b {
		b[i] ^= 0xff
	}
}

func spoilMessage(m *punctual.Message) {
	spoil(m.Body)
	for k := range m.Headers {
		m.Headers[k] = "spoiled"
	}
	if m.Headers != nil {
		m.Headers["new"] = "spoiled"
	}
}

// own returns a message with a body and a header. Its slices and maps are new.
func own(id string) punctual.NewMessage {
	return punctual.NewMessage{
		Topic: orders, ID: id, Body: bytes.Repeat([]byte(id+" "), 20), Headers: map[string]string{"of": id},
	}
}

func ownPushed(s *harness) {
	batch := []punctual.NewMessage{own("a"), own("b")}
	s.pushAll(batch...)
	for i := range batch {
		spoil(batch[i].Body)
		batch[i].Headers["of"] = "spoiled"
		batch[i] = punctual.NewMessage{Topic: mails, ID: "spoiled"}
	}
	for _, d := range s.take(orders, 2) {
		s.wantMessage(d.Message, own(d.ID), noon, noon)
		s.ack(d)
	}
	s.none(orders, "after both were acked")
}

func ownClaimed(s *harness) {
	s.push(own(x))
	for range 3 {
		d := s.one(orders)
		s.wantMessage(d.Message, own(x), noon, noon)
		spoilMessage(&d.Message)
		s.done(d, punctual.SettleRelease, 0)
	}
}

func ownHistory(s *harness) {
	s.push(own(x))
	for i := range 4 {
		d := s.one(orders)
		for j, f := range d.Failures {
			if f.Error != fmt.Sprint(j) {
				s.fail("a caller's change of the history it was given shows in the next: %v", d.Failures)
			}
			d.Failures[j].Error = "spoiled"
		}
		s.settleAs(punctual.Settlement{Topic: orders, ID: x, Token: d.Token, Verb: punctual.SettleRetry, Error: fmt.Sprint(i)})
	}
}

func ownLookedUp(s *harness) {
	in := s.inspector()
	s.push(own(x))
	d := s.one(orders)
	s.settleAs(punctual.Settlement{Topic: orders, ID: x, Token: d.Token, Verb: punctual.SettleRetry, Error: "why"})
	for range 2 {
		info := s.get(orders, x)
		s.wantMessage(info.Message, own(x), noon, noon)
		if len(info.Failures) != 1 || info.Failures[0].Error != "why" {
			s.fail("a caller's change of the history it looked up shows in the next: %v", info.Failures)
		}
		spoilMessage(&info.Message)
		info.Failures[0].Error = "spoiled"
		p, err := in.List(s.ctx, punctual.ListQuery{Topic: orders, State: punctual.StateReady})
		if err != nil || len(p.Messages) != 1 {
			s.fail("List: %v, %v", p, err)
		}
		spoilMessage(&p.Messages[0].Message)
		p.Messages[0].Failures[0].Error = "spoiled"
	}
}

func ownSettings(s *harness) {
	in := s.inspector()
	delays := []time.Duration{time.Second, time.Minute}
	want := s.defaults()
	want.Backoff = punctual.Backoff{Delays: []time.Duration{time.Second, time.Minute}}
	groups := []string{"billing", "mail"}
	want.Groups = slices.Clone(groups)
	got := s.configure(orders, punctual.SettingsPatch{Backoff: &punctual.Backoff{Delays: delays}, Groups: &groups})
	delays[0], groups[0] = 0, "spoiled"
	s.wantSettings(orders, want)
	got.Backoff.Delays[1], got.Groups[1] = 0, "spoiled"
	s.wantSettings(orders, want)
	got, err := in.Settings(s.ctx, orders)
	if err != nil {
		s.fail("Settings: unexpected error: %v", err)
	}
	got.Backoff.Delays[0], got.Groups[0] = 0, "spoiled"
	st, err := in.Stats(s.ctx, orders)
	if err != nil {
		s.fail("Stats: unexpected error: %v", err)
	}
	st.Settings.Backoff.Delays[0], st.Settings.Groups[0] = 0, "spoiled"
	s.wantSettings(orders, want)
}

func ownLists(s *harness) {
	topics := []string{orders, mails}
	w := s.wait(s.ctx, punctual.Claim{Topics: []string{mails}, Max: 1, Wait: time.Hour})
	s.push(own(x))
	ds := s.claim(punctual.Claim{Topics: topics, Max: 1})
	topics[0], topics[1] = "spoiled", "spoiled"
	if len(ds) != 1 || ds[0].Topic != orders {
		s.fail("claimed %v; want %s", ids(ds), x)
	}
	ss := []punctual.Settlement{{Topic: orders, ID: x, Token: ds[0].Token, Verb: punctual.SettleRetry, Delay: time.Hour, Error: "why"}}
	if errs, err := s.store.Settle(s.ctx, ss); err != nil || errs[0] != nil {
		s.fail("retry: %v, %v", errs, err)
	}
	ss[0] = punctual.Settlement{}
	as := []punctual.Amendment{reschedule(orders, x, 0)}
	if os, err := s.store.Amend(s.ctx, as); err != nil || os[0].Err != nil {
		s.fail("reschedule: %v, %v", os, err)
	}
	as[0] = punctual.Amendment{}
	if d := s.one(orders); len(d.Failures) != 1 || d.Failures[0].Error != "why" {
		s.fail("after a retry the history is %v", d.Failures)
	}
	s.push(punctual.NewMessage{Topic: mails, ID: "m"})
	s.ack(w.wakes("m", "a push"))
}
