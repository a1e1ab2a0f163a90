package pgstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Push stores messages; see punctual.Store.
func (s *Store) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return call(ctx, s, "push", "", storekit.CheckBatch(len(ms)), func() ([]punctual.PushResult, error) {
		if err := s.given.refusal(); err != nil {
			return nil, err
		}
		p := newPushing(s, ms)
		err := inParts(p.parts(), func(part []int) error {
			ctx, end := within(ctx)
			defer end()
			return besideHeld(part, len(ms) > 1, func(lockWait time.Duration, group []int) (left []int, err error) {
				p.lockWait = lockWait
				return p.push(ctx, ownTransactions{s}, group)
			}, p.reset)
		}, p.reset)
		if err == nil {
			s.waits.pushed(p.out)
			s.waits.told(p.events)
		}
		return p.out, err
	})
}

// pushing is a call of Push, PushTx or PushManyTx, or the follow-ups of a call of Settle, SettleTx
// or SettleManyTx.
type pushing struct {
	s   *Store
	ms  []punctual.NewMessage
	out []punctual.PushResult
	// dues are the due times of follow-ups that are to be stored, by index; nil of a push, whose
	// due times the server finds.
	dues []time.Time

	// lockWait is for how long the next transaction waits for the lock of a message at most. It is
	// 0 in a transaction of the caller's, where the caller's own lock_timeout holds.
	lockWait time.Duration
	// prove makes sure that those of the messages that a transaction of the caller's has not found
	// are not there. It is nil in one of the store's own.
	prove func(ctx context.Context, l *locked, names []messageName) error

	events []toldEvent // what the transactions so far have stored; Push notifies of them in the end
}

// newPushing checks messages, and gives an ID to those that pass and have none.
func newPushing(s *Store, ms []punctual.NewMessage) *pushing {
	p := &pushing{s: s, ms: ms, out: make([]punctual.PushResult, len(ms))}
	now := time.UnixMicro(s.db.clock.guess())
	for i := range ms {
		m, r := &ms[i], &p.out[i]
		r.ID, r.Topic = m.ID, m.Topic
		if r.Err = storekit.CheckPush(m, s.opt.MaxBody); r.Err != nil {
			continue
		}
		if _, r.Err = storekit.DueAt(now, m.Due, m.Delay); r.Err != nil {
			continue
		}
		if r.ID == "" {
			r.ID = storekit.NewID(now)
		}
	}
	return p
}

// parts divides the messages that passed the checks.
func (p *pushing) parts() [][]int {
	var fit []int
	for i := range p.out {
		if p.out[i].Err == nil {
			fit = append(fit, i)
		}
	}
	return parts(fit, p.name, func(i int) int { return len(p.ms[i].Body) }, nil)
}

func (p *pushing) name(i int) messageName { return messageName{p.out[i].Topic, p.out[i].ID} }

// topics returns the topics of a part, each once.
func (p *pushing) topics(part []int) []string {
	return distinct(part, func(i int) string { return p.ms[i].Topic })
}

// share begins a step that keeps the topics of a part from being deleted until the transaction
// ends.
func (p *pushing) share(part []int) *step { return p.s.db.shareTopics(p.topics(part), p.lockWait) }

// shareTopics begins a step that keeps topics from being deleted until the transaction ends. From
// then on the transaction waits for a lock no longer than lockWait, unless that is 0.
func (db *database) shareTopics(topics []string, lockWait time.Duration) *step {
	return db.addShare(db.step(), topics, lockWait)
}

// addShare is shareTopics for a step that has other statements before.
func (db *database) addShare(x *step, topics []string, lockWait time.Duration) *step {
	var timeout *string
	if lockWait > 0 {
		text := lockTimeoutOf(lockWait)
		timeout = &text
	}
	return x.add("topics_share", []any{db.class, topics, timeout}, nil)
}

func distinct(part []int, topicOf func(i int) string) []string {
	var out []string
	seen := make(map[string]bool)
	for _, i := range part {
		if t := topicOf(i); !seen[t] {
			seen[t] = true
			out = append(out, t)
		}
	}
	return out
}

// transactor carries the steps of a push to the server: each in a transaction of the store's own,
// or all in one of the caller's.
type transactor interface {
	// write runs a step: as a transaction of the store's own, or as the next part of the caller's.
	write(ctx context.Context, build func() *step) error
	// create runs a step that makes topics. It may be a transaction of its own, so that nobody else
	// who needs one of them waits.
	create(ctx context.Context, build func() *step) error
	// transact runs f in a transaction of the store's own, or in that of the caller.
	transact(ctx context.Context, f func(ctx context.Context, to stepper) error) error
	// tell stores the events of c in the transaction whose steps to takes.
	tell(ctx context.Context, to stepper, c *changes) error
}

// stepper takes the steps of a transaction.
type stepper interface {
	send(ctx context.Context, x *step) error
}

// push stores the messages of a part. It takes one step if all IDs are free, all topics exist, none
// of the topics tells of pushes, and no message has an IfDue. Beside an error it returns the
// messages that have no answer yet.
func (p *pushing) push(ctx context.Context, w transactor, part []int) (left []int, err error) {
	for left = part; len(left) > 0; {
		free, inUse := p.byCondition(left)
		ofKeys := p.keyed(free) // whether the statement stores messages of topics with keys
		got, err := p.insert(ctx, w, free, ofKeys)
		if err != nil {
			return left, err
		}
		var unknown, telling, again []int
		for _, i := range free {
			m := &p.ms[i]
			keyed := got.keyed[m.Topic]
			switch paused, there := got.paused[m.Topic]; {
			case p.took(i, got, punctual.PushStored):
			case !there:
				unknown = append(unknown, i)
			case m.Key != "" && !keyed:
				p.reset(i, storekit.CheckKeyed(m, &punctual.Settings{}))
			case keyed && !ofKeys:
				p.s.db.keyed.learn(m.Topic, true)
				again = append(again, i)
			case paused:
				p.reset(i, storekit.PausedError(p.ms[i].Topic))
			case got.tells[p.ms[i].Topic]:
				telling = append(telling, i)
			default:
				inUse = append(inUse, i)
			}
		}
		rest, err := p.insertAndTell(ctx, w, telling)
		if err == nil {
			unknown, err = p.refuseKeys(ctx, w, unknown)
		}
		if err != nil {
			return slices.Concat(unknown, again, inUse, telling), err
		}
		inUse = append(inUse, rest...)
		gone, err := p.pushInUse(ctx, w, inUse)
		if err != nil {
			return slices.Concat(unknown, again, inUse), err
		}
		left = slices.Concat(unknown, again, gone)
		if len(unknown) > 0 {
			if err := p.s.topics.create(ctx, w, p.topics(unknown), p.topicsOfKeys(unknown), p.lockWait); err != nil {
				return left, err
			}
		}
	}
	return nil, nil
}

// refuseKeys refuses those of the messages whose topics do not exist that have a key, although the
// topic of which theirs is a companion exists and has no keys. It returns the others.
func (p *pushing) refuseKeys(ctx context.Context, w transactor, unknown []int) ([]int, error) {
	parents := slices.DeleteFunc(withParents(p.topicsOfKeys(unknown)), isCompanion)
	if len(parents) == 0 {
		return unknown, nil
	}
	l := p.s.db.newLocked()
	err := w.write(ctx, func() *step { return p.s.db.step().add("clock_and_settings", p.s.db.writing(parents), l.readSettings) })
	if err != nil {
		return unknown, err
	}
	return slices.DeleteFunc(slices.Clone(unknown), func(i int) bool {
		parent, _ := storekit.Companion(p.ms[i].Topic)
		p.reset(i, storekit.CheckKeyed(&p.ms[i], l.settings[parent]))
		return p.out[i].Err != nil
	}), nil
}

// byCondition divides messages into those that are to be stored if their ID is free, and those that
// must not be stored then, because they have an IfDue.
func (p *pushing) byCondition(part []int) (free, conditional []int) {
	if !slices.ContainsFunc(part, p.hasIfDue) {
		return part, nil
	}
	for _, i := range part {
		if p.hasIfDue(i) {
			conditional = append(conditional, i)
		} else {
			free = append(free, i)
		}
	}
	return free, conditional
}

// hasIfDue reports whether a message is to be stored only in the place of one that is due at a
// certain time.
func (p *pushing) hasIfDue(i int) bool { return !p.ms[i].IfDue.IsZero() }

// reset makes err, which may be nil, the whole answer for a message, because a try that was rolled
// back may have left another one.
func (p *pushing) reset(i int, err error) {
	r := &p.out[i]
	*r = punctual.PushResult{ID: r.ID, Topic: r.Topic, Err: err}
}

// inserted is the answer of push.sql or replace.sql, or what follows from the answer of
// push_new.sql.
type inserted struct {
	micros  int64
	numbers map[string]int32 // of the topics that exist
	keyed   map[string]bool  // of the same topics: whether they have keys
	paused  map[string]bool  // of the same topics: whether they take no pushes
	tells   map[string]bool  // of the same topics: whether they tell of pushes
	due     map[stored]int64 // the due times, in ms, of the messages that were stored
}

// stored names a message that was stored.
type stored struct {
	topic int32
	id    string
}

// scan reads one row of the answer, which is about a topic or about a message that was stored.
func (g *inserted) scan(rows scanner) error {
	var number int32
	var topic, id *string
	var paused, tells, keyed *bool
	var due *int64
	if err := rows.Scan(&g.micros, &number, &topic, &paused, &tells, &keyed, &id, &due); err != nil {
		return err
	}
	if id != nil {
		g.due[stored{number, *id}] = *due
		return nil
	}
	g.numbers[*topic], g.paused[*topic], g.tells[*topic], g.keyed[*topic] = number, *paused, *tells, *keyed
	return nil
}

// insert stores those messages of a part whose topic exists, takes pushes and does not tell of
// them, and whose ID is free. Where the store has made all IDs it uses push_new.sql, which does not
// look whether they are free. In a transaction of the caller's it uses push.sql in any case,
// because with push_new.sql an ID that is in use after all would abort that transaction.
func (p *pushing) insert(ctx context.Context, w transactor, part []int, ofKeys bool) (*inserted, error) {
	got := newInserted()
	if len(part) == 0 {
		return got, nil
	}
	if p.prove == nil && !slices.ContainsFunc(part, p.chosen) {
		if got, err := p.insertNew(ctx, w, part, ofKeys); !errors.Is(err, errInUse) {
			return got, err
		}
	}
	err := w.write(ctx, func() *step {
		got = newInserted()
		return p.addStatement(p.share(part), "push", part, ofKeys, got.scan, false)
	})
	if err != nil {
		return nil, err
	}
	p.s.db.clock.hear(got.micros)
	return got, nil
}

// chosen reports whether the caller has chosen the ID of a message.
func (p *pushing) chosen(i int) bool { return p.ms[i].ID != "" }

// insertNew is insert for messages whose IDs the store has made. It returns errInUse, and has
// stored nothing, if one of the IDs is in use all the same.
func (p *pushing) insertNew(ctx context.Context, w transactor, part []int, ofKeys bool) (got *inserted, err error) {
	var number int // of the messages that the statement has stored
	err = w.write(ctx, func() *step {
		got, number = newInserted(), 0
		return p.addStatement(p.share(part), "push_new", part, ofKeys, func(rows scanner) error { return got.scanTopic(rows, &number) }, false)
	})
	if err != nil {
		return nil, err
	}
	p.s.db.clock.hear(got.micros)
	for _, i := range part {
		topic := p.ms[i].Topic
		if paused, there := got.paused[topic]; !there || paused || got.tells[topic] || got.keyed[topic] && !ofKeys || p.ms[i].Key != "" && !got.keyed[topic] {
			continue
		}
		if due, err := storekit.DueAt(time.UnixMicro(got.micros), p.ms[i].Due, p.ms[i].Delay); err == nil {
			got.due[stored{got.numbers[topic], p.out[i].ID}] = due.UnixMilli()
		}
	}
	if len(got.due) != number {
		return nil, fmt.Errorf("the server has stored %d messages of a push and not %d: %w", number, len(got.due), punctual.ErrIndeterminate)
	}
	return got, nil
}

// scanTopic reads one row of the answer of push_new.sql, which is about a topic.
func (g *inserted) scanTopic(rows scanner, number *int) error {
	var topic int32
	var name string
	var paused, tells, keyed bool
	if err := rows.Scan(&g.micros, &topic, &name, &paused, &tells, &keyed, number); err != nil {
		return err
	}
	g.numbers[name], g.paused[name], g.tells[name], g.keyed[name] = topic, paused, tells, keyed
	return nil
}

func newInserted() *inserted {
	return &inserted{numbers: make(map[string]int32), keyed: make(map[string]bool), paused: make(map[string]bool), tells: make(map[string]bool), due: make(map[stored]int64)}
}

// insertAndTell is insert for messages of topics that tell of pushes, in one transaction with the
// events. It returns the messages that it has not stored, because their IDs are in use, or because
// their topic was deleted or paused since.
func (p *pushing) insertAndTell(ctx context.Context, w transactor, part []int) (rest []int, err error) {
	if len(part) == 0 {
		return nil, nil
	}
	var events []toldEvent
	err = w.transact(ctx, func(ctx context.Context, to stepper) error {
		rest = nil
		got, l := newInserted(), p.s.db.newLocked()
		x := p.addStatement(p.share(part), "push", part, p.keyed(part), got.scan, true)
		if err := to.send(ctx, x.add("clock_and_settings", p.s.db.writing(p.topics(part)), l.readSettings)); err != nil {
			return err
		}
		p.s.db.clock.hear(got.micros)
		var new []int
		for _, i := range part {
			if p.took(i, got, punctual.PushStored) {
				new = append(new, i)
			} else {
				rest = append(rest, i)
			}
		}
		events, err = p.tellOf(ctx, w, to, new, l, got.micros/1000)
		return err
	})
	if err == nil {
		p.events = append(p.events, events...)
	}
	return rest, err
}

// tellOf stores the events of messages that were stored at now, in ms, as far as their topics tell
// of pushes. It returns the events.
func (p *pushing) tellOf(ctx context.Context, w transactor, to stepper, part []int, l *locked, now int64) ([]toldEvent, error) {
	c := p.s.db.changes()
	for _, i := range part {
		r := &p.out[i]
		if set := l.settings[r.Topic]; r.Err == nil && set != nil {
			c.tellOfPush(p.name(i), &p.ms[i], storekit.Millis(r.Due), set, now)
		}
	}
	return c.events, w.tell(ctx, to, c)
}

// took takes in what a statement that stores messages says of one, and reports whether that is the
// answer: the message was stored, with the status given, or would be due too late.
func (p *pushing) took(i int, got *inserted, status punctual.PushStatus) bool {
	r := &p.out[i]
	if due, ok := got.due[stored{got.numbers[r.Topic], r.ID}]; ok {
		p.reset(i, nil)
		r.Status, r.Due = status, storekit.FromMillis(due)
		return true
	}
	if _, there := got.paused[r.Topic]; there {
		if _, err := storekit.DueAt(time.UnixMicro(got.micros), p.ms[i].Due, p.ms[i].Delay); err != nil {
			p.reset(i, err)
			return true
		}
	}
	return false
}

// keyed reports whether the messages may be of topics with keys, so that they are stored by the
// statements for these.
func (p *pushing) keyed(part []int) bool {
	return slices.ContainsFunc(part, func(i int) bool { return p.ms[i].Key != "" || p.s.db.keyed.has(p.ms[i].Topic) })
}

// topicsOfKeys returns the topics of those of the messages that have keys.
func (p *pushing) topicsOfKeys(part []int) []string {
	return p.topics(slices.DeleteFunc(slices.Clone(part), func(i int) bool { return p.ms[i].Key == "" }))
}

// addStatement adds push.sql, push_new.sql or replace.sql to a step, or, with ofKeys, what takes
// its place for topics with keys. more are the arguments that follow those of args.
func (p *pushing) addStatement(x *step, statement string, part []int, ofKeys bool, each func(scanner) error, more ...any) *step {
	args := append(p.args(part), more...)
	if ofKeys {
		keys := make([]*string, len(part))
		for at, i := range part {
			if p.ms[i].Key != "" {
				keys[at] = &p.ms[i].Key
			}
		}
		statement, args = statement+"_keyed", append(args, keys)
	}
	return x.add(statement, args, each)
}

// args returns the arguments that push.sql, push_new.sql and replace.sql share: all of replace.sql,
// and all but the last one of the others.
func (p *pushing) args(part []int) []any {
	n := len(part)
	topics, ids, dues, delays := make([]string, n), make([]string, n), make([]*int64, n), make([]*int64, n)
	attempts, drops, expires := make([]int32, n), make([]bool, n), make([]*int64, n)
	headers, bodies, attributes, remember := make([][]byte, n), make([][]byte, n), make([][]byte, n), make([]*int64, n)
	for at, i := range part {
		m := &p.ms[i]
		topics[at], ids[at] = m.Topic, p.out[i].ID
		named := m.Due
		if named.IsZero() {
			delay := storekit.CeilDuration(m.Delay)
			delays[at] = &delay
		}
		if p.dues != nil {
			named = p.dues[i]
		}
		if !named.IsZero() {
			due := storekit.CeilMillis(named)
			dues[at] = &due
		}
		if m.ExpireAfter > 0 {
			after := storekit.CeilDuration(m.ExpireAfter)
			expires[at] = &after
		}
		if m.Remember > 0 {
			keep := storekit.CeilDuration(m.Remember)
			remember[at] = &keep
		}
		attempts[at], drops[at] = int32(m.MaxAttempts), m.DropExpired
		headers[at], attributes[at] = encodeHeaders(m.Headers), storekit.NewAttributes(m).Block()
		if len(m.Body) > 0 {
			bodies[at] = m.Body
		}
	}
	return p.s.db.writing(topics, ids, dues, delays, attempts, drops, expires, headers, bodies, remember, attributes)
}

// create makes those of the topics that do not exist, and the topics that they are companions of.
// Those that keyed names have keys, and so have companions of a topic that has. It waits for
// another transaction that makes one of them, for lockWait at most unless that is 0. None of them
// is deleted meanwhile, so no companion stays without its topic.
func (t *topicSettings) create(ctx context.Context, w transactor, topics, keyed []string, lockWait time.Duration) error {
	topics = withParents(topics)
	err := w.create(ctx, func() *step {
		return t.db.addCreate(t.db.shareTopics(topics, lockWait), topics, keyed)
	})
	if err == nil && slices.ContainsFunc(topics, isCompanion) {
		t.waits.tellOfCompanions()
	}
	return err
}

// addCreate adds the statement that makes topics, with keys those that keyed names, and the topics
// of which it names a companion.
func (db *database) addCreate(x *step, topics, keyed []string) *step {
	return x.add("topic_create", append(append([]any{topics}, db.defaults...), withParents(keyed)), nil)
}

func isCompanion(name string) bool {
	_, companion := storekit.Companion(name)
	return companion != ""
}

// withParents adds to topics the topics that they are companions of.
func withParents(topics []string) []string {
	all := make(map[string]bool, len(topics))
	for _, t := range topics {
		parent, _ := storekit.Companion(t)
		all[t], all[parent] = true, true
	}
	return slices.Sorted(maps.Keys(all))
}

// pushInUse pushes messages whose IDs were in use a moment ago, or have to be because of an IfDue.
// It locks whatever has the IDs. It returns the messages whose ID has become free, or whose topic
// was deleted, meanwhile; those with an IfDue it refuses instead. The caller inserts the returned
// ones outside this transaction, unless that is the caller's of PushTx, because an insert may wait
// for other transactions, which may want a row that this transaction holds.
func (p *pushing) pushInUse(ctx context.Context, w transactor, part []int) (gone []int, err error) {
	if len(part) == 0 {
		return nil, nil
	}
	var events []toldEvent
	err = w.transact(ctx, func(ctx context.Context, to stepper) error {
		gone, events = nil, nil
		l, err := p.s.db.lockNames(ctx, to, p.share(part), part, p.name)
		if err == nil && p.prove != nil {
			_, conditional := p.byCondition(part)
			err = p.prove(ctx, l, namesOfAll(conditional, p.name))
		}
		if err != nil {
			return err
		}
		var replacing []int
		absent := false // a message is refused because none has its ID
		for _, i := range part {
			set := l.settings[p.ms[i].Topic]
			switch free := l.rows[p.name(i)] == nil; {
			case set != nil && set.PushPaused:
				p.reset(i, storekit.PausedError(p.ms[i].Topic))
			case storekit.CheckKeyed(&p.ms[i], set) != nil:
				p.reset(i, storekit.CheckKeyed(&p.ms[i], set))
			case free && !p.hasIfDue(i):
				gone = append(gone, i)
			case p.decide(i, l):
				replacing = append(replacing, i)
			default:
				absent = absent || free
			}
		}
		got, x := newInserted(), p.s.db.step()
		if len(replacing) > 0 {
			keyed := l.keyed(namesOfAll(replacing, p.name))
			p.s.db.addKeyNote(x, keyed)
			p.addStatement(x, "replace", replacing, len(keyed) > 0, got.scan)
		}
		if absent && p.prove == nil {
			x.add("durable", p.s.db.writing(), nil)
		}
		if x.Len() == 0 {
			return nil
		}
		if err := to.send(ctx, x); err != nil {
			return err
		}
		for _, i := range replacing {
			p.took(i, got, p.out[i].Status)
		}
		events, err = p.tellOf(ctx, w, to, replacing, l, got.micros/1000)
		return err
	})
	if err == nil {
		p.events = append(p.events, events...)
	}
	return gone, err
}

// decide answers for a message by what has its ID, and reports whether it is to be stored.
func (p *pushing) decide(i int, l *locked) bool {
	m, old := &p.ms[i], l.rows[p.name(i)]
	return lifecycle.Push(m, old.holder(l.now, l.settings[m.Topic]), &p.out[i])
}
