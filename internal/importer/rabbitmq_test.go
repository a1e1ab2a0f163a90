package importer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/punctualmq/punctual"
)

// rabbitRig is the connection of a program beside the import, and the origins of imports.
type rabbitRig struct {
	url     string
	conn    *amqp.Connection
	ch      *amqp.Channel // with confirms
	running *rabbitOrigin // of the last import
}

// broker returns the connection to a RabbitMQ in which the queue jobs is new and nothing is staged.
func (r *rig) broker() *rabbitRig {
	r.t.Helper()
	if r.amqp != nil {
		return r.amqp
	}
	r.amqp = &rabbitRig{url: rabbit.Server(r.t).URL()}
	var err error
	r.amqp.conn, err = amqp.Dial(r.amqp.url)
	r.must(err)
	r.t.Cleanup(func() {
		r.hangUp()
		if err := r.amqp.conn.Close(); err != nil {
			r.t.Error(err)
		}
	})
	r.amqp.ch, err = r.amqp.conn.Channel()
	r.must(err)
	r.must(r.amqp.ch.Confirm(false))
	for _, name := range []string{"jobs", rabbitStaging + "jobs"} {
		_, err := r.amqp.ch.QueueDelete(name, false, false, false)
		r.must(err)
	}
	r.queue("jobs", nil)
	return r.amqp
}

// queue makes a durable queue.
func (r *rig) queue(name string, args amqp.Table) {
	r.t.Helper()
	_, err := r.broker().ch.QueueDeclare(name, true, false, false, false, args)
	r.must(err)
}

// publish adds a message to a queue.
func (r *rig) publish(queue string, m amqp.Publishing) {
	r.t.Helper()
	m.DeliveryMode = amqp.Persistent
	done, err := r.broker().ch.PublishWithDeferredConfirm("", queue, true, false, m)
	r.must(err)
	if !done.Wait() {
		r.t.Fatal("the broker did not confirm a message")
	}
}

// hangUp ends the connection of the last import.
func (r *rig) hangUp() {
	r.t.Helper()
	if r.amqp != nil && r.amqp.running != nil {
		r.must(r.amqp.running.close())
	}
}

// newRabbit returns an importer with a connection of its own.
func (r *rig) newRabbit(o Options) (*Importer, error) {
	r.t.Helper()
	if err := o.check(); err != nil {
		return nil, err
	}
	from, err := dialRabbit(r.broker().url, &o)
	if err != nil {
		return nil, err
	}
	r.amqp.running = from
	return newImporter(from, &o), nil
}

// ageRabbit makes what is staged look as if it had been taken earlier.
func (r *rig) ageRabbit(by time.Duration) {
	r.t.Helper()
	r.hangUp()
	staging := rabbitStaging + "jobs"
	var all []amqp.Delivery
	for {
		d, ok, err := r.broker().ch.Get(staging, false)
		r.must(err)
		if !ok {
			break
		}
		all = append(all, d)
	}
	if len(all) == 0 {
		r.t.Fatal("this test shows nothing: nothing is staged")
	}
	for _, d := range all {
		e, err := parseStaged("", d.Headers[rabbitRecord].(string))
		r.must(err)
		e.record.Taken -= by.Milliseconds()
		d.Headers[rabbitRecord] = e.record.String()
		r.publish(staging, amqp.Publishing{Headers: d.Headers, Body: d.Body})
		r.must(d.Ack(false))
	}
}

func ptr[T any](v T) *T { return &v }

// When a message is due follows from the first of these that it has: a positive x-delay, its
// expiration and the TTL of its queue, that it has waited already. It is never early: the seconds
// of a timestamp were cut off, and a wait of which nobody knows when it began begins now.
func TestRabbitDue(t *testing.T) {
	const now = int64(1_800_000_000_500)
	published := map[string]string{"timestamp": "1799999990"} // up to 999 ms later, in truth
	expires := map[string]string{"timestamp": "1799999990", "expiration": "60000"}
	died := func(reason string) amqp.Table {
		return amqp.Table{"x-death": []any{amqp.Table{"reason": reason, "queue": "other", "count": int64(2)}}}
	}
	hour := ptr(time.Hour)
	for name, c := range map[string]struct {
		properties map[string]string
		headers    amqp.Table
		ttl        *time.Duration
		want       int64 // 0: rejected
	}{
		"a delay":                         {published, amqp.Table{"x-delay": int32(5000)}, nil, 1_799_999_996_000},
		"a delay in text":                 {nil, amqp.Table{"x-delay": "5000"}, nil, now + 5000},
		"a delay with a fraction":         {nil, amqp.Table{"x-delay": 5000.2}, nil, now + 5001},
		"a delay in a queue with a TTL":   {nil, amqp.Table{"x-delay": int64(5000)}, hour, now + 5000},
		"no number":                       {nil, amqp.Table{"x-delay": "soon"}, nil, 0},
		"no number at all":                {nil, amqp.Table{"x-delay": "NaN"}, nil, 0},
		"after the year 9999":             {nil, amqp.Table{"x-delay": int64(253402300800000)}, nil, 0},
		"an expiration":                   {expires, nil, nil, 1_800_000_051_000},
		"an expiration and a longer TTL":  {expires, nil, hour, 1_800_000_051_000},
		"an expiration and a shorter TTL": {expires, nil, ptr(time.Second), 1_799_999_992_000},
		"an expiration and --ttl 0s":      {expires, nil, ptr(time.Duration(0)), 1_800_000_051_000},
		"a TTL":                           {published, nil, hour, 1_800_003_591_000},
		"a TTL, and delayed before":       {nil, amqp.Table{"x-delay": int32(-5000)}, hour, now + 3_600_000},
		"a TTL, and expired elsewhere":    {published, died("expired"), hour, now + 3_600_000},
		"rejected elsewhere, with a TTL":  {expires, died("rejected"), nil, now + 60_000},
		"expired elsewhere":               {published, died("expired"), nil, now},
		"rejected elsewhere":              {published, died("rejected"), nil, 0},
		"delayed before":                  {published, amqp.Table{"x-delay": int32(-5000)}, nil, 1_799_999_991_000},
		"nothing":                         {published, nil, nil, 0},
		"nothing and --ttl 0s":            {published, nil, ptr(time.Duration(0)), 1_799_999_991_000},
		"a timestamp in the future":       {map[string]string{"timestamp": "1800000001"}, nil, hour, now + 3_600_000},
		"a timestamp in milliseconds":     {map[string]string{"timestamp": "1799999990000"}, nil, hour, now + 3_600_000},
		"a timestamp that was never set":  {map[string]string{"timestamp": "0"}, nil, hour, now + 3_600_000},
		"a timestamp of this second":      {map[string]string{"timestamp": "1800000000"}, nil, hour, now + 3_600_000},
	} {
		s := &source{ttl: c.ttl}
		s.describeRabbit()
		due, p := s.due(&entry{got: &rabbitMessage{properties: c.properties, headers: c.headers, at: now}})
		if c.want == 0 && p == nil || c.want != 0 && (p != nil || due.UnixMilli() != c.want) {
			t.Errorf("%s: due %d, %+v; want %d", name, due.UnixMilli(), p, c.want)
		}
		_, known := (&rabbitMessage{properties: c.properties, headers: c.headers, at: now}).waitsFrom()
		if want := len(c.properties) > 0 && c.headers["x-death"] == nil && !strings.HasPrefix(name, "a timestamp ") || strings.HasSuffix(name, "this second"); known != want {
			t.Errorf("%s: it is known when the wait began: %v, want %v", name, known, want)
		}
	}
}

// TestRabbitMQ: messages that wait, messages whose time has come and messages that cannot be taken,
// with what the real broker makes of them.
func TestRabbitMQ(t *testing.T) {
	r := newRig(t)
	r.broker()
	// died has been dead-lettered by the broker.
	r.queue("jobs-wait", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "jobs", "x-queue-type": "classic"})
	stamp := time.Now().Add(-time.Minute).Truncate(time.Second)
	r.publish("jobs-wait", amqp.Publishing{Body: []byte("died"), Expiration: "1", Timestamp: stamp})
	waitFor(t, "the message is dead-lettered", func() bool {
		q, err := r.amqp.ch.QueueDeclarePassive("jobs", true, false, false, false, nil)
		r.must(err)
		return q.Messages == 1
	})
	r.publish("jobs", amqp.Publishing{
		Body: []byte("waits"), Expiration: "3600000", Timestamp: stamp, MessageId: "order-7", Priority: 3, CorrelationId: "c-1", ContentType: "application/json",
		Headers: amqp.Table{"tenant": "a", "n": int32(7), "deep": amqp.Table{"list": []any{true, "x"}}, "none": nil},
	})
	r.publish("jobs", amqp.Publishing{Body: []byte("same"), Headers: amqp.Table{"x-delay": int32(60_000)}})
	r.publish("jobs", amqp.Publishing{Body: []byte("same"), Headers: amqp.Table{"x-delay": int32(60_000)}})
	for range 2 {
		r.publish("jobs", amqp.Publishing{Body: []byte("when?")})
	}
	r.publish("jobs", amqp.Publishing{Body: []byte("big"), Expiration: "3600000", Headers: amqp.Table{"big": strings.Repeat("x", 17<<10)}})
	r.publish("jobs", amqp.Publishing{Body: []byte("bad"), Expiration: "3600000", Headers: amqp.Table{"bad": amqp.Table{"in": "\xff"}}})
	r.publish("jobs", amqp.Publishing{Body: []byte("ours"), Expiration: "3600000", Headers: amqp.Table{rabbitQueueName: "x"}})
	o := options(RabbitMQ)
	s := r.survey(o).Sets[0]
	rejected := map[Reason]int64{BadScore: 2, BadBody: 2, BadLayout: 1}
	if s.Found != 9 || s.Importable != 4 || !maps.Equal(s.Rejected, rejected) || s.Changed["a priority, which has no effect here; the header rabbitmq-priority has it"] != 1 || len(s.Changed) != 2 {
		t.Errorf("survey: %+v", s)
	}
	var texts []string
	o.Rejected = func(x Reject) error { texts = append(texts, x.Member+": "+x.Text); return nil }
	s = r.move(o).Sets[0]
	if s.Found != 9 || s.Stored != 4 || s.Remaining != 5 || s.StillStaged != 0 || !maps.Equal(s.Rejected, rejected) {
		t.Errorf("move: %+v", s)
	}
	if !slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, "--ttl") }) {
		t.Errorf("rejected %q, want the remedy --ttl", texts)
	}
	ms := map[string]punctual.Info{}
	for _, m := range r.messages("t") {
		ms[string(m.Body)] = m
	}
	if len(r.messages("t")) != 4 || len(ms) != 3 {
		t.Fatalf("messages %v", ms)
	}
	if m := ms["waits"]; m.ID != "order-7" || !m.Due.Equal(stamp.Add(time.Hour+time.Second)) || m.Headers["tenant"] != "a" || m.Headers["n"] != "7" ||
		m.Headers["deep"] != `{"list":[true,"x"]}` || m.Headers["none"] != "" || m.Headers["rabbitmq-correlation-id"] != "c-1" || m.Headers["rabbitmq-content-type"] != "application/json" ||
		m.Headers["rabbitmq-priority"] != "3" || m.Headers["rabbitmq-routing-key"] != "jobs" || m.Headers["rabbitmq-queue"] != "jobs" {
		t.Errorf("waits: %+v", m)
	}
	if m := ms["died"]; time.Since(m.Due) > time.Minute || m.State != punctual.StateReady || m.Headers["rabbitmq-death-count"] != "1" ||
		!strings.Contains(m.Headers["x-death"], `"original-expiration":"1"`) || !strings.Contains(m.Headers["x-death"], `"queue":"jobs-wait"`) {
		t.Errorf("died: %+v", m)
	}
	// What was rejected is in the queue as before, and was not dead-lettered.
	var left []string
	for range 6 {
		if d, ok, err := r.amqp.ch.Get("jobs", true); err == nil && ok && d.Headers["x-death"] == nil {
			left = append(left, string(d.Body))
		}
	}
	if !slices.Equal(left, []string{"when?", "when?", "big", "bad", "ours"}) {
		t.Errorf("left in the queue: %q", left)
	}
}

// waitFor waits until something is so.
func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// The TTL of a queue is found out, so that a queue in which messages wait is never imported as one
// whose messages are due. Queues from which nothing can be taken are refused.
func TestRabbitQueues(t *testing.T) {
	r := newRig(t)
	ch := r.broker().ch
	declare := func(durable, autoDelete bool, args amqp.Table) {
		_, err := ch.QueueDelete("jobs", false, false, false)
		r.must(err)
		_, err = ch.QueueDeclare("jobs", durable, autoDelete, false, false, args)
		r.must(err)
	}
	for name, c := range map[string]struct {
		durable, autoDelete bool
		args                amqp.Table
		ttl                 *time.Duration // --ttl
		want                string         // of the error
		classic             bool
		wait                time.Duration
	}{
		"a TTL":              {true, false, amqp.Table{"x-message-ttl": int32(90_000), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "7", "x-expires": int64(9e8), "x-max-priority": int8(4), "x-single-active-consumer": false}, nil, "", true, 90 * time.Second},
		"the same TTL":       {true, false, amqp.Table{"x-message-ttl": int64(90_000)}, ptr(90 * time.Second), "", true, 90 * time.Second},
		"another TTL":        {true, false, amqp.Table{"x-message-ttl": int64(90_000)}, ptr(time.Duration(0)), "wait for 1m30s", true, 0},
		"a TTL of a policy":  {true, false, nil, ptr(time.Minute), "", true, time.Minute},
		"a quorum queue":     {true, false, amqp.Table{"x-queue-type": "quorum", "x-message-ttl": int64(90_000), "x-delivery-limit": int64(20)}, nil, "", false, 90 * time.Second},
		"not durable":        {false, true, amqp.Table{"x-queue-type": "classic", "x-message-ttl": int64(90_000)}, nil, "", true, 90 * time.Second},
		"a stream":           {true, false, amqp.Table{"x-queue-type": "stream"}, nil, "is a stream", false, 0},
		"what nobody can be": {true, false, amqp.Table{"x-max-length": int64(10), "x-overflow": "reject-publish", "x-message-ttl": int64(90_000)}, nil, "", true, 90 * time.Second},
	} {
		declare(c.durable, c.autoDelete, c.args)
		o := options(RabbitMQ)
		o.TTL = c.ttl
		im, err := r.importer(o)
		r.must(err)
		sources, err := im.sources(t.Context())
		if c.want != "" {
			if !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want ErrInvalid with %q", name, err, c.want)
			}
			continue
		}
		if err != nil || sources[0].ttl == nil || *sources[0].ttl != c.wait || im.from.(*rabbitOrigin).queues["jobs"].classic != c.classic {
			t.Errorf("%s: %v, %+v; want a wait of %v", name, err, sources, c.wait)
		}
	}
	declare(true, false, nil)
	o := options(RabbitMQ)
	o.Names = []string{"nobody"}
	if _, err := r.tryMove(o); err == nil || !strings.Contains(err.Error(), "no such queue") {
		t.Errorf("no such queue: %v", err)
	}
	own, err := ch.QueueDeclare("", false, false, true, false, nil)
	r.must(err)
	o.Names = []string{own.Name}
	if _, err := r.tryMove(o); err == nil || !strings.Contains(err.Error(), "another connection") {
		t.Errorf("an exclusive queue: %v", err)
	}
	for name, change := range map[string]func(o *Options){
		"leave":            func(o *Options) { o.Leave = time.Second },
		"return":           func(o *Options) { o.Uncertain = ReturnUncertain },
		"no name":          func(o *Options) { o.Names = nil },
		"a name twice":     func(o *Options) { o.Names = []string{"jobs", "jobs"} },
		"what was staged":  func(o *Options) { o.Names = []string{rabbitStaging + "jobs"} },
		"no pointer to ID": func(o *Options) { o.IDFrom = "no" },
	} {
		o := options(RabbitMQ)
		change(&o)
		im, err := r.importer(o)
		if err == nil {
			_, err = im.sources(t.Context())
		}
		if !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	for url, want := range map[string]string{
		strings.Replace(r.amqp.url, "guest:guest", "guest:secret", 1): "password is wrong",
		r.amqp.url + "secret":                 "no such vhost",
		"amqp://guest:secret@127.0.0.1:1":     "cannot be reached",
		"amqp://guest:sec%ret@127.0.0.1:5672": "escaped",
		"redis://guest:secret@127.0.0.1:5672": "amqp://",
	} {
		_, err := dialRabbit(url, &o)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(strings.ReplaceAll(err.Error(), "vhost secret", ""), "sec") {
			t.Errorf("%s: %v, want %q and no password", url, err, want)
		}
	}
}

// RabbitMQ acks originals also where no queue takes their copies. When the staging queue is deleted
// between two rounds, or in the very moment of a commit, it is made again and each message arrives.
func TestRabbitStagingDeleted(t *testing.T) {
	for _, atCommit := range []bool{false, true} {
		r := newRig(t)
		r.good(RabbitMQ, "jobs", 1)
		o := options(RabbitMQ)
		im, err := r.importer(o)
		r.must(err)
		from := im.from.(*rabbitOrigin)
		m, err := im.mover(r.store)
		r.must(err)
		sources, err := im.sources(t.Context())
		r.must(err)
		m.report.Sets = []*SetReport{newSetReport(sources[0])}
		r.must(m.moveOnce(t.Context(), sources))
		r.publish("jobs", amqp.Publishing{Body: []byte("late"), Headers: amqp.Table{"x-delay": int32(-1)}})
		q := from.queues["jobs"]
		gate := make(chan amqp.Delivery) // closes when the run has published
		if real := q.staging; atCommit {
			q.staging = gate
			returns := from.ch.NotifyReturn(make(chan amqp.Return, 1))
			go func() {
				<-returns
				for range real { // which the broker has closed
					t.Error("a copy arrived in a queue that was deleted")
				}
				close(gate)
			}()
		}
		n, err := r.amqp.ch.QueueDelete(rabbitStaging+"jobs", false, false, false)
		if err != nil || n != 0 {
			t.Fatalf("delete: %d, %v; want an empty queue", n, err)
		}
		if !atCommit {
			waitFor(t, "the run is told", func() bool {
				select {
				case _, ok := <-q.staging:
					return !ok
				default:
					return false
				}
			})
		}
		r.must(m.moveSet(t.Context(), sources[0], m.report.Sets[0]))
		if s := m.report.Sets[0]; s.Stored != 2 {
			t.Errorf("%+v, want both stored", s)
		}
		if atCommit {
			select {
			case <-gate:
			default:
				t.Error("this test shows nothing: no copy was returned")
			}
		}
		r.must(im.from.count(t.Context(), sources[0], &m.report.Sets[0].Remaining, &m.report.Sets[0].StillStaged))
		if s := m.report.Sets[0]; s.Remaining != 0 || s.StillStaged != 0 {
			t.Errorf("%+v, want nothing left", s)
		}
		r.consume("t")
		r.eachOnce([]string{"body good-0", "late"})
		r.hangUp()
	}
}

// A second import of a queue is refused while one works on it, and changes nothing.
func TestRabbitTwoImports(t *testing.T) {
	r := newRig(t)
	want := r.good(RabbitMQ, "jobs", 3)
	refused := 0
	_, err := r.stepping(func(step string) error {
		if step != "taken" {
			return nil
		}
		im, err := r.apart(options(RabbitMQ))
		r.must(err)
		if _, err = im.Move(t.Context(), r.store); err != nil && strings.Contains(err.Error(), "another import works on queue jobs") {
			refused++
		}
		return nil
	}).tryMove(options(RabbitMQ))
	if err != nil || refused != 1 {
		t.Errorf("%v, refused %d; want the second import refused once", err, refused)
	}
	r.consume("t")
	r.eachOnce(want)
}

// A message that old producers add while an import follows is here within a second (P11). Each is
// added right behind a round, when the next one is farthest away. On a slow machine one may be
// late, so the fastest counts.
func TestRabbitFollow(t *testing.T) {
	r := newRig(t)
	r.broker()
	o := options(RabbitMQ)
	o.Follow = true
	im, err := r.importer(o)
	r.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	var rep *Report
	var wg sync.WaitGroup
	wg.Go(func() { rep, err = im.Move(ctx, r.store) })
	best := time.Minute
	for i := range 5 {
		r.publish("jobs", amqp.Publishing{Body: fmt.Append(nil, i), Headers: amqp.Table{"x-delay": int32(-1)}})
		added := time.Now()
		waitFor(t, "the message is here", func() bool { return len(r.messages("t")) > i })
		best = min(best, time.Since(added))
	}
	cancel()
	wg.Wait()
	if err != nil || rep.Sets[0].Stored != 5 || rep.Sets[0].StillStaged != 0 {
		t.Errorf("%v, %+v; want no error and 5 stored", err, rep.Sets[0])
	}
	if best > time.Second {
		t.Errorf("every message came more than a second after it was added, the fastest after %v", best)
	}
}

// A quorum queue counts each look at a message as a delivery, and drops the message after some. So
// a survey does not look into it, and following ends at the first message that cannot be imported.
func TestRabbitQuorum(t *testing.T) {
	r := newRig(t)
	_, err := r.broker().ch.QueueDelete("jobs", false, false, false)
	r.must(err)
	r.queue("jobs", amqp.Table{"x-queue-type": "quorum"})
	r.good(RabbitMQ, "jobs", 20)
	o := options(RabbitMQ)
	if s := r.survey(o).Sets[0]; s.Found != 20 || s.Importable != 0 || !strings.Contains(strings.Join(s.Notes, " "), "not looked into") {
		t.Errorf("survey: %+v", s)
	}
	d, ok, err := r.amqp.ch.Get("jobs", false)
	if err != nil || !ok || d.Redelivered {
		t.Errorf("behind the survey: %v, %v, redelivered %v; want a message as before", ok, err, d.Redelivered)
	}
	r.must(d.Ack(false))
	r.publish("jobs", amqp.Publishing{Body: []byte("when?")})
	o.Follow = true
	rep, err := r.tryMove(o)
	if s := rep.Sets[0]; err == nil || !strings.Contains(err.Error(), "--follow ends") || s.Stored != 19 || s.Rejected[BadScore] != 1 {
		t.Errorf("follow: %v, %+v; want an error that says why it ends", err, s)
	}
	o.Follow = false
	if s := r.move(o).Sets[0]; s.Stored != 0 || s.Rejected[BadScore] != 1 {
		t.Errorf("%+v, want one message rejected", s)
	}
	waitFor(t, "the message that was rejected is in the queue again", func() bool {
		q, err := r.amqp.ch.QueueDeclarePassive("jobs", true, false, false, false, nil)
		r.must(err)
		return q.Messages == 1
	})
}

// A routing key may be the topic, and a field of the body the ID.
func TestRabbitTopicsAndIDs(t *testing.T) {
	r := newRig(t)
	r.broker()
	for i, key := range []string{"order.close", "mail", "no topic"} {
		r.must(r.amqp.ch.QueueBind("jobs", key, "amq.topic", false, nil))
		r.must(r.amqp.ch.Publish("amq.topic", key, true, false, amqp.Publishing{
			Body: fmt.Appendf(nil, `{"no":%d}`, i), Expiration: "3600000", DeliveryMode: amqp.Persistent, Headers: amqp.Table{"CC": []any{"elsewhere"}},
		}))
	}
	o := options(RabbitMQ)
	o.Topic, o.ByType, o.TopicOf, o.IDFrom = "", true, map[string]string{"mail": "mail.send"}, "/no"
	if s := r.move(o).Sets[0]; s.Stored != 2 || s.Rejected[BadTopic] != 1 || s.Remaining != 1 {
		t.Errorf("%+v", s)
	}
	for topic, id := range map[string]string{"order.close": "0", "mail.send": "1"} {
		if ms := r.messages(topic); len(ms) != 1 || ms[0].ID != id || ms[0].Headers["rabbitmq-exchange"] != "amq.topic" || ms[0].Headers["CC"] != `["elsewhere"]` {
			t.Errorf("%s: %+v, want one message with the ID %s", topic, ms, id)
		}
	}
}
