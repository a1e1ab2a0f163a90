package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The machine's own limit: one file that grows, to which batches are appended, each made
// durable with fdatasync before the next. A store that wrote nothing but its messages, in one
// file and without an index, could not be faster without giving up durability.

const (
	bodyBytes = 200
	idBytes   = 26
	// messageBytes is what any store has to write for a message: its body, an ID of 26
	// bytes and 8 for the due time. ackBytes is an ID and 8 for a token or time.
	messageBytes = bodyBytes + idBytes + 8
	ackBytes     = idBytes + 8
)

// limitSpan is the length of one measurement of the limit; there are two, before and after
// what is compared with it.
func limitSpan(z sizes) time.Duration { return max(z.Span/5, 100*time.Millisecond) }

// limit is what the machine did.
type limit struct {
	items int
	took  time.Duration
	syncs *hdrhistogram.Histogram // microseconds of one append with its fdatasync
	sync  func(*os.File) error    // fdatasync, unless a test counts
}

func newLimit() *limit { return &limit{syncs: newHistogram(), sync: fdatasync} }

func (l *limit) rate() float64 { return float64(l.items) / l.took.Seconds() }

// measure appends batches of n items of size bytes for as long as d, in the folder dir.
func (l *limit) measure(dir string, n, size int, d time.Duration) (err error) {
	path := filepath.Join(dir, "limit")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if rerr := os.Remove(path); err == nil {
			err = rerr
		}
	}()
	buf := randomBytes(n * size)
	start := time.Now()
	for last := start; last.Sub(start) < d; l.items += n {
		if _, err := f.Write(buf); err != nil {
			return err
		}
		if err := l.sync(f); err != nil {
			return fmt.Errorf("fdatasync: %w", err)
		}
		now := time.Now()
		if err := l.syncs.RecordValue(now.Sub(last).Microseconds()); err != nil {
			return err
		}
		last = now
	}
	l.took += time.Since(start)
	return nil
}

// against runs f between two measurements of the limit for batches of n items of size bytes, and
// notes the limit. f returns its rate.
func (e *env) against(n, size int, f func() (rate float64, err error)) error {
	l := newLimit()
	measure := func() error { return l.measure(e.kept, n, size, limitSpan(e.sizes)) }
	if err := measure(); err != nil {
		return fmt.Errorf("measure the machine's limit: %w", err)
	}
	rate, err := f()
	if err != nil {
		return err
	}
	if err := measure(); err != nil {
		return fmt.Errorf("measure the machine's limit: %w", err)
	}
	e.out.set("rate", rate)
	e.out.set("limit", l.rate())
	e.out.set("ratio", rate/l.rate())
	e.out.set("limit_sync_p50_us", float64(l.syncs.ValueAtQuantile(50)))
	e.out.set("limit_sync_p99_us", float64(l.syncs.ValueAtQuantile(99)))
	return nil
}
