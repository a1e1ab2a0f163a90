package duties

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// For a store that reaches only a family of topics in one step, storekit.Settle puts other
// follow-ups into envelopes, in the companion T@out of the message's topic. This duty pushes the
// follow-up in an envelope to its own topic and acks the envelope. The follow-up has had its ID
// since the settlement, and the ID stays in use for at least a day after the follow-up has
// finished. So a follow-up is stored once although a process dies between push and ack, with one
// exception: a follow-up with IfExistsReplace that has finished before the envelope comes again is
// stored a second time (docs/follow-ups.md).

// forwarding is the duty of the topics T@out.
func forwarding() Duty {
	return Duty{
		Name: "forward",
		Topic: func(name string) string {
			if strings.HasSuffix(name, "@out") {
				return name
			}
			return ""
		},
		New: func(t *Tools) Handler { return &forwarder{Tools: t, pushes: make(map[string]*pushes)} },
	}
}

const (
	// remembered is how long the ID of a follow-up stays in use at least after it has finished.
	remembered = 24 * time.Hour
	// longestPush bounds one push. So that a topic which hangs does not keep the slots of the
	// others (P14), only keptPushes of a topic may take so long. A push beside them ends after
	// latePush, and when the topic has answered nothing for latePush no further one begins.
	longestPush = 5 * time.Second
	latePush    = 300 * time.Millisecond
	keptPushes  = 4
	// busy is how long an envelope waits whose topic hangs.
	busy = time.Second
)

type forwarder struct {
	*Tools

	mu sync.Mutex
	// pushes has the topics with pushes under way. Guarded by mu.
	pushes map[string]*pushes
}

// pushes are those under way to one topic.
type pushes struct {
	underWay int
	// since is when the topic last answered, or when the first of these pushes began.
	since time.Time
}

// Handle forwards the follow-up in an envelope.
func (f *forwarder) Handle(ctx context.Context, d *punctual.Delivery) error {
	m, err := storekit.Forwarded(&d.Message)
	if err != nil {
		return punctual.Discard(fmt.Errorf("not forwarded: %w", err))
	}
	longest := f.begin(m.Topic)
	if longest == 0 {
		return punctual.Snooze(busy)
	}
	func() {
		defer func() { f.end(m.Topic, err) }() // also after a panic
		err = f.forward(ctx, longest, d, &m)
	}()
	switch {
	case err == nil:
		return nil
	case refused(err):
		return punctual.Discard(fmt.Errorf("not forwarded to %s: %w", m.Topic, err))
	}
	f.Logger.Log(ctx, LevelOf(err), "a follow-up waits to be forwarded", "topic", m.Topic, "id", m.ID, "envelope", d.ID, "err", err)
	return punctual.Snooze(Postponed(d, f.Backoff(ctx, d.Topic)))
}

// forward pushes m, the follow-up in the envelope d, unless that has been done before.
func (f *forwarder) forward(ctx context.Context, longest time.Duration, d *punctual.Delivery, m *punctual.NewMessage) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	if isAgain(d) {
		if there, err := f.isStored(ctx, d, m); err != nil || there {
			return err
		}
	}
	set, err := f.Settings(ctx, m.Topic)
	if err != nil {
		return err
	}
	if m.Remember == 0 {
		m.Remember = storekit.WholeMillis(min(set.DedupeWindow, limits.MaxFinishedRetention))
	}
	m.Remember = max(m.Remember, remembered)
	rs, err := f.Store.Push(ctx, []punctual.NewMessage{*m})
	if err != nil {
		return err
	}
	return rs[0].Err
}

// isAgain reports whether the envelope may have been forwarded before: another delivery of it
// counted as an attempt, was put off, or has failed before somebody requeued the envelope.
func isAgain(d *punctual.Delivery) bool {
	return d.Attempt > 1 || !d.Due.Equal(d.FirstDue) || len(d.Failures) > 0
}

// isStored reports whether the topic has m from an earlier delivery of the envelope d. An ID that
// is in use is no proof, because m may be to replace what has it, or to fail then. If the store
// does not answer, the envelope has to wait for its next delivery, because a push that fails if its
// ID is in use would take an earlier push of its own for that of somebody else. One who may not
// read never learns it, so that the push decides.
func (f *forwarder) isStored(ctx context.Context, d *punctual.Delivery, m *punctual.NewMessage) (bool, error) {
	if f.Inspector == nil || m.Headers[storekit.AfterHeader] == "" {
		return false, nil
	}
	i, err := f.Inspector.Get(ctx, m.Topic, m.ID)
	switch {
	case err == nil:
		return !i.Created.Before(d.Created) && i.Headers[storekit.AfterHeader] == m.Headers[storekit.AfterHeader], nil
	case errors.Is(err, punctual.ErrNotFound), errors.Is(err, punctual.ErrForbidden), errors.Is(err, punctual.ErrUnsupported):
		return false, nil
	}
	return false, fmt.Errorf("find out whether %s in %s was forwarded before: %w", m.ID, m.Topic, err)
}

// refused reports whether an error of a push says that the message can never be stored as it is.
func refused(err error) bool {
	for _, kind := range []error{
		punctual.ErrInvalid, punctual.ErrTooLarge, punctual.ErrUnsupported, punctual.ErrDuplicate, punctual.ErrChanged, punctual.ErrForbidden,
	} {
		if errors.Is(err, kind) {
			return punctual.Definite(err)
		}
	}
	return false
}

// begin counts a push to the topic, and returns how long it may take: 0 if it must not begin,
// because the topic hangs.
func (f *forwarder) begin(topic string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pushes[topic]
	if p == nil {
		p = &pushes{since: time.Now()}
		f.pushes[topic] = p
	}
	longest := longestPush
	if p.underWay >= keptPushes {
		longest = latePush
		if time.Since(p.since) > latePush {
			return 0
		}
	}
	p.underWay++
	return longest
}

// end ends what begin began, with the outcome of the push.
func (f *forwarder) end(topic string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pushes[topic]
	if !errors.Is(err, context.DeadlineExceeded) {
		p.since = time.Now()
	}
	if p.underWay--; p.underWay == 0 {
		delete(f.pushes, topic)
	}
}
