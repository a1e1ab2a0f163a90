package server

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/answers"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// A stream is a claim that goes on until its client ends it, the server drains or a claim fails.
// Its window bounds the messages that were sent and are neither settled nor past the end of their
// leases, so that a client which stops working gets no further messages until leases end. When the
// client goes, messages that were sent stay leased, because the client may still work on them. When
// a write fails, all messages that came from the store together with those being written are
// released.

// keepAlive is after how long a stream without messages sends a line with an empty object, so that
// proxies keep the connection open. If Limits.MaxWait is shorter the line comes after that.
const keepAlive = 15 * time.Second

// held identifies the lease of a message in a window.
type held struct {
	topic, id string
	token     int64
}

// window is the unsettled messages of one stream. Its maps are guarded by windows.mu.
type window struct {
	until  map[held]time.Time     // when each lease ends, by this process's clock
	length map[held]time.Duration // how long each lease was when it was claimed
	change chan struct{}          // holds one notice that a message was settled
}

// windows finds the window that contains a leased message. Its methods are safe for concurrent use.
type windows struct {
	mu sync.Mutex
	of map[held]*window // guarded by mu
}

// settled removes a message from its window, or notes the new end of its lease after an extension.
// It takes an extension without a length to be as long as the lease was when it was claimed, until
// call.settled knows the lease of the topic. err is the settlement's error.
func (ws *windows) settled(s *punctual.Settlement, err error, now time.Time) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.of) == 0 {
		return // so on most servers, which have no open streams
	}
	key := held{s.Topic, s.ID, s.Token}
	w := ws.of[key]
	switch {
	case w == nil:
		return
	case s.Verb == punctual.SettleExtend && err == nil:
		length := s.Delay
		if length == 0 {
			length = w.length[key]
		}
		w.until[key] = now.Add(length)
		return
	case s.Verb == punctual.SettleExtend && errors.Is(err, punctual.ErrCancelled):
		return // the lease stays until the client settles the message, or until it runs out
	case err != nil && !errors.Is(err, punctual.ErrLeaseLost) && !errors.Is(err, punctual.ErrCancelled):
		return // the client still has the lease
	}
	ws.remove(w, key)
	select {
	case w.change <- struct{}{}:
	default:
	}
}

// remove takes a message out of a window. The caller holds mu.
func (ws *windows) remove(w *window, key held) {
	delete(ws.of, key)
	delete(w.until, key)
	delete(w.length, key)
}

// add puts messages that were claimed into a window.
func (ws *windows) add(w *window, ds []punctual.Delivery, now time.Time) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.of == nil {
		ws.of = make(map[held]*window)
	}
	for _, d := range ds {
		key := held{d.Topic, d.ID, d.Token}
		length := d.LeaseUntil.Sub(d.Delivered)
		ws.of[key], w.until[key], w.length[key] = w, now.Add(length), length
	}
}

// open removes messages whose lease has ended from a window. It returns how many messages are left,
// and when the next lease ends.
func (ws *windows) open(w *window, now time.Time) (n int, next time.Time) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for key, until := range w.until {
		switch {
		case !until.After(now):
			ws.remove(w, key)
		case next.IsZero() || until.Before(next):
			next = until
		}
	}
	return len(w.until), next
}

// close forgets a window and its messages.
func (ws *windows) close(w *window) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for key := range w.until {
		ws.remove(w, key)
	}
}

// stream sends messages as they fall due, one on each line, and an empty object when there are none
// for keepAlive.
func (c *call) stream(req punctual.Claim) error {
	size, err := c.number("window", min(100, c.server.limits.MaxWindow))
	if err != nil {
		return err
	}
	if size < 1 || size > c.server.limits.MaxWindow {
		return storekit.Invalidf("window of %d messages: use 1 to %d", size, c.server.limits.MaxWindow)
	}
	h := c.w.Header()
	h.Set("Content-Type", wire.TypeNDJSON)
	h.Set("X-Accel-Buffering", "no") // so that a proxy does not delay lines in a buffer
	if err := c.line(wire.StreamLine{}); err != nil {
		return err
	}
	w := &window{until: make(map[held]time.Time), length: make(map[held]time.Duration), change: make(chan struct{}, 1)}
	defer c.server.windows.close(w)
	for !c.server.isDraining() {
		if err := c.streamMore(req, w, size); err != nil {
			if errors.Is(err, errNotSent) || c.r.Context().Err() != nil {
				return errors.Join(errNotSent, err)
			}
			return errors.Join(err, c.line(wire.StreamLine{Error: wire.ItemProblem(err)}))
		}
	}
	return nil
}

// streamMore claims and sends at most as many messages as the window has room for, or waits for
// room.
func (c *call) streamMore(req punctual.Claim, w *window, size int) error {
	n, next := c.server.windows.open(w, time.Now())
	if n >= size {
		return c.awaitRoom(w, time.Until(next))
	}
	req.Max, req.Wait = min(size-n, limits.MaxClaim), min(keepAlive, c.server.limits.MaxWait)
	ctx, end := context.WithTimeoutCause(c.r.Context(), req.Wait+c.server.limits.StoreTime, errStoreTime)
	defer end()
	ds, err := c.claimDue(ctx, req)
	switch {
	case err != nil:
		return err
	case len(ds) == 0:
		return c.line(wire.StreamLine{})
	}
	defer c.drop(answers.SizeOfDeliveries(ds))
	defer func() { c.keepsDeadline = false }()
	c.server.windows.add(w, ds, time.Now())
	var out []byte
	for i := range ds {
		d := wire.DeliveryOf(&ds[i])
		line, err := wire.Encode(wire.StreamLine{Message: &d})
		if err != nil {
			return c.giveBack(ctx, ds, err)
		}
		out = append(append(out, line...), '\n')
		if len(out) < pieceBytes && i < len(ds)-1 {
			continue
		}
		if err := c.send(http.StatusOK, out); err != nil {
			return c.giveBack(ctx, ds, err)
		}
		out = out[:0]
		c.keepsDeadline = true // for all lines of these messages together
	}
	return nil
}

// awaitRoom waits until a message of the window is settled or the server drains. When a lease of
// the window ends, or after keepAlive, it sends a line with an empty object and returns. If the
// client goes, it returns errNotSent.
func (c *call) awaitRoom(w *window, lease time.Duration) error {
	timer := time.NewTimer(min(lease, keepAlive))
	defer timer.Stop()
	select {
	case <-w.change:
		return nil
	case <-timer.C:
		return c.line(wire.StreamLine{})
	case <-c.server.draining.Done():
		return nil
	case <-c.r.Context().Done():
		return errNotSent
	}
}
