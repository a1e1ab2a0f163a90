package importer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// Triggers of Quartz 2, as its JDBC store keeps them in PostgreSQL.

// quartzTrigger is a trigger with its job, in the order of the columns of quartzSQL. Times are in
// milliseconds since 1970, and 0 where there is none.
type quartzTrigger struct {
	Scheduler, Name, Type, State, Calendar, Job, Class string
	Start, End, Next, Misfire, Priority                int64
	Single, Recover, Persist                           bool
	JobData, Data                                      []byte
	Cron, Zone                                         string
	Count, Interval, Triggered                         int64
}

const quartzSQL = `select sched_name, trigger_group || '.' || trigger_name, trigger_type, trigger_state, coalesce(calendar_name, ''), job_group || '.' || job_name, job_class_name,
	start_time, coalesce(end_time, 0), coalesce(next_fire_time, 0), coalesce(misfire_instr, 0)::bigint, coalesce(priority, 5)::bigint,
	is_nonconcurrent::text::bool, requests_recovery::text::bool, is_update_data::text::bool, j.job_data, t.job_data,
	coalesce(cron_expression, ''), coalesce(time_zone_id, ''), coalesce(repeat_count, 0), coalesce(repeat_interval, 0), coalesce(times_triggered, 0)
	from qrtz_triggers t join qrtz_job_details j using (sched_name, job_group, job_name)
	left join qrtz_cron_triggers using (sched_name, trigger_group, trigger_name) left join qrtz_simple_triggers using (sched_name, trigger_group, trigger_name)
	where cardinality($1::text[]) = 0 or sched_name = any($1) order by 1, 2`

// quartzSchedules reads the triggers of the schedulers that o.Queues names, or of all.
func quartzSchedules(ctx context.Context, url string, o ScheduleOptions) (_ []FoundSchedule, _ []cron.Finding, err error) {
	conn, err := dialPostgres(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if closing := conn.Close(context.WithoutCancel(ctx)); closing != nil {
			err = errors.Join(err, fmt.Errorf("close the connection to the source: %w", closing))
		}
	}()
	statement := strings.ReplaceAll(quartzSQL, "qrtz_", o.Prefix) // as Quartz itself does
	all, err := query(ctx, &pgOrigin{conn: conn}, "read Quartz's triggers", pgx.RowToStructByPos[quartzTrigger], statement, append([]string{}, o.Queues...))
	var refused *pgconn.PgError
	if errors.As(err, &refused) && slices.Contains([]string{"42P01", "3F000", "42703", "42883", "42601"}, refused.Code) {
		err = storekit.Invalidf("no tables of Quartz 2 begin with %s here (%s): name their beginning with --prefix, and their schema as quartz.qrtz_", o.Prefix, refused.Message)
	}
	if err != nil {
		return nil, nil, err
	}
	r := newSchedules(&o)
	for i := range all {
		r.entry = len(r.findings)
		r.quartz(&all[i])
	}
	return r.all, r.findings, nil
}

func (r *schedules) quartz(t *quartzTrigger) {
	where, paused := t.Scheduler+"/"+t.Name, ""
	s := schedule.Schedule{
		Topic: strings.TrimPrefix(t.Job, "DEFAULT."), From: time.UnixMilli(t.Start), MaxAttempts: 1,
		Headers: map[string]string{"quartz-job": t.Job, "quartz-job-class": t.Class, "quartz-trigger": t.Name},
	}
	switch t.State {
	case "PAUSED", "PAUSED_BLOCKED":
		paused = "paused in Quartz"
	case "WAITING", "ACQUIRED", "BLOCKED":
	default:
		r.leave(where, "its state is %s, so that Quartz does not fire it: reset it there, or remove it", t.State)
		return
	}
	if !r.quartzTimes(where, &s, t) || !r.quartzData(where, &s, t) {
		return
	}
	if paused == "" && t.Next > 0 && time.UnixMilli(t.Next).Before(r.opt.Now.Add(-time.Minute)) && s.Missed != schedule.MissedNone {
		r.say(cron.Changed, where, "Quartz has not fired it at %s, and it does not come for that time here: punctual schedule backfill makes up for it", time.UnixMilli(t.Next).UTC().Format(time.RFC3339))
	}
	s.Overlap = schedule.OverlapAllow
	if t.Single {
		s.Overlap = schedule.OverlapSkip
		r.policy(r.opt.Overlap == nil, where, "with DisallowConcurrentExecution a time waits there until the job, of whichever trigger, has ended; here it is left out while a message of this schedule is not finished (--overlap skip)")
	}
	if t.Recover {
		r.policy(r.opt.MaxAttempts == 0, where, "requestsRecovery has Quartz run it again when its scheduler has died; here that needs --max-attempts 2, which repeats failures, too")
	}
	if t.Persist {
		r.say(cron.Changed, where, "PersistJobDataAfterExecution keeps what a run has changed in its data for the next run, and here each message has the data of now")
	}
	if t.Priority != 5 {
		r.say(cron.Changed, where, "its priority %d has no counterpart here", t.Priority)
	}
	r.add(where, strings.TrimPrefix(t.Name, "DEFAULT."), paused, s)
}

// quartzTimes sets the times, and what becomes of times that were missed.
func (r *schedules) quartzTimes(where string, s *schedule.Schedule, t *quartzTrigger) bool {
	if t.End > 0 {
		s.Until = time.UnixMilli(t.End)
	}
	s.Zone = cmp.Or(t.Zone, r.opt.Zone)
	switch {
	case t.Calendar != "":
		r.leave(where, "its calendar %s excludes times, and it would come at these here: put it yourself, with --except for days", t.Calendar)
	case t.Type == "CRON" && s.Zone == "":
		r.leave(where, "say with --zone which zone's clock it means")
	case t.Type == "CRON":
		s.Missed = map[int64]schedule.Missed{-1: schedule.MissedAll, 2: schedule.MissedNone}[t.Misfire]
		return r.times(where, s, t.Cron, cron.Quartz)
	case t.Type != "SIMPLE":
		r.leave(where, "a trigger of type %s has no expression that could be taken: put it yourself with punctual schedule put", t.Type)
	case t.Count == 0:
		r.leave(where, "it comes once, at %s, and is a delayed message: punctual import postgres takes these from qrtz_triggers, as its help shows", time.UnixMilli(t.Start).UTC().Format(time.RFC3339))
	case t.Interval < 1000 || t.Interval%1000 != 0:
		r.leave(where, "every %d ms: times here are of whole seconds", t.Interval)
	default:
		r.quartzInterval(where, s, t)
		return true
	}
	return false
}

func (r *schedules) quartzInterval(where string, s *schedule.Schedule, t *quartzTrigger) {
	s.Spec = "@every " + (time.Duration(t.Interval) * time.Millisecond).String()
	behind := t.Next % t.Interval
	if behind != 0 {
		r.say(cron.Changed, where, "it comes %d ms behind the multiples of its interval since 1970, and here at these", behind)
	}
	if t.End > 0 {
		s.Until = time.UnixMilli(t.End - 1) // where Quartz does not fire a SimpleTrigger
	}
	misfire := t.Misfire
	if misfire == 0 && t.Count < 0 { // the smart policy
		misfire = 4
	}
	s.Missed = map[int64]schedule.Missed{-1: schedule.MissedAll, 4: schedule.MissedNone, 5: schedule.MissedNone}[misfire]
	if s.Missed == schedule.MissedLatest {
		r.policy(r.opt.Missed == nil, where, "when times were missed, its interval and its number of times begin anew there, and stay as they are here")
	}
	if t.Count > 0 {
		last := t.Start + t.Count*t.Interval
		s.Limit = max(min((last-t.Next)/t.Interval+1, t.Count+1-t.Triggered), 1)
		if until := time.UnixMilli(last + (t.Interval-behind)%t.Interval); s.Missed == schedule.MissedNone && (t.End == 0 || until.Before(s.Until)) {
			s.Until = until // because times that were missed count there
		}
	}
}

// The data of a job is a text of properties where Quartz's useProperties is set, and otherwise a
// map as Java writes it. The second is how such a map ends that is empty.
var (
	javaObject = []byte("\xac\xed\x00\x05")
	javaEmpty  = []byte("w\x08\x00\x00\x00\x10\x00\x00\x00\x00x\x00")
)

// quartzData makes the body from the data of the job and of the trigger.
func (r *schedules) quartzData(where string, s *schedule.Schedule, t *quartzTrigger) bool {
	var parts [][]byte
	for _, data := range [][]byte{t.JobData, t.Data} {
		if !bytes.HasPrefix(data, javaObject) {
			lines := slices.DeleteFunc(bytes.SplitAfter(data, []byte("\n")), func(line []byte) bool { return bytes.HasPrefix(line, []byte("#")) })
			data = bytes.Join(lines, nil) // without the date
		} else if bytes.HasSuffix(data, javaEmpty) {
			continue
		}
		if len(data) > 0 {
			parts = append(parts, data)
		}
	}
	s.Body = bytes.Join(parts, nil) // of properties that come twice the last counts
	switch {
	case !slices.ContainsFunc(parts, func(data []byte) bool { return bytes.HasPrefix(data, javaObject) }):
	case len(parts) > 1:
		r.leave(where, "its job and the trigger both have data in Java's serialised form, which is not merged here")
		return false
	default:
		r.say(cron.Changed, where, "its data is a JobDataMap in Java's serialised form, and the body has it like that: a consumer in Java can read it with Quartz's classes")
	}
	return true
}
