package importer

import (
	"context"
	"time"
)

// origin is where messages are taken from. It knows how the other system keeps them, and where they are staged.
//
// take, adopt, finish and putBack each take effect in one atomic step, for all entries or none when they return an error.
// The same call twice does the same as once.
type origin interface {
	// now returns the time of the source's clock, which decides there.
	now(ctx context.Context) (time.Time, error)
	// names are all that could be imported from.
	names(ctx context.Context) ([]string, error)
	// expect returns an error if what a source names is not what the other system writes.
	expect(ctx context.Context, s *source) error
	// guessUnit finds out what the due times count, if they are numbers and nobody said so.
	guessUnit(ctx context.Context, r *Report) error
	// count asks how many messages a source has, and how many are staged.
	count(ctx context.Context, s *source, members, staged *int64) error
	// note adds to the report what stands beside a source and is not imported.
	note(ctx context.Context, s *source, r *SetReport) error

	// walks are the ways in which all messages of a source are visited, one after the other.
	walks(s *source) []walk
	// staged lets visit see what is staged: members and records, which take turns, up to 500 of each at once.
	staged(ctx context.Context, s *source, visit func(pairs []string) error) error
	// readKept reads what is kept in staging beside the records of entries.
	readKept(ctx context.Context, s *source, es []*entry) error

	// take moves entries into staging. It answers with one itemX for each, or a single lockHeld.
	take(ctx context.Context, s *source, es []*entry) ([]int64, error)
	// adopt replaces the records of staged entries, if they are still the old ones. It answers itemDone for those.
	adopt(ctx context.Context, s *source, es []*entry, old []string) ([]int64, error)
	// finish ends the staging of entries whose records are unchanged.
	finish(ctx context.Context, s *source, es []*entry) error
	// putBack returns staged entries to the other system, if their records are unchanged. It answers with one itemX for each.
	putBack(ctx context.Context, s *source, es []*entry) ([]int64, error)
}

// walk lets visit see the messages of a source, in pages. Others may change the source meanwhile; what they add behind the
// walk's place it does not see.
type walk func(ctx context.Context, s *source, visit visitor) error

// What take and putBack answer for an item.
const (
	itemGone    = 0 // take: somebody else took it; putBack: another run adopted or finished it
	itemDone    = 1
	itemChanged = 2 // take: not as it was read; putBack: its place is taken
	itemHeld    = 3 // take: the same member is still in staging, or somebody works on it
	lockHeld    = -1
)
