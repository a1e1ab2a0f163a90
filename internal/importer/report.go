package importer

import (
	"crypto/sha256"
	"time"

	"github.com/punctualmq/punctual"
)

// Report is what a survey found or a run did.
type Report struct {
	Kind Kind
	// Unit is what the scores count, Guessed whether that was guessed from them (ZSet).
	Unit    time.Duration
	Guessed bool
	Sets    []*SetReport
	// Remembered are the topics whose duplicate window was lengthened.
	Remembered []Remembered
	// Unfinished is how many messages are still in staging because the run could not go on. The next run pushes them.
	Unfinished int64
}

// Remembered is a topic whose setting was changed.
type Remembered struct {
	Topic    string
	Was, Now time.Duration
}

// SetReport is the part of a Report about one sorted set or table.
type SetReport struct {
	Name, Part, Key string
	// Topic is empty when the messages' types decide; see Topics.
	Topic string
	// Found is how many members there were at the beginning, Staged how many earlier runs had
	// left in staging.
	Found, Staged int64

	// Importable, Overdue (of these), Locks (of these, with one of asynq's unique locks), Earliest,
	// Latest, Topics and Samples describe what Survey would import.
	Importable, Overdue, Locks int64
	Earliest, Latest           time.Time
	Topics                     map[string]int64
	Samples                    []punctual.NewMessage
	// Notes are what else is worth knowing before importing.
	Notes []string

	// Rejected counts what was left where it is, by reason.
	Rejected map[Reason]int64
	// Left is how many were left to the other system's consumers because they are nearly due.
	Left int64

	// Stored is how many this run stored, Duplicates how many it found stored already.
	Stored, Duplicates int64
	// Gone is how many messages somebody else took after this run had read them and before it could take them.
	Gone int64
	// Returned were put back, because the store would not take them or as was asked for; Dropped
	// were removed as was asked for.
	Returned, Dropped int64
	// Remaining is how many members there were at the end, StillStaged how many in staging.
	Remaining, StillStaged int64
}

// Rejects is how many messages were left where they are.
func (r *Report) Rejects() int64 {
	var n int64
	for _, s := range r.Sets {
		for _, m := range s.Rejected {
			n += m
		}
	}
	return n
}

// Add counts all sets together: what was found and staged, would be imported, was stored.
func (r *Report) Add(what func(*SetReport) int64) int64 {
	var n int64
	for _, s := range r.Sets {
		n += what(s)
	}
	return n
}

func newSetReport(s *source) *SetReport {
	return &SetReport{Name: s.name, Part: s.part, Key: s.set, Topic: s.topic, Topics: map[string]int64{}, Rejected: map[Reason]int64{}}
}

// reject counts and tells that a message is left where it is; only the first time.
func (im *Importer) reject(s *source, r *SetReport, e *entry, p *problem) error {
	key := s.identity(e)
	if im.seen[key] {
		return nil
	}
	im.seen[key] = true
	r.Rejected[p.reason]++
	return im.opt.Rejected(Reject{Set: s.set, Member: e.member, Score: e.score, Reason: p.reason, Text: p.text})
}

// identity names an entry among all that the run meets, in a few bytes.
func (s *source) identity(e *entry) string {
	sum := sha256.Sum256([]byte(s.set + "\x00" + formatScore(e.score) + "\x00" + e.member))
	return string(sum[:16])
}
