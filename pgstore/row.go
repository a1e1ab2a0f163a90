package pgstore

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// messageName names a message.
type messageName struct{ topic, id string }

// row is a row of the table message, mostly one that a transaction has locked. It is a live
// message, a dead one, or neither: then it is the remembered ID of a finished message.
type row struct {
	messageName
	lifecycle.Message
	number     int32 // of the topic
	created    int64
	leasedAt   int64 // when its last lease began, 0 if that is not known; it counts only while there is a lease
	live, dead bool
	forgetAt   int64 // when the ID of a finished message is free again; 0 in a row that is live or dead
	replaced   bool  // a follow-up of the message's own settlement takes this row, so nothing else is to be written there

	// What changes.apply has decided to keep of a message that finishes. recordUntil is 0 unless a
	// finished record is kept.
	outcome              punctual.Outcome
	endedAt, recordUntil int64
}

// scanRow reads a row of lock.sql or lock_free.sql.
func scanRow(rows scanner) (*row, error) {
	r := &row{}
	var visibleAt, expireAfter, diedAt, forgetAt, remember, leasedAt, since *int64
	var reason *string
	err := rows.Scan(&r.topic, &r.id, &r.number, &visibleAt, &r.Due, &r.FirstDue, &r.Token, &r.Attempts, &r.MaxAttempts,
		&r.CancelRequested, &r.DropExpired, &expireAfter, &diedAt, &reason, &forgetAt, &remember, &r.created, &leasedAt, &since)
	r.leasedAt, r.Since = orZero(leasedAt), orZero(since)
	r.ExpireAfter, r.Remember, r.forgetAt = orZero(expireAfter), orZero(remember), orZero(forgetAt)
	r.place(visibleAt, diedAt, reason)
	return r, err
}

// place takes in the columns that say whether a message is live or dead. The caller has set the
// token before.
func (r *row) place(visibleAt, diedAt *int64, reason *string) {
	switch {
	case visibleAt != nil:
		r.live = true
		if r.Token != 0 {
			r.LeaseUntil = *visibleAt
		}
	case diedAt != nil:
		r.dead, r.Died, r.Reason = true, *diedAt, punctual.DeathReason(orZero(reason))
	}
}

// orZero returns the value of a column in which NULL means the same as the zero value.
func orZero[T any](column *T) (value T) {
	if column != nil {
		value = *column
	}
	return value
}

// state returns the state of the message at now, in ms: StateNone for the remembered ID of a
// finished message and for a dead message past its retention. A message is dead by its column
// died_at, so that one that has lost its reason does not pass for a live one.
func (r *row) state(now int64, set *punctual.Settings) punctual.State {
	switch {
	case r.live:
		return r.State(now)
	case r.dead && !lifecycle.PastRetention(r.Died, set, now):
		return punctual.StateDead
	}
	return punctual.StateNone
}

// holder returns what a push of the row's ID meets. A nil row stands for a free ID.
func (r *row) holder(now int64, set *punctual.Settings) lifecycle.Holder {
	if r == nil {
		return lifecycle.Holder{}
	}
	return lifecycle.Holder{State: r.state(now, set), Due: r.Due, Died: r.Died, Remembered: r.forgetAt > now}
}

// setAttributes gives a message that is read the attributes of its block, which is nil when it has
// none. The column remember repeats one of them, because statements need it.
func setAttributes(m *punctual.Message, block []byte) error {
	a, err := storekit.ReadAttributes(block)
	if err != nil {
		return fmt.Errorf("%w: %w", err, punctual.ErrCorrupt)
	}
	a.Set(m)
	return nil
}

// encodeHeaders writes headers, sorted by name, each name and value after its length. It returns
// nil if there are none.
func encodeHeaders(h map[string]string) []byte {
	var out []byte
	for _, key := range slices.Sorted(maps.Keys(h)) {
		for _, text := range []string{key, h[key]} {
			out = binary.AppendUvarint(out, uint64(len(text)))
			out = append(out, text...)
		}
	}
	return out
}

// decodeHeaders is the inverse of encodeHeaders.
func decodeHeaders(from []byte) (map[string]string, error) {
	if len(from) == 0 {
		return nil, nil
	}
	h := make(map[string]string)
	for len(from) > 0 {
		var pair [2]string
		for i := range pair {
			n, used := binary.Uvarint(from)
			if used <= 0 || n > uint64(len(from)-used) {
				return nil, fmt.Errorf("the headers cannot be read: %w", punctual.ErrCorrupt)
			}
			pair[i], from = string(from[used:used+int(n)]), from[used+int(n):]
		}
		h[pair[0]] = pair[1]
	}
	return h, nil
}

// encodeFailure writes an entry of a history: attempt, time in ms and text. claim.sql
// writes the same form.
func encodeFailure(f punctual.Failure) []byte {
	return fmt.Appendf(nil, "%d %d %s", f.Attempt, f.At.UnixMilli(), f.Error)
}

// decodeFailures reads the entries of a history.
func decodeFailures(from [][]byte) ([]punctual.Failure, error) {
	var out []punctual.Failure
	for _, f := range from {
		attempt, rest, _ := strings.Cut(string(f), " ")
		at, text, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(attempt)
		ms, err2 := strconv.ParseInt(at, 10, 64)
		if err != nil || err2 != nil {
			return nil, fmt.Errorf("the history entry %.40q cannot be read: %w", f, punctual.ErrCorrupt)
		}
		out = append(out, punctual.Failure{Attempt: n, At: storekit.FromMillis(ms), Error: text})
	}
	return out, nil
}
