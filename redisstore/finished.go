package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/clock"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/record"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// Finished returns the finished record of a message; see punctual.FinishedKeeper.
func (s *Store) Finished(ctx context.Context, topic, id string) (punctual.Finished, error) {
	check := cmp.Or(storekit.CheckTopic(topic), storekit.CheckID(id))
	return call(ctx, s, "finished", id+" of "+topic, check, func() (punctual.Finished, error) {
		f, err := atHome(ctx, s, topic, id, s.finishedFrom)
		if errors.Is(err, punctual.ErrNotFound) {
			err = storekit.Plain(storekit.NoFinishedRecordError(topic, id))
		}
		return f, err
	})
}

// finishedFrom asks one partition for a finished record, and returns the version of the settings
// there.
func (s *Store) finishedFrom(ctx context.Context, p keys.Partition, id string) (punctual.Finished, int64, error) {
	a, err := s.route.Run(ctx, script.Finished, p, nil, id)
	if err != nil {
		return punctual.Finished{}, 0, err
	}
	if len(a.Items) == 0 {
		return punctual.Finished{}, a.Version, punctual.ErrNotFound
	}
	raw := a.Text()
	if a.Bad {
		return punctual.Finished{}, 0, script.BadReply(script.Finished)
	}
	f, err := record.ReadFinished(p.Topic, id, raw)
	if err == nil && storekit.Millis(f.KeptUntil) <= a.Now {
		err = punctual.ErrNotFound
	}
	return f, a.Version, err
}

// ListFinished returns one page of a topic's finished records; see punctual.FinishedKeeper. A page
// may be put together from several instants, because one script reads about 500 records of one
// partition at most. Of the records that are kept until the same millisecond ListFinished reads
// all, however many they are, because Redis has them in no order.
func (s *Store) ListFinished(ctx context.Context, q punctual.FinishedQuery) (punctual.FinishedPage, error) {
	q, err := storekit.CheckFinished(q)
	after, wrong := storekit.ParseFinishedPlace(q.After)
	return call(ctx, s, "list finished", q.Topic, cmp.Or(err, wrong), func() (punctual.FinishedPage, error) {
		return s.listFinished(ctx, &q, after)
	})
}

// listFinished merges what the partitions list.
func (s *Store) listFinished(ctx context.Context, q *punctual.FinishedQuery, after storekit.FinishedPlace) (punctual.FinishedPage, error) {
	page := punctual.FinishedPage{Records: []punctual.Finished{}}
	parts, err := s.partitions(ctx, q.Topic)
	if err != nil {
		return page, err
	}
	var lists []*finishedLister
	for _, p := range parts {
		lists = append(lists, newFinishedLister(s, p, q, after, len(parts)))
	}
	for looks := storekit.ReadLimit; ; {
		// first is the lister whose next record comes first; open is the one that has come the
		// least far and may have more to read.
		var first, open *finishedLister
		for _, l := range lists {
			if err := l.fill(ctx, &looks); err != nil {
				return page, err
			}
			switch {
			case len(l.ahead) > 0:
				if first == nil || l.byPlace(l.ahead[0], first.ahead[0]) < 0 {
					first = l
				}
			case !l.ended && (open == nil || l.order(l.reached(), open.reached()) < 0):
				open = l
			}
		}
		switch {
		case open != nil && (first == nil || open.order(open.reached(), storekit.PlaceOfFinished(&first.ahead[0])) < 0):
			page.Next = open.reached().String()
			return page, nil
		case first == nil:
			return page, nil
		case len(page.Records) == q.Limit:
			page.Next = storekit.PlaceOfFinished(&page.Records[q.Limit-1]).String()
			return page, nil
		}
		page.Records, first.ahead = append(page.Records, first.ahead[0]), first.ahead[1:]
	}
}

// finishedLister lists the finished records of one partition in the order of the query. A script
// reads members of u, which Redis has in the order of KeptUntil alone. So the records of one time
// are sorted when all members of that time have been read.
type finishedLister struct {
	s     *Store
	p     keys.Partition
	q     *punctual.FinishedQuery
	after storekit.FinishedPlace // of the query
	order func(p, o storekit.FinishedPlace) int
	share int // among how many listers a script's reach is divided

	low, high int64               // the times that are still to be read
	skip      int                 // how many members of the first of these times have been read
	same      []punctual.Finished // the records of that time
	whole     bool                // all records of some time have been read since the list began
	ahead     []punctual.Finished // read, in order, and not yet on the page
	ended     bool                // there are no more to read
}

func newFinishedLister(s *Store, p keys.Partition, q *punctual.FinishedQuery, after storekit.FinishedPlace, share int) *finishedLister {
	l := &finishedLister{s: s, p: p, q: q, after: after, order: storekit.FinishedOrder(q), share: share}
	l.low, l.high = storekit.FinishedSpan(q, 0) // the script has the clock
	l.high = min(l.high, clock.Never)
	switch {
	case q.After == "":
	case q.Descending && after.ID == "": // in this order the place stands behind all records of its time
		l.high = min(l.high, after.Until-1)
	case q.Descending:
		l.high = min(l.high, after.Until)
	default:
		l.low = max(l.low, after.Until)
	}
	return l
}

// byPlace orders records as the query lists them.
func (l *finishedLister) byPlace(a, b punctual.Finished) int {
	return l.order(storekit.PlaceOfFinished(&a), storekit.PlaceOfFinished(&b))
}

// reached returns the place up to which all records of the partition have been read.
func (l *finishedLister) reached() storekit.FinishedPlace {
	at := storekit.FinishedPlace{Until: l.low}
	if l.q.Descending {
		at.Until = l.high + 1
	}
	if l.q.After != "" && l.order(l.after, at) > 0 {
		return l.after
	}
	return at
}

// fill reads until a record is ahead, if there is one. It lowers looks by the records that it
// reads, and stops when looks is used up, but not before it has read all records of some time:
// otherwise the next page would begin where this one did.
func (l *finishedLister) fill(ctx context.Context, looks *int) error {
	for len(l.ahead) == 0 && !l.ended && (*looks > 0 || !l.whole) {
		if l.low > l.high {
			l.ended = true
			break
		}
		if err := l.step(ctx, looks); err != nil {
			return err
		}
	}
	return nil
}

// finishedReads is how many finished records a script reads at most, but it reads its last member
// of u to the end.
const finishedReads = 500

// step runs the script once.
func (l *finishedLister) step(ctx context.Context, looks *int) error {
	n := max(min(finishedReads, l.q.Limit+1)/l.share, leastShare)
	if l.q.Outcome != "" || !l.q.From.IsZero() || !l.q.To.IsZero() {
		n = finishedReads // few of the records may be selected
	}
	if l.q.Descending {
		n = -n
	}
	from, to, outcome := -clock.Never, clock.Never, -1
	if !l.q.From.IsZero() {
		from = storekit.CeilMillis(l.q.From)
	}
	if !l.q.To.IsZero() {
		to = storekit.CeilMillis(l.q.To)
	}
	if l.q.Outcome != "" {
		outcome = record.OutcomeNumber(l.q.Outcome)
	}
	a, err := l.s.route.Run(ctx, script.ListFinished, l.p, nil, l.low, l.high, l.skip, n, l.after.Until, l.after.ID, from, to, outcome, script.Bytes)
	if err != nil {
		return err
	}
	read, members, left, last, ofLast := a.Int(), a.Int(), a.Int(), a.Int(), a.Int()
	*looks -= int(read)
	for len(a.Items) > 0 && !a.Bad {
		id, raw := a.Text(), a.Text()
		if a.Bad {
			break
		}
		f, err := record.ReadFinished(l.p.Topic, id, raw)
		if err != nil {
			return err
		}
		l.add(f)
	}
	if a.Bad {
		return script.BadReply(script.ListFinished)
	}
	if members > 0 {
		l.comeTo(last, int(ofLast), ofLast < members)
	}
	if left == 0 {
		l.sorted()
		l.ended = true
	}
	return nil
}

// add adds a record behind those that were read before it.
func (l *finishedLister) add(f punctual.Finished) {
	if len(l.same) > 0 && !l.same[0].KeptUntil.Equal(f.KeptUntil) {
		l.sorted()
	}
	l.same = append(l.same, f)
	if len(l.same) > 2*l.q.Limit+finishedReads { // a page has no more than Limit of them, so those behind are dropped
		l.sortSame()
		l.same = l.same[:min(len(l.same), l.q.Limit+1)]
	}
}

// comeTo notes that the last n members read have the time at. others says that the same script has
// read members of another time before them.
func (l *finishedLister) comeTo(at int64, n int, others bool) {
	begin := &l.low
	if l.q.Descending {
		begin = &l.high
	}
	if *begin == at {
		l.skip += n
		return
	}
	if len(l.same) > 0 && storekit.Millis(l.same[0].KeptUntil) != at {
		l.sorted()
	}
	l.whole = l.whole || others || l.skip > 0 // the members of the time before have all been read
	*begin, l.skip = at, n
}

// sorted moves the records of one time ahead, because all of them have been read.
func (l *finishedLister) sorted() {
	l.sortSame()
	l.ahead, l.same = append(l.ahead, l.same...), nil
}

// sortSame puts the records of one time in order. An ID that finished twice in the same millisecond
// stands in two members of u, so its record was read twice.
func (l *finishedLister) sortSame() {
	slices.SortFunc(l.same, l.byPlace)
	l.same = slices.CompactFunc(l.same, func(a, b punctual.Finished) bool { return a.ID == b.ID })
}
