package diskstore

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
)

// The loader reads the next messages of a timeline from disk into memory before they are due, so
// that claims need not wait for the disk then. First it skips deleted keys, without the write lock.
// It holds the lock while it reads the messages, so that none is added or deleted on disk
// meanwhile. Claims, and transactions that become durable meanwhile, change only memory; the merge
// of the batch takes account of them.

const (
	loadMessages = 4096  // how many messages a batch has at most
	loadAhead    = 2_000 // how far ahead of now a batch reaches, ms
)

// load reads the next batch of a timeline, if one is due, and has merge put it into memory.
func (s *Store) load(ctx context.Context, t *memory.Topic, merge func(l memory.Load, read []record.Stored, next record.Position)) error {
	stop, err := s.passDeleted(ctx, t)
	if err != nil {
		return err
	}
	return s.writer.Locked(ctx, func(tx *writer.Tx) error {
		l, ok := t.BeginLoad(tx.Ms + loadAhead)
		if !ok {
			return nil
		}
		if !l.From.Less(stop) { // zero, or others have loaded up to there meanwhile
			stop = record.Position{}
		}
		limits := database.Limits{Until: l.Until, Stop: stop, Messages: loadMessages, Bytes: l.Room, Overhead: memory.MessageBytes}
		read, next, err := s.db.ReadDue(s.topics.Get(t.Name).Disk, l.From, limits)
		if err != nil {
			s.index.Abandon(l)
			return fmt.Errorf("load messages of topic %s: %w", t.Name, err)
		}
		merge(l, read, next)
		return nil
	})
}

// passDeleted moves the position where the next load of a topic begins past deleted messages,
// without the write lock. stop is where the load is to end, because a load that went further would
// pass many deleted messages, or read a body for which there is no room; zero if it need not end
// early.
func (s *Store) passDeleted(ctx context.Context, t *memory.Topic) (stop record.Position, err error) {
	search, ok := t.BeginSearch()
	if !ok {
		return stop, nil
	}
	limits := database.Limits{Until: s.clock.ms() + 2*loadAhead, Messages: loadMessages, Bytes: search.Room, Overhead: memory.MessageBytes}
	first, stop, err := s.db.NextRun(ctx, t.Num, search.From, limits)
	if err != nil {
		s.index.AbandonSearch(search)
		return stop, fmt.Errorf("load messages of topic %s: %w", t.Name, err)
	}
	s.index.EndSearch(search, first)
	return stop, nil
}

// runLoader loads messages that will be due soon, until the store closes or fails. It sleeps while
// no topic is to be loaded ahead, or while there is no room. After a failure it waits for maxSleep,
// or until the next hint that there is something to load.
func (s *Store) runLoader() {
	notBefore := -never
	for {
		var reached <-chan time.Time
		stop := func() {}
		if next := s.index.NextLoad(notBefore); next != never {
			reached, stop = s.clock.after(next, maxSleep)
		}
		select {
		case <-s.state.Ended():
			stop()
			return
		case <-reached:
		case <-s.index.LoadHint():
		}
		stop()
		notBefore = -never
		if !s.loadAll() {
			notBefore = s.clock.ms() + maxSleep
		}
	}
}

// loadAll loads a batch of every topic that needs one, while there is room, and tells whether that
// went well.
func (s *Store) loadAll() bool {
	for _, t := range s.index.Loads(s.clock.ms()) {
		if !s.index.HasRoom() {
			break
		}
		err := s.load(context.Background(), t, func(l memory.Load, read []record.Stored, next record.Position) {
			s.index.Merge(l, read, next, 0, 0)
		})
		if err != nil {
			if s.state.Usable() == nil {
				s.state.LogSeldom(slog.LevelWarn, "loading ahead failed; claims will try again", "topic", t.Name, "error", err)
			}
			return false
		}
	}
	return true
}
