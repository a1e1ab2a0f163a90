package redisstore

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// longestScript is how long a script may take at most, by the server's latency log.
const longestScript = 5 * time.Millisecond

// latencyRun asks a server's latency log how long scripts took.
type latencyRun struct {
	t       *testing.T
	server  *redisrig.Server
	s       *Store
	clock   *storekit.ManualClock
	longest map[string]time.Duration // of this run, by what was called
}

// latencyRuns is how often a state is tried, at most, while a line of it is over the limit. A
// script that is slow by itself is slow each time. A moment for which the system keeps the server
// from its core comes elsewhere the next time.
const latencyRuns = 6

// state runs the calls for a state of the data set, again while some line was over the limit each
// time. It fails with the lines that were over the limit in all runs.
func (r *latencyRun) state(t *testing.T, name string, run func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		r.t = t
		least := make(map[string]time.Duration)
		var over []string
		for n := range latencyRuns {
			r.longest = make(map[string]time.Duration)
			run(t)
			for line, took := range r.longest {
				if old, ok := least[line]; n == 0 || ok && took < old {
					least[line] = took
				}
			}
			over = slices.DeleteFunc(slices.Sorted(maps.Keys(least)), func(line string) bool { return least[line] <= longestScript })
			if t.Failed() || len(over) == 0 {
				break
			}
			t.Logf("over %v in each of %d runs: %q", longestScript, n+1, over)
		}
		for _, line := range over {
			t.Errorf("P14: a script of %s took %v at the least in %d runs; want at most %v", line, least[line], latencyRuns, longestScript)
		}
	})
}

// goFirst gives the server priority over all ordinary processes, where chrt is there and may do so.
// Otherwise the server waits for a core as long as any of them on a busy machine.
func (r *latencyRun) goFirst() {
	pid := regexp.MustCompile(`process_id:(\d+)`).FindStringSubmatch(do(r.t, r.server, "INFO", "server"))[1]
	if out, err := exec.Command("chrt", "--fifo", "--pid", "1", pid).CombinedOutput(); err != nil {
		r.t.Logf("the server does not go before other processes: %v %s", err, out)
	}
}

// worst returns how long the longest command since the log was reset took, by the log.
func (r *latencyRun) worst() time.Duration {
	lines := strings.Split(do(r.t, r.server, "LATENCY", "LATEST"), "\n")
	for i, line := range lines {
		if line != "command" || i+3 >= len(lines) {
			continue
		}
		ms, err := strconv.Atoi(lines[i+3])
		if err != nil {
			r.t.Fatalf("LATENCY LATEST: %q", lines)
		}
		return time.Duration(ms) * time.Millisecond
	}
	return 0
}

// cpu returns how much processor time the server's main thread has used.
func (r *latencyRun) cpu() (used time.Duration) {
	for _, m := range regexp.MustCompile(`used_cpu_(?:user|sys)_main_thread:([0-9.]+)`).FindAllStringSubmatch(do(r.t, r.server, "INFO", "cpu"), -1) {
		d, err := time.ParseDuration(m[1] + "s")
		if err != nil {
			r.t.Fatal(err)
		}
		used += d
	}
	return used
}

// bounded makes a call, and notes how long the longest of its scripts took.
func (r *latencyRun) bounded(name string, call func() error) {
	r.t.Helper()
	do(r.t, r.server, "LATENCY", "RESET")
	n, _ := scripted(r.t, r.server)
	cpu := r.cpu()
	if err := call(); err != nil {
		r.t.Fatalf("%s: %v", name, err)
	}
	cpu = r.cpu() - cpu
	n2, _ := scripted(r.t, r.server)
	if n2 == n {
		r.t.Errorf("this test shows nothing: %s ran no script", name)
		return
	}
	worst := r.worst()
	each := (cpu / time.Duration(n2-n)).Round(10 * time.Microsecond)
	r.t.Logf("%-46s %5d scripts of %7v CPU, the longest %v", name, n2-n, each, worst)
	if n2 == n+1 { // the time for which the script waited for a core does not count
		worst = min(worst, each)
	}
	r.longest[name] = max(r.longest[name], worst)
}

// store begins a data set anew.
func (r *latencyRun) store(partitions int) {
	r.clock = storekit.NewManualClock(time.Unix(1_800_000_000, 0))
	r.s = openStore(r.t, connect(r.t, r.server), &Options{Prefix: fresh(), clock: r.clock, Partitions: partitions})
}

// many pushes n messages, script.Items at a time.
func (r *latencyRun) many(n int, m punctual.NewMessage) error {
	for done := 0; done < n; done += script.Items {
		ms := make([]punctual.NewMessage, min(script.Items, n-done))
		for i := range ms {
			ms[i] = m
			ms[i].Topic = "orders"
			if m.ID != "" {
				ms[i].ID = fmt.Sprint(m.ID, done+i)
			}
		}
		if _, err := r.s.Push(r.t.Context(), ms); err != nil {
			return err
		}
	}
	return nil
}

// claim leases up to n messages.
func (r *latencyRun) claim(n int) ([]punctual.Delivery, error) {
	return r.s.Claim(r.t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: n, Lease: time.Minute})
}

// settle does x with each of some leases.
func (r *latencyRun) settle(ds []punctual.Delivery, x punctual.Settlement) error {
	ss := make([]punctual.Settlement, len(ds))
	for i, d := range ds {
		ss[i] = x
		ss[i].Topic, ss[i].ID, ss[i].Token = d.Topic, d.ID, d.Token
	}
	errs, err := r.s.Settle(r.t.Context(), ss)
	for _, e := range errs {
		if e != nil {
			return e
		}
	}
	return err
}

// amend does a with the first script.Items messages whose IDs are id and a number from 0.
func (r *latencyRun) amend(id string, a punctual.Amendment) error {
	as := make([]punctual.Amendment, script.Items)
	for i := range as {
		as[i] = a
		as[i].Topic, as[i].ID = "orders", fmt.Sprint(id, i)
	}
	out, err := r.s.Amend(r.t.Context(), as)
	for _, o := range out {
		if o.Err != nil {
			return o.Err
		}
	}
	return err
}

// inspect makes the calls that count, list and check what is there.
func (r *latencyRun) inspect(state string) {
	ctx := r.t.Context()
	r.bounded("count "+state, func() error { _, err := r.s.Stats(ctx, "orders"); return err })
	for _, of := range []punctual.State{punctual.StateReady, punctual.StateDead} {
		r.bounded(fmt.Sprintf("list %v %s", of, state), func() error {
			_, err := r.s.List(ctx, punctual.ListQuery{Topic: "orders", State: of, Limit: 500})
			return err
		})
	}
	r.bounded("forecast "+state, func() error {
		_, err := r.s.Forecast(ctx, punctual.ForecastQuery{Topic: "orders", Step: time.Minute, Buckets: 60})
		return err
	})
	r.bounded("check "+state, func() error { _, err := r.s.Check(ctx, nil); return err })
}

// P14: by the server's own latency log no script takes more than 5 ms, whatever the state of the
// data set. A state in which a script took longer is tried again, because a server that the system
// keeps from its core for a moment is late, too.
func TestLatencyLog(t *testing.T) {
	if os.Getenv("PUNCTUAL_LATENCY") == "" {
		t.Skip("it measures times, for a minute or more: make latency-redis")
	}
	const many = 200_000
	server := redisrig.Start(t, "--appendonly", "no", "--save", "", "--latency-monitor-threshold", "1")
	r := &latencyRun{t: t, server: server}
	r.goFirst()
	do(t, server, "EVAL", "local t = redis.call('TIME') repeat local n = redis.call('TIME') until (n[1] - t[1]) * 1000000 + n[2] - t[2] > 20000", "0")
	if worst := r.worst(); worst < 20*time.Millisecond {
		t.Fatalf("this test shows nothing: the latency log has %v of a script that took 20 ms", worst)
	}
	r.state(t, "waiting", func(t *testing.T) {
		r.store(1)
		r.bounded("push 200,000", func() error { return r.many(many, punctual.NewMessage{ID: "a", Body: make([]byte, 200)}) })
		r.bounded("push many that are there", func() error { return r.many(script.Items, punctual.NewMessage{ID: "a"}) })
		r.bounded("replace many", func() error {
			return r.many(script.Items, punctual.NewMessage{ID: "a", IfExists: punctual.IfExistsReplace})
		})
		r.inspect("of 200,000 that are due")
		var ds []punctual.Delivery
		r.bounded("claim many", func() (err error) { ds, err = r.claim(script.Items); return err })
		r.bounded("extend many", func() error { return r.settle(ds, punctual.Settlement{Verb: punctual.SettleExtend, Delay: time.Hour}) })
		r.bounded("ack many that were extended", func() error { return r.settle(ds, punctual.Settlement{Verb: punctual.SettleAck}) })
		r.bounded("claim many", func() (err error) { ds, err = r.claim(script.Items); return err })
		r.bounded("ack many", func() error { return r.settle(ds, punctual.Settlement{Verb: punctual.SettleAck}) })
		for _, c := range []struct{ each, body int }{{1, 100}, {1, 5 << 10}, {16, 100}} {
			r.bounded("claim many", func() (err error) { ds, err = r.claim(script.Items); return err })
			r.bounded(fmt.Sprintf("ack many with %d follow-ups of %d bytes", c.each, c.body), func() error {
				var then []punctual.NewMessage
				for n := range c.each {
					then = append(then, punctual.NewMessage{Topic: fmt.Sprint("orders@", n%4), Delay: time.Hour, Body: make([]byte, c.body)})
				}
				return r.settle(ds, punctual.Settlement{Verb: punctual.SettleAck, Then: then})
			})
		}
		tells(t, r.s, event.All)
		r.bounded("claim many", func() (err error) { ds, err = r.claim(script.Items); return err })
		r.bounded("ack many that are told of", func() error { return r.settle(ds, punctual.Settlement{Verb: punctual.SettleAck}) })
		tells(t, r.s, 0)
		r.bounded("push many that finished", func() error { return r.many(script.Items, punctual.NewMessage{ID: "b"}) })
		r.bounded("reschedule many", func() error {
			return r.amend("b", punctual.Amendment{Change: punctual.ChangeReschedule, Delay: time.Hour})
		})
		r.bounded("cancel many", func() error { return r.amend("b", punctual.Amendment{Change: punctual.ChangeCancel}) })
		r.bounded("purge", func() error {
			_, err := r.s.Purge(t.Context(), punctual.PurgeQuery{Topic: "orders", State: punctual.StateReady})
			return err
		})
	})
	r.state(t, "finished records", func(t *testing.T) {
		r.store(1)
		keepFinished(t, r.s, time.Minute)
		finish := func(what string, x punctual.Settlement) {
			var ds []punctual.Delivery
			r.bounded("claim many"+what, func() (err error) { ds, err = r.claim(script.Items); return err })
			if len(ds) == 0 {
				t.Fatal("this test shows nothing: none was claimed")
			}
			r.bounded("ack many"+what, func() error { return r.settle(ds, x) })
		}
		ack := punctual.Settlement{Verb: punctual.SettleAck}
		for n := 0; n < many; n += script.Items { // finished records of 200,000
			if err := r.many(script.Items, punctual.NewMessage{}); err != nil {
				t.Fatal(err)
			}
			ds, err := r.claim(script.Items)
			if err == nil {
				err = r.settle(ds, ack)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if n := do(t, server, "HLEN", r.s.names.Partition("orders", 0).Finished()[0]); n != strconv.Itoa(many) {
			t.Fatalf("this test shows nothing: %s finished records are kept", n)
		}
		long := make([]byte, 4<<10)
		for _, m := range []punctual.NewMessage{{}, {Body: long[:4000]}, {ID: strings.Repeat("i", limits.MaxIDBytes-3)}, {Body: long, ID: "l"}} {
			if err := r.many(script.Items, m); err != nil {
				t.Fatal(err)
			}
			finish(fmt.Sprintf(" with bodies of %d and IDs of %d or more", len(m.Body), len(m.ID)), ack)
		}
		if err := r.many(script.Items, punctual.NewMessage{ID: "c"}); err != nil {
			t.Fatal(err)
		}
		r.bounded("cancel many", func() error { return r.amend("c", punctual.Amendment{Change: punctual.ChangeCancel}) })
		if err := r.many(script.Items, punctual.NewMessage{ID: "r", MaxAttempts: 100}); err != nil {
			t.Fatal(err)
		}
		for n := range 17 { // 16 retries, because as many failures are kept and become part of a finished record, and the ack
			var ds []punctual.Delivery
			r.bounded(fmt.Sprint("claim many with failures, ", n+1), func() (err error) { ds, err = r.claim(script.Items); return err })
			x := punctual.Settlement{Verb: punctual.SettleRetry, Error: strings.Repeat("x", limits.MaxErrorBytes)}
			if n == 16 {
				x = ack
			}
			r.bounded(fmt.Sprint("settle many with failures, ", n+1), func() error { return r.settle(ds, x) })
		}
		r.clock.Advance(time.Hour)
		for n := range 10 {
			r.clock.Advance(time.Millisecond)
			if err := r.many(script.Items, punctual.NewMessage{}); err != nil {
				t.Fatal(err)
			}
			finish(fmt.Sprint(" while 200,000 finished records are swept, ", n+1), ack)
		}
		r.bounded("delete the topic", func() error { _, err := r.s.DeleteTopic(t.Context(), "orders"); return err })
	})
	r.state(t, "lapsed", func(t *testing.T) {
		r.store(1)
		lease(t, r.s, many)
		r.clock.Advance(time.Hour)
		r.bounded("claim of 200,000 that have lapsed", func() error { _, err := r.claim(script.Items); return err })
		r.inspect("of 200,000 that have lapsed")
		r.bounded("purge", func() error {
			_, err := r.s.Purge(t.Context(), punctual.PurgeQuery{Topic: "orders", State: punctual.StateReady})
			return err
		})
	})
	r.state(t, "dead", func(t *testing.T) {
		r.store(1)
		keep := time.Minute
		if _, err := r.s.Configure(t.Context(), "orders", punctual.SettingsPatch{DeadRetention: &keep, DedupeWindow: &keep}); err != nil {
			t.Fatal(err)
		}
		if err := r.many(many/4, punctual.NewMessage{ID: "d", MaxAttempts: 100}); err != nil {
			t.Fatal(err)
		}
		long := strings.Repeat("x", limits.MaxErrorBytes)
		for n := 0; n < many/4; {
			ds, err := r.claim(script.Items)
			n += len(ds)
			if err == nil {
				err = r.settle(ds, punctual.Settlement{Verb: punctual.SettleDiscard, Error: long})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		r.inspect("of 50,000 dead")
		r.bounded("requeue many", func() error { return r.amend("d", punctual.Amendment{Change: punctual.ChangeRequeue}) })
		for n := range 20 { // more failures than are kept
			var ds []punctual.Delivery
			r.bounded(fmt.Sprint("claim many with failures, ", n+1), func() (err error) { ds, err = r.claim(script.Items); return err })
			r.bounded(fmt.Sprint("retry many with failures, ", n+1), func() error {
				return r.settle(ds, punctual.Settlement{Verb: punctual.SettleRetry, Error: long})
			})
			if len(ds) == 0 {
				t.Fatal("this test shows nothing: none was claimed again")
			}
		}
		r.clock.Advance(time.Hour)
		r.bounded("claims while 50,000 dead are swept", func() error {
			for range 200 {
				r.clock.Advance(time.Millisecond)
				if _, err := r.claim(1); err != nil {
					return err
				}
			}
			return nil
		})
		r.bounded("purge of what is left", func() error { _, err := r.s.Purge(t.Context(), punctual.PurgeQuery{Topic: "orders"}); return err })
	})
	r.state(t, "large", func(t *testing.T) {
		for _, size := range []int{8 << 10, 64 << 10, limits.DefaultMaxBody} {
			r.store(1)
			n := max(16<<20/size, 8)
			body := make([]byte, size)
			what := fmt.Sprintf("%d of %d KiB", n, size>>10)
			r.bounded("push "+what, func() error { return r.many(n, punctual.NewMessage{ID: "l", Body: body}) })
			r.bounded("list "+what, func() error {
				_, err := r.s.List(t.Context(), punctual.ListQuery{Topic: "orders", State: punctual.StateReady, Limit: 100})
				return err
			})
			var ds []punctual.Delivery
			r.bounded("claim "+what, func() (err error) { ds, err = r.claim(n); return err })
			r.bounded("ack "+what, func() error { return r.settle(ds, punctual.Settlement{Verb: punctual.SettleAck}) })
		}
	})
	r.state(t, "deleted", func(t *testing.T) {
		r.store(4)
		if err := r.many(many, punctual.NewMessage{}); err != nil {
			t.Fatal(err)
		}
		r.bounded("delete a topic of 200,000", func() error { _, err := r.s.DeleteTopic(t.Context(), "orders"); return err })
	})
}
