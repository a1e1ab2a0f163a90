package main

import (
	"bytes"
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/punctualmq/punctual"
)

// These scenarios measure what many pending messages mean for memory, disk, reopening, lateness,
// cancel, reschedule and scheduling. All work on the one store that pending/fill makes, one after
// the other.

const (
	fillBatch    = 1000
	fillScenario = "pending/fill"
	loadScenario = "pending/load"
	// sampleMax bounds how many IDs pending/fill notes for the scenarios that amend.
	sampleMax = 1_000_000
)

// killAfter returns how long a process is under load before it is killed.
func killAfter(z sizes) time.Duration { return min(2*time.Second, z.Span) }

func pendingScenarios() []scenario {
	all := []scenario{
		{
			name: fillScenario, about: "push them all in batches of 1000: rate, memory and disk as the store grows",
			pending: true, maxRounds: 1,
			takes: func(z sizes) time.Duration { return time.Duration(z.Pending) * 6 * time.Microsecond }, run: runFill,
		},
		{
			name: "pending/reopen", about: "open the store after it was closed", pending: true,
			takes: spans(0, 2*time.Second), run: runReopen,
		},
	}
	for _, rate := range steadyRates {
		all = append(all, scenario{
			name: "pending/steady-" + rateName(rate), about: fmt.Sprintf("lateness at %d/s beside the pending ones", rate),
			pending: true, maxRounds: 1, takes: windowPlus(8 * time.Second),
			run: func(ctx context.Context, e *env) error { return runSteady(ctx, e, &load{rate: rate}) },
		})
	}
	all = append(all, amendScenarios()...)
	all = append(all,
		scenario{
			name: loadScenario, about: "push in batches of 1000 until killed", pending: true, hidden: true,
			takes: spans(0, 4*time.Second), run: runLoad,
		},
		scenario{
			name: "pending/reopen-killed", about: "open the store after kill -9 while it was pushed to in batches of 1000",
			pending: true, after: loadScenario, takes: spans(0, 6*time.Second), run: runReopen,
		})
	return append(all, pendingScheduleScenarios()...) // they come last because they add messages to the store
}

// runFill pushes the pending messages, and notes the rate, memory and disk use.
func runFill(ctx context.Context, e *env) error {
	store, err := openStore(e)
	if err != nil {
		return err
	}
	err = e.against(fillBatch, messageBytes, func() (float64, error) { return e.fill(ctx, store) })
	if err = closeStore(store, err); err != nil {
		return err
	}
	disk, err := diskUse(e.dir)
	e.out.set("disk_bytes", float64(disk))
	e.out.set("disk_bytes_per_message", float64(disk)/float64(e.sizes.Pending))
	return err
}

func (e *env) fill(ctx context.Context, store punctual.Store) (rate float64, err error) {
	q := punctual.NewQueue(store, nil)
	ms := make([]punctual.NewMessage, fillBatch)
	ids := newSample(e.sizes.Pending)
	curve := max(e.sizes.Pending/40, fillBatch)
	start := time.Now()
	lastAt, last := start, 0
	for n := 0; n < e.sizes.Pending; {
		ms = ms[:min(fillBatch, e.sizes.Pending-n)]
		farMessages(ms)
		rs, err := q.PushMany(ctx, ms)
		if err := checkPushed(rs, err); err != nil {
			return 0, err
		}
		ids.add(rs)
		n += len(ms)
		if n-last >= curve {
			now := time.Now()
			if err := e.curve(n, float64(n-last)/now.Sub(lastAt).Seconds()); err != nil {
				return 0, err
			}
			lastAt, last = now, n
		}
	}
	rate = float64(e.sizes.Pending) / time.Since(start).Seconds()
	if err := e.out.setMemory(); err != nil {
		return 0, err
	}
	return rate, ids.save(e.kept)
}

// curve notes one point of each curve of pending/fill: rate, memory and disk use when n messages
// are pushed.
func (e *env) curve(n int, rate float64) error {
	rss, _, err := memory()
	if err != nil {
		return err
	}
	disk, err := diskUse(e.dir)
	if err != nil {
		return err
	}
	e.say("%.2f of %.2f million, %.0f/s", float64(n)/1e6, float64(e.sizes.Pending)/1e6, rate)
	e.out.add("rate", float64(n), rate)
	e.out.add("rss_bytes", float64(n), rss)
	e.out.add("disk_bytes", float64(n), float64(disk))
	return nil
}

// runReopen opens the store and pushes one message, and notes how long both took. Then it cancels
// that message and counts the messages of the store.
func runReopen(ctx context.Context, e *env) error {
	start := time.Now()
	store, err := openStore(e)
	if err != nil {
		return err
	}
	e.out.set("open_ms", ms(time.Since(start)))
	q := punctual.NewQueue(store, nil)
	r, err := q.Push(ctx, topic, randomBody(), punctual.In(time.Hour))
	e.out.set("first_push_ms", ms(time.Since(start)))
	if err == nil {
		err = e.out.setMemory()
	}
	if err == nil {
		err = q.Cancel(ctx, topic, r.ID)
	}
	if err == nil {
		err = e.countPending(ctx, store)
	}
	return closeStore(store, err)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (e *env) countPending(ctx context.Context, store punctual.Store) error {
	inspector, err := punctual.As[punctual.Inspector](store)
	if err != nil {
		return err
	}
	st, err := inspector.Stats(ctx, topic)
	e.out.set("pending", float64(st.Scheduled+st.Ready+st.Leased))
	return err
}

// runLoad reports that it is ready when it has pushed one batch, and goes on pushing until the
// process is killed.
func runLoad(ctx context.Context, e *env) error {
	store, err := openStore(e)
	if err != nil {
		return err
	}
	q := punctual.NewQueue(store, nil)
	ms := make([]punctual.NewMessage, fillBatch)
	for n := 0; ctx.Err() == nil; n++ {
		farMessages(ms)
		if err := checkPushed(q.PushMany(ctx, ms)); err != nil {
			return closeStore(store, err)
		}
		if n == 0 {
			e.ready()
		}
	}
	return closeStore(store, context.Cause(ctx))
}

// sample keeps the ID of every every-th message pushed. It keeps them as one text, an ID to a line,
// which takes little memory, because the memory of this process is noted as that of the store.
type sample struct {
	every, seen int
	ids         []byte
}

func newSample(of int) *sample {
	every := max(1, (of+sampleMax-1)/sampleMax)
	return &sample{every: every, ids: make([]byte, 0, (of/every+1)*(idBytes+1))}
}

func (s *sample) add(rs []punctual.PushResult) {
	for _, r := range rs {
		if s.seen%s.every == 0 {
			s.ids = append(append(s.ids, r.ID...), '\n')
		}
		s.seen++
	}
}

func samplePath(kept string) string { return filepath.Join(kept, "ids") }

// save writes the IDs in random order.
func (s *sample) save(kept string) error {
	lines := bytes.SplitAfter(s.ids, []byte("\n"))
	lines = lines[:len(lines)-1] // without the empty rest after the last line
	mathrand.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	return os.WriteFile(samplePath(kept), bytes.Join(lines, nil), 0o644)
}

// takeIDs returns the next n IDs of the sample, or fewer if fewer are left, and removes them from
// its file, so that no ID is used twice.
func takeIDs(kept string, n int) ([]string, error) {
	data, err := os.ReadFile(samplePath(kept))
	if err != nil {
		return nil, err
	}
	var ids []string
	for len(ids) < n && len(data) > 0 {
		id, rest, _ := bytes.Cut(data, []byte("\n"))
		ids, data = append(ids, string(id)), rest
	}
	return ids, os.WriteFile(samplePath(kept), data, 0o644)
}
