package importer

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// imported is what a test compares of a message.
type imported struct {
	id, body string
	due      string
	attempts int
	headers  map[string]string
}

func (r *rig) imported(topic string) (out []imported) {
	for _, m := range r.messages(topic) {
		out = append(out, imported{m.ID, string(m.Body), m.Due.UTC().Format("2006-01-02T15:04:05.000"), m.MaxAttempts, m.Headers})
	}
	return out
}

// Jobs that BullMQ 6.7.0 itself wrote are imported with their IDs, data, times, attempts and what
// else they have in headers. Jobs of flows and of job schedulers stay and are named, and so is what
// has no effect here.
func TestBullMQ(t *testing.T) {
	r := newRig(t)
	r.restore("testdata/bullmq-6.7.0.ndjson")
	survey := r.survey(Options{Kind: BullMQ})
	if n := survey.Add(func(s *SetReport) int64 { return s.Importable }); len(survey.Sets) != 12 || n != 10 || survey.Rejects() != 2 {
		t.Errorf("survey: %d sets, importable %d, rejected %d; want 12, 10 and 2", len(survey.Sets), n, survey.Rejects())
	}
	var notes []string
	for _, s := range survey.Sets {
		notes = append(notes, s.Notes...)
		if s.Name == "mail" && s.Part == "wait" && (len(s.Samples) != 2 || s.Samples[0].ID != "4") {
			t.Errorf("waiting: %+v; want first what a worker would take next", s.Samples)
		}
	}
	for _, want := range []string{"failed: 1; --part failed", "parents of flows that wait for their children: 1;", "job schedulers: 1;"} {
		if !strings.Contains(strings.Join(notes, "\n"), want) {
			t.Errorf("the notes %q do not say %q", notes, want)
		}
	}
	if r.client.Exists(t.Context(), "bull:mail:de:d1").Val() == 0 {
		t.Fatal("this test shows nothing: no deduplication stands")
	}
	var rejects []string
	o := Options{Kind: BullMQ, Rejected: func(j Reject) error { rejects = append(rejects, j.Member+": "+j.Text); return nil }}
	rep := r.move(o)
	if n := rep.Add(func(s *SetReport) int64 { return s.Stored }); n != 10 {
		t.Errorf("stored %d, want 10", n)
	}
	slices.Sort(rejects)
	if len(rejects) != 2 || !strings.Contains(rejects[0], "it is a child of the job bull:mail:0e077b0d-") || !strings.Contains(rejects[1], "repeat:every:1795931180497: a job scheduler has added it") {
		t.Errorf("rejected %q; want the child of a flow and the job of a scheduler", rejects)
	}
	changed := map[string]int64{}
	for _, s := range rep.Sets {
		for what, n := range s.Changed {
			what, _, _ = strings.Cut(what, ",")
			changed[what] += n
		}
	}
	if want := map[string]int64{"a priority": 3, "lifo: messages come in the order of their due times": 1, "a backoff of its own: the retry delays are those of the topic here (punctual topic set --backoff)": 2, "retries at once": 1}; !maps.Equal(changed, want) {
		t.Errorf("changed %v, want %v", changed, want)
	}
	headers := func(queue, name string, more ...string) map[string]string {
		h := map[string]string{"bullmq-name": name, "bullmq-queue": queue}
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = more[i+1]
		}
		return h
	}
	want := map[string][]imported{
		"mail": {
			{"3", `{"to":"c"}`, "2026-11-29T05:46:20.472", 1, headers("mail", "now")},
			{"4", `{"to":"d"}`, "2026-11-29T05:46:20.475", 1, headers("mail", "now")},
			{"5", `{"to":"e"}`, "2026-11-29T05:46:20.480", 3, headers("mail", "prio", "bullmq-priority", "7")},
			{"6", `{"to":"e2"}`, "2026-11-29T05:47:20.487", 1, headers("mail", "prio", "bullmq-priority", "7")},
			{"7", `{"x":1}`, "2026-11-29T05:47:20.491", 1, headers("mail", "dedup")},
			{"1", `{"to":"a"}`, "2026-11-29T06:46:20.437", 1, headers("mail", "welcome")},
			{"T-5", `{"to":"b"}`, "2026-11-29T07:46:20.471", 5, headers("mail", "welcome")},
		},
		"fail": {{"1", `{"a":1}`, "2026-11-29T05:48:00.544", 2, headers("fail", "boom", "bullmq-attempts-made", "1", "bullmq-error", "no boom")}},
		"held": {
			{"1", `{"a":1}`, "2026-11-29T05:46:21.245", 1, headers("held", "x")},
			{"2", `{"a":1}`, "2026-11-29T05:46:21.246", 1, headers("held", "y", "bullmq-priority", "2")},
		},
	}
	for topic, ms := range want {
		if got := r.imported(topic); !reflect.DeepEqual(got, ms) {
			t.Errorf("%s:\n%+v\nwant\n%+v", topic, got, ms)
		}
	}
	if n := r.client.Exists(t.Context(), "bull:mail:T-5", "bull:mail:de:d1").Val(); n != 0 {
		t.Errorf("%d of an imported job and of its deduplication are still there, so that BullMQ drops what comes next", n)
	}
	if ids := r.client.LRange(t.Context(), "bull:mail:wait", 0, -1).Val(); len(ids) != 2 {
		t.Errorf("waiting in BullMQ: %q, want the two that stay", ids)
	}
	o.Parts = []string{"failed"}
	if s := r.move(o).Sets[0]; s.Stored != 1 {
		t.Errorf("failed jobs: %+v, want the one", s)
	}
}

// Jobs of Bull 4.16.5, which counts attempts in another field and keeps priorities apart.
func TestBull(t *testing.T) {
	r := newRig(t)
	r.restore("testdata/bull-4.16.5.ndjson")
	if rep := r.move(Options{Kind: BullMQ, Parts: []string{"delayed", "wait", "failed"}}); rep.Rejects() != 0 {
		t.Errorf("rejected %d", rep.Rejects())
	}
	want := map[string][]imported{
		"old": {
			{"J-1", `{"o":2}`, "2026-11-29T05:46:21.261", 1, map[string]string{"bullmq-name": "__default__", "bullmq-queue": "old"}},
			{"3", `{"o":3}`, "2026-11-29T05:46:21.262", 1, map[string]string{"bullmq-name": "__default__", "bullmq-queue": "old", "bullmq-priority": "3"}},
			{"1", `{"o":1}`, "2026-11-29T06:46:21.250", 4, map[string]string{"bullmq-name": "oldname", "bullmq-queue": "old"}},
		},
		"oldfail": {
			{"2", `{"z":2}`, "2026-11-29T05:46:21.572", 1, map[string]string{"bullmq-name": "__default__", "bullmq-queue": "oldfail", "bullmq-attempts-made": "1", "bullmq-error": "x"}},
			{"1", `{"z":1}`, "2026-11-29T05:48:01.579", 1, map[string]string{"bullmq-name": "__default__", "bullmq-queue": "oldfail", "bullmq-attempts-made": "1", "bullmq-error": "x"}},
		},
	}
	for topic, ms := range want {
		if got := r.imported(topic); !reflect.DeepEqual(got, ms) {
			t.Errorf("%s:\n%+v\nwant\n%+v", topic, got, ms)
		}
	}
	if n := r.client.ZCard(t.Context(), "bull:old:priority").Val(); n != 0 {
		t.Errorf("%d priorities of imported jobs are still there", n)
	}
}

// Behind the year 2039 the scores of BullMQ lose digits: the due time stays right to a millisecond,
// and is never early.
func TestBullScores(t *testing.T) {
	r := newRig(t)
	due := time.Date(2099, 12, 31, 23, 59, 59, 999e6, time.UTC)
	for i, counter := range []int64{0, 1, 4094, 4095} {
		id := string(rune('a' + i))
		r.job("far", id, "{}", 4e9)
		r.zadd("{bull}:far:delayed", id, float64(due.UnixMilli()*bullTick+counter))
	}
	r.move(Options{Kind: BullMQ, Prefix: "{bull}", Names: []string{"far"}})
	for _, m := range r.messages("far") {
		if late := m.Due.Sub(due); late < 0 || late > time.Millisecond {
			t.Errorf("%s is due at %v, want %v", m.ID, m.Due, due)
		}
	}
}

// What cannot be read as a job stays and is named.
func TestBullBadJobs(t *testing.T) {
	r := newRig(t)
	for id, fields := range map[string][]any{
		"no-opts":     {"name", "a", "data", "{}", "timestamp", "1795931180437"},
		"no-time":     {"name", "a", "data", "{}", "opts", "{}"},
		"a-parent":    {"name", "a", "data", "{}", "opts", "{}", "timestamp", "1795931180437"},
		"an-id\x7f-x": {"name", "a", "data", "{}", "opts", "{}", "timestamp", "1795931180437"},
	} {
		r.must(r.client.HSet(t.Context(), "{bull}:q:"+id, fields...).Err())
		r.must(r.client.LPush(t.Context(), "{bull}:q:wait", id).Err())
	}
	r.must(r.client.LPush(t.Context(), "{bull}:q:wait", "gone").Err())
	r.must(r.client.HSet(t.Context(), "{bull}:q:a-parent:processed", "k", "v").Err())
	got := map[string]string{}
	o := Options{Kind: BullMQ, Prefix: "{bull}", Names: []string{"q"}, Rejected: func(j Reject) error { got[j.Member] = string(j.Reason) + ": " + j.Text; return nil }}
	rep := r.move(o)
	for id, want := range map[string]string{
		"no-opts": "layout: the options of the job cannot be read", "no-time": "layout: the job does not say when it was added",
		"a-parent": "layout: it is the parent of a flow", "gone": "layout: there is no job with this ID",
	} {
		if !strings.HasPrefix(got[id], want) {
			t.Errorf("%s: %q, want %q", id, got[id], want)
		}
	}
	ms := r.messages("q")
	if len(ms) != 1 || ms[0].Headers["bullmq-id"] != "an-id\x7f-x" || rep.Changed() != 1 {
		t.Errorf("imported %+v, renamed %d; want the job whose ID no message can have, under another one", ms, rep.Changed())
	}
}
