package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Push stores messages; see punctual.Store.
func (s *Store) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return call(ctx, s, "push", "", storekit.CheckBatch(len(ms)), func() ([]punctual.PushResult, error) {
		if err := s.refusal(); err != nil {
			return nil, err
		}
		p := s.pushOf(ms)
		err := inParts(p.parts(), func(part []int) error {
			ctx, end := within(ctx)
			defer end()
			return besideHeld(part, len(ms) > 1, func(patience time.Duration, group []int) (left []int, err error) {
				p.patience = patience
				return p.push(ctx, ownWay{s}, group)
			}, p.refuse)
		}, p.refuse)
		if err == nil {
			s.waits.pushed(p.out)
		}
		return p.out, err
	})
}

// push is a call of Push.
type push struct {
	s   *Store
	ms  []punctual.NewMessage
	out []punctual.PushResult

	patience time.Duration // for how long its next transaction waits for a lock; 0, in one of the caller's, is as that has it
}

// pushOf checks messages and names those that have no ID.
func (s *Store) pushOf(ms []punctual.NewMessage) *push {
	p := &push{s: s, ms: ms, out: make([]punctual.PushResult, len(ms))}
	now := time.UnixMicro(s.clock.guess())
	for i := range ms {
		m, r := &ms[i], &p.out[i]
		r.ID, r.Topic = m.ID, m.Topic
		if r.Err = storekit.CheckPush(m, s.opt.MaxBody); r.Err != nil {
			continue
		}
		if _, r.Err = storekit.DueAt(now, m.Due, m.Delay); r.Err != nil {
			continue
		}
		if r.ID == "" {
			r.ID = storekit.NewID(now)
		}
	}
	return p
}

// parts are those of the messages that are in order.
func (p *push) parts() [][]int {
	var fit []int
	for i := range p.out {
		if p.out[i].Err == nil {
			fit = append(fit, i)
		}
	}
	return parts(fit, p.name, func(i int) int { return len(p.ms[i].Body) })
}

func (p *push) name(i int) name { return name{p.out[i].Topic, p.out[i].ID} }

// topics are the distinct ones of a part.
func (p *push) topics(part []int) []string {
	return distinct(part, func(i int) string { return p.ms[i].Topic })
}

// share begins a step that keeps the topics of a part from being deleted.
func (p *push) share(part []int) *step {
	var patience *string
	if p.patience > 0 {
		text := lockTimeoutOf(p.patience)
		patience = &text
	}
	return p.s.step().add("topics_share", []any{p.s.class, p.topics(part), patience}, nil)
}

func distinct(part []int, topicOf func(i int) string) []string {
	var out []string
	seen := make(map[string]bool)
	for _, i := range part {
		if t := topicOf(i); !seen[t] {
			seen[t] = true
			out = append(out, t)
		}
	}
	return out
}

// way is how the steps of a push reach the server: in transactions of its own, or in one of the caller's.
type way interface {
	// write runs a step that is a transaction, or the next part of one.
	write(ctx context.Context, build func() *step) error
	// create runs a step that makes topics. It may be a transaction of its own, so that nobody else who needs one of them waits.
	create(ctx context.Context, build func() *step) error
	// transact runs f in a transaction, or in the one that there is.
	transact(ctx context.Context, f func(ctx context.Context, to stepper) error) error
}

// stepper takes the steps of a transaction.
type stepper interface {
	send(ctx context.Context, x *step) error
}

// push stores the messages of a part. Most often nothing is in their way, and one step is all. With an error it returns
// those messages that it has decided nothing of.
func (p *push) push(ctx context.Context, w way, part []int) (left []int, err error) {
	for left = part; len(left) > 0; {
		got, err := p.insert(ctx, w, left)
		if err != nil {
			return left, err
		}
		var unknown, taken []int
		for _, i := range left {
			switch paused, there := got.paused[p.ms[i].Topic]; {
			case p.took(i, got):
			case !there:
				unknown = append(unknown, i)
			case paused:
				p.out[i].Err = errPaused(p.ms[i].Topic)
			default:
				taken = append(taken, i)
			}
		}
		gone, err := p.pushTaken(ctx, w, taken)
		if err != nil {
			return append(unknown, taken...), err
		}
		left = append(unknown, gone...)
		if len(unknown) > 0 {
			if err := p.s.createTopics(ctx, w, p.topics(unknown), p.patience); err != nil {
				return left, err
			}
		}
	}
	return nil, nil
}

// refuse gives a message an error in the place of what was found out of it before.
func (p *push) refuse(i int, err error) {
	r := &p.out[i]
	*r = punctual.PushResult{ID: r.ID, Topic: r.Topic, Err: err}
}

func errPaused(topic string) error { return fmt.Errorf("push to %s: %w", topic, punctual.ErrPaused) }

// inserted is the answer of push.sql.
type inserted struct {
	micros  int64
	numbers map[string]int32 // of the topics that there are
	paused  map[string]bool  // of the same
	due     map[stored]int64 // the messages that were stored, with their due times in ms
}

// stored names a message that was stored.
type stored struct {
	topic int32
	id    string
}

// scan reads a row of a topic, or one of a message.
func (g *inserted) scan(rows scanner) error {
	var number int32
	var topic, id *string
	var paused *bool
	var due *int64
	if err := rows.Scan(&g.micros, &number, &topic, &paused, &id, &due); err != nil {
		return err
	}
	if id != nil {
		g.due[stored{number, *id}] = *due
		return nil
	}
	g.numbers[*topic], g.paused[*topic] = number, *paused
	return nil
}

// insert stores those messages that nothing is in the way of.
func (p *push) insert(ctx context.Context, w way, part []int) (*inserted, error) {
	var got *inserted
	err := w.write(ctx, func() *step {
		got = newInserted()
		return p.share(part).add("push", p.args(part), got.scan)
	})
	if err != nil {
		return nil, err
	}
	p.s.clock.hear(got.micros)
	return got, nil
}

func newInserted() *inserted {
	return &inserted{numbers: make(map[string]int32), paused: make(map[string]bool), due: make(map[stored]int64)}
}

// took takes in what became of a message, and reports whether that is decided: it was stored, or would be due too late.
func (p *push) took(i int, got *inserted) bool {
	r := &p.out[i]
	if due, ok := got.due[stored{got.numbers[r.Topic], r.ID}]; ok {
		r.Due, r.Status = storekit.FromMillis(due), storedAs(r.Status)
		return true
	}
	if _, there := got.paused[r.Topic]; there {
		_, r.Err = storekit.DueAt(time.UnixMicro(got.micros), p.ms[i].Due, p.ms[i].Delay)
	}
	return r.Err != nil
}

// storedAs is that of a message which was stored: it may have been found before that it replaces another one.
func storedAs(known punctual.PushStatus) punctual.PushStatus {
	if known == punctual.PushNone {
		return punctual.PushStored
	}
	return known
}

// args are those of push.sql.
func (p *push) args(part []int) []any {
	n := len(part)
	topics, ids, dues, delays := make([]string, n), make([]string, n), make([]*int64, n), make([]int64, n)
	attempts, drops, expires := make([]int32, n), make([]bool, n), make([]*int64, n)
	headers, bodies, remember := make([][]byte, n), make([][]byte, n), make([]*int64, n)
	for at, i := range part {
		m := &p.ms[i]
		topics[at], ids[at], delays[at] = m.Topic, p.out[i].ID, storekit.CeilDuration(m.Delay)
		if !m.Due.IsZero() {
			due := storekit.CeilMillis(m.Due)
			dues[at] = &due
		}
		if m.ExpireAfter > 0 {
			after := storekit.CeilDuration(m.ExpireAfter)
			expires[at] = &after
		}
		if m.Remember > 0 {
			keep := storekit.CeilDuration(m.Remember)
			remember[at] = &keep
		}
		attempts[at], drops[at] = int32(m.MaxAttempts), m.DropExpired
		headers[at] = encodeHeaders(m.Headers)
		if len(m.Body) > 0 {
			bodies[at] = m.Body
		}
	}
	return p.s.writing(topics, ids, dues, delays, attempts, drops, expires, headers, bodies, remember)
}

// createTopics makes topics that do not exist. It waits as long as patience, unless that is 0, for a transaction that makes one of them.
func (s *Store) createTopics(ctx context.Context, w way, topics []string, patience time.Duration) error {
	args, err := settingsArgs(punctual.DefaultSettings())
	if err != nil {
		return err
	}
	return w.create(ctx, func() *step {
		x := s.step()
		if patience > 0 {
			x.add("patience", []any{lockTimeoutOf(patience)}, nil)
		}
		return x.add("topic_create", append([]any{topics}, args...), nil)
	})
}

// pushTaken pushes messages whose ID somebody had. It returns those whose ID or topic is gone meanwhile. Whoever stores
// new rows may wait for other transactions, and holds no row then that they may want.
func (p *push) pushTaken(ctx context.Context, w way, part []int) (gone []int, err error) {
	if len(part) == 0 {
		return nil, nil
	}
	err = w.transact(ctx, func(ctx context.Context, to stepper) error {
		gone = nil
		l, err := p.s.lockNames(ctx, to, p.share(part), part, p.name)
		if err != nil {
			return err
		}
		var taken []int // those to be stored
		for _, i := range part {
			p.out[i].Status = punctual.PushNone
			switch set := l.settings[p.ms[i].Topic]; {
			case set == nil:
				gone = append(gone, i)
			case set.PushPaused:
				p.out[i].Err = errPaused(p.ms[i].Topic)
			case l.rows[p.name(i)] == nil:
				gone = append(gone, i)
			case p.decide(i, l):
				taken = append(taken, i)
			}
		}
		if len(taken) == 0 {
			return nil
		}
		got := newInserted()
		if err := to.send(ctx, p.s.step().add("replace", p.args(taken), got.scan)); err != nil {
			return err
		}
		for _, i := range taken {
			p.took(i, got)
		}
		return nil
	})
	return gone, err
}

// decide says what becomes of a message, by who has its ID, and reports whether it is to be stored (P7).
func (p *push) decide(i int, l *locked) bool {
	m, r := &p.ms[i], &p.out[i]
	r.Err, r.Existing, r.Due = nil, punctual.StateNone, time.Time{}
	old := l.rows[p.name(i)]
	state := old.state(l.now, l.settings[m.Topic])
	remembered := old.remembered(l.now)
	switch {
	case state == punctual.StateNone && (!remembered || m.IfExists == punctual.IfExistsReplace):
		// The ID is free, or used again.
	case state == punctual.StateDead && (m.IfExists == punctual.IfExistsKeep || m.IfExists == punctual.IfExistsFail):
		r.Existing, r.Err = state, storekit.DuplicateError(r.Topic, r.ID, storekit.FromMillis(*old.diedAt))
		return false
	case m.IfExists == punctual.IfExistsFail:
		r.Err = storekit.DuplicateError(r.Topic, r.ID, time.Time{})
		return false
	case state != punctual.StateDead && m.IfExists != punctual.IfExistsReplace:
		r.Status = punctual.PushDuplicate
		if state != punctual.StateNone {
			r.Due, r.Existing = storekit.FromMillis(old.due), state
		}
		return false
	default:
		r.Status = punctual.PushReplaced
	}
	return true
}
