// Package claimlog writes leases and acks to files, so that they survive the process. A claim is
// appended with one write before its messages are delivered, so that the attempts survive kill -9
// (P6) although the claim waits for no fsync. Segments are files claims-NNNNNN.log of frames:
//
//	length(4) crc32c(4) payload        little endian; length and checksum are of the payload
//
// and a payload is kind(1) and the rest. Numbers are uvarints, and varint is the zigzag kind, both
// as encoding/binary writes them. seq is the number of the message; due, until and at are Unix
// milliseconds:
//
//	kind 1, leases:   { topic seq due(varint) token renewals attempt until(varint) length(varint) moved(varint) count { attempt at(varint) } }
//	kind 2, settled:  { seq token }    the lease is over; the database knows the rest
//	kind 3, acked:    { topic seq due(varint) }   the message is finished, and soon deleted
//	kind 4, durable:  number           the transactions up to this one were durable
//	kind 5, clock:    ms(varint)       the store's clock had reached this
//	kind 6, synced:   bytes            so many bytes after this frame were synced before older segments were deleted
//	kind 7, step:     count from(varint) to(varint)   the store's clock stepped back for the count-th time
//
// For example, this frame has the lease with token 1, for the first attempt, of message 1 in topic
// 2, which is due at 10:00 UTC on 2026-11-20, until a minute later:
//
//	17000000 8bea50d6             23 bytes follow, and their checksum
//	01                            leases
//	02 01 80b4b086bf68 01 00 01   topic, seq, due, token, renewals, attempt
//	c0ddb786bf68 c0a907 00 00     until, length, moved, count
//
// Of several leases of one message the one with the highest token counts, and of those the one
// renewed most often. A message that is not in the database, or whose record has this token or a
// higher one, has no lease. So the order of frames does not matter, and neither does repetition. A
// segment is replaced by starting the next one and appending all leases of that moment to it. Two
// frames of a lease with the same token and renewals are equal, because a lease is not written
// before its attempt is counted. A step of the clock renews the leases that it moves.
//
// The durable marker reveals damage. A database whose newest log was cut off or damaged opens
// without the transactions after that place, as it must after a crash. But if the claim log has
// recorded a transaction as durable that the database does not have, more is missing than a crash
// can take.
//
// In kind 1, length is how long before until the lease was granted or last extended, and moved is
// the due time if a step of the clock has moved it, or 0. count is the number of earlier attempts
// that expired, each with the time at which a claim found that. Leases follow each other without a
// length, so a further field of a lease needs a new kind.
//
// The clock is written before every frame but a durable marker if it has moved since it was written
// last, here or in a durable transaction, and in each new segment in any case, because the segments
// that had it are deleted. So after kill -9 it never starts again before a time that a caller has
// seen (P8). A step of the clock back is written in the same way before the first time after it.
// Times in frames before that of a step do not count any more. The order of steps and times
// matters, so a step is also written at the beginning of each new segment.
//
// The compatibility rules: new kinds get new numbers; unknown ones are an error.
package claimlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/failstop"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// The kinds of frames.
const (
	kindLease   = 1
	kindSettled = 2
	kindAcked   = 3
	kindDurable = 4
	kindClock   = 5
	kindSynced  = 6
	kindStep    = 7
)

// Log is the claim log of an open store. It uses neither memory nor the database: its arguments are
// leases, numbers and callbacks. It is safe for concurrent use.
type Log struct {
	Options

	// clockLogged is the latest time of the clock that was written to a segment or is in a durable
	// transaction, so that after kill -9 the clock starts again at this time or later. A step of
	// the clock sets it back to math.MinInt64. Written with mu held.
	clockLogged atomic.Int64

	// replacing is held while a segment is replaced, and while Link gives the segments second
	// names. It is taken before mu.
	replacing sync.Mutex

	mu      sync.Mutex
	file    vfs.File    // guarded by mu: the newest segment
	num     int         // guarded by mu: its number
	size    int64       // guarded by mu
	torn    error       // guarded by mu: why the last write failed; nothing may follow it
	timed   bool        // guarded by mu: the newest segment has the clock, and the last step before it
	step    record.Step // guarded by mu: the last step of the clock
	stepTxn uint64      // guarded by mu: the transaction of that step; times of transactions before it do not count
	durable uint64      // guarded by mu: the last transaction known to be durable
	synced  int64       // guarded by mu: a lower bound of the time at which the clock starts again after a power cut
}

// Options of a log. All are needed.
type Options struct {
	FS    vfs.FS
	Dir   string
	State *failstop.State
	Limit int64        // the size at which a segment is full, in bytes
	Clock func() int64 // the store's clock in Unix milliseconds
	// MaxLag is about by how much a power cut may set the clock back, in milliseconds; see Due.
	MaxLag int64
	// Behind is called when one of the results of Due is true after an append of leases, of ends of
	// leases, of acks, or of the clock alone.
	Behind func()
}

// New returns a log that continues the one that was read, with the step that Contents.Passed has
// found. The first Replace begins its first segment. Before that nothing may be appended, and
// MarkDurable writes no frame.
func New(read *Contents, o Options) *Log {
	l := &Log{Options: o, num: read.last, durable: read.Durable, step: read.Step, synced: math.MinInt64}
	l.clockLogged.Store(math.MinInt64)
	return l
}

// Name is the name of a segment. The number has six digits or more, because it grows with every
// Replace, and so with every opening of the store, and never starts again.
func Name(num int) string { return fmt.Sprintf("%s%06d%s", Prefix, num, suffix) }

// Prefix begins the name of every segment.
const Prefix = "claims-"

const suffix = ".log"

// parseName is the number of the segment with that name, and false for any other file.
func parseName(name string) (num int, ok bool) {
	num, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(name, Prefix), suffix))
	return num, err == nil && num >= 0 && name == Name(num)
}

// start begins segment num.
func (l *Log) start(num int) error {
	f, err := l.FS.Create(l.FS.PathJoin(l.Dir, Name(num)), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.file
	l.file, l.num, l.size, l.torn, l.timed = f, num, 0, nil, false
	if old != nil {
		return old.Close()
	}
	return nil
}

// AppendLeases appends leases that a claim is about to make, that were extended, or that replace
// others which were granted and not made. The error says whether they may have been written.
func (l *Log) AppendLeases(leases []record.Lease) error { return l.do(leasePayload(leases)) }

// AppendEnded appends that leases are over. It writes only the message number and the token of
// each.
func (l *Log) AppendEnded(leases []record.Lease) error {
	b := append(make([]byte, 0, 1+16*len(leases)), kindSettled)
	for _, e := range leases {
		b = binary.AppendUvarint(b, e.At.Seq)
		b = binary.AppendUvarint(b, uint64(e.Token))
	}
	return l.do(b)
}

// AppendAcked appends that messages are finished. It writes only the topic and position of each.
func (l *Log) AppendAcked(leases []record.Lease) error {
	b := append(make([]byte, 0, 1+16*len(leases)), kindAcked)
	for _, a := range leases {
		b = binary.AppendUvarint(b, uint64(a.Topic))
		b = binary.AppendUvarint(b, a.At.Seq)
		b = binary.AppendVarint(b, a.At.Ms)
	}
	return l.do(b)
}

// KeepClock makes sure that the clock does not start again before ms, a time that is about to be
// given out. It writes the clock unless a written clock has reached ms. A full disk is no error
// here, because a caller who reads the time cannot free space.
func (l *Log) KeepClock(ms int64) error {
	if l.clockLogged.Load() >= ms {
		return nil
	}
	if err := l.do(); !errors.Is(err, punctual.ErrNoSpace) {
		return err
	}
	return nil
}

// ClockLogged is the highest time of the clock that is in the log or in a durable transaction.
func (l *Log) ClockLogged() int64 { return l.clockLogged.Load() }

// do is append as a step of a call. If the disk hangs, do returns when the store has failed.
func (l *Log) do(payloads ...[]byte) error {
	return l.State.Do("write to the claim log", func() error {
		err := l.append(payloads...)
		if full, lags := l.Due(); full || lags { // inside State.Do, because Due waits for mu, which a write that hangs holds
			l.Behind()
		}
		return err
	})
}

// append writes a frame for each payload, in one write. If the clock has moved on, or the segment
// does not have it yet, a frame with the time comes first.
func (l *Log) append(payloads ...[]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	logged := l.clockLogged.Load()
	now := max(l.Clock(), logged)
	if now > logged || !l.timed {
		payloads = append([][]byte{binary.AppendVarint([]byte{kindClock}, now)}, payloads...)
	}
	if !l.timed && l.step.Count > 0 {
		payloads = append([][]byte{stepPayload(l.step)}, payloads...)
	}
	if len(payloads) == 0 {
		return nil
	}
	err := l.write(payloads...)
	if err == nil {
		l.clockLogged.Store(now)
		l.timed = true
	}
	return err
}

// StepClock has step make a step of the clock in the transaction txn, whose number no other
// transaction has. Nothing is appended meanwhile, and the step is written before the first time
// after it. step is given its count, and returns false if there was no step.
func (l *Log) StepClock(txn uint64, step func(count int64) (record.Step, bool)) error {
	return l.State.Do("step the clock", func() error { // because a write that hangs holds mu
		l.mu.Lock()
		defer l.mu.Unlock()
		logged := l.clockLogged.Load()
		l.clockLogged.Store(math.MinInt64) // before any caller can read a time after the step, which KeepClock compares with it
		s, stepped := step(l.step.Count + 1)
		if !stepped {
			l.clockLogged.Store(logged)
			return nil
		}
		l.step, l.stepTxn, l.synced, l.timed = s, txn, math.MinInt64, false
		return nil
	})
}

// MarkDurable records that the transactions up to num are durable, and with them the clock. A
// failure to write the frame does no harm to the messages, because the frame only reveals damage.
func (l *Log) MarkDurable(num uint64, clock int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if num <= l.durable {
		return
	}
	l.durable = num
	if num >= l.stepTxn {
		l.synced = max(clock, l.synced)
		l.clockLogged.Store(max(clock, l.clockLogged.Load()))
	}
	if l.file != nil && l.torn == nil {
		l.torn = l.write(binary.AppendUvarint([]byte{kindDurable}, num))
	}
}

// Durable is the last transaction known to be durable.
func (l *Log) Durable() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durable
}

// write appends a frame for each payload. Called with mu held.
func (l *Log) write(payloads ...[]byte) error {
	if l.torn != nil {
		return fmt.Errorf("segment %s ends in a failed write: %w", Name(l.num), l.torn)
	}
	var frames []byte
	for _, p := range payloads {
		// The largest payload, that of limits.MaxClaim leases with MaxFailures expired attempts
		// each, has some megabytes, so its length fits.
		frames = slices.Grow(frames, frameHeader+len(p))
		frames = binary.LittleEndian.AppendUint32(frames, uint32(len(p)))
		frames = binary.LittleEndian.AppendUint32(frames, crc32.Checksum(p, castagnoli))
		frames = append(frames, p...)
	}
	n, err := l.file.Write(frames)
	l.size += int64(n)
	l.torn = err
	return err
}

// Due tells whether the newest segment should be replaced, and whether a transaction should write
// the clock.
func (l *Log) Due() (full, clockLags bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.torn != nil || l.size >= l.Limit, l.clockLogged.Load() >= l.synced+l.MaxLag
}

// Segment is the number of the newest segment.
func (l *Log) Segment() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.num
}

// Replace begins a new segment and deletes the older ones. It writes all leases of this moment into
// the new segment. Before it deletes, barrier makes durable what the database must know of all
// other leases. Claims and acks continue meanwhile, in the new segment.
//
// The barrier is needed because a lease that memory does not have any more was ended by an ack or
// by a transaction, and the deletion of the message, or the transaction, may not be in the
// database's log yet. After a kill only the older segments would have the attempt.
func (l *Log) Replace(leases func() []record.Lease, barrier func() error) error {
	l.replacing.Lock()
	defer l.replacing.Unlock()
	num := l.Segment() + 1
	err := l.State.Do("begin a segment of the claim log", func() error {
		if err := l.start(num); err != nil {
			return err
		}
		payloads := [][]byte{binary.AppendUvarint([]byte{kindDurable}, l.Durable())}
		for some := range slices.Chunk(leases(), limits.MaxClaim) {
			payloads = append(payloads, leasePayload(some))
		}
		size := 0
		for _, p := range payloads {
			size += frameHeader + len(p)
		}
		if err := l.append(append([][]byte{binary.AppendUvarint([]byte{kindSynced}, uint64(size))}, payloads...)...); err != nil {
			return err
		}
		return l.Sync()
	})
	if err == nil {
		err = barrier()
	}
	if err != nil {
		return err
	}
	return l.State.Do("delete old segments of the claim log", func() error { return l.removeBefore(num) })
}

// Part is a segment, with how many of its bytes were written at some instant.
type Part struct {
	Name string
	Size int64
}

// Link gives the segments, as they are at one instant, a second name in the directory to. During
// cut, which calls now at that instant, no segment is deleted. A segment goes on growing under both
// names, so only the bytes that its Part tells belong to that instant. Where the file system has no
// links, Link copies the segments. plain makes the links, so that a failure there is not one of the
// store.
func (l *Log) Link(plain vfs.FS, to string, cut func(now func()) error) (parts []Part, err error) {
	l.replacing.Lock()
	defer l.replacing.Unlock()
	var num int
	var size int64
	err = cut(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		num, size = l.num, l.size
	})
	if err != nil {
		return nil, err
	}
	segments, err := Segments(plain, l.Dir)
	if err != nil {
		return nil, err
	}
	for _, n := range segments {
		p := Part{Name: Name(n), Size: size}
		path := plain.PathJoin(l.Dir, p.Name)
		if n != num {
			info, err := plain.Stat(path)
			if err != nil {
				return nil, err
			}
			p.Size = info.Size()
		}
		if err := vfs.LinkOrCopy(plain, path, plain.PathJoin(to, p.Name)); err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// Sync makes the newest segment durable. It does not keep claims from being appended meanwhile.
func (l *Log) Sync() error {
	l.mu.Lock()
	file := l.file
	l.mu.Unlock()
	return file.Sync()
}

// Close closes the newest segment.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}

// removeBefore deletes the segments older than num, the newest of them first. A segment that a
// failed replacement has left may never have been synced. If the synced segment before it were
// deleted first, it would be the oldest, and Read would take it for damaged.
func (l *Log) removeBefore(num int) error {
	segments, err := Segments(l.FS, l.Dir)
	if err != nil {
		return err
	}
	for _, n := range slices.Backward(segments) {
		if n < num {
			if err := l.FS.Remove(l.FS.PathJoin(l.Dir, Name(n))); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// Segments lists the numbers of the segments, oldest first.
func Segments(fs vfs.FS, dir string) ([]int, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, name := range names {
		if n, ok := parseName(name); ok {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

func leasePayload(leases []record.Lease) []byte {
	b := append(make([]byte, 0, 1+48*len(leases)), kindLease)
	for _, l := range leases {
		b = binary.AppendUvarint(b, uint64(l.Topic))
		b = binary.AppendUvarint(b, l.At.Seq)
		b = binary.AppendVarint(b, l.At.Ms)
		b = binary.AppendUvarint(b, uint64(l.Token))
		b = binary.AppendUvarint(b, l.Renewed)
		b = binary.AppendUvarint(b, uint64(l.Attempt))
		b = binary.AppendVarint(b, l.Until)
		b = binary.AppendVarint(b, l.Until-l.Since)
		b = binary.AppendVarint(b, l.Due)
		b = binary.AppendUvarint(b, uint64(len(l.Expired)))
		for _, f := range l.Expired {
			b = binary.AppendUvarint(b, uint64(f.Attempt))
			b = binary.AppendVarint(b, storekit.Millis(f.At))
		}
	}
	return b
}

func stepPayload(s record.Step) []byte {
	b := binary.AppendUvarint([]byte{kindStep}, uint64(s.Count))
	return binary.AppendVarint(binary.AppendVarint(b, s.From), s.To)
}

// Contents is what a claim log says.
type Contents struct {
	Acked   []record.Lease          // messages that are finished, of which only Topic and At are set
	Durable uint64                  // the last transaction that was durable
	Step    record.Step             // the last step of the clock
	Clock   int64                   // what the store's clock had reached since Step; valid if Timed
	Timed   bool                    // the clock is known
	leases  map[uint64]record.Lease // by message number; a lease that is over has topic 0
	last    int                     // the number of the newest segment; 0 if there is none
	synced  int                     // up to where the segment read last was synced for certain; -1 if that is not known
}

// Leases returns one lease of each message that the log names: the one that counts. If the log
// knows that the lease is over, its topic is 0, which is no topic.
func (t *Contents) Leases() iter.Seq[record.Lease] { return maps.Values(t.leases) }

// Tick records a time that the clock had reached.
func (t *Contents) Tick(ms int64) {
	if !t.Timed || ms > t.Clock {
		t.Clock, t.Timed = ms, true
	}
}

// Passed is the time that the store's clock has passed since the last step: the later one of that
// in the claim log and clock, the time in the database, which counts if known is true. It is zero
// if neither has a time. step is the last step that the database knows; from here on Step is the
// last one that either knows.
func (t *Contents) Passed(clock int64, known bool, step record.Step) (passed time.Time) {
	t.stepped(step)
	if known && step.Count == t.Step.Count {
		t.Tick(clock)
	}
	if t.Timed {
		passed = storekit.FromMillis(t.Clock)
	}
	return passed
}

// stepped records a step of the clock. What the clock had reached before does not count any more.
func (t *Contents) stepped(s record.Step) {
	if s.Count > t.Step.Count {
		t.Step, t.Clock, t.Timed = s, s.To, true
	}
}

func (t *Contents) add(l record.Lease) {
	old, ok := t.leases[l.At.Seq]
	if !ok || l.Token > old.Token || l.Token == old.Token && l.Renewed > old.Renewed {
		t.leases[l.At.Seq] = l
	}
}

// ack records an acked message, whose lease is over whatever its token was.
func (t *Contents) ack(l record.Lease) {
	t.Acked = append(t.Acked, l)
	t.settle(l.At.Seq, 1<<63-1)
}

// settle records that a lease is over, as a lease with topic 0.
func (t *Contents) settle(seq uint64, token int64) {
	t.add(record.Lease{At: record.Position{Seq: seq}, Token: token, Renewed: 1<<64 - 1})
}

// read adds one payload, which is not empty, to the contents.
func (t *Contents) read(payload []byte) error {
	d := record.Decoder{Rest: payload[1:]}
	for len(d.Rest) > 0 {
		switch kind := payload[0]; kind {
		case kindLease:
			t.add(readLease(&d))
		case kindSettled:
			seq := d.Uvarint()
			t.settle(seq, int64(d.Uvarint()))
		case kindAcked:
			l := record.Lease{Topic: d.Uint32()}
			l.At.Seq = d.Uvarint()
			l.At.Ms = d.Varint()
			t.ack(l)
		case kindDurable:
			t.Durable = max(t.Durable, d.Uvarint())
		case kindSynced:
			d.Uvarint() // see readSegment
		case kindClock:
			if ms := d.Varint(); !d.Bad {
				t.Tick(ms)
			}
		case kindStep:
			s := record.Step{Count: int64(d.Uvarint())}
			s.From, s.To = d.Varint(), d.Varint()
			if !d.Bad {
				t.stepped(s)
			}
		default:
			return fmt.Errorf("claim log has a frame of kind %d, which this program does not know: %w; use the release that wrote it, or a newer one",
				kind, punctual.ErrUnsupported)
		}
	}
	if d.Bad {
		return errkind.Corruptf("claim log has a frame that is cut short")
	}
	return nil
}

func readLease(d *record.Decoder) record.Lease {
	l := record.Lease{Topic: d.Uint32()}
	l.At.Seq = d.Uvarint()
	l.At.Ms = d.Varint()
	l.Token, l.Renewed = int64(d.Uvarint()), d.Uvarint()
	l.Attempt, l.Until = int(d.Uvarint()), d.Varint()
	l.Since, l.Due = l.Until-d.Varint(), d.Varint()
	for range d.Uvarint() {
		if d.Bad {
			break
		}
		l.Expired = append(l.Expired, punctual.Failure{
			Attempt: int(d.Uvarint()), At: storekit.FromMillis(d.Varint()), Error: storekit.LeaseRanOut,
		})
	}
	return l
}

// Unreadable is the end of a segment whose frame is cut short or has a wrong checksum, or that is
// missing although it was synced.
type Unreadable struct {
	Name  string // of the file
	Data  []byte // the whole segment
	Bytes int    // how many bytes at its end cannot be read; 0 if the file ends too early, behind a whole frame
	// Damage says that a crash does not explain the unreadable or missing end, because bytes of it
	// must have been synced; see Read.
	Damage bool
}

// String says which file is unreadable, and how.
func (u Unreadable) String() string {
	if u.Bytes == 0 {
		return fmt.Sprintf("%s ends after %d bytes, before the end of what had been synced", u.Name, len(u.Data))
	}
	return fmt.Sprintf("%s has %d bytes that cannot be read", u.Name, u.Bytes)
}

// Read reads all segments. An unreadable frame ends its segment. A crash tears the end of a
// segment, and after a power cut any part of it may be missing, because claims are not synced. What
// is lost then are attempts, leases and acks, never messages. With them goes what the segment knew
// of the clock and of durable transactions: the clock may start again somewhat earlier
// (Options.MaxLag), and damage of the database's newest log may pass for its torn end. Read calls
// unreadable for an end that is damaged, and for one of more than TornTail bytes.
//
// Replace deletes the older segments only after it has synced the beginning of the new one, and a
// frame there says how many bytes that is (kind 6). So no crash makes this beginning unreadable in
// the oldest segment that is left, or cuts the file off within it. It is damage if that segment can
// be read only up to a place before the end of this beginning, or has no such frame, also if it is
// empty. The segment with number 1 is excepted: no older one was deleted for it, so it may never
// have been synced. Of a segment that ends behind its beginning, or that has older ones beside it,
// nobody can tell whether bytes are missing, because a crash may take them.
func Read(fs vfs.FS, dir string, unreadable func(Unreadable) error) (*Contents, error) {
	segments, err := Segments(fs, dir)
	if err != nil {
		return nil, err
	}
	table := &Contents{leases: make(map[uint64]record.Lease)}
	for i, n := range segments {
		table.last = n
		data, err := failstop.ReadFile(fs, fs.PathJoin(dir, Name(n)))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", Name(n), err)
		}
		rest, err := table.readSegment(data)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", Name(n), err)
		}
		whole := table.synced >= 0 && len(data)-rest >= table.synced
		if u := (Unreadable{Name(n), data, rest, i == 0 && n > 1 && !whole}); rest > TornTail || u.Damage {
			if err := unreadable(u); err != nil {
				return nil, err
			}
		}
	}
	return table, nil
}

// TornTail is about the size of the frame of a large claim. More unreadable bytes than that at the
// end of a segment are reported.
const TornTail = limits.MaxClaim * 48

// frameHeader is how many bytes a frame has before its payload.
const frameHeader = 8

// readSegment adds the frames of a segment and returns how many bytes at its end cannot be read.
func (t *Contents) readSegment(data []byte) (rest int, err error) {
	t.synced = -1
	for off := 0; ; {
		rest := data[off:]
		if len(rest) < frameHeader {
			return len(rest), nil
		}
		n := binary.LittleEndian.Uint32(rest)
		if n == 0 || uint64(n) > uint64(len(rest)-frameHeader) {
			return len(rest), nil
		}
		payload := rest[frameHeader : frameHeader+n]
		if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(rest[4:]) {
			return len(rest), nil
		}
		if err := t.read(payload); err != nil {
			return 0, err
		}
		off += frameHeader + len(payload)
		if payload[0] == kindSynced {
			d := record.Decoder{Rest: payload[1:]}
			t.synced = off + int(min(d.Uvarint(), math.MaxInt32))
		}
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// KeepDamaged keeps a copy of a damaged segment.
func KeepDamaged(fs vfs.FS, dir, name string, data []byte) error {
	f, err := fs.Create(fs.PathJoin(dir, strings.TrimSuffix(name, suffix)+DamagedSuffix), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("keep %s aside: %w", name, err)
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err = errkind.JoinClose(err, f); err != nil {
		return fmt.Errorf("keep %s aside: %w", name, err)
	}
	return nil
}

// DamagedSuffix ends the name of the copy of a damaged segment.
const DamagedSuffix = ".damaged"
