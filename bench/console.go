package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/console"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/pgstore"
	"github.com/punctualmq/punctual/redisstore"
)

// These scenarios measure the console over a store with many pending messages: how long pages take,
// directly after a start and later, how much CPU time a page costs that stays open, and whether
// such a page makes memory grow.

const (
	consoleTopics = 8 // topics among which the messages are divided
	// consoleRefresh is how long an open page waits before it asks for new figures again, unless an
	// answer takes long.
	consoleRefresh = 2 * time.Second
	// consoleViews is how many pages openLater opens one after the other.
	consoleViews = 50
	// consoleRest is how long nobody looks before the last page of openLater is opened. It is
	// longer than the minute for which the console shows old figures in any case, if new ones take
	// longer than its patience (longAgo in internal/overview).
	consoleRest = 65 * time.Second
	// consoleOpen is for how many windows a page stays open while its cost is measured.
	consoleOpen = 1
	// consoleOpenPostgres is the same on PostgreSQL. It is more, because counting takes longest
	// there and so is done least often, and the page has to be open for long enough that a count
	// can fall within.
	consoleOpenPostgres = 4
	// consoleAsks is how many times an open page asks in two hours.
	consoleAsks = int(2 * time.Hour / consoleRefresh)
)

// consoleWorld is a store that the console shows.
type consoleWorld struct {
	store punctual.Store
	// serverCPU returns the CPU time of the store's server. It is nil for the embedded store, which
	// has no server.
	serverCPU func() (time.Duration, error)
	// open is for how many windows a page stays open.
	open int
}

// consoleStores are the stores that are measured. pending is how many messages each has, and with
// makes it.
var consoleStores = []struct {
	name    string
	pending func(sizes) int
	each    time.Duration // how long the push of a message takes
	open    time.Duration // for how many windows a page stays open
	with    func(ctx context.Context, e *env, n int, f func(consoleWorld) error) error
}{
	{"diskstore", func(z sizes) int { return z.Pending }, 8 * time.Microsecond, consoleOpen, withConsoleDisk},
	{"redis", func(z sizes) int { return z.RedisPending }, 20 * time.Microsecond, consoleOpen, withConsoleRedis},
	{"postgres", func(z sizes) int { return z.RedisPending }, 40 * time.Microsecond, consoleOpenPostgres, withConsolePostgres},
}

func consoleName(store string) string { return "console/" + store }

func consoleScenarios() []scenario {
	var all []scenario
	for _, s := range consoleStores {
		all = append(all, scenario{
			name: consoleName(s.name), about: "the console over many pending messages on " + s.name, maxRounds: 1,
			takes: func(z sizes) time.Duration {
				return time.Duration(s.pending(z))*s.each + (1+s.open)*z.Window + consoleRest + 30*time.Second
			},
			run: func(ctx context.Context, e *env) error {
				n := s.pending(e.sizes)
				return s.with(ctx, e, n, func(w consoleWorld) error { return watchConsole(ctx, e, w, n) })
			},
		})
	}
	return all
}

// fillConsole pushes n messages due 1 to 25 hours ahead, divided among consoleTopics topics.
func fillConsole(ctx context.Context, e *env, store punctual.Store, n int) error {
	e.say("pushing %d messages", n)
	ms := make([]punctual.NewMessage, fillBatch)
	for done := 0; done < n; done += len(ms) {
		ms = ms[:min(fillBatch, n-done)]
		farMessages(ms)
		for i := range ms {
			ms[i].Topic = fmt.Sprintf("%s-%d", topic, i%consoleTopics)
		}
		rs, err := store.Push(ctx, ms)
		for _, r := range rs {
			err = errors.Join(err, r.Err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// withConsoleDisk fills the store, closes it and opens it again before it calls f, because a
// console begins with the start of a program.
func withConsoleDisk(ctx context.Context, e *env, n int, f func(consoleWorld) error) error {
	store, err := openStore(e)
	if err != nil {
		return err
	}
	if err := closeStore(store, fillConsole(ctx, e, store, n)); err != nil {
		return err
	}
	if store, err = diskstore.Open(e.dir, nil); err != nil {
		return err
	}
	return closeStore(store, f(consoleWorld{store: store, open: consoleOpen}))
}

func withConsoleRedis(ctx context.Context, e *env, n int, f func(consoleWorld) error) error {
	return e.withRedis(ctx, everySecond, func(s *redisServer) error {
		store, err := redisstore.Open(ctx, redis.NewClient(&redis.Options{Addr: s.addr}), &redisstore.Options{OwnClient: true})
		if err != nil {
			return err
		}
		cpu := func() (time.Duration, error) {
			u, err := s.usage(ctx)
			return u.cpu, err
		}
		err = fillConsole(ctx, e, store, n)
		if err == nil {
			err = f(consoleWorld{store, cpu, consoleOpen})
		}
		return closeStore(store, err)
	})
}

func withConsolePostgres(ctx context.Context, e *env, n int, f func(consoleWorld) error) error {
	return e.withPostgres(ctx, func(s *postgresServer) error {
		store, err := pgstore.Open(ctx, s.pool, &pgstore.Options{Migrate: true})
		if err != nil {
			return err
		}
		err = fillConsole(ctx, e, store, n)
		if err == nil {
			_, err = s.pool.Exec(ctx, "VACUUM (ANALYZE)") // otherwise the server would do this by itself at some time during the measurement
		}
		if err == nil {
			_, err = s.pool.Exec(ctx, "CHECKPOINT")
		}
		if err == nil {
			err = f(consoleWorld{store, s.CPU, consoleOpenPostgres})
		}
		return closeStore(store, err)
	})
}

// watchConsole measures in this order: the CPU time while nobody looks, the first pages, the CPU
// time until all messages are counted, the CPU time while a page is open, the pages that are opened
// later, and the growth of memory.
func watchConsole(ctx context.Context, e *env, w consoleWorld, n int) error {
	e.say("nobody looks")
	idle, err := w.load(ctx, time.Now().Add(e.sizes.Window), nil)
	if err != nil {
		return err
	}
	before, err := w.cpu()
	if err != nil {
		return err
	}
	began := time.Now()
	c, err := console.New(w.store, nil)
	if err != nil {
		return err
	}
	e.out.set("pending", float64(n))
	e.out.set("idle_cpu", idle)
	err = openConsole(ctx, e, c, began)
	if err == nil {
		var after time.Duration
		after, err = w.cpu()
		e.out.set("count_cpu_s", max(0, (after-before).Seconds()-idle*time.Since(began).Seconds()))
	}
	if err == nil {
		e.say("a page is open")
		var open float64
		open, err = w.load(ctx, time.Now().Add(time.Duration(w.open)*e.sizes.Window), func() error { return ask(ctx, c) })
		e.out.set("open_cpu", max(0, open-idle))
	}
	if err == nil {
		err = openLater(ctx, e, c)
	}
	if err == nil {
		err = noteMemory(ctx, e, c)
	}
	return errors.Join(err, c.Close())
}

// openConsole opens pages as the first visitor would, and notes how long each takes, and how long
// after began all messages are counted.
func openConsole(ctx context.Context, e *env, c *console.Console, began time.Time) error {
	e.say("opening pages")
	for _, p := range []struct{ name, path string }{
		{"first", "/"}, {"topics", "/topics"}, {"topic", "/topics/" + topic + "-0"}, {"dead", "/dead"},
	} {
		took, _, err := view(ctx, c, p.path)
		if err != nil {
			return err
		}
		e.out.set(p.name+"_ms", ms(took))
	}
	whole, err := untilCounted(ctx, c)
	if err != nil {
		return err
	}
	e.out.set("counted_after_ms", ms(whole.Sub(began)))
	return nil
}

// openLater opens a page many times and notes how long that takes when others have just looked, and
// once more after consoleRest.
func openLater(ctx context.Context, e *env, c *console.Console) error {
	e.say("opening pages once more")
	rec := newRecorder()
	for range consoleViews {
		took, _, err := view(ctx, c, "/")
		if err != nil {
			return err
		}
		rec.record(took)
		if err := sleepUntil(ctx, time.Now().Add(50*time.Millisecond)); err != nil {
			return err
		}
	}
	e.out.setQuantiles("view", rec.merged())
	if err := sleepUntil(ctx, time.Now().Add(consoleRest)); err != nil {
		return err
	}
	took, _, err := view(ctx, c, "/")
	e.out.set("after_rest_ms", ms(took))
	return err
}

// ask sends the request by which an open page asks for new figures.
func ask(ctx context.Context, c *console.Console) error {
	_, _, err := view(ctx, c, "/fragment")
	return err
}

// view requests a page as a browser on this machine would, and returns how long the answer took,
// and the page.
func view(ctx context.Context, c *console.Console, path string) (time.Duration, string, error) {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, http.NoBody)
	r.RemoteAddr = "127.0.0.1:1"
	rec := httptest.NewRecorder()
	start := time.Now()
	c.ServeHTTP(rec, r)
	took := time.Since(start)
	if rec.Code != http.StatusOK {
		return took, "", fmt.Errorf("GET %s: status %d: %.300s", path, rec.Code, rec.Body)
	}
	return took, rec.Body.String(), nil
}

// untilCounted waits until the first page has its three charts, for which all messages must be
// counted, and returns when that was.
func untilCounted(ctx context.Context, c *console.Console) (time.Time, error) {
	for {
		_, text, err := view(ctx, c, "/")
		if err != nil || strings.Count(text, `<figure class="chart"`) >= 3 {
			return time.Now(), err
		}
		if err := sleepUntil(ctx, time.Now().Add(100*time.Millisecond)); err != nil {
			return time.Time{}, err
		}
	}
}

// load returns how much CPU time this process and the server use in a second, measured until the
// given time. If f is not nil it is called every consoleRefresh meanwhile.
func (w consoleWorld) load(ctx context.Context, until time.Time, f func() error) (float64, error) {
	start := time.Now()
	before, err := w.cpu()
	if err != nil {
		return 0, err
	}
	for next := start; time.Now().Before(until); {
		if f != nil {
			if err := f(); err != nil {
				return 0, err
			}
		}
		next = next.Add(consoleRefresh)
		if err := sleepUntil(ctx, next); err != nil {
			return 0, err
		}
	}
	after, err := w.cpu()
	return (after - before).Seconds() / time.Since(start).Seconds(), err
}

func (w consoleWorld) cpu() (time.Duration, error) {
	own, err := cpuTime()
	if err != nil || w.serverCPU == nil {
		return own, err
	}
	server, err := w.serverCPU()
	return own + server, err
}

// noteMemory notes by how much the heap grows when a page asks as often as in two hours.
func noteMemory(ctx context.Context, e *env, c *console.Console) error {
	e.say("a page asks as often as in two hours")
	for range consoleAsks / 10 { // so that what the console keeps for a while is in the heap before the first measurement
		if err := ask(ctx, c); err != nil {
			return err
		}
	}
	before := liveHeap()
	for range consoleAsks {
		if err := ask(ctx, c); err != nil {
			return err
		}
	}
	e.out.set("heap_bytes", liveHeap())
	e.out.set("heap_grown_bytes", liveHeap()-before)
	return nil
}

// liveHeap returns how many bytes of the heap are in use after a garbage collection.
func liveHeap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

var consoleTables = []table{{"console", consoleTable}}

func onConsole(scenario string) bool { return strings.HasPrefix(scenario, "console/") }

func consoleTable(r run) string {
	var rows []row
	for _, s := range consoleStores {
		rows = append(rows, row{s.name, consoleName(s.name)})
	}
	return scenarioTable(r, "console over",
		rows, value("pending", "pending", func(v float64) string { return commas(int64(v)) }),
		value("first view ms", "first_ms", digits), value("topics", "topics_ms", digits), value("one topic", "topic_ms", digits),
		value("dead", "dead_ms", digits), value("after a rest ms", "after_rest_ms", digits),
		value("view p50 ms", "view_p50_ms", digits), value("p99 ms", "view_p99_ms", digits),
		value("all counted after ms", "counted_after_ms", digits), value("CPU s until then", "count_cpu_s", digits), value("open then: share of a core", "open_cpu", smallPercent),
		value("MB grown by two hours of asking", "heap_grown_bytes", inMB), othersColumn)
}

// smallPercent writes a share in percent with two decimals, for shares of a few percent and less.
func smallPercent(v float64) string { return fmt.Sprintf("%.2f %%", 100*v) }
