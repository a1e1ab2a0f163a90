package diskstore

import (
	"context"
	"fmt"

	"github.com/punctualmq/punctual/diskstore/internal/claimlog"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/directory"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/failstop"
	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/diskstore/internal/topics"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/storekit"
)

// Open opens the store in a directory and makes it if need be. One process owns a
// directory at a time: a second opener gets ErrLocked with the name of the first, after
// Options.LockWait.
// Damage of the database that can be seen now is ErrCorrupt. o may be nil. The store runs a few
// goroutines until Close.
func Open(dir string, o *Options) (*Store, error) {
	opt := o.withDefaults()
	if err := opt.check(); err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	path, err := directory.Make(opt.fs, dir)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	s := newStore(path, opt)
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	if !opt.byHand {
		s.background.Go(s.runMaintenance)
		s.background.Go(s.runLoader)
		s.background.Go(s.runReclaimer)
		s.background.Go(func() { storekit.SweepEventsUntil(s.state.Ended(), s.opt.sweepEvery, s, s.log) })
	}
	return s, nil
}

// newStore returns a store that is not open yet.
func newStore(dir string, opt Options) *Store {
	s := &Store{dir: dir, opt: opt, log: opt.Logger, maintenanceKick: make(chan struct{}, 1)}
	s.endings.s = s
	s.index = memory.New(opt.MemoryBytes, s.waiters.wake)
	s.topics = topics.New(s.index)
	s.state = failstop.New(dir, opt.Logger, opt.CommitTimeout)
	s.owned = directory.New(opt.fs, dir, opt.ReserveBytes, s.state, opt.Logger)
	s.fs = failstop.NewFS(opt.fs, s.state, s.owned.Verify, failstop.Store)
	return s
}

// Exists tells whether a directory holds a store. It changes nothing.
func Exists(dir string) (bool, error) { return directory.Exists(dir) }

func (s *Store) open() error {
	if _, err := s.owned.Own(s.opt.LockWait); err != nil {
		return err
	}
	var err error
	if s.db, err = database.Open(s.dir, s.databaseOptions()); err != nil {
		s.owned.Release()
		return err
	}
	if err := s.restore(); err != nil {
		if cerr := s.state.Do("close the database", s.db.Close); cerr != nil {
			s.log.Warn("closing a store that could not be opened", "dir", s.dir, "error", cerr)
		}
		s.owned.Release()
		return err
	}
	return nil
}

// databaseOptions returns the options with which a store opens its database.
func (s *Store) databaseOptions() database.Options {
	fs := failstop.Aside{
		FS: failstop.NewFS(s.opt.fs, s.state, s.owned.Verify, failstop.Database), Plain: s.opt.fs,
		Prefix: s.opt.fs.PathJoin(s.dir, directory.StagingPrefix),
	}
	return database.Options{
		FS: fs, State: s.state, Log: s.log,
		CacheBytes: s.opt.CacheBytes, Format: directory.FormatVersion, Swept: s.opt.swept,
	}
}

// restore brings into memory what the files say, and replaces the claim log by a segment with what
// is still needed.
func (s *Store) restore() error {
	logged, err := claimlog.Read(s.fs, s.dir, s.keepDamaged)
	if err != nil {
		return errkind.Classify("claim log", err)
	}
	stored, err := s.db.Load(logged.Durable)
	if err != nil {
		return err
	}
	passed := logged.Passed(stored.Clock, stored.Timed, stored.Step)
	if err := s.startClock(passed); err != nil {
		return err
	}
	s.claims = claimlog.New(logged, claimlog.Options{
		FS: s.fs, Dir: s.dir, State: s.state, Limit: s.opt.claimLimit,
		Clock: func() int64 { return s.clock.ms() }, MaxLag: watermarkInterval.Milliseconds(), Behind: s.kickMaintenance,
	})
	s.clock = clock{storekit.NewSteadyClock(s.opt.Clock, passed)}
	s.writer = writer.New(writer.Options{
		State: s.state, DB: s.db, Index: s.index, Topics: s.topics, ClaimLog: s.claims, Died: s.sweeps.plan, Tell: s.tell,
		Now: s.clock.Now, Timeout: s.opt.CommitTimeout, Dir: s.dir, Log: s.log,
	})
	s.index.StartTokens(stored.NextToken, stored.NextToken)
	s.stepping.last.Store(&logged.Step)
	carry := stored.Carry || logged.Step.Count > stored.Step.Count
	err = s.writeFirst(func(tx *writer.Tx) {
		if carry { // the claim log may know of a step that the database does not know
			tx.Maintenance().SetStep(logged.Step, true)
		}
	})
	if err != nil {
		return err
	}
	if carry {
		s.stepping.carry = s.db.BeginCarry(logged.Step, storekit.Millis(passed))
	}
	byNum := make(map[uint32]*topics.Topic, len(stored.Topics))
	for _, l := range stored.Topics {
		t := s.topics.Add(l.Topic, l.Settings)
		t.Memory.Stored(t.Disk.Lowest(), t.Disk.Live() > 0)
		byNum[t.Disk.Num()] = t
		s.sweeps.plan(t)
	}
	if err := s.restoreLeases(byNum, logged, storekit.Millis(passed)); err != nil {
		return err
	}
	return s.claims.Replace(s.index.Leases, s.deleteFirst)
}

// deleteFirst deletes the acked messages before the store is in use, in as many transactions as
// that needs. A kill in between leaves the segments of the claim log that have the acks.
func (s *Store) deleteFirst() (err error) {
	for more := true; more && err == nil; {
		err = s.writeFirst(func(tx *writer.Tx) { more = tx.DeleteAcked() })
	}
	return err
}

// writeFirst makes a transaction before the store is in use: it writes the clock and what fill
// adds, and reserves numbers if they are short.
func (s *Store) writeFirst(fill func(*writer.Tx)) error {
	err := s.writer.Do(context.Background(), func(tx *writer.Tx) error {
		tx.Maintenance().SetClock()
		fill(tx)
		return nil
	})
	if s.state.HasFailed() {
		return s.state.Failure()
	}
	return err
}

// restoreLeases restores the leases of the claim log that are not over: those whose token is above
// Record.Newest of their message. It also restores the acks of messages that are still on disk. A
// lease from before the last step of the clock is moved if the claim log does not have it as it was
// moved: the lease was granted later than passed, the time that the clock has passed since.
func (s *Store) restoreLeases(byNum map[uint32]*topics.Topic, contents *claimlog.Contents, passed int64) error {
	for _, l := range contents.Acked {
		t, r, err := s.recordOf(byNum, l)
		if err != nil {
			return err
		}
		if r != nil {
			t.Memory.RestoreAcked(l.At, r.ID)
		}
	}
	for l := range contents.Leases() {
		t, r, err := s.recordOf(byNum, l)
		if err != nil {
			return err
		}
		if r == nil || r.Newest >= l.Token {
			continue // the lease is over
		}
		if contents.Step.Count > 0 && l.Since > passed {
			l.Carry(contents.Step.Step)
		}
		t.Memory.Restore(l, r.ID, r.CancelRequested, r.Remember > 0)
	}
	return nil
}

// recordOf returns the topic and the record of the message that an entry of the claim log is about,
// nil if no live message is at its place any more.
func (s *Store) recordOf(byNum map[uint32]*topics.Topic, l record.Lease) (*topics.Topic, *record.Record, error) {
	t := byNum[l.Topic]
	if t == nil {
		return nil, nil, nil
	}
	v, err := s.db.Live(t.Disk.Num(), l.At)
	if err != nil || v == nil {
		return nil, nil, err
	}
	r, err := record.Decode(v)
	if err != nil {
		return nil, nil, s.state.ReadError("topic "+t.Name, err)
	}
	return t, r, nil
}

// keepDamaged reports the unreadable end of a segment of the claim log. It keeps a copy of a
// segment that is damaged.
func (s *Store) keepDamaged(u claimlog.Unreadable) error {
	if !u.Damage {
		s.log.Warn("the end of the claim log was not written, as after a power cut; some attempts are not counted and some messages may be delivered once more",
			"file", u.Name, "unreadable_bytes", u.Bytes)
		return nil
	}
	s.log.Warn("claim log is damaged; some attempts are not counted and some messages may be delivered once more",
		"file", u.Name, "unreadable_bytes", u.Bytes)
	return claimlog.KeepDamaged(s.fs, s.dir, u.Name, u.Data)
}
