package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// Flags of a message on its way to push.lua.
const (
	pushDrop    = 1
	pushDue     = 2
	pushReplace = 4
	pushFail    = 8
)

// What push.lua says of a message.
const (
	pushStored    = 1
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
	args := make([]any, 1, 1+3*len(items))
	args[0] = s.sender
	for _, i := range items {
		args = append(args, results[i].ID, pushHead(&ms[i]), encodeRest(ms[i].Headers, ms[i].Body))
	}
	for {
		a, err := s.runPartition(ctx, pushScript, p, args...)
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
		for _, i := range items {
			fillPushed(&results[i], &ms[i], a.int(), a.int(), a.int())
		}
		if a.bad {
			return badReply(pushScript)
		}
		return nil
	}
}

func pushHead(m *punctual.NewMessage) []byte {
	due, flags := punctual.CeilDuration(m.Delay), byte(0)
	if !m.Due.IsZero() {
		due, flags = punctual.CeilMillis(m.Due), pushDue
	}
	if m.DropExpired {
		flags |= pushDrop
	}
	switch m.OnDuplicate {
	case punctual.ReplaceFirst:
		flags |= pushReplace
	case punctual.FailDuplicate:
		flags |= pushFail
	}
	b := appendDouble(make([]byte, 0, 21), due)
	b = appendDouble(b, punctual.CeilDuration(m.ExpireAfter))
	b = binary.LittleEndian.AppendUint32(b, uint32(m.MaxAttempts))
	return append(b, flags)
}

func fillPushed(r *punctual.PushResult, m *punctual.NewMessage, status, due, state int64) {
	switch status {
	case pushStored:
		r.Status, r.Due = punctual.PushStored, punctual.FromMillis(due)
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
