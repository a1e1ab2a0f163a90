package wire

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// SettleRequest is the body of POST /v1/settle.
type SettleRequest struct {
	Settlements Items[SettleItem] `json:"settlements"`
}

// SettleItem settles one lease.
type SettleItem struct {
	Topic string `json:"topic"`
	ID    string `json:"id"`
	Token int64  `json:"token,string"`
	// Verb is "ack", "retry", "snooze", "discard", "release" or "extend".
	Verb string `json:"verb"`
	// When says when the next attempt is due. Left out, a retry follows the topic's backoff and a
	// snooze is due now. For an extension In is the new length of the lease from now. Left out, it
	// is the topic's.
	When
	// Error is what went wrong. A retry and a discard store it in the message's history.
	Error string `json:"error,omitzero"`
	// Then are the messages that an ack, a snooze or a discard stores in the same step.
	Then FollowUps `json:"then,omitzero"`
}

// SettleBody is the body of a request that settles one lease by an ack, a snooze or a discard. It
// may be left out.
type SettleBody struct {
	Then FollowUps `json:"then,omitzero"`
}

// SettleItemOf returns s for a request. A name or an error text that is not UTF-8 is an ErrInvalid;
// storekit.TrimError makes an error text UTF-8.
func SettleItemOf(s *punctual.Settlement) (SettleItem, error) {
	if err := checkNames(s.Topic, s.ID); err != nil {
		return SettleItem{}, err
	}
	if err := checkText("error", s.Error); err != nil {
		return SettleItem{}, err
	}
	item := SettleItem{Topic: s.Topic, ID: s.ID, Token: s.Token, Verb: s.Verb.String(), When: WhenOf(s.Delay, s.Due), Error: s.Error}
	if s.Verb == punctual.SettleRetry {
		switch {
		case s.Delay == 0 && s.Due.IsZero():
			item.In = "0s"
		case s.Delay == punctual.UseBackoff:
			item.In = ""
		}
	}
	var err error
	item.Then, err = FollowUpsOf(s.Then)
	return item, err
}

// Size returns about how many bytes of memory the item takes.
func (s *SettleItem) Size() int64 {
	return itemBytes + int64(len(s.Topic)+len(s.ID)+len(s.Error)) + s.Then.Size()
}

// Settlement returns the item as a punctual.Settlement. A malformed member is an ErrInvalid that
// names it.
func (s *SettleItem) Settlement() (punctual.Settlement, error) {
	verb, err := ParseVerb(s.Verb)
	if err != nil {
		return punctual.Settlement{}, err
	}
	out := punctual.Settlement{Topic: s.Topic, ID: s.ID, Token: s.Token, Verb: verb, Error: s.Error}
	if out.Delay, out.Due, err = s.Times(); err != nil {
		return out, err
	}
	if verb == punctual.SettleRetry && s.When.IsZero() {
		out.Delay = punctual.UseBackoff
	}
	out.Then, err = s.Then.Messages()
	return out, err
}

// ParseVerb is the inverse of punctual.Verb.String.
func ParseVerb(word string) (punctual.Verb, error) {
	for v := punctual.SettleAck; v <= punctual.SettleExtend; v++ {
		if v.String() == word {
			return v, nil
		}
	}
	return 0, storekit.Invalidf("\"verb\" %q: use ack, retry, snooze, discard, release or extend", word)
}

// SettleAnswer is the answer to a SettleRequest: a result for each settlement, in their order.
type SettleAnswer struct {
	Results []SettleResult `json:"results"`
}

// SettleResult is the result of one settlement. Without an Error the settlement was carried out.
type SettleResult struct {
	Topic string   `json:"topic"`
	ID    string   `json:"id"`
	Error *Problem `json:"error,omitzero"`
}
