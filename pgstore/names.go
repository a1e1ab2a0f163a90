package pgstore

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual/storekit"
)

// TopicNames returns the names of topics without counting their messages; see storekit.TopicNamer.
func (s *Store) TopicNames(ctx context.Context, q storekit.NameQuery) ([]string, error) {
	return call(ctx, s, "topic names", "", nil, func() (names []string, err error) {
		if strings.ContainsFunc(q.Prefix+q.Suffix, func(r rune) bool { return r < ' ' || r > '~' }) {
			return []string{}, nil // no name has such a character, and the server takes no text with a NUL
		}
		err = s.db.read(ctx, func() *step {
			names = []string{}
			return s.db.step().add("topic_names", []any{q.Prefix, q.Suffix}, func(rows scanner) error {
				var name string
				err := rows.Scan(&name)
				names = append(names, name)
				return err
			})
		})
		return names, err
	})
}

// numbersAgain is how many of the latest numbers of topics NewCompanions reads again: a transaction
// that makes a topic may commit after one that has made a topic with a greater number.
const numbersAgain = 256

// NewCompanions returns the names of new companions; see storekit.TopicNamer. A mark has the
// greatest number of a topic.
func (s *Store) NewCompanions(ctx context.Context, mark string, wait time.Duration) (storekit.Companions, error) {
	a := s.waits.arrivals.Await(ctx, mark, wait)
	return call(ctx, s, "new companions", "", nil, func() (c storekit.Companions, err error) {
		err = s.db.read(ctx, func() *step {
			return s.db.step().add("new_companions", []any{a.Since - numbersAgain}, func(rows scanner) error {
				var number int64
				c.Names = []string{}
				if err := rows.Scan(&number, &c.Names); err != nil {
					return err
				}
				c.Mark = a.Mark(number)
				return nil
			})
		})
		if a.First {
			c.Names = []string{}
		}
		slices.Sort(c.Names)
		return c, err
	})
}

// tellOfCompanions tells this process and others that there are new companions, or that the groups
// of a topic were set.
func (w *waits) tellOfCompanions() {
	w.notify(coming{topics: map[string]span{newCompanions: {}}})
}

// newCompanions stands for new companions among the topics that a notification names. It is no name
// of a topic.
const newCompanions = "@"
