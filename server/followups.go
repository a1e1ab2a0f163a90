package server

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// The follow-ups of a settlement are pushes: each needs the right to push to its topic, and keeps
// the limits of a push. All of them are checked before the settlement goes to the store, because
// either the settlement and all its follow-ups happen or nothing does.

// followUps returns the follow-ups in the body of a request that settles one message. They count in
// Server.memory.
func (c *call) followUps() (wire.FollowUps, error) {
	if len(c.body) == 0 {
		return nil, nil
	}
	var b wire.SettleBody
	if err := wire.DecodeRequest(c.body, &b); err != nil {
		return nil, err
	}
	if err := c.mayFollow(b.Then); err != nil {
		return nil, err
	}
	if err := c.holdItems(b.Then.Size()); err != nil {
		return nil, err
	}
	c.dropBody()
	return b.Then, nil
}

// mayFollow checks the client's right to push each of the follow-ups.
func (c *call) mayFollow(then wire.FollowUps) error {
	for i := range then {
		if err := c.allows(access.Push, string(then[i].Topic)); err != nil {
			return storekit.FollowUpError(i, err)
		}
	}
	return nil
}

// takesThen returns an error if a settlement with follow-ups is malformed or its follow-ups are
// beyond a limit: their number and bytes, the body of each, topics that would be too many, and
// copies for the groups of a topic that would be too large.
func (c *call) takesThen(x *punctual.Settlement) error {
	if len(x.Then) == 0 {
		return nil
	}
	if err := storekit.CheckSettlement(x, int(c.server.limits.MaxBody)); err != nil {
		return err
	}
	for i := range x.Then {
		err := c.mayMake(x.Then[i].Topic)
		if err == nil {
			err = c.copiesFit(&x.Then[i])
		}
		if err != nil {
			return storekit.FollowUpError(i, err)
		}
	}
	return nil
}
