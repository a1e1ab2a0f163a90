package storekit

import (
	"fmt"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// CheckID returns an ErrInvalid unless id is 1 to 128 printable ASCII bytes.
func CheckID(id string) error {
	if id == "" {
		return Invalidf("ID is empty")
	}
	if len(id) > limits.MaxIDBytes {
		return Invalidf("ID has %d bytes: use at most %d", len(id), limits.MaxIDBytes)
	}
	for i := range len(id) {
		if id[i] < ' ' || id[i] > '~' {
			return Invalidf("ID %q: byte %d is not printable ASCII", id, i+1)
		}
	}
	return nil
}

// CheckKey returns an ErrInvalid unless key is 1 to 128 printable ASCII bytes without "~".
func CheckKey(key string) error {
	switch {
	case key == "" || len(key) > limits.MaxKeyBytes:
		return Invalidf("key has %d bytes: use 1 to %d", len(key), limits.MaxKeyBytes)
	case strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r >= '~' }):
		return Invalidf("key %q: use printable ASCII without ~", key)
	}
	return nil
}

// CheckPush returns an ErrInvalid or ErrTooLarge that says what is wrong with the message, or nil.
// maxBody is the greatest length of a body that the store accepts, in bytes. Whether the topic
// takes a key is not asked here; see CheckKeyed.
func CheckPush(m *punctual.NewMessage, maxBody int) error {
	if err := CheckTopic(m.Topic); err != nil {
		return err
	}
	if m.ID != "" {
		if err := CheckID(m.ID); err != nil {
			return err
		}
	}
	if len(m.Body) > maxBody {
		return Errorf(punctual.ErrTooLarge, "body has %d bytes: at most %d are allowed", len(m.Body), maxBody)
	}
	if n := sizeOfHeaders(m.Headers); n > limits.MaxHeaderBytes {
		return Errorf(punctual.ErrTooLarge, "headers have %d bytes: at most %d are allowed", n, limits.MaxHeaderBytes)
	}
	if m.MaxAttempts < 0 || m.MaxAttempts > limits.MaxAttemptsLimit {
		return Invalidf("max attempts %d: use 1 to %d, or 0 for the topic's", m.MaxAttempts, limits.MaxAttemptsLimit)
	}
	if m.ExpireAfter < 0 {
		return Invalidf("expiry %v lies before the due time: use a positive duration, or 0 for never", m.ExpireAfter)
	}
	if err := NewAttributes(m).Check(); err != nil {
		return err
	}
	if m.IfExists > punctual.IfExistsReplaceDead {
		return Invalidf("unknown IfExists %d", m.IfExists)
	}
	if !m.IfDue.IsZero() && m.IfExists != punctual.IfExistsReplace {
		return Invalidf("a due time that the stored message must have, but the push does not replace it: use IfExistsReplace")
	}
	return checkWhen(m.Due, m.Delay)
}

func checkWhen(due time.Time, delay time.Duration) error {
	switch {
	case delay < 0:
		return Invalidf("delay %v is negative: use 0 for now, or a due time, which may lie in the past", delay)
	case !due.IsZero() && delay != 0:
		return Invalidf("both a due time and a delay are given: use one")
	case due.After(limits.MaxDue):
		return Invalidf("due time lies after %s", limits.MaxDue.Format(time.RFC3339))
	}
	return nil
}

// CheckClaim returns an ErrInvalid that says what is wrong with the claim, or nil.
func CheckClaim(c *punctual.Claim) error {
	if len(c.Topics) == 0 {
		return Invalidf("claim names no topic")
	}
	if len(c.Topics) > limits.MaxClaimTopics {
		return Invalidf("claim names %d topics: use at most %d, and several claims for more", len(c.Topics), limits.MaxClaimTopics)
	}
	for _, t := range c.Topics {
		if err := CheckTopic(t); err != nil {
			return err
		}
	}
	for _, id := range c.IDs {
		if err := CheckID(id); err != nil {
			return err
		}
	}
	switch {
	case len(c.IDs) > limits.MaxClaim:
		return Invalidf("claim of %d messages by ID: use at most %d, and several claims for more", len(c.IDs), limits.MaxClaim)
	case len(c.IDs) > 0 && (len(c.Topics) > 1 || c.PerTopic != 0 || c.Wait != 0):
		return Invalidf("claim by ID from %d topics, %d of each, waiting for %v: name one topic, without PerTopic and Wait", len(c.Topics), c.PerTopic, c.Wait)
	case c.Max < 0 || c.Max > limits.MaxClaim || c.Max == 0 && len(c.IDs) == 0:
		return Invalidf("claim of %d messages: use 1 to %d", c.Max, limits.MaxClaim)
	case c.PerTopic < 0:
		return Invalidf("claim of %d messages of a topic: use 1 or more, or 0 for as many as in all", c.PerTopic)
	case c.Wait < 0:
		return Invalidf("claim waits %v: use a positive duration, or 0 not to wait", c.Wait)
	case c.Lease != 0 && (c.Lease < limits.MinLease || c.Lease > limits.MaxLease):
		return Invalidf("lease %v: use %v to %v, or 0 for the topic's", c.Lease, limits.MinLease, limits.MaxLease)
	}
	return nil
}

// CheckSettlement returns an ErrInvalid or ErrTooLarge that says what is wrong with the settlement
// or its follow-ups, or nil. maxBody is the greatest length of a body that the store accepts, in
// bytes.
func CheckSettlement(s *punctual.Settlement, maxBody int) error {
	if err := CheckTopic(s.Topic); err != nil {
		return err
	}
	if err := CheckID(s.ID); err != nil {
		return err
	}
	switch {
	case s.Verb < punctual.SettleAck || s.Verb > punctual.SettleExtend:
		return Invalidf("unknown verb %d", s.Verb)
	case !s.Due.IsZero() && s.Verb != punctual.SettleRetry && s.Verb != punctual.SettleSnooze:
		return Invalidf("%s with a due time: only a retry and a snooze have one", s.Verb)
	case !s.Due.IsZero() && s.Delay != 0:
		return Invalidf("both a due time and a delay are given: use one")
	case s.Due.After(limits.MaxDue):
		return Invalidf("due time lies after %s", limits.MaxDue.Format(time.RFC3339))
	case s.Delay < 0 && (s.Verb != punctual.SettleRetry || s.Delay != punctual.UseBackoff):
		return Invalidf("%s after %v: the delay is negative", s.Verb, s.Delay)
	case s.Delay != 0 && !delays(s.Verb):
		return Invalidf("%s with a delay of %v: only a retry, a snooze and an extension have one", s.Verb, s.Delay)
	case s.Verb == punctual.SettleExtend && s.Delay != 0 && (s.Delay < limits.MinLease || s.Delay > limits.MaxLease):
		return Invalidf("lease %v: use %v to %v, or 0 for the topic's", s.Delay, limits.MinLease, limits.MaxLease)
	}
	return CheckThen(s, maxBody)
}

// delays reports whether Settlement.Delay has a meaning with the verb.
func delays(v punctual.Verb) bool {
	return v == punctual.SettleRetry || v == punctual.SettleSnooze || v == punctual.SettleExtend
}

// CheckAmendment returns an ErrInvalid that says what is wrong with the amendment, or nil.
func CheckAmendment(a *punctual.Amendment) error {
	if err := CheckTopic(a.Topic); err != nil {
		return err
	}
	if err := CheckID(a.ID); err != nil {
		return err
	}
	switch a.Change {
	case punctual.ChangeCancel, punctual.ChangeDelete:
		if !a.Due.IsZero() || a.Delay != 0 {
			return Invalidf("%s at a time: only a reschedule and a requeue have a due time or a delay", a.Change)
		}
		return nil
	case punctual.ChangeReschedule, punctual.ChangeRequeue:
		return checkWhen(a.Due, a.Delay)
	}
	return Invalidf("unknown change %d", a.Change)
}

// Moves reports whether a change gives the message a new due time, so that a due time after
// limits.MaxDue is an ErrInvalid.
func Moves(c punctual.Change) bool {
	return c == punctual.ChangeReschedule || c == punctual.ChangeRequeue
}

// CheckBatch returns an ErrTooLarge when a call has more than limits.MaxBatch items, or nil. n is
// the number of items.
func CheckBatch(n int) error {
	if n > limits.MaxBatch {
		return Errorf(punctual.ErrTooLarge, "%d items in one call: at most %d are allowed", n, limits.MaxBatch)
	}
	return nil
}

// ReadLimit is about how many messages a store reads for one page of a list by reason
// (ListQuery.Reason), and how many records for one page of finished records (FinishedQuery), unless
// it has them in memory or an index of those selected. A store that has read that many returns what
// it has found, with a cursor, so that one call stays short where few of them are selected.
const ReadLimit = 10_000

// CheckList returns q with the default Limit filled in, or an ErrInvalid that says what is wrong
// with the query.
func CheckList(q punctual.ListQuery) (punctual.ListQuery, error) {
	if err := CheckTopic(q.Topic); err != nil {
		return q, err
	}
	if q.State == punctual.StateNone || q.State > punctual.StateDead {
		return q, Invalidf("list needs a state: scheduled, ready, leased or dead")
	}
	switch q.Reason {
	case "":
	case punctual.ReasonDiscarded, punctual.ReasonAttemptsUsedUp, punctual.ReasonExpired:
		if q.State != punctual.StateDead {
			return q, Invalidf("list of %s messages by reason: only dead ones have one", q.State)
		}
	default:
		return q, Invalidf("reason %q: use %q, %q or %q", q.Reason, punctual.ReasonDiscarded, punctual.ReasonAttemptsUsedUp, punctual.ReasonExpired)
	}
	if q.Limit == 0 {
		q.Limit = 100
	}
	if q.Limit < 1 || q.Limit > 10_000 {
		return q, Invalidf("limit %d: use 1 to 10000", q.Limit)
	}
	return q, nil
}

// DropBodies leaves messages without their bodies, as a list with ListQuery.Bare shows them.
func DropBodies(ms []punctual.Info) {
	for i := range ms {
		ms[i].Body = nil
	}
}

// CheckForecast returns an ErrInvalid that says what is wrong with the query, or nil.
func CheckForecast(q punctual.ForecastQuery) error {
	if q.Topic != "" {
		if err := CheckTopic(q.Topic); err != nil {
			return err
		}
	}
	if q.Step < time.Millisecond {
		return Invalidf("forecast step %v: use at least 1ms", q.Step)
	}
	if q.Buckets < 1 || q.Buckets > 10_000 {
		return Invalidf("forecast of %d buckets: use 1 to 10000", q.Buckets)
	}
	return nil
}

// CheckSurvey returns an ErrInvalid that says what is wrong with the query, or nil.
func CheckSurvey(q SurveyQuery) error {
	if n := len(q.Edges); n < 2 || n > MaxEdges {
		return Invalidf("survey with %d edges: use 2 to %d", n, MaxEdges)
	}
	for i, e := range q.Edges[1:] {
		if e.Sub(q.Edges[i]) < time.Millisecond {
			return Invalidf("survey whose edge %v is followed by %v: each is at least 1ms behind the one before", q.Edges[i], e)
		}
	}
	if q.Largest < 0 || q.Largest > MaxLargest {
		return Invalidf("survey of the %d largest topics: use 0 to %d", q.Largest, MaxLargest)
	}
	for _, t := range q.Without {
		if err := CheckTopic(t); err != nil {
			return err
		}
	}
	return nil
}

// ForecastStart returns when the first bucket of a forecast begins, in Unix milliseconds. now is
// the store's clock in Unix milliseconds. A q.From after it is an ErrInvalid.
func ForecastStart(q punctual.ForecastQuery, now int64) (int64, error) {
	if q.From.IsZero() {
		return now, nil
	}
	if from := Millis(q.From); from <= now {
		return from, nil
	}
	return 0, Invalidf("forecast from %v: it begins at the store's clock, %v, or before", q.From, FromMillis(now))
}

// Errorf returns an error that wraps kind and begins with the formatted sentence.
func Errorf(kind error, format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), kind)
}

// Invalidf is Errorf of punctual.ErrInvalid.
func Invalidf(format string, args ...any) error { return Errorf(punctual.ErrInvalid, format, args...) }
