package importer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// source is one sorted set or table of the other system, or a part of it, with what belongs to it.
type source struct {
	kind Kind
	// name is what users of that system call it, part which of its sets this is.
	name, part string
	// set is the sorted set's key: members by due time. In PostgreSQL it names the source in staging.
	set string
	// list is the key of Redisson's list, which holds each member a second time.
	list string
	// lock is the key that BeeDelayQueue's consumers hold while they read and remove.
	lock string
	// tasks stands in front of the ID in the key of an asynq task's hash.
	tasks string
	// topic is where the messages go; empty for asynq's tasks by type.
	topic string
	// unit is what the scores count. In PostgreSQL a score is the due time in milliseconds.
	unit time.Duration
	// read makes a message of an entry: all but its due time.
	read func(e *entry) (punctual.NewMessage, *problem)
}

// entry is one member of a source, in the set or in staging.
type entry struct {
	member string
	score  float64
	task   asynqTask // of asynq alone
	row    pgRow     // of PostgreSQL alone
	// message is what it becomes, unless there is a problem.
	message punctual.NewMessage
	problem *problem
	// record is what staging has, or will have, as its value.
	record record
	text   string // record as it is stored
}

// Reason says in one word why a message is left where it is.
type Reason string

// The reasons.
const (
	// BadScore: the score is not a plausible time.
	BadScore Reason = "score"
	// BadLayout: the member is not what the other system writes.
	BadLayout Reason = "layout"
	// BadBody: the body is too large, or not what the codec says.
	BadBody Reason = "body"
	// BadTopic: no topic can have that name.
	BadTopic Reason = "topic"
	// Conflict: the topic has another message with the same ID.
	Conflict Reason = "conflict"
	// Refused: the store does not take it.
	Refused Reason = "refused"
	// Uncertain: it is not known whether an earlier run has stored it; it is still in staging.
	Uncertain Reason = "uncertain"
)

type problem struct {
	reason Reason
	text   string
}

func problemf(r Reason, format string, args ...any) *problem {
	return &problem{r, fmt.Sprintf(format, args...)}
}

// Reject is a message that was left where it is.
type Reject struct {
	// Set is the key of the sorted set, and Member its member there, byte for byte.
	Set, Member string
	Score       float64
	Reason      Reason
	// Text says what is wrong, and what can be done.
	Text string
}

// sources are the sets to take over, in the order of the names.
func (im *Importer) sources(ctx context.Context) ([]*source, error) {
	names := im.opt.Names
	if len(names) == 0 {
		var err error
		if names, err = im.from.names(ctx); err != nil {
			return nil, err
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	var out []*source
	for _, name := range names {
		topic, err := im.opt.topicOf(name)
		if err != nil {
			return nil, err
		}
		for _, part := range im.opt.Parts {
			s := im.newSource(name, part)
			s.topic = topic
			if err := im.from.expect(ctx, s); err != nil {
				return nil, err
			}
			out = append(out, s)
		}
	}
	for name := range im.opt.Topics {
		if !slices.Contains(names, name) {
			return nil, invalidf("there is no %s %q to give a topic to", im.opt.Kind, name)
		}
	}
	return out, nil
}

func (im *Importer) newSource(name, part string) *source {
	s := &source{kind: im.opt.Kind, name: name, part: part, set: name, unit: time.Second}
	switch im.opt.Kind {
	case ZSet:
		s.unit, s.read = im.opt.Unit, s.readMember
	case BeeDelayQueue:
		s.describeBee()
	case Redisson:
		s.describeRedisson(im.opt.Codec)
	case Asynq:
		s.describeAsynq(im.opt.ByType)
	case Postgres:
		s.unit = time.Millisecond
		s.describeTable()
	case River:
		s.unit = time.Millisecond
		s.describeRiver(im.opt.Table, im.opt.ByType)
	}
	return s
}

// plausible is the first due time that is believed, 2001-09-09T01:46:40Z: an earlier one is a
// score in another unit, and would be delivered at once.
const plausible = 1e12

// dueOf turns a score into a due time, rounded up to whole milliseconds.
func dueOf(score float64, unit time.Duration) (time.Time, *problem) {
	ms := math.Ceil(score * float64(unit/time.Millisecond))
	switch {
	case math.IsInf(score, 0) || math.IsNaN(score):
		return time.Time{}, problemf(BadScore, "score %v is not a time", score)
	case ms > float64(punctual.MaxDue.UnixMilli()):
		return time.Time{}, problemf(BadScore, "score %s lies after the year 9999 when it counts %s", formatScore(score), unitName(unit))
	case ms < plausible:
		return time.Time{}, problemf(BadScore, "score %s lies before September 2001 when it counts %s", formatScore(score), unitName(unit))
	}
	return storekit.FromMillis(int64(ms)), nil
}

func unitName(unit time.Duration) string {
	if unit == time.Second {
		return "seconds"
	}
	return "milliseconds"
}

// formatScore writes a score so that Redis reads exactly the same number.
func formatScore(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// makeID makes an ID of what identifies a message in the other system: the same message always
// has the same one.
func makeID(k Kind, parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return string(k) + "-" + hex.EncodeToString(h.Sum(nil)[:16])
}

// decode makes the message of an entry, or notes what is wrong with it.
func (s *source) decode(e *entry) {
	due, p := dueOf(e.score, s.unit)
	if p == nil {
		e.message, p = s.read(e)
	}
	if p != nil {
		e.problem = p
		return
	}
	e.message.Due = due
	if e.message.Topic == "" {
		e.message.Topic = s.topic
	}
	if err := storekit.CheckPush(&e.message, punctual.DefaultMaxBody); err != nil {
		e.problem = problemf(reasonOf(&e.message), "%s", withoutKind(err))
	}
}

// reasonOf says what CheckPush found wrong. The due time and the ID of a message that was read are right, so it is
// the topic, or else what the message carries.
func reasonOf(m *punctual.NewMessage) Reason {
	if storekit.CheckTopic(m.Topic) != nil {
		return BadTopic
	}
	return BadBody
}

// withoutKind is the text of an error without the word at its end that names its kind.
func withoutKind(err error) string {
	text := err.Error()
	for _, kind := range []error{punctual.ErrInvalid, punctual.ErrTooLarge} {
		text = strings.TrimSuffix(text, ": "+kind.Error())
	}
	return text
}

// readMember reads a member of a plain sorted set: it is the body.
func (s *source) readMember(e *entry) (m punctual.NewMessage, p *problem) {
	m.ID = makeID(ZSet, s.set, formatScore(e.score), e.member)
	m.Body = []byte(e.member)
	return m, nil
}
