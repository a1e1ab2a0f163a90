package pgstore

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// name names a message.
type name struct{ topic, id string }

// row is a locked message, as far as its next state depends on it. Times are in ms.
type row struct {
	name
	number                int32 // its topic's
	visibleAt             *int64
	due, firstDue, token  int64
	attempts, maxAttempts int32
	cancelled, drop       bool
	expireAfter, expires  *int64
	diedAt                *int64
	reason                *string
	forgetAt, remember    *int64

	outcome            string // of a message that ends, for its story
	endedAt, toldUntil int64
}

// scanRow reads a row of lock.sql.
func scanRow(rows scanner) (*row, error) {
	r := &row{}
	return r, rows.Scan(&r.topic, &r.id, &r.number, &r.visibleAt, &r.due, &r.firstDue, &r.token, &r.attempts, &r.maxAttempts,
		&r.cancelled, &r.drop, &r.expireAfter, &r.expires, &r.diedAt, &r.reason, &r.forgetAt, &r.remember)
}

// state is that of a message at a time; StateNone for one that is finished, or dead for longer than it is kept.
func (r *row) state(now int64, set *punctual.Settings) punctual.State {
	switch {
	case r.visibleAt == nil:
		if r.diedAt != nil && !outlived(*r.diedAt, now, set) {
			return punctual.StateDead
		}
		return punctual.StateNone
	case *r.visibleAt <= now:
		return punctual.StateReady
	case r.token != 0:
		return punctual.StateLeased
	}
	return punctual.StateScheduled
}

func outlived(diedAt, now int64, set *punctual.Settings) bool {
	keep := storekit.CeilDuration(set.DeadRetention)
	return keep > 0 && diedAt+keep <= now
}

// remembered reports whether a finished message still holds its ID.
func (r *row) remembered(now int64) bool { return r.forgetAt != nil && *r.forgetAt > now }

// moveTo gives a message a new first due time; its expiry moves along.
func (r *row) moveTo(due int64) {
	r.due, r.firstDue = due, due
	if r.expireAfter != nil {
		at := min(due+*r.expireAfter, punctual.MaxDue.UnixMilli()+1)
		r.expires = &at
	}
}

// wait ends the lease, if any, and lets the message wait for its due time.
func (r *row) wait() {
	due := r.due
	r.visibleAt, r.token, r.cancelled = &due, 0, false
	r.diedAt, r.reason = nil, nil
}

// die gives up on a message.
func (r *row) die(reason punctual.DeathReason, now int64) {
	text := string(reason)
	r.visibleAt, r.token, r.cancelled = nil, 0, false
	r.diedAt, r.reason = &now, &text
}

// rememberOf is what the column says of a message's ID, in ms; NULL follows the topic.
func rememberOf(column *int64) time.Duration {
	if column == nil {
		return 0
	}
	return time.Duration(*column) * time.Millisecond
}

// encodeHeaders writes headers, sorted by name, each name and value behind its length; none is nil.
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

// encodeFailure writes an entry of a history, as claim.sql does: attempt, time in ms and text.
func encodeFailure(attempt int32, now int64, text string) []byte {
	return fmt.Appendf(nil, "%d %d %s", attempt, now, storekit.TrimError(text))
}

// decodeFailures is the inverse of encodeFailure for a history.
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
