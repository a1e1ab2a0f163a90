package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/storekit"
)

func newBackup(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "backup TARGET|-",
		Short: "Copy a running store into another directory",
		Long: `Backup copies a store, as it is at one instant, into the directory TARGET, while programs go on
using the store. TARGET must not exist yet, or be empty; afterwards it is a store like any other.
The copy has every message that was pushed before the command began, and none that was acked
before. When the command ends, everything is synced to disk. With - as TARGET a tar archive goes to
standard output.

The store is a directory, also one that another process owns, or that of a server. A server sends
the copy to whoever may admin and inspect all topics. Redis and PostgreSQL have their own backups.

To restore, end the programs that use the store and put the copy in its place. The copy does not
know what happened after it was made: messages that were acked since are delivered once more.`,
		Example: `  punctual backup /mnt/backup/punctual-2026-11-20 --store /var/lib/punctual
  punctual backup copy --store https://queue.example.com
  punctual backup - --store /var/lib/punctual | zstd > punctual.tar.zst`,
		RunE: a.action(func(ctx context.Context, args []string) error {
			if args[0] == "" {
				return usagef("the target has no name: name a directory, or - for standard output")
			}
			if args[0] == "-" && a.out.IsTerminal() {
				return usagef("standard output is a terminal: send the archive into a file or a pipe, or name a directory")
			}
			return a.withStore(ctx, mustExist, func(s punctual.Store) error {
				b, err := punctual.As[storekit.Backuper](s)
				if err != nil {
					return fmt.Errorf("this store is copied by the means of its database (docs/operating.md, Backup), or with 'punctual copy': %w", punctual.ErrUnsupported)
				}
				if args[0] == "-" {
					return a.archive(ctx, b)
				}
				return a.backup(ctx, b, args[0])
			})
		}),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
}

// backup makes a copy in a directory and says how many bytes were copied.
func (a *app) backup(ctx context.Context, b storekit.Backuper, dir string) error {
	full, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	var bar *term.Bar
	var size int64
	err = b.Backup(ctx, dir, func(written, total int64) {
		if bar == nil {
			bar = a.newBar("bytes copied", total)
		}
		size = written
		bar.Set(written)
	})
	if bar != nil {
		bar.Stop(err)
	}
	if err != nil {
		return err
	}
	if a.json {
		return a.out.writeJSON(backupJSON{Target: full, Bytes: size})
	}
	a.printf("copied %d bytes into %s; it opens with --store %s\n", size, full, dir)
	return nil
}

// archive writes a copy to standard output.
func (a *app) archive(ctx context.Context, b storekit.Backuper) error {
	var written atomic.Int64
	bar := &term.Bar{}
	err := b.Archive(ctx, writerFunc(func(p []byte) (int, error) {
		n, err := a.out.Write(p)
		bar.Set(written.Add(int64(n)))
		return n, outputError(err)
	}), func(total int64) { bar = a.newBar("bytes copied", total) })
	bar.Stop(err)
	return err
}

// writerFunc is a function as an io.Writer.
type writerFunc func([]byte) (int, error)

// Write implements io.Writer.
func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// backupJSON is what backup prints with --json.
type backupJSON struct {
	Target string `json:"target"` // the directory, as an absolute path
	Bytes  int64  `json:"bytes"`  // of the archive that was unpacked there
}
