package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/punctualmq/punctual"
)

// These scenarios take messages through whole lives on PostgreSQL, many at a time: one process
// pushes messages that are due immediately, claims them and acks them. So they show what the store
// can do without workers, and what many lives leave in the table.

const (
	postgresLife = "postgres-life/batch-1000"
	postgresSize = "postgres-size"
	// lifeBatch is how many messages are in each push, and at most in each claim. lifeAhead is how
	// many batches may be pushed and not finished yet.
	lifeBatch, lifeAhead = 1000, 4
	// lifeCalls is how many goroutines push, and also how many claim and ack.
	lifeCalls = 2
)

// lifeSystem is a system that can take whole batches through their lives.
type lifeSystem interface {
	postgresSystem
	// finish claims up to n due messages and acks them. It returns how many there were and how long
	// the claim took.
	finish(ctx context.Context, n int) (int, time.Duration, error)
}

func (p *punctualOnPostgres) finish(ctx context.Context, n int) (int, time.Duration, error) {
	wait := time.Second
	if p.polls {
		wait = time.Millisecond
	}
	began := time.Now()
	ds, err := p.store.Claim(ctx, punctual.Claim{Topics: []string{topic}, Max: n, Wait: wait})
	took := time.Since(began)
	if err != nil || len(ds) == 0 {
		return 0, took, err
	}
	acks := make([]punctual.Settlement, len(ds))
	for i, d := range ds {
		acks[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}
	}
	return len(ds), took, p.ack(ctx, acks)
}

// ack acks messages. As a Worker does, it tries those again whose rows another transaction holds: a
// claim that began before these were leased may have locked them in passing, and the commit of that
// claim may take a second when the disk is slow.
func (p *punctualOnPostgres) ack(ctx context.Context, acks []punctual.Settlement) error {
	for {
		answers, err := p.store.Settle(ctx, acks)
		if err != nil {
			return err
		}
		var held []punctual.Settlement
		for i, answer := range answers {
			if errors.Is(answer, punctual.ErrOverloaded) {
				held = append(held, acks[i])
			} else {
				err = errors.Join(err, answer)
			}
		}
		if acks = held; err != nil || len(acks) == 0 {
			return err
		}
		p.heldAcks.Add(int64(len(acks)))
	}
}

// finish deletes up to n due rows by one statement, which stands for both claim and ack.
func (r *rowsSystem) finish(ctx context.Context, n int) (int, time.Duration, error) {
	const some = `with head as materialized (select id from rows where due <= $1 order by due limit $2 for update skip locked)
		delete from rows using head where rows.id = head.id returning body`
	began := time.Now()
	rows, err := r.pool.Query(ctx, some, time.Now().UnixMilli(), n)
	if err != nil {
		return 0, 0, err
	}
	got := 0
	for rows.Next() {
		var body []byte
		if err := rows.Scan(&body); err != nil {
			rows.Close()
			return got, 0, err
		}
		got++
	}
	if got == 0 && rows.Err() == nil {
		err = sleepUntil(ctx, time.Now().Add(time.Millisecond))
	}
	return got, time.Since(began), errors.Join(err, rows.Err())
}

// finish does what River's producer and completer do, by the calls of River's driver: it sets up to
// n available jobs to running, and then to completed. The rows of completed jobs stay, because by
// default River deletes them only after a day.
func (r *riverSystem) finish(ctx context.Context, n int) (int, time.Duration, error) {
	exec := riverpgxv5.New(r.pool).GetExecutor()
	began := time.Now()
	got, err := exec.JobGetAvailable(ctx, &riverdriver.JobGetAvailableParams{ClientID: "bench", MaxAttemptedBy: 100, MaxToLock: n, Queue: river.QueueDefault})
	took := time.Since(began)
	if err != nil {
		return 0, took, err
	}
	many := len(got.Jobs)
	if many == 0 {
		return 0, took, sleepUntil(ctx, time.Now().Add(time.Millisecond))
	}
	now := time.Now()
	set := &riverdriver.JobSetStateIfRunningManyParams{
		Attempt: make([]*int, many), ErrData: make([][]byte, many), MetadataDoMerge: make([]bool, many),
		MetadataUpdates: make([][]byte, many), ScheduledAt: make([]*time.Time, many),
	}
	for _, j := range got.Jobs {
		set.ID = append(set.ID, j.ID)
		set.FinalizedAt = append(set.FinalizedAt, &now)
		set.State = append(set.State, rivertype.JobStateCompleted)
	}
	rows, err := exec.JobSetStateIfRunningMany(ctx, set)
	if err == nil && len(rows) != many {
		err = fmt.Errorf("river completed %d of %d jobs", len(rows), many)
	}
	return many, took, err
}

// lives takes messages through their lives on one system.
type lives struct {
	sys lifeSystem
	// batch is how many messages are in each push, and at most in each claim; 0 stands for
	// lifeBatch. rate is how many messages a second are pushed at most; 0 stands for no bound.
	batch, rate int
	// enough says whether no more messages are to be pushed, since done are finished. claimed is
	// told how long a claim took that found messages. Both are called under mu.
	enough  func(done int64) bool
	claimed func(took time.Duration)
	room    chan struct{} // holds a value for each batch that is pushed, or is being pushed, and not finished
	began   time.Time

	mu           sync.Mutex
	pushed, done int64 // guarded by mu
	over         bool  // guarded by mu
}

// run takes messages through their lives until there were enough and all are finished, and returns
// how many there were.
func (l *lives) run(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if l.batch == 0 {
		l.batch = lifeBatch
	}
	l.began = time.Now()
	l.room = make(chan struct{}, lifeAhead)
	var calls sync.WaitGroup
	for range lifeCalls {
		calls.Go(func() { cancel(l.push(ctx)) })
		calls.Go(func() { cancel(l.finish(ctx)) })
	}
	calls.Wait()
	if err := context.Cause(ctx); !errors.Is(err, errAllDone) {
		return l.done, err
	}
	return l.done, nil
}

// push pushes batches while there is room for them, at most at the rate. When no more are to be
// pushed it waits until ctx ends, because what it returns would end the others.
func (l *lives) push(ctx context.Context) error {
	for {
		select {
		case l.room <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		l.mu.Lock()
		from, over := l.pushed, l.over
		if !over {
			l.pushed += int64(l.batch)
		}
		l.mu.Unlock()
		if over {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		if l.rate > 0 {
			if err := sleepUntil(ctx, l.began.Add(time.Duration(from)*time.Second/time.Duration(l.rate))); err != nil {
				return err
			}
		}
		ls := make([]letter, l.batch)
		due := time.Now()
		for i := range ls {
			ls[i] = letter{uint32(from) + uint32(i), due}
		}
		if err := l.sys.push(ctx, 0, ls); err != nil {
			return err
		}
	}
}

// finish claims and acks messages, and returns errAllDone when no more are to be pushed and all are
// finished.
func (l *lives) finish(ctx context.Context) error {
	for ctx.Err() == nil {
		n, took, err := l.sys.finish(ctx, l.batch)
		if err != nil {
			return err
		}
		l.mu.Lock()
		batches := l.done / int64(l.batch)
		l.done += int64(n)
		l.over = l.over || l.enough(l.done)
		batches = l.done/int64(l.batch) - batches
		all := l.over && l.done == l.pushed
		if n > 0 {
			l.claimed(took)
		}
		l.mu.Unlock()
		for range batches {
			<-l.room
		}
		if all {
			return errAllDone
		}
	}
	return context.Cause(ctx)
}

var errAllDone = errors.New("all messages are finished")

func lifePostgres(ctx context.Context, e *env) error {
	for _, c := range []contender{{sysPunctual, ""}, {sysRows, "rows_"}} {
		err := e.withPostgres(ctx, func(s *postgresServer) error {
			sys, err := openPostgresSystem(ctx, c.system, s)
			if err != nil {
				return err
			}
			return errors.Join(measureLives(ctx, e, s, sys.(lifeSystem), c), sys.close())
		})
		if err != nil {
			return fmt.Errorf("%s: %w", c.system, err)
		}
	}
	e.out.set("ratio", e.out.Values["rate"]/e.out.Values["rows_rate"])
	return nil
}

func measureLives(ctx context.Context, e *env, s *postgresServer, sys lifeSystem, c contender) error {
	e.say("%s for %v", c.system, e.sizes.RedisSpan)
	warm := &lives{sys: sys, enough: func(int64) bool { return true }, claimed: func(time.Duration) {}}
	if _, err := warm.run(ctx); err != nil { // unmeasured lives, by which the server makes its plans
		return err
	}
	before, err := s.usage(ctx)
	if err != nil {
		return err
	}
	cpu, err := cpuTime()
	if err != nil {
		return err
	}
	began := time.Now()
	l := &lives{sys: sys, enough: func(int64) bool { return time.Since(began) >= e.sizes.RedisSpan }, claimed: func(time.Duration) {}}
	n, err := l.run(ctx)
	if err != nil {
		return err
	}
	took := time.Since(began)
	used, err := cpuTime()
	if err != nil {
		return err
	}
	e.out.set(c.prefix+"rate", float64(n)/took.Seconds())
	e.out.set(c.prefix+"cpu_us_per_message", float64((used-cpu).Microseconds())/float64(n))
	return s.note(ctx, e.out, c.prefix, before, n)
}

// heldShare says how many lives follow in postgres-size with a snapshot held: the number of lives
// before, divided by heldShare.
const heldShare = 10

// sizePostgres takes many messages through their lives. It notes how long claims take in the first
// and in the last tenth, and how large the table and its indexes are then. Then it holds a
// snapshot, takes some more messages through their lives, and notes how long those claims take.
func sizePostgres(ctx context.Context, e *env) error {
	return e.withPostgres(ctx, func(s *postgresServer) (err error) {
		sys, err := openPostgresSystem(ctx, sysPunctual, s)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, sys.close()) }()
		if err := manyLives(ctx, e, sys.(lifeSystem), "", int64(e.sizes.PostgresLives)); err != nil {
			return err
		}
		var table, indexes int64
		err = s.pool.QueryRow(ctx, "select pg_table_size('punctual.message'), pg_indexes_size('punctual.message')").Scan(&table, &indexes)
		e.out.set("table_bytes", float64(table))
		e.out.set("index_bytes", float64(indexes))
		if err != nil {
			return err
		}
		held, err := s.holdSnapshot(ctx)
		if err != nil {
			return err
		}
		e.say("a snapshot is held from here")
		err = manyLives(ctx, e, sys.(lifeSystem), "held_", int64(max(1, e.sizes.PostgresLives/heldShare)))
		if err == nil {
			err = held.check(ctx)
		}
		if p, ok := sys.(*punctualOnPostgres); ok {
			e.out.set("held_acks", float64(p.heldAcks.Load()))
		}
		return errors.Join(err, held.release(), expectPending(ctx, sys, 0))
	})
}

// heldSnapshot is an open transaction with a snapshot. While it is open, VACUUM cannot remove rows
// that were updated or deleted after the snapshot was taken.
type heldSnapshot struct {
	server *postgresServer
	tx     pgx.Tx
	oldest string // backend_xmin when the snapshot was taken: VACUUM keeps the rows that this transaction or a later one removes
}

func (s *postgresServer) holdSnapshot(ctx context.Context) (*heldSnapshot, error) {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return nil, err
	}
	h := &heldSnapshot{server: s, tx: tx}
	if _, err := tx.Exec(ctx, "select 1"); err != nil { // the first statement takes the snapshot
		return nil, errors.Join(err, h.release())
	}
	if h.oldest, err = h.holds(ctx); err != nil {
		return nil, errors.Join(err, h.release())
	}
	return h, nil
}

// holds asks the server, over another connection, for the backend_xmin of the transaction.
func (h *heldSnapshot) holds(ctx context.Context) (oldest string, err error) {
	err = h.server.pool.QueryRow(ctx, "select backend_xmin::text from pg_stat_activity where pid = $1 and backend_xmin is not null", h.tx.Conn().PgConn().PID()).Scan(&oldest)
	if err != nil {
		return "", fmt.Errorf("the server holds no snapshot for the connection that opened one: %w", err)
	}
	return oldest, nil
}

// check returns an error unless the server still holds the same snapshot, because without it the
// figures would mean nothing.
func (h *heldSnapshot) check(ctx context.Context) error {
	oldest, err := h.holds(ctx)
	if err == nil && oldest != h.oldest {
		err = fmt.Errorf("the snapshot keeps rows from transaction %s on, and was opened at %s", oldest, h.oldest)
	}
	return err
}

func (h *heldSnapshot) release() error { return h.tx.Rollback(context.Background()) }

// manyLives takes at least want messages through their lives. It notes how many there were, the
// rate, and how long claims take in the first and in the last tenth of the claims. It reports
// progress after each tenth of want.
func manyLives(ctx context.Context, e *env, sys lifeSystem, prefix string, want int64) error {
	var claims []time.Duration
	began, said := time.Now(), int64(0)
	l := &lives{
		sys: sys, claimed: func(took time.Duration) { claims = append(claims, took) },
		enough: func(done int64) bool {
			if tenths := done * 10 / want; tenths > said {
				said = tenths
				e.say("%d of %d messages after %v", done, want, time.Since(began).Round(time.Second))
			}
			return done >= want
		},
	}
	n, err := l.run(ctx)
	if err != nil {
		return err
	}
	e.out.set(prefix+"messages", float64(n))
	e.out.set(prefix+"rate", float64(n)/time.Since(began).Seconds())
	tenth := max(1, len(claims)/10)
	first, last := slices.Sorted(slices.Values(claims[:tenth])), slices.Sorted(slices.Values(claims[len(claims)-tenth:]))
	e.out.set(prefix+"first_claim_p50_ms", ms(first[tenth/2]))
	e.out.set(prefix+"first_claim_p99_ms", ms(first[tenth*99/100]))
	e.out.set(prefix+"last_claim_p50_ms", ms(last[tenth/2]))
	e.out.set(prefix+"last_claim_p99_ms", ms(last[tenth*99/100]))
	return nil
}
