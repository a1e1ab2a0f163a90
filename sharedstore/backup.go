package sharedstore

import (
	"context"
	"fmt"
	"io"

	"github.com/punctualmq/punctual/internal/archive"
)

// Backup implements storekit.Backuper. If another process owns the directory, that process reads
// the files of the store and this process writes the copy.
func (s *Store) Backup(ctx context.Context, dir string, progress func(written, total int64)) error {
	if err := archive.CheckOutside(s.dir, dir); err != nil {
		return err
	}
	return archive.Backup(ctx, s, dir, progress)
}

// Archive implements storekit.Backuper.
func (s *Store) Archive(ctx context.Context, w io.Writer, size func(total int64)) error {
	var begun error // why a copy ended when w may have had a part of it already, after which nothing else can be written to w
	_, err := do(ctx, s, func(f full, _ bool) (struct{}, error) {
		if begun != nil {
			return struct{}{}, begun
		}
		sized := false
		err := f.Archive(ctx, w, func(total int64) {
			sized = true
			if size != nil {
				size(total)
			}
		})
		if err != nil && sized {
			begun = fmt.Errorf("the owner of the directory did not finish the copy: %w", err)
		}
		return struct{}{}, err
	}, false)
	return err
}
