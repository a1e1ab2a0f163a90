package importer

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"google.golang.org/protobuf/encoding/protowire"
)

// asynqQueues is the set of the names of asynq's queues. Asynq keeps the IDs of a queue's scheduled
// and retried tasks in sorted sets, with scores in seconds, and each task in a hash of its own.
const asynqQueues = "asynq:queues"

// What a task carries that a message does not is kept in headers with these names, except what
// only asynq can use, such as its unique lock. A task's own headers keep theirs.
const (
	asynqHeaderType    = "asynq-type"
	asynqHeaderQueue   = "asynq-queue"
	asynqHeaderID      = "asynq-id"      // only if the message has another ID
	asynqHeaderRetried = "asynq-retried" // unless 0
	asynqHeaderError   = "asynq-error"   // the text of the last failure
	asynqHeaderTimeout = "asynq-timeout" // in seconds
	asynqHeaderGroup   = "asynq-group"
)

func (s *source) describeAsynq() {
	prefix := "asynq:{" + s.name + "}:"
	s.set, s.tasks, s.fields, s.compared = prefix+s.part, prefix+"t:", []string{"msg", "group", "unique_key"}, 1
	s.read = func(e *entry) (punctual.NewMessage, *problem) { return readAsynq(e, s.name) }
}

func readAsynq(e *entry, queue string) (m punctual.NewMessage, p *problem) {
	if !e.task.found {
		return m, problemf(BadLayout, "there is no task with this ID")
	}
	// msg is the task itself, in protobuf. group is set when asynq will aggregate the task with
	// others and not deliver it alone, lock is the key of its unique lock.
	msg, group, lock := e.task.values[0], e.task.values[1], e.task.values[2]
	if group != "" {
		return m, problemf(BadLayout, "the task belongs to group %q, which asynq delivers as one", group)
	}
	if lock != "" {
		e.changes = append(e.changes, "a unique lock, which stays with asynq until its time is over")
	}
	t, err := parseAsynq([]byte(msg))
	if err != nil {
		return m, problemf(BadLayout, "the task cannot be read: %v", err)
	}
	if t.id != e.member || t.queue != queue {
		return m, problemf(BadLayout, "the task says that it is %q of queue %q", t.id, t.queue)
	}
	m.ID = asynqID(queue, e)
	m.Topic, m.Body = t.typ, t.payload
	m.MaxAttempts = attemptsLeft(t)
	if m.Headers, p = asynqHeaders(t); p != nil {
		return m, p
	}
	if t.deadline > 0 {
		// From its deadline on the task is of no use: it becomes dead, as asynq would archive it.
		e.deadline = time.Unix(t.deadline, 0)
		if float64(t.deadline) <= e.score {
			return m, problemf(BadDeadline, "its deadline %s does not lie behind its due time, so asynq never runs it", e.deadline.UTC().Format(time.RFC3339))
		}
	}
	return m, nil
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// asynqID returns the task's own ID. A program that chooses IDs may use one again when its task is
// done, so the spare ID of such a task is made of its queue, ID, score and content. A UUID, as
// asynq makes them, does not come again.
func asynqID(queue string, e *entry) string {
	if uuid.MatchString(e.member) {
		return e.member
	}
	return e.keep(e.member, makeID(Asynq, queue, e.member, formatScore(e.score), e.task.values[0]))
}

// attemptsLeft turns a number of retries into one of attempts, without those already made.
func attemptsLeft(t *taskMessage) int {
	left := t.retry - t.retried + 1
	return int(min(max(left, 1), limits.MaxAttemptsLimit))
}

func asynqHeaders(t *taskMessage) (map[string]string, *problem) {
	h := map[string]string{asynqHeaderType: t.typ, asynqHeaderQueue: t.queue}
	if t.retried > 0 {
		h[asynqHeaderRetried] = strconv.FormatInt(t.retried, 10)
	}
	if t.errorText != "" {
		h[asynqHeaderError] = storekit.TrimError(t.errorText)
	}
	if t.timeout > 0 {
		h[asynqHeaderTimeout] = strconv.FormatInt(t.timeout, 10)
	}
	if t.group != "" {
		h[asynqHeaderGroup] = t.group
	}
	for name := range t.headers {
		if _, taken := h[name]; taken || name == asynqHeaderID {
			return nil, problemf(BadLayout, "the task has a header of its own named %q", name)
		}
	}
	maps.Copy(h, t.headers)
	return h, nil
}

// taskMessage is what matters of asynq's message TaskMessage.
type taskMessage struct {
	typ, id, queue, errorText, group  string
	payload                           []byte
	retry, retried, timeout, deadline int64
	headers                           map[string]string
}

// parseAsynq reads a task: internal/proto/asynq.proto of asynq v0.26.0. Fields that do not matter
// here, and those of later versions, are passed over.
func parseAsynq(b []byte) (*taskMessage, error) {
	t := &taskMessage{headers: map[string]string{}}
	err := parseFields(b, map[protowire.Number]any{
		1: &t.typ, 2: &t.payload, 3: &t.id, 4: &t.queue, 5: &t.retry, 6: &t.retried, 7: &t.errorText, 8: &t.timeout, 9: &t.deadline, 14: &t.group,
		15: func(header []byte) error {
			var name, value string
			err := parseFields(header, map[protowire.Number]any{1: &name, 2: &value})
			t.headers[name] = value
			return err
		},
	})
	if err == nil && t.typ == "" {
		err = fmt.Errorf("it has no type")
	}
	return t, err
}

// parseFields reads a protobuf message. It sets what into has for the number of a field: a string,
// bytes or a number. A list of strings gets a further one, and a function is called with the bytes.
func parseFields(b []byte, into map[protowire.Number]any) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var text []byte
		var number uint64
		switch typ {
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		switch to := into[num].(type) {
		case *string:
			*to = string(text)
		case *[]byte:
			*to = text
		case *int64:
			*to = int64(number)
		case *[]string:
			*to = append(*to, string(text))
		case func([]byte) error:
			if err := to(text); err != nil {
				return err
			}
		}
	}
	return nil
}
