package importer

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
)

// Celery keeps the tasks of a queue in lists of its Redis broker. Written down from what Celery
// 5.2.6 with kombu 5.2.4 writes, in version 2 of its message protocol:
//
//	QUEUE                     list of tasks with priority 0 to 2; workers take from its right end
//	QUEUE 0x06 0x16 3         the same for priority 3 to 5, with 6 for 6 to 8, and with 9 for 9
//	_kombu.binding.EXCHANGE   set: routing key, pattern and queue, with 0x06 0x16 between them
//	unacked                   hash: the tasks that workers hold, those with an ETA as well
//
// A task is JSON, and no two are equal, because each has a delivery tag of its own:
//
//	headers      task, id, eta, expires, retries, timelimit, group and others, and the program's own
//	properties   body_encoding, priority and others
//	body         base64 of [args, kwargs, {callbacks, errbacks, chain, chord}]
const (
	celeryBinding = "_kombu.binding."
	celerySep     = "\x06\x16"
)

// These headers keep what a task has and a message has not. If a message cannot have the ID of its
// task, the header celery-id has that ID.
const (
	celeryHeaderTask     = "celery-task"
	celeryHeaderQueue    = "celery-queue"
	celeryHeaderRetries  = "celery-retries"   // those made so far, unless 0
	celeryHeaderLimit    = "celery-timelimit" // seconds: [hard,soft], null for none
	celeryHeaderGroup    = "celery-group"
	celeryHeaderPriority = "celery-priority" // unless 0
)

// celeryOwn are the headers of a task that are Celery's and not the program's.
var celeryOwn = []string{
	"lang", "task", "id", "shadow", "eta", "expires", "group", "group_index", "retries", "timelimit", "root_id", "parent_id", "argsrepr",
	"kwargsrepr", "origin", "ignore_result", "replaced_task_nesting", "stamped_headers", "stamps", "redelivered", "compression",
}

// celeryTask is what matters of a task.
type celeryTask struct {
	Body        string                     `json:"body"`
	ContentType string                     `json:"content-type"`
	Headers     map[string]json.RawMessage `json:"headers"`
	Properties  struct {
		Encoding string `json:"body_encoding"`
		Priority int    `json:"priority"`
	} `json:"properties"`
}

// text returns a header that is a text, or "".
func (t *celeryTask) text(name string) (s string) {
	_ = json.Unmarshal(t.Headers[name], &s) // what is no text is ""
	return s
}

// time returns a header that is an instant, or the zero Time for none.
func (t *celeryTask) time(name string) (time.Time, *problem) {
	text := t.text(name)
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at, problemf(BadScore, "%s %q names no instant: with enable_utc off Celery writes no offset from UTC", name, text)
	}
	if ceiled := at.Truncate(time.Millisecond); ceiled.Before(at) {
		at = ceiled.Add(time.Millisecond)
	}
	return at, nil
}

func (s *source) describeCelery() {
	if s.part != "0" {
		s.set = s.name + celerySep + s.part
	}
	s.isList, s.renames = true, true
	s.due = func(e *entry) (time.Time, *problem) {
		var t celeryTask
		if json.Unmarshal([]byte(e.member), &t) != nil {
			return time.Time{}, nil // which readCelery refuses
		}
		return t.time("eta")
	}
	s.read = func(e *entry) (punctual.NewMessage, *problem) {
		m, p := s.readCelery(e)
		if p != nil && e.task.id != "" {
			p.text = "task " + e.task.id + ": " + p.text // because the member is long and has the ID far behind
		}
		return m, p
	}
}

// celeryQueues returns the queues that are bound to exchanges, without those by which workers are
// controlled.
func (o *redisOrigin) celeryQueues(ctx context.Context) ([]string, error) {
	bindings, err := o.scan(ctx, celeryBinding+"*", func(key string) (string, bool) { return key, true })
	var names []string
	for _, key := range bindings {
		bound, err := o.client.SMembers(ctx, key).Result()
		if err != nil {
			return nil, err
		}
		for _, b := range bound {
			queue := b[strings.LastIndex(b, celerySep)+len(celerySep):]
			if !strings.HasSuffix(queue, ".pidbox") && !strings.HasPrefix(queue, "celeryev") {
				names = append(names, queue)
			}
		}
	}
	return names, err
}

// readCelery makes the message of a task. A task that is followed by others is refused, because
// Celery starts those when the task ends.
func (s *source) readCelery(e *entry) (m punctual.NewMessage, p *problem) {
	var t celeryTask
	if err := json.Unmarshal([]byte(e.member), &t); err != nil {
		return m, problemf(BadLayout, "it is no task of Celery: %v", err)
	}
	m.Topic, e.task = t.text("task"), task{found: true, id: t.text("id")}
	if m.Topic == "" || e.task.id == "" {
		return m, problemf(BadLayout, "it has no header task or id: only version 2 of Celery's message protocol is read (task_protocol = 2)")
	}
	m.Body = []byte(t.Body)
	if t.Properties.Encoding == "base64" {
		var err error
		if m.Body, err = base64.StdEncoding.DecodeString(t.Body); err != nil {
			return m, problemf(BadBody, "its body is not base64: %v", err)
		}
	}
	var body []json.RawMessage
	var after map[string]json.RawMessage
	if t.ContentType != "application/json" || t.text("compression") != "" {
		return m, problemf(BadBody, "its body is %s: only plain JSON shows which tasks follow (task_serializer = 'json')", strings.TrimSpace(t.ContentType+" "+t.text("compression")))
	}
	if err := json.Unmarshal(m.Body, &body); err != nil || len(body) != 3 || json.Unmarshal(body[2], &after) != nil {
		return m, problemf(BadBody, "its body is not [args, kwargs, options]")
	}
	for name, what := range after {
		if text := string(what); text != "null" && text != "[]" {
			return m, problemf(BadLayout, "it has %s, which Celery starts when it ends: let Celery finish it", name)
		}
	}
	m.ID = e.keep(e.task.id, makeID(Celery, s.set, e.member))
	if p := t.headers(s, &m); p != nil {
		return m, p
	}
	if e.deadline, p = t.time("expires"); p != nil {
		return m, p
	}
	if eta, p := t.time("eta"); p == nil && !e.deadline.IsZero() && !e.deadline.After(eta) {
		return m, problemf(BadDeadline, "it expires at %s, which does not lie behind its eta, so Celery never runs it", e.deadline.UTC().Format(time.RFC3339))
	}
	if t.Properties.Priority != 0 {
		e.changes = append(e.changes, "a priority, which is in the header "+celeryHeaderPriority+" and has no effect: messages come in the order of their due times")
	}
	return m, nil
}

// headers sets the headers of a message.
func (t *celeryTask) headers(s *source, m *punctual.NewMessage) *problem {
	m.Headers = map[string]string{celeryHeaderTask: m.Topic, celeryHeaderQueue: s.name}
	for to, value := range map[string]string{
		celeryHeaderRetries: string(t.Headers["retries"]), celeryHeaderGroup: t.text("group"),
		celeryHeaderLimit: strings.ReplaceAll(string(t.Headers["timelimit"]), " ", ""), celeryHeaderPriority: fmt.Sprint(t.Properties.Priority),
	} {
		if !slices.Contains([]string{"", "0", "null", "[null,null]"}, value) {
			m.Headers[to] = value
		}
	}
	for name, value := range t.Headers {
		if slices.Contains(celeryOwn, name) || string(value) == "null" {
			continue
		}
		if _, taken := m.Headers[name]; taken || name == string(s.kind)+"-id" {
			return problemf(BadLayout, "the task has a header of its own named %q", name)
		}
		if m.Headers[name] = t.text(name); m.Headers[name] == "" {
			m.Headers[name] = string(value)
		}
	}
	return nil
}

// noteCelery adds to the report what is in the lists of other priorities, and what workers hold.
func (o *redisOrigin) noteCelery(ctx context.Context, s *source, r *SetReport, count func(what string, n *redis.IntCmd) error) error {
	if s.part != "0" {
		return nil
	}
	for priority := 1; priority < 10; priority++ {
		if part := fmt.Sprint(priority); !slices.Contains(o.opt.Parts, part) {
			if err := count("of priority "+part+", in a list of its own: %d; --part "+part+" takes those over", o.client.LLen(ctx, s.name+celerySep+part)); err != nil {
				return err
			}
		}
	}
	return count("held by workers, of all queues: %d; a worker that is stopped with TERM gives back those with an ETA, and those of a worker that was killed come back when another one runs for an hour (visibility_timeout)", o.client.HLen(ctx, "unacked"))
}
