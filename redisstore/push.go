package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/redisstore/internal/record"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/redisstore/internal/topics"
	"github.com/punctualmq/punctual/storekit"
)

// What a script is to do when the ID of a new message is in use.
const (
	inUseKeep        = 0
	inUseReplace     = 1
	inUseFail        = 2
	inUseNever       = 3 // the ID is not in use, because it was just made
	inUseReplaceDead = 4 // replace a dead message, and keep any other

	flagFactor = 8   // the flags of the record, times flagFactor, are added to one of the numbers above
	ifDue      = 256 // is added to replace only a message that is due at the time in front of the record
	hasKey     = 512 // is added if the message has a key, which stands in front of the record, behind such a time
)

// The statuses with which push.lua answers for a message that was not simply stored.
const (
	pushUnkeyed   = 1
	pushDuplicate = 2
	pushReplaced  = 3
	pushInUse     = 4
	pushTooFar    = 5
	pushPaused    = 6
	pushFinished  = 7
	pushDead      = 8
	pushChanged   = 9
)

// Push stores messages; see punctual.Store. A script takes up to 200 messages of one partition, as
// long as their bodies have 512 KiB in all, or one message of any length.
func (s *Store) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return call(ctx, s, "push", "", storekit.Plain(storekit.CheckBatch(len(ms))), func() ([]punctual.PushResult, error) { return s.push(ctx, ms) })
}

func (s *Store) push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	key, err := s.keyOf(ctx, func() storekit.Sum { return storekit.SumOfPush(ms) })
	if err != nil {
		return nil, err
	}
	p := pushing{s: s, ms: ms, key: key, results: make([]punctual.PushResult, len(ms))}
	j := routing{
		s: s, items: make([]item, len(ms)), create: true, id: func(i int) string { return p.results[i].ID }, pack: p.pack, ask: p.ask,
		conditional: func(i int) bool { return !ms[i].IfDue.IsZero() }, keyed: func(i int) bool { return ms[i].Key != "" },
		divided: func(i int) bool {
			p.results[i].ID, p.results[i].Err = stemmed(&ms[i], p.results[i].ID)
			return p.results[i].Err == nil
		},
		absent: func(i int) { p.results[i].Err = storekit.ChangedError(ms[i].Topic, ms[i].ID, time.Time{}) },
		refuse: func(i int, err error) { p.results[i].Err = fmt.Errorf("push to %s: %w", ms[i].Topic, err) },
	}
	var seen keySettings
	for i := range ms {
		p.results[i] = punctual.PushResult{ID: ms[i].ID, Topic: ms[i].Topic, Err: s.check(ctx, &ms[i], &seen)}
		if p.results[i].Err != nil {
			j.items[i].done = true
			continue
		}
		switch {
		case ms[i].ID != "":
		case key != nil:
			p.results[i].ID = storekit.IDOfKey(key.Key, i)
		default:
			p.results[i].ID = storekit.NewID(s.clock.Time())
		}
		j.items[i] = item{topic: ms[i].Topic, bytes: len(ms[i].Body)}
	}
	p.items = j.items
	return p.results, j.run(ctx)
}

// pushing is a Push on its way.
type pushing struct {
	s       *Store
	ms      []punctual.NewMessage
	key     *keyed
	results []punctual.PushResult
	items   []item
}

// check refuses a message that is not acceptable whatever the store's clock says. The script checks
// delays, which count from that clock.
func (s *Store) check(ctx context.Context, m *punctual.NewMessage, seen *keySettings) error {
	if err := storekit.CheckPush(m, s.opt.MaxBody); err != nil {
		return err
	}
	if err := seen.check(ctx, s, m); err != nil {
		return err
	}
	_, err := storekit.DueAt(time.Time{}, m.Due, 0)
	if m.Due.IsZero() {
		return nil
	}
	return err
}

// keySettings are the settings that say whether messages of a topic may have keys, by topic, as the
// calls of one method have read them.
type keySettings map[string]*punctual.Settings

// check refuses a message with a key if its topic has no keys.
func (k *keySettings) check(ctx context.Context, s *Store, m *punctual.NewMessage) error {
	if m.Key == "" {
		return nil
	}
	set, read := (*k)[m.Topic]
	if !read {
		var err error
		if set, err = s.keySettings(ctx, m.Topic); err != nil {
			return fmt.Errorf("push to %s: %w", m.Topic, err)
		}
		if *k == nil {
			*k = keySettings{}
		}
		(*k)[m.Topic] = set
	}
	return storekit.CheckKeyed(m, set)
}

// keySettings returns the settings of a topic, or of the topic that it is a companion of if it does
// not exist, and nil if there is neither. What this process knows of the topic may be out of date,
// so the topic is read anew if it seems to have no keys.
func (s *Store) keySettings(ctx context.Context, topic string) (set *punctual.Settings, err error) {
	for _, read := range []func(context.Context, string) (*topics.Layout, error){s.topics.Get, s.topics.Load} {
		l, err := read(ctx, topic)
		if parent, name := storekit.Companion(topic); err == nil && name != "" && !l.Exists() {
			l, err = read(ctx, parent)
		}
		if err != nil || !l.Exists() {
			return nil, err
		}
		now := l.Settings()
		if set = &now; set.Keyed {
			break
		}
	}
	return set, nil
}

// stemmed returns the ID of a new message in a topic of several partitions. If the message has a
// key, its ID begins with the key and "~", so that all messages of a key are in one partition. An
// ID that was given and has another stem is an ErrInvalid.
func stemmed(m *punctual.NewMessage, id string) (string, error) {
	switch made := m.Key + "~" + id; {
	case m.Key == "" || storekit.Stem(id) == m.Key:
		return id, nil
	case m.ID != "":
		return id, storekit.Invalidf("message %s with the key %q: the topic has several partitions, so begin the ID with the key, as in %s~1, or have it made up", id, m.Key, m.Key)
	case len(made) > limits.MaxIDBytes:
		return id, storekit.Invalidf("message with a key of %d bytes: the topic has several partitions, and an ID that begins with the key would have %d bytes: use a shorter key, or give the ID", len(m.Key), len(made))
	default:
		return made, nil
	}
}

// ask pushes some messages to a partition.
func (p *pushing) ask(ctx context.Context, c *chunk, args []any) (int64, func() error, error) {
	if err := p.s.health.Refusal(); err != nil {
		return 0, nil, err
	}
	a, err := p.s.route.Run(ctx, script.Push, c.Partition, p.key.part(c.Items), args...)
	if err != nil {
		return 0, nil, err
	}
	stored := a.Version == c.Note.Version
	if stored {
		p.s.waits.notify(c.Partition, a.Int())
	}
	return a.Version, func() error {
		if stored {
			p.fillAll(a, c.Items)
		}
		if a.Bad {
			return script.BadReply(script.Push)
		}
		return nil
	}, nil
}

// pack builds the arguments of push.lua. The bytes of the records that follow each due time share
// one allocation.
func (p *pushing) pack(c *chunk) []any {
	size, all := record.PackedBytes, 0
	for _, i := range c.Items {
		size += 3*record.PackedBytes + len(p.results[i].ID) + maxDigits
		all += restBytes(&p.ms[i])
	}
	args := make([]any, 2, 2+len(c.Items))
	b, rest := record.PackArray(make([]byte, 0, size), 3*len(c.Items)), make([]byte, 0, all)
	for _, i := range c.Items {
		m := &p.ms[i]
		b = packMessage(b, m, p.results[i].ID, m.ID == "" && p.key == nil)
		begin := len(rest)
		rest = appendRest(rest, m)
		args = append(args, rest[begin:])
	}
	args[0], args[1] = b, c.Note.Version
	return args
}

// packMessage packs three values of a new message for a script: its ID, when it is due, and what to
// do when the ID is in use. made says that the ID was just made up. The part of the record that
// follows the due time is an argument of its own, see appendRest.
func packMessage(b []byte, m *punctual.NewMessage, id string, made bool) []byte {
	b = packDue(record.PackString(b, id), m.Due, m.Delay)
	how := whenInUse(m, made) + flagFactor*int(record.Flags(m))
	if !m.IfDue.IsZero() {
		how += ifDue
	}
	if m.Key != "" {
		how += hasKey
	}
	return record.PackNumber(b, float64(how))
}

// packDue packs when something is due, for a script: a due time as digits, a delay as a number.
func packDue(b []byte, due time.Time, delay time.Duration) []byte {
	if due.IsZero() {
		return record.PackNumber(b, float64(storekit.CeilDuration(delay)))
	}
	var digits [maxDigits]byte
	text := strconv.AppendInt(digits[:0], storekit.CeilMillis(due), 10)
	return append(record.PackStringHead(b, len(text)), text...)
}

// appendRest appends what a script is given of a new message beside packMessage: the time at which
// the message to be replaced must be due, if there is such a condition, the key, if there is one,
// and the part of the record that follows the due time. restBytes returns how many bytes that is.
func appendRest(b []byte, m *punctual.NewMessage) []byte {
	if !m.IfDue.IsZero() {
		b = record.AppendDouble(b, float64(storekit.CeilMillis(m.IfDue)))
	}
	if m.Key != "" {
		b = append(append(b, byte(len(m.Key))), m.Key...)
	}
	return record.AppendRest(b, m)
}

func restBytes(m *punctual.NewMessage) int {
	n := record.RestBytes(m)
	if m.Key != "" {
		n += 1 + len(m.Key)
	}
	if !m.IfDue.IsZero() {
		n += 8
	}
	return n
}

// maxDigits is how long a number of ms can be.
const maxDigits = 20

func whenInUse(m *punctual.NewMessage, made bool) int {
	switch {
	case m.IfExists == punctual.IfExistsReplace:
		return inUseReplace
	case m.IfExists == punctual.IfExistsFail:
		return inUseFail
	case m.IfExists == punctual.IfExistsReplaceDead && m.ID != "":
		return inUseReplaceDead
	case made:
		return inUseNever
	}
	return inUseKeep
}

// fillAll reads the answer of push.lua.
func (p *pushing) fillAll(a *script.Answer, items []int) {
	up := a.Int()
	for _, i := range items {
		due := storekit.CeilMillis(p.ms[i].Due)
		if p.ms[i].Due.IsZero() {
			due = up + storekit.CeilDuration(p.ms[i].Delay)
		}
		p.results[i].Status, p.results[i].Due = punctual.PushStored, storekit.FromMillis(due)
		p.items[i].done = true
	}
	for !a.Bad && len(a.Items) > 0 {
		n := a.Int()
		if n < 0 || n >= int64(len(items)) {
			a.Bad = true
			return
		}
		i := items[n]
		p.results[i].Status, p.results[i].Due = punctual.PushNone, time.Time{}
		status, due, state := a.Int(), a.Int(), a.Int()
		fillPushed(&p.results[i], &p.ms[i], status, due, state)
	}
}

func fillPushed(r *punctual.PushResult, m *punctual.NewMessage, status, due, state int64) {
	switch status {
	case pushReplaced:
		r.Status, r.Due = punctual.PushReplaced, storekit.FromMillis(due)
	case pushDuplicate:
		r.Status, r.Due, r.Existing = punctual.PushDuplicate, storekit.FromMillis(due), punctual.State(state)
	case pushFinished:
		r.Status = punctual.PushDuplicate
	case pushDead:
		r.Existing, r.Err = punctual.StateDead, refusedPush(m, r.ID, status, due, state)
	default:
		r.Err = refusedPush(m, r.ID, status, due, state)
	}
}

// refusedPush is the error of a new message that a script has refused.
func refusedPush(m *punctual.NewMessage, id string, status, due, state int64) error {
	switch status {
	case pushUnkeyed:
		return storekit.CheckKeyed(m, &punctual.Settings{})
	case pushPaused:
		return storekit.PausedError(m.Topic)
	case pushInUse:
		return storekit.DuplicateError(m.Topic, id, time.Time{})
	case pushDead:
		return storekit.DuplicateError(m.Topic, id, storekit.FromMillis(due))
	case pushChanged:
		if state == int64(punctual.StateNone) {
			return storekit.ChangedError(m.Topic, id, time.Time{})
		}
		return storekit.ChangedError(m.Topic, id, storekit.FromMillis(due))
	}
	return tooFar(fmt.Sprintf("push to %s after %v", m.Topic, m.Delay))
}

func tooFar(what string) error {
	return fmt.Errorf("%s: due time lies after %s: %w", what, limits.MaxDue.Format(time.RFC3339), punctual.ErrInvalid)
}
