package wire

import "github.com/punctualmq/punctual"

// SettleRequest is the body of POST /v1/settle.
type SettleRequest struct {
	Settlements Items[SettleItem] `json:"settlements"`
}

// SettleItem is what a holder says of one lease.
type SettleItem struct {
	Topic string `json:"topic"`
	ID    string `json:"id"`
	Token int64  `json:"token,string"`
	// Verb is "ack", "retry", "snooze", "discard", "release" or "extend".
	Verb string `json:"verb"`
	// In is when the next attempt is due. Left out, it means the topic's backoff for a retry, and now for a snooze.
	// For an extension it is the new length of the lease from now; left out, it is the topic's.
	In Given `json:"in,omitzero"`
	// Error is kept in the history, for a retry and a discard.
	Error string `json:"error,omitzero"`
}

// SettleItemOf is s for a request. What cannot stand in JSON is an ErrInvalid. The error's text is to be UTF-8, as
// storekit.TrimError makes it.
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

// Settlement is the item as a store takes it, or an ErrInvalid that names the member.
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

// SettleResult is what became of one settlement: done, unless there is an Error.
type SettleResult struct {
	Topic string   `json:"topic"`
	ID    string   `json:"id"`
	Error *Problem `json:"error,omitzero"`
}
