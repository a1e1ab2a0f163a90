package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/record"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// What push.lua is to do when an ID is in use.
const (
	inUseKeep        = 0
	inUseReplace     = 1
	inUseFail        = 2
	inUseNever       = 3 // it is not, because the ID was just made
	inUseReplaceDead = 4 // replace a dead message, and keep any other
)

// What push.lua says of a message that was not simply stored.
const (
	pushDuplicate = 2
	pushReplaced  = 3
	pushInUse     = 4
	pushTooFar    = 5
	pushPaused    = 6
	pushFinished  = 7
	pushDead      = 8
)

// Push stores messages; see punctual.Store. A script takes up to 200 messages of one partition, or 512 KiB.
func (s *Store) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return call(ctx, s, "push", "", storekit.Plain(storekit.CheckBatch(len(ms))), func() ([]punctual.PushResult, error) { return s.push(ctx, ms) })
}

func (s *Store) push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	key, err := s.keyOf(ctx, func() storekit.Sum { return storekit.SumOfPush(ms) })
	if err != nil {
		return nil, err
	}
	p := pushing{s: s, ms: ms, key: key, results: make([]punctual.PushResult, len(ms))}
	j := routing{
		s: s, items: make([]item, len(ms)), create: true, id: func(i int) string { return p.results[i].ID }, pack: p.pack, ask: p.ask,
		refuse: func(i int, err error) { p.results[i].Err = fmt.Errorf("push to %s: %w", ms[i].Topic, err) },
	}
	for i := range ms {
		p.results[i] = punctual.PushResult{ID: ms[i].ID, Topic: ms[i].Topic, Err: s.check(&ms[i])}
		if p.results[i].Err != nil {
			j.items[i].done = true
			continue
		}
		switch {
		case ms[i].ID != "":
		case key != nil:
			p.results[i].ID = storekit.IDOfKey(key.Key, i)
		default:
			p.results[i].ID = storekit.NewID(s.clock.Time())
		}
		j.items[i] = item{topic: ms[i].Topic, bytes: len(ms[i].Body)}
	}
	p.items = j.items
	return p.results, j.run(ctx)
}

// pushing is a Push on its way.
type pushing struct {
	s       *Store
	ms      []punctual.NewMessage
	key     *keyed
	results []punctual.PushResult
	items   []item
}

// check refuses a message that is not acceptable whatever the store's clock says. push.lua checks delays.
func (s *Store) check(m *punctual.NewMessage) error {
	if err := storekit.CheckPush(m, s.opt.MaxBody); err != nil {
		return err
	}
	_, err := storekit.DueAt(time.Time{}, m.Due, 0)
	if m.Due.IsZero() {
		return nil
	}
	return err
}

// ask pushes some messages to a partition.
func (p *pushing) ask(ctx context.Context, c *chunk, args []any) (int64, func() error, error) {
	if err := p.s.health.Refusal(); err != nil {
		return 0, nil, err
	}
	a, err := p.s.route.Run(ctx, script.Push, c.Partition, p.key.part(c.Items), args...)
	if err != nil {
		return 0, nil, err
	}
	stored := a.Version == c.Note.Version
	if stored {
		p.s.waits.notify(c.Partition, a.Int())
	}
	return a.Version, func() error {
		if stored {
			p.fillAll(a, c.Items)
		}
		if a.Bad {
			return script.BadReply(script.Push)
		}
		return nil
	}, nil
}

// pack builds the arguments of push.lua. The bytes of the records that follow each due time share one allocation.
func (p *pushing) pack(c *chunk) []any {
	size, all := record.PackedBytes, 0
	for _, i := range c.Items {
		size += 3*record.PackedBytes + len(p.results[i].ID) + maxDigits
		all += record.RestBytes(&p.ms[i])
	}
	args := make([]any, 2, 2+len(c.Items))
	b, rest := record.PackArray(make([]byte, 0, size), 3*len(c.Items)), make([]byte, 0, all)
	var digits [maxDigits]byte
	for _, i := range c.Items {
		m := &p.ms[i]
		b = record.PackString(b, p.results[i].ID)
		if m.Due.IsZero() {
			b = record.PackNumber(b, float64(storekit.CeilDuration(m.Delay)))
		} else {
			due := strconv.AppendInt(digits[:0], storekit.CeilMillis(m.Due), 10)
			b = append(record.PackStringHead(b, len(due)), due...)
		}
		b = record.PackNumber(b, float64(int(p.whenInUse(m))+8*int(record.Flags(m))))
		begin := len(rest)
		rest = record.AppendRest(rest, m)
		args = append(args, rest[begin:])
	}
	args[0], args[1] = b, c.Note.Version
	return args
}

// maxDigits is how long a number of ms can be.
const maxDigits = 20

func (p *pushing) whenInUse(m *punctual.NewMessage) byte {
	switch {
	case m.IfExists == punctual.IfExistsReplace:
		return inUseReplace
	case m.IfExists == punctual.IfExistsFail:
		return inUseFail
	case m.IfExists == punctual.IfExistsReplaceDead && m.ID != "":
		return inUseReplaceDead
	case m.ID == "" && p.key == nil:
		return inUseNever
	}
	return inUseKeep
}

// fillAll reads the answer of push.lua.
func (p *pushing) fillAll(a *script.Answer, items []int) {
	up := a.Int()
	for _, i := range items {
		due := storekit.CeilMillis(p.ms[i].Due)
		if p.ms[i].Due.IsZero() {
			due = up + storekit.CeilDuration(p.ms[i].Delay)
		}
		p.results[i].Status, p.results[i].Due = punctual.PushStored, storekit.FromMillis(due)
		p.items[i].done = true
	}
	for !a.Bad && len(a.Items) > 0 {
		n := a.Int()
		if n < 0 || n >= int64(len(items)) {
			a.Bad = true
			return
		}
		i := items[n]
		p.results[i].Status, p.results[i].Due = punctual.PushNone, time.Time{}
		status, due, state := a.Int(), a.Int(), a.Int()
		fillPushed(&p.results[i], &p.ms[i], status, due, state)
	}
}

func fillPushed(r *punctual.PushResult, m *punctual.NewMessage, status, due, state int64) {
	switch status {
	case pushReplaced:
		r.Status, r.Due = punctual.PushReplaced, storekit.FromMillis(due)
	case pushDuplicate:
		r.Status, r.Due, r.Existing = punctual.PushDuplicate, storekit.FromMillis(due), punctual.State(state)
	case pushFinished:
		r.Status = punctual.PushDuplicate
	case pushInUse:
		r.Err = storekit.DuplicateError(r.Topic, r.ID, time.Time{})
	case pushDead:
		r.Existing, r.Err = punctual.StateDead, storekit.DuplicateError(r.Topic, r.ID, storekit.FromMillis(due))
	case pushPaused:
		r.Err = fmt.Errorf("push to %s: %w", r.Topic, punctual.ErrPaused)
	default:
		r.Err = tooFar(fmt.Sprintf("push to %s after %v", m.Topic, m.Delay))
	}
}

func tooFar(what string) error {
	return fmt.Errorf("%s: due time lies after %s: %w", what, punctual.MaxDue.Format(time.RFC3339), punctual.ErrInvalid)
}
