package storekit

import (
	"fmt"

	"github.com/punctualmq/punctual"
)

// CheckThen returns what is wrong with the follow-ups of a settlement, an ErrInvalid or ErrTooLarge, or nil. maxBody is the
// greatest length of a body that the store accepts, in bytes. A settlement without follow-ups passes.
func CheckThen(x *punctual.Settlement, maxBody int) error {
	if len(x.Then) == 0 {
		return nil
	}
	if x.Verb != punctual.SettleAck && x.Verb != punctual.SettleSnooze && x.Verb != punctual.SettleDiscard {
		return invalidf("%s with follow-ups: only an ack, a snooze and a discard have them", x.Verb)
	}
	if len(x.Then) > punctual.MaxThen {
		return invalidf("%d follow-ups: use at most %d", len(x.Then), punctual.MaxThen)
	}
	type name struct{ topic, id string }
	var named map[name]int // nil for a single follow-up, which needs no comparison
	if len(x.Then) > 1 {
		named = make(map[name]int, len(x.Then))
	}
	size := 0
	for i := range x.Then {
		m := &x.Then[i]
		if err := CheckPush(m, maxBody); err != nil {
			return FollowUpError(i, err)
		}
		if n := (name{m.Topic, m.ID}); m.ID != "" && named != nil {
			if first := named[n]; first != 0 {
				return FollowUpError(i, invalidf("%s in %s is also follow-up %d", m.ID, m.Topic, first))
			}
			named[n] = i + 1
		}
		size += len(m.Topic) + len(m.ID) + len(m.Body)
		for k, v := range m.Headers {
			size += len(k) + len(v)
		}
	}
	if size > punctual.MaxThenBytes {
		return errorf(punctual.ErrTooLarge, "follow-ups have %d bytes: at most %d are allowed", size, punctual.MaxThenBytes)
	}
	return nil
}

// FollowUpError returns the error of a settlement whose i-th follow-up, from 0, is refused with err. The text numbers them from 1.
func FollowUpError(i int, err error) error {
	return fmt.Errorf("follow-up %d: %w", i+1, err)
}
