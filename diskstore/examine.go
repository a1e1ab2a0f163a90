package diskstore

import (
	"context"
	"fmt"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/examine"
)

// Examine says what the store in a directory stands on, or would stand on, without opening it; see
// punctual.Examiner. It is for stores that refuse to open; an open one has a method of the
// same name. Of the options Clock, CacheBytes, ReserveBytes and CommitTimeout count; o may be nil.
//
// Nothing is changed, but where it is allowed one small file is made, written, synced and removed. It is in the
// directory, or in the nearest one above that exists. The lock is tried for an instant, and held only to look again
// at what seems damaged.
//
// The damage found is what opening the store would meet; only Check reads everything. A disk that
// does not answer for CommitTimeout is a finding; the goroutine that asked it ends when it answers.
func Examine(ctx context.Context, dir string, o *Options) ([]punctual.Finding, error) {
	opt := o.withDefaults()
	return examine.Run(ctx, dir, opt.examination())
}

// Examine says what the store stands on; see punctual.Examiner. A store that has failed may be
// examined, too. Like the function Examine it makes and removes one small file.
func (s *Store) Examine(ctx context.Context) ([]punctual.Finding, error) {
	if err := s.state.EnterFailed(); err != nil {
		return nil, fmt.Errorf("examine: %w", err)
	}
	defer s.state.Leave()
	o := s.opt.examination()
	o.Open = &examine.Open{Owned: s.owned, State: s.state, Now: s.clock.Now}
	return examine.Run(ctx, s.dir, o)
}

func (o *Options) examination() examine.Options {
	return examine.Options{FS: o.fs, Clock: o.Clock, ReserveBytes: o.ReserveBytes, CacheBytes: o.CacheBytes, Timeout: o.CommitTimeout}
}
