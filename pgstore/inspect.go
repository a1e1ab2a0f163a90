package pgstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Get returns one message; see punctual.Inspector.
func (s *Store) Get(ctx context.Context, topic, id string) (punctual.Info, error) {
	check := cmp.Or(storekit.CheckTopic(topic), storekit.CheckID(id))
	return call(ctx, s, "get", id+" in "+topic, check, func() (punctual.Info, error) {
		found, err := s.inspector.infos(ctx, topic, "get", []any{topic, id})
		if err == nil && len(found) == 0 {
			err = s.db.settled(ctx)
		}
		switch {
		case err != nil:
			return punctual.Info{}, err
		case len(found) == 0:
			return punctual.Info{}, storekit.Plain(fmt.Errorf("message %s in %s: %w", id, topic, punctual.ErrNotFound))
		}
		return found[0], nil
	})
}

// settled returns when all that was read until now is durable (P13). A message that is there is
// durable already. A message that is gone, or is missing from a list or a count, may have been
// acked by a commit that did not wait for the disk.
func (db *database) settled(ctx context.Context) error {
	var micros int64
	err := db.read(ctx, func() *step {
		return db.step().add("durable", db.writing(), func(rows scanner) error { return rows.Scan(&micros, nil) })
	})
	if err == nil {
		db.clock.hear(micros)
	}
	return err
}

// inspector reads messages, finished records and statistics for people. It has no state.
type inspector struct{ db *database }

// infos runs a statement that reads messages for a Get or a List.
func (i *inspector) infos(ctx context.Context, topic, statement string, args []any) (found []punctual.Info, err error) {
	var micros int64
	err = i.db.read(ctx, func() *step {
		found = []punctual.Info{}
		return i.db.step().add(statement, i.db.reading(args...), func(rows scanner) error {
			i, err := scanInfo(rows, topic, &micros)
			found = append(found, i)
			return err
		})
	})
	if micros > 0 {
		i.db.clock.hear(micros)
	}
	return found, err
}

// scanInfo reads the clock and, after it, the columns of info.sql.
func scanInfo(rows scanner, topic string, micros *int64) (punctual.Info, error) {
	i := punctual.Info{Message: punctual.Message{Topic: topic}}
	var r row // with the fields on which the state depends
	var first, created int64
	var expires, visibleAt, diedAt *int64
	var headers, attributes []byte
	var failures [][]byte
	var reason *string
	err := rows.Scan(micros, &i.ID, &r.Due, &first, &created, &expires, &i.DropExpired, &i.Attempt, &i.MaxAttempts, &headers, &i.Body, &failures,
		&visibleAt, &r.Token, &i.CancelRequested, &diedAt, &reason, &attributes, &i.Waiting)
	if err != nil {
		return i, err
	}
	i.Due, i.FirstDue, i.Created = storekit.FromMillis(r.Due), storekit.FromMillis(first), storekit.FromMillis(created)
	if expires != nil {
		i.Expires = storekit.FromMillis(*expires)
	}
	r.place(visibleAt, diedAt, reason)
	switch i.State = r.state(*micros/1000, &punctual.Settings{}); i.State {
	case punctual.StateLeased:
		i.LeaseUntil = storekit.FromMillis(r.LeaseUntil)
	case punctual.StateDead:
		i.Died, i.Reason = storekit.FromMillis(r.Died), r.Reason
	}
	if err = setAttributes(&i.Message, attributes); err == nil {
		i.Headers, err = decodeHeaders(headers)
	}
	if err == nil {
		i.Failures, err = decodeFailures(failures)
	}
	if err != nil {
		err = fmt.Errorf("message %s in %s: %w", i.ID, topic, err)
	}
	return i, err
}

// List returns one page of a topic's messages; see punctual.Inspector. Equal times are ordered by
// ID.
func (s *Store) List(ctx context.Context, q punctual.ListQuery) (punctual.Page, error) {
	q, err := storekit.CheckList(q)
	subject := fmt.Sprintf("of %s messages in %s", q.State, q.Topic)
	return call(ctx, s, "list", subject, err, func() (punctual.Page, error) { return s.inspector.list(ctx, q) })
}

func (i *inspector) list(ctx context.Context, q punctual.ListQuery) (punctual.Page, error) {
	after, err := parsePlace(q.After)
	if err != nil {
		return punctual.Page{}, storekit.Plain(err)
	}
	statement, args := "list_"+q.State.String(), []any{q.Topic, storekit.CeilMillis(q.From), endOf(q.To), after.at, after.id, q.Limit + 1}
	if q.Reason != "" {
		statement, args = "list_dead_reason", append(args, string(q.Reason))
	}
	if q.Descending {
		statement += "_back"
		if q.After == "" {
			args[3] = int64(math.MaxInt64) // after every place
		}
	}
	found, err := i.infos(ctx, q.Topic, statement, args)
	if err == nil {
		err = i.db.settled(ctx)
	}
	if err != nil {
		return punctual.Page{}, err
	}
	if q.Bare {
		storekit.DropBodies(found)
	}
	p := punctual.Page{Messages: found[:min(q.Limit, len(found))]}
	if len(found) > q.Limit {
		p.Next = placeOf(found[q.Limit-1]).String()
	}
	return p, nil
}

// endOf returns the end of a range of times in ms. The zero time sets no end.
func endOf(t time.Time) int64 {
	if t.IsZero() {
		return math.MaxInt64
	}
	return storekit.CeilMillis(t)
}

// place is where a message stands in a list. Its text is the cursor of a page.
type place struct {
	at int64 // ms
	id string
}

func placeOf(i punctual.Info) place {
	at := i.Due
	switch i.State {
	case punctual.StateLeased:
		at = i.LeaseUntil
	case punctual.StateDead:
		at = i.Died
	}
	return place{at.UnixMilli(), i.ID}
}

func (p place) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.at, 10) + " " + p.id))
}

// parsePlace is the inverse of String. The empty text is the place before every message.
func parsePlace(text string) (place, error) {
	if text == "" {
		return place{at: math.MinInt64}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	at, id, found := strings.Cut(string(raw), " ")
	ms, err2 := strconv.ParseInt(at, 10, 64)
	if err != nil || err2 != nil || !found || storekit.CheckID(id) != nil {
		return place{}, fmt.Errorf("list after %q: use the Next of a former page: %w", text, punctual.ErrInvalid)
	}
	return place{at: ms, id: id}, nil
}

// Topics returns the statistics of every topic; see punctual.Inspector. It reads all messages.
func (s *Store) Topics(ctx context.Context) ([]punctual.TopicStats, error) {
	return call(ctx, s, "topics", "", nil, func() ([]punctual.TopicStats, error) { return s.inspector.stats(ctx, nil) })
}

// Stats returns the statistics of one topic; see punctual.Inspector. It reads all its messages.
func (s *Store) Stats(ctx context.Context, topic string) (punctual.TopicStats, error) {
	return call(ctx, s, "statistics", "of "+topic, storekit.CheckTopic(topic), func() (punctual.TopicStats, error) {
		all, err := s.inspector.stats(ctx, &topic)
		switch {
		case err != nil:
			return punctual.TopicStats{}, err
		case len(all) == 0:
			return punctual.TopicStats{}, storekit.Plain(errNoTopic(topic))
		}
		return all[0], nil
	})
}

func errNoTopic(name string) error { return fmt.Errorf("topic %s: %w", name, punctual.ErrNotFound) }

// numberOf returns the number of a topic: nil for all topics, and 0, which no topic has, for one
// that does not exist.
func (i *inspector) numberOf(ctx context.Context, topic *string) (*int32, error) {
	if topic == nil {
		return nil, nil
	}
	number := new(int32)
	return number, i.db.read(ctx, func() *step {
		return i.db.step().add("topic_number", []any{*topic}, func(rows scanner) error { return rows.Scan(number) })
	})
}

func (i *inspector) stats(ctx context.Context, topic *string) (all []punctual.TopicStats, err error) {
	number, err := i.numberOf(ctx, topic)
	if err != nil {
		return nil, err
	}
	var micros int64
	err = i.db.readAll(ctx, func() *step {
		all = []punctual.TopicStats{}
		x := i.db.step().add("now", i.db.reading(), i.db.micros(&micros))
		return x.add("stats", i.db.reading(topic, number), func(rows scanner) error {
			var t punctual.TopicStats
			var text []byte
			var next *int64
			err := rows.Scan(&t.Topic, &text, &t.Scheduled, &t.Ready, &t.Leased, &t.Dead, &next, &t.Waiting)
			if err != nil {
				return err
			}
			if next != nil {
				t.NextDue = storekit.FromMillis(*next)
			}
			t.Settings, err = i.db.settings.Decode(text)
			all = append(all, t)
			return err
		})
	})
	if micros > 0 {
		i.db.clock.hear(micros)
	}
	if err == nil {
		err = i.db.settled(ctx)
	}
	return all, err
}

// Forecast counts the messages due in steps ahead; see punctual.Inspector. It reads all live
// messages, or all those of q.Topic.
func (s *Store) Forecast(ctx context.Context, q punctual.ForecastQuery) (punctual.Forecast, error) {
	return call(ctx, s, "forecast", "", storekit.CheckForecast(q), func() (punctual.Forecast, error) { return s.inspector.forecast(ctx, q) })
}

func (i *inspector) forecast(ctx context.Context, q punctual.ForecastQuery) (f punctual.Forecast, err error) {
	width := storekit.CeilDuration(q.Step)
	var topic *string
	if q.Topic != "" {
		topic = &q.Topic
	}
	number, err := i.numberOf(ctx, topic)
	if err != nil {
		return f, err
	}
	var from *int64
	if !q.From.IsZero() {
		ms := storekit.Millis(q.From)
		from = &ms
	}
	var micros int64
	err = i.db.readAll(ctx, func() *step {
		f = punctual.Forecast{Step: time.Duration(width) * time.Millisecond, Counts: make([]int64, q.Buckets)}
		return i.db.step().add("forecast", i.db.reading(number, from, width, q.Buckets), func(rows scanner) error {
			var bucket *int64
			var n int64
			if err := rows.Scan(&micros, &bucket, &n); err != nil || bucket == nil {
				return err
			}
			switch *bucket {
			case -1:
				f.Overdue = n
			case -2:
				f.Beyond = n
			default:
				f.Counts[*bucket] = n
			}
			return nil
		})
	})
	if err == nil {
		err = i.db.settled(ctx)
	}
	if err != nil {
		return f, err
	}
	i.db.clock.hear(micros)
	start, err := storekit.ForecastStart(q, micros/1000)
	f.From = storekit.FromMillis(start)
	return f, err
}
