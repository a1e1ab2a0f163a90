package importer

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// source is a sorted set or table of the other system, or a part of one, with the keys that belong
// to it.
type source struct {
	kind Kind
	// name is the name that users of the other system know; part says which of the sets under that
	// name this is.
	name, part string
	// set is the key of the sorted set, in which members are ordered by due time. In PostgreSQL it
	// names the source in staging.
	set string
	// list is the key of Redisson's list, which holds each member a second time.
	list string
	// lock is the key that BeeDelayQueue's consumers hold while they read and remove.
	lock string
	// tasks is the prefix of the keys of asynq's task hashes or BullMQ's job hashes; the ID of the
	// task follows. fields are the fields of such a hash that are read. A task is taken only if the
	// first compared of them are still as they were read.
	tasks    string
	fields   []string
	compared int
	// ttl is how long RabbitMQ has messages of this queue wait; nil if that is not known.
	ttl *time.Duration
	// isList tells that set is the key of a list, of IDs (BullMQ) or tasks (Celery), which have no
	// scores.
	isList bool
	// topic is the topic that gets the messages; empty when the types of asynq's tasks or the kinds
	// of River's jobs name the topics (Options.ByType).
	topic string
	// unit is the unit of the scores. Of a table a score is the due time in milliseconds.
	unit time.Duration
	// due returns the due time of an entry: what its score says, unless the kind sets it. The zero
	// Time stands for now.
	due func(e *entry) (time.Time, *problem)
	// renames is whether a message gets its spare ID if another one has its own. Otherwise it stays
	// in the other system, where its ID may be needed to cancel it.
	renames bool
	// read makes the message of an entry, without its due time. The topic is the type of asynq's
	// task or the kind of River's job, or empty.
	read func(e *entry) (punctual.NewMessage, *problem)
}

// entry is a member of a source, in the set or in staging.
type entry struct {
	member string
	score  float64
	task   task           // of asynq, BullMQ and Celery alone
	row    pgRow          // of tables alone
	got    *rabbitMessage // of RabbitMQ alone
	// message is the message that the entry becomes, unless there is a problem with it.
	message punctual.NewMessage
	// own is the ID that the other system or the body has for the message. It is empty where nobody
	// chose it and the ID here is made from the message. The ID spare is made from the message,
	// too, and is used if the ID own cannot be kept.
	own, spare string
	// deadline is the time from which on the message is of no use, or zero.
	deadline time.Time
	problem  *problem
	// changes say what the message has in the other system and not here, each in a few words.
	changes []string
	// record is the value of the entry in staging, or will be when the entry is taken.
	record record
	text   string // the stored form of record
}

// task is what was read of the hash that asynq or BullMQ keeps of a task: the values of
// source.fields, with "" for those that it does not have. A task of Celery is the member itself.
type task struct {
	found  bool
	id     string // if the member is not the ID
	values []string
	parent bool // of a flow, in BullMQ
}

// sum is the checksum by which the script knows, when it takes the task, that the first n values
// are as they were read, so that a task that changed meanwhile stays.
func (t *task) sum(n int) string {
	sum := sha1.Sum([]byte(strings.Join(t.values[:n], "\x00")))
	return hex.EncodeToString(sum[:])
}

// Reason says in one word why a message is left in the other system or in staging.
type Reason string

// The reasons for which a message is left in the other system or in staging.
const (
	// BadScore: the score is not a plausible time.
	BadScore Reason = "score"
	// BadLayout: the member is not what the other system writes, or has something that no message
	// can take over.
	BadLayout Reason = "layout"
	// BadBody: the body is too large or not what the codec says, or no message can have these
	// headers.
	BadBody Reason = "body"
	// BadTopic: no topic can have that name.
	BadTopic Reason = "topic"
	// BadDeadline: the message would expire before it is due.
	BadDeadline Reason = "deadline"
	// Conflict: the topic has another message with the same ID, or remembers the ID of a finished
	// one.
	Conflict Reason = "conflict"
	// Refused: the store refuses the message as invalid or too large, although the importer's own
	// check let it pass. Any other refusal, for instance because the topic is paused, is no Reason:
	// it ends the run with an error.
	Refused Reason = "refused"
	// Uncertain: it is not known whether an earlier run has stored the message, or what is staged
	// of it cannot be read. The message is still in staging.
	Uncertain Reason = "uncertain"
)

type problem struct {
	reason Reason
	text   string
}

func problemf(r Reason, format string, args ...any) *problem {
	return &problem{r, fmt.Sprintf(format, args...)}
}

// Reject is a message that was left in the other system or in staging.
type Reject struct {
	// Set is the key of the sorted set, and Member its member there, byte for byte. In PostgreSQL
	// Set is the name of the source as staging has it, and Member the ID of the row.
	Set, Member string
	Score       float64
	Reason      Reason
	// Text says what is wrong, and for some reasons what can be done.
	Text string
}

// sources returns the sets or tables to import from, in the order of Options.Names, or of their
// names if those were found.
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
			return nil, storekit.Invalidf("there is no %s %q to give a topic to", im.opt.Kind, name)
		}
	}
	return out, nil
}

func (im *Importer) newSource(name, part string) *source {
	s := &source{kind: im.opt.Kind, name: name, part: part, set: name, unit: time.Second}
	s.due = func(e *entry) (time.Time, *problem) { return dueOf(e.score, s.unit) }
	switch im.opt.Kind {
	case ZSet:
		s.unit, s.read = im.opt.Unit, s.readMember
	case BeeDelayQueue:
		s.describeBee()
	case Redisson:
		s.describeRedisson(im.opt.Codec)
	case Asynq:
		s.describeAsynq()
	case BullMQ:
		s.describeBull(im.opt.Prefix)
	case Celery:
		s.describeCelery()
	case RabbitMQ:
		s.describeRabbit()
	case Postgres, MySQL:
		s.unit = time.Millisecond
		s.describeTable(im.opt.Columns)
	case River:
		s.unit = time.Millisecond
		s.describeRiver(im.opt.Table)
	}
	read := s.read
	s.read = func(e *entry) (m punctual.NewMessage, p *problem) {
		if m, p = read(e); p != nil {
			return m, p
		}
		if im.opt.ByType {
			m.Topic = cmp.Or(im.opt.TopicOf[m.Topic], m.Topic)
		} else {
			m.Topic = ""
		}
		if im.opt.IDFrom != "" {
			e.spare = cmp.Or(e.spare, m.ID)
			e.own, p = idFrom(im.opt.IDFrom, m.Body)
			m.ID = e.own
		}
		return m, p
	}
	s.renames = s.renames || s.tasks != "" || im.opt.IDFrom != ""
	return s
}

// keep returns the ID of a message that has one of its own: that, or spare where no message can
// have it.
func (e *entry) keep(own, spare string) string {
	e.own, e.spare = own, spare
	if storekit.CheckID(own) != nil {
		return spare
	}
	return own
}

// idFrom returns the ID that stands in a body of JSON where pointer (RFC 6901) says.
func idFrom(pointer string, body []byte) (string, *problem) {
	var at any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber() // so that an ID keeps all its digits
	if err := d.Decode(&at); err != nil {
		return "", problemf(BadBody, "its body is not JSON, so that it has no ID at %s (--id-from): %v", pointer, err)
	}
	for _, name := range strings.Split(pointer, "/")[1:] {
		switch in := at.(type) {
		case map[string]any:
			at = in[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
		case []any:
			at = nil
			if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(in) {
				at = in[i]
			}
		default:
			at = nil
		}
	}
	id := fmt.Sprint(at)
	switch at.(type) {
	case string, json.Number:
		if storekit.CheckID(id) == nil {
			return id, nil
		}
	}
	return "", problemf(BadBody, "its body has no ID at %s (--id-from): a text of 1 to %d printable ASCII characters, or a number", pointer, limits.MaxIDBytes)
}

// call sets the ID of the message of an entry. A task of asynq, BullMQ or Celery keeps an ID that
// it had and the message has not in a header.
func (s *source) call(e *entry, id string) {
	e.message.ID = id
	if own := cmp.Or(e.task.id, e.member); e.task.found && own != id {
		e.message.Headers[string(s.kind)+"-id"] = own
	}
}

// plausible is the earliest due time that is accepted, 2001-09-09T01:46:40Z. A score before it is
// most likely in another unit, and its message would be delivered at once.
const plausible = 1e12

// dueOf returns the due time that a score stands for, rounded up to whole milliseconds.
func dueOf(score float64, unit time.Duration) (time.Time, *problem) {
	ms := math.Ceil(score * float64(unit/time.Millisecond))
	switch {
	case math.IsInf(score, 0) || math.IsNaN(score):
		return time.Time{}, problemf(BadScore, "score %v is not a time", score)
	case ms > float64(limits.MaxDue.UnixMilli()):
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

// formatScore returns the text of a score that Redis reads as exactly the same number.
func formatScore(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// makeID returns an ID made from what identifies a message in the other system, so that every run
// gives a message the same ID.
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
func (s *source) decode(e *entry, now time.Time) {
	due, p := s.due(e)
	if due.IsZero() {
		due = now.Truncate(time.Millisecond)
	}
	if p == nil {
		e.message, p = s.read(e)
	}
	if p != nil {
		e.problem = p
		return
	}
	s.call(e, e.message.ID)
	e.dueAt(due)
	if e.message.Topic == "" {
		e.message.Topic = s.topic
	} else if storekit.CheckTopic(e.message.Topic) != nil {
		e.problem = problemf(BadTopic, "no topic can have the name %q of the task's type, the job's kind or the routing key: name one with --topic-of or --topic", e.message.Topic)
		return
	}
	if err := storekit.CheckPush(&e.message, limits.DefaultMaxBody); err != nil {
		e.problem = problemf(reasonOf(&e.message), "%s", withoutKind(err))
	}
}

// dueAt sets the due time of the message. The message expires at its deadline however late it is
// due, or at once if the deadline is over.
func (e *entry) dueAt(due time.Time) {
	e.message.Due = due
	if !e.deadline.IsZero() {
		e.message.ExpireAfter = max(e.deadline.Sub(due), time.Millisecond)
	}
}

// reasonOf returns the reason for an error of CheckPush. The due time and the ID of a message that
// was read are valid, so the fault is in its topic, or else in its body or headers.
func reasonOf(m *punctual.NewMessage) Reason {
	if storekit.CheckTopic(m.Topic) != nil {
		return BadTopic
	}
	return BadBody
}

// withoutKind returns the text of an error without the kind at its end: "topic is empty" of "topic
// is empty: invalid".
func withoutKind(err error) string {
	text := err.Error()
	for _, kind := range []error{punctual.ErrInvalid, punctual.ErrTooLarge} {
		text = strings.TrimSuffix(text, ": "+kind.Error())
	}
	return text
}

// readMember makes the message of a member of a plain sorted set: the member is the body.
func (s *source) readMember(e *entry) (m punctual.NewMessage, p *problem) {
	m.ID = makeID(ZSet, s.set, formatScore(e.score), e.member)
	m.Body = []byte(e.member)
	return m, nil
}

// origin is the other system that messages are taken from. An implementation knows how that system
// keeps its messages, and in which hash or table taken messages are staged.
//
// take, adopt, finish and putBack each take effect in one atomic step. After an error it is not
// known whether the step took effect. The same call twice changes no more than once.
type origin interface {
	// now returns the time of the source's clock. The other system judges due times by it, and so
	// does the import.
	now(ctx context.Context) (time.Time, error)
	// names returns the names of everything that could be imported.
	names(ctx context.Context) ([]string, error)
	// expect returns an error if the keys or the table of a source are not of the kind that the
	// other system writes.
	expect(ctx context.Context, s *source) error
	// guessUnit finds out the unit of the due times, if they are numbers and the options do not
	// name it.
	guessUnit(ctx context.Context, r *Report) error
	// count returns how many messages a source has, and how many are staged.
	count(ctx context.Context, s *source, members, staged *int64) error
	// note adds to the report what the other system keeps beside a source and is not imported.
	note(ctx context.Context, s *source, r *SetReport) error

	// walks returns the walks that together visit all messages of a source; they are made one after
	// the other.
	walks(s *source) []walk
	// staged calls visit with what is staged: member, record, member, record and so on, up to 500
	// pairs at once.
	staged(ctx context.Context, s *source, visit func(pairs []string) error) error
	// readKept reads what staging keeps of the entries beside their records.
	readKept(ctx context.Context, s *source, es []*entry) error

	// take moves entries into staging. It answers with one of the item constants for each, or a
	// single lockHeld.
	take(ctx context.Context, s *source, es []*entry) ([]int64, error)
	// adopt replaces the records of staged entries, if they are still the old ones. It answers
	// itemDone for those.
	adopt(ctx context.Context, s *source, es []*entry, old []string) ([]int64, error)
	// finish ends the staging of entries whose records are unchanged.
	finish(ctx context.Context, s *source, es []*entry) error
	// putBack returns staged entries to the other system, if their records are unchanged. It
	// answers with one of the item constants for each.
	putBack(ctx context.Context, s *source, es []*entry) ([]int64, error)
}

// walk calls visit with the messages of a source, in pages. Other programs may change the source
// meanwhile. A walk does not visit a message that is added at a place which the walk has passed.
type walk func(ctx context.Context, s *source, visit visitor) error

// The answers of take, adopt and putBack for an item.
const (
	itemGone    = 0 // take: it is not there any more; adopt, putBack: another run adopted or finished it
	itemDone    = 1
	itemChanged = 2 // take: not as it was read (Redis); putBack: its place is taken
	itemHeld    = 3 // take: the same member is still in staging; PostgreSQL: or somebody works on the row or has changed it
	lockHeld    = -1
)
