package pgstore

import (
	"context"
	"strings"

	"github.com/punctualmq/punctual"
)

// TopicNames returns the names of topics without counting their messages; see punctual.TopicNamer.
func (s *Store) TopicNames(ctx context.Context, q punctual.NameQuery) ([]string, error) {
	return call(ctx, s, "topic names", "", nil, func() (names []string, err error) {
		if strings.ContainsFunc(q.Prefix+q.Suffix, func(r rune) bool { return r < ' ' || r > '~' }) {
			return []string{}, nil // no name has such a character, and the server takes no text with a NUL
		}
		err = s.read(ctx, func() *step {
			names = []string{}
			return s.step().add("topic_names", []any{q.Prefix, q.Suffix}, func(rows scanner) error {
				var name string
				err := rows.Scan(&name)
				names = append(names, name)
				return err
			})
		})
		return names, err
	})
}
