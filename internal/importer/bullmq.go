package importer

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// BullMQ keeps the IDs of a queue's jobs in sorted sets and lists, and each job in a hash. Bull,
// its predecessor, uses the same keys. Written down from what BullMQ 6.7.0 and Bull 4.16.5 write:
//
//	bull:QUEUE:delayed      sorted set; the score is the due time in ms, times 4096, plus a counter
//	bull:QUEUE:prioritized  sorted set (BullMQ); the score is the priority times 2^32, plus a counter
//	bull:QUEUE:wait         list; workers take from its right end
//	bull:QUEUE:paused       list in place of wait while a queue is paused (Bull, and BullMQ before 6)
//	bull:QUEUE:priority     sorted set (Bull): the IDs in wait that have a priority
//	bull:QUEUE:failed       sorted set; the score is when the job failed, in ms
//	bull:QUEUE:id           the last number that a job got as its ID
//	bull:QUEUE:de:ID        the ID of the job for which a deduplication stands
//	bull:QUEUE:ID           hash: the fields below, and some that only BullMQ can use
const (
	bullName     = iota // what the program calls this kind of job
	bullData            // JSON
	bullOpts            // JSON: bullOptions
	bullCreated         // ms
	bullAttempts        // how many there were (BullMQ)
	bullMade            // the same (Bull)
	bullError           // the text of the last failure
	bullParent          // the key of the parent, in a flow
	bullSchedule        // the name of the job scheduler
	bullPriority        // unless 0
)

var bullFields = []string{
	bullName: "name", bullData: "data", bullOpts: "opts", bullCreated: "timestamp", bullAttempts: "atm", bullMade: "attemptsMade",
	bullError: "failedReason", bullParent: "parentKey", bullSchedule: "rjk", bullPriority: "priority",
}

// These headers and headerBullName keep what a job has and a message has not. If a message cannot
// have the ID of its job, the header bullmq-id has that ID.
const (
	bullHeaderQueue    = "bullmq-queue"
	bullHeaderAttempts = "bullmq-attempts-made"
	bullHeaderError    = "bullmq-error"
	bullHeaderPriority = "bullmq-priority"
)

// bullOptions is what matters of a job's options.
type bullOptions struct {
	Attempts int             `json:"attempts"`
	Backoff  json.RawMessage `json:"backoff"`
	Lifo     bool            `json:"lifo"`
	Repeat   json.RawMessage `json:"repeat"`
}

// bullTick is how many scores of the set delayed one millisecond has.
const bullTick = 4096

func (s *source) describeBull(prefix string) {
	queue := prefix + ":" + s.name + ":"
	s.set, s.tasks, s.fields, s.compared = queue+s.part, queue, bullFields, len(bullFields)
	s.unit = time.Millisecond
	s.isList = s.part == "wait" || s.part == "paused"
	s.due = func(e *entry) (time.Time, *problem) {
		if s.part == "delayed" {
			return dueOf(math.Floor(e.score/bullTick), s.unit)
		}
		if !e.task.found {
			return time.Time{}, nil // which readBull refuses
		}
		created, err := strconv.ParseInt(e.task.values[bullCreated], 10, 64)
		if err != nil {
			return time.Time{}, problemf(BadLayout, "the job does not say when it was added: %v", err)
		}
		return dueOf(float64(created), s.unit)
	}
	s.read = s.readBull
}

// bullQueues returns the queues that have a key with this end. No name of a queue has a colon,
// because BullMQ refuses it; a queue of Bull whose name has one is found when it is named.
func (o *redisOrigin) bullQueues(ctx context.Context, prefix, end string) ([]string, error) {
	return o.scan(ctx, globEscape(prefix)+":*:"+end, func(key string) (string, bool) {
		name := strings.TrimSuffix(strings.TrimPrefix(key, prefix+":"), ":"+end)
		return name, !strings.Contains(name, ":") // else it is the key of a job or a scheduler
	})
}

// readBull makes the message of a job. A job that belongs to a flow or a job scheduler is refused,
// because BullMQ goes on with either when that job ends.
func (s *source) readBull(e *entry) (m punctual.NewMessage, p *problem) {
	if !e.task.found {
		return m, problemf(BadLayout, "there is no job with this ID")
	}
	v := func(field int) string { return e.task.values[field] }
	var opts bullOptions
	if err := json.Unmarshal([]byte(v(bullOpts)), &opts); err != nil {
		return m, problemf(BadLayout, "the options of the job cannot be read: %v", err)
	}
	switch {
	case v(bullParent) != "":
		return m, problemf(BadLayout, "it is a child of the job %s, which waits for it: let BullMQ finish the flow", v(bullParent))
	case e.task.parent:
		return m, problemf(BadLayout, "it is the parent of a flow, whose results only BullMQ has: let BullMQ finish the flow")
	case v(bullSchedule) != "" || len(opts.Repeat) > 0:
		return m, problemf(BadLayout, "a job scheduler has added it: take that over with 'punctual schedule import bullmq', and remove it in BullMQ")
	}
	made := 0
	for _, count := range []string{v(bullAttempts), v(bullMade)} {
		if n, err := strconv.Atoi(count); err == nil {
			made = max(made, n)
		}
	}
	m.ID = e.keep(e.member, makeID(BullMQ, s.tasks, e.member, v(bullCreated), v(bullName), v(bullData)))
	m.Topic, m.Body = v(bullName), []byte(v(bullData))
	m.MaxAttempts = min(max(opts.Attempts-made, 1), limits.MaxAttemptsLimit)
	m.Headers = map[string]string{headerBullName: m.Topic, bullHeaderQueue: s.name}
	if made > 0 {
		m.Headers[bullHeaderAttempts] = strconv.Itoa(made)
	}
	if v(bullError) != "" {
		m.Headers[bullHeaderError] = storekit.TrimError(v(bullError))
	}
	if v(bullPriority) != "" && v(bullPriority) != "0" {
		m.Headers[bullHeaderPriority] = v(bullPriority)
		e.changes = append(e.changes, "a priority, which is in the header "+bullHeaderPriority+" and has no effect: messages come in the order of their due times")
	}
	if opts.Lifo {
		e.changes = append(e.changes, "lifo: messages come in the order of their due times")
	}
	if m.MaxAttempts > 1 && len(opts.Backoff) > 0 {
		e.changes = append(e.changes, "a backoff of its own: the retry delays are those of the topic here (punctual topic set --backoff)")
	} else if m.MaxAttempts > 1 {
		e.changes = append(e.changes, "retries at once, without a backoff: the retry delays are those of the topic here (punctual topic set --backoff)")
	}
	return m, nil
}
