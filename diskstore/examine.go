package diskstore

import (
	"context"
	"fmt"

	"github.com/punctualmq/punctual/diskstore/internal/examine"
	"github.com/punctualmq/punctual/storekit"
)

// Examine examines what a store in a directory depends on, without opening it: the directory
// itself, the lock, the files, the disk, the clock and the file system; see storekit.Examiner. It
// is for stores that refuse to open; an open store has a method of the same name. Of the options
// Clock, CacheBytes, ReserveBytes and CommitTimeout count; o may be nil.
//
// Examine changes nothing, but where it may it makes one small file, writes it, syncs it and
// removes it. The file is in the directory, or in the nearest one above that exists. Examine tries
// the lock for an instant, and holds it only to read again what seems damaged.
//
// Examine finds most of the damage that opening the store would encounter; only Check reads
// everything. A disk that does not answer for CommitTimeout is a finding; the goroutine that asked
// the disk ends when that answers.
func Examine(ctx context.Context, dir string, o *Options) ([]storekit.Finding, error) {
	opt := o.withDefaults()
	return examine.Run(ctx, dir, opt.examination())
}

// Examine examines what the store depends on; see storekit.Examiner. A store that has failed may be
// examined, too. Like the function Examine it makes and removes one small file.
func (s *Store) Examine(ctx context.Context) ([]storekit.Finding, error) {
	if err := s.state.EnterFailed(); err != nil {
		return nil, fmt.Errorf("examine: %w", err)
	}
	defer s.state.Leave()
	o := s.opt.examination()
	o.Open = &examine.Open{Owned: s.owned, State: s.state, Clock: s.clockState}
	return examine.Run(ctx, s.dir, o)
}

func (o *Options) examination() examine.Options {
	return examine.Options{FS: o.fs, Clock: o.Clock, ReserveBytes: o.ReserveBytes, CacheBytes: o.CacheBytes, Timeout: o.CommitTimeout}
}
