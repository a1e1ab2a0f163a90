package importer

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/redisstore"
)

func TestZSet(t *testing.T) {
	for unit, scale := range map[time.Duration]float64{time.Second: 1, time.Millisecond: 1000} {
		r := newRig(t)
		r.zadd("jobs", "far", 4102488000.25*scale)
		r.zadd("jobs", "near\x00\xff", 4102487999*scale)
		o := Options{Kind: ZSet, Names: []string{"jobs"}, Topic: "orders"}
		before := r.everything()
		found := r.survey(o)
		if !found.Guessed || found.Unit != unitWord(unit) || found.Sets[0].Importable != 2 || found.Sets[0].Overdue != 0 {
			t.Errorf("survey: %+v, set %+v; want the unit %v guessed and 2 importable", found, found.Sets[0], unit)
		}
		if got := r.everything(); got != before {
			t.Errorf("the survey changed the source from\n%s\nto\n%s", before, got)
		}
		if _, err := r.tryMove(o); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("a move without a unit: %v, want ErrInvalid", err)
		}
		o.Unit = unit
		rep := r.move(o)
		if s := rep.Sets[0]; s.Stored != 2 || s.Remaining != 0 || s.StillStaged != 0 {
			t.Errorf("report %+v, want 2 stored and nothing left", s)
		}
		ms := r.messages("orders")
		if got := bodies(ms); !slices.Equal(got, []string{"near\x00\xff", "far"}) {
			t.Fatalf("bodies %q", got)
		}
		if !ms[0].Due.Equal(seconds(4102487999)) || !ms[1].Due.Equal(seconds(4102488000).Add(250*time.Millisecond)) {
			t.Errorf("due %v and %v", ms[0].Due, ms[1].Due)
		}
		if got := r.everything(); got != "" {
			t.Errorf("the source still holds\n%s", got)
		}
	}
}

func TestUnitThatCannotBeGuessed(t *testing.T) {
	for _, scores := range [][]float64{{1.7e9, 1.7e12}, {5, 1e300}, {}} {
		r := newRig(t)
		for i, score := range scores {
			r.zadd("jobs", fmt.Sprint(i), score)
		}
		im, err := newRedis(r.client, Options{Kind: ZSet, Names: []string{"jobs"}, Topic: "orders"})
		r.must(err)
		if _, err = im.Survey(t.Context()); !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "--unit") {
			t.Errorf("scores %v: %v, want an ErrInvalid that names --unit", scores, err)
		}
	}
}

// One score that is wrong does not keep the others from being understood.
func TestUnitWithAnOutlier(t *testing.T) {
	r := newRig(t)
	r.zadd("jobs", "right", 1.7e12)
	r.zadd("jobs", "wrong", 1e300)
	if found := r.survey(Options{Kind: ZSet, Names: []string{"jobs"}, Topic: "orders"}); found.Unit != "ms" || found.Rejects() != 1 {
		t.Errorf("unit %v, %d rejected; want ms and one", found.Unit, found.Rejects())
	}
}

func TestScores(t *testing.T) {
	for _, c := range []struct {
		score float64
		unit  time.Duration
		want  int64 // ms; 0 is a problem
	}{
		{1.7e9, time.Second, 1.7e12},
		{1.7e9 + 0.0001, time.Second, 1.7e12 + 1}, // rounded up: never early (P2)
		{1.7e12, time.Millisecond, 1.7e12},
		{1.7e12 + 0.5, time.Millisecond, 1.7e12 + 1},
		{253402300799.999, time.Second, 253402300799999},
		{253402300800, time.Second, 0}, // the year 10000 (P9)
		{1.7e12, time.Second, 0},       // milliseconds
		{1.7e9, time.Millisecond, 0},   // seconds: would be delivered at once
		{0, time.Second, 0},
		{-1.7e9, time.Second, 0},
		{math.Inf(1), time.Second, 0},
		{math.Inf(-1), time.Millisecond, 0},
		{math.NaN(), time.Millisecond, 0},
	} {
		due, p := dueOf(c.score, c.unit)
		if (p == nil) != (c.want != 0) || p == nil && due.UnixMilli() != c.want {
			t.Errorf("score %v in %v is due at %d, %v; want %d", c.score, c.unit, due.UnixMilli(), p, c.want)
		}
	}
}

// Bad entries are reported one by one and stay exactly as they are; the others are moved.
func TestBadEntriesStay(t *testing.T) {
	big := strings.Repeat("x", limits.DefaultMaxBody+1)
	for name, c := range map[string]struct {
		o    Options
		fill func(r *rig)
		want map[Reason]int64
	}{
		"zset": {
			Options{Kind: ZSet, Names: []string{"jobs"}, Topic: "t", Unit: time.Second},
			func(r *rig) {
				r.zadd("jobs", "inf", math.Inf(1))
				r.zadd("jobs", "-inf", math.Inf(-1))
				r.zadd("jobs", "ms", 1.7e12)
				r.zadd("jobs", "zero", 0)
				r.zadd("jobs", big, 4e9)
			},
			map[Reason]int64{BadScore: 4, BadBody: 1},
		},
		"beedelayqueue": {
			Options{Kind: BeeDelayQueue, Names: []string{"jobs"}, Topic: "t"},
			func(r *rig) {
				key := beeOrder + "jobs"
				r.zadd(key, "not JSON", 4e9)
				r.zadd(key, `["a"]`, 4e9)
				r.zadd(key, `{"id":"1","body":"no topic"}`, 4e9)
				r.bee(key, "others", "2", "x", 4e9, 1)
				r.bee(key, "jobs", "3", "x", 4e12, 1)
			},
			map[Reason]int64{BadLayout: 4, BadScore: 1},
		},
		"redisson": {
			Options{Kind: Redisson, Names: []string{"jobs"}, Topic: "t", Codec: CodecJSON},
			func(r *rig) {
				r.offer("jobs", "short", 4e12)
				r.offer("jobs", r.pack("", "12345678", `{}`)+"!", 4e12)
				r.offer("jobs", r.pack("", "12345678", "not JSON"), 4e12)
				r.offer("jobs", r.pack("", "12345679", `{}`), 4e9)
			},
			map[Reason]int64{BadLayout: 2, BadBody: 1, BadScore: 1},
		},
		"asynq": {
			Options{Kind: Asynq, Names: []string{"jobs"}, ByType: true},
			func(r *rig) {
				r.task("jobs", "4", "", "", 4e9) // no type
				r.task("jobs", "5", "a b", "", 4e9)
				r.zadd("asynq:{jobs}:scheduled", "no task", 4e9)
				r.task("jobs", "6", "t", "group", 4e9)
				r.must(r.client.HSet(r.t.Context(), "asynq:{jobs}:t:7", "msg", "\xff").Err())
				r.zadd("asynq:{jobs}:scheduled", "7", 4e9)
			},
			map[Reason]int64{BadLayout: 4, BadTopic: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c.fill(r)
			before := r.everything()
			r.good(c.o.Kind, "jobs", 3)
			var rejects []Reject
			c.o.Rejected = func(x Reject) error { rejects = append(rejects, x); return nil }
			if found := r.survey(c.o).Sets[0]; !maps.Equal(found.Rejected, c.want) || found.Importable != 3 {
				t.Errorf("survey: rejected %v, importable %d; want %v and 3", found.Rejected, found.Importable, c.want)
			}
			rejects = nil
			s := r.move(c.o).Sets[0]
			if !maps.Equal(s.Rejected, c.want) || s.Stored != 3 {
				t.Errorf("rejected %v, stored %d; want %v and 3", s.Rejected, s.Stored, c.want)
			}
			if got := r.everything(); got != before {
				t.Errorf("the source held\n%s\nand now\n%s", before, got)
			}
			for _, x := range rejects {
				if x.Set != s.Key || x.Text == "" || x.Reason == "" {
					t.Errorf("reject %+v does not say what is wrong", x)
				}
			}
			if int64(len(rejects)) != s.Found-3 {
				t.Errorf("%d rejects were reported, want %d", len(rejects), s.Found-3)
			}
		})
	}
}

func TestKeysOfAnotherType(t *testing.T) {
	for key, o := range map[string]Options{
		"jobs":                                {Kind: ZSet, Names: []string{"jobs"}, Topic: "t", Unit: time.Second},
		"BeeDelay:Queue:Order:jobs":           {Kind: BeeDelayQueue},
		"redisson_delay_queue_timeout:{jobs}": {Kind: Redisson},
		"redisson_delay_queue:{jobs}":         {Kind: Redisson, Names: []string{"jobs"}},
		"asynq:{jobs}:retry":                  {Kind: Asynq, Names: []string{"jobs"}},
	} {
		r := newRig(t)
		r.must(r.client.Set(t.Context(), key, "text", 0).Err())
		if _, err := r.tryMove(o); !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s is a string: %v, want an ErrInvalid that names it", key, err)
		}
	}
}

// Taking messages out of Punctual's own keys would break its store.
func TestOwnKeysAreRefused(t *testing.T) {
	r := newRig(t)
	for _, key := range []string{"punctual:{orders#0}:t", "shop:{orders#12}:l", "punctual:{orders#0}@events:t", "punctual:topics"} {
		r.zadd(key, "id", 1.7e12)
		o := Options{Kind: ZSet, Names: []string{key}, Topic: "t", Unit: time.Millisecond}
		if _, err := r.tryMove(o); !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "own") {
			t.Errorf("%s: %v, want ErrInvalid", key, err)
		}
	}
}

func TestBeeDelayQueue(t *testing.T) {
	r := newRig(t)
	r.bee(beeOrder+"orderCancel", "orderCancel", "20260826-123-1571987125435000000-018-0001", `{"order":1}`, 4e9, 2)
	r.bee(beeOrder+"others", "others", "id with ü", "body", 4e9, 1)
	r.bee(beeOrder+"orderCancel_Ack", "orderCancel", "a", "being worked on", 4e9, 1)
	r.bee(beeOrder+"Discard:orderCancel_20260827", "orderCancel", "d", "given up", 4e9, 3)
	found := r.survey(Options{Kind: BeeDelayQueue})
	if len(found.Sets) != 2 || len(found.Sets[0].Notes) != 1 || !strings.Contains(found.Sets[0].Notes[0], "not acked yet: 1") {
		t.Errorf("survey found %d sets, first %+v; want 2 and a note of the one not acked", len(found.Sets), found.Sets[0])
	}
	r.move(Options{Kind: BeeDelayQueue, Topics: map[string]string{"others": "new.others"}})
	m := r.messages("orderCancel")[0]
	if m.ID != "20260826-123-1571987125435000000-018-0001" || string(m.Body) != `{"order":1}` || !m.Due.Equal(seconds(4e9)) ||
		!maps.Equal(m.Headers, map[string]string{beeHeaderCreated: "3999999940", beeHeaderRetry: "2"}) {
		t.Errorf("message %+v", m)
	}
	if got := bodies(r.messages("new.others")); !slices.Equal(got, []string{"body"}) {
		t.Errorf("the topic with a new name has %q", got)
	}
	// The topic is found although nothing waits there any more.
	s := r.move(Options{Kind: BeeDelayQueue, Parts: []string{"ack"}}).Sets[0]
	if s.Stored != 1 || len(r.messages("orderCancel")) != 2 {
		t.Errorf("part ack: %+v", s)
	}
}

// A consumer of BeeDelayQueue that holds the lock may have read a message that it is about to
// remove. It will deliver that message in any case.
func TestBeeDelayQueueLock(t *testing.T) {
	r := newRig(t)
	r.bee(beeOrder+"jobs", "jobs", "1", "x", r.now()-1, 1)
	lock := "BeeDelay:Queue:Lock:jobs"
	r.must(r.client.Set(t.Context(), lock, "jobs", 3*time.Second).Err())
	takes := 0
	r.client.AddHook(&scriptHook{around: func(call func() error) error {
		if takes++; takes == 3 {
			// What the consumer does before it unlocks.
			r.must(r.client.ZRemRangeByRank(t.Context(), beeOrder+"jobs", 0, -1).Err())
			r.must(r.client.Del(t.Context(), lock).Err())
		}
		return call()
	}})
	s := r.move(Options{Kind: BeeDelayQueue}).Sets[0]
	if s.Stored != 0 || s.Gone != 1 || takes < 3 {
		t.Errorf("stored %d, gone %d after %d tries; the consumer has it", s.Stored, s.Gone, takes)
	}
}

func TestRedisson(t *testing.T) {
	r := newRig(t)
	r.offer("jobs", r.pack("", "\x00\x01\x02\x03\x04\x05\x06\x07", `"zwei"`), 4e12+1)
	r.offer("jobs", r.pack("before 3.21.1", "1870427430521884606", `"eins"`), 4e12)
	r.must(r.client.RPush(t.Context(), "redisson_delay_queue:{jobs}", r.pack("", "orphan!!", "x")).Err())
	r.must(r.client.RPush(t.Context(), "jobs", "due already").Err())
	found := r.survey(Options{Kind: Redisson})
	if s := found.Sets[0]; s.Name != "jobs" || s.Importable != 2 || len(s.Notes) != 2 {
		t.Errorf("survey: %+v; want queue jobs, 2 importable and notes of the due one and the orphan", s)
	}
	r.move(Options{Kind: Redisson, Codec: CodecJSONText})
	ms := r.messages("jobs")
	if got := bodies(ms); !slices.Equal(got, []string{"eins", "zwei"}) || ms[1].Due.UnixMilli() != 4e12+1 {
		t.Errorf("bodies %q, due %v", got, ms[1].Due)
	}
	list, err := r.client.LRange(t.Context(), "redisson_delay_queue:{jobs}", 0, -1).Result()
	if err != nil || len(list) != 1 {
		t.Errorf("the list still has %q, %v; want the orphan alone", list, err)
	}
}

// Whatever bytes the value has, unpack returns it from the new layout, and from the old one if its
// first random byte is not 8.
func TestUnpack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := string(rapid.SliceOf(rapid.Byte()).Draw(t, "value"))
		random := string(rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "random"))
		length := string([]byte{byte(len(value)), byte(len(value) >> 8), 0, 0, 0, 0, 0, 0})
		if got, ok := unpack("\x08" + random + length + value); !ok || got != value {
			t.Errorf("new layout: %q, %v", got, ok)
		}
		if random[0] != 8 { // else both fit when the value is a single zero byte
			if got, ok := unpack(random + length + value); !ok || got != value {
				t.Errorf("old layout: %q, %v", got, ok)
			}
		}
	})
}

// Tasks that asynq 0.26.0 itself wrote are imported with their bodies, times, attempts and headers.
func TestAsynq(t *testing.T) {
	r := newRig(t)
	r.restore("testdata/asynq-0.26.0.ndjson")
	found := r.survey(Options{Kind: Asynq})
	if len(found.Sets) != 4 || found.Add(func(s *SetReport) int64 { return s.Importable }) != 6 || len(found.Sets[2].Changed) != 1 {
		t.Errorf("survey: %d sets, %+v", len(found.Sets), found.Sets[2])
	}
	rep := r.move(Options{Kind: Asynq})
	if n := rep.Add(func(s *SetReport) int64 { return s.Stored }); n != 6 || rep.Rejects() != 0 {
		t.Errorf("stored %d, rejected %d; want 6 and none", n, rep.Rejects())
	}
	type seen struct {
		id, body string
		due      int64
		attempts int
		expires  time.Duration
		headers  map[string]string
	}
	var got []seen
	for _, m := range slices.Concat(r.messages("orders"), r.messages("default")) {
		s := seen{m.ID, string(m.Body), m.Due.Unix(), m.MaxAttempts, 0, m.Headers}
		if !m.Expires.IsZero() {
			s.expires = m.Expires.Sub(m.Due)
		}
		got = append(got, s)
	}
	const due = 4102488000
	want := []seen{
		{"11111111-1111-4111-8111-111111111111", `{"order":1}`, 1826729727, 5, 0, map[string]string{"asynq-type": "order:close", "asynq-queue": "orders", "asynq-retried": "1", "asynq-error": "no such customer", "asynq-timeout": "1800"}},
		{"22222222-2222-4222-8222-222222222222", `{"order":2}`, due, 26, 0, map[string]string{"asynq-type": "order:close", "asynq-queue": "orders", "asynq-timeout": "1800"}},
		{"33333333-3333-4333-8333-333333333333", `{"order":3}`, due + 1, 26, 0, map[string]string{"asynq-type": "order:close", "asynq-queue": "orders", "asynq-timeout": "1800"}},
		{"daily report", "", due + 2, 1, 0, map[string]string{"asynq-type": "report:daily", "asynq-queue": "orders", "asynq-timeout": "90"}},
		{"44444444-4444-4444-8444-444444444444", "\x00\x01\x02\xff", due + 3, 26, time.Hour - 3*time.Second, map[string]string{"asynq-type": "email:send", "asynq-queue": "orders", "asynq-group": "mails", "trace": "abc", "lang": "zh"}},
		{"55555555-5555-4555-8555-555555555555", "a.png", due, 26, 0, map[string]string{"asynq-type": "image:resize", "asynq-queue": "default", "asynq-timeout": "1800"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("imported\n%+v\nwant\n%+v", got, want)
	}
	if n := r.client.Exists(t.Context(), "asynq:{orders}:t:22222222-2222-4222-8222-222222222222", stagingKey("asynq:{orders}:scheduled")).Val(); n != 0 {
		t.Error("the hash of a task that was moved is still there")
	}
	if n := r.client.Exists(t.Context(), "asynq:{orders}:t:pending", "asynq:{orders}:unique:order:close:90b9b1f406cc9c8b4ef13ddbf74840e4").Val(); n != 2 {
		t.Error("a pending task or a unique lock is gone")
	}
}

func TestAsynqByType(t *testing.T) {
	r := newRig(t)
	r.restore("testdata/asynq-0.26.0.ndjson")
	r.move(Options{Kind: Asynq, ByType: true, TopicOf: map[string]string{"order:close": "order.close"}})
	if a, b := len(r.messages("order.close")), len(r.messages("report:daily")); a != 3 || b != 1 {
		t.Errorf("%d of order.close and %d of report:daily, want 3 and 1", a, b)
	}
}

// An ID that a program chose is kept. It comes again for another task, once the first was moved;
// that task gets another ID, and the report names both, whether the first still waits or is done.
func TestAsynqIDsThatComeAgain(t *testing.T) {
	r := newRig(t)
	for day := range int64(4) {
		due := 4e9 + 86400*day
		if day == 2 {
			due = r.now() - 1
			r.consume("jobs")
		}
		r.task("jobs", "daily report", "report", "", due)
		s := r.move(Options{Kind: Asynq, Names: []string{"jobs"}}).Sets[0]
		if s.Stored != 1 || (len(s.Renamed) == 1) != (day > 0) {
			t.Errorf("day %d: %+v", day, s)
		}
		for is, was := range s.Renamed {
			if i := slices.IndexFunc(r.messages("jobs"), func(m punctual.Info) bool { return m.ID == is }); was != "daily report" || i < 0 || r.messages("jobs")[i].Headers[asynqHeaderID] != was {
				t.Errorf("day %d: %q is named as %q", day, was, is)
			}
		}
	}
	if n := len(r.messages("jobs")); n != 4 {
		t.Errorf("%d messages, want 4 (P1)", n)
	}
}

// A task whose deadline comes before it is due, which asynq never runs, is not imported. The
// deadline of another one holds, however far its message is spread.
func TestAsynqDeadline(t *testing.T) {
	r := newRig(t)
	due := r.now() - 60
	for id, deadline := range map[string]int64{"before": due - 1, "at": due, "over": due + 1, "after": r.now() + 3600} {
		r.task("jobs", id, "t", "", due)
		key := "asynq:{jobs}:t:" + id
		msg, err := r.client.HGet(t.Context(), key, "msg").Result()
		r.must(err)
		r.must(r.client.HSet(t.Context(), key, "msg", protowire.AppendVarint(protowire.AppendTag([]byte(msg), 9, protowire.VarintType), uint64(deadline))).Err())
	}
	o := options(Asynq)
	o.Spread = 24 * time.Hour
	texts := map[string]string{}
	o.Rejected = func(x Reject) error { texts[x.Member] = x.Text; return nil }
	s := r.move(o).Sets[0]
	if s.Stored != 2 || s.Rejected[BadDeadline] != 2 || s.Remaining != 2 || !strings.Contains(texts["before"], "deadline") || texts["at"] == "" {
		t.Errorf("%+v, rejected %q; want two stored", s, texts)
	}
	for _, m := range r.messages("t") {
		if m.Due.After(m.Expires) || m.Expires.Unix() > r.now()+3600 {
			t.Errorf("%s is due at %v and expires at %v", m.ID, m.Due, m.Expires)
		}
	}
	r.consume("t")
	if r.delivered["body over"] != 0 {
		t.Error("a message was delivered after its deadline")
	}
}

// An ID is taken from a field of the body. A body without the field is not imported.
func TestIDFrom(t *testing.T) {
	for body, want := range map[string]string{
		`{"order": {"no": "A-17"}}`: "A-17", `{"order": {"no": 17}}`: "17", `{"order": {"no": 12345678901234567890}}`: "12345678901234567890",
		`{"order": {"no": ""}}`: "", `{"order": {"no": null}}`: "", `{"order": {"no": {}}}`: "", `{"order": ["A-17"]}`: "", `{"order": 1}`: "", `[]`: "", `A-17`: "", `{"order": {"no": "ü"}}`: "",
	} {
		if id, p := idFrom("/order/no", []byte(body)); id != want || (p == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", body, id, p, want)
		}
	}
	for pointer, want := range map[string]string{"/a~1b": "1", "/m~0n": "2", "/list/1": "4", "": "", "/list/2": "", "/list/-": "", "/list/x": ""} {
		if id, _ := idFrom(pointer, []byte(`{"a/b": "1", "m~n": "2", "list": ["3", "4"]}`)); id != want {
			t.Errorf("%s: %q, want %q", pointer, id, want)
		}
	}
	for _, k := range []Kind{ZSet, Redisson, Asynq, River} {
		r := newRig(t)
		body := `{"no": "A-17"}`
		switch k {
		case ZSet:
			r.zadd("jobs", body, float64(r.now()-9))
			r.zadd("jobs", "no JSON", float64(r.now()-9))
		case Redisson:
			r.offer("jobs", r.pack("", "12345678", body), r.now()*1000)
		case Asynq:
			r.must(r.client.HSet(t.Context(), "asynq:{jobs}:t:T-5", "msg", asynqBytes(map[protowire.Number]string{1: "t", 2: body, 3: "T-5", 4: "jobs"})).Err())
			r.zadd("asynq:{jobs}:scheduled", "T-5", float64(r.now()-9))
		case River:
			r.exec("insert into river_job (args, kind, max_attempts, queue, state, scheduled_at) values ($1, 'k', 25, 'jobs', 'scheduled', now())", body)
		}
		o := options(k)
		o.IDFrom = "/no"
		s := r.move(o).Sets[0]
		if ms := r.messages("t"); len(ms) != 1 || ms[0].ID != "A-17" || k == Asynq && ms[0].Headers[asynqHeaderID] != "T-5" || (s.Rejected[BadBody] == 1) != (k == ZSet) || len(s.Renamed) != 0 {
			t.Errorf("%s: %+v, %+v", k, s, ms)
		}
	}
}

func TestParseAsynqBadBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		if task, err := parseAsynq(b); err == nil && task.typ == "" {
			t.Error("a task without a type was read")
		}
	})
}

func TestOptions(t *testing.T) {
	r := newRig(t)
	for _, o := range []Options{
		{Kind: "kafka"},
		{Kind: ZSet, Topic: "t"},
		{Kind: ZSet, Names: []string{"a"}},
		{Kind: ZSet, Names: []string{"a"}, Topic: "no topic"},
		{Kind: ZSet, Names: []string{"a"}, Topic: "t", Unit: time.Minute},
		{Kind: Asynq, Parts: []string{"pending"}},
		{Kind: Asynq, ByType: true, Topic: "t"},
		{Kind: Asynq, ByType: true, Topics: map[string]string{"jobs": "t"}},
		{Kind: Redisson, ByType: true},
		{Kind: Asynq, TopicOf: map[string]string{"a": "b"}},
		{Kind: Asynq, ByType: true, TopicOf: map[string]string{"a": "no topic"}},
		{Kind: Asynq, IDFrom: "order/no"},
		{Kind: BeeDelayQueue, IDFrom: "/no"},
		{Kind: Redisson, Codec: "kryo"},
		{Kind: Redisson, Uncertain: "guess"},
		{Kind: Redisson, Leave: -1},
	} {
		if _, err := newRedis(r.client, o); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", o, err)
		}
	}
	if _, err := r.tryMove(Options{Kind: Asynq, Names: []string{"no topic"}}); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("a queue whose name is no topic's: %v, want ErrInvalid", err)
	}
	if _, err := r.tryMove(Options{Kind: Asynq, Topics: map[string]string{"absent": "t"}}); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("a topic for a queue that is not there: %v, want ErrInvalid", err)
	}
}

func TestStagingIsInTheSameSlot(t *testing.T) {
	if got := slotOf("123456789"); got != 0x31C3 {
		t.Fatalf("slot of 123456789 is %#x, want 0x31c3, as the specification says", got)
	}
	keys := map[string]string{}
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringMatching(`[a{}:]{1,6}`).Draw(t, "key")
		staging := stagingKey(key)
		if slotOf(staging) != slotOf(key) {
			t.Errorf("%q is in slot %d, %q in %d", key, slotOf(key), staging, slotOf(staging))
		}
		if other, ok := keys[staging]; ok && other != key {
			t.Errorf("%q and %q have the same staging", key, other)
		}
		keys[staging] = key
	})
}

// An error of the source comes with what to do about it, and without the password.
func TestFaultsOfTheSource(t *testing.T) {
	r := newRig(t)
	r.must(r.client.Do(t.Context(), "ACL", "SETUSER", "weak", "on", ">secret", "~*", "-@all", "+ping", "+hello", "+client").Err())
	r.zadd("jobs", "a", 4e9)
	replica := redisrig.Start(t, "--replicaof", strings.Replace(shared.Addr, ":", " ", 1))
	for url, text := range map[string]string{
		"redis://127.0.0.1:1":                 "cannot be reached",
		"redis://weak:secrets@" + shared.Addr: "user and password",
		"redis://weak:secret@" + shared.Addr:  "lacks a right",
		"redis://" + replica.Addr:             "replica",
	} {
		client, err := redisstore.Connect(url)
		r.must(err)
		im, err := newRedis(client, options(ZSet))
		r.must(err)
		for done := false; !done; { // a replica knows nothing at first
			var rep *Report
			rep, err = im.Move(t.Context(), r.store)
			done = err != nil || rep.Sets[0].Found > 0
		}
		if err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q and no password", url, err, text)
		}
		r.must(client.Close())
	}
	if n := r.client.ZCard(t.Context(), "jobs").Val(); n != 1 {
		t.Errorf("%d messages are left, want 1", n)
	}
}
