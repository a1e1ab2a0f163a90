package worker

import (
	"context"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
)

// A claim may name at most punctual.MaxClaimTopics topics. A claim for more topics is divided into parts, each a call of the
// store, one after the other. While nothing is due each call waits for a short time only, so that no topic goes unasked for long.

// partWait is how long the call of one part waits in the store.
const partWait = 50 * time.Millisecond

// claimParts is Store.Claim for any number of topics. When a part fails after an earlier one has brought messages, claimParts
// returns these without the error, because the next claim asks for the topics of the failed part again.
func (w *Worker) claimParts(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if len(c.Topics) <= punctual.MaxClaimTopics {
		return w.store.Claim(ctx, c)
	}
	parts := slices.Collect(slices.Chunk(c.Topics, punctual.MaxClaimTopics))
	end := time.Now().Add(c.Wait)
	var ds []punctual.Delivery
	part := c
	for wait := time.Duration(0); ; wait = partWait {
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
