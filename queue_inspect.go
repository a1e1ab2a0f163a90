package punctual

import (
	"context"
	"errors"
	"iter"
	"reflect"
)

// The methods of Queue that list and count messages and change the settings of topics. They need a
// store that is an Inspector, and Finished and ListFinished one that is a FinishedKeeper; with any
// other store they return ErrUnsupported.

func (q *Queue) inspector() (Inspector, error) {
	if err := q.refused(); err != nil {
		return nil, err
	}
	return As[Inspector](q.store)
}

// Get returns one message in any state, or ErrNotFound.
func (q *Queue) Get(ctx context.Context, topic, id string) (Info, error) {
	i, err := q.inspector()
	if err != nil {
		return Info{}, err
	}
	return i.Get(ctx, topic, id)
}

// Finished returns the record of the message that finished last under this ID, or ErrNotFound when
// none is kept; see FinishedKeeper. On a store that is no FinishedKeeper it returns ErrUnsupported.
func (q *Queue) Finished(ctx context.Context, topic, id string) (Finished, error) {
	if err := q.refused(); err != nil {
		return Finished{}, err
	}
	k, err := As[FinishedKeeper](q.store)
	if err != nil {
		return Finished{}, err
	}
	return k.Finished(ctx, topic, id)
}

// ListFinished yields the finished records that fq selects, in the order that FinishedQuery says.
// It reads the next page, of fq.Limit records, when the loop has gone through the one before. It
// ends after the first error, which it yields with a zero Finished; on a store that is no
// FinishedKeeper that is ErrUnsupported. If a message finishes under an ID that was yielded while
// the loop runs, the ID may be yielded again, with its later record.
func (q *Queue) ListFinished(ctx context.Context, fq FinishedQuery) iter.Seq2[Finished, error] {
	return func(yield func(Finished, error) bool) {
		err := q.refused()
		var k FinishedKeeper
		if err == nil {
			k, err = As[FinishedKeeper](q.store)
		}
		for err == nil {
			var page FinishedPage
			if page, err = k.ListFinished(ctx, fq); err != nil {
				break
			}
			for i := range page.Records {
				if !yield(page.Records[i], nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			fq.After = page.Next
		}
		yield(Finished{}, err)
	}
}

// List yields the messages that lq selects, in order of time. It reads the next page, of lq.Limit
// messages, when the loop has gone through the one before. It ends after the first error, which it
// yields with a zero Info. A message that changes while the loop runs may be yielded as it was or
// as it is then, or not at all.
func (q *Queue) List(ctx context.Context, lq ListQuery) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		i, err := q.inspector()
		if err != nil {
			yield(Info{}, err)
			return
		}
		for {
			page, err := i.List(ctx, lq)
			if err != nil {
				yield(Info{}, err)
				return
			}
			for _, m := range page.Messages {
				if !yield(m, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			lq.After = page.Next
		}
	}
}

// Stats returns the counts and settings of a topic, or ErrNotFound.
func (q *Queue) Stats(ctx context.Context, topic string) (TopicStats, error) {
	i, err := q.inspector()
	if err != nil {
		return TopicStats{}, err
	}
	return i.Stats(ctx, topic)
}

// Settings returns the settings of a topic, and the defaults for a topic that does not exist.
func (q *Queue) Settings(ctx context.Context, topic string) (Settings, error) {
	i, err := q.inspector()
	if err != nil {
		return Settings{}, err
	}
	return i.Settings(ctx, topic)
}

// Configure reads the settings of a topic, has the function change edit them, stores the ones that
// it changed, and returns all settings. It creates a topic that does not exist. If somebody else
// has changed the settings meanwhile, Configure reads them again and calls change again, so that
// several callers who change settings at the same time, for instance each adds a group, do not undo
// each other. After 100 such calls it returns ErrChanged. For example:
//
//	q.Configure(ctx, "order.close", func(s *punctual.Settings) { s.Lease = time.Minute })
func (q *Queue) Configure(ctx context.Context, topic string, change func(s *Settings)) (Settings, error) {
	i, err := q.inspector()
	if err != nil {
		return Settings{}, err
	}
	for range configureTries {
		was, err := i.Settings(ctx, topic)
		if err != nil {
			return Settings{}, err
		}
		set := was.Clone()
		change(&set)
		set, err = i.Configure(ctx, topic, patchOf(was, set))
		if !errors.Is(err, ErrChanged) {
			return set, err
		}
	}
	return Settings{}, errorf(ErrChanged, "configure %s: the settings were changed %d times while this change was under way: try again", topic, configureTries)
}

// configureTries is how often a change of settings reads them at most. Each time somebody else has
// changed them since, so it ends after as many tries as there are others.
const configureTries = 100

// patchOf returns the patch that makes settings was into set, if they are still was: it has the
// fields in which the two differ.
func patchOf(was, set Settings) SettingsPatch {
	if len(was.Backoff.Delays) == 0 && len(set.Backoff.Delays) == 0 {
		set.Backoff.Delays = was.Backoff.Delays
	}
	if len(was.Groups) == 0 && len(set.Groups) == 0 {
		set.Groups = was.Groups
	}
	p := SettingsPatch{If: &SettingsPatch{}}
	from, to := reflect.ValueOf(was), reflect.ValueOf(set)
	give := func(p *SettingsPatch, n int, value reflect.Value) {
		v := reflect.New(value.Type())
		v.Elem().Set(value)
		reflect.ValueOf(p).Elem().FieldByName(from.Type().Field(n).Name).Set(v)
	}
	for n := range from.NumField() {
		give(p.If, n, from.Field(n))
		if !reflect.DeepEqual(from.Field(n).Interface(), to.Field(n).Interface()) {
			give(&p, n, to.Field(n))
		}
	}
	return p
}

// Purge removes messages without delivering them, and returns how many; see Inspector.Purge.
func (q *Queue) Purge(ctx context.Context, p PurgeQuery) (int64, error) {
	i, err := q.inspector()
	if err != nil {
		return 0, err
	}
	return i.Purge(ctx, p)
}
