// Package demo is what punctual demo plays: a shop closes the orders that were not paid in time,
// tells others of it, and makes reports. The story (story.go) uses the library as any program
// would, the ledger (ledger.go) writes down what happened and checks the promises, and the table
// (table.go) shows both.
package demo

import (
	"context"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
)

// Report is what a run of the demo came to. As JSON it is what punctual demo --json prints.
type Report struct {
	Lateness Lateness  `json:"lateness"`
	Promises []Promise `json:"promises"`

	ledger *ledger
}

// Lateness sums up how late the deliveries were, in milliseconds.
type Lateness struct {
	Count int   `json:"n"`
	P50   int64 `json:"p50_ms"`
	P99   int64 `json:"p99_ms"`
	Max   int64 `json:"max_ms"`
}

// Promise is one promise that was checked, and what broke it unless it was kept.
type Promise struct {
	Promise string `json:"promise"`
	Kept    bool   `json:"kept"`
	Detail  string `json:"detail,omitempty"`
}

// Play plays the story, which takes about 20 seconds, and returns what came of it. It opens the
// store twice, because the story closes it in between; the second store must have what the first
// one stored. Unless live is nil, Play shows there what happens. An error is one of the store, or
// the reason why ctx ended.
func Play(ctx context.Context, open func() (punctual.Store, error), live *term.Output) (*Report, error) {
	l := newLedger()
	stop := func() {}
	if live != nil {
		stop = showLive(live, l)
	}
	err := play(ctx, open, l)
	stop()
	if err != nil {
		return nil, err
	}
	return l.report(), nil
}

func (l *ledger) report() *Report {
	return &Report{Lateness: l.lateness(), Promises: l.results(), ledger: l}
}

// Broken is how many promises were broken.
func (r *Report) Broken() int {
	n := 0
	for _, p := range r.Promises {
		if !p.Kept {
			n++
		}
	}
	return n
}
