package storekit

import (
	"cmp"
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// Outcomes returns all outcomes of finished messages.
func Outcomes() []punctual.Outcome {
	return []punctual.Outcome{punctual.OutcomeAcked, punctual.OutcomeCancelled, punctual.OutcomeExpired}
}

// CheckFinished returns q with the default Limit filled in, or an ErrInvalid that says what is
// wrong with the query. After is for ParseFinishedPlace to check.
func CheckFinished(q punctual.FinishedQuery) (punctual.FinishedQuery, error) {
	if err := CheckTopic(q.Topic); err != nil {
		return q, err
	}
	if q.Outcome != "" && !slices.Contains(Outcomes(), q.Outcome) {
		return q, Invalidf("outcome %q: use %q, %q or %q", q.Outcome, punctual.OutcomeAcked, punctual.OutcomeCancelled, punctual.OutcomeExpired)
	}
	if !q.From.IsZero() && !q.To.IsZero() && q.From.After(q.To) {
		return q, Invalidf("from is later than to: give the earlier time as from")
	}
	if q.Limit == 0 {
		q.Limit = 100
	}
	if q.Limit < 1 || q.Limit > 10_000 {
		return q, Invalidf("limit %d: use 1 to 10000", q.Limit)
	}
	return q, nil
}

// SelectsFinished reports whether q selects a record by its time and outcome.
func SelectsFinished(q *punctual.FinishedQuery, f *punctual.Finished) bool {
	return !f.At.Before(q.From) && (q.To.IsZero() || f.At.Before(q.To)) && (q.Outcome == "" || q.Outcome == f.Outcome)
}

// FinishedSpan returns between which times, in Unix milliseconds, the KeptUntil of all records lies
// that q can select at the time now: the first one and the last one, both included. KeptUntil is
// later than At, by limits.MaxFinishedRetention at most, whatever FinishedRetention was when the
// message finished.
func FinishedSpan(q *punctual.FinishedQuery, now int64) (first, last int64) {
	first, last = now+1, math.MaxInt64
	if !q.From.IsZero() {
		first = max(first, CeilMillis(q.From)+1)
	}
	if !q.To.IsZero() {
		last = CeilMillis(q.To) - 1 + limits.MaxFinishedRetention.Milliseconds()
	}
	return first, last
}

// FinishedPlace is where a record stands in a list of finished records. A place without ID stands
// before all records of its time. The text of a place is a FinishedPage.Next, which says that all
// records up to that place have been read.
type FinishedPlace struct {
	Until int64 // KeptUntil in Unix milliseconds
	ID    string
}

// PlaceOfFinished returns the place of a record.
func PlaceOfFinished(f *punctual.Finished) FinishedPlace {
	return FinishedPlace{Millis(f.KeptUntil), f.ID}
}

// Compare orders places as FinishedQuery says.
func (p FinishedPlace) Compare(o FinishedPlace) int {
	return cmp.Or(cmp.Compare(p.Until, o.Until), strings.Compare(p.ID, o.ID))
}

// FinishedOrder returns the order in which q lists places: that of FinishedPlace.Compare, or the
// reverse.
func FinishedOrder(q *punctual.FinishedQuery) func(p, o FinishedPlace) int {
	if q.Descending {
		return func(p, o FinishedPlace) int { return o.Compare(p) }
	}
	return FinishedPlace.Compare
}

// FirstFinished sorts records as q lists them and returns the page that begins with the first of
// them. The caller gives it all records that q selects from its cursor on.
func FirstFinished(q *punctual.FinishedQuery, records []punctual.Finished) punctual.FinishedPage {
	order := FinishedOrder(q)
	slices.SortFunc(records, func(a, b punctual.Finished) int { return order(PlaceOfFinished(&a), PlaceOfFinished(&b)) })
	page := punctual.FinishedPage{Records: records}
	if len(records) > q.Limit {
		page.Records = records[:q.Limit]
		page.Next = PlaceOfFinished(&records[q.Limit-1]).String()
	}
	return page
}

func (p FinishedPlace) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.Until, 10) + " " + p.ID))
}

// ParseFinishedPlace is the inverse of FinishedPlace.String. The empty text is the zero place.
func ParseFinishedPlace(text string) (FinishedPlace, error) {
	if text == "" {
		return FinishedPlace{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	until, id, found := strings.Cut(string(raw), " ")
	ms, err2 := strconv.ParseInt(until, 10, 64)
	if err != nil || err2 != nil || !found || id != "" && CheckID(id) != nil {
		return FinishedPlace{}, Invalidf("finished records after %q: use the Next of a former page", text)
	}
	return FinishedPlace{Until: ms, ID: id}, nil
}
