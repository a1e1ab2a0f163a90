package races

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storetest/promise"
)

// The events of hand-made histories, all of message orders/x unless said otherwise. Times
// are milliseconds after noon.

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// x is the ID of most messages.
const x = "x"

func at(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }

func pushed(life string, due int) event {
	return event{Op: opPush, Life: life, Push: punctual.PushStored, Due: at(due)}
}

func pushedAs(life string, due int, status punctual.PushStatus, err error) event {
	return event{Op: opPush, Life: life, Push: status, Due: at(due), Err: err}
}

func delivered(life string, token int64, attempt, due, when, until int) event {
	return event{Op: opDeliver, Life: life, Token: token, Attempt: attempt, Due: at(due), Delivered: at(when), LeaseUntil: at(until)}
}

func settled(life string, token int64, v punctual.Verb, now, delay int, err error) event {
	return event{Op: opSettle, Life: life, Token: token, Verb: v, Now: at(now), Delay: time.Duration(delay) * time.Millisecond, Err: err}
}

func acked(life string, token int64) event {
	return settled(life, token, punctual.SettleAck, 0, 0, nil)
}

// handlerStarted returns the start of a handler between two readings of the store's clock.
func handlerStarted(life string, token int64, from, to int) event {
	return event{Op: opStart, Life: life, Token: token, Now: at(from), After: at(to)}
}

func handlerEnded(life string, token int64) event { return event{Op: opEnd, Life: life, Token: token} }

// until sets when a settlement had returned, by the store's clock.
func (e event) until(ms int) event {
	e.After = at(ms)
	return e
}

func cancelled(o error) event { return event{Op: opCancel, Err: o} }

func rescheduled(due int) event {
	return event{Op: opReschedule, Err: nil, Due: at(due)}
}

func dead(life string) event { return event{Op: opDead, Life: life} }

// during sets the order of an event's call, so that it can overlap other calls. Without it the call
// of event i of a history lasts from 10i to 10i+5.
func (e event) during(call, ret int64) event {
	e.Call, e.Return = call, ret
	return e
}

func history(events ...event) []event {
	for i := range events {
		e := &events[i]
		e.Topic = orders
		if e.ID == "" {
			e.ID = x
		}
		if e.Return == 0 {
			e.Call, e.Return = int64(10*i), int64(10*i+5)
		}
	}
	return events
}

var lost = punctual.ErrLeaseLost

func TestCheckHistoryCatches(t *testing.T) {
	for name, c := range map[string]struct {
		promise string
		events  []event
	}{
		"lost": {promise.P1, history(pushed("a", 0))},
		"lost after a delivery": {promise.P1, history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleRetry, 0, 0, nil))},
		"two lost and one cancelled": {promise.P1, history(
			pushed("a", 0), cancelled(nil).during(5, 30), pushed("b", 0))},
		"never pushed":              {promise.P1, history(delivered("a", 1, 1, 0, 0, 10))},
		"delivered after ack":       {promise.P1, history(pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), acked("a", 1), delivered("a", 2, 2, 0, 20, 30), acked("a", 2))},
		"delivered after discard":   {promise.P1, history(pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleDiscard, 0, 0, nil), delivered("a", 2, 2, 0, 20, 30), acked("a", 2))},
		"early":                     {promise.P2, history(pushed("a", 5), delivered("a", 1, 1, 5, 4, 10), acked("a", 1))},
		"early by another due time": {promise.P2, history(pushed("a", 5), delivered("a", 1, 1, 4, 4, 10), acked("a", 1))},
		"early after a retry": {promise.P2, history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleRetry, 2, 5, nil), delivered("a", 2, 2, 6, 6, 9), acked("a", 2))},
		"early after a snooze": {promise.P2, history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleSnooze, 2, 5, nil), delivered("a", 2, 1, 6, 6, 9), acked("a", 2))},
		"delivered during a lease": {promise.P3, history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), delivered("a", 2, 2, 0, 9, 20), acked("a", 2))},
		"delivered during an extended lease": {promise.P3, history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleExtend, 5, 10, nil), delivered("a", 2, 2, 0, 14, 20), acked("a", 2))},
		"started after its lease": {promise.P3, history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), handlerStarted("a", 1, 10, 10), handlerEnded("a", 1), acked("a", 1))},
		"started after an extended lease": {promise.P3, history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleExtend, 5, 10, nil).until(6), handlerStarted("a", 1, 17, 17), handlerEnded("a", 1), acked("a", 1))},
		"started and not delivered": {promise.P3, history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), handlerStarted("a", 2, 1, 1), handlerEnded("a", 2), acked("a", 1))},
		"started twice": {promise.P3, history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), handlerStarted("a", 1, 1, 1), handlerEnded("a", 1), handlerStarted("a", 1, 2, 2), handlerEnded("a", 1), acked("a", 1))},
		"handled twice at a time": {promise.P3, history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), handlerStarted("a", 1, 1, 1), settled("a", 1, punctual.SettleExtend, 5, 10, nil).until(5),
			delivered("a", 2, 2, 0, 12, 22), handlerStarted("a", 2, 13, 13), handlerEnded("a", 1), handlerEnded("a", 2), acked("a", 2))},
		"old token acked": {promise.P4, history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), delivered("a", 2, 2, 0, 10, 20), acked("a", 1))},
		"old token extended": {promise.P4, history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), delivered("a", 2, 2, 0, 10, 20), settled("a", 1, punctual.SettleExtend, 12, 10, nil), acked("a", 2))},
		"old token answered with cancelled": {promise.P4, history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), delivered("a", 2, 2, 0, 10, 20), cancelled(punctual.ErrLeased),
			settled("a", 1, punctual.SettleExtend, 12, 10, punctual.ErrCancelled), acked("a", 2))},
		"token of an earlier message": {promise.P4, history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), acked("a", 1), pushed("b", 0), delivered("b", 2, 1, 0, 3, 20), acked("a", 1), acked("b", 2))},
		"acked twice":             {promise.P4, history(pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), acked("a", 1), acked("a", 1))},
		"acked twice at once":     {promise.P4, history(pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), acked("a", 1).during(20, 40), acked("a", 1).during(25, 35))},
		"extended after release":  {promise.P4, history(pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleRelease, 0, 0, nil), settled("a", 1, punctual.SettleExtend, 0, 9, nil), delivered("a", 2, 1, 0, 20, 30), acked("a", 2))},
		"token that nobody had":   {promise.P4, history(pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), acked("a", 7), acked("a", 1))},
		"token used twice":        {promise.P4, history(pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), delivered("a", 1, 2, 0, 10, 20), acked("a", 1))},
		"token shrank":            {promise.P4, history(pushed("a", 0), delivered("a", 5, 1, 0, 0, 10), acked("a", 5), pushed("b", 0), delivered("b", 4, 1, 0, 3, 10), acked("b", 4))},
		"cancelled and delivered": {promise.P5, history(pushed("a", 0), cancelled(nil), delivered("a", 1, 1, 0, 0, 10), acked("a", 1))},
		"cancelled while leased and delivered again": {promise.P5, history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), cancelled(punctual.ErrLeased), delivered("a", 2, 2, 0, 10, 20), acked("a", 2))},
		"not found and delivered": {promise.P5, history(pushed("a", 0), cancelled(punctual.ErrNotFound), delivered("a", 1, 1, 0, 0, 10), acked("a", 1))},
		"cancelled and acked":     {promise.P5, history(pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), cancelled(nil), acked("a", 1))},
		"answered ErrCancelled and delivered": {promise.P5, history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), cancelled(punctual.ErrLeased).during(25, 60),
			settled("a", 1, punctual.SettleRetry, 0, 0, punctual.ErrCancelled).during(30, 35), delivered("a", 2, 2, 0, 10, 20).during(50, 55), acked("a", 2).during(70, 75))},
		"cancelled twice":     {promise.P5, history(pushed("a", 0), cancelled(nil), cancelled(nil))},
		"attempt not counted": {promise.P6, history(pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), delivered("a", 2, 1, 0, 10, 20), acked("a", 2))},
		"snooze counted": {promise.P6, history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleSnooze, 0, 0, nil), delivered("a", 2, 2, 0, 10, 20), acked("a", 2))},
		"release of unknown outcome counted twice": {promise.P6, history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleRelease, 0, 0, punctual.ErrIndeterminate),
			delivered("a", 2, 3, 0, 10, 20), acked("a", 2))},
		"begun at attempt 2": {promise.P6, history(pushed("a", 0), delivered("a", 1, 2, 0, 0, 10), acked("a", 1))},
		"too many attempts": {promise.P6, func() []event {
			p := pushed("a", 0)
			p.MaxAttempts = 1
			return history(p, delivered("a", 1, 1, 0, 0, 10), delivered("a", 2, 2, 0, 10, 20), acked("a", 2))
		}()},
		"duplicate stored":    {promise.P7, history(pushed("a", 0), pushed("b", 0), delivered("a", 1, 1, 0, 0, 10), acked("a", 1), delivered("b", 2, 1, 0, 0, 10), acked("b", 2))},
		"duplicate delivered": {promise.P7, history(pushed("a", 0), pushedAs("b", 0, punctual.PushDuplicate, nil), delivered("b", 1, 1, 0, 0, 10), cancelled(punctual.ErrLeased))},
		"refused and delivered": {promise.P7, history(
			pushed("a", 0), pushedAs("b", 0, punctual.PushNone, punctual.ErrDuplicate), delivered("b", 1, 1, 0, 0, 10), cancelled(punctual.ErrLeased))},
	} {
		t.Run(name, func(t *testing.T) {
			found := checkHistory(c.events, false)
			if !slices.ContainsFunc(found, func(v violation) bool { return v.Promise == c.promise && v.Text != "" }) {
				t.Errorf("checkHistory found %v; want a violation of %s", found, c.promise)
			}
		})
	}
}

func TestCheckHistoryPasses(t *testing.T) {
	for name, events := range map[string][]event{
		"nothing": nil,
		"plain":   history(pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), acked("a", 1)),
		"delivery seen before its push returned": history(
			pushed("a", 0).during(0, 50), delivered("a", 1, 1, 0, 0, 10).during(5, 20), acked("a", 1).during(25, 30)),
		"lease ran out": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), delivered("a", 2, 2, 0, 10, 20),
			settled("a", 1, punctual.SettleAck, 0, 0, lost), acked("a", 2)),
		"late ack wins over nobody": history(pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleAck, 99, 0, nil)),
		"late ack races with the next claim, and loses": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleAck, 10, 0, lost).during(30, 60),
			delivered("a", 2, 2, 0, 10, 20).during(25, 55), acked("a", 2)),
		"release races with the next claim": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleRelease, 2, 0, nil).during(30, 60),
			delivered("a", 2, 1, 0, 3, 20).during(25, 55), acked("a", 2).during(70, 75)),
		"extended, then ran out": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleExtend, 5, 10, nil), delivered("a", 2, 2, 0, 15, 20), acked("a", 2)),
		"shortened, then ran out": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 100), settled("a", 1, punctual.SettleExtend, 5, 10, nil), delivered("a", 2, 2, 0, 15, 20), acked("a", 2)),
		"retry": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleRetry, 1, 5, nil), delivered("a", 2, 2, 6, 6, 9), acked("a", 2)),
		"retry, rescheduled to earlier": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleRetry, 1, 500, nil), rescheduled(3),
			delivered("a", 2, 2, 3, 3, 9), acked("a", 2)),
		"rescheduled while pushed": history(
			pushed("a", 9).during(0, 50), rescheduled(3).during(10, 40), delivered("a", 1, 1, 3, 3, 9).during(45, 48), acked("a", 1).during(60, 65)),
		"cancelled": history(pushed("a", 0), cancelled(nil)),
		"cancelled while leased, then acked": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), cancelled(punctual.ErrLeased), acked("a", 1)),
		"cancelled while leased, then retried": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), cancelled(punctual.ErrLeased), settled("a", 1, punctual.SettleRetry, 1, 0, punctual.ErrCancelled)),
		"cancelled while leased, then run out": history(pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), cancelled(punctual.ErrLeased)),
		"cancel races with the claim, and loses": history(
			pushed("a", 0), cancelled(punctual.ErrLeased).during(10, 40), delivered("a", 1, 1, 0, 0, 10).during(12, 30), acked("a", 1)),
		"cancel returned late": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10).during(10, 50), cancelled(punctual.ErrNotFound).during(45, 80), acked("a", 1).during(52, 55)),
		"cancel before the push that then won": history(
			cancelled(punctual.ErrNotFound).during(1, 5), pushed("a", 0).during(3, 9), delivered("a", 1, 1, 0, 0, 10), acked("a", 1)),
		"cancelled, pushed again": history(
			pushed("a", 0), cancelled(nil), pushed("b", 0), delivered("b", 1, 1, 0, 0, 10), acked("b", 1)),
		"cancelled while leased, extend refused, then replaced": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), cancelled(punctual.ErrLeased), settled("a", 1, punctual.SettleExtend, 1, 10, punctual.ErrCancelled),
			pushedAs("b", 0, punctual.PushReplaced, nil), delivered("b", 2, 1, 0, 2, 10), acked("b", 2)),
		"replaced":                    history(pushed("a", 0), pushedAs("b", 0, punctual.PushReplaced, nil), delivered("b", 1, 1, 0, 0, 10), acked("b", 1)),
		"replaced while leased":       history(pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), pushedAs("b", 0, punctual.PushReplaced, nil), delivered("b", 2, 1, 0, 1, 10), settled("a", 1, punctual.SettleAck, 0, 0, lost), acked("b", 2)),
		"duplicate kept":              history(pushed("a", 0), pushedAs("b", 0, punctual.PushDuplicate, nil), delivered("a", 1, 1, 0, 0, 10), acked("a", 1)),
		"pushed again after the ack":  history(pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), acked("a", 1), pushed("b", 0), delivered("b", 2, 1, 0, 0, 10), acked("b", 2)),
		"pushed again during the ack": history(pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), acked("a", 1).during(20, 40), pushed("b", 0).during(25, 45), delivered("b", 2, 1, 0, 0, 10), acked("b", 2)),
		"dead":                        history(pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleRetry, 0, 0, nil), dead("a")),
		"dead and replaced":           history(pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleDiscard, 0, 0, nil), pushedAs("b", 0, punctual.PushReplaced, nil), delivered("b", 2, 1, 0, 0, 10), acked("b", 2)),
		"extension of unknown outcome, then replaced": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleExtend, 5, 10, punctual.ErrIndeterminate),
			pushedAs("b", 0, punctual.PushReplaced, nil), delivered("b", 2, 1, 0, 30, 40), acked("b", 2)),
		"ack of unknown outcome, then cancelled": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleAck, 5, 0, punctual.ErrIndeterminate), cancelled(nil)),
		"release of unknown outcome, done": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleRelease, 0, 0, punctual.ErrIndeterminate),
			delivered("a", 2, 1, 0, 10, 20), acked("a", 2)),
		"release of unknown outcome, not done": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleRelease, 0, 0, punctual.ErrIndeterminate),
			delivered("a", 2, 2, 0, 10, 20), acked("a", 2)),
		"push of unknown outcome, lost": history(pushedAs("a", 0, punctual.PushNone, punctual.ErrIndeterminate)),
		"push of unknown outcome, stored": history(
			pushedAs("a", 0, punctual.PushNone, punctual.ErrIndeterminate), delivered("a", 1, 1, 0, 0, 10), acked("a", 1)),
		"ack of unknown outcome, done": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleAck, 0, 0, punctual.ErrIndeterminate)),
		"ack of unknown outcome, not done": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleAck, 0, 0, punctual.ErrIndeterminate),
			delivered("a", 2, 2, 0, 10, 20), acked("a", 2)),
		"tokens cross between overlapping claims": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10).during(10, 60), delivered("a", 2, 2, 0, 10, 20).during(12, 50),
			settled("a", 1, punctual.SettleAck, 0, 0, lost).during(70, 75), acked("a", 2).during(80, 85)),
		"released and snoozed": history(
			pushed("a", 0), delivered("a", 1, 1, 0, 0, 10), settled("a", 1, punctual.SettleRelease, 0, 0, nil), delivered("a", 2, 1, 0, 1, 10),
			settled("a", 2, punctual.SettleSnooze, 2, 3, nil), delivered("a", 3, 1, 5, 5, 10), acked("a", 3)),
		"two IDs": history(pushed("a", 0), event{Op: opPush, ID: "y", Life: "b", Push: punctual.PushStored, Due: at(0)},
			delivered("a", 1, 1, 0, 0, 10), event{Op: opCancel, ID: "y", Err: nil}, acked("a", 1)),
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range checkHistory(events, false) {
				t.Errorf("checkHistory found what is no violation: %v", v)
			}
		})
	}
}

func TestEventString(t *testing.T) {
	for i, e := range history(pushed("life", 1), delivered("life", 7, 1, 0, 0, 10), acked("life", 7), cancelled(punctual.ErrLeased), rescheduled(5), dead("life")) {
		if s := e.String(); !strings.Contains(s, fmt.Sprintf("[%d,%d]", 10*i, 10*i+5)) || !strings.Contains(s, x) {
			t.Errorf("event %d reads %q; want its call, return and ID", i, s)
		}
	}
}
