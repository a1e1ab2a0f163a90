//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	mysqlrig "github.com/punctualmq/punctual/internal/rigs/mysql"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
	rabbitrig "github.com/punctualmq/punctual/internal/rigs/rabbit"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/internal/wire"
)

// jobs is a Redis in which add fills a sorted set called jobs, and a store on disk to import it
// into.
type jobs struct {
	*shell
	server *redisrig.Server
	from   string
}

func newJobs(t *testing.T) *jobs {
	t.Helper()
	server := redisrig.Start(t, "--appendonly", "no")
	return &jobs{newShell(t), server, "redis://" + server.Addr}
}

// do sends a command to the source.
func (j *jobs) do(words ...string) string {
	j.t.Helper()
	reply, err := j.server.Do(words...)
	if err != nil {
		j.t.Fatal(err)
	}
	return reply
}

func (j *jobs) add(member, score string) { j.do("ZADD", "jobs", score, member) }

// left is how many jobs have not been taken.
func (j *jobs) left() int {
	j.t.Helper()
	n, err := strconv.Atoi(j.do("ZCARD", "jobs"))
	if err != nil {
		j.t.Fatal(err)
	}
	return n
}

func TestImportLooksFirst(t *testing.T) {
	j := newJobs(t)
	j.add("close order 42", "4102488000")
	j.add("close order 43", "4102488001.5")
	j.add("long ago", "1.5e9")
	runOn(t, "disk:"+j.dir, "import", "zset", "jobs", "--topic", "orders", "--from", j.from).ok().contains(
		"jobs", "orders", "2100-01-01T12:00:00.000Z", "close order 42", "--unit s", "--spread", "Nothing was changed")
	runOn(t, "disk:"+j.dir, "import", "zset", "jobs", "--topic", "orders", "--from", j.from, "--json").ok().printsJSON(
		`{"kind":"zset","dry_run":true,"unit":"s","unit_guessed":true,"unfinished":0,"sets":[{"name":"jobs","key":"jobs","topic":"orders","found":3,"staged":0,"rejected":{},"left":0,` +
			`"survey":{"importable":3,"overdue":1,"first_due":"2017-07-14T02:40:00.000Z","last_due":"2100-01-01T12:00:01.500Z","topics":{"orders":3}}}]}`)
	if _, err := os.Stat(j.dir); !os.IsNotExist(err) {
		t.Errorf("a dry run made a store: %v", err)
	}
	if n := j.left(); n != 3 {
		t.Errorf("%d messages are left after a dry run, want 3", n)
	}
}

func TestImport(t *testing.T) {
	j := newJobs(t)
	j.add("close order 42", "4102488000")
	j.add("never\x1b[2J", "1e300")
	rejects := filepath.Join(t.TempDir(), "rejects.ndjson")
	args := []string{"import", "zset", "jobs", "--topic", "orders", "--from", j.from, "--unit", "s", "--rejects", rejects, "--yes"}
	r := runOn(t, "disk:"+j.dir, args...).exits(exitError, "left where they are: 1", "never", "after the year 9999", rejects)
	r.contains("punctual topic set orders --dedupe-window 0s")
	if strings.Contains(r.err, "\x1b") {
		t.Errorf("standard error has a control character of the member: %q", r.err)
	}
	text, err := os.ReadFile(rejects)
	if err != nil {
		t.Fatal(err)
	}
	var line rejectJSON
	if err := wire.DecodeAnswer(text, &line); err != nil || string(line.Member) != "never\x1b[2J" || line.Reason != "score" || line.Key != "jobs" || line.Score != "1e+300" {
		t.Errorf("--rejects wrote %s, %v", text, err)
	}
	runOn(t, "disk:"+j.dir, "list", "orders", "--json").ok().contains(`"body":"close order 42"`, `"due":"2100-01-01T12:00:00.000Z"`)
	runOn(t, "disk:"+j.dir, append(args, "--json")...).exits(exitError).printsJSON(
		`{"kind":"zset","dry_run":false,"unit":"s","unfinished":0,"sets":[{"name":"jobs","key":"jobs","topic":"orders","found":1,"staged":0,"rejected":{"score":1},"left":0,` +
			`"moved":{"stored":0,"duplicates":0,"gone":0,"returned":0,"dropped":0,"remaining":1,"still_staged":0}}]}`)
}

func TestImportIntoTheSameRedis(t *testing.T) {
	j := newJobs(t)
	for n := range 3 {
		topic := fmt.Sprintf("t%d", n)
		body := fmt.Sprintf(`{"id":"%d","topic":"%s","body":"b","execTime":4000000000,"retryCount":1,"createTime":1}`, n, topic)
		j.do("ZADD", "BeeDelay:Queue:Order:"+topic, "4000000000", body)
	}
	runOn(t, j.from, "import", "beedelayqueue", "--from", j.from, "--map", "t1=other", "--yes").ok()
	runOn(t, j.from, "topics").ok().contains("t0", "other", "t2")
	runOn(t, j.from, "get", "1", "--topic", "other", "--json").ok().contains(`"beedelayqueue-retry-count":"1"`)
	runOn(t, j.from, "import", "beedelayqueue", "--from", j.from).ok().contains("nothing of beedelayqueue is there")
}

func TestImportUsage(t *testing.T) {
	for text, args := range map[string][]string{
		"--from":               {"zset", "jobs", "--topic", "t"},
		"a topic":              {"zset", "jobs", "--from", "redis://h"},
		"redis://host":         {"zset", "jobs", "--topic", "t", "--from", "http://u:secret@h"},
		"--unit s or":          {"zset", "jobs", "--topic", "t", "--from", "redis://h", "--yes"},
		"use s or ms":          {"zset", "jobs", "--unit", "m"},
		"contradict":           {"asynq", "--from", "redis://h", "--yes", "--dry-run"},
		"--yes":                {"asynq", "--from", "redis://h", "--follow"},
		"oldname=new.topic":    {"asynq", "--from", "redis://h", "--map", "a"},
		"not understood":       {"asynq", "--from", "redis://h", "--map", "a="},
		"raw, string":          {"redisson", "--from", "redis://h", "--codec", "kryo"},
		"scheduled or retry":   {"asynq", "--from", "redis://h", "--part", "pending"},
		"unknown":              {"kafka"},
		"amqp://USER":          {"rabbitmq", "q"},
		"QUEUE...":             {"rabbitmq", "--from", "amqp://h"},
		"whoever takes them":   {"rabbitmq", "q", "--from", "amqp://h", "--leave", "1s"},
		"--uncertain push":     {"rabbitmq", "q", "--from", "amqp://h", "--uncertain", "return"},
		"amqps://...":          {"rabbitmq", "q", "--from", "redis://u:secret@h"},
		"duration":             {"rabbitmq", "q", "--from", "amqp://h", "--ttl", "soon"},
		"leave, push, drop or": {"asynq", "--from", "redis://h", "--uncertain", "guess"},
	} {
		r := runOn(t, "disk:none", append([]string{"import"}, args...)...).exits(exitUsage, text)
		if strings.Contains(r.err, "secret") {
			t.Errorf("standard error tells the password: %s", r.err)
		}
	}
	runOn(t, "mem:", "import", "asynq", "--from", "redis://h", "--yes").exits(exitUsage, "in memory")
}

// The command is killed with -9 up to five times, at whatever it is doing then, and run once more.
// Each message arrives exactly once. Tasks of asynq keep IDs that a program chose; another message
// has one of these already, and arrives as well.
func TestImportKilled(t *testing.T) {
	const n = 3000
	for kind, set := range map[string]string{"zset": "jobs", "asynq": "asynq:{jobs}:scheduled"} {
		t.Run(kind, func(t *testing.T) {
			j := newJobs(t)
			left := func() int {
				n, err := strconv.Atoi(j.do("ZCARD", set))
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			want, end := n, exitOK
			args := []string{"import", kind, "jobs", "--topic", "t", "--from", j.from, "--yes"}
			add := []string{"ZADD", set}
			if kind == "zset" {
				args = append(args, "--unit", "s")
			} else {
				want++
				end = exitError
				j.run("push", "t", "job 3000", "--id", "job 77").ok()
			}
			for i := range n {
				name := fmt.Sprint("job ", i)
				add = append(add, strconv.Itoa(1_700_000_000+i), name)
				if kind == "asynq" {
					j.do("HSET", "asynq:{jobs}:t:"+name, "msg", asynqTask(map[int]string{1: "t", 2: name, 3: name, 4: "jobs"}))
				}
			}
			j.do(add...)
			killed := 0
			for before := n; killed < 5 && before > n/4; before = left() {
				p := j.start(args...)
				waitUntil(t, "the import has taken some", func() bool { return left() < before })
				p.signal(syscall.SIGKILL)
				p.wait()
				killed++
			}
			r := j.run(args...)
			if r.code != exitOK && (r.code != end || !strings.Contains(r.out, "ID job 77 is in use")) {
				t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
			}
			if keys := j.do("KEYS", "*"); keys != "" {
				t.Errorf("the source still has %q", keys)
			}
			out := j.run("consume", "t", "--until-empty").ok().out
			seen, ids := map[string]int{}, 0
			for line := range strings.Lines(out) {
				var d wire.Delivery
				if err := wire.DecodeAnswer([]byte(line), &d); err != nil {
					t.Fatal(err)
				}
				seen[string(d.Body.Text)]++
				if d.ID == string(d.Body.Text) {
					ids++
				}
			}
			for i := range want {
				if m := fmt.Sprint("job ", i); seen[m] != 1 {
					t.Errorf("%s arrived %d times, want once (P1, P7)", m, seen[m])
				}
			}
			if len(seen) != want || kind == "asynq" && ids != n-1 {
				t.Errorf("%d different messages arrived, %d of them with their IDs; want %d", len(seen), ids, want)
			}
			t.Logf("killed %d times", killed)
		})
	}
}

// What a job of BullMQ loses on the way is said, with exit code 1, also by --json.
func TestImportBullMQ(t *testing.T) {
	j := newJobs(t)
	add := func(id, opts string, more ...string) {
		j.do(append([]string{"HSET", "bull:mail:" + id, "name", "welcome", "data", `{"to":"a"}`, "opts", opts, "timestamp", "1795931180437", "priority", "0"}, more...)...)
		j.do("LPUSH", "bull:mail:wait", id)
	}
	j.do("SET", "bull:mail:id", "2")
	add("T-5", `{"attempts":0}`)
	args := []string{"import", "bullmq", "--by-type", "--topic-of", "welcome=mail.welcome", "--from", j.from}
	r := runOn(t, "disk:"+j.dir, args...).ok().contains("mail (wait)", "ID T-5, body")
	if strings.Contains(r.out, "paused") {
		t.Errorf("a part with nothing is shown: %s", r.out)
	}
	runOn(t, "disk:"+j.dir, append(args, "--yes")...).ok()
	runOn(t, "disk:"+j.dir, "get", "T-5", "--topic", "mail.welcome").ok().contains("bullmq-name=welcome")
	add("T-6", `{"attempts":3}`)
	runOn(t, "disk:"+j.dir, append(args, "--yes")...).exits(exitError, "all arrived, but 1 are not as they were there").contains("mail (wait): 1 with retries at once")
	runOn(t, "disk:"+j.dir, append(args, "--part", "later")...).exits(exitUsage, "bullmq has no part")
}

// A task of Celery arrives under its ID, and that it loses its priority is said.
func TestImportCelery(t *testing.T) {
	j := newJobs(t)
	add := func(queue, id, properties string) {
		j.do("LPUSH", queue, `{"body":"[[7],{},{}]","content-type":"application/json","headers":{"task":"close","id":"`+id+`","eta":"2100-01-01T00:00:00+00:00"},"properties":{`+properties+`}}`)
	}
	j.do("SADD", "_kombu.binding.celery", "celery\x06\x16\x06\x16celery")
	add("celery", "T-5", "")
	args := []string{"import", "celery", "--by-type", "--topic-of", "close=order.close", "--from", j.from}
	if r := runOn(t, "disk:"+j.dir, args...).ok().contains("celery (0)", "ID T-5, body"); strings.Contains(r.out, "celery (3)") {
		t.Errorf("a list with nothing is shown: %s", r.out)
	}
	runOn(t, "disk:"+j.dir, append(args, "--yes")...).ok()
	runOn(t, "disk:"+j.dir, "get", "T-5", "--topic", "order.close").ok().contains("celery-task=close", "2100-01-01T00:00:00.000Z")
	add("celery\x06\x169", "T-6", `"priority":9`)
	runOn(t, "disk:"+j.dir, append(args, "--yes")...).exits(exitError, "all arrived, but 1 are not as they were there").contains("celery (9): 1 with a priority")
}

// asynqTask is a task of asynq, from its fields, in protobuf.
func asynqTask(fields map[int]string) (task string) {
	for number, text := range fields {
		task += string([]byte{byte(number<<3 | 2), byte(len(text))}) + text
	}
	return task
}

// Types get topics of other names, and IDs come from a field of the body. What cannot keep its ID
// or would expire first is named.
func TestImportNames(t *testing.T) {
	j := newJobs(t)
	add := func(id, body string, more ...string) {
		j.do("HSET", "asynq:{q}:t:"+id, "msg", asynqTask(map[int]string{1: "order:close", 2: body, 3: id, 4: "q"})+strings.Join(more, ""))
		j.do("ZADD", "asynq:{q}:scheduled", "4102488000", id)
	}
	add("T-5", `{"no":7}`)
	args := []string{"import", "asynq", "q", "--by-type", "--topic-of", "order:close=order.close", "--from", j.from, "--yes"}
	j.run(append(args, "--id-from", "/no")...).ok()
	j.run("get", "7", "--topic", "order.close").ok().contains("T-5")
	add("T-6", "a")
	j.run(args...).ok()
	add("T-6", "b")
	j.run(args...).exits(exitError, "other IDs").contains("ID T-6 is in use")
	j.run("cancel", "T-6", "--topic", "order.close").ok()
	add("T-7", "c", "\x48\x01") // a deadline in 1970
	j.run(args...).exits(exitError, "deadline")
	j.run("import", "zset", "jobs", "--topic", "t", "--from", j.from, "--id-from", "no").exits(exitUsage, "JSON pointer")
	j.run("import", "asynq", "--from", j.from, "--topic-of", "a=b").exits(exitUsage, "--by-type")
}

// A run with --follow takes a message over, leaves nothing in staging, and ends with 0 when it is
// interrupted.
func TestImportInterrupted(t *testing.T) {
	j := newJobs(t)
	j.add("a", "4e9")
	p := j.start("import", "zset", "jobs", "--topic", "t", "--from", j.from, "--unit", "s", "--yes", "--follow")
	waitUntil(t, "a is taken over", func() bool { return j.do("KEYS", "*") == "" })
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit %d, standard error %q; want 0", code, p.errs.String())
	}
	j.run("stats", "t", "--json").ok().contains(`"scheduled":1`)
}

// If the file for --rejects cannot be opened, nothing is imported.
func TestImportWithoutRejectsFile(t *testing.T) {
	j := newJobs(t)
	j.add("a", "4e9")
	runOn(t, "disk:"+j.dir, "import", "zset", "jobs", "--topic", "t", "--from", j.from, "--unit", "s", "--yes",
		"--rejects", filepath.Join(t.TempDir(), "none", "file")).exits(exitError, "--rejects")
	if n := j.left(); n != 1 {
		t.Errorf("%d messages are left, want 1", n)
	}
}

// Rows are imported from a program's own table in PostgreSQL, and jobs from that of River.
func TestImportFromPostgres(t *testing.T) {
	server := pgrig.Start(t, "max_prepared_transactions=1")
	do := func(statements ...string) string {
		t.Helper()
		out, err := server.Do(statements...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	do("create table jobs (id int primary key, run_at timestamptz, payload jsonb)",
		`insert into jobs values (7, '2096-10-02 07:06:40+00', '{"order": 7}'), (8, null, '{}')`)
	river, err := os.ReadFile("../../../../internal/importer/testdata/river/schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	do(string(river), "insert into river_job (args, kind, max_attempts, state, scheduled_at) values ('{}', 'close', 3, 'scheduled', '2096-10-02 07:06:40+00')")
	store, from := "disk:"+newShell(t).dir, server.URL("postgres")
	table := []string{"import", "postgres", "jobs", "--id", "id", "--due", "run_at", "--body", "payload", "--topic", "orders", "--from", from}
	do("begin", "select * from jobs where id = 7 for update", "prepare transaction 'works'")
	runOn(t, store, append(table, "--yes", "--where", "run_at is not null")...).exits(exitError, "somebody works on them", "run the command again")
	do("commit prepared 'works'")
	runOn(t, store, append(table, "--yes", "--where", "run_at is not null")...).ok().contains("jobs", "orders")
	if got := do("select count(*) from jobs", "select count(*) from punctual_import"); got != "1\n0" {
		t.Errorf("left in the table and in staging: %q, want 1 and 0", got)
	}
	runOn(t, store, "get", "7", "--topic", "orders").ok().contains(`{"order": 7}`, "2096-10-02T07:06:40.000Z")
	runOn(t, store, "import", "river", "--from", from, "--yes").ok().contains("default (scheduled)")
	runOn(t, store, "get", "river-1", "--topic", "default").ok().contains("river-kind")
	runOn(t, store, "import", "river").exits(exitUsage, "postgres://")
}

// The command is killed with -9 while it drains a queue of a real RabbitMQ, at whatever it is doing
// then, and run again. Each message arrives exactly once, also those that are the same and have no
// ID. Afterwards it follows until it is interrupted. A broker that is short of memory ends it with
// an error.
func TestSlowImportRabbitMQ(t *testing.T) {
	const n = 4000
	server, s := rabbitrig.Start(t), newShell(t)
	q := server.Queue(t, "wait", 1000*time.Hour)
	left := func(queue string) int {
		messages, _ := q.Ready(queue)
		return messages
	}
	for i := range n {
		q.Publish(fmt.Sprint("job ", i/2)) // each twice
	}
	args := []string{"import", "rabbitmq", "wait", "--topic", "t", "--from", server.URL(), "--yes"}
	killed, staged := 0, 0
	for before := n; killed < 30 && before > n/8; before = left("wait") {
		p := s.start(args...)
		last := before
		waitUntil(t, "the import has read a page, and moves it", func() bool {
			was := last
			last = left("wait")
			return last == was && last < before
		})
		p.signal(syscall.SIGKILL)
		p.wait()
		killed++
		waitUntil(t, "the broker has noticed that", func() bool {
			messages, consumers := q.Ready("punctual-import.wait")
			if consumers == 0 {
				staged += messages
			}
			return consumers == 0
		})
	}
	if killed < 3 || staged == 0 {
		t.Errorf("this test shows nothing: killed %d times, and %d messages were staged then", killed, staged)
	}
	s.run(args...).ok()
	if n := left("wait") + left("punctual-import.wait"); n != 0 {
		t.Errorf("%d messages are left", n)
	}
	seen := map[string]int{}
	for line := range strings.Lines(s.run("list", "t", "--json", "--limit", "0").ok().out) {
		var m struct {
			Body string `json:"body"`
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		seen[m.Body]++
	}
	for i := range n / 2 {
		if body := fmt.Sprint("job ", i); seen[body] != 2 {
			t.Errorf("%s arrived %d times, want twice (P1, P7)", body, seen[body])
		}
	}
	t.Logf("killed %d times, with %d messages in staging", killed, staged)

	p := s.start(append(args, "--follow")...)
	q.Publish("late")
	waitUntil(t, "late has gone", func() bool { return left("wait") == 0 })
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit %d, standard error %q; want 0", code, p.errs.String())
	}
	s.run("stats", "t", "--json").ok().contains(fmt.Sprintf(`"scheduled":%d`, n+1))

	q.Publish("blocked")
	if out, err := server.Control("set_vm_memory_high_watermark", "0.000001"); err != nil {
		t.Fatal(out, err)
	}
	s.run(args...).exits(exitError, "takes no messages (low on memory)")
	if out, err := server.Control("set_vm_memory_high_watermark", "0.4"); err != nil {
		t.Fatal(out, err)
	}
	s.run(args...).ok()
	s.run("stats", "t", "--json").ok().contains(fmt.Sprintf(`"scheduled":%d`, n+2))
}

// Rows are imported from a program's own table in MariaDB. The command is killed with -9 up to
// three times, at whatever it is doing then, and run once more; each row arrives exactly once.
func TestImportFromMySQL(t *testing.T) {
	const n = 2000
	server, err := mysqlrig.Launch(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
	})
	do := func(statements ...string) string {
		t.Helper()
		out, err := server.Do("mysql", statements...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	do("create table jobs (tenant varchar(9), no bigint unsigned, run_at datetime, payload json, primary key (tenant, no))",
		fmt.Sprintf("insert into jobs select 'a', seq, '2026-01-01', json_object('order', seq) from seq_1_to_%d", n))
	left := func() int {
		t.Helper()
		n, err := strconv.Atoi(do("select count(*) from jobs"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	s := newShell(t)
	args := []string{"import", "mysql", "jobs", "--id", "tenant,no", "--due", "run_at", "--body", "payload", "--topic", "t", "--from"}
	s.run(append(args, server.URL("mysql"))...).exits(exitUsage, "?timezone=Europe/Berlin")
	s.run(append(args, server.URL("none"))...).exits(exitError, "no such database")
	s.run(args[:len(args)-1]...).exits(exitUsage, "mysql://")
	args = append(args, server.URL("mysql")+"?timezone=UTC")
	s.run(args...).ok().contains("2026-01-01T00:00:00.000Z", "ID a:1", `{"order": 1}`, "Nothing was changed")
	if got := left(); got != n {
		t.Fatalf("%d rows are left after a dry run, want %d", got, n)
	}
	args = append(args, "--yes")
	killed := 0
	for before := n; killed < 3 && before > n/4; before = left() {
		p := s.start(args...)
		waitUntil(t, "the import has taken some", func() bool { return left() < before })
		p.signal(syscall.SIGKILL)
		p.wait()
		killed++
	}
	if killed == 0 {
		t.Error("nothing was killed, so this test shows nothing")
	}
	s.run(args...).ok()
	if got := do("select count(*) from jobs", "select count(*) from punctual_import"); got != "0 0" {
		t.Errorf("left in the table and in staging: %q", got)
	}
	seen := map[string]int{}
	for line := range strings.Lines(s.run("consume", "t", "--until-empty").ok().out) {
		var d wire.Delivery
		if err := wire.DecodeAnswer([]byte(line), &d); err != nil {
			t.Fatal(err)
		}
		seen[d.ID]++
	}
	for i := range n {
		if id := fmt.Sprint("a:", i+1); seen[id] != 1 {
			t.Errorf("%s arrived %d times, want once (P1, P7)", id, seen[id])
		}
	}
	if len(seen) != n {
		t.Errorf("%d different messages arrived, want %d", len(seen), n)
	}
	t.Logf("killed %d times", killed)
}
