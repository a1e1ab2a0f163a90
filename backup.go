package punctual

import (
	"context"
	"io"
)

// Backuper is an optional interface of stores that can be copied while they run: the embedded store, and its clients.
// As[Backuper] finds it.
//
// A copy has the store as it was at one instant after the call began. So it has every message whose push was reported before
// the call, and no message whose ack, cancel or purge was reported before the call. Opened as a store, the copy behaves as
// the original would after kill -9 at that instant. It does not know what happened afterwards, so it delivers a message
// again that was acked after that instant. One copy is made at a time; a second call is refused with ErrOverloaded.
type Backuper interface {
	// Backup writes the copy into a directory that does not exist or is empty. When it returns nil, everything in the
	// directory has been synced to disk. After an error the directory is as it was before. Backup calls progress, if not
	// nil, from time to time with the bytes written so far and the bytes that the copy will have.
	Backup(ctx context.Context, dir string, progress func(written, total int64)) error
	// Archive writes the copy to w as a tar archive of the files that Backup writes. It calls size, if not nil, once, before
	// the first byte, with the size of the archive in bytes. After an error the bytes written so far are of no use.
	Archive(ctx context.Context, w io.Writer, size func(total int64)) error
}
