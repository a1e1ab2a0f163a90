package ledger

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// LookAtStories looks at the story of each ID of which one may be kept, or is missing, through a recorder whose lines the
// ledger takes. Nothing else may change the store meanwhile. It returns how many stories must be there.
func (l *Ledger) LookAtStories(ctx context.Context, r *Recorder) (kept int, err error) {
	l.check(false)
	var all []name
	for _, topic := range l.topicNames() {
		for _, t := range l.history(topic).ids {
			if t.givenUp || strings.HasPrefix(t.id, "?") || !slices.ContainsFunc(t.states, func(s *state) bool { return s.told != "" }) {
				continue
			}
			all = append(all, t.name)
			if !slices.ContainsFunc(t.states, func(s *state) bool { return s.told == "" }) {
				kept++
			}
		}
	}
	for _, n := range all {
		err = errors.Join(err, r.Story(ctx, n.topic, n.id))
	}
	return kept, err
}
