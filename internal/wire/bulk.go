package wire

import (
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/bulk"
	"github.com/punctualmq/punctual/storekit"
)

// BulkRequest is the body of POST /v1/topics/TOPIC/bulk: one change of all messages that the other
// members select.
type BulkRequest struct {
	// Do is "cancel", "delete", "requeue", "reschedule" or "shift".
	Do string `json:"do"`
	// By is how far a shift moves each message: "1h" later, "-1h" earlier.
	By Given `json:"by,omitzero"`
	// ID names a shift, so that within a day (bulk.Memory) it is made once, however often the
	// request is sent.
	ID Given `json:"id,omitzero"`
	// When is the new due time of a requeue or reschedule. Left out, the messages are due now.
	When
	// State is "scheduled", "ready", "leased" or "dead". Left out, it is both scheduled and ready,
	// scheduled alone for a shift to earlier, or dead for a requeue. A delete needs it.
	State  Given     `json:"state,omitzero"`
	From   Given     `json:"from,omitzero"`
	To     Given     `json:"to,omitzero"`
	Reason Given     `json:"reason,omitzero"`
	Error  Given     `json:"error,omitzero"`
	Prefix Given     `json:"id_prefix,omitzero"`
	Key    Given     `json:"key,omitzero"`
	Header HeaderMap `json:"headers,omitzero"`
	DryRun bool      `json:"dry_run,omitzero"`
	Rate   int       `json:"rate,omitzero"`
}

// Size returns about how many bytes of memory the request takes.
func (r *BulkRequest) Size() int64 {
	return itemBytes + int64(len(r.ID)+len(r.Error)+len(r.Prefix)+len(r.Key)) + sizeInMemory(r.Header)
}

// Bulk returns the request as a bulk.Job for the topic. A malformed member is an ErrInvalid that
// names it.
func (r *BulkRequest) Bulk(topic string) (b bulk.Job, err error) {
	b = bulk.Job{
		Select: bulk.Selection{
			Topic: topic, Reason: punctual.DeathReason(r.Reason), Error: string(r.Error), IDPrefix: string(r.Prefix), Key: string(r.Key), Headers: r.Header,
		},
		ID: string(r.ID), DryRun: r.DryRun, Rate: r.Rate,
	}
	if b.Do, err = bulk.ParseChange(r.Do); err != nil {
		return b, err
	}
	if b.By, err = ParseShift("by", string(r.By)); err != nil {
		return b, err
	}
	delay, due, err := r.Times()
	if err != nil {
		return b, err
	}
	if b.When = punctual.In(delay); !due.IsZero() {
		b.When = punctual.At(due)
	}
	if r.State != "" {
		if b.Select.State, err = punctual.ParseState(string(r.State)); err != nil {
			return b, err
		}
	}
	if b.Select.From, err = ParseTimeText("from", string(r.From)); err != nil {
		return b, err
	}
	b.Select.To, err = ParseTimeText("to", string(r.To))
	return b, err
}

// ParseShift reads a duration with a sign: "1h" or "+1h" is later, "-1h" earlier, "" is 0. Its
// error names field.
func ParseShift(field, text string) (time.Duration, error) {
	size, earlier := strings.CutPrefix(text, "-")
	if !earlier {
		size = strings.TrimPrefix(text, "+")
	}
	if size == "" && text != "" {
		return 0, storekit.Invalidf("%q: %q is no length: write it like 1h or -90m", field, text)
	}
	d, err := ParseDurationText(field, size)
	if earlier {
		d = -d
	}
	return d, err
}

// BulkReport is a bulk.Report: what a bulk has done so far, or at its end.
type BulkReport struct {
	// Looked is how many messages were read, Matched how many of them the bulk is to change.
	Looked  int64 `json:"looked"`
	Matched int64 `json:"matched"`
	// Done is how many were changed; none in a dry run.
	Done int64 `json:"done"`
	// Leased is how many somebody works on, Changed how many somebody else has moved or requeued
	// meanwhile, Gone how many were finished or removed meanwhile.
	Leased  int64 `json:"leased"`
	Changed int64 `json:"changed"`
	Gone    int64 `json:"gone"`
	// Failed is how many the store refused with ErrInvalid, Failure the first refusal.
	Failed  int64      `json:"failed"`
	Failure *Problem   `json:"failure,omitzero"`
	First   []BulkItem `json:"first,omitzero"`
	// Continued is when the shift began, if an earlier request began it and this request has
	// continued it or found it complete.
	Continued Time `json:"continued,omitzero"`
	// Complete tells that the bulk has gone through all messages. Without it, the bulk is under
	// way, or an Error has ended it.
	Complete bool     `json:"complete,omitzero"`
	Error    *Problem `json:"error,omitzero"`
}

// BulkItem is a bulk.Item: one of the first messages that a bulk selects.
type BulkItem struct {
	ID     string `json:"id"`
	Due    Time   `json:"due"`
	NewDue Time   `json:"new_due,omitzero"`
}

// BulkReportOf returns r for an answer while the bulk is under way.
func BulkReportOf(r bulk.Report) BulkReport {
	out := BulkReport{
		Looked: r.Looked, Matched: r.Matched, Done: r.Done, Leased: r.Leased, Changed: r.Changed, Gone: r.Gone,
		Failed: r.Failed, Failure: ItemProblem(r.Failure), Continued: Time(r.Continued),
	}
	for _, m := range r.First {
		out.First = append(out.First, BulkItem{ID: m.ID, Due: Time(m.Due), NewDue: Time(m.NewDue)})
	}
	return out
}

// BulkEnd returns r for the answer at the end of the bulk, with the error that ended it early or
// nil.
func BulkEnd(r bulk.Report, err error) BulkReport {
	out := BulkReportOf(r)
	out.Complete, out.Error = err == nil, ItemProblem(err)
	return out
}
