package importer

import (
	"context"
	"time"
)

// origin is the other system that messages are taken from. An implementation knows how that system
// keeps its messages, and in which hash or table taken messages are staged.
//
// take, adopt, finish and putBack each take effect in one atomic step. After an error it is not
// known whether the step took effect. The same call twice changes no more than once.
type origin interface {
	// now returns the time of the source's clock. The other system judges due times by it, and so
	// does the import.
	now(ctx context.Context) (time.Time, error)
	// names returns the names of everything that could be imported.
	names(ctx context.Context) ([]string, error)
	// expect returns an error if the keys or the table of a source are not of the kind that the
	// other system writes.
	expect(ctx context.Context, s *source) error
	// guessUnit finds out the unit of the due times, if they are numbers and the options do not
	// name it.
	guessUnit(ctx context.Context, r *Report) error
	// count returns how many messages a source has, and how many are staged.
	count(ctx context.Context, s *source, members, staged *int64) error
	// note adds to the report what the other system keeps beside a source and is not imported.
	note(ctx context.Context, s *source, r *SetReport) error

	// walks returns the walks that together visit all messages of a source; they are made one after
	// the other.
	walks(s *source) []walk
	// staged calls visit with what is staged: member, record, member, record and so on, up to 500
	// pairs at once.
	staged(ctx context.Context, s *source, visit func(pairs []string) error) error
	// readKept reads what staging keeps of the entries beside their records.
	readKept(ctx context.Context, s *source, es []*entry) error

	// take moves entries into staging. It answers with one of the item constants for each, or a
	// single lockHeld.
	take(ctx context.Context, s *source, es []*entry) ([]int64, error)
	// adopt replaces the records of staged entries, if they are still the old ones. It answers
	// itemDone for those.
	adopt(ctx context.Context, s *source, es []*entry, old []string) ([]int64, error)
	// finish ends the staging of entries whose records are unchanged.
	finish(ctx context.Context, s *source, es []*entry) error
	// putBack returns staged entries to the other system, if their records are unchanged. It
	// answers with one of the item constants for each.
	putBack(ctx context.Context, s *source, es []*entry) ([]int64, error)
}

// walk calls visit with the messages of a source, in pages. Other programs may change the source
// meanwhile. A walk does not visit a message that is added at a place which the walk has passed.
type walk func(ctx context.Context, s *source, visit visitor) error

// The answers of take, adopt and putBack for an item.
const (
	itemGone    = 0 // take: it is not there any more; adopt, putBack: another run adopted or finished it
	itemDone    = 1
	itemChanged = 2 // take: not as it was read (Redis); putBack: its place is taken
	itemHeld    = 3 // take: the same member is still in staging; PostgreSQL: or somebody works on the row or has changed it
	lockHeld    = -1
)
