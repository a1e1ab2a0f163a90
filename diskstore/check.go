package diskstore

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/punctualmq/punctual"
)

// maxProblems bounds a report.
const maxProblems = 100

// Check reads everything in the store and compares it: every message with its ID, the IDs
// with the messages, the counts, the watermarks, and what memory says with what the disk
// says. See punctual.Checker.
func (s *Store) Check(ctx context.Context, progress func(read int64)) (punctual.CheckReport, error) {
	c := checker{s: s, ctx: ctx, progress: progress}
	v, tvs, err := s.look(ctx)
	if err != nil {
		return c.report, fmt.Errorf("check: %w", err)
	}
	defer v.close()
	if err := s.db.CheckLevels(nil); err != nil {
		c.problem("the tables of the database: %v", err)
	}
	c.report.Topics = int64(len(tvs))
	for i := range tvs {
		if err := c.topic(&tvs[i]); err != nil {
			return c.report, fmt.Errorf("check topic %s: %w", tvs[i].t.name, err)
		}
	}
	if err := c.strangers(v, tvs); err != nil {
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
	report   punctual.CheckReport
}

func (c *checker) problem(format string, args ...any) {
	if len(c.report.Problems) < maxProblems {
		c.report.Problems = append(c.report.Problems, fmt.Sprintf(format, args...))
	}
}

// step counts one key that was read and tells, now and then, how far the scan is and whether
// to go on.
func (c *checker) step() error {
	if c.keys++; c.keys%4096 != 0 {
		return nil
	}
	if c.progress != nil {
		c.progress(c.read)
	}
	return ctxOrUsable(c.ctx, c.s)
}

// each calls f for every key that begins with prefix.
func (c *checker) each(v view, prefix []byte, f func(key, value []byte) error) error {
	it, err := v.snap.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: upper(prefix)})
	if err != nil {
		return v.s.readError("read", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		if err := c.step(); err != nil {
			return joinClose(err, it)
		}
		if err := f(it.Key(), it.Value()); err != nil {
			return joinClose(err, it)
		}
	}
	return v.s.readError("read", joinClose(it.Error(), it))
}

func (c *checker) topic(tv *topicView) error {
	live, err := c.messages(tv, keyLive)
	if err != nil {
		return err
	}
	dead, err := c.messages(tv, keyDead)
	if err != nil {
		return err
	}
	c.report.Live += live - int64(len(tv.acked))
	c.report.Dead += dead
	if live != tv.live || dead != tv.dead {
		c.problem("topic %s counts %d live and %d dead messages but holds %d and %d", tv.t.name, tv.live, tv.dead, live, dead)
	}
	var ids int64
	err = c.each(tv.view, topicKey(keyID, tv.num), func(_, _ []byte) error {
		ids++
		return nil
	})
	if err == nil && ids != live+dead {
		c.problem("topic %s has %d IDs for %d messages", tv.t.name, ids, live+dead)
	}
	if err == nil {
		err = c.leases(tv)
	}
	return err
}

// messages checks the messages of one kind, each against its ID.
func (c *checker) messages(tv *topicView, kind byte) (n int64, err error) {
	err = c.each(tv.view, topicKey(kind, tv.num), func(key, value []byte) error {
		n++
		c.read++
		_, p, err := parsePosKey(key)
		if err != nil {
			c.problem("topic %s: %v", tv.t.name, err)
			return nil
		}
		if kind == keyLive && p.less(tv.mark) {
			c.problem("topic %s: message %v lies below the watermark %v", tv.t.name, p, tv.mark)
		}
		r, err := decodeRecord(value)
		if err != nil {
			c.problem("topic %s: message %v: %v", tv.t.name, p, err)
			return nil
		}
		return c.message(tv, kind, p, r)
	})
	return n, err
}

func (c *checker) message(tv *topicView, kind byte, p pos, r *record) error {
	want := place{kind, p}
	if at, err := tv.find(r.id); err != nil {
		return err
	} else if at != want {
		c.problem("topic %s: message %v with ID %s, but the ID says %c%v", tv.t.name, p, r.id, at.kind, at.pos)
	}
	if when := r.due; kind == keyLive && when != p.ms || kind == keyDead && r.died != p.ms || r.dead != (kind == keyDead) {
		c.problem("topic %s: message %s is stored as %c at %d but says due %d, died %d", tv.t.name, r.id, kind, p.ms, when, r.died)
	}
	return nil
}

// leases checks that leased messages are on disk.
func (c *checker) leases(tv *topicView) error {
	for _, e := range tv.leases {
		v, err := tv.get(posKey(keyLive, tv.num, e.key))
		if err != nil {
			return err
		}
		if v == nil {
			c.problem("topic %s: leased message %s is not on disk", tv.t.name, e.id)
		}
	}
	return nil
}

// strangers looks for keys that belong to no topic, and remembered IDs that would never be
// forgotten.
func (c *checker) strangers(v view, tvs []topicView) error {
	known := make(map[uint32]bool, len(tvs))
	for i := range tvs {
		known[tvs[i].num] = true
	}
	for _, kind := range []byte{keyLive, keyDead, keyID, keyFinished, keyCounts, keyMark} {
		err := c.each(v, []byte{kind}, func(key, value []byte) error {
			switch {
			case len(key) < 5:
				c.problem("key %x is cut short", key)
			case !known[uint32(beUint(key[1:5]))]:
				c.problem("key %x belongs to no topic", key)
			case kind == keyFinished && len(value) != 8:
				c.problem("remembered ID %q has the time %x", key[5:], value)
			case kind == keyFinished:
				forget, err := v.get(forgetKey(getTime(value), uint32(beUint(key[1:5])), string(key[5:])))
				if err == nil && forget == nil {
					c.problem("remembered ID %q would never be forgotten", key[5:])
				}
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
