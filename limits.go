package punctual

import (
	"strings"
	"time"
)

// Limits that every store enforces before it stores anything.
const (
	// MaxTopicBytes and MaxIDBytes bound names.
	MaxTopicBytes = 128
	MaxIDBytes    = 128
	// DefaultMaxBody is the body size that stores accept unless configured otherwise.
	DefaultMaxBody = 1 << 20
	// MaxHeaderBytes bounds the sum of all header names and values.
	MaxHeaderBytes = 16 << 10
	// MaxErrorBytes bounds the text of one Failure.
	MaxErrorBytes = 1 << 10
	// MaxClaim bounds Claim.Max.
	MaxClaim = 10_000
	// MaxBatch bounds the items of one Push, Settle or Amend.
	MaxBatch = 10_000
	// MaxAttemptsLimit bounds MaxAttempts.
	MaxAttemptsLimit = 1_000_000
	// MaxPartitions bounds the partitions of a topic.
	MaxPartitions = 256
	// MinLease and MaxLease bound the length of a lease.
	MinLease = 10 * time.Millisecond
	MaxLease = 24 * time.Hour
)

// MaxDue is the last due time (P9). Anything beyond is an error.
var MaxDue = time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)

// Millis returns t as the Unix milliseconds in which stores count, rounded down.
func Millis(t time.Time) int64 { return t.UnixMilli() }

// CeilMillis returns t as Unix milliseconds rounded up, so that nothing due at
// t is ever early.
func CeilMillis(t time.Time) int64 {
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Before(t) {
		ms++
	}
	return ms
}

// FromMillis is the inverse of Millis, in UTC. The zero Time survives both.
func FromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// CeilDuration returns d in milliseconds, rounded up.
func CeilDuration(d time.Duration) int64 {
	ms := d.Milliseconds()
	if time.Duration(ms)*time.Millisecond < d {
		ms++
	}
	return ms
}

// DueAt turns a due time or a delay into the due time to store: due if it is not
// zero, else delay after now, which is the store's clock as finely as it knows it.
// Both are rounded up to whole milliseconds (P2). A time in the past is kept. Beyond
// MaxDue it returns an ErrInvalid (P9).
func DueAt(now, due time.Time, delay time.Duration) (time.Time, error) {
	var ms int64
	if due.IsZero() {
		ms = CeilMillis(now) + CeilDuration(delay)
	} else {
		ms = CeilMillis(due)
	}
	if ms > MaxDue.UnixMilli() {
		return time.Time{}, invalidf("due time lies after %s", MaxDue.Format(time.RFC3339))
	}
	if ms < minDue {
		return time.Time{}, invalidf("due time lies before the year 1")
	}
	return FromMillis(ms), nil
}

// ExpiresAt returns the expiry of a message first due at due, or zero for after
// being 0. It never passes MaxDue, behind which nothing can be due anyway.
func ExpiresAt(due time.Time, after time.Duration) time.Time {
	if after == 0 {
		return time.Time{}
	}
	ms := min(due.UnixMilli()+CeilDuration(after), MaxDue.UnixMilli()+1)
	return FromMillis(ms)
}

// minDue is the first instant of the year 1, where time.Time begins; times before
// it come from broken arithmetic.
const minDue = -62135596800000

// CheckTopic returns an ErrInvalid unless name is 1 to 128 bytes of [A-Za-z0-9._:/-].
func CheckTopic(name string) error {
	if name == "" {
		return invalidf("topic is empty: name it with 1 to %d of A-Z a-z 0-9 . _ : / -", MaxTopicBytes)
	}
	if len(name) > MaxTopicBytes {
		return invalidf("topic name has %d bytes: use at most %d", len(name), MaxTopicBytes)
	}
	for i := range len(name) {
		if !topicByte(name[i]) {
			return invalidf("topic %q: byte %d is not one of A-Z a-z 0-9 . _ : / -", name, i+1)
		}
	}
	return nil
}

func topicByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._:/-", c) >= 0
}

// CheckID returns an ErrInvalid unless id is 1 to 128 printable ASCII bytes.
func CheckID(id string) error {
	if id == "" {
		return invalidf("ID is empty")
	}
	if len(id) > MaxIDBytes {
		return invalidf("ID has %d bytes: use at most %d", len(id), MaxIDBytes)
	}
	for i := range len(id) {
		if id[i] < ' ' || id[i] > '~' {
			return invalidf("ID %q: byte %d is not printable ASCII", id, i+1)
		}
	}
	return nil
}

// Check returns an ErrInvalid or ErrTooLarge that says what is wrong with the
// message, or nil. maxBody is the store's limit.
func (m *NewMessage) Check(maxBody int) error {
	if err := CheckTopic(m.Topic); err != nil {
		return err
	}
	if m.ID != "" {
		if err := CheckID(m.ID); err != nil {
			return err
		}
	}
	if len(m.Body) > maxBody {
		return errorf(ErrTooLarge, "body has %d bytes: at most %d are allowed", len(m.Body), maxBody)
	}
	if n := headerBytes(m.Headers); n > MaxHeaderBytes {
		return errorf(ErrTooLarge, "headers have %d bytes: at most %d are allowed", n, MaxHeaderBytes)
	}
	if m.MaxAttempts < 0 || m.MaxAttempts > MaxAttemptsLimit {
		return invalidf("max attempts %d: use 1 to %d, or 0 for the topic's", m.MaxAttempts, MaxAttemptsLimit)
	}
	if m.ExpireAfter < 0 {
		return invalidf("expiry %v lies before the due time: use a positive duration, or 0 for never", m.ExpireAfter)
	}
	if m.OnDuplicate > FailDuplicate {
		return invalidf("unknown OnDuplicate %d", m.OnDuplicate)
	}
	return checkWhen(m.Due, m.Delay)
}

func headerBytes(h map[string]string) int {
	n := 0
	for k, v := range h {
		n += len(k) + len(v)
	}
	return n
}

func checkWhen(due time.Time, delay time.Duration) error {
	switch {
	case delay < 0:
		return invalidf("delay %v is negative: use 0 for now, or a due time, which may lie in the past", delay)
	case !due.IsZero() && delay != 0:
		return invalidf("both a due time and a delay are given: use one")
	case due.After(MaxDue):
		return invalidf("due time lies after %s", MaxDue.Format(time.RFC3339))
	}
	return nil
}

// Check returns an ErrInvalid that says what is wrong with the claim, or nil.
func (c *Claim) Check() error {
	if len(c.Topics) == 0 {
		return invalidf("claim names no topic")
	}
	for _, t := range c.Topics {
		if err := CheckTopic(t); err != nil {
			return err
		}
	}
	switch {
	case c.Max < 1 || c.Max > MaxClaim:
		return invalidf("claim of %d messages: use 1 to %d", c.Max, MaxClaim)
	case c.Wait < 0:
		return invalidf("claim waits %v: use a positive duration, or 0 not to wait", c.Wait)
	case c.Lease != 0 && (c.Lease < MinLease || c.Lease > MaxLease):
		return invalidf("lease %v: use %v to %v, or 0 for the topic's", c.Lease, MinLease, MaxLease)
	}
	return nil
}

// Check returns an ErrInvalid that says what is wrong with the settlement, or nil.
func (s *Settlement) Check() error {
	if err := CheckTopic(s.Topic); err != nil {
		return err
	}
	if err := CheckID(s.ID); err != nil {
		return err
	}
	switch {
	case s.Verb < SettleAck || s.Verb > SettleExtend:
		return invalidf("unknown verb %d", s.Verb)
	case s.Verb == SettleRetry && s.Delay == UseBackoff:
		return nil
	case s.Delay < 0:
		return invalidf("%s after %v: the delay is negative", s.Verb, s.Delay)
	case s.Verb == SettleExtend && s.Delay != 0 && (s.Delay < MinLease || s.Delay > MaxLease):
		return invalidf("lease %v: use %v to %v, or 0 for the topic's", s.Delay, MinLease, MaxLease)
	}
	return nil
}

// Check returns an ErrInvalid that says what is wrong with the amendment, or nil.
func (a *Amendment) Check() error {
	if err := CheckTopic(a.Topic); err != nil {
		return err
	}
	if err := CheckID(a.ID); err != nil {
		return err
	}
	switch a.Change {
	case ChangeCancel:
		return nil
	case ChangeReschedule, ChangeRequeue:
		return checkWhen(a.Due, a.Delay)
	}
	return invalidf("unknown change %d", a.Change)
}

// CheckBatch returns an ErrTooLarge when a call carries more items than MaxBatch.
func CheckBatch(n int) error {
	if n > MaxBatch {
		return errorf(ErrTooLarge, "%d items in one call: at most %d are allowed", n, MaxBatch)
	}
	return nil
}

// CheckList returns q with its default limit filled in, or an ErrInvalid.
func (q ListQuery) CheckList() (ListQuery, error) {
	if err := CheckTopic(q.Topic); err != nil {
		return q, err
	}
	if q.State == StateNone || q.State > StateDead {
		return q, invalidf("list needs a state: scheduled, ready, leased or dead")
	}
	if q.Limit == 0 {
		q.Limit = 100
	}
	if q.Limit < 1 || q.Limit > 10_000 {
		return q, invalidf("limit %d: use 1 to 10000", q.Limit)
	}
	return q, nil
}

// Check returns an ErrInvalid that says what is wrong with the query, or nil.
func (q ForecastQuery) Check() error {
	if q.Topic != "" {
		if err := CheckTopic(q.Topic); err != nil {
			return err
		}
	}
	if q.Step < time.Millisecond {
		return invalidf("forecast step %v: use at least 1ms", q.Step)
	}
	if q.Buckets < 1 || q.Buckets > 10_000 {
		return invalidf("forecast of %d buckets: use 1 to 10000", q.Buckets)
	}
	return nil
}
