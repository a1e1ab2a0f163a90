package bulk

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Suffix ends the name of a companion: orders@bulk has the places of the shifts of orders (Shift),
// so that one that was stopped can go on.
const Suffix = "@bulk"

// A shift that was stopped must not begin anew, because it would move again what it has moved
// already. So it keeps its place in the store, in the companion topic bulk of the topic: a message
// whose ID is Job.ID or a hash of the shift, and whose body says where the window begins that is
// being changed. Nobody claims that message.
//
// The place of a window is stored before the first of its messages is moved. After a kill the
// window is read again, and some of its messages may have been moved. So the window is narrower
// than the shift is long: whatever was moved has left it, in the direction from which the list
// comes. For example, a shift by +1 h reads from the latest message down, and of the window from
// 11:00 to 12:00 each message that was moved is due after 12:00.

// Memory is how long the place of a shift counts, from the start of the shift. A call that comes
// later begins anew. The message with the place stays in the companion topic until a later call
// with the same shift or ID replaces or cancels it.
const Memory = 24 * time.Hour

// bulkPlace is where a bulk is in its list.
type bulkPlace struct {
	// window is the time, in Unix ms, of the first message in the window that is being changed. It
	// counts if windowed is set; otherwise the list begins where the Selection says.
	window   int64
	windowed bool
	// kept tells that the place of this window is in the store. version is the due time of the
	// message there, or zero when there is none: each replacement gives a later one, and replaces
	// only the version that it knows, so that of two calls with the same shift one stops. A place
	// whose due time has passed no longer counts.
	kept    bool
	version time.Time
}

// storedPlace is the body of the message that keeps a place, as JSON.
type storedPlace struct {
	Shift    string `json:"shift"`  // the hash of the shift
	Window   int64  `json:"window"` // Unix ms
	Begun    int64  `json:"begun"`  // Unix ms
	Complete bool   `json:"complete,omitempty"`
}

// leaves reports whether a message at this time lies outside the window that is being changed.
func (r *bulkRun) leaves(at int64) bool {
	by := r.By.Abs().Milliseconds()
	return !r.windowed || at <= r.window-by || at >= r.window+by
}

// resume finds the place at which the same shift was stopped, and reports whether the shift is
// complete. A place whose due time has passed is written over.
func (r *bulkRun) resume(ctx context.Context, now time.Time) (complete bool, err error) {
	topic, id := r.placeName()
	m, err := r.inspector.Get(ctx, topic, id)
	if errors.Is(err, punctual.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the place: %w", err)
	}
	r.version = m.Due
	if !m.Due.After(now) {
		return false, nil
	}
	var s storedPlace
	if err := json.Unmarshal(m.Body, &s); err != nil {
		return false, fmt.Errorf("the place of the shift in %s, message %s, cannot be read, so it is not known what was moved; cancel that message to begin anew: %w: %w", topic, id, punctual.ErrCorrupt, err)
	}
	if s.Shift != r.sum() {
		return false, storekit.Invalidf("the ID %s is that of another shift: use another one", r.ID)
	}
	r.begun = s.Begun
	r.report.Continued = time.UnixMilli(s.Begun).UTC()
	if s.Complete {
		return true, nil
	}
	r.window, r.windowed = s.Window, true
	return false, nil
}

// keep stores the place of a shift before the first message of a window is moved.
func (r *bulkRun) keep(ctx context.Context) error {
	if r.Do != Shift || r.kept {
		return nil
	}
	if err := r.storePlace(ctx, false); err != nil {
		return err
	}
	r.kept = true
	return nil
}

func (r *bulkRun) storePlace(ctx context.Context, complete bool) error {
	topic, id := r.placeName()
	body, err := json.Marshal(storedPlace{Shift: r.sum(), Window: r.window, Begun: r.begun, Complete: complete})
	if err != nil {
		return fmt.Errorf("keep the place: %w", err)
	}
	m := punctual.NewMessage{Topic: topic, ID: id, Body: body, IfExists: punctual.IfExistsFail, Due: time.UnixMilli(r.begun).Add(Memory).UTC()}
	if !r.version.IsZero() {
		m.IfExists, m.IfDue = punctual.IfExistsReplace, r.version
		if next := r.version.Add(time.Millisecond); next.After(m.Due) {
			m.Due = next
		}
	}
	rs, err := r.queue.Store().Push(ctx, []punctual.NewMessage{m})
	if err == nil {
		err = rs[0].Err
	}
	switch {
	case errors.Is(err, punctual.ErrChanged), errors.Is(err, punctual.ErrDuplicate):
		return fmt.Errorf("the same shift is under way elsewhere: its place in %s: %w", topic, punctual.ErrChanged)
	case err != nil:
		return fmt.Errorf("keep the place: %w", err)
	}
	r.version = m.Due
	return nil
}

// finish notes that a shift with an ID is complete, also if no message was to be moved, so that a
// repetition moves none of those that were pushed since. It removes the place of a shift without an
// ID, if one was stored.
func (r *bulkRun) finish(ctx context.Context) error {
	switch {
	case r.DryRun:
		return nil
	case r.ID != "":
		return r.storePlace(ctx, true)
	case r.version.IsZero():
		return nil
	}
	topic, id := r.placeName()
	as, err := r.queue.Store().Amend(ctx, []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: topic, ID: id, IfDue: r.version}})
	if err == nil {
		err = as[0].Err
	}
	if err == nil || errors.Is(err, punctual.ErrNotFound) || errors.Is(err, punctual.ErrChanged) {
		return nil
	}
	return fmt.Errorf("its place, message %s in %s, may still be there: cancel it before you shift the same messages again: %w", id, topic, err)
}

// placeName is the name of the message that keeps the place: the topic, and the ID of the shift, or
// what it moves and how far.
func (r *bulkRun) placeName() (topic, id string) {
	if r.ID != "" {
		return r.Select.Topic + Suffix, r.ID
	}
	return r.Select.Topic + Suffix, "shift-" + r.sum()
}

// sum is a hash of all that says which messages of the topic the shift moves and how far. Each part
// is in quotes, so that no two shifts of a topic give the same bytes.
func (r *bulkRun) sum() string {
	h := sha256.New()
	s := &r.Select
	for _, part := range []any{s.State, s.From.UnixMilli(), s.To.UnixMilli(), s.Error, s.IDPrefix, r.By} {
		fmt.Fprintf(h, "%q ", fmt.Sprint(part))
	}
	if s.Key != "" {
		fmt.Fprintf(h, "key %q ", s.Key)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		fmt.Fprintf(h, "%q=%q ", name, s.Headers[name])
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:12])
}
