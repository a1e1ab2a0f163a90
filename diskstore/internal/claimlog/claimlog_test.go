package claimlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// frameOf is a frame of the claim log around a payload.
func frameOf(payload []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(payload, castagnoli))
	return append(b, payload...)
}

func clockPayload(ms int64) []byte { return binary.AppendVarint([]byte{kindClock}, ms) }

func FuzzClaimSegment(f *testing.F) {
	at := storekit.FromMillis(1_700_000_000_000)
	leases := leasePayload([]record.Lease{
		{Topic: 1, At: record.Position{Ms: -7, Seq: 1}, Token: 5, Attempt: 1, Until: 99},
		{Topic: 2, At: record.Position{Ms: 7, Seq: 1 << 60}, Token: 1 << 50, Attempt: 2, Until: 1 << 60, Expired: []punctual.Failure{{Attempt: 1, At: at, Error: storekit.LeaseRanOut}}},
	})
	settled := []byte{kindSettled, 2, 3}
	two := append(frameOf(leases), frameOf(settled)...)
	clock := append(frameOf(clockPayload(1_700_000_000_000)), frameOf(clockPayload(-5))...)
	for _, b := range [][]byte{two, clock, clock[:len(clock)-1], frameOf([]byte{kindClock}), append(frameOf([]byte{kindSynced, 9}), two...), frameOf([]byte{kindSynced}), frameOf(clockPayload(-1 << 63)), two[:len(two)-3], frameOf([]byte{9}), append(frameOf(settled), 0, 0, 0, 0, 0, 0, 0, 0, 0), {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1}} {
		f.Add(b, true)
		f.Add(b, false)
	}
	// A payload whose frame has the right checksum, and that claims to hold 2^64-1 expired
	// attempts.
	f.Add([]byte{kindLease, 1, 1, 2, 1, 0, 1, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, true)
	f.Fuzz(func(t *testing.T, b []byte, framed bool) {
		data := b
		if framed { // otherwise hardly any payload of the fuzzer would have the right checksum
			data = append(frameOf(leases), frameOf(b)...)
		}
		table := &Contents{leases: make(map[uint64]record.Lease)}
		rest, err := table.readSegment(data)
		if err != nil && !errors.Is(err, punctual.ErrCorrupt) && !errors.Is(err, punctual.ErrUnsupported) {
			t.Errorf("error without its kind: %v", err)
		}
		if rest < 0 || rest > len(data) {
			t.Errorf("%d of %d bytes are left", rest, len(data))
		}
		if len(table.leases)+len(table.Acked) > len(data) {
			t.Errorf("%d bytes became %d leases and %d acks", len(data), len(table.leases), len(table.Acked))
		}
		if table.Timed {
			again := &Contents{leases: make(map[uint64]record.Lease)}
			if err := again.read(clockPayload(table.Clock)); err != nil || !again.Timed || again.Clock != table.Clock {
				t.Errorf("round trip: the clock %d became %d, %v", table.Clock, again.Clock, err)
			}
		}
		for _, l := range table.leases {
			again := &Contents{leases: make(map[uint64]record.Lease)}
			if err := again.read(leasePayload([]record.Lease{l})); err != nil || !reflect.DeepEqual(again.leases[l.At.Seq], l) {
				t.Errorf("round trip: %+v became %+v, %v", l, again.leases[l.At.Seq], err)
			}
		}
	})
}

// TestClaimSegmentNames: a file is a segment only if Name returns its name for some number.
func TestClaimSegmentNames(t *testing.T) {
	fs := vfs.NewMem()
	for _, name := range []string{
		"claims-1000000.log", "claims-000007.log", "claims-999999.log", "claims-000000.log",
		"claims-7.log", "claims-0000007.log", "claims-+00007.log", "claims--00007.log", "claims-00000x.log",
		"claims-000007.log~", "claims-000007.damaged", "xclaims-000007.log", "claims-.log", "claims-99999999999999999999.log",
	} {
		f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
		if err = errkind.JoinClose(err, f); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Segments(fs, "")
	if want := []int{0, 7, 999_999, 1_000_000}; err != nil || !slices.Equal(got, want) {
		t.Errorf("segments %v, %v; want %v", got, err, want)
	}
}

// TestTopicNumberIsNotCut: a topic's number of more than 32 bits in a frame is damage. It is not
// cut to the number of another topic.
func TestTopicNumberIsNotCut(t *testing.T) {
	table := &Contents{leases: make(map[uint64]record.Lease)}
	payload := append(binary.AppendUvarint([]byte{kindAcked}, 1<<32+1), 1, 2)
	if err := table.read(payload); !errors.Is(err, punctual.ErrCorrupt) || len(table.Acked) > 0 && table.Acked[0].Topic == 1 {
		t.Errorf("read: %v, %+v; want ErrCorrupt", err, table.Acked)
	}
}

// TestTornIsNotDamage: what a power cut leaves of a segment is not reported as damage, however much
// is missing. An unreadable part that had been synced is damage.
func TestTornIsNotDamage(t *testing.T) {
	payload := leasePayload(make([]record.Lease, limits.MaxClaim))
	large := frameOf(append([]byte{kindLease}, bytes.Repeat(payload[1:], 20)...))
	synced := frameOf(clockPayload(1))
	header := frameOf(binary.AppendUvarint([]byte{kindSynced}, uint64(len(synced))))
	whole := slices.Concat(header, synced, large)
	if len(large) < 2*TornTail {
		t.Fatalf("the large frame has %d bytes", len(large))
	}
	hole := bytes.Clone(whole)
	clear(hole[len(header)+len(synced) : len(whole)/2])
	for _, c := range []struct {
		name         string
		before, data []byte // of the segment before and of the newest one; nil: there is none before
		told, damage bool
	}{
		{"whole", nil, whole, false, false},
		{"torn in a large frame", nil, whole[:len(whole)-1], true, false},
		{"torn in a small frame", nil, append(bytes.Clone(whole), frameOf(payload)[:5]...), false, false},
		{"a hole", nil, hole, true, false},
		{"the synced part ends early", nil, whole[:len(header)+3], true, true},
		{"the header is unreadable", nil, whole[1:], true, true},
		{"cut at the end of the synced part", nil, whole[:len(header)+len(synced)], false, false},
		{"cut between two frames of the synced part", nil, whole[:len(header)], true, true},
		{"cut behind the clock", nil, synced, true, true},
		{"cut to nothing", nil, []byte{}, true, true},
		{"nothing, and the segment before is there", whole, []byte{}, false, false},
		{"the header is unreadable, and the segment before is there", whole, whole[1:], true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := vfs.NewMem()
			for n, data := range map[int][]byte{7: c.before, 8: c.data} {
				if data == nil {
					continue
				}
				f, err := fs.Create(Name(n), vfs.WriteCategoryUnspecified)
				if err != nil {
					t.Fatal(err)
				}
				_, err = f.Write(bytes.Clone(data)) // the file system in memory overwrites what it was given, under the race detector
				if err = errkind.JoinClose(err, f); err != nil {
					t.Fatal(err)
				}
			}
			var told []Unreadable
			if _, err := Read(fs, "", func(u Unreadable) error { told = append(told, u); return nil }); err != nil {
				t.Fatal(err)
			}
			if (len(told) == 1) != c.told || c.told && told[0].Damage != c.damage {
				t.Errorf("told %d times, %+v; want it told: %v, as damage: %v", len(told), told, c.told, c.damage)
			}
		})
	}
}

// TestTheFirstSegmentMayBeEmpty: no segment was deleted for the one with number 1, so it may never
// have been synced.
func TestTheFirstSegmentMayBeEmpty(t *testing.T) {
	fs := vfs.NewMem()
	f, err := fs.Create(Name(1), vfs.WriteCategoryUnspecified)
	if err = errkind.JoinClose(err, f); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(fs, "", func(u Unreadable) error { return errors.New("it was told as damage") }); err != nil {
		t.Error(err)
	}
}
