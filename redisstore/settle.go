package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/record"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/redisstore/internal/wait"
	"github.com/punctualmq/punctual/storekit"
)

// The statuses with which settle.lua answers for a settlement that was not simply done.
const (
	settleLost      = 1
	settleCancelled = 2
	settleTooFar    = 3
	settleAnew      = 4
)

// Settle acks, retries, snoozes, discards, releases or extends leased messages; see punctual.Store.
func (s *Store) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	return call(ctx, s, "settle", "", storekit.Plain(storekit.CheckBatch(len(ss))), func() ([]error, error) {
		key, err := s.keyOf(ctx, func() storekit.Sum { return storekit.SumOfSettle(ss) })
		if err != nil {
			return nil, err
		}
		return s.settle(ctx, ss, key)
	})
}

// settle is Settle within a call that is under way. It sends the settlements in waves, see
// following.wave, one after the other. No further wave is sent after one that has failed, or of
// which a settlement may yet take effect, so that nothing of a later wave can overtake it.
func (s *Store) settle(ctx context.Context, ss []punctual.Settlement, key *keyed) ([]error, error) {
	results := make([]error, len(ss))
	items := make([]int, 0, len(ss))
	var seen keySettings
	for i := range ss {
		if results[i] = s.checkSettlement(ctx, &ss[i], &seen); results[i] == nil {
			items = append(items, i)
		}
	}
	f, items, err := s.newFollowing(ctx, ss, items, results, key)
	if err != nil {
		return nil, err
	}
	some := false // some settlements have an answer
	for len(items) > 0 {
		wave := f.wave(items)
		answered, err := s.settleWave(ctx, ss, wave, results, key, f)
		some = some || answered
		if err != nil && !some {
			return nil, err
		}
		if items = items[len(wave):]; len(items) == 0 {
			break
		}
		if err = cmp.Or(err, unknown(results, wave)); err != nil {
			for _, i := range items {
				results[i] = settleError(&ss[i], route.UnsentBehind(err))
			}
			break
		}
	}
	return results, nil
}

// unknown returns the error of an item that may have taken effect, or may yet, or nil if there is
// none.
func unknown(results []error, items []int) error {
	for _, i := range items {
		if results[i] != nil && !punctual.Definite(results[i]) {
			return results[i]
		}
	}
	return nil
}

// settleWave sends settlements that may be sent side by side. Those that their script has left are
// sent again. The loop ends, because a script decides at least its first settlement, unless a topic
// has to be looked up; the method again does that before the next round. After an error the items
// without an answer have it in results; answered reports whether others have one.
func (s *Store) settleWave(ctx context.Context, ss []punctual.Settlement, items []int, results []error, key *keyed, f *following) (answered bool, err error) {
	for len(items) > 0 {
		left, seen, err := s.settleItems(ctx, ss, items, results, key, f)
		if err != nil {
			for _, i := range items {
				results[i] = settleError(&ss[i], err)
			}
			return answered, err
		}
		items, answered = f.again(ctx, left, seen, results), true
	}
	return answered, nil
}

// checkSettlement refuses a settlement that is not acceptable whatever the store's clock says.
// settle.lua checks delays, which count from that clock.
func (s *Store) checkSettlement(ctx context.Context, x *punctual.Settlement, seen *keySettings) error {
	if err := storekit.CheckSettlement(x, s.opt.MaxBody); err != nil {
		return err
	}
	if _, err := storekit.DueAt(time.Time{}, x.Due, 0); err != nil && !x.Due.IsZero() {
		return settleError(x, err)
	}
	for n := range x.Then {
		if err := s.check(ctx, &x.Then[n], seen); err != nil {
			return storekit.FollowUpError(n, err)
		}
	}
	return nil
}

// settleItems sends some of the settlements, and returns those that are to be sent again, and the
// topics that must be looked up before that. f is nil if there are no follow-ups.
func (s *Store) settleItems(ctx context.Context, ss []punctual.Settlement, items []int, results []error, key *keyed, f *following) (left []int, seen map[string]mismatch, err error) {
	g := route.NewChunks[*followed](s.route)
	if f != nil {
		g.Fits = f.fits
	}
	for _, i := range items {
		c := g.Add(wait.Part{Topic: ss[i].Topic, Number: keys.OfToken(ss[i].Token)}, i, settleBytes(&ss[i]))
		if f != nil {
			f.add(c, i)
		}
	}
	g.Pack = func(c *route.Chunk[*followed]) []any {
		switch {
		case c.Note != nil:
			return append([]any{packSettle(ss, c.Items), ""}, f.pack(c)...)
		case onlyAcks(ss, c.Items):
			return []any{packAcks(ss, c.Items), "1"}
		}
		return []any{packSettle(ss, c.Items), ""}
	}
	g.Ask = func(ctx context.Context, c *route.Chunk[*followed], args []any) (func() error, error) {
		var beside []keys.Partition
		if c.Note != nil {
			beside = f.partitions(c)
		}
		a, err := s.route.RunBeside(ctx, script.Settle, c.Partition, keysOf(beside, c.Note != nil && c.Note.keyed), key.part(c.Items), args...)
		if err != nil {
			return nil, err
		}
		s.waits.notify(c.Partition, a.Int())
		var versions map[string]mismatch
		if beside != nil {
			versions = make(map[string]mismatch, len(beside))
		}
		for _, p := range beside {
			versions[p.Topic] = mismatch{p, a.Int()}
			s.waits.notify(p, a.Int())
		}
		return func() error {
			again, err := fillSettled(a, ss, results, c.Items, f)
			for _, i := range again {
				f.toLookUp(i, mismatch{c.Partition, a.Version}, versions, seen)
			}
			left = append(left, again...)
			return err
		}, nil
	}
	seen = make(map[string]mismatch)
	g.Run(ctx)
	err = g.Outcome(func(i int, err error) { results[i] = settleError(&ss[i], err) })
	slices.Sort(left)
	return left, seen, err
}

// keysOf are the keys of partitions as a script is given them. keyed says that their topics have
// keys.
func keysOf(ps []keys.Partition, keyed bool) (all []any) {
	for _, p := range ps {
		names := p.Keys()
		if keyed {
			names = p.All()
		}
		for _, key := range names {
			all = append(all, key)
		}
	}
	return all
}

// settleBytes returns what a settlement counts against the limit of a script. An ack counts no
// state, because it writes none. Where an ack needs the state, settle.lua itself bounds how many
// bytes of states it reads.
func settleBytes(x *punctual.Settlement) int {
	n := thenBytes(x)
	if x.Verb != punctual.SettleAck {
		n += script.StateBytes
	}
	return n
}

// fillSettled reads the answer of settle.lua. left are the items that it has left for another
// script.
func fillSettled(a *script.Answer, ss []punctual.Settlement, results []error, items []int, f *following) (left []int, err error) {
	for !a.Bad && len(a.Items) > 0 {
		n, status := a.Int(), a.Int()
		if n < 0 || n >= int64(len(items)) || f == nil && status >= followUp {
			a.Bad = true
			break
		}
		i := items[n]
		switch {
		case status == settleAnew:
			left = append(left, i)
		case status >= followUp:
			due, state := a.Int(), a.Int()
			if results[i] = f.refused(i, status, due, state); results[i] == nil {
				left = append(left, i)
			}
		default:
			results[i] = notSettled(&ss[i], status)
		}
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

// packAcks packs acks for settle.lua: for each run of acks with the same token that token, and the
// number and the IDs of these acks.
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
		if x.Due.IsZero() {
			b = record.PackNumber(b, settleDelay(x))
		} else {
			b = packDue(b, x.Due, 0)
		}
		b = record.PackString(b, storekit.TrimError(x.Error))
	}
	return b
}

// settleDelay returns the delay in ms, or what stands for the topic's backoff: -1, less a random
// number from 0 to 1 for the jitter.
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
