package wire

import "github.com/punctualmq/punctual"

// Info is the answer of GET /v1: what answers here, and what it lets through.
type Info struct {
	// Service is "punctual".
	Service string `json:"service"`
	Version string `json:"version"`
	// Durability is left out by a store that does not know its class.
	Durability punctual.Durability `json:"durability,omitzero"`
	// Inspector, Checker and Examiner tell which optional parts the store has.
	Inspector bool `json:"inspector"`
	Checker   bool `json:"checker"`
	Examiner  bool `json:"examiner"`
	// Repeats is for how long the answer to a request with a key is kept.
	Repeats Duration `json:"repeats,omitzero"`
	// Compact is the version of the compact form that requests and answers may have; left out when they may not.
	Compact int    `json:"compact,omitzero"`
	Limits  Limits `json:"limits"`
}

// Limits are what a server lets through. What is beyond them is refused whole.
type Limits struct {
	// MaxBody bounds the body of one message, MaxRequest that of one request, in bytes.
	MaxBody    int64 `json:"max_body"`
	MaxRequest int64 `json:"max_request"`
	// MaxBatch bounds the items of one request, MaxClaim the messages of one claim.
	MaxBatch int `json:"max_batch"`
	MaxClaim int `json:"max_claim"`
	// MaxWait is how long a claim may wait at most, MaxWindow how many messages of a stream may be unsettled.
	MaxWait   Duration `json:"max_wait"`
	MaxWindow int      `json:"max_window"`
}

// Clock is the answer of GET /v1/clock.
type Clock struct {
	Now Time `json:"now"`
}

// Space is the answer of GET /v1/space: the room of the store's medium, in bytes.
type Space struct {
	// Free is what may still be written, Total the size of the medium.
	Free  int64 `json:"free"`
	Total int64 `json:"total"`
	// Reserve is kept for acks and cancels: pushes are refused while less is free.
	Reserve int64 `json:"reserve"`
}

// Health is the answer of GET /livez and /readyz.
type Health struct {
	// Status is "ok", or "degraded" when the service is worse than it should be, for the Reasons given.
	Status  string   `json:"status"`
	Reasons []string `json:"reasons,omitempty"`
}
