package diskstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sort"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/punctualmq/punctual"
)

// The claim log says who holds which lease. A claim is appended with one write before
// the message is handed out, so that its attempt survives kill -9 (P6) without waiting
// for an fsync. Segments are files claims-NNNNNN.log of frames:
//
//	length(4) crc32c(4) payload        little endian; length and checksum are of the payload
//
// and a payload is kind(1) and the rest, numbers as uvarint:
//
//	kind 1, leases:   { topic seq due(varint) token renewals attempt until(varint) lapses { attempt at(varint) } }
//	kind 2, settled:  { seq token }    the lease is over; the database knows the rest
//	kind 3, acked:    { topic seq due(varint) }   the message is finished; see acked.go
//	kind 4, witness:  number           the transactions up to this one were durable
//
// Of several leases of one message the one with the highest token counts, and of those
// the one renewed most often. A message that is not in the database, or there with this token or a
// higher one, has no lease. So order and repetition do not matter, and a segment is replaced by
// starting the next one and appending all leases of that moment to it. Two frames of a lease
// with the same token and renewals are the same: a lease is not written before its attempt is
// counted.
//
// The witness is for damage: a database whose newest log was cut off or damaged opens without
// what came behind, as it must after a crash. But when the claim log has seen a
// transaction durable that the database does not know, more is missing than a crash takes.
//
// The law of change: new kinds get new numbers; unknown ones are an error.
const (
	claimLease   = 1
	claimSettled = 2
	claimAcked   = 3
	claimWitness = 4
)

// lease is one entry of the claim log.
type lease struct {
	topic   uint32
	key     pos
	token   int64
	renewed uint64 // how often this lease was extended
	attempt int
	until   int64
	lapses  []punctual.Failure // their text is punctual.ErrLeaseRanOut
}

type claimLog struct {
	fs    vfs.FS
	dir   string
	limit int64

	mu   sync.Mutex
	file vfs.File // guarded by mu: the newest segment
	num  int      // guarded by mu: its number
	size int64    // guarded by mu
	torn error    // guarded by mu: why the last write failed; nothing may follow it
	seen uint64   // guarded by mu: the last transaction known to be durable
}

func claimName(num int) string { return fmt.Sprintf("claims-%06d.log", num) }

// start begins segment num.
func (l *claimLog) start(num int) error {
	f, err := l.fs.Create(l.fs.PathJoin(l.dir, claimName(num)), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.file
	l.file, l.num, l.size, l.torn = f, num, 0, nil
	if old != nil {
		return old.Close()
	}
	return nil
}

// append writes one frame.
func (l *claimLog) append(payload []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.write(payload)
}

// witness notes that the transactions up to num are durable. To fail to write it down does
// no harm: it only shows damage.
func (l *claimLog) witness(num uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if num <= l.seen {
		return
	}
	l.seen = num
	if l.file != nil && l.torn == nil {
		l.torn = l.write(witnessPayload(num))
	}
}

// witnessed is the last transaction known to be durable.
func (l *claimLog) witnessed() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen
}

// write appends a frame. Called with mu held.
func (l *claimLog) write(payload []byte) error {
	frame := make([]byte, 8, 8+len(payload))
	binary.LittleEndian.PutUint32(frame, uint32(len(payload)))
	binary.LittleEndian.PutUint32(frame[4:], crc32.Checksum(payload, castagnoli))
	frame = append(frame, payload...)
	if l.torn != nil {
		return fmt.Errorf("segment %s ends in a failed write: %w", claimName(l.num), l.torn)
	}
	n, err := l.file.Write(frame)
	l.size += int64(n)
	l.torn = err
	return err
}

// full tells whether the newest segment should be replaced.
func (l *claimLog) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.torn != nil || l.size >= l.limit
}

// next is the number of the next segment.
func (l *claimLog) next() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.num + 1
}

// sync makes the newest segment durable.
func (l *claimLog) sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Sync()
}

func (l *claimLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}

// removeBefore deletes the segments older than num.
func (l *claimLog) removeBefore(num int) error {
	segments, err := claimSegments(l.fs, l.dir)
	if err != nil {
		return err
	}
	for _, n := range segments {
		if n < num {
			if err := l.fs.Remove(l.fs.PathJoin(l.dir, claimName(n))); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// claimSegments lists the numbers of the segments, oldest first.
func claimSegments(fs vfs.FS, dir string) ([]int, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, name := range names {
		var n int
		if _, err := fmt.Sscanf(name, "claims-%06d.log", &n); err == nil && name == claimName(n) {
			out = append(out, n)
		}
	}
	sort.Ints(out)
	return out, nil
}

func leasePayload(leases []lease) []byte {
	b := append(make([]byte, 0, 1+48*len(leases)), claimLease)
	for _, l := range leases {
		b = binary.AppendUvarint(b, uint64(l.topic))
		b = binary.AppendUvarint(b, l.key.seq)
		b = binary.AppendVarint(b, l.key.ms)
		b = binary.AppendUvarint(b, uint64(l.token))
		b = binary.AppendUvarint(b, l.renewed)
		b = binary.AppendUvarint(b, uint64(l.attempt))
		b = binary.AppendVarint(b, l.until)
		b = binary.AppendUvarint(b, uint64(len(l.lapses)))
		for _, f := range l.lapses {
			b = binary.AppendUvarint(b, uint64(f.Attempt))
			b = binary.AppendVarint(b, punctual.Millis(f.At))
		}
	}
	return b
}

func settledPayload(es []*entry) []byte {
	b := append(make([]byte, 0, 1+16*len(es)), claimSettled)
	for _, e := range es {
		b = binary.AppendUvarint(b, e.key.seq)
		b = binary.AppendUvarint(b, uint64(e.token))
	}
	return b
}

func witnessPayload(num uint64) []byte {
	return binary.AppendUvarint([]byte{claimWitness}, num)
}

func ackedPayload(as []acked) []byte {
	b := append(make([]byte, 0, 1+16*len(as)), claimAcked)
	for _, a := range as {
		b = binary.AppendUvarint(b, uint64(a.topic.num))
		b = binary.AppendUvarint(b, a.key.seq)
		b = binary.AppendVarint(b, a.key.ms)
	}
	return b
}

// claimTable is what the claim log says.
type claimTable struct {
	leases map[uint64]lease // by message number
	acked  []lease          // of which only topic and key are set
	seen   uint64           // the last transaction that was durable
}

func (t *claimTable) add(l lease) {
	old, ok := t.leases[l.key.seq]
	if !ok || l.token > old.token || l.token == old.token && l.renewed > old.renewed {
		t.leases[l.key.seq] = l
	}
}

// ack notes an acked message; its lease is over whatever its token was.
func (t *claimTable) ack(l lease) {
	t.acked = append(t.acked, l)
	t.settle(l.key.seq, 1<<63-1)
}

// settle marks a lease as over; the zero topic stands for that.
func (t *claimTable) settle(seq uint64, token int64) {
	t.add(lease{key: pos{seq: seq}, token: token, renewed: 1<<64 - 1})
}

// read adds one payload to the table.
func (t *claimTable) read(payload []byte) error {
	d := decoder{b: payload}
	kind := d.byte()
	for len(d.b) > 0 {
		switch kind {
		case claimLease:
			t.add(d.lease())
		case claimSettled:
			seq := d.uvarint()
			t.settle(seq, int64(d.uvarint()))
		case claimAcked:
			l := lease{topic: uint32(d.uvarint())}
			l.key.seq = d.uvarint()
			l.key.ms = d.varint()
			t.ack(l)
		case claimWitness:
			t.seen = max(t.seen, d.uvarint())
		default:
			return corruptf("claim log has a frame of unknown kind %d", kind)
		}
	}
	if d.bad {
		return corruptf("claim log has a frame that is cut short")
	}
	return nil
}

func (d *decoder) lease() lease {
	l := lease{topic: uint32(d.uvarint())}
	l.key.seq = d.uvarint()
	l.key.ms = d.varint()
	l.token, l.renewed = int64(d.uvarint()), d.uvarint()
	l.attempt, l.until = int(d.uvarint()), d.varint()
	for range d.uvarint() {
		if d.bad {
			break
		}
		l.lapses = append(l.lapses, punctual.Failure{
			Attempt: int(d.uvarint()), At: punctual.FromMillis(d.varint()), Error: punctual.ErrLeaseRanOut,
		})
	}
	return l
}

// readClaims reads all segments. A frame that does not check ends its segment: the end of
// a segment is torn by a crash, and after a power cut any part of it may be missing, because
// claims are not synced. What is lost then are attempts, never messages; damaged is called with
// a file of which more does not check than a crash can tear.
func readClaims(fs vfs.FS, dir string, damaged func(name string, data []byte, unreadable int) error) (*claimTable, int, error) {
	segments, err := claimSegments(fs, dir)
	if err != nil {
		return nil, 0, err
	}
	table, last := &claimTable{leases: make(map[uint64]lease)}, 0
	for _, n := range segments {
		last = n
		data, err := readFile(fs, fs.PathJoin(dir, claimName(n)))
		if err != nil {
			return nil, 0, fmt.Errorf("read %s: %w", claimName(n), err)
		}
		rest, err := table.readSegment(data)
		if err != nil {
			return nil, 0, fmt.Errorf("read %s: %w", claimName(n), err)
		}
		if rest > maxTornTail {
			if err := damaged(claimName(n), data, rest); err != nil {
				return nil, 0, err
			}
		}
	}
	return table, last, nil
}

// maxTornTail is about the size of the frame of the largest claim. More unreadable bytes than
// that at the end of a segment are taken for damage, not for a torn write.
const maxTornTail = punctual.MaxClaim * 48

// readSegment adds the frames of a segment and returns how many bytes at its end do not check.
func (t *claimTable) readSegment(data []byte) (rest int, err error) {
	for len(data) >= 8 {
		n := int(binary.LittleEndian.Uint32(data))
		if n == 0 || n > len(data)-8 {
			break
		}
		payload := data[8 : 8+n]
		if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(data[4:]) {
			break
		}
		if err := t.read(payload); err != nil {
			return 0, err
		}
		data = data[8+n:]
	}
	return len(data), nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func readFile(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	return data, joinClose(err, f)
}

// keepDamaged reports a damaged segment and keeps a copy of it.
func (s *Store) keepDamaged(name string, data []byte, unreadable int) error {
	s.log.Warn("claim log is damaged; some attempts are not counted and some messages may be delivered once more",
		"file", name, "unreadable_bytes", unreadable)
	f, err := s.fs.Create(s.fs.PathJoin(s.dir, strings.TrimSuffix(name, ".log")+damagedSuffix), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("keep %s aside: %w", name, err)
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err = joinClose(err, f); err != nil {
		return fmt.Errorf("keep %s aside: %w", name, err)
	}
	return nil
}

// damagedSuffix ends the name of the copy of a damaged segment.
const damagedSuffix = ".damaged"
