package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// fleet is the consumer processes of a round.
type fleet struct {
	members []*member
	handled atomic.Int64 // how many messages all of them have handled, as far as they have reported
}

// member is one consumer process.
type member struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	records string
	read    func(path string) ([]record, error) // reads the file that records names
	ready   chan struct{}                       // closed when the consumer has reported that it is ready
	heard   chan struct{}                       // closed when all that the consumer wrote to standard output was read
	handled int64                               // how many messages it has reported so far; only listen uses it
	done    bool                                // the consumer has reported Done; to be read when heard is closed
	cpu     time.Duration                       // the CPU time that it has reported; to be read when heard is closed
	wrong   error                               // lines that are no reports, or a failed read; to be read when heard is closed
}

// startFleet starts n consumers and returns when all of them have reported that they are ready.
func (e *env) startFleet(ctx context.Context, n int, t consumerTask) (*fleet, error) {
	e.say("starting %d processes", n)
	f := new(fleet)
	for i := range n {
		t.Records = filepath.Join(e.dir, fmt.Sprintf("records-%d", i))
		m, err := f.start(ctx, t)
		if err != nil {
			_, err2 := f.stop()
			return nil, errors.Join(err, err2)
		}
		f.members = append(f.members, m)
	}
	for _, m := range f.members {
		select {
		case <-m.ready:
		case <-m.heard:
			_, err := f.stop()
			return nil, errors.Join(errors.New("a consumer ended before it was ready"), err)
		}
	}
	return f, nil
}

func (f *fleet) start(ctx context.Context, t consumerTask) (*member, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	arg, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	m := &member{records: t.Records, read: readRecords, ready: make(chan struct{}), heard: make(chan struct{})}
	m.cmd = exec.CommandContext(ctx, self, consumerVerb, string(arg))
	if t.System == sysBullMQ {
		m.read = readBullMQRecords
		if m.cmd, err = bullmqConsumer(ctx, t); err != nil {
			return nil, err
		}
	}
	m.cmd.Stderr = os.Stderr
	if m.stdin, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	go f.listen(m, out)
	return m, nil
}

// listen reads the reports of a consumer until its standard output ends.
func (f *fleet) listen(m *member, out io.Reader) {
	defer close(m.heard)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var r consumerReport
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			m.wrong = errors.Join(m.wrong, fmt.Errorf("a consumer says %q: %w", lines.Text(), err))
			continue
		}
		switch {
		case r.Ready:
			close(m.ready)
		case r.Done:
			m.done, m.cpu = true, r.CPU
		default:
			f.handled.Add(r.Handled - m.handled)
			m.handled = r.Handled
		}
	}
	m.wrong = errors.Join(m.wrong, lines.Err())
}

// await waits until the consumers have reported n handled letters in all.
func (f *fleet) await(ctx context.Context, n int64) error {
	var all atomic.Int64
	all.Store(n)
	return awaitCount(ctx, &f.handled, &all)
}

// stop makes the consumers end by closing their standard input, and waits until they have ended.
// cpu is the CPU time of all of them together.
func (f *fleet) stop() (cpu time.Duration, err error) {
	var errs []error
	for _, m := range f.members {
		errs = append(errs, m.stdin.Close())
	}
	for _, m := range f.members {
		<-m.heard
		errs = append(errs, m.wrong, m.cmd.Wait())
		if !m.done {
			errs = append(errs, errors.New("a consumer did not say what it handled"))
		}
		cpu += m.cpu
	}
	return cpu, errors.Join(errs...)
}

// deliveries returns the records of all consumers, in no particular order. The consumers must have
// ended.
func (f *fleet) deliveries() ([]record, error) {
	var mu sync.Mutex
	var all []record
	var errs []error
	var wg sync.WaitGroup
	for _, m := range f.members {
		wg.Go(func() {
			list, err := m.read(m.records)
			mu.Lock()
			defer mu.Unlock()
			all, errs = append(all, list...), append(errs, err)
		})
	}
	wg.Wait()
	return all, errors.Join(errs...)
}

// outcome sums up the deliveries of letters numbered from 0.
type outcome struct {
	first, last time.Time     // when the first and the last handler started
	late        *recorder     // how late handlers started; an early one counts as 0
	early       int64         // deliveries before the due time
	earliest    time.Duration // how long before its due time the earliest of them was
	twice       int64         // deliveries beyond the first of a letter
}

// check returns an error unless each of n letters was delivered and nothing else. It counts the
// deliveries that were early or repeated.
func check(n int64, list []record) (outcome, error) {
	v := outcome{late: newRecorder()}
	seen := make([]bool, n)
	missing := n
	for _, r := range list {
		if int64(r.Seq) >= n {
			return v, fmt.Errorf("letter %d of %d was delivered, which nobody pushed", r.Seq, n)
		}
		if seen[r.Seq] {
			v.twice++
		} else {
			missing--
		}
		seen[r.Seq] = true
		v.add(r)
	}
	if missing > 0 {
		return v, fmt.Errorf("%d of %d messages were never delivered (P1)", missing, n)
	}
	return v, nil
}

func (v *outcome) add(r record) {
	late := r.At.Sub(r.Due)
	if late < 0 {
		v.early++
		v.earliest = max(v.earliest, -late)
	}
	v.late.record(max(late, 0))
	if v.first.IsZero() || r.At.Before(v.first) {
		v.first = r.At
	}
	if r.At.After(v.last) {
		v.last = r.At
	}
}

// strict returns an error if a delivery was early or repeated, which Punctual promises never to do
// while no lease runs out.
func (v *outcome) strict() error {
	switch {
	case v.early > 0:
		return fmt.Errorf("%d messages were delivered before they were due, by up to %v (P2)", v.early, v.earliest)
	case v.twice > 0:
		return fmt.Errorf("%d deliveries were repetitions, though no lease ran out (P3)", v.twice)
	}
	return nil
}
