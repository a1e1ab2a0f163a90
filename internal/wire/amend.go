package wire

import (
	"maps"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// AmendRequest is the body of POST /v1/amend.
type AmendRequest struct {
	Amendments Items[AmendItem] `json:"amendments"`
}

// AmendItem changes one message by its ID.
type AmendItem struct {
	// Change is "cancel", "reschedule", "requeue" or "delete".
	Change string `json:"change"`
	Topic  string `json:"topic"`
	ID     string `json:"id"`
	// When is the new due time of a reschedule or requeue. Left out, the message is due now.
	When
	// IfDue changes only a message that is due at this time.
	IfDue Given `json:"if_due,omitzero"`
}

// AmendItemOf returns the item of a request for a. A name that is not UTF-8, which JSON cannot
// carry, is an ErrInvalid.
func AmendItemOf(a *punctual.Amendment) (AmendItem, error) {
	if err := checkNames(a.Topic, a.ID); err != nil {
		return AmendItem{}, err
	}
	return AmendItem{Change: a.Change.String(), Topic: a.Topic, ID: a.ID, When: WhenOf(a.Delay, a.Due), IfDue: Given(TimeText(a.IfDue))}, nil
}

// Amendment returns the item as a punctual.Amendment. A malformed member is an ErrInvalid that
// names it.
func (a *AmendItem) Amendment() (punctual.Amendment, error) {
	change, err := ParseChange(a.Change)
	if err != nil {
		return punctual.Amendment{}, err
	}
	out := punctual.Amendment{Change: change, Topic: a.Topic, ID: a.ID}
	if out.Delay, out.Due, err = a.Times(); err != nil {
		return out, err
	}
	out.IfDue, err = ParseIfDue(string(a.IfDue))
	return out, err
}

// ParseChange is the inverse of punctual.Change.String.
func ParseChange(word string) (punctual.Change, error) {
	for c := punctual.ChangeCancel; c <= punctual.ChangeDelete; c++ {
		if c.String() == word {
			return c, nil
		}
	}
	return 0, storekit.Invalidf("\"change\" %q: use cancel, reschedule, requeue or delete", word)
}

// AmendAnswer is the answer to an AmendRequest: a result for each amendment, in their order.
type AmendAnswer struct {
	Results []AmendResult `json:"results"`
}

// AmendResult is the result of one amendment.
type AmendResult struct {
	ID    string `json:"id"`
	Topic string `json:"topic"`
	// Outcome is "cancelled", "rescheduled", "requeued" or "deleted". It is left out if there is an
	// Error.
	Outcome string `json:"outcome,omitzero"`
	// Due is the due time in force after a reschedule or requeue.
	Due   Time     `json:"due,omitzero"`
	Error *Problem `json:"error,omitzero"`
}

var outcomes = map[punctual.Change]string{
	punctual.ChangeCancel: "cancelled", punctual.ChangeReschedule: "rescheduled", punctual.ChangeRequeue: "requeued",
	punctual.ChangeDelete: "deleted",
}

// Outcomes returns the words of AmendResult.Outcome, in the order of the changes.
func Outcomes() []string {
	var out []string
	for c := punctual.ChangeCancel; c <= punctual.ChangeDelete; c++ {
		out = append(out, outcomes[c])
	}
	return out
}

// OutcomeWord returns the word of AmendResult.Outcome for a change that was made.
func OutcomeWord(c punctual.Change) string { return outcomes[c] }

// AmendResultOf returns the result r of a for an answer.
func AmendResultOf(a *punctual.Amendment, r punctual.Amended) AmendResult {
	out := AmendResult{ID: a.ID, Topic: a.Topic, Due: Time(r.Due), Error: ItemProblem(r.Err)}
	if r.Err == nil {
		out.Outcome = outcomes[a.Change]
	}
	return out
}

// Amended returns the result as a punctual.Amended. Its Err is an ErrIndeterminate if the result is
// malformed.
func (r *AmendResult) Amended() punctual.Amended {
	out := punctual.Amended{Due: time.Time(r.Due), Err: r.Error.Err()}
	if out.Err != nil {
		return out
	}
	for word := range maps.Values(outcomes) {
		if word == r.Outcome {
			return out
		}
	}
	out.Err = strangeAnswer("outcome %q of an amendment", r.Outcome)
	return out
}
