package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The machine's limit is how fast batches can be appended to one file, each made durable by
// fdatasync before the next. A store that wrote nothing but its messages, in one file and without
// an index, could not be faster without giving up durability.

const (
	bodyBytes = 200
	idBytes   = 26
	// messageBytes is how many bytes any store has to write for a message: its body, an ID of 26
	// bytes and 8 bytes for the due time. ackBytes is that for an ack, a cancel or a reschedule: an
	// ID and 8 bytes for a token or a time.
	messageBytes = bodyBytes + idBytes + 8
	ackBytes     = idBytes + 8
)

// limitSpan returns the length of one measurement of the limit. There are two: one before and one
// after the measurement that is compared with the limit.
func limitSpan(z sizes) time.Duration { return max(z.Span/5, 100*time.Millisecond) }

// limit is what was measured of the machine's limit.
type limit struct {
	items int
	took  time.Duration
	syncs *hdrhistogram.Histogram // microseconds of each append with its fdatasync
	sync  func(*os.File) error    // fdatasync, or what a test puts in its place
}

func newLimit() *limit { return &limit{syncs: newHistogram(), sync: fdatasync} }

func (l *limit) rate() float64 { return float64(l.items) / l.took.Seconds() }

// measure appends batches of n items of size bytes to a file in dir until d is over, and removes
// the file. It adds what it measured to l.
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

// against runs f, which returns its rate, between two measurements of the limit for batches of n
// items of size bytes. It notes the rate, the limit, the ratio of both, and how long the syncs of
// the limit took.
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
