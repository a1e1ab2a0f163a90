package wire

import (
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Info is the answer of GET /v1: what the server is, what its store can do, and the server's
// limits.
type Info struct {
	// Service is "punctual".
	Service string `json:"service"`
	Version string `json:"version"`
	// Durability is the store's class of durability. It is left out if the store does not know its
	// class.
	Durability punctual.Durability `json:"durability,omitzero"`
	// Inspector, Checker and storekit.Examiner say which optional interfaces the store has.
	Inspector bool `json:"inspector"`
	Checker   bool `json:"checker"`
	Examiner  bool `json:"examiner"`
	// Abilities are what the store can do beside what every store must. It is left out until the
	// store has said so once, so that nobody takes a store that does not answer for one without
	// abilities.
	Abilities *Abilities `json:"abilities,omitzero"`
	// Repeats is how long the server keeps the answer to a request with a key.
	Repeats Duration `json:"repeats,omitzero"`
	// Compact is the version of the compact form that the server knows. A server that does not know
	// it leaves it out.
	Compact int `json:"compact,omitzero"`
	// Farewell says that an HTTP/1.1 connection which the server ends between two requests ends
	// with an answer that has a HeaderNotBegun, unless the server ends it to make room for another
	// connection. A client can then send changes by HTTP/1.1 and still learns, as over HTTP/2,
	// which of them were not begun.
	Farewell bool   `json:"farewell,omitzero"`
	Limits   Limits `json:"limits"`
}

// Abilities are storekit.Abilities.
type Abilities struct {
	// Follow says where the store can put the follow-ups of a settlement in the same step: "none",
	// "family" (the companions of the topic and the topic itself) or "any".
	Follow string `json:"follow"`
	// Emit tells that topics can tell of what happens to their messages (the setting emit).
	Emit bool `json:"emit,omitzero"`
	// BoundsLeases tells that topics can bound how many messages are leased (the settings
	// max_leases and max_rate).
	BoundsLeases bool `json:"bounds_leases,omitzero"`
	// Keys tells that messages can have keys (the setting keyed).
	Keys bool `json:"keys,omitzero"`
	// Duties says that the server does what any process may do for the store, such as copying for
	// groups.
	Duties bool `json:"duties,omitzero"`
}

// AbilitiesOf returns a for an answer.
func AbilitiesOf(a storekit.Abilities) *Abilities {
	return &Abilities{Follow: a.Follow.String(), Emit: a.Emit, BoundsLeases: a.BoundsLeases, Keys: a.Keys, Duties: a.Duties}
}

// StoreAbilities returns what the server's store can do. A reach that this program does not know
// counts as storekit.ReachNone, because the program would not know what lies within it. If the
// server does not say what its store can do, that is an ErrUnreachable, after which the caller may
// ask again.
func (i *Info) StoreAbilities() (out storekit.Abilities, err error) {
	if i.Abilities == nil {
		return out, fmt.Errorf("the server does not know at the moment what its store can do: %w", punctual.ErrUnreachable)
	}
	out.Emit, out.BoundsLeases, out.Keys, out.Duties = i.Abilities.Emit, i.Abilities.BoundsLeases, i.Abilities.Keys, i.Abilities.Duties
	for r := storekit.ReachNone; r <= storekit.ReachAny; r++ {
		if r.String() == i.Abilities.Follow {
			out.Follow = r
		}
	}
	return out, nil
}

// Limits are the limits of a server. A request beyond one of them is refused as a whole, but for
// MaxBody: of many items only those are refused whose bodies, or whose follow-ups' bodies, are too
// large.
type Limits struct {
	// MaxBody bounds the body of one message, MaxRequest that of one request, in bytes.
	MaxBody    int64 `json:"max_body"`
	MaxRequest int64 `json:"max_request"`
	// MaxBatch bounds the items of one request, MaxClaim the messages of one claim.
	MaxBatch int `json:"max_batch"`
	MaxClaim int `json:"max_claim"`
	// MaxWait bounds how long a claim waits, MaxWindow how many messages of a stream are unsettled.
	MaxWait   Duration `json:"max_wait"`
	MaxWindow int      `json:"max_window"`
}

// Clock is the answer of GET /v1/clock.
type Clock struct {
	Now Time `json:"now"`
}

// ClockState is the answer of GET and POST /v1/clock/state: a storekit.ClockState.
type ClockState struct {
	Now     Time     `json:"now"`
	Follows string   `json:"follows"`
	Ahead   Duration `json:"ahead"`
	Steps   int64    `json:"steps"`
	// From and To are those of the last step.
	From Time `json:"from,omitzero"`
	To   Time `json:"to,omitzero"`
}

// ClockStateOf returns c for an answer.
func ClockStateOf(c storekit.ClockState) ClockState {
	return ClockState{whole(c.Now), c.Follows, Duration(c.Ahead.Truncate(time.Millisecond)), c.Steps, Time(c.Last.From), Time(c.Last.To)}
}

// State is the reverse of ClockStateOf.
func (c *ClockState) State() (storekit.ClockState, error) {
	last := storekit.ClockStep{From: time.Time(c.From), To: time.Time(c.To)}
	return storekit.ClockState{Now: time.Time(c.Now), Follows: c.Follows, Ahead: time.Duration(c.Ahead), Steps: c.Steps, Last: last}, nil
}

// Space is the answer of GET /v1/space: the space on the store's medium, in bytes.
type Space struct {
	// Free is how much can still be written, Total the size of the medium.
	Free  int64 `json:"free"`
	Total int64 `json:"total"`
	// Reserve is kept for acks and cancels: pushes are refused while less is free.
	Reserve int64 `json:"reserve"`
}

// Health is the answer of GET /livez and /readyz.
type Health struct {
	// Status is "ok", or "degraded" if the service works with a fault that Reasons names.
	Status  string   `json:"status"`
	Reasons []string `json:"reasons,omitempty"`
}
