package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/bulk"
)

// bulkCases: does a bulk shift, which Queue makes of List and Amend, move each message once
// although time passes meanwhile?
func bulkCases() []testCase {
	return []testCase{
		{"a shift while time passes", p13, func(s *harness) { s.shiftAll(false) }},
		{"a shift that is stopped and continued", p13, func(s *harness) { s.shiftAll(true) }},
	}
}

// shiftAll shifts messages of each state that a shift may name, later and earlier, by less and by
// more than the time that passes.
func (s *harness) shiftAll(stop bool) {
	s.inspector()
	n, stopped := 0, 0
	for _, state := range []punctual.State{punctual.StateNone, punctual.StateScheduled, punctual.StateReady} {
		for _, by := range []time.Duration{2 * time.Second, time.Hour, -2 * time.Second, -time.Hour} {
			n++
			if s.shift(fmt.Sprint(orders, n), state, by, stop) {
				stopped++
			}
		}
	}
	if stop && stopped < 6 { // the others have one part
		s.fail("%d of %d shifts were stopped: the case needs 6", stopped, n)
	}
}

// shift shifts 24 messages, each due 5 s after the one before, half of which are ready. 7 s pass
// before each part of the bulk is sent, so that messages which are scheduled when the bulk begins
// are ready before it reaches them, and messages that it has moved are ready before it ends. With
// stop the first call ends before its second part, and the next one comes two minutes later. It
// reports whether a call was stopped.
func (s *harness) shift(topic string, state punctual.State, by time.Duration, stop bool) (stopped bool) {
	s.Helper()
	begin := s.now()
	want := make(map[string]time.Time)
	selected := 0
	for i := range 24 {
		m := punctual.NewMessage{Topic: topic, ID: fmt.Sprintf("m-%02d", i), Due: begin.Add(time.Duration(i-11) * 5 * time.Second)}
		s.push(m)
		ready := !m.Due.After(begin)
		if state == punctual.StateNone && (by > 0 || !ready) || state == punctual.StateReady && ready || state == punctual.StateScheduled && !ready {
			m.Due = m.Due.Add(by)
			selected++
		}
		want[m.ID] = m.Due
	}
	what := fmt.Sprintf("a shift by %v of messages that are %q", by, state)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	parts := 0
	b := bulk.Job{Do: bulk.Shift, By: by, Select: bulk.Selection{Topic: topic, State: state}, ID: "once"}
	b.Progress = func(bulk.Report) {
		if parts++; stop && parts == 2 {
			cancel()
		}
		s.advance(7 * time.Second)
	}
	q := punctual.NewQueue(s.store, nil)
	r, err := bulk.Run(ctx, q, b)
	done := r.Done
	if stopped = errors.Is(err, context.Canceled); stopped {
		s.advance(2 * time.Minute)
		r, err = bulk.Run(s.ctx, q, b)
		done += r.Done
	}
	if err != nil || done != int64(selected) {
		s.fail("%s: %+v, %d done by all calls, %v; want each of %d done once", what, r, done, err, selected)
	}
	for id, due := range want {
		if m := s.get(topic, id); !m.Due.Equal(due) {
			s.fail("%s: %s is due %v after the begin, want %v", what, id, m.Due.Sub(begin), due.Sub(begin))
		}
	}
	return stopped
}
