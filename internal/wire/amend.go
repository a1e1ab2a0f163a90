package wire

import (
	"maps"
	"time"

	"github.com/punctualmq/punctual"
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
	// When is for a reschedule and a requeue; without it they are due now.
	When
}

// AmendItemOf is a for a request. Names that cannot stand in JSON are an ErrInvalid.
func AmendItemOf(a *punctual.Amendment) (AmendItem, error) {
	if err := checkNames(a.Topic, a.ID); err != nil {
		return AmendItem{}, err
	}
	return AmendItem{Change: a.Change.String(), Topic: a.Topic, ID: a.ID, When: WhenOf(a.Delay, a.Due)}, nil
}

// Amendment is the item as a store takes it, or an ErrInvalid that names the member.
func (a *AmendItem) Amendment() (punctual.Amendment, error) {
	change, err := ParseChange(a.Change)
	if err != nil {
		return punctual.Amendment{}, err
	}
	out := punctual.Amendment{Change: change, Topic: a.Topic, ID: a.ID}
	out.Delay, out.Due, err = a.Times()
	return out, err
}

// ParseChange is the inverse of punctual.Change.String.
func ParseChange(word string) (punctual.Change, error) {
	for c := punctual.ChangeCancel; c <= punctual.ChangeDelete; c++ {
		if c.String() == word {
			return c, nil
		}
	}
	return 0, invalidf("\"change\" %q: use cancel, reschedule, requeue or delete", word)
}

// AmendAnswer is the answer to an AmendRequest: a result for each amendment, in their order.
type AmendAnswer struct {
	Results []AmendResult `json:"results"`
}

// AmendResult is what became of one amendment.
type AmendResult struct {
	ID    string `json:"id"`
	Topic string `json:"topic"`
	// Outcome is "cancelled", "rescheduled", "requeued" or "deleted", and left out beside an Error.
	Outcome string `json:"outcome,omitzero"`
	// Due is the due time in force after a reschedule or requeue.
	Due   Time     `json:"due,omitzero"`
	Error *Problem `json:"error,omitzero"`
}

var outcomes = map[punctual.Change]string{
	punctual.ChangeCancel: "cancelled", punctual.ChangeReschedule: "rescheduled", punctual.ChangeRequeue: "requeued",
	punctual.ChangeDelete: "deleted",
}

// Outcomes are the words of AmendResult.Outcome, in the order of the changes.
func Outcomes() []string {
	var out []string
	for c := punctual.ChangeCancel; c <= punctual.ChangeDelete; c++ {
		out = append(out, outcomes[c])
	}
	return out
}

// OutcomeWord is the word of AmendResult.Outcome for a change that was made.
func OutcomeWord(c punctual.Change) string { return outcomes[c] }

// AmendResultOf is the answer to a.
func AmendResultOf(a *punctual.Amendment, r punctual.Amended) AmendResult {
	out := AmendResult{ID: a.ID, Topic: a.Topic, Due: Time(r.Due), Error: ItemProblem(r.Err)}
	if r.Err == nil {
		out.Outcome = outcomes[a.Change]
	}
	return out
}

// Amended is the result as a store returns it; a malformed one has an ErrIndeterminate.
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
