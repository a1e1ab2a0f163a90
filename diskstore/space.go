package diskstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// This file tells how much space there is. Package directory refuses pushes when there is too
// little (CheckSpace in space.go).

// Space returns how much room the file system of the directory has; see storekit.SpaceReporter.
func (s *Store) Space(ctx context.Context) (storekit.Space, error) {
	if err := s.admit(ctx, nil); err != nil {
		return storekit.Space{}, fmt.Errorf("space: %w", err)
	}
	if err := s.state.Enter(); err != nil {
		return storekit.Space{}, fmt.Errorf("space: %w", err)
	}
	defer s.state.Leave()
	usage, err := s.opt.fs.GetDiskUsage(s.dir)
	switch {
	case errors.Is(err, vfs.ErrUnsupported):
		return storekit.Space{}, fmt.Errorf("space: a file system in memory does not tell: %w", punctual.ErrUnsupported)
	case err != nil:
		return storekit.Space{}, fmt.Errorf("space: %w", err)
	}
	return storekit.Space{Free: int64(usage.AvailBytes), Total: int64(usage.TotalBytes), Reserve: int64(s.opt.ReserveBytes)}, nil
}
