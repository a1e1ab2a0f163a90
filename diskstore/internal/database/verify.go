package database

import (
	"encoding/binary"

	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// VerifyTables has the engine compare its levels. It cannot be cancelled, and needs no lock. If the
// engine panics, the database is taken for damaged.
func (db *DB) VerifyTables() (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = errkind.Corruptf("the database stopped: %v", cause)
		}
	}()
	return db.kv.CheckLevels(nil)
}

// Verifier receives what a verification reads and finds.
type Verifier struct {
	// Step is called for each key, before the key is checked. An error of Step ends the
	// verification.
	Step func(message bool) error
	// Problem is called for each problem.
	Problem func(format string, args ...any)
}

// each calls f for every key that begins with prefix.
func (v Verifier) each(s *Snapshot, prefix []byte, message bool, f func(key, value []byte) error) error {
	stopped := false
	err := each(s.snap, prefix, func(key, value []byte) error {
		if err := v.Step(message); err != nil {
			stopped = true
			return err
		}
		return f(key, value)
	})
	if stopped {
		return err
	}
	return s.db.state.ReadError("read", err)
}

// VerifyTopic compares every message of a topic with its ID, and the number of messages with the
// number of IDs and with the counts. It returns how many messages it found.
func (s *Snapshot) VerifyTopic(t Info, v Verifier) (live, dead int64, err error) {
	if live, err = s.verifyMessages(t, Live, v); err != nil {
		return 0, 0, err
	}
	if dead, err = s.verifyMessages(t, Dead, v); err != nil {
		return 0, 0, err
	}
	if live != t.Live || dead != t.Dead {
		v.Problem("topic %s counts %d live and %d dead messages but holds %d and %d", t.Name, t.Live, t.Dead, live, dead)
	}
	var ids int64
	err = v.each(s, topicKey(keyID, t.Num), false, func(_, _ []byte) error {
		ids++
		return nil
	})
	if err == nil && ids != live+dead {
		v.Problem("topic %s has %d IDs for %d messages", t.Name, ids, live+dead)
	}
	return live, dead, err
}

// verifyMessages compares the messages of one order, each with its ID.
func (s *Snapshot) verifyMessages(t Info, order Order, v Verifier) (n int64, err error) {
	err = v.each(s, topicKey(byte(order), t.Num), true, func(key, value []byte) error {
		n++
		p, err := parsePosKey(key)
		if err != nil {
			v.Problem("topic %s: %v", t.Name, err)
			return nil
		}
		if order == Live && p.Less(t.Lowest) {
			v.Problem("topic %s: message %v lies below the watermark %v", t.Name, p, t.Lowest)
		}
		r, err := record.Decode(value)
		if err != nil {
			v.Problem("topic %s: message %v: %v", t.Name, p, err)
			return nil
		}
		if at, err := s.Find(t.Num, r.ID); err != nil {
			return err
		} else if at != (Place{Order: order, At: p, Remembers: r.Remember > 0}) {
			v.Problem("topic %s: message %v with ID %s, but the ID says %c%v (remembers: %v)", t.Name, p, r.ID, at.Order, at.At, at.Remembers)
		}
		if order == Live && r.Due != p.Ms || order == Dead && r.Died != p.Ms || (r.Reason != "") != (order == Dead) {
			v.Problem("topic %s: message %s is stored as %c at %d but says due %d, died %d", t.Name, r.ID, order, p.Ms, r.Due, r.Died)
		}
		return nil
	})
	return n, err
}

// VerifyRest reports keys that belong to none of the topics, and remembered IDs and finished
// records that cannot be read or that no sweep would ever delete.
func (s *Snapshot) VerifyRest(ts []Info, v Verifier) error {
	known := make(map[uint32]bool, len(ts))
	for _, t := range ts {
		known[t.Num] = true
	}
	for _, kind := range []byte{keyLive, keyDead, keyID, keyFinished, keyRecord, keyCounts, keyWatermark} {
		err := v.each(s, []byte{kind}, false, func(key, value []byte) error {
			switch {
			case len(key) < 5:
				v.Problem("key %x is cut short", key)
			case !known[binary.BigEndian.Uint32(key[1:])]:
				v.Problem("key %x belongs to no topic", key)
			case kind == keyFinished && len(value) != 16:
				v.Problem("remembered ID %q has the time %x", key[5:], value)
			case kind == keyRecord:
				return s.verifyFinished(key, value, v)
			case kind == keyFinished:
				forget, err := s.get(forgetKey(keyForget, record.Time(value), binary.BigEndian.Uint32(key[1:]), string(key[5:])))
				if err == nil && forget == nil {
					v.Problem("remembered ID %q would never be forgotten", key[5:])
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

// verifyFinished reports a finished record that cannot be read, or that no sweep would ever delete.
func (s *Snapshot) verifyFinished(key, value []byte, v Verifier) error {
	id := string(key[5:])
	if _, err := record.DecodeFinished(value); err != nil {
		v.Problem("finished record of %q: %v", id, err)
		return nil
	}
	end, err := s.get(forgetKey(keyRecordEnd, record.Time(value), binary.BigEndian.Uint32(key[1:]), id))
	if err == nil && end == nil {
		v.Problem("finished record of %q would never be forgotten", id)
	}
	return err
}
