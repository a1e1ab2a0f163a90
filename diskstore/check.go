package diskstore

import (
	"context"
	"fmt"

	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/storekit"
)

// maxProblems bounds CheckReport.Problems, because damage may concern every message. Further
// problems are left out.
const maxProblems = 100

// Check reads everything in the store. It compares every message with its ID and every ID with its
// message, and checks the counts and the watermarks. It also checks that the leased messages in
// memory are on disk, and that companions have their topics. See storekit.Checker.
func (s *Store) Check(ctx context.Context, progress func(read int64)) (storekit.CheckReport, error) {
	c := checker{s: s, ctx: ctx, progress: progress}
	if err := c.tables(); err != nil {
		return c.report, fmt.Errorf("check: %w", err)
	}
	v, tvs, err := s.snapshotAll(ctx)
	if err != nil {
		return c.report, fmt.Errorf("check: %w", err)
	}
	defer v.close()
	c.report.Topics = int64(len(tvs))
	for i := range tvs {
		if err := c.topic(&tvs[i]); err != nil {
			return c.report, fmt.Errorf("check topic %s: %w", tvs[i].Name, err)
		}
	}
	infos := make([]database.Info, len(tvs))
	for i := range tvs {
		infos[i] = tvs[i].Info
	}
	c.companions(infos)
	if err := v.snap.VerifyRest(infos, c.verifier()); err != nil {
		return c.report, fmt.Errorf("check: %w", err)
	}
	return c.report, nil
}

type checker struct {
	s        *Store
	ctx      context.Context
	progress func(read int64)
	keys     int64
	read     int64 // messages
	report   storekit.CheckReport
}

func (c *checker) problem(format string, args ...any) {
	if len(c.report.Problems) < maxProblems {
		c.report.Problems = append(c.report.Problems, fmt.Sprintf(format, args...))
	}
}

// tables has the database compare its levels. That runs in a goroutine of its own, because the
// database looks at no context meanwhile. tables returns as soon as its context ends; Close ends
// the goroutine and waits for it.
func (c *checker) tables() error {
	if err := c.s.state.EnterScan(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer c.s.state.LeaveScan()
		done <- c.s.db.VerifyTables()
	}()
	var found error
	select {
	case found = <-done:
	case <-c.ctx.Done():
	case <-c.s.state.Ended():
	}
	if err := c.s.state.Check(c.ctx); err != nil {
		return err
	}
	if found != nil {
		c.problem("the tables of the database: %v", errkind.Plain(found))
	}
	return nil
}

// After how many keys a check reports its progress, and after how many it checks whether its
// context has ended. The second is small because a key may have a value of some MiB.
const (
	checkReports = 4096
	checkEvery   = 16
)

func (c *checker) verifier() database.Verifier {
	return database.Verifier{Step: c.step, Problem: c.problem}
}

// step counts one key that was read. From time to time it reports how far the scan is, and returns
// an error when the context or the store has ended.
func (c *checker) step(message bool) error {
	if c.keys++; message {
		c.read++
	}
	if c.progress != nil && c.keys%checkReports == 0 {
		c.progress(c.read)
	}
	if c.keys%checkEvery != 0 {
		return nil
	}
	return c.s.state.Check(c.ctx)
}

func (c *checker) topic(tv *topicView) error {
	live, dead, err := tv.snap.VerifyTopic(tv.Info, c.verifier())
	if err != nil {
		return err
	}
	unswept, err := tv.unswept(c.ctx)
	if err != nil {
		return err
	}
	c.report.Live += live - int64(len(tv.Acked))
	c.report.Dead += dead - unswept
	return c.leases(tv)
}

// companions checks that the topic of each companion exists, and that no companion has PushPaused
// set, which companions do not have.
func (c *checker) companions(infos []database.Info) {
	there := make(map[string]bool, len(infos))
	for _, i := range infos {
		there[i.Name] = true
	}
	for _, i := range infos {
		parent, companion := storekit.Companion(i.Name)
		switch {
		case companion == "":
		case !there[parent]:
			c.problem("topic %s: there is no topic %s, which it belongs to", i.Name, parent)
		case i.Settings.PushPaused:
			c.problem("topic %s: pushes to a companion are paused", i.Name)
		}
	}
}

// leases checks that the messages of which memory knows a lease are on disk.
func (c *checker) leases(tv *topicView) error {
	for _, h := range tv.Leases {
		v, err := tv.snap.Get(tv.Num, database.Live, h.Lease.At)
		if err != nil {
			return err
		}
		if v == nil {
			c.problem("topic %s: leased message %s is not on disk", tv.Name, h.ID)
		}
	}
	return nil
}
