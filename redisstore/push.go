package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/punctualmq/punctual"
)

// What push.lua is to do when an ID is taken.
const (
	takenKeep    = 0
	takenReplace = 1
	takenFail    = 2
	takenNever   = 3 // the ID was just made up
)

// What push.lua says of a message that was not simply stored.
const (
	pushDuplicate = 2
	pushReplaced  = 3
	pushTaken     = 4
	pushTooFar    = 5
	pushPaused    = 6
	pushFinished  = 7
)

// Push stores messages; see punctual.Store. Messages of one topic travel by up to 500, or
// 4 MiB, per script.
func (s *Store) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	if err := punctual.CheckBatch(len(ms)); err != nil {
		return nil, err
	}
	results := make([]punctual.PushResult, len(ms))
	groups := newGroups(func(i int) partition { return s.names.partitionOf(ms[i].Topic, results[i].ID) })
	for i := range ms {
		results[i] = punctual.PushResult{ID: ms[i].ID, Topic: ms[i].Topic, Err: s.check(&ms[i])}
		if results[i].Err != nil {
			continue
		}
		if ms[i].ID == "" {
			results[i].ID = punctual.NewID(time.UnixMicro(s.clock.guess()))
		}
		groups.add(i, len(ms[i].Body))
	}
	err := groups.run(func(p partition, items []int) error { return s.pushTo(ctx, p, ms, results, items) })
	if err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	return results, nil
}

// check refuses what no clock reading could make acceptable.
func (s *Store) check(m *punctual.NewMessage) error {
	if err := m.Check(s.opt.MaxBody); err != nil {
		return err
	}
	_, err := punctual.DueAt(time.Time{}, m.Due, 0)
	if m.Due.IsZero() {
		return nil
	}
	return err
}

// pushTo pushes some messages to a partition, and makes their topic if there is none.
func (s *Store) pushTo(ctx context.Context, p partition, ms []punctual.NewMessage, results []punctual.PushResult, items []int) error {
	packed := packPush(ms, results, items)
	for {
		a, err := s.runPartition(ctx, pushScript, p, s.sender, packed)
		if err != nil {
			return err
		}
		if !a.exists {
			if err := s.createTopic(ctx, p); err != nil {
				return err
			}
			continue
		}
		s.waits.hint(p.topic, a.int())
		fillAllPushed(ms, results, items, a)
		if a.bad {
			return badReply(pushScript)
		}
		return nil
	}
}

// packPush packs messages for push.lua.
func packPush(ms []punctual.NewMessage, results []punctual.PushResult, items []int) []byte {
	size := packedBytes
	for _, i := range items {
		size += 4*packedBytes + len(results[i].ID) + maxDigits + restBytes(&ms[i])
	}
	b := packArray(make([]byte, 0, size), 4*len(items))
	var digits [maxDigits]byte
	var rest []byte
	for _, i := range items {
		m := &ms[i]
		b = packString(b, results[i].ID)
		if m.Due.IsZero() {
			b = packNumber(b, float64(punctual.CeilDuration(m.Delay)))
		} else {
			due := strconv.AppendInt(digits[:0], punctual.CeilMillis(m.Due), 10)
			b = append(packStringHead(b, len(due)), due...)
		}
		b = packNumber(b, float64(whenTaken(m)+4*messageFlags(m)))
		rest = appendRest(rest[:0], m)
		b = append(packStringHead(b, len(rest)), rest...)
	}
	return b
}

// maxDigits is how long a number of ms can be.
const maxDigits = 20

func whenTaken(m *punctual.NewMessage) byte {
	switch {
	case m.OnDuplicate == punctual.ReplaceFirst:
		return takenReplace
	case m.OnDuplicate == punctual.FailDuplicate:
		return takenFail
	case m.ID == "":
		return takenNever
	}
	return takenKeep
}

// fillAllPushed reads the answer of push.lua.
func fillAllPushed(ms []punctual.NewMessage, results []punctual.PushResult, items []int, a *answer) {
	up := a.int()
	for _, i := range items {
		due := punctual.CeilMillis(ms[i].Due)
		if ms[i].Due.IsZero() {
			due = up + punctual.CeilDuration(ms[i].Delay)
		}
		results[i].Status, results[i].Due = punctual.PushStored, punctual.FromMillis(due)
	}
	for !a.bad && len(a.items) > 0 {
		n := a.int()
		if n < 0 || n >= int64(len(items)) {
			a.bad = true
			return
		}
		i := items[n]
		results[i].Status, results[i].Due = punctual.PushNone, time.Time{}
		fillPushed(&results[i], &ms[i], a.int(), a.int(), a.int())
	}
}

func fillPushed(r *punctual.PushResult, m *punctual.NewMessage, status, due, state int64) {
	switch status {
	case pushReplaced:
		r.Status, r.Due = punctual.PushReplaced, punctual.FromMillis(due)
	case pushDuplicate:
		r.Status, r.Due, r.Existing = punctual.PushDuplicate, punctual.FromMillis(due), punctual.State(state)
	case pushFinished:
		r.Status = punctual.PushDuplicate
	case pushTaken:
		r.Err = fmt.Errorf("push of %s to %s: %w", r.ID, r.Topic, punctual.ErrDuplicate)
	case pushPaused:
		r.Err = fmt.Errorf("push to %s: %w", r.Topic, punctual.ErrPaused)
	default:
		r.Err = tooFar(fmt.Sprintf("push to %s after %v", m.Topic, m.Delay))
	}
}

func tooFar(what string) error {
	return fmt.Errorf("%s: due time lies after %s: %w", what, punctual.MaxDue.Format(time.RFC3339), punctual.ErrInvalid)
}
