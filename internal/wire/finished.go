package wire

import (
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Finished is the record of a finished message.
type Finished struct {
	ID    string `json:"id"`
	Topic string `json:"topic"`
	// Outcome is "acked", "cancelled" or "expired".
	Outcome  string `json:"outcome"`
	At       Time   `json:"at"`
	Due      Time   `json:"due"`
	FirstDue Time   `json:"first_due"`
	Created  Time   `json:"created"`
	Attempt  int    `json:"attempt"`
	// Delivered is when the message's last lease began. It is left out where
	// punctual.Finished.Delivered is zero.
	Delivered Time      `json:"delivered,omitzero"`
	Failures  []Failure `json:"failures,omitzero"`
	KeptUntil Time      `json:"kept_until"`
	// By is who cancelled the message, in the answer about one record, if the audit log says so and
	// the client may inspect that.
	By string `json:"by,omitzero"`
}

// FinishedOf returns f for an answer.
func FinishedOf(f *punctual.Finished) Finished {
	return Finished{
		ID: f.ID, Topic: f.Topic, Outcome: string(f.Outcome), At: Time(f.At),
		Due: Time(f.Due), FirstDue: Time(f.FirstDue), Created: Time(f.Created), Attempt: f.Attempt,
		Delivered: Time(f.Delivered), Failures: failuresOf(f.Failures), KeptUntil: Time(f.KeptUntil),
	}
}

// Finished returns the record as a punctual.Finished. Its error is always nil.
func (f *Finished) Finished() (punctual.Finished, error) {
	return punctual.Finished{
		ID: f.ID, Topic: f.Topic, Outcome: punctual.Outcome(f.Outcome), At: time.Time(f.At),
		Due: time.Time(f.Due), FirstDue: time.Time(f.FirstDue), Created: time.Time(f.Created), Attempt: f.Attempt,
		Delivered: time.Time(f.Delivered), Failures: failures(f.Failures), KeptUntil: time.Time(f.KeptUntil),
	}, nil
}

// OutcomeWords returns the outcomes of finished messages as requests and answers have them.
func OutcomeWords() (words []string) {
	for _, o := range storekit.Outcomes() {
		words = append(words, string(o))
	}
	return words
}

// FinishedPage is a part of a list of finished records.
type FinishedPage struct {
	Records []Finished `json:"records"`
	// Next is the value of the parameter "after" for the next page. It is left out on the last
	// page.
	Next string `json:"next,omitzero"`
}

// FinishedPageOf returns p for an answer.
func FinishedPageOf(p punctual.FinishedPage) FinishedPage {
	out := FinishedPage{Records: make([]Finished, len(p.Records)), Next: p.Next}
	for i := range p.Records {
		out.Records[i] = FinishedOf(&p.Records[i])
	}
	return out
}

// Page returns the page as a punctual.FinishedPage. Its error is always nil.
func (p *FinishedPage) Page() (punctual.FinishedPage, error) {
	out := punctual.FinishedPage{Records: make([]punctual.Finished, len(p.Records)), Next: p.Next}
	for i := range p.Records {
		f, err := p.Records[i].Finished()
		if err != nil {
			return out, err
		}
		out.Records[i] = f
	}
	return out, nil
}
