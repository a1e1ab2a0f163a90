package importer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

const (
	// rabbitStaging and the name of a queue are the name of the queue in which its taken messages
	// are staged.
	rabbitStaging = "punctual-import."
	// A staged copy has these headers: the member and the record of the entry, the properties and
	// headers of the message, and when it was read. They are not the copy's own, because RabbitMQ
	// acts on some, such as expiration and CC, and from 4.0 on drops an x-death of a publisher.
	rabbitMember, rabbitRecord, rabbitProperties, rabbitHeaders, rabbitRead = "member", "record", "properties", "headers", "read"

	// peeked is how many messages a survey takes out of a queue and gives back.
	peeked = 100
	// stageTries bounds how often copies are published that did not arrive in staging, stageWait
	// how long each try waits for them.
	stageTries = 3
	stageWait  = batchTime / stageTries
	// dialWait bounds the handshake with the broker.
	dialWait = 10 * time.Second
)

// Properties of a message, as AMQP names them. What is not empty is in a header with rabbitmq- in
// front, except the ID and the expiration.
const (
	rabbitPrefix     = "rabbitmq-"
	rabbitQueueName  = rabbitPrefix + "queue"
	rabbitDeathCount = rabbitPrefix + "death-count" // of all entries of x-death
)

// rabbitOrigin is the origin for messages in RabbitMQ.
//
// One channel does all work. It is in transaction mode, so that take publishes the copies into
// staging and acks the originals in one commit. A run holds what is staged, as the exclusive
// consumer of the staging queue, until finish acks it. So no other run works on the same queue, and
// what the run held is in staging again as soon as its connection has ended.
type rabbitOrigin struct {
	conn    *amqp.Connection
	ch      *amqp.Channel
	returns chan amqp.Return // copies that no queue took
	blocked chan amqp.Blocking
	short   string // what the broker is short of, so that it takes no messages
	opt     *Options
	queues  map[string]*rabbitQueue
}

// rabbitQueue is what a run knows and holds of a queue.
type rabbitQueue struct {
	// classic tells that the queue is certainly not a quorum queue, which may drop a message that
	// is given back too often.
	classic bool
	// staging has what is staged; it is nil in a survey, and closed when the staging queue is gone.
	staging <-chan amqp.Delivery
	// kept are the staged messages that the run holds, by member.
	kept map[string]amqp.Delivery
	// held are the tags of the messages that this walk has got and not taken. next counts those
	// among them that are the same, by what their members begin with.
	held map[uint64]bool
	next map[string]int
}

// rabbitMessage is a message as it was in its queue.
type rabbitMessage struct {
	tag        uint64
	base       string            // what its member begins with
	properties map[string]string // those that are not empty, in text
	headers    amqp.Table
	body       []byte
	at         int64 // when it was read, in Unix ms
}

// dialRabbit returns an origin, whose connection the caller closes. Errors do not contain the URL,
// because it may have a password.
func dialRabbit(url string, o *Options) (*rabbitOrigin, error) {
	if _, err := amqp.ParseURI(url); err != nil {
		return nil, storekit.Invalidf("the source's URL cannot be read: use amqp://user:password@host:port/vhost or amqps://..., with special characters of user, password and vhost escaped with %%")
	}
	conn, err := amqp.DialConfig(url, amqp.Config{Dial: amqp.DefaultDial(dialWait), Properties: amqp.Table{"connection_name": "punctual import", "product": "punctual"}})
	if err != nil {
		return nil, fault(err, "connect to the source")
	}
	r := &rabbitOrigin{conn: conn, opt: o, queues: map[string]*rabbitQueue{}, blocked: conn.NotifyBlocked(make(chan amqp.Blocking, 8))}
	if r.ch, err = conn.Channel(); err == nil {
		err = r.ch.Tx()
	}
	if err != nil {
		return nil, errors.Join(fault(err, "open a channel of the source"), conn.Close())
	}
	r.returns = r.ch.NotifyReturn(make(chan amqp.Return, 2*maxPage))
	return r, nil
}

// close ends the connection, unless it has ended.
func (o *rabbitOrigin) close() error {
	if err := o.conn.Close(); !errors.Is(err, amqp.ErrClosed) {
		return err
	}
	return nil
}

// ask does what waits for the broker. A broker that is out of memory or disk space reads nothing
// more from a connection that publishes, so after batchTime ask ends the connection.
func (o *rabbitOrigin) ask(what, queue string, f func() error) error {
	timer := time.AfterFunc(batchTime, func() { _ = o.conn.CloseDeadline(time.Now()) }) // f returns the error
	defer timer.Stop()
	err := f()
	for len(o.blocked) > 0 {
		o.short = (<-o.blocked).Reason // empty when it goes on
	}
	if err == nil {
		return nil
	}
	if o.short != "" {
		what = "the source takes no messages (" + o.short + "): " + what
	}
	return fault(err, "%s %s", what, queue)
}

// aside runs f on a channel of its own, because RabbitMQ ends the channel of a request that it
// refuses.
func (o *rabbitOrigin) aside(what, queue string, f func(*amqp.Channel) error) error {
	return o.ask(what, queue, func() error {
		ch, err := o.conn.Channel()
		if err != nil {
			return err
		}
		if err := f(ch); err != nil {
			return err // which has ended the channel
		}
		return ch.Close()
	})
}

// now returns the time of this machine: RabbitMQ tells nobody its own.
func (o *rabbitOrigin) now(context.Context) (time.Time, error) { return time.Now(), nil }

// names returns none, because AMQP cannot list queues: the options name them.
func (o *rabbitOrigin) names(context.Context) ([]string, error) { return nil, nil }

func (o *rabbitOrigin) guessUnit(context.Context, *Report) error { return nil }

// expect refuses a queue that is not there, belongs to a connection, or is a stream. It finds out
// how long messages wait in the queue.
func (o *rabbitOrigin) expect(_ context.Context, s *source) error {
	if strings.HasPrefix(s.name, rabbitStaging) {
		return storekit.Invalidf("queue %s has what an import has staged: import from %s", s.name, strings.TrimPrefix(s.name, rabbitStaging))
	}
	if _, err := o.ready(s.name); err != nil {
		return err
	}
	args, err := o.arguments(s.name)
	if err != nil {
		return err
	}
	typ := cmp.Or(args["x-queue-type"], "unknown")
	if typ == "stream" {
		return storekit.Invalidf("%s is a stream, from which nothing can be taken: have a consumer of your own push what it reads", s.name)
	}
	o.queues[s.name] = &rabbitQueue{classic: typ == "classic", kept: map[string]amqp.Delivery{}, held: map[uint64]bool{}, next: map[string]int{}}
	s.ttl = o.opt.TTL
	if text := args["x-message-ttl"]; text != "" {
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("the x-message-ttl of queue %s is %q: %w", s.name, text, err)
		}
		if s.ttl != nil && s.ttl.Milliseconds() != ms {
			return storekit.Invalidf("messages of queue %s wait for %v (x-message-ttl), not for %v: leave --ttl out", s.name, time.Duration(ms)*time.Millisecond, *s.ttl)
		}
		ttl := time.Duration(ms) * time.Millisecond
		s.ttl = &ttl
	}
	return nil
}

// inequivalent is how RabbitMQ refuses to declare a queue that is there and is another one than
// declared: it names one difference.
var inequivalent = regexp.MustCompile(`inequivalent arg '([^']+)' .* current is (?:the value )?'([^']*)'(?: of type '(\w+)')?`)

// arguments returns the arguments with which a queue was declared, or nothing if this user may not
// know. AMQP does not show them. But it refuses to declare the queue with others, and names the
// first difference, so arguments declares it again with that until nothing differs.
func (o *rabbitOrigin) arguments(queue string) (map[string]string, error) {
	durable, autoDelete := true, false
	args, texts := amqp.Table{"x-queue-type": "classic"}, map[string]string{"x-queue-type": "classic"}
	for range 20 {
		var refused *amqp.Error
		err := o.aside("look at queue", queue, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(queue, durable, autoDelete, false, false, args)
			return err
		})
		if err == nil {
			return texts, nil
		}
		if !errors.As(err, &refused) || refused.Code != amqp.PreconditionFailed && refused.Code != amqp.AccessRefused {
			return nil, err
		}
		differs := inequivalent.FindStringSubmatch(refused.Reason)
		if differs == nil {
			break
		}
		switch name, value := differs[1], differs[2]; {
		case name == "durable":
			durable = value == "true"
		case name == "auto_delete":
			autoDelete = value == "true"
		case differs[3] == "bool":
			args[name] = value == "true"
		default:
			args[name], texts[name] = value, value
			if n, err := strconv.ParseInt(value, 10, 64); err == nil && differs[3] != "longstr" {
				args[name] = n
			}
		}
	}
	return nil, nil
}

// ready returns how many messages of a queue are in nobody's hands.
func (o *rabbitOrigin) ready(queue string) (n int64, err error) {
	err = o.aside("look at queue", queue, func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		n = int64(q.Messages)
		return err
	})
	return n, err
}

func (o *rabbitOrigin) count(_ context.Context, s *source, members, staged *int64) (err error) {
	if *members, err = o.ready(s.name); err != nil {
		return err
	}
	var refused *amqp.Error
	if *staged, err = o.ready(rabbitStaging + s.name); errors.As(err, &refused) && refused.Code == amqp.NotFound {
		err = nil
	}
	*staged += int64(len(o.queues[s.name].kept)) // the broker does not count what somebody holds
	return err
}

func (o *rabbitOrigin) note(_ context.Context, s *source, r *SetReport) error {
	switch q := o.queues[s.name]; {
	case !q.classic && r.Found > 0:
		r.Notes = append(r.Notes, "not looked into: it is a quorum queue, or this user may not declare it to find that out; a quorum queue counts each look as a delivery, and may drop a message after some")
	case r.Found > peeked:
		r.Notes = append(r.Notes, fmt.Sprintf("looked at the first %d of %d", peeked, r.Found))
	}
	return o.aside("look at queue", s.name, func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(s.name, true, false, false, false, nil)
		if err == nil && q.Consumers > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("it has consumers: %d; where messages do not wait for a TTL, their expiration is no delay", q.Consumers))
		}
		return err
	})
}

func (o *rabbitOrigin) walks(*source) []walk { return []walk{o.walk} }

// walk gets messages as far as there were some at its beginning. Those that stay are held until its
// end, because the broker would hand them out again at once, and then given back.
func (o *rabbitOrigin) walk(ctx context.Context, s *source, visit visitor) (err error) {
	q := o.queues[s.name]
	if q.staging == nil && !q.classic {
		return nil
	}
	left, err := o.ready(s.name)
	if q.staging == nil { // a survey
		left = min(left, peeked)
	} else {
		left = max(left, maxPage) // the count of a quorum queue may be a moment old
	}
	stays := 0
	defer func() {
		if giving := o.giveUp(s.name, q, stays); giving != nil && !errors.Is(giving, amqp.ErrClosed) { // which gives back as well
			err = errors.Join(err, giving)
		}
	}()
	var p pager
	for left > 0 && err == nil && ctx.Err() == nil {
		n := min(left, p.next())
		var es []*entry
		if es, err = o.get(s, q, n); err != nil || len(es) == 0 {
			return err
		}
		var stay []bool
		stay, err = visit(ctx, es)
		for _, is := range stay {
			if is {
				stays++
			}
		}
		p.saw(es)
		left -= n
	}
	return cmp.Or(err, ctx.Err())
}

// giveUp gives back what the walk has got and not taken, of which some stay for good.
func (o *rabbitOrigin) giveUp(queue string, q *rabbitQueue, stay int) error {
	if len(q.held) == 0 {
		return nil
	}
	if stay > 0 && !q.classic && o.opt.Follow {
		return fmt.Errorf("%d messages of queue %s cannot be imported: --follow ends, because a quorum queue counts each look at them as a delivery, and may drop them after some", stay, queue)
	}
	return o.ask("give back to queue", queue, func() error {
		for _, tag := range slices.Sorted(maps.Keys(q.held)) {
			if err := o.ch.Nack(tag, false, true); err != nil {
				return err
			}
		}
		clear(q.held)
		clear(q.next)
		return o.ch.TxCommit()
	})
}

// get gets up to n messages.
func (o *rabbitOrigin) get(s *source, q *rabbitQueue, n int64) (es []*entry, err error) {
	err = o.ask("read queue", s.name, func() error {
		for range n {
			d, ok, err := o.ch.Get(s.name, false)
			if err != nil || !ok {
				return err
			}
			q.held[d.DeliveryTag] = true
			e := &entry{got: newRabbitMessage(&d)}
			e.got.base = strings.TrimLeft(d.MessageId+"~"+e.got.hash(s.name), "~")
			if e.member = e.got.base; q.next[e.member] > 0 {
				e.member += "#" + strconv.Itoa(q.next[e.got.base])
			}
			q.next[e.got.base]++
			es = append(es, e)
		}
		return nil
	})
	return es, err
}

func newRabbitMessage(d *amqp.Delivery) *rabbitMessage {
	g := &rabbitMessage{tag: d.DeliveryTag, headers: d.Headers, body: d.Body, at: time.Now().UnixMilli(), properties: map[string]string{
		"exchange": d.Exchange, "routing-key": d.RoutingKey, "content-type": d.ContentType, "content-encoding": d.ContentEncoding, "correlation-id": d.CorrelationId,
		"reply-to": d.ReplyTo, "expiration": d.Expiration, "message-id": d.MessageId, "type": d.Type, "user-id": d.UserId, "app-id": d.AppId,
	}}
	if d.Priority > 0 {
		g.properties["priority"] = strconv.Itoa(int(d.Priority))
	}
	if !d.Timestamp.IsZero() {
		g.properties["timestamp"] = strconv.FormatInt(d.Timestamp.Unix(), 10)
	}
	maps.DeleteFunc(g.properties, func(_, value string) bool { return value == "" })
	return g
}

// hash returns an ID made from the message. Other messages may be the same.
func (g *rabbitMessage) hash(queue string) string {
	return makeID(RabbitMQ, queue, g.properties["message-id"], g.properties["routing-key"], g.properties["timestamp"], string(g.body))
}

// open makes the run the consumer of the staging queue, unless it is.
func (o *rabbitOrigin) open(s *source, q *rabbitQueue) (ready int, err error) {
	for q.staging != nil {
		select {
		case d, ok := <-q.staging:
			if ok {
				q.keep(d)
				continue
			}
			o.opt.Logger.Warn("the staging queue was deleted: it is made again", "queue", s.name)
			q.staging = nil
			clear(q.kept) // the queue has taken along what was in it
		default:
			return 0, nil
		}
	}
	staging := rabbitStaging + s.name
	err = o.ask("make the staging queue", staging, func() error {
		// Of copies over the length that a policy sets the oldest leave, and are missed; a refused
		// publication would end the commit after its acks.
		made, err := o.ch.QueueDeclare(staging, true, false, false, false, amqp.Table{"x-queue-type": "classic", "x-overflow": "drop-head"})
		if err != nil {
			return err
		}
		ready = made.Messages
		q.staging, err = o.ch.Consume(staging, "", false, true, false, false, nil)
		return err
	})
	var refused *amqp.Error
	if errors.As(err, &refused) && refused.Code == amqp.AccessRefused && strings.Contains(refused.Reason, "exclusive") {
		err = fmt.Errorf("another import works on queue %s: %w", s.name, err)
	}
	return ready, err
}

func (q *rabbitQueue) keep(d amqp.Delivery) {
	member, _ := d.Headers[rabbitMember].(string)
	q.kept[member] = d
}

// recordOf returns the record of a staged copy, or "" for what else is in staging.
func (q *rabbitQueue) recordOf(member string) string {
	record, _ := q.kept[member].Headers[rabbitRecord].(string)
	return record
}

// await keeps what arrives in staging until enough holds, staging is gone or it has taken too long.
func (q *rabbitQueue) await(enough func() bool) {
	timer := time.NewTimer(stageWait)
	defer timer.Stop()
	for !enough() {
		select {
		case d, ok := <-q.staging:
			if !ok {
				return
			}
			q.keep(d)
		case <-timer.C:
			return
		}
	}
}

func (o *rabbitOrigin) staged(_ context.Context, s *source, visit func(pairs []string) error) error {
	q := o.queues[s.name]
	ready, err := o.open(s, q)
	if err != nil {
		return err
	}
	q.await(func() bool { return len(q.kept) >= ready })
	members := slices.Sorted(maps.Keys(q.kept))
	for page := range slices.Chunk(members, maxPage) {
		var pairs []string
		for _, m := range page {
			pairs = append(pairs, m, q.recordOf(m))
		}
		if err := visit(pairs); err != nil {
			return err
		}
	}
	return nil
}

func (o *rabbitOrigin) readKept(_ context.Context, s *source, es []*entry) error {
	for _, e := range es {
		d := o.queues[s.name].kept[e.member]
		e.got = &rabbitMessage{body: d.Body, properties: map[string]string{}}
		e.got.at, _ = d.Headers[rabbitRead].(int64)
		e.got.headers, _ = d.Headers[rabbitHeaders].(amqp.Table)
		properties, _ := d.Headers[rabbitProperties].(amqp.Table)
		for name, value := range properties {
			e.got.properties[name], _ = value.(string)
		}
	}
	return nil
}

// stage has copies with the records of entries in staging, and acks tags with the first of them.
// RabbitMQ acks also where no queue takes a copy: because staging was deleted just now, or a policy
// limits its length. So stage looks which copies have arrived, and publishes the others again.
func (o *rabbitOrigin) stage(s *source, es []*entry, tags []uint64) error {
	q := o.queues[s.name]
	arrived := func() bool {
		return !slices.ContainsFunc(es, func(e *entry) bool { return q.recordOf(e.member) != e.text })
	}
	for range stageTries {
		if _, err := o.open(s, q); err != nil {
			return err
		}
		err := o.ask("stage messages of queue", s.name, func() error {
			for _, e := range es {
				if q.recordOf(e.member) == e.text {
					continue
				}
				properties := amqp.Table{}
				for name, value := range e.got.properties {
					properties[name] = value
				}
				err := o.ch.Publish("", rabbitStaging+s.name, true, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: e.got.body, Headers: amqp.Table{
					rabbitMember: e.member, rabbitRecord: e.text, rabbitProperties: properties, rabbitHeaders: e.got.headers, rabbitRead: e.got.at,
				}})
				if err != nil {
					return err
				}
			}
			for _, tag := range tags {
				if err := o.ch.Ack(tag, false); err != nil {
					return err
				}
			}
			return o.ch.TxCommit()
		})
		if err != nil {
			return err
		}
		tags = nil
		returned := false
		for ; len(o.returns) > 0; returned = true {
			<-o.returns
		}
		q.await(func() bool { return !returned && arrived() }) // or until staging is known to be gone
		if arrived() {
			return nil
		}
	}
	return fmt.Errorf("stage messages of queue %s: some do not stay in the staging queue %s, and are lost: does a policy for all queues limit its length or the time of its messages?", s.name, rabbitStaging+s.name)
}

// take moves entries into staging. Nobody else can have them meanwhile, because this run holds
// them.
func (o *rabbitOrigin) take(_ context.Context, s *source, es []*entry) ([]int64, error) {
	q := o.queues[s.name]
	out := make([]int64, len(es))
	var taken []*entry
	var tags []uint64
	for i, e := range es {
		if _, there := q.kept[e.member]; there {
			out[i] = itemHeld
			continue
		}
		out[i] = itemDone
		taken, tags = append(taken, e), append(tags, e.got.tag)
	}
	if err := o.stage(s, taken, tags); err != nil || len(taken) == 0 {
		return out, err
	}
	for _, e := range taken {
		delete(q.held, e.got.tag)
		delete(q.next, e.got.base)
	}
	return out, nil
}

// adopt replaces the records of entries that get another ID. Otherwise the old ones serve as well,
// because nobody else can work on what this run holds.
func (o *rabbitOrigin) adopt(_ context.Context, s *source, es []*entry, old []string) ([]int64, error) {
	q := o.queues[s.name]
	out := make([]int64, len(es))
	var changed []*entry
	var tags []uint64
	for i, e := range es {
		out[i] = itemDone
		if before, err := parseStaged(e.member, old[i]); err == nil && before.record.ID == e.record.ID {
			continue
		}
		changed = append(changed, e)
		if d, there := q.kept[e.member]; there {
			tags = append(tags, d.DeliveryTag)
		}
	}
	if len(changed) == 0 {
		return out, nil
	}
	return out, o.stage(s, changed, tags)
}

func (o *rabbitOrigin) finish(_ context.Context, s *source, es []*entry) error {
	q := o.queues[s.name]
	if len(es) == 0 {
		return nil
	}
	return o.ask("finish what is staged of queue", s.name, func() error {
		for _, e := range es {
			if d, there := q.kept[e.member]; there {
				if err := o.ch.Ack(d.DeliveryTag, false); err != nil {
					return err
				}
			}
			delete(q.kept, e.member)
		}
		return o.ch.TxCommit()
	})
}

// putBack leaves all in staging: nobody can publish to one queue with another exchange and routing
// key, by which RabbitMQ dead-letters the message and consumers may know it.
func (o *rabbitOrigin) putBack(_ context.Context, _ *source, es []*entry) ([]int64, error) {
	return slices.Repeat([]int64{itemChanged}, len(es)), nil
}

// describeRabbit describes a queue as a source.
func (s *source) describeRabbit() {
	s.read, s.renames = s.readRabbit, true
	s.due = func(e *entry) (time.Time, *problem) {
		wait, p := s.wait(e.got)
		from, _ := e.got.waitsFrom()
		if ms := from + wait; p != nil || ms <= limits.MaxDue.UnixMilli() {
			return storekit.FromMillis(ms), p
		}
		return time.Time{}, problemf(BadScore, "it waits until after the year 9999")
	}
}

// waitsFrom returns from when on the message waits, in Unix ms. That is when it was published, by
// its timestamp. The timestamp is in seconds that were cut off, so the end of that second counts. A
// message that was dead-lettered waits anew since then. If the instant is not known, or lies in the
// future, the message waits from when it was read, so that it is never early.
func (g *rabbitMessage) waitsFrom() (ms int64, known bool) {
	seconds, err := strconv.ParseInt(g.properties["timestamp"], 10, 64)
	known = err == nil && g.headers["x-death"] == nil && seconds > plausible/1000 && seconds <= g.at/1000
	if !known {
		return g.at, false
	}
	return min((seconds+1)*1000, g.at), true
}

// wait returns for how many ms a message waits.
func (s *source) wait(g *rabbitMessage) (int64, *problem) {
	delay, p := g.millis("x-delay", g.headers["x-delay"])
	if p != nil || delay > 0 {
		return delay, p
	}
	if text := g.properties["expiration"]; text != "" {
		ms, p := g.millis("expiration", text)
		if s.ttl != nil && *s.ttl > 0 {
			ms = min(ms, s.ttl.Milliseconds())
		}
		return ms, p
	}
	if s.ttl != nil {
		return s.ttl.Milliseconds(), nil
	}
	if reason, _ := g.deaths(); delay < 0 || reason == "expired" {
		return 0, nil // it has waited: the delayed message exchange makes x-delay negative when it delivers
	}
	return 0, problemf(BadScore, "nothing says how long it waits: it has no x-delay and no expiration, and has not expired in another queue. Say with --ttl what a policy has it wait for, or --ttl 0s if it is due")
}

// millis reads a number of milliseconds, rounded up.
func (g *rabbitMessage) millis(name string, value any) (int64, *problem) {
	if value == nil {
		return 0, nil
	}
	text, _ := textOf(value)
	ms, err := strconv.ParseFloat(text, 64)
	if most := float64(limits.MaxDue.UnixMilli()); err != nil || !(ms >= -most && ms <= most) {
		return 0, problemf(BadScore, "its %s is %q, which is no plausible number of milliseconds", name, text)
	}
	return int64(math.Ceil(ms)), nil
}

// deaths returns why the message was dead-lettered last, and how often it was in all.
func (g *rabbitMessage) deaths() (last string, count int64) {
	list, _ := g.headers["x-death"].([]any)
	for i, death := range list {
		table, _ := death.(amqp.Table)
		if i == 0 {
			last, _ = table["reason"].(string)
		}
		n, _ := table["count"].(int64)
		count += n
	}
	return last, count
}

// readRabbit makes the message of an entry. Its topic is the routing key.
func (s *source) readRabbit(e *entry) (m punctual.NewMessage, p *problem) {
	g := e.got
	m.Topic, m.Body, m.Headers = g.properties["routing-key"], g.body, map[string]string{rabbitQueueName: s.name}
	for name, value := range g.properties {
		if name != "message-id" && name != "expiration" {
			m.Headers[rabbitPrefix+name] = value
		}
	}
	if _, n := g.deaths(); n > 0 {
		m.Headers[rabbitDeathCount] = strconv.FormatInt(n, 10)
	}
	for name, value := range g.headers {
		if _, taken := m.Headers[name]; taken {
			return m, problemf(BadLayout, "it has a header of its own named %q", name)
		}
		var ok bool
		if m.Headers[name], ok = textOf(value); !ok {
			return m, problemf(BadBody, "its header %q is not UTF-8", name)
		}
	}
	if own := g.properties["message-id"]; own != "" {
		m.ID = e.keep(own, g.hash(s.name))
	} else {
		m.ID = rabbitPrefix + storekit.NewID(time.Now())
	}
	wait, _ := s.wait(g) // whose problem due reports, unless the due time is decided
	if _, known := g.waitsFrom(); wait > 0 && !known {
		e.changes = append(e.changes, "a wait that begins now, because nothing says when it began: no timestamp, or dead-lettered before")
	}
	if delay, _ := g.millis("x-delay", g.headers["x-delay"]); delay > 0 && g.properties["expiration"] != "" {
		e.changes = append(e.changes, "an expiration beside x-delay, which is no deadline here")
	}
	if g.properties["priority"] != "" {
		e.changes = append(e.changes, "a priority, which has no effect here; the header "+rabbitPrefix+"priority has it")
	}
	return m, nil
}

// textOf returns the value of a header in text, and whether that is UTF-8. A table or a list is
// JSON.
func textOf(value any) (string, bool) {
	var text string
	switch v := value.(type) {
	case nil:
	case string:
		text = v
	case []byte:
		text = string(v)
	case time.Time:
		text = v.UTC().Format(time.RFC3339)
	case amqp.Table, []any:
		j, err := json.Marshal(v)
		return string(j), err == nil && !bytes.Contains(j, []byte(`\ufffd`)) // which json writes for what is not UTF-8
	default:
		text = fmt.Sprint(v)
	}
	return text, utf8.ValidString(text)
}
