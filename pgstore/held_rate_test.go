package pgstore

import (
	"context"
	"flag"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/punctualmq/punctual"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
	"github.com/punctualmq/punctual/worker"
)

var (
	heldFor    = flag.Duration("held.for", 0, "how long TestHeldRate pushes beside a snapshot, and without one")
	heldRate   = flag.Int("held.rate", 1000, "how many messages TestHeldRate pushes a second")
	heldBehind = flag.Int("held.behind", 0, "how many finished messages TestHeldRate leaves behind the snapshot before it begins")
	heldWith   = flag.String("held.with", "overdue", "what TestHeldRate does each minute and after the first half of a shorter run: overdue, configure, restart, timeout or nothing")
)

// TestHeldRate measures how late a worker's messages are beside a held snapshot, while something
// happens that once had each claim read all that was finished, and at the same time on another
// server without a snapshot. It prints what it has measured and judges nothing:
//
//	go test ./pgstore -run TestHeldRate -v -timeout 0 -held.for 10m -held.rate 1000 -held.with overdue
func TestHeldRate(t *testing.T) {
	if *heldFor == 0 {
		t.Skip("a measurement: say -held.for 10m")
	}
	var rounds sync.WaitGroup
	late := make(map[bool][]time.Duration)
	for _, held := range []bool{false, true} {
		r := &heldRound{t: t, server: pgrig.Start(t, "synchronous_commit=on")}
		r.pushing = openStore(t, newPool(t, r.server), &Options{Migrate: true, OwnPool: true})
		makeTopic(t, r.pushing, "orders")
		if held {
			holdSnapshot(t, r.server, r.pushing)
			finishBehind(t, r.pushing, *heldBehind)
		}
		var mu sync.Mutex
		rounds.Go(func() {
			got := r.run()
			mu.Lock()
			defer mu.Unlock()
			late[held] = got
		})
	}
	rounds.Wait()
	var p99 [2]time.Duration
	for i, held := range []bool{false, true} {
		all := late[held]
		slices.Sort(all)
		at := func(share float64) time.Duration { return all[int(share*float64(len(all)-1))] }
		p99[i] = at(0.99)
		t.Logf("snapshot held %v, %s: %d lives, %.0f a second; late p50 %v, p99 %v, p99.9 %v, most %v",
			held, *heldWith, len(all), float64(len(all))/heldFor.Seconds(), at(0.5), at(0.99), at(0.999), all[len(all)-1])
	}
	t.Logf("p99 beside a snapshot is %.2f times that without one", float64(p99[1])/float64(p99[0]))
}

// heldRound is a round on one server.
type heldRound struct {
	t       *testing.T
	server  *pgrig.Server
	pushing *Store

	mu   sync.Mutex
	late []time.Duration // guarded by mu
}

// run pushes for heldFor, and returns how late each message was. The overdue ones are not counted.
func (r *heldRound) run() []time.Duration {
	stop := r.work("")
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	begun := time.Now()
	next := begun.Add(min(time.Minute, *heldFor/2))
	for pushed := 0; time.Since(begun) < *heldFor; <-tick.C {
		if time.Now().After(next) {
			next = next.Add(time.Minute)
			stop = r.trigger(stop)
		}
		n := int(time.Since(begun).Seconds()*float64(*heldRate)) - pushed
		pushed += n
		for part := range slices.Chunk(slices.Repeat([]punctual.NewMessage{{Topic: "orders", Body: make([]byte, 200)}}, n), 100) {
			if _, err := r.pushing.Push(context.Background(), part); err != nil {
				r.t.Error(err)
				return nil
			}
		}
	}
	time.Sleep(2 * time.Second) // what is not done by then counts as no life
	stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late
}

// trigger does what was asked for, and returns what ends the worker from then on.
func (r *heldRound) trigger(stop func()) func() {
	switch *heldWith {
	case "overdue":
		if _, err := r.pushing.Push(context.Background(), []punctual.NewMessage{{Topic: "orders", Due: time.Now().Add(-time.Hour)}}); err != nil {
			r.t.Error(err)
		}
	case "configure":
		attempts := 7
		if _, err := r.pushing.Configure(context.Background(), "orders", punctual.SettingsPatch{MaxAttempts: &attempts}); err != nil {
			r.t.Error(err)
		}
	case "restart":
		stop()
		return r.work("")
	case "timeout":
		stop()
		return r.work("500")
	}
	return stop
}

// work runs a worker over a store of its own, as in another process, and returns what ends both.
// The sessions of the store have the statement_timeout given, unless that is "".
func (r *heldRound) work(timeout string) (stop func()) {
	config, err := pgxpool.ParseConfig(r.server.URL("postgres"))
	if err != nil {
		r.t.Error(err)
		return func() {}
	}
	if timeout != "" {
		config.ConnConfig.RuntimeParams["statement_timeout"] = timeout
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		r.t.Error(err)
		return func() {}
	}
	s, err := Open(context.Background(), pool, &Options{OwnPool: true})
	if err != nil {
		r.t.Error(err)
		return func() {}
	}
	w := worker.New(s, &worker.Config{Concurrency: 64})
	w.Handle("orders", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		if late := time.Since(d.Due); late < 10*time.Minute {
			r.mu.Lock()
			r.late = append(r.late, late)
			r.mu.Unlock()
		}
		return nil
	}))
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() {
		end()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
		if err := s.Close(); err != nil {
			r.t.Error(err)
		}
	}
}
