package wire

import "github.com/punctualmq/punctual"

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
	// In is the delay until the next attempt. Left out, a retry follows the topic's backoff and a snooze is due now.
	// For an extension In is the new length of the lease from now. Left out, it is the topic's.
	In Given `json:"in,omitzero"`
	// Error is what went wrong. A retry and a discard store it in the message's history.
	Error string `json:"error,omitzero"`
}

// SettleItemOf returns s for a request. A name or an error text that is not UTF-8 is an ErrInvalid; storekit.TrimError makes
// an error text UTF-8.
func SettleItemOf(s *punctual.Settlement) (SettleItem, error) {
	if err := checkNames(s.Topic, s.ID); err != nil {
		return SettleItem{}, err
	}
	if err := checkText("error", s.Error); err != nil {
		return SettleItem{}, err
	}
	item := SettleItem{Topic: s.Topic, ID: s.ID, Token: s.Token, Verb: s.Verb.String(), In: Given(DurationText(s.Delay)), Error: s.Error}
	if s.Verb == punctual.SettleRetry {
		switch s.Delay {
		case 0:
			item.In = "0s"
		case punctual.UseBackoff:
			item.In = ""
		}
	}
	return item, nil
}

// Settlement returns the item as a punctual.Settlement. A malformed member is an ErrInvalid that names it.
func (s *SettleItem) Settlement() (punctual.Settlement, error) {
	verb, err := ParseVerb(s.Verb)
	if err != nil {
		return punctual.Settlement{}, err
	}
	out := punctual.Settlement{Topic: s.Topic, ID: s.ID, Token: s.Token, Verb: verb, Error: s.Error}
	if out.Delay, err = ParseDurationText("in", string(s.In)); err == nil && verb == punctual.SettleRetry && s.In == "" {
		out.Delay = punctual.UseBackoff
	}
	return out, err
}

// ParseVerb is the inverse of punctual.Verb.String.
func ParseVerb(word string) (punctual.Verb, error) {
	for v := punctual.SettleAck; v <= punctual.SettleExtend; v++ {
		if v.String() == word {
			return v, nil
		}
	}
	return 0, invalidf("\"verb\" %q: use ack, retry, snooze, discard, release or extend", word)
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
