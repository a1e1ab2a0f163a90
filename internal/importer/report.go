package importer

import (
	"crypto/sha256"
	"time"

	"github.com/punctualmq/punctual"
)

// Report has what a survey found or what a run did.
type Report struct {
	Kind Kind
	// Unit is what the scores, or a due column of numbers, count; Guessed is whether that was
	// guessed from them (ZSet, Postgres).
	Unit    time.Duration
	Guessed bool
	Sets    []*SetReport
	// Remembered has the topics whose duplicate window (punctual.Settings.DedupeWindow) was made
	// longer.
	Remembered []Remembered
	// Unfinished is how many messages are still in staging because a push or the putting back
	// failed, or because they should go back and a new task or row has their place. The next run
	// goes on with them.
	Unfinished int64
}

// Remembered is a topic whose duplicate window was made longer.
type Remembered struct {
	Topic    string
	Was, Now time.Duration
}

// SetReport is the part of a Report about one sorted set or table, or one part of it.
type SetReport struct {
	Name, Part, Key string
	// Topic is empty when the messages' types decide; see Topics.
	Topic string
	// Found is how many members there were at the beginning, Staged how many earlier runs had
	// left in staging.
	Found, Staged int64

	// Importable, Overdue (of these), Locks (of these, with one of asynq's unique locks), Earliest,
	// Latest, Topics and Samples describe what Survey found to import.
	Importable, Overdue, Locks int64
	Earliest, Latest           time.Time
	Topics                     map[string]int64
	Samples                    []punctual.NewMessage
	// Notes has what else people should know before they import.
	Notes []string

	// Rejected counts, by reason, the messages that cannot be imported and were left in the other
	// system or in staging.
	Rejected map[Reason]int64
	// Left is how many messages were left to the consumers of the other system because they are due
	// or nearly due.
	Left int64

	// Stored is how many this run stored, Duplicates how many it found stored already, perhaps by a
	// push of its own whose answer was lost.
	Stored, Duplicates int64
	// Gone is how many messages somebody else took after this run had read them and before it could
	// take them.
	Gone int64
	// Returned counts the messages that were put back, because they could not be stored or because
	// of ReturnUncertain. Dropped counts those that were removed because of DropUncertain.
	Returned, Dropped int64
	// Remaining is how many members there were at the end, StillStaged how many in staging.
	Remaining, StillStaged int64
}

// Rejects returns how many messages cannot be imported and were left in the other system or in
// staging.
func (r *Report) Rejects() int64 {
	var n int64
	for _, s := range r.Sets {
		for _, m := range s.Rejected {
			n += m
		}
	}
	return n
}

// Add returns the sum over all sets of a count of theirs: of Found, for example.
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

// reject counts a message that is not imported, and calls Options.Rejected. A second call for the
// same message does nothing.
func (im *Importer) reject(s *source, r *SetReport, e *entry, p *problem) error {
	key := s.identity(e)
	if im.seen[key] {
		return nil
	}
	im.seen[key] = true
	r.Rejected[p.reason]++
	return im.opt.Rejected(Reject{Set: s.set, Member: e.member, Score: e.score, Reason: p.reason, Text: p.text})
}

// identity returns a short name of an entry, made from its set, its score and its member.
func (s *source) identity(e *entry) string {
	sum := sha256.Sum256([]byte(s.set + "\x00" + formatScore(e.score) + "\x00" + e.member))
	return string(sum[:16])
}
