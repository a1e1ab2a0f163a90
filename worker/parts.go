package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// A claim may name at most limits.MaxClaimTopics topics. A claim for more topics is divided into
// parts, and each call of the store names the topics of one part. If the claim may wait, the parts
// are asked side by side, each for a share of the messages that the claim may bring. If there are
// fewer messages to bring than parts, some of the parts are asked one after the other, in turns.

// partWait is how long a call waits in the store at most where parts are asked in turns. In the
// first turn it does not wait.
const partWait = 50 * time.Millisecond

// claimParts is Store.Claim for any number of topics. Of the parts that are asked side by side, the
// first that brings messages or fails ends the others. When one fails and others have brought
// messages, claimParts returns these without the error, because the next claim asks for the topics
// of the failed part again.
func (w *Worker) claimParts(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if len(c.Topics) <= limits.MaxClaimTopics {
		return w.store.Claim(ctx, c)
	}
	parts := slices.Collect(slices.Chunk(c.Topics, limits.MaxClaimTopics))
	if c.Wait <= 0 {
		return w.claimInTurns(ctx, c, parts)
	}
	n := min(len(parts), c.Max)
	ds, errs := make([][]punctual.Delivery, n), make([]error, n)
	until, end := context.WithCancel(ctx)
	defer end()
	var calls sync.WaitGroup
	for i := range n {
		share := c
		share.Max = c.Max / n
		if i < c.Max%n {
			share.Max++
		}
		var own [][]string
		for j := i; j < len(parts); j += n {
			own = append(own, parts[j])
		}
		calls.Go(func() {
			if ds[i], errs[i] = w.claimInTurns(until, share, own); len(ds[i]) > 0 || errs[i] != nil {
				end()
			}
		})
	}
	calls.Wait()
	if all := slices.Concat(ds...); len(all) > 0 {
		return all, nil
	}
	for _, err := range errs {
		if err != nil && (ctx.Err() != nil || !errors.Is(err, context.Canceled)) { // else another call has ended this one
			return nil, err
		}
	}
	return nil, nil
}

// claimInTurns claims the messages of some parts, one part after the other. If c may wait, and no
// part has anything due, the turns go on until the time of c is over.
func (w *Worker) claimInTurns(ctx context.Context, c punctual.Claim, parts [][]string) ([]punctual.Delivery, error) {
	end := time.Now().Add(c.Wait)
	wait := time.Duration(0) // the first turn finds what is due already
	if len(parts) == 1 {
		wait = c.Wait
	}
	var ds []punctual.Delivery
	part := c
	for ; ; wait = partWait {
		for _, topics := range parts {
			part.Topics, part.Max, part.Wait = topics, c.Max-len(ds), max(0, min(wait, time.Until(end)))
			some, err := w.store.Claim(ctx, part)
			ds = append(ds, some...)
			switch {
			case err != nil && len(ds) == 0:
				return nil, err
			case err != nil, len(ds) >= c.Max, len(ds) > 0 && wait > 0:
				return ds, nil
			}
		}
		if len(ds) > 0 || time.Until(end) <= 0 {
			return ds, nil
		}
	}
}
