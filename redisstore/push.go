package redisstore

import (
	"context"
	"fmt"
	"slices"
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
	pushElsewhere = 8
)

// Push stores messages; see punctual.Store. Messages of one partition travel by up to 500, or
// 4 MiB, per script.
func (s *Store) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	if err := punctual.CheckBatch(len(ms)); err != nil {
		return nil, err
	}
	p := pushing{s: s, ms: ms, results: make([]punctual.PushResult, len(ms)), above: make([]int64, len(ms))}
	j := journey{s: s, stops: make([]stop, len(ms)), create: true, homes: p.homes, ask: p.ask}
	for i := range ms {
		p.results[i] = punctual.PushResult{ID: ms[i].ID, Topic: ms[i].Topic, Err: s.check(&ms[i])}
		if p.results[i].Err != nil {
			j.stops[i].done = true
			continue
		}
		if ms[i].ID == "" {
			p.results[i].ID = punctual.NewID(time.UnixMicro(s.clock.guess()))
		}
		j.stops[i] = stop{topic: ms[i].Topic, bytes: len(ms[i].Body)}
	}
	p.stops = j.stops
	if err := j.run(ctx); err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	return p.results, nil
}

// pushing is a Push on its way.
type pushing struct {
	s       *Store
	ms      []punctual.NewMessage
	results []punctual.PushResult
	stops   []stop
	above   []int64 // the newest token of the older homes of each message
}

// homes are those that a message may be in: the oldest first, the one to store it in last.
// Nobody has used an ID that was made just now.
func (p *pushing) homes(l *layout, i int) []int {
	p.above[i] = 0
	out := l.homes(p.results[i].ID)
	if p.ms[i].ID == "" {
		return out[:1]
	}
	slices.Reverse(out)
	return out
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

// ask pushes some messages to a partition. One that they had before the topic grew acts on
// those that it has.
func (p *pushing) ask(ctx context.Context, l *layout, c *chunk) (int64, error) {
	var above int64
	for _, i := range c.items {
		above = max(above, p.above[i])
	}
	a, err := p.s.runPartition(ctx, pushScript, c.p, p.s.sender, p.pack(c), l.version, flag(!c.last), above)
	if err != nil {
		return 0, err
	}
	if a.version == l.version {
		p.s.waits.hint(c.p, a.int())
		p.fillAll(a, c.items)
	}
	if a.bad {
		return 0, badReply(pushScript)
	}
	return a.version, nil
}

// pack packs messages for push.lua. An older home needs their bodies only to replace what it has.
func (p *pushing) pack(c *chunk) []byte {
	size := packedBytes
	for _, i := range c.items {
		size += 4*packedBytes + len(p.results[i].ID) + maxDigits + restBytes(&p.ms[i])
	}
	b := packArray(make([]byte, 0, size), 4*len(c.items))
	var digits [maxDigits]byte
	var rest []byte
	for _, i := range c.items {
		m := &p.ms[i]
		b = packString(b, p.results[i].ID)
		if m.Due.IsZero() {
			b = packNumber(b, float64(punctual.CeilDuration(m.Delay)))
		} else {
			due := strconv.AppendInt(digits[:0], punctual.CeilMillis(m.Due), 10)
			b = append(packStringHead(b, len(due)), due...)
		}
		b = packNumber(b, float64(whenTaken(m)+4*messageFlags(m)))
		rest = rest[:0]
		if c.last || m.OnDuplicate == punctual.ReplaceFirst {
			rest = appendRest(rest, m)
		}
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

// fillAll reads the answer of push.lua.
func (p *pushing) fillAll(a *answer, items []int) {
	up, token := a.int(), a.int()
	for _, i := range items {
		due := punctual.CeilMillis(p.ms[i].Due)
		if p.ms[i].Due.IsZero() {
			due = up + punctual.CeilDuration(p.ms[i].Delay)
		}
		p.results[i].Status, p.results[i].Due = punctual.PushStored, punctual.FromMillis(due)
		p.stops[i].done = true
	}
	for !a.bad && len(a.items) > 0 {
		n := a.int()
		if n < 0 || n >= int64(len(items)) {
			a.bad = true
			return
		}
		i := items[n]
		p.results[i].Status, p.results[i].Due = punctual.PushNone, time.Time{}
		status, due, state := a.int(), a.int(), a.int()
		if status == pushElsewhere {
			p.stops[i].done, p.above[i] = false, max(p.above[i], token)
			continue
		}
		fillPushed(&p.results[i], &p.ms[i], status, due, state)
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
