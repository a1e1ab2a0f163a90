package worker

import (
	"context"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
)

// A claim names at most punctual.MaxClaimTopics topics. One for more is divided into parts that are asked for one after the other. While
// nothing is due each part waits for a short time, so that no topic is out of sight for long.

// partWait is how long one part waits in the store.
const partWait = 50 * time.Millisecond

// claimParts is Store.Claim for any number of topics. What one part brought is returned though a later part failed, whose topics are
// asked for again anyway.
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
