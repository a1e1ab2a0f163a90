package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A run of several scenarios on Redis at a tiny size has the values that the report needs. The
// rounds that deliver messages check for themselves that each was delivered, and that Punctual
// delivered none twice and none early.
func TestRedisRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers and processes")
	}
	o := runOptions{
		dir: filepath.Join(t.TempDir(), "data"), results: filepath.Join(t.TempDir(), "r.ndjson"), rounds: 1, sizes: tinySizes(),
		only: mustCompile(`^redis-(schedule/(single-64|batch-100-always)|drain/1x64|lateness/2k-punctual-8|cost/(memory|life-64|idle-punctual-1))$|^topics/redis$`),
	}
	var progress lockedText
	if err := runAll(t.Context(), o, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	runs, err := readRuns(o.results)
	if err != nil {
		t.Fatal(err)
	}
	for scenario, values := range map[string][]string{
		"redis-schedule/single-64":        {"rate", "ratio", "lists_ratio", "piped_ratio", "times_asynq", "redis_us_per_message", "asynq_redis_us_per_message", "commands_per_message", "call_p99_ms", "chosen_rate", "chosen_share", "chosen_redis_us_per_message"},
		"redis-schedule/batch-100-always": {"rate", "ratio", "lists_ratio"},
		"redis-drain/1x64":                {"rate", "ratio", "times_asynq", "first_ms", "asynq_first_ms", "cpu_us_per_message", "asynq_fast_redis_us_per_message"},
		"redis-lateness/2k-punctual-8":    {"start_p50_ms", "start_p99_ms", "early_share", "commands_per_message", "redis_us_per_message"},
		memoryScenario:                    {"bytes_per_message", "raw_bytes_per_message", "asynq_worst_bytes_per_message"},
		lifeName(64):                      {"commands_per_message", "asynq_script_commands_per_message"},
		idleName(sysPunctual, 1):          {"scripts_per_s", "commands_per_s", "redis_cpu", "all_cpu"},
		topicsScenario:                    {"start_p99_ms", "early_share"},
	} {
		for _, v := range append(values, "others_cpu") {
			if _, ok := runs[0].over(scenario, v); !ok {
				t.Errorf("%s has no value %s", scenario, v)
			}
		}
	}
	if runs[0].machine.Redis == "unknown" || runs[0].machine.Redis == "" {
		t.Errorf("the version of redis-server is noted as %q", runs[0].machine.Redis)
	}
}

// testRedis starts a server for a test.
func testRedis(t *testing.T) *redisServer {
	t.Helper()
	s, err := startRedis(context.Background(), filepath.Join(t.TempDir(), "redis"), everySecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// The reference keeps what it is given and gives it back, the earliest first.
func TestRawRoundTrip(t *testing.T) {
	s := testRedis(t)
	for _, name := range []string{sysRaw, sysLists} {
		sys, err := openSystem(t.Context(), name, s, 2)
		if err != nil {
			t.Fatal(err)
		}
		base := time.Now().Truncate(time.Millisecond)
		for who, ls := range [][]letter{{{3, base.Add(3 * time.Second)}, {1, base.Add(time.Second)}}, {{0, base}, {2, base.Add(2 * time.Second)}}} {
			if err := sys.push(t.Context(), who, ls); err != nil {
				t.Fatal(err)
			}
		}
		if err := expectPending(t.Context(), sys, 4); err != nil {
			t.Error(err)
		}
		if err := expectPending(t.Context(), sys, 5); err == nil {
			t.Error("4 pending where 5 should be give no error")
		}
		c := sys.(*rawSystem).conns[0]
		var got []letter
		for n := -1; n != 0; {
			n, err = c.take(3, func(body []byte) {
				l, perr := parseLetter(body)
				if perr != nil {
					t.Error(perr)
				}
				got = append(got, l)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if len(got) != 4 {
			t.Fatalf("%s: %d of 4 letters came back", name, len(got))
		}
		for i, l := range got {
			if l.seq != uint32(i) || !l.due.Equal(base.Add(time.Duration(i)*time.Second)) {
				t.Errorf("%s: letter %d came back as %v", name, i, l)
			}
		}
		if err := expectPending(t.Context(), sys, 0); err != nil {
			t.Error(err)
		}
		if err := sys.close(); err != nil {
			t.Error(err)
		}
	}
}

// A push of the reference returns an error when a reply is not the expected one.
func TestRawRefusesOtherReplies(t *testing.T) {
	for _, reply := range []string{":0\r\n:1\r\n", "-OOM command not allowed\r\n", "\r\n", "+OK\r\n"} {
		near, far := net.Pipe()
		go func() {
			buf := make([]byte, 64<<10)
			_, _ = far.Read(buf)
			_, _ = far.Write([]byte(reply))
			_ = far.Close()
		}()
		c := newRawConn(near)
		if err := c.push([]letter{{1, time.Now()}}); err == nil {
			t.Errorf("the reply %q to a push gives no error", reply)
		}
		_ = near.Close()
	}
}

func TestLetter(t *testing.T) {
	want := letter{7, ceilMillis(time.Now())}
	body := want.body()
	if len(body) != bodyBytes {
		t.Fatalf("a body has %d bytes, want %d", len(body), bodyBytes)
	}
	if got, err := parseLetter(body); err != nil || got.seq != want.seq || !got.due.Equal(want.due) {
		t.Errorf("%v came back as %v, %v", want, got, err)
	}
	if _, err := parseLetter(body[1:]); err == nil {
		t.Error("a body that is too short gives no error")
	}
	if id := rawID(want); len(id) != idBytes || string(id) != fmt.Sprintf("%026d", 7) {
		t.Errorf("the ID is %q", id)
	}
	whole := time.UnixMilli(5)
	for d, want := range map[time.Duration]time.Time{0: whole, 1: time.UnixMilli(6), time.Millisecond: time.UnixMilli(6)} {
		if got := ceilMillis(whole.Add(d)); !got.Equal(want) {
			t.Errorf("5 ms and %v is rounded up to %v", d, got)
		}
	}
}

func TestFarLetters(t *testing.T) {
	var seq atomic.Uint32
	seq.Store(10)
	for i, l := range farLetters(3, &seq) {
		if ahead := time.Until(l.due); l.seq != uint32(10+i) || ahead < 59*time.Minute || ahead > 25*time.Hour+time.Second {
			t.Errorf("letter %d is %v", i, l)
		}
	}
	if seq.Load() != 13 {
		t.Errorf("the next number is %d, want 13", seq.Load())
	}
}

func TestJudge(t *testing.T) {
	due := time.UnixMilli(1000)
	on := func(seq uint32, late time.Duration) record { return record{seq, due, due.Add(late)} }
	v, err := check(3, []record{on(2, 5*time.Millisecond), on(0, 0), on(1, time.Millisecond)})
	if err != nil || v.strict() != nil || v.early != 0 || v.twice != 0 {
		t.Errorf("three of three give %+v, %v", v, err)
	}
	if !v.first.Equal(due) || !v.last.Equal(due.Add(5*time.Millisecond)) || v.late.merged().TotalCount() != 3 {
		t.Errorf("three of three give %+v", v)
	}
	if v, err = check(1, []record{on(0, -time.Millisecond)}); err != nil || v.early != 1 || v.earliest != time.Millisecond {
		t.Errorf("an early one gives %+v, %v", v, err)
	}
	if err := v.strict(); err == nil || !strings.Contains(err.Error(), "P2") {
		t.Errorf("an early one gives error %v", err)
	}
	if v, err = check(1, []record{on(0, 0), on(0, 0)}); err != nil || v.twice != 1 {
		t.Errorf("a repetition gives %+v, %v", v, err)
	}
	if err := v.strict(); err == nil || !strings.Contains(err.Error(), "P3") {
		t.Errorf("a repetition gives error %v", err)
	}
	if _, err := check(2, []record{on(0, 0), on(0, 0)}); err == nil || !strings.Contains(err.Error(), "P1") {
		t.Errorf("a lost one gives error %v", err)
	}
	if _, err := check(1, []record{on(0, 0), on(1, 0)}); err == nil {
		t.Error("a letter that nobody pushed gives no error")
	}
}

const infoText = "# Memory\r\nused_memory:1000\r\nmem_clients_normal:200\r\nmem_aof_buffer:50\r\n# CPU\r\nused_cpu_sys:0.25\r\nused_cpu_user:0.5\r\n" +
	"# Commandstats\r\ncmdstat_evalsha:calls=7,usec=1,usec_per_call=1.00\r\ncmdstat_hset:calls=40,usec=1\r\ncmdstat_info:calls=3,usec=1\r\ncmdstat_client|setinfo:calls=2,usec=1\r\n"

func TestUsage(t *testing.T) {
	to, err := parseUsage(infoText)
	if err != nil || to.memory != 750 || to.cpu != 750*time.Millisecond || to.calls["evalsha"] != 7 {
		t.Fatalf("read as %+v, %v", to, err)
	}
	for _, bad := range []string{"used_memory:1000", "used_memory:x", "cmdstat_get:calls=x"} {
		if _, err := parseUsage(strings.Replace(infoText, "used_memory:1000", bad, 1)); (err == nil) != (bad == "used_memory:1000") {
			t.Errorf("INFO with %s gives error %v", bad, err)
		}
	}
	from := serverUsage{cpu: 250 * time.Millisecond, calls: map[string]int64{"evalsha": 2, "info": 2}}
	c := cost(from, to, true)
	// The 7 calls are 5 scripts and 2 of client|setinfo. The one INFO is that of the bench, which
	// does not count.
	if c.cpu != 500*time.Millisecond || c.calls != 7 || c.others != 40 || c.scripts != 5 {
		t.Errorf("with scripts the cost is %+v", c)
	}
	if c = cost(from, to, false); c.calls != 47 || c.others != 0 {
		t.Errorf("without scripts the cost is %+v", c)
	}
	if d := c.plus(c); d.cpu != time.Second || d.calls != 94 || d.scripts != 10 {
		t.Errorf("twice is %+v", d)
	}
}

// cost counts three scripts of two commands on a real server as three calls and six other commands.
// A command that a client sends alone is among the others, too.
func TestCostOfAServer(t *testing.T) {
	s := testRedis(t)
	from, err := s.usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.asks.Eval(t.Context(), `redis.call("SET", KEYS[1], 1) return redis.call("GET", KEYS[1])`, []string{"k"}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.asks.Time(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	to, err := s.usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c := cost(from, to, true); c.calls != 3 || c.scripts != 3 || c.others != 7 {
		t.Errorf("three scripts of two commands, and a TIME, cost %+v", c)
	}
}

// A consumer without a task, with a task that is not JSON, or of an unknown system ends with an
// error.
func TestConsumerRefuses(t *testing.T) {
	var out strings.Builder
	for _, args := range [][]string{nil, {"x"}, {`{"system":"none"}`}} {
		if err := consumerCommand(t.Context(), args, strings.NewReader(""), &out); err == nil {
			t.Errorf("consumer %q gives no error", args)
		}
	}
}

func TestRecords(t *testing.T) {
	r := records{more: make(chan struct{}, 1)}
	want := letter{5, time.UnixMilli(1234)}
	r.handle(want.body())
	path := filepath.Join(t.TempDir(), "records")
	if err := r.save(path); err != nil {
		t.Fatal(err)
	}
	got, err := readRecords(path)
	if err != nil || len(got) != 1 || got[0].Seq != 5 || !got[0].Due.Equal(want.due) || time.Since(got[0].At) > time.Hour {
		t.Errorf("one record came back as %v, %v", got, err)
	}
	r.handle([]byte("short"))
	if r.bad == nil || r.count() != 1 {
		t.Errorf("a body of another kind gives %d records and error %v", r.count(), r.bad)
	}
	if err := os.WriteFile(path, []byte("torn"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readRecords(path); err == nil {
		t.Error("a torn file of records gives no error")
	}
}

// A part of the page shows the newest run that has results of that part, or none if no run has.
func TestReportOfOnePart(t *testing.T) {
	redisOnly := []run{{machine: Machine{Run: "a"}, results: []Result{{Scenario: "redis-drain/1x64"}}}}
	both := append([]run{{machine: Machine{Run: "b"}, results: []Result{{Scenario: "drain"}, {Scenario: "redis-cost/life-64"}}}}, redisOnly...)
	all := parts()
	if _, ok := all[0].newest(redisOnly); ok {
		t.Error("a run of Redis counts for the embedded store")
	}
	if r, ok := all[0].newest(both); !ok || r.machine.Run != "b" || len(r.results) != 1 {
		t.Errorf("for the embedded store the newest run is %+v", r)
	}
	if r, ok := all[1].newest(both); !ok || r.machine.Run != "a" {
		t.Errorf("for Redis the newest run is %+v", r)
	}
	// Scenarios that may be measured alone come from the newest run of each.
	alone := []run{
		{machine: Machine{Run: "a"}, results: []Result{{Scenario: "postgres-drain/64", Round: 1}, {Scenario: "postgres-held/river", Round: 1}, {Scenario: postgresSize, Round: 1}}},
		{machine: Machine{Run: "b"}, results: []Result{{Scenario: postgresSize, Round: 2}, {Scenario: postgresSize, Round: 3}}},
	}
	r, ok := all[2].newest(alone)
	if !ok || r.machine.Run != "a" || len(r.results) != 4 {
		t.Errorf("for PostgreSQL the results are %+v", r.results)
	}
	for _, res := range r.results {
		if res.Scenario == postgresSize && res.Round == 1 {
			t.Error("an older round stands beside newer ones of the same scenario")
		}
	}
}

// heldSystem takes as long as takes says for each push, and keeps only the number of letters.
type heldSystem struct {
	takes time.Duration
	count atomic.Int64
}

func (h *heldSystem) push(_ context.Context, _ int, ls []letter) error {
	time.Sleep(h.takes)
	h.count.Add(int64(len(ls)))
	return nil
}
func (h *heldSystem) pending(context.Context) (int64, error) { return h.count.Load(), nil }
func (h *heldSystem) close() error                           { return nil }

// pushEvenly pushes at the rate, and counts the letters that a slow system stores only after they
// were due. The time is virtual.
func TestPushEvenly(t *testing.T) {
	for takes, behind := range map[time.Duration]int64{time.Millisecond: 0, lateLead + time.Second: 500} {
		synctest.Test(t, func(t *testing.T) {
			sys := &heldSystem{takes: takes}
			begin := time.Now()
			got, err := pushEvenly(t.Context(), sys, 500, 100)
			if err != nil || got != behind || sys.count.Load() != 500 {
				t.Errorf("a push of %v: %d of %d pushed too late, want %d; %v", takes, got, sys.count.Load(), behind, err)
			}
			if took := time.Since(begin); takes == time.Millisecond && took != 4990*time.Millisecond+takes {
				t.Errorf("500 letters at 100 a second were pushed within %v", took)
			}
		})
	}
}
