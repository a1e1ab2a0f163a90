package importer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/redisstore"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// Recurring schedules of other systems. They are read and never changed: somebody has to stop the
// other system's scheduler, or both push.

// ScheduleOptions says which schedules are read, and what is not written down with them.
type ScheduleOptions struct {
	// Topic is the topic for all, if not empty. Otherwise it is the queue, or with ByType the type
	// of asynq's task.
	Topic  string
	ByType bool
	// Zone is the zone of the times that name none: for asynq that of its scheduler
	// (SchedulerOpts.Location), for BullMQ that of the clocks of its servers. Neither system stores
	// it.
	Zone string
	// Overlap and Missed, if not nil, are those of all schedules. Otherwise they are the nearest to
	// what the other system does with each, where it says so.
	Overlap *schedule.Overlap
	Missed  *schedule.Missed
	// MaxAttempts takes the place of the attempts that the other system would make, if not 0.
	MaxAttempts int
	// Queues are BullMQ's queues, or Quartz's schedulers; none means all that are found. Prefix is
	// that of BullMQ's keys, "bull" by default, or of Quartz's tables.
	Queues []string
	Prefix string
	// Now is the present time. A schedule without a time after it is left out.
	Now time.Time
}

// FoundSchedule is a schedule of another system.
type FoundSchedule struct {
	schedule.Schedule
	// Paused says why it does not run there, or is empty. It is to be put as paused.
	Paused string
}

// schedules collects what is read.
type schedules struct {
	opt      *ScheduleOptions
	all      []FoundSchedule
	findings []cron.Finding
	// entry is where the findings of the present entry begin.
	entry int
	// taken has the names of the schedules, with their topics, and for each the last number that
	// was tried behind it, from 1.
	taken map[string]int
}

func newSchedules(o *ScheduleOptions) *schedules {
	return &schedules{opt: o, taken: make(map[string]int)}
}

func (r *schedules) say(kind cron.FindingKind, where, format string, args ...any) {
	r.findings = append(r.findings, cron.Finding{Where: where, Text: fmt.Sprintf(format, args...), Kind: kind})
}

// leave leaves the present entry out. What else was said of it no longer matters.
func (r *schedules) leave(where, format string, args ...any) {
	r.findings = r.findings[:r.entry]
	r.say(cron.Left, where, format, args...)
}

// policy says what differs of a policy, unless the user has asked for one.
func (r *schedules) policy(unasked bool, where, text string) {
	if unasked {
		r.say(cron.Changed, where, "%s", text)
	}
}

// add takes a schedule, under a name that no other one of its topic has, if it can be one here.
// paused is its FoundSchedule.Paused.
func (r *schedules) add(where, name, paused string, s schedule.Schedule) {
	if r.opt.Topic != "" {
		s.Topic = r.opt.Topic
	}
	if err := storekit.CheckTopic(s.Topic); err != nil {
		r.leave(where, "%v: name a topic with --topic", err)
		return
	}
	wanted := scheduleName(name)
	for s.Name = wanted; r.taken[s.Topic+"/"+s.Name] > 0; {
		r.taken[s.Topic+"/"+wanted]++
		s.Name = fmt.Sprintf("%s-%d", wanted, r.taken[s.Topic+"/"+wanted])
	}
	r.taken[s.Topic+"/"+s.Name] = 1
	if s.Name != name {
		r.say(cron.Noted, where, "its name is %s here", s.Name)
	}
	if r.opt.Overlap != nil {
		s.Overlap = *r.opt.Overlap
	}
	if r.opt.Missed != nil {
		s.Missed = *r.opt.Missed
	}
	s.MaxAttempts = cmp.Or(r.opt.MaxAttempts, s.MaxAttempts)
	if _, err := s.Preview(r.opt.Now, 0); err != nil {
		r.leave(where, "%v", err)
		return
	}
	if paused != "" {
		r.say(cron.Noted, where, "it is %s: as a new schedule it is put as paused, until punctual schedule resume %s %s", paused, s.Topic, s.Name)
	}
	r.all = append(r.all, FoundSchedule{s, paused})
}

// times sets the times of a schedule from an expression of a dialect. It returns false where it has
// left the entry out.
func (r *schedules) times(where string, s *schedule.Schedule, spec string, d cron.Dialect) bool {
	loc, err := cron.LoadZone(s.Zone)
	if err != nil {
		r.leave(where, "%v", err)
		return false
	}
	t, err := cron.Translate(spec, d)
	if err != nil {
		r.leave(where, "%v", err)
		return false
	}
	text, findings := t.In(where, loc, r.opt.Now)
	s.Spec = text
	r.findings = append(r.findings, findings...)
	return true
}

// scheduleName returns text as the name of a schedule: "-" stands for each character that such a
// name cannot have, and a text that is too long is cut.
func scheduleName(text string) string {
	const longest = schedule.MaxName - len("-9999")
	name := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= ':' || c == '.' || c == '_' || c == '-' {
			return c
		}
		return '-'
	}, text)
	return cmp.Or(name[:min(len(name), longest)], "schedule")
}

// ReadSchedules reads the schedules that a system, Asynq, BullMQ or Quartz, has in the Redis (Dial)
// or PostgreSQL that a URL names. findings say what a user should know of them, what changes, and
// why others were left out.
func ReadSchedules(ctx context.Context, url string, kind Kind, o ScheduleOptions) (all []FoundSchedule, findings []cron.Finding, err error) {
	if kind == Quartz {
		return quartzSchedules(ctx, url, o)
	}
	client, err := redisstore.Connect(url)
	if err != nil {
		return nil, nil, fmt.Errorf("the source: %w", err)
	}
	defer func() {
		if closing := client.Close(); closing != nil {
			err = errors.Join(err, fmt.Errorf("close the connection to the source: %w", closing))
		}
	}()
	if kind == BullMQ {
		return bullSchedules(ctx, client, o)
	}
	return asynqSchedules(ctx, client, o)
}

// asynqSchedules reads the periodic tasks that asynq's schedulers have registered. Each running
// scheduler writes down its own every five seconds and they expire, so a scheduler has to run
// meanwhile.
func asynqSchedules(ctx context.Context, client redis.UniversalClient, o ScheduleOptions) ([]FoundSchedule, []cron.Finding, error) {
	keys, err := client.ZRange(ctx, "asynq:schedulers", 0, -1).Result()
	if err != nil {
		return nil, nil, fmt.Errorf("read asynq's schedulers: %w", err)
	}
	times := make(map[string]int) // how often an entry stands there, in one scheduler or several
	entries := make(map[string]*asynqEntry)
	for _, key := range keys {
		list, err := client.LRange(ctx, key, 0, -1).Result()
		if err != nil {
			return nil, nil, fmt.Errorf("read asynq's scheduler %s: %w", key, err)
		}
		for _, text := range list {
			e, err := parseAsynqEntry([]byte(text))
			if err != nil {
				return nil, nil, fmt.Errorf("read asynq's scheduler %s: an entry is none: %w", key, err)
			}
			entries[e.key()] = e
			times[e.key()]++
		}
	}
	r := newSchedules(&o)
	if len(entries) > 0 {
		r.say(cron.Noted, "all tasks", "asynq does not write down their headers: where tasks have some, add them with punctual schedule put --header")
	}
	for _, k := range slices.Sorted(maps.Keys(entries)) {
		r.entry = len(r.findings)
		if times[k] > 1 {
			r.say(cron.Changed, entries[k].typ, "it was registered %d times, so asynq enqueues it %d times; here it is stored once", times[k], times[k])
		}
		r.asynq(entries[k])
	}
	return r.all, r.findings, nil
}

// asynqEntry is what matters of asynq's message SchedulerEntry.
type asynqEntry struct {
	spec, typ string
	payload   []byte
	options   []string
}

// key tells entries apart; the ID of an entry is another one at each start.
func (e *asynqEntry) key() string {
	return strings.Join(append([]string{e.typ, e.spec, string(e.payload)}, e.options...), "\x00")
}

func parseAsynqEntry(b []byte) (*asynqEntry, error) {
	e := &asynqEntry{}
	err := parseFields(b, map[protowire.Number]any{2: &e.spec, 3: &e.typ, 4: &e.payload, 5: &e.options})
	if err == nil && (e.typ == "" || e.spec == "") {
		err = fmt.Errorf("it has no type or no times")
	}
	return e, err
}

func (r *schedules) asynq(e *asynqEntry) {
	s := schedule.Schedule{Topic: "default", Body: e.payload, Headers: map[string]string{asynqHeaderType: e.typ}, Zone: r.opt.Zone}
	s.MaxAttempts = 26 // asynq retries 25 times unless MaxRetry says otherwise
	spec := robfigZone(e.spec, &s.Zone)
	if s.Zone == "" {
		r.leave(e.typ, "say with --zone which zone the scheduler's location is: asynq does not store it, and its default is UTC")
		return
	}
	if strings.HasPrefix(spec, "@every") {
		r.say(cron.Noted, e.typ, "%s counts from 1970 here, and from the start of the scheduler in asynq", spec)
	}
	if !r.times(e.typ, &s, spec, cron.Asynq) {
		return
	}
	for _, option := range queueFirst(e.options) { // because notes name the topic
		name, value, _ := strings.Cut(strings.TrimSuffix(option, ")"), "(")
		if !r.asynqOption(e.typ, &s, name, value) {
			return
		}
	}
	if r.opt.ByType {
		s.Topic = e.typ
	}
	r.add(e.typ, e.typ, "", s)
}

// robfigZone cuts the zone from the front of an expression of robfig/cron, if there is one.
func robfigZone(spec string, zone *string) string {
	for _, prefix := range []string{"TZ=", "CRON_TZ="} {
		if rest, ok := strings.CutPrefix(spec, prefix); ok {
			*zone, spec, _ = strings.Cut(rest, " ")
		}
	}
	return spec
}

// queueFirst returns the options with the one that names the queue in front.
func queueFirst(options []string) []string {
	return slices.SortedStableFunc(slices.Values(options), func(a, b string) int {
		isQueue := func(o string) int {
			if strings.HasPrefix(o, "Queue(") {
				return 0
			}
			return 1
		}
		return isQueue(a) - isQueue(b)
	})
}

// asynqOption applies an option that the tasks are enqueued with. It returns false where the task
// cannot be taken.
func (r *schedules) asynqOption(typ string, s *schedule.Schedule, name, value string) bool {
	bad := func(err error) bool {
		r.leave(typ, "option %s(%s) cannot be read: %v", name, value, err)
		return false
	}
	switch name {
	case "Queue":
		queue, err := strconv.Unquote(value)
		if err != nil {
			return bad(err)
		}
		s.Topic = queue
	case "MaxRetry":
		n, err := strconv.Atoi(value)
		if err != nil {
			return bad(err)
		}
		s.MaxAttempts = min(max(n, 0)+1, limits.MaxAttemptsLimit)
	case "Timeout":
		d, err := time.ParseDuration(value)
		if err != nil {
			return bad(err)
		}
		s.Headers[asynqHeaderTimeout] = strconv.FormatInt(int64(d/time.Second), 10)
	case "Unique", "TaskID":
		kind := cron.Changed
		if o := r.opt.Overlap; o != nil && *o == schedule.OverlapSkip {
			kind = cron.Noted
		}
		r.say(kind, typ, "%s(%s) keeps a task from being enqueued beside another one; the nearest here is --overlap skip", name, value)
	case "Retention":
		r.say(cron.Noted, typ, "Retention(%s) is a setting of the topic here: punctual topic set %s --finished-retention %s", value, s.Topic, value)
	case "Group":
		r.leave(typ, "Group(%s) has asynq deliver several tasks as one, which has no counterpart here", value)
		return false
	case "ProcessIn", "ProcessAt", "Deadline":
		r.leave(typ, "%s(%s) has no counterpart in a schedule here: change its times, or use --expire of a schedule that you put yourself", name, value)
		return false
	default:
		r.leave(typ, "option %s(%s) is not known here", name, value)
		return false
	}
	return true
}

// headerBullName has the name of the job that BullMQ would have added.
const headerBullName = "bullmq-name"

// bullSchedules reads BullMQ's job schedulers, and the repeatable jobs of its versions before 5.16
// that name their times.
func bullSchedules(ctx context.Context, client redis.UniversalClient, o ScheduleOptions) ([]FoundSchedule, []cron.Finding, error) {
	o.Prefix = cmp.Or(o.Prefix, "bull")
	queues := o.Queues
	if len(queues) == 0 {
		var err error
		if queues, err = (&redisOrigin{client: client}).bullQueues(ctx, o.Prefix, "repeat"); err != nil {
			return nil, nil, fmt.Errorf("look for BullMQ's queues: %w", err)
		}
		slices.Sort(queues)
		queues = slices.Compact(queues)
	}
	r := newSchedules(&o)
	for _, queue := range queues {
		set := o.Prefix + ":" + queue + ":repeat"
		ids, err := client.ZRangeWithScores(ctx, set, 0, -1).Result()
		if err != nil {
			return nil, nil, fmt.Errorf("read BullMQ's schedulers of the queue %s: %w", queue, err)
		}
		for _, id := range ids {
			name, _ := id.Member.(string)
			fields, err := client.HGetAll(ctx, set+":"+name).Result()
			if err != nil {
				return nil, nil, fmt.Errorf("read BullMQ's scheduler %s of the queue %s: %w", name, queue, err)
			}
			r.entry = len(r.findings)
			r.bull(queue, name, fields)
		}
	}
	return r.all, r.findings, nil
}

// globEscape has a text stand for itself in a pattern of SCAN.
func globEscape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}

func (r *schedules) bull(queue, id string, f map[string]string) {
	where := queue + "/" + id
	s := schedule.Schedule{Topic: queue, Body: []byte(f["data"]), Headers: map[string]string{headerBullName: cmp.Or(f["name"], id)}}
	if len(s.Body) == 0 {
		s.Body = []byte("{}") // which BullMQ leaves out
	}
	s.MaxAttempts = 1 // unless its options say otherwise
	for _, name := range slices.Sorted(maps.Keys(f)) {
		switch name {
		case "name", "data", "tz", "pattern", "every", "ic", "offset", "opts", "startDate", "endDate", "limit":
		default:
			r.leave(where, "its field %s is not known here", name)
			return
		}
	}
	for name, to := range map[string]*time.Time{"startDate": &s.From, "endDate": &s.Until} {
		if f[name] == "" {
			continue
		}
		ms, err := strconv.ParseInt(f[name], 10, 64)
		if err != nil {
			r.leave(where, "%s %q is no instant in milliseconds", name, f[name])
			return
		}
		*to = time.UnixMilli(ms)
	}
	if !r.bullTimes(where, &s, f) || !r.bullLimit(where, &s, f) || !r.bullOptions(where, &s, f["opts"]) {
		return
	}
	r.add(where, id, "", s)
}

func (r *schedules) bullTimes(where string, s *schedule.Schedule, f map[string]string) bool {
	switch {
	case f["every"] != "":
		every, err := strconv.ParseInt(f["every"], 10, 64)
		if err != nil || every < 1000 || every%1000 != 0 {
			r.leave(where, "every %s ms: times here are of whole seconds", f["every"])
			return false
		}
		s.Spec = "@every " + (time.Duration(every) * time.Millisecond).String()
		if offset := f["offset"]; offset != "" && offset != "0" {
			r.say(cron.Changed, where, "it comes %s ms behind the multiples of its interval since 1970, and here at these", offset)
		}
	case f["pattern"] != "":
		s.Zone = cmp.Or(f["tz"], r.opt.Zone)
		if s.Zone == "" {
			r.leave(where, "say with --zone which zone's clock it means: BullMQ takes that of the machine where it names none")
			return false
		}
		return r.times(where, s, f["pattern"], cron.BullMQ)
	default:
		r.leave(where, "it has neither a pattern nor an interval: one of a BullMQ before 5, or with a strategy of its own")
		return false
	}
	return true
}

// bullLimit takes the number of jobs that are left, the one that BullMQ has added ahead among them.
func (r *schedules) bullLimit(where string, s *schedule.Schedule, f map[string]string) bool {
	if f["limit"] == "" {
		return true
	}
	limit, err := strconv.ParseInt(f["limit"], 10, 64)
	made, err2 := strconv.ParseInt(cmp.Or(f["ic"], "1"), 10, 64)
	if err != nil || err2 != nil || limit-made+1 < 1 {
		r.leave(where, "its limit of %s jobs is reached, or cannot be read", f["limit"])
		return false
	}
	s.Limit = limit - made + 1
	return true
}

// bullOptions takes the options of the jobs.
func (r *schedules) bullOptions(where string, s *schedule.Schedule, text string) bool {
	if text == "" {
		return true
	}
	var options map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &options); err != nil {
		r.leave(where, "its options cannot be read: %v", err)
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		value := string(options[name])
		switch name {
		case "attempts":
			if err := json.Unmarshal(options[name], &s.MaxAttempts); err != nil || s.MaxAttempts < 0 {
				r.leave(where, "%s attempts: that is no number", value)
				return false
			}
			s.MaxAttempts = min(max(s.MaxAttempts, 1), limits.MaxAttemptsLimit)
		case "backoff":
			r.say(cron.Changed, where, "backoff %s is a setting of the topic here: punctual topic set %s --backoff …", value, s.Topic)
		case "removeOnComplete", "removeOnFail", "keepLogs", "stackTraceLimit", "sizeLimit":
			// What is kept of jobs, and how large they may be, is nothing of the schedule here.
		default:
			r.say(cron.Changed, where, "option %s of its jobs, %s, has no counterpart here", name, value)
		}
	}
	return true
}
