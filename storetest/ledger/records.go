package ledger

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// ReadRecords reads the finished record of each ID of which one may be kept, if the ledger was told
// the ID and has not given it up, through a recorder whose lines the ledger takes. Nobody may
// change the store meanwhile. It returns of how many IDs a record must be there.
func (l *Ledger) ReadRecords(ctx context.Context, r *Recorder) (kept int, err error) {
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
		err = errors.Join(err, r.ReadRecord(ctx, n.topic, n.id))
	}
	return kept, err
}
