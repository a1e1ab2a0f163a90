package punctual

import (
	"context"
	"io"
)

// Backuper is an optional interface of stores that can be copied while they run: the embedded store, and its clients.
// As[Backuper] finds it.
//
// A copy has the store as it was at one instant after the call began. So it has every message whose push had been
// reported before the call. It does not have what had been acked, cancelled or purged before the call. Opened as a
// store, the copy behaves as the original would after kill -9 at that instant. What happened afterwards it does not
// know: a message that was acked since is delivered again. One copy is made at a time; a second call is refused
// with ErrOverloaded.
type Backuper interface {
	// Backup writes the copy into a directory that does not exist or is empty. When it returns nil everything in
	// the directory has been synced to disk. After an error the directory is as it was before. progress, if not
	// nil, is called from time to time with how many bytes are written, and how many there will be.
	Backup(ctx context.Context, dir string, progress func(written, total int64)) error
	// Archive writes the copy to w as a tar archive of the files of such a directory. size, if not nil, is called
	// once before the first byte with the size of the archive. After an error what was written is of
	// no use.
	Archive(ctx context.Context, w io.Writer, size func(total int64)) error
}
