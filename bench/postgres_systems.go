package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/pgstore"
	"github.com/punctualmq/punctual/worker"
)

// The systems that are compared with Punctual on PostgreSQL.
const (
	// sysRows is the reference, which shows what the server can do without a queue: rows are
	// inserted into a table, and deleted with SKIP LOCKED when they are due. There is no claim: the
	// delete is committed before the body is handled, so a consumer that dies in between loses it.
	// Nobody is woken when a row becomes due.
	sysRows = "rows"
	// sysRiver is River as shipped, and sysRiverFast is River with a shorter cooldown, a shorter
	// poll interval and fastWorkers workers in each process.
	sysRiver     = "river"
	sysRiverFast = "river-fast"
)

// How sysRiverFast fetches jobs. fastFetch is the least time between two fetches (by default 100
// ms), and fastPoll the time between two polls (by default 1 s). fastWorkers is how many workers
// each process has in the place of postgresHands, because a fetch gets as many jobs as workers are
// free, and River has no other way to fetch more at once.
const (
	fastFetch   = time.Millisecond
	fastPoll    = 10 * time.Millisecond
	fastWorkers = 1000
)

// postgresHands is how many messages a process handles at the same time. Only sysRiverFast may
// handle more: fastWorkers.
const postgresHands = 64

// fastLabel is what the tables call sysRiverFast.
func fastLabel() string { return fmt.Sprintf("River, tuned, %s workers", commas(fastWorkers)) }

// postgresConsumer returns the name that a system on PostgreSQL has in a consumerTask, because
// names without that prefix are those of systems on Redis.
func postgresConsumer(system string) string { return "postgres-" + system }

// consumePostgres does for a system on PostgreSQL what consume does.
func consumePostgres(ctx context.Context, system string, t consumerTask, ready func(), handle func(body []byte)) error {
	config, err := pgxpool.ParseConfig(t.Addr)
	if err != nil {
		return err
	}
	config.MaxConns = postgresConns / fleetProcesses
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	sys, err := openPostgresSystem(ctx, system, &postgresServer{pool: pool})
	if err != nil {
		return err
	}
	stop, err := sys.consume(context.WithoutCancel(ctx), handle)
	if err != nil {
		return errors.Join(err, sys.close())
	}
	ready()
	<-ctx.Done()
	return errors.Join(stop(), sys.close())
}

// postgresSystem is a system on PostgreSQL, with its scheduling side and its handling side.
type postgresSystem interface {
	system
	// consume starts goroutines that pass the bodies of messages to handle until stop is called.
	// They are at most postgresHands, or fastWorkers for sysRiverFast.
	consume(ctx context.Context, handle func(body []byte)) (stop func() error, err error)
}

func openPostgresSystem(ctx context.Context, name string, s *postgresServer) (postgresSystem, error) {
	switch name {
	case sysPunctual, sysChosen:
		store, err := pgstore.Open(ctx, s.pool, &pgstore.Options{Migrate: true})
		if err != nil {
			return nil, err
		}
		return &punctualOnPostgres{store: store, queue: punctual.NewQueue(store, nil), chosen: name == sysChosen}, nil
	case sysRows:
		_, err := s.pool.Exec(ctx, `create table rows (id bigint generated always as identity primary key, due bigint not null, body bytea not null);
			create index on rows (due)`)
		return &rowsSystem{s.pool}, err
	case sysRiver, sysRiverFast:
		return openRiver(ctx, s.pool, name == sysRiverFast)
	}
	return nil, fmt.Errorf("there is no system %q on PostgreSQL", name)
}

type punctualOnPostgres struct {
	store  *pgstore.Store
	queue  *punctual.Queue
	chosen bool
	// heldAcks counts acks that were tried again, because another transaction held the message.
	heldAcks atomic.Int64
	polls    bool // the claims of finish wait for a millisecond only, so that their durations have hardly any waiting in them
}

func (p *punctualOnPostgres) push(ctx context.Context, who int, ls []letter) error {
	return (&punctualSystem{queue: p.queue, chosen: p.chosen}).push(ctx, who, ls)
}

func (p *punctualOnPostgres) pending(ctx context.Context) (int64, error) {
	st, err := p.store.Stats(ctx, topic)
	if errors.Is(err, punctual.ErrNotFound) {
		return 0, nil
	}
	return st.Live() + st.Dead, err
}

func (p *punctualOnPostgres) close() error { return p.store.Close() }

func (p *punctualOnPostgres) consume(ctx context.Context, handle func(body []byte)) (func() error, error) {
	w := worker.New(p.store, &worker.Config{Concurrency: postgresHands, Logger: warnings()})
	w.Handle(topic, punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		handle(d.Body)
		return nil
	}))
	return func() error { return stopWorker(w) }, w.Start(ctx)
}

// rowsSystem is sysRows, the reference.
type rowsSystem struct{ pool *pgxpool.Pool }

func (r *rowsSystem) push(ctx context.Context, _ int, ls []letter) error {
	dues, bodies := make([]int64, len(ls)), make([][]byte, len(ls))
	for i, l := range ls {
		dues[i], bodies[i] = l.due.UnixMilli(), l.body()
	}
	_, err := r.pool.Exec(ctx, "insert into rows (due, body) select * from unnest($1::bigint[], $2::bytea[])", dues, bodies)
	return err
}

func (r *rowsSystem) pending(ctx context.Context) (n int64, err error) {
	err = r.pool.QueryRow(ctx, "select count(*) from rows").Scan(&n)
	return n, err
}

func (r *rowsSystem) close() error { return nil }

// consume starts postgresHands goroutines. Each takes one due row at a time, and looks again after
// a millisecond when there is none.
func (r *rowsSystem) consume(ctx context.Context, handle func(body []byte)) (func() error, error) {
	ctx, cancel := context.WithCancel(ctx)
	var mu sync.Mutex
	var failed error
	var hands sync.WaitGroup
	for range postgresHands {
		hands.Go(func() {
			if err := r.take(ctx, handle); err != nil && ctx.Err() == nil {
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, err)
			}
		})
	}
	return func() error {
		cancel()
		hands.Wait()
		return failed
	}, nil
}

func (r *rowsSystem) take(ctx context.Context, handle func(body []byte)) error {
	const one = `with head as materialized (select id from rows where due <= $1 order by due limit 1 for update skip locked)
		delete from rows using head where rows.id = head.id returning body`
	for ctx.Err() == nil {
		var body []byte
		err := r.pool.QueryRow(ctx, one, time.Now().UnixMilli()).Scan(&body)
		if errors.Is(err, pgx.ErrNoRows) {
			err = sleepUntil(ctx, time.Now().Add(time.Millisecond))
		} else if err == nil {
			handle(body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// riverLetter is the arguments of a job of River, which keeps them as JSON, so the body is base64
// there.
type riverLetter struct {
	Body []byte `json:"body"`
}

// Kind returns the name by which River finds the worker for a job.
func (riverLetter) Kind() string { return "letter" }

type riverWorker struct {
	river.WorkerDefaults[riverLetter]
	handle func(body []byte)
}

// Work handles one job.
func (w *riverWorker) Work(_ context.Context, j *river.Job[riverLetter]) error {
	w.handle(j.Args.Body)
	return nil
}

type riverSystem struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx] // only inserts jobs; consume makes a client of its own
	fast   bool                  // sysRiverFast
	// atOnce makes push insert many jobs without a time, so that they are available immediately. A
	// job with a time, even with one in the past, waits for River's scheduler, which looks for due
	// jobs every 5 s.
	atOnce bool
}

func openRiver(ctx context.Context, pool *pgxpool.Pool, fast bool) (*riverSystem, error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: warnings()})
	return &riverSystem{pool: pool, client: client, fast: fast}, err
}

// push inserts one job, or many by InsertManyFast, which is River's fastest way because it uses
// COPY.
func (r *riverSystem) push(ctx context.Context, _ int, ls []letter) error {
	if len(ls) == 1 {
		_, err := r.client.Insert(ctx, riverLetter{ls[0].body()}, &river.InsertOpts{ScheduledAt: ls[0].due})
		return err
	}
	params := make([]river.InsertManyParams, len(ls))
	for i, l := range ls {
		params[i] = river.InsertManyParams{Args: riverLetter{l.body()}}
		if !r.atOnce {
			params[i].InsertOpts = &river.InsertOpts{ScheduledAt: l.due}
		}
	}
	n, err := r.client.InsertManyFast(ctx, params)
	if err == nil && n != len(ls) {
		err = fmt.Errorf("river inserted %d of %d", n, len(ls))
	}
	return err
}

func (r *riverSystem) pending(ctx context.Context) (n int64, err error) {
	err = r.pool.QueryRow(ctx, "select count(*) from river_job where state not in ('completed')").Scan(&n)
	return n, err
}

func (r *riverSystem) close() error { return nil }

func (r *riverSystem) consume(ctx context.Context, handle func(body []byte)) (func() error, error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{handle: handle})
	config := &river.Config{Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: postgresHands}}, Logger: warnings()}
	if r.fast {
		config.FetchCooldown, config.FetchPollInterval = fastFetch, fastPoll
		config.Queues[river.QueueDefault] = river.QueueConfig{MaxWorkers: fastWorkers}
	}
	client, err := river.NewClient(riverpgxv5.New(r.pool), config)
	if err != nil {
		return nil, err
	}
	return func() error { return client.Stop(context.WithoutCancel(ctx)) }, client.Start(ctx)
}
