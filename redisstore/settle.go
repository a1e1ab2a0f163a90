package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/record"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/redisstore/internal/wait"
	"github.com/punctualmq/punctual/storekit"
)

// What settle.lua says of a settlement that was not simply done.
const (
	settleLost      = 1
	settleCancelled = 2
	settleTooFar    = 3
	settleAnew      = 4
)

// Settle finishes, gives back, gives up or extends leases; see punctual.Store.
func (s *Store) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	return call(ctx, s, "settle", "", storekit.Plain(storekit.CheckBatch(len(ss))), func() ([]error, error) {
		key, err := s.keyOf(ctx, func() storekit.Sum { return storekit.SumOfSettle(ss) })
		if err != nil {
			return nil, err
		}
		return s.settle(ctx, ss, key)
	})
}

// settle is Settle within a call that is under way. What was too much for its script is asked for anew. The first of a
// script is always done, so that comes to an end.
func (s *Store) settle(ctx context.Context, ss []punctual.Settlement, key *keyed) ([]error, error) {
	results := make([]error, len(ss))
	items := make([]int, 0, len(ss))
	for i := range ss {
		results[i] = storekit.CheckSettlement(&ss[i], s.opt.MaxBody)
		if results[i] == nil && (len(ss[i].Then) > 0 || !ss[i].Due.IsZero()) {
			results[i] = storekit.SettleError(&ss[i], punctual.ErrUnsupported)
		}
		if results[i] == nil {
			items = append(items, i)
		}
	}
	some := false // have an answer
	for len(items) > 0 {
		left, err := s.settleItems(ctx, ss, items, results, key)
		if err != nil && !some {
			return nil, err
		}
		if err != nil {
			for _, i := range items {
				results[i] = settleError(&ss[i], err)
			}
			break
		}
		items, some = left, true
	}
	return results, nil
}

// settleItems asks for some of the settlements, and returns those that are to be asked for anew.
func (s *Store) settleItems(ctx context.Context, ss []punctual.Settlement, items []int, results []error, key *keyed) (left []int, err error) {
	g := route.NewChunks[struct{}](s.route)
	for _, i := range items {
		g.Add(wait.Part{Topic: ss[i].Topic, Number: keys.OfToken(ss[i].Token)}, i, settleBytes(&ss[i]))
	}
	g.Pack = func(c *route.Chunk[struct{}]) []any {
		if onlyAcks(ss, c.Items) {
			return []any{packAcks(ss, c.Items), "1"}
		}
		return []any{packSettle(ss, c.Items), ""}
	}
	g.Ask = func(ctx context.Context, c *route.Chunk[struct{}], args []any) (func() error, error) {
		a, err := s.route.Run(ctx, script.Settle, c.Partition, key.part(c.Items), args...)
		if err != nil {
			return nil, err
		}
		s.waits.notify(c.Partition, a.Int())
		return func() error {
			again, err := fillSettled(a, ss, results, c.Items)
			left = append(left, again...)
			return err
		}, nil
	}
	g.Run(ctx)
	err = g.Outcome(func(i int, err error) { results[i] = settleError(&ss[i], err) })
	slices.Sort(left)
	return left, err
}

// settleBytes counts against the limit of a script. An ack reads no more of a state than its token.
func settleBytes(x *punctual.Settlement) int {
	if x.Verb == punctual.SettleAck {
		return 0
	}
	return script.StateBytes
}

// fillSettled reads the answer of settle.lua. left are the items that it has left for another script.
func fillSettled(a *script.Answer, ss []punctual.Settlement, results []error, items []int) (left []int, err error) {
	for !a.Bad && len(a.Items) > 0 {
		n, status := a.Int(), a.Int()
		if n < 0 || n >= int64(len(items)) {
			a.Bad = true
			break
		}
		i := items[n]
		if status == settleAnew {
			left = append(left, i)
			continue
		}
		results[i] = notSettled(&ss[i], status)
	}
	if a.Bad {
		return nil, script.BadReply(script.Settle)
	}
	return left, nil
}

func settleError(x *punctual.Settlement, err error) error {
	return fmt.Errorf("%s of %s in %s: %w", x.Verb, x.ID, x.Topic, err)
}

func onlyAcks(ss []punctual.Settlement, items []int) bool {
	for _, i := range items {
		if ss[i].Verb != punctual.SettleAck {
			return false
		}
	}
	return true
}

// packAcks packs acks for settle.lua: each token once, with the IDs that it is of.
func packAcks(ss []punctual.Settlement, items []int) []byte {
	size, runs := record.PackedBytes, 0
	for n, i := range items {
		size += record.PackedBytes + len(ss[i].ID)
		if n == 0 || ss[i].Token != ss[items[n-1]].Token {
			runs++
		}
	}
	b := record.PackArray(make([]byte, 0, size+2*record.PackedBytes*runs), 2*runs+len(items))
	for first := 0; first < len(items); {
		token, end := ss[items[first]].Token, first+1
		for end < len(items) && ss[items[end]].Token == token {
			end++
		}
		b = record.PackNumber(record.PackNumber(b, float64(token)), float64(end-first))
		for _, i := range items[first:end] {
			b = record.PackString(b, ss[i].ID)
		}
		first = end
	}
	return b
}

// packSettle packs settlements for settle.lua.
func packSettle(ss []punctual.Settlement, items []int) []byte {
	size := record.PackedBytes
	for _, i := range items {
		size += 5*record.PackedBytes + len(ss[i].ID) + len(ss[i].Error)
	}
	b := record.PackArray(make([]byte, 0, size), 5*len(items))
	for _, i := range items {
		x := &ss[i]
		b = record.PackString(b, x.ID)
		b = record.PackNumber(b, float64(x.Token))
		b = record.PackNumber(b, float64(x.Verb))
		b = record.PackNumber(b, settleDelay(x))
		b = record.PackString(b, storekit.TrimError(x.Error))
	}
	return b
}

// settleDelay is the delay in ms, or what stands for the topic's backoff: -1, less the chance
// of this message.
func settleDelay(x *punctual.Settlement) float64 {
	if x.Delay == punctual.UseBackoff && x.Verb == punctual.SettleRetry {
		return -1 - rand.Float64()
	}
	return float64(storekit.CeilDuration(x.Delay))
}

func notSettled(x *punctual.Settlement, status int64) error {
	switch status {
	case settleLost:
		return settleError(x, punctual.ErrLeaseLost)
	case settleCancelled:
		return settleError(x, punctual.ErrCancelled)
	}
	return tooFar(fmt.Sprintf("%s of %s in %s after %v", x.Verb, x.ID, x.Topic, x.Delay))
}
