package diskstore

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/topics"
	"github.com/punctualmq/punctual/storekit"
)

// Finished returns the finished record of a message; see punctual.FinishedKeeper.
func (s *Store) Finished(ctx context.Context, topic, id string) (punctual.Finished, error) {
	if err := s.admit(ctx, cmp.Or(storekit.CheckTopic(topic), storekit.CheckID(id))); err != nil {
		return punctual.Finished{}, fmt.Errorf("finished: %w", err)
	}
	tv, err := s.snapshotInto(ctx, topic, func(*topicView, *topics.Topic) error { return nil })
	if err != nil {
		return punctual.Finished{}, fmt.Errorf("finished: %w", err)
	}
	defer tv.close()
	f, ok, err := tv.snap.Finished(tv.Num, id) // finds nothing if there is no such topic, because no topic has number 0
	if err != nil {
		return punctual.Finished{}, fmt.Errorf("finished: %w", err)
	}
	if f.Topic = topic; !ok || storekit.Millis(f.KeptUntil) <= tv.now {
		return punctual.Finished{}, storekit.NoFinishedRecordError(topic, id)
	}
	return f, nil
}

// ListFinished returns one page of a topic's finished records; see punctual.FinishedKeeper. On disk
// the records of all topics together are in the order of the list, and ListFinished looks at up to
// 10,000 keys of that order for one page. If more than 5,000 of these lead to no record of the
// topic, and the topic has no more than 10,000 records, it reads and sorts all of them instead.
func (s *Store) ListFinished(ctx context.Context, q punctual.FinishedQuery) (punctual.FinishedPage, error) {
	q, err := storekit.CheckFinished(q)
	after, wrong := storekit.ParseFinishedPlace(q.After)
	if err := s.admit(ctx, cmp.Or(err, wrong)); err != nil {
		return punctual.FinishedPage{}, fmt.Errorf("list finished: %w", err)
	}
	tv, err := s.snapshotInto(ctx, q.Topic, func(*topicView, *topics.Topic) error { return nil })
	if err != nil {
		return punctual.FinishedPage{}, fmt.Errorf("list finished: %w", err)
	}
	defer tv.close()
	if tv.Num == 0 {
		return punctual.FinishedPage{Records: []punctual.Finished{}}, nil
	}
	r := tv.finishedRange(&q, after)
	page, others, err := tv.finishedInOrder(ctx, &q, r)
	if err == nil && others > storekit.ReadLimit/2 {
		page, err = tv.finishedSorted(ctx, &q, r, page)
	}
	if err != nil {
		return punctual.FinishedPage{}, fmt.Errorf("list finished: %w", err)
	}
	return page, nil
}

// finishedRange returns the range of the records that a query may select after a place.
func (tv *topicView) finishedRange(q *punctual.FinishedQuery, after storekit.FinishedPlace) database.FinishedRange {
	first, last := storekit.FinishedSpan(q, tv.now)
	r := database.FinishedRange{From: storekit.FinishedPlace{Until: first}, To: storekit.FinishedPlace{Until: math.MaxInt64}, Backwards: q.Descending}
	if last < math.MaxInt64 {
		r.To.Until = last + 1
	}
	switch {
	case q.After == "":
	case q.Descending && after.Compare(r.To) < 0:
		r.To = after
	case !q.Descending && after.Compare(r.From) >= 0:
		r.From = storekit.FinishedPlace{Until: after.Until, ID: after.ID + "\x00"} // the first place after after: no ID has this byte
	}
	if r.To.Compare(r.From) < 0 {
		r.To = r.From
	}
	return r
}

// finishedInOrder reads a page in the order in which records are deleted, or in the reverse order.
// others is how many of the keys that it has looked at lead to records of other topics, or to none.
func (tv *topicView) finishedInOrder(ctx context.Context, q *punctual.FinishedQuery, r database.FinishedRange) (page punctual.FinishedPage, others int, err error) {
	page.Records = []punctual.Finished{}
	looks, last := 0, storekit.FinishedPlace{}
	err = tv.snap.FinishedByEnd(ctx, tv.Num, r, func(at storekit.FinishedPlace, f *punctual.Finished) bool {
		if len(page.Records) == q.Limit || looks >= storekit.ReadLimit {
			page.Next = last.String()
			return false
		}
		looks, last = looks+1, at
		switch {
		case f == nil:
			others++
		case storekit.SelectsFinished(q, f):
			f.Topic = tv.Name
			page.Records = append(page.Records, *f)
		}
		return true
	})
	return page, others, err
}

// finishedSorted reads a page by sorting the records of the topic. If there are too many, it
// returns the page that has been read in order.
func (tv *topicView) finishedSorted(ctx context.Context, q *punctual.FinishedQuery, r database.FinishedRange, inOrder punctual.FinishedPage) (punctual.FinishedPage, error) {
	records, looks := []punctual.Finished{}, 0
	err := tv.snap.FinishedByID(ctx, tv.Num, func(f *punctual.Finished) bool {
		at := storekit.PlaceOfFinished(f)
		if at.Compare(r.From) >= 0 && at.Compare(r.To) < 0 && storekit.SelectsFinished(q, f) {
			f.Topic = tv.Name
			records = append(records, *f)
		}
		looks++
		return looks <= storekit.ReadLimit
	})
	if err != nil || looks > storekit.ReadLimit {
		return inOrder, err
	}
	return storekit.FirstFinished(q, records), nil
}
