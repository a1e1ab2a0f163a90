// Package importer moves the messages that another delayed queue holds in Redis, PostgreSQL, MySQL
// or RabbitMQ into a Punctual store. In Redis that is a plain sorted set, BeeDelayQueue, Redisson's
// delayed queue, asynq, BullMQ or Celery, in PostgreSQL River, and in both databases a table of a
// program's own. It is what "punctual import" runs. ReadSchedules, for "punctual schedule import",
// reads the recurring schedules of asynq, BullMQ and Quartz.
//
// A message is moved in three steps, and a run may be killed between any two of them:
//
//  1. take: one atomic step on the source's server removes the message from the other system and
//     puts it into staging, a hash, table or queue beside it. So no consumer of the other system
//     that takes a message in one step can have it as well. With Options.Leave the run keeps away
//     from messages that other consumers may be working on.
//  2. push: the message is stored under an ID that is made from the message itself. A second push
//     of the same message finds that ID in use and changes nothing, as long as the topic remembers
//     it. Where the topic may have forgotten the ID, Options.Uncertain decides.
//  3. finish: the message is removed from staging.
//
// A run begins with the messages that earlier runs left in staging. See docs/importing.md for the
// layouts of the other systems, and decision 13 for why it is done this way.
package importer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual/redisstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/redis/go-redis/v9"
)

// Kind names a system from which messages can be imported.
type Kind string

// The systems from which messages can be imported.
const (
	// ZSet is a plain sorted set in Redis: the score is the due time, the member the body.
	ZSet Kind = "zset"
	// BeeDelayQueue is github.com/godgoto/BeeDelayQueue.
	BeeDelayQueue Kind = "beedelayqueue"
	// Redisson is the delayed queue of Redisson, RDelayedQueue.
	Redisson Kind = "redisson"
	// Asynq is github.com/hibiken/asynq.
	Asynq Kind = "asynq"
	// Postgres is a program's own table in PostgreSQL.
	Postgres Kind = "postgres"
	// MySQL is a program's own table in MySQL or MariaDB.
	MySQL Kind = "mysql"
	// River is github.com/riverqueue/river.
	River Kind = "river"
	// BullMQ is github.com/taskforcesh/bullmq, and its predecessor Bull.
	BullMQ Kind = "bullmq"
	// Celery is github.com/celery/celery with Redis as its broker.
	Celery Kind = "celery"
	// Quartz has schedules alone: ReadSchedules.
	Quartz Kind = "quartz"
	// RabbitMQ is a queue of RabbitMQ in which messages wait for a time to live, or that have a
	// delay in the header x-delay.
	RabbitMQ Kind = "rabbitmq"
)

// DefaultDedupeWindow is the least duplicate window of the topics that messages are imported into,
// unless Options.DedupeWindow names another.
const DefaultDedupeWindow = 7 * 24 * time.Hour

// Decision says what to do with a staged message of which nobody can know whether an earlier run
// has stored it. A message whose record in staging cannot be read stays there, whatever the
// decision is.
type Decision string

// The decisions about such a message.
const (
	// LeaveUncertain leaves the message in staging and reports it.
	LeaveUncertain Decision = "leave"
	// PushUncertain stores the message, which may then be delivered a second time. If the message
	// cannot be read, it stays in staging.
	PushUncertain Decision = "push"
	// DropUncertain removes the message, which is lost if no earlier run stored it.
	DropUncertain Decision = "drop"
	// ReturnUncertain puts the message back into the other system, where it may be delivered again.
	ReturnUncertain Decision = "return"
)

// Options says what to import, and how. The zero value of a field is its default.
type Options struct {
	Kind Kind
	// Names are the sorted sets' keys (ZSet), topics (BeeDelayQueue), queues (Redisson, Asynq,
	// River, RabbitMQ) or the table (Postgres, MySQL) to take over. None means all that are
	// found; a ZSet and a table need one, and RabbitMQ at least one.
	Names []string
	// Parts selects among the sets that a system keeps for each name. For BeeDelayQueue they are
	// "order" and "ack", default "order". For Asynq they are "scheduled" and "retry", for River
	// "scheduled" and "retryable", default both. For BullMQ they are "delayed", "prioritized",
	// "wait", "paused" and "failed", default all but the last. For Celery they are the priorities
	// that have a list of their own, of "0" to "9", default "0", "3", "6" and "9".
	Parts []string
	// Topic is the topic that everything is imported into, if not empty.
	Topic string
	// Topics has the topics of some names. Unless Topic or ByType is set, each other name is
	// imported into the topic of the same name.
	Topics map[string]string
	// ByType makes the type of an Asynq task, the name of a BullMQ job or a Celery task, the kind
	// of a River job, or the routing key of a message of RabbitMQ its topic.
	ByType bool
	// TopicOf has, with ByType, the topics of types that are not to be the topic's name.
	TopicOf map[string]string
	// IDFrom is a JSON pointer (RFC 6901) to the field of a body that becomes the message's ID, for
	// systems in which a program does not name a message or not so. Empty keeps the ID that the
	// system has.
	IDFrom string
	// Columns are the columns of a program's table, Where a condition in SQL that is
	// true of its pending rows.
	Columns Columns
	Where   string
	// Mark has a row of a program's table updated when it is taken, and not deleted:
	// "column=value". A row that is marked so must not meet Where.
	Mark string
	// Prefix is that of BullMQ's keys, bull by default.
	Prefix string
	// Table is the name of River's table, river_job by default.
	Table string
	// TTL is how long messages of RabbitMQ that do not say so wait in their queue, 0 for those that
	// are due. It is needed where a policy sets it. Nil is the TTL with which the queue was
	// declared.
	TTL *time.Duration
	// Unit is the unit of the scores of a ZSet, or of a due column of numbers: time.Second or
	// time.Millisecond. With 0 Survey guesses it.
	Unit time.Duration
	// Codec is how Redisson encoded the bodies: CodecRaw by default.
	Codec Codec
	// Leave leaves messages to the consumers of the other system if they are due already or within
	// this time. 0 takes all messages.
	Leave time.Duration
	// Spread delivers messages whose due time has passed evenly over this time from now on.
	// 0 delivers them at once.
	Spread time.Duration
	// Follow makes the run go on until the context ends, the limit is reached or there is an error.
	// Half a second after each round it imports what was added meanwhile to the sets and tables
	// that it found at its beginning.
	Follow bool
	// Limit is the number of taken messages after which the run ends. 0 is no limit.
	Limit int64
	// DedupeWindow is the least duplicate window of the target topics; a shorter one is lengthened.
	// A run that was killed can be resumed within it. DefaultDedupeWindow by default.
	DedupeWindow time.Duration
	// Uncertain says what to do with uncertain messages. LeaveUncertain by default.
	Uncertain Decision
	// Target names the target store, so that a run does not push messages that were staged for
	// another store, unless Uncertain is PushUncertain.
	Target string
	// Rejected, if not nil, is called once with each message that cannot be imported and is left
	// where it is. Its error ends the run.
	Rejected func(Reject) error
	// Started, if not nil, is called with the number of messages before the first one is read.
	Started func(total int64)
	// Progress, if not nil, is called from time to time with the number of messages that were read
	// or moved.
	Progress func(done int64)
	// Logger gets what is worth knowing beside the report; nil discards it.
	Logger *slog.Logger
}

// Importer takes messages over. One goroutine may call Survey or Move, once.
type Importer struct {
	from origin
	opt  *Options
	run  string // names this run in the records of staging
	seen map[string]bool
	done int64
}

// Open returns an importer from the server that a URL names, as redisstore.Connect takes it,
// postgres://... or amqp://..., or an ErrInvalid that says which option is wrong. Errors do not
// contain the password. Unless there is an error, the caller calls hangUp when it is done.
func Open(ctx context.Context, url string, o Options) (im *Importer, hangUp func() error, err error) {
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	switch o.Kind.Scheme() {
	case "mysql":
		db, zone, err := openMySQL(url)
		if err != nil {
			return nil, nil, err
		}
		return newImporter(&mysqlOrigin{db: db, zone: zone, opt: &o}, &o), db.Close, nil
	case "postgres":
		conn, err := dialPostgres(ctx, url)
		if err != nil {
			return nil, nil, err
		}
		return newImporter(&pgOrigin{conn: conn, opt: &o}, &o), func() error { return conn.Close(context.WithoutCancel(ctx)) }, nil
	case "amqp":
		from, err := dialRabbit(url, &o)
		if err != nil {
			return nil, nil, err
		}
		return newImporter(from, &o), from.close, nil
	}
	client, err := redisstore.Connect(url)
	if err != nil {
		return nil, nil, fmt.Errorf("the source: %w", err)
	}
	if _, cluster := client.(*redis.ClusterClient); cluster && o.Kind == BeeDelayQueue {
		return nil, nil, errors.Join(storekit.Invalidf("BeeDelayQueue does not run on Redis Cluster, and its lock would be on another node: name a single server"), client.Close())
	}
	return newImporter(&redisOrigin{client: client, opt: &o}, &o), client.Close, nil
}

// newImporter returns an importer with the options o, which were checked.
func newImporter(from origin, o *Options) *Importer {
	o.setDefaults()
	return &Importer{from: from, opt: o, run: storekit.NewID(time.Now()), seen: map[string]bool{}}
}

// Scheme is how the URLs of the servers begin on which a system keeps its messages: redis,
// postgres, mysql or amqp.
func (k Kind) Scheme() string {
	switch k {
	case Postgres, River, Quartz:
		return "postgres"
	case MySQL:
		return "mysql"
	case RabbitMQ:
		return "amqp"
	}
	return "redis"
}

// HasTypes reports whether each message of a system has a type, which Options.ByType makes its
// topic.
func (k Kind) HasTypes() bool {
	return k == Asynq || k == BullMQ || k == Celery || k == River || k == RabbitMQ
}

// NamesMessages reports whether programs name each message of a system, so that Options.IDFrom has
// no place.
func (k Kind) NamesMessages() bool { return k == Postgres || k == MySQL || k == BeeDelayQueue }

func (o *Options) setDefaults() {
	if o.DedupeWindow == 0 {
		o.DedupeWindow = DefaultDedupeWindow
	}
	if o.Uncertain == "" {
		o.Uncertain = LeaveUncertain
	}
	if o.Codec == "" {
		o.Codec = CodecRaw
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Rejected == nil {
		o.Rejected = func(Reject) error { return nil }
	}
	if o.Progress == nil {
		o.Progress = func(int64) {}
	}
	if o.Started == nil {
		o.Started = func(int64) {}
	}
	if o.Prefix == "" {
		o.Prefix = "bull"
	}
	if o.Table == "" {
		o.Table = riverTable
	}
	if len(o.Parts) == 0 {
		o.Parts = parts[o.Kind].standard
	}
}

// parts are the sets that a system keeps for each name.
var parts = map[Kind]struct{ all, standard []string }{
	ZSet:          {[]string{""}, []string{""}},
	Postgres:      {[]string{""}, []string{""}},
	RabbitMQ:      {[]string{""}, []string{""}},
	MySQL:         {[]string{""}, []string{""}},
	River:         {[]string{"scheduled", "retryable"}, []string{"scheduled", "retryable"}},
	Redisson:      {[]string{""}, []string{""}},
	BeeDelayQueue: {[]string{"order", "ack"}, []string{"order"}},
	Asynq:         {[]string{"scheduled", "retry"}, []string{"scheduled", "retry"}},
	BullMQ:        {[]string{"delayed", "prioritized", "wait", "paused", "failed"}, []string{"delayed", "prioritized", "wait", "paused"}},
	Celery:        {[]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, []string{"0", "3", "6", "9"}},
}

func (o *Options) check() error {
	known, ok := parts[o.Kind]
	if !ok {
		return storekit.Invalidf("kind %q: use zset, beedelayqueue, redisson, asynq, bullmq, celery, postgres, mysql, river or rabbitmq", o.Kind)
	}
	for _, p := range o.Parts {
		if !slices.Contains(known.all, p) {
			return storekit.Invalidf("%s has no part %q: use %s", o.Kind, p, strings.Join(known.all, " or "))
		}
	}
	if o.Kind == ZSet && (len(o.Names) != 1 || o.Topic == "") {
		return storekit.Invalidf("name the sorted set's key, and a topic for its messages (--topic)")
	}
	if (o.Kind == Postgres || o.Kind == MySQL) && (len(o.Names) != 1 || o.Topic == "" || len(o.Columns.ID) == 0 || o.Columns.Due == "" || o.Columns.Body == "") {
		return storekit.Invalidf("name the table, its columns for ID, due time and body (--id, --due, --body), and a topic for its messages (--topic)")
	}
	if o.Kind == RabbitMQ && (len(o.Names) == 0 || len(slices.Compact(slices.Sorted(slices.Values(o.Names)))) < len(o.Names)) {
		return storekit.Invalidf("name the queues, each once: RabbitMQ does not list them to its clients")
	}
	if o.Kind == RabbitMQ && o.Leave > 0 {
		return storekit.Invalidf("RabbitMQ shows messages only to whoever takes them, so that none can be left to old consumers (--leave): import while those do not run, or leave the queue to them")
	}
	if o.Kind == RabbitMQ && o.Uncertain == ReturnUncertain {
		return storekit.Invalidf("nothing can go back into a queue of RabbitMQ as it was: decide with --uncertain push or drop")
	}
	if o.Mark != "" && (o.Where == "" || !strings.Contains(o.Mark, "=")) {
		return storekit.Invalidf("mark %q: write it like state=moved, with a condition that such rows do not meet (--where)", o.Mark)
	}
	if !slices.Contains([]time.Duration{0, time.Second, time.Millisecond}, o.Unit) {
		return storekit.Invalidf("unit %v: scores count seconds or milliseconds", o.Unit)
	}
	if !slices.Contains([]Codec{"", CodecRaw, CodecString, CodecJSON, CodecJSONText}, o.Codec) {
		return storekit.Invalidf("codec %q: use raw, string, json or json-text", o.Codec)
	}
	if !slices.Contains([]Decision{"", LeaveUncertain, PushUncertain, DropUncertain, ReturnUncertain}, o.Uncertain) {
		return storekit.Invalidf("uncertain %q: use leave, push, drop or return", o.Uncertain)
	}
	if o.Leave < 0 || o.Spread < 0 || o.Limit < 0 || o.DedupeWindow < 0 {
		return storekit.Invalidf("times and limits must not be negative")
	}
	return o.checkTopics()
}

func (o *Options) checkTopics() error {
	if o.Topic != "" && (o.ByType || len(o.Topics) > 0) || o.ByType && len(o.Topics) > 0 {
		return storekit.Invalidf("say where the messages go in one way: one topic for all, topics by name, or by type")
	}
	if o.ByType && !o.Kind.HasTypes() {
		return storekit.Invalidf("only the tasks of asynq and Celery, the jobs of BullMQ and River and the routing keys of RabbitMQ have types")
	}
	if len(o.TopicOf) > 0 && !o.ByType {
		return storekit.Invalidf("topics for types (--topic-of) go with --by-type")
	}
	if o.IDFrom != "" && (!strings.HasPrefix(o.IDFrom, "/") || o.Kind.NamesMessages()) {
		return storekit.Invalidf("ID from %q: use a JSON pointer such as /order/no, with a kind that does not name its messages itself", o.IDFrom)
	}
	topics := slices.AppendSeq(slices.AppendSeq([]string{o.Topic}, maps.Values(o.Topics)), maps.Values(o.TopicOf))
	for _, t := range topics {
		if t == "" {
			continue
		}
		if err := storekit.CheckTopic(t); err != nil {
			return err
		}
	}
	return nil
}

// topicOf returns the topic for the messages of a name.
func (o *Options) topicOf(name string) (string, error) {
	topic := name
	switch {
	case o.ByType:
		return "", nil
	case o.Topic != "":
		topic = o.Topic
	case o.Topics[name] != "":
		topic = o.Topics[name]
	}
	if err := storekit.CheckTopic(topic); err != nil {
		return "", fmt.Errorf("%s %q needs another name as a topic (--topic or --map): %w", o.Kind, name, err)
	}
	return topic, nil
}

// progress reports that n more messages were read or moved.
func (im *Importer) progress(n int64) {
	im.done += n
	im.opt.Progress(im.done)
}
