package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// claimBytes bounds the bodies of one claim, over all its topics. The first body that a run of
// claim.sql reads may go beyond it, which ends the claim.
const claimBytes = 16 << 20

// Claim leases due messages; see punctual.Store.
func (s *Store) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	return call(ctx, s, "claim", "", storekit.CheckClaim(&c), func() ([]punctual.Delivery, error) {
		if c.Wait == 0 {
			return s.claims.claimAside(ctx, c)
		}
		return s.waits.claim(ctx, c)
	})
}

// claims lease what is due, by claim.sql, and end what must not be delivered. waits says from where
// on a topic is read.
type claims struct {
	db       *database
	waits    *waits
	damage   *damage
	opt      *Options
	giveBack func([]punctual.Delivery) // releases leases that no caller learns of
}

// claimAside claims what is due. When ctx ends it still waits for the answer for answerGrace,
// because a connection that broke at once would leave leases that nobody holds. When the answer to
// a change does not come, the error is ErrIndeterminate beside the context's.
func (cs *claims) claimAside(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	aside, end := outliving(ctx)
	defer end()
	ds, err := cs.claimDue(aside, c)
	switch {
	case err == nil || ctx.Err() == nil:
		return ds, err
	case errors.Is(err, punctual.ErrIndeterminate):
		return nil, fmt.Errorf("%w (%w)", err, ctx.Err())
	}
	return nil, ctx.Err()
}

// claimDue leases what is due, up to c.Max. An error after the first lease ends the claim early,
// and stillHeld says what is returned.
//
// A claim that waits reads from the scan starts. One that does not wait has to find all that is
// due, whoever has put it there a moment ago, so it reads whole topics. While there is a backlog it
// first reads from the scan starts: as long as that fills the claim, a held snapshot does not make
// each claim dearer than the last one. A Worker claims in this way ahead of its free slots. While a
// whole reading takes longer than wholeLimit, it leaves what is before the scan starts to the
// polls.
func (cs *claims) claimDue(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if len(c.IDs) > 0 {
		return cs.claimIDs(ctx, c)
	}
	found := []punctual.Delivery{}
	room := int64(claimBytes)
	begun := time.Now()
	if c.Wait > 0 || cs.waits.fresh(c.Topics) {
		full, err := cs.claimFrom(ctx, c, true, &found, &room)
		switch {
		case err != nil && len(found) == 0:
			return nil, err
		case err != nil || full || len(found) == c.Max || c.Wait > 0:
			return cs.stillHeld(ctx, found, begun, err)
		}
	}
	if cs.waits.slowWhole() && cs.waits.fresh(c.Topics) {
		return cs.stillHeld(ctx, found, begun, nil)
	}
	_, err := cs.claimFrom(ctx, c, false, &found, &room)
	if err != nil && len(found) == 0 {
		return nil, err
	}
	return cs.stillHeld(ctx, found, begun, err)
}

// claimIDs leases messages by ID. Each run of its statement leases some or ends some, so the last
// one finds none.
func (cs *claims) claimIDs(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	found, room, begun := []punctual.Delivery{}, int64(claimBytes), time.Now()
	most := cmp.Or(c.Max, len(c.IDs))
	place := make(map[string]int, len(c.IDs))
	var ids []string // each once
	for i, id := range c.IDs {
		if _, named := place[id]; !named {
			place[id] = i
			ids = append(ids, id)
		}
	}
	var got *claimed
	var err error
	for c.IDs = ids; len(found) < most && room > 0 && len(c.IDs) > 0; {
		got, err = cs.claimSpan(ctx, c, c.Topics[0], span{noScanStart, never}, min(most-len(found), partItems), room, false)
		if err != nil {
			break
		}
		got.sort()
		found = append(found, got.ds...)
		room -= got.bytes()
		if got.seen == 0 || got.taken < got.seen {
			break
		}
		// Others may have locked one that was to be ended.
		c.IDs = slices.DeleteFunc(c.IDs, func(id string) bool { return slices.Contains(got.undeliverable, id) })
	}
	if err != nil && len(found) == 0 {
		return nil, err
	}
	slices.SortFunc(found, func(a, b punctual.Delivery) int { return place[a.ID] - place[b.ID] })
	return cs.stillHeld(ctx, found, begun, err)
}

// claimFrom leases what is due until found has c.Max deliveries, from the scan starts of the topics
// on or over the whole topics. It stops early and returns full when the claim has no room for the
// next message.
func (cs *claims) claimFrom(ctx context.Context, c punctual.Claim, fromScanStart bool, found *[]punctual.Delivery, room *int64) (full bool, err error) {
	topics, err := cs.dueTopics(ctx, c, fromScanStart)
	if err != nil {
		return false, err
	}
	for _, topic := range topics {
		left := c.Max - len(*found)
		if c.PerTopic > 0 {
			left = min(left, c.PerTopic-countOf(*found, topic))
		}
		ds, full, err := cs.claimTopic(ctx, c, topic, fromScanStart, left, room)
		if fromScanStart && errors.Is(err, errStatementTimeout) {
			cs.waits.skipTo([]string{topic})
			ds, full, err = cs.claimTopic(ctx, c, topic, true, left, room)
		}
		*found = append(*found, ds...)
		if err != nil || full || len(*found) == c.Max {
			return full, err
		}
	}
	return false, nil
}

// countOf returns how many of ds are of the topic. A claim that names a topic twice may hold
// messages of it already when it comes to it again.
func countOf(ds []punctual.Delivery, topic string) (n int) {
	for i := range ds {
		if ds[i].Topic == topic {
			n++
		}
	}
	return n
}

// dueTopics returns those of several topics that have something due, in the order given. A single
// topic is returned unread, because claim.sql finds out by itself whether it has something due. So
// is the only one that has to be read.
func (cs *claims) dueTopics(ctx context.Context, c punctual.Claim, fromScanStart bool) ([]string, error) {
	if len(c.Topics) == 1 {
		return c.Topics, nil
	}
	topics := c.Topics
	if fromScanStart {
		if topics = cs.waits.toRead(topics); len(topics) < 2 {
			return topics, nil
		}
	}
	now, next, err := cs.nextDue(ctx, cs.waits.beginRead(topics, fromScanStart), fromScanStart)
	if fromScanStart && errors.Is(err, errStatementTimeout) {
		cs.waits.skipTo(topics)
		now, next, err = cs.nextDue(ctx, cs.waits.beginRead(topics, true), true)
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(topics), func(t string) bool {
		return next[t] > now && !(fromScanStart && cs.waits.hasEarly(t))
	}), nil
}

// nextDue reads the next due time of each topic, which is when a message of it next needs
// attention, and the clock, all in ms. If limited, a reading from far back that takes longer than
// wholeLimit is errStatementTimeout.
func (cs *claims) nextDue(ctx context.Context, seen map[string]readState, limited bool) (now int64, next map[string]int64, err error) {
	topics, starts := slices.Sorted(maps.Keys(seen)), make([]int64, len(seen))
	for i, topic := range topics {
		starts[i] = seen[topic].scanStart
	}
	latest := behind(cs.db.clock.guess())
	far := slices.ContainsFunc(starts, func(at int64) bool { return at < latest-farBack.Milliseconds() })
	micros, read, err := cs.readNext(ctx, topics, starts, nil, limited && far)
	if err != nil {
		return 0, nil, err
	}
	next = make(map[string]int64)
	for topic, n := range read {
		at := nextDueOf(n.at, micros)
		next[topic] = at
		cs.waits.endRead(topic, readResult{at: at, scanStart: min(at, behind(micros)), paused: n.paused}, seen[topic])
	}
	return micros / 1000, next, nil
}

// nextOf is the answer of next_due.sql for a topic.
type nextOf struct {
	at     *int64
	paused bool // or there is no such topic
}

// readNext runs next_due.sql. If limited, it is errStatementTimeout after wholeLimit.
func (cs *claims) readNext(ctx context.Context, topics []string, starts []int64, until *int64, limited bool) (micros int64, next map[string]nextOf, err error) {
	err = cs.db.read(ctx, func() *step {
		next = make(map[string]nextOf)
		return cs.limit(limited).add("next_due", cs.db.reading(topics, scanAhead.Milliseconds(), starts, until), func(rows scanner) error {
			var topic string
			var n nextOf
			err := rows.Scan(&micros, &topic, &n.paused, &n.at)
			next[topic] = n
			return err
		})
	})
	if err == nil {
		cs.db.clock.hear(micros)
	}
	return micros, next, err
}

func (cs *claims) wholeLimit() time.Duration { return cmp.Or(cs.opt.wholeLimit, wholeLimit) }

// limit begins a step. If limited, none of its statements may take longer than wholeLimit.
func (cs *claims) limit(limited bool) *step {
	x := cs.db.step()
	if limited {
		x.add("statement_limit", []any{cs.wholeLimit().Milliseconds()}, nil)
	}
	return x
}

// nextDueOf returns when to read a topic again, in ms, by an answer that was given at micros: when
// its next message is due, or, if next is nil, just after the scanAhead that the answer covers.
func nextDueOf(next *int64, micros int64) int64 {
	if next == nil {
		return micros/1000 + scanAhead.Milliseconds() + 1
	}
	return *next
}

// earlyTime is how long a claim reads the early spans of a topic before it reads from the scan
// start.
const earlyTime = 50 * time.Millisecond

// claimTopic leases up to n messages of a topic, and subtracts their bytes from room. It stops
// early and returns full when the claim has no room for the next message.
func (cs *claims) claimTopic(ctx context.Context, c punctual.Claim, topic string, fromScanStart bool, n int, room *int64) (found []punctual.Delivery, full bool, err error) {
	for begun := time.Now(); n > 0; {
		limit := min(n, partItems)
		var got *claimed
		early := false
		if fromScanStart && time.Since(begun) < earlyTime {
			got, early, err = cs.claimEarly(ctx, c, topic, limit, *room)
		}
		if !early {
			got, err = cs.claimSome(ctx, c, topic, fromScanStart, limit, *room)
		}
		if err != nil {
			return found, false, err
		}
		found = append(found, got.ds...)
		*room -= got.bytes()
		n -= len(got.ds)
		switch {
		case got.taken < got.seen || *room <= 0:
			return found, true, nil
		case got.seen < got.most && !early && !got.madeRoom() && got.left == nil || got.blocked != nil:
			return found, false, nil
		}
	}
	return found, false, nil
}

// claimEarly is claimSome for a part of what is before the scan start; early is false where there
// is none.
func (cs *claims) claimEarly(ctx context.Context, c punctual.Claim, topic string, limit int, room int64) (got *claimed, early bool, err error) {
	part, ok := cs.waits.takeEarly(topic)
	if !ok {
		return nil, false, nil
	}
	begun := time.Now()
	got, err = cs.claimSpan(ctx, c, topic, part, limit, room, part.from < part.until)
	took := time.Since(begun)
	switch {
	case err != nil:
		cs.waits.readEarly(topic, part)
		if errors.Is(err, errStatementTimeout) && part.from < part.until {
			cs.waits.stepTook(took)
			return &claimed{}, true, nil
		}
		return nil, true, err
	case got.paused() || got.blocked != nil:
		cs.waits.readEarly(topic, part)
		return nil, false, nil
	case got.taken < got.seen || len(got.undeliverable) > 0 || got.full || got.left != nil:
		cs.waits.readEarly(topic, part)
	case got.seen == got.most:
		cs.waits.readEarly(topic, span{got.last(part.from), part.until})
	case got.seen == 0:
		cs.waits.stepTook(took)
	}
	got.sort()
	return got, true, nil
}

// claimed is the answer of claim.sql.
type claimed struct {
	micros        int64
	until         *int64
	token         *int64
	seen, taken   int
	undeliverable []string         // the IDs of messages that must end
	tells         *bool            // whether the topic tells of acks; nil where there is no such topic or its delivery is paused
	bounded       bool             // the topic is
	keyed         bool             // the topic has keys
	left          *int64           // of a topic with keys: from when on more is to be looked at at once, in ms
	places        map[string]int64 // of a topic with keys: the places of ds in the order of the claim
	most          int              // how many messages it was to lease at most
	full          bool             // the topic has as many leases as it may
	blocked       *int64           // when to ask again, in ms, if the bounds have let no lease begin
	next          *int64           // when the next message needs attention, if that is within scanAhead and fewer were seen than asked for
	ds            []punctual.Delivery
	unreadable    []error // one for each message that was leased and cannot be read
}

// claimSome claims from the scan start of a topic on, or over the whole topic.
func (cs *claims) claimSome(ctx context.Context, c punctual.Claim, topic string, fromScanStart bool, limit int, room int64) (*claimed, error) {
	seen := cs.waits.beginRead([]string{topic}, fromScanStart)[topic]
	limited := fromScanStart && seen.scanStart < seen.raisedTo-farBack.Milliseconds()
	got, err := cs.claimSpan(ctx, c, topic, span{seen.scanStart, never}, limit, room, limited)
	if err != nil {
		return nil, err
	}
	at := nextDueOf(got.next, got.micros)
	switch {
	case got.blocked != nil:
		at = *got.blocked
	case got.seen == got.most || got.taken < got.seen || got.full || got.left != nil: // there may be more
		at = got.micros / 1000
	}
	cs.waits.endRead(topic, readResult{at: at, scanStart: got.scanStart(seen.scanStart), paused: got.paused(), full: got.full || got.blocked != nil, blocked: got.blocked != nil}, seen)
	got.sort()
	return got, nil
}

// paused reports whether the topic is paused, or there is none.
func (g *claimed) paused() bool { return g.tells == nil }

// madeRoom reports whether messages have lost their leases that had run out, so that others may be
// leased.
func (g *claimed) madeRoom() bool { return g.full && len(g.undeliverable) > 0 }

// bytes is how many bytes the bodies of what was claimed have.
func (g *claimed) bytes() (n int64) {
	for i := range g.ds {
		n += int64(len(g.ds[i].Body))
	}
	return n
}

// sort brings what was claimed into the order of claims, because the server returns it in no order,
// and sets the ends of the leases.
func (g *claimed) sort() {
	slices.SortFunc(g.ds, func(a, b punctual.Delivery) int {
		return cmp.Or(cmp.Compare(g.places[a.ID], g.places[b.ID]), a.LeaseUntil.Compare(b.LeaseUntil), strings.Compare(a.ID, b.ID))
	})
	for i := range g.ds {
		g.ds[i].LeaseUntil = storekit.FromMillis(*g.until)
	}
}

// boundWait is how long a claim waits for other claims of a topic that is bounded. It passes by the
// topic then, because a process that stands still while it reads its answer must not hold up the
// other topics of the claim (P14).
const boundWait = 200 * time.Millisecond

// claimSpan runs claim.sql once, and ends what that has found undeliverable. A message that cannot
// be read keeps its lease until that runs out, and is dead when its attempts are used up. So it
// holds up no other message. If limited, the claim is errStatementTimeout after wholeLimit.
func (cs *claims) claimSpan(ctx context.Context, c punctual.Claim, topic string, in span, limit int, room int64, limited bool) (*claimed, error) {
	var length *int64
	if c.Lease > 0 {
		ms := storekit.CeilDuration(c.Lease)
		length = &ms
	}
	if cs.db.keyed.has(topic) {
		return cs.claimKeyed(ctx, c, topic, in, limit, room, length, limited)
	}
	var got *claimed
	bounded := cs.db.bounded.has(topic)
	err := cs.db.write(ctx, func() *step {
		got = &claimed{}
		e := cs.db.epoch.Load()
		x, statement := cs.limit(limited), "claim"
		if bounded {
			x.add("claim_lock", []any{cs.db.class, topic, lockTimeoutOf(boundWait)}, nil)
			statement = "claim_bounded"
		}
		args := cs.db.writing(topic, limit, length, room, scanAhead.Milliseconds(), in.from, e.number, e.timeline, in.until)
		if len(c.IDs) > 0 {
			statement, args = statement+"_named", append(args, c.IDs)
		}
		return x.add(statement, args, func(rows scanner) error { return got.scan(rows, topic) })
	})
	if bounded && errors.Is(err, errLockTimeout) {
		return cs.behindOthers(), nil
	}
	if err != nil {
		return nil, err
	}
	if cs.learn(topic, got) && (got.bounded != bounded || got.keyed) {
		return cs.claimSpan(ctx, c, topic, in, limit, room, limited)
	}
	return got, cs.endFound(ctx, c, topic, in, limit, got)
}

// behindOthers is the answer of a claim of a topic that is bounded, when other claims take long.
func (cs *claims) behindOthers() *claimed {
	micros := cs.db.clock.guess()
	again := micros/1000 + boundWait.Milliseconds()
	return &claimed{micros: micros, bounded: true, tells: new(bool), blocked: &again}
}

// learn takes in what a claim says of the clock and of its topic. It reports whether there is the
// topic, and its delivery is not paused.
func (cs *claims) learn(topic string, got *claimed) bool {
	cs.db.clock.hear(got.micros)
	if got.paused() {
		return false
	}
	cs.db.acks.learn(topic, *got.tells)
	cs.db.bounded.learn(topic, got.bounded)
	cs.db.keyed.learn(topic, got.keyed)
	return true
}

// endFound ends what a claim of up to limit has found undeliverable.
func (cs *claims) endFound(ctx context.Context, c punctual.Claim, topic string, in span, limit int, got *claimed) error {
	cs.damage.met(got.unreadable, cs.opt.Logger)
	if len(got.undeliverable) > 0 {
		// If this fails, a later claim finds them again.
		if len(c.IDs) > 0 || got.keyed {
			limit = undeliverableAhead // so that those behind them stay
		}
		if err := cs.endUndeliverable(ctx, topic, got, limit, in); err != nil && len(got.ds) == 0 {
			return err
		}
	}
	return nil
}

// claimKeyed is claimSpan for a topic with keys. Only claims lease, one after the other, so each
// sees all leases of the others. A change that it does not see, because another transaction commits
// it meanwhile, has left a row in the table key that the claim does not see either, so the next
// claim looks at that key again.
func (cs *claims) claimKeyed(ctx context.Context, c punctual.Claim, topic string, in span, limit int, room int64, length *int64, limited bool) (got *claimed, err error) {
	err = cs.db.write(ctx, func() *step {
		got = &claimed{places: make(map[string]int64)}
		e := cs.db.epoch.Load()
		args := cs.db.writing(topic, limit, length, room, scanAhead.Milliseconds(), in.from, e.number, e.timeline, in.until, c.IDs)
		x := cs.limit(limited).add("claim_lock", []any{cs.db.class, topic, lockTimeoutOf(boundWait)}, nil)
		return x.add("claim_keyed", args, func(rows scanner) error {
			var n, turn *int64
			before := len(got.ds)
			err := got.scan(rows, topic, &got.left, &n, &turn)
			for i := range got.ds[before:] {
				d := &got.ds[before+i]
				if got.places[d.ID] = *n; turn != nil {
					d.Turn = storekit.FromMillis(max(*turn, d.Due.UnixMilli()))
				}
			}
			return err
		})
	})
	if errors.Is(err, errLockTimeout) {
		return cs.behindOthers(), nil
	}
	if err != nil {
		return nil, err
	}
	if cs.learn(topic, got) && !got.keyed {
		return cs.claimSpan(ctx, c, topic, in, limit, room, limited)
	}
	if len(got.undeliverable) > 0 && got.left == nil { // others of their keys may come next
		got.left = &in.from
	}
	return got, cs.endFound(ctx, c, topic, in, limit, got)
}

// scanBack is how far a reading leaves the scan start behind the clock at least, because the pushes
// of the last moments may not be committed yet.
const scanBack = 2 * time.Second

// farBack is how far before the latest one possible a scan start may be for a statement to read
// from there without wholeLimit.
const farBack = 10 * time.Second

func behind(micros int64) int64 { return micros/1000 - scanBack.Milliseconds() }

// scanStart returns the next scan start of the topic, before which the claim has left no message
// that it could see. A claim leases all messages that it reads, unless they have too many bytes in
// all or some are undeliverable; then the scan start stays at from, and so it does in endRead where
// the topic's bounds leave no room. LeaseUntil of a delivery is here still the place of the message
// in its topic, as scan has set it.
func (g *claimed) scanStart(from int64) int64 {
	switch {
	case g.taken < g.seen || len(g.undeliverable) > 0:
		return from
	case g.keyed && g.left != nil:
		return max(from, min(*g.left, behind(g.micros)))
	case g.keyed || g.seen == 0:
		return behind(g.micros)
	}
	return min(g.last(from), behind(g.micros))
}

// last returns the last place of what was claimed, or from if that is later.
func (g *claimed) last(from int64) int64 {
	for i := range g.ds {
		from = max(from, g.ds[i].LeaseUntil.UnixMilli())
	}
	return from
}

// undeliverableAhead is how many messages undeliverable.sql reads.
const undeliverableAhead = 200

// endUndeliverable ends the messages that a claim of up to limit has found undeliverable. If the
// claim has met nothing else, and limit is less than undeliverableAhead, it also ends the
// undeliverable messages behind them.
func (cs *claims) endUndeliverable(ctx context.Context, topic string, found *claimed, limit int, in span) error {
	ids := found.undeliverable
	if len(found.ds) == 0 && len(found.unreadable) == 0 && limit < undeliverableAhead {
		var micros int64
		var ahead []string
		err := cs.db.read(ctx, func() *step {
			return cs.db.step().add("undeliverable", cs.db.reading(topic, in.from, in.until, undeliverableAhead), func(rows scanner) error { return rows.Scan(&micros, &ahead) })
		})
		if err != nil {
			return err
		}
		cs.db.clock.hear(micros)
		ids = distinctIDs(ids, ahead)
	}
	return cs.endMessages(ctx, topic, ids)
}

// distinctIDs returns the IDs of two lists, each once.
func distinctIDs(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// endMessages ends those of the messages that are still undeliverable. It skips messages that
// others have locked.
func (cs *claims) endMessages(ctx context.Context, topic string, ids []string) error {
	all := make([]int, len(ids))
	for i := range all {
		all[i] = i
	}
	nameOf := func(i int) messageName { return messageName{topic, ids[i]} }
	var write *changes
	err := cs.db.transact(ctx, func(ctx context.Context, tx *transaction) (*step, error) {
		l, err := cs.db.lockBy(ctx, tx, "lock_free", cs.db.step(), all, nameOf, nil)
		if err != nil {
			return nil, err
		}
		write = cs.db.changes()
		for i := range ids {
			if r := l.rows[nameOf(i)]; r != nil && r.live && r.At() <= l.now {
				write.apply(r, lifecycle.Meet(&r.Message, l.settings[topic], l.now), l.settings[topic], l.now)
			}
		}
		return write.all(), nil
	})
	if err == nil {
		cs.waits.told(write.events, write.room...)
	}
	return err
}

// scan reads a row of claim.sql. It puts the place of the message in its topic into LeaseUntil, by
// which claimSome sorts the messages before it sets the end of the lease.
func (g *claimed) scan(rows scanner, topic string, more ...any) error {
	var id *string
	var place, due, first, created, expires *int64
	var drop, bounded, keyed *bool
	var attempts, most *int32
	var headers, body, attributes []byte
	var failures [][]byte
	err := rows.Scan(append([]any{
		&g.micros, &g.until, &g.token, &g.seen, &g.taken, &g.undeliverable, &g.tells, &g.next, &place, &id, &due, &first, &created, &expires, &drop,
		&attempts, &most, &headers, &body, &failures, &attributes,
		&bounded, &keyed, &g.most, &g.full, &g.blocked,
	}, more...)...)
	g.bounded, g.keyed = orZero(bounded), orZero(keyed)
	if err != nil || id == nil {
		return err
	}
	d := punctual.Delivery{
		Message: punctual.Message{
			ID: *id, Topic: topic, Body: body, Due: storekit.FromMillis(*due), FirstDue: storekit.FromMillis(*first),
			Attempt: int(*attempts), MaxAttempts: int(*most), Created: storekit.FromMillis(*created), DropExpired: *drop,
		},
		Token: *g.token, Delivered: storekit.FromMillis(g.micros / 1000), LeaseUntil: storekit.FromMillis(*place),
	}
	if expires != nil {
		d.Expires = storekit.FromMillis(*expires)
	}
	if err = setAttributes(&d.Message, attributes); err == nil {
		d.Headers, err = decodeHeaders(headers)
	}
	if err == nil {
		d.Failures, err = decodeFailures(failures)
	}
	if err != nil {
		g.unreadable = append(g.unreadable, fmt.Errorf("message %s in %s: %w", *id, topic, err))
		return nil
	}
	g.ds = append(g.ds, d)
	return nil
}

// stillHeld returns the answer of a claim: the messages whose leases hold still, or, if there is
// none, broke, the error that has ended the claim.
func (cs *claims) stillHeld(ctx context.Context, found []punctual.Delivery, begun time.Time, broke error) ([]punctual.Delivery, error) {
	if errors.Is(broke, punctual.ErrIndeterminate) && cs.opt.gaveBack != nil {
		cs.opt.gaveBack(ctx, nil)
	}
	held := cs.withoutLapsed(ctx, found, begun)
	if len(held) == 0 && broke != nil {
		return nil, broke
	}
	return held, nil
}

// withoutLapsed gives back the messages whose leases may have run out by now, because the answer
// was long under way or the process was paused. It returns the others.
func (cs *claims) withoutLapsed(ctx context.Context, found []punctual.Delivery, begun time.Time) []punctual.Delivery {
	if len(found) == 0 {
		return found
	}
	passed := time.Since(begun)
	if cs.db.clock.fake != nil {
		passed = time.UnixMicro(cs.db.clock.guess()).Sub(found[0].Delivered)
	}
	var lapsed []punctual.Delivery
	held := slices.DeleteFunc(found, func(d punctual.Delivery) bool {
		over := !d.LeaseUntil.After(d.Delivered.Add(passed))
		if over {
			lapsed = append(lapsed, d)
		}
		return over
	})
	if cs.opt.gaveBack != nil && len(lapsed) > 0 {
		cs.opt.gaveBack(ctx, lapsed)
	}
	cs.giveBack(lapsed)
	return held
}

// giveBack releases leases that no caller of Claim learns of, so that their attempts do not count.
// A lease that cannot be given back runs out.
func (s *Store) giveBack(ds []punctual.Delivery) {
	if len(ds) == 0 {
		return
	}
	c := &settling{s: s, out: make([]error, len(ds))}
	for _, d := range ds {
		c.ss = append(c.ss, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleRelease})
	}
	for _, some := range c.parts() {
		if err := c.settleAny(context.Background(), some, len(some)); err != nil {
			s.opt.Logger.Warn("leases could not be given back and run out", "error", err)
			return
		}
	}
}
