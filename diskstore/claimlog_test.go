package diskstore

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/claimlog"
	"github.com/punctualmq/punctual/storekit"
)

// TestClaimSegmentsOutgrowTheirWidth: a segment is read whatever its number is, because a million
// opens use up six digits.
func TestClaimSegmentsOutgrowTheirWidth(t *testing.T) {
	for _, last := range []string{"claims-999998.log", "claims-999999.log", "claims-1000000.log", "claims-9223372036854770000.log"} {
		t.Run(last, func(t *testing.T) {
			dir, clock := t.TempDir(), storekit.NewManualClock(testStart)
			s, err := Open(dir, &Options{Clock: clock})
			if err != nil {
				t.Fatal(err)
			}
			push(t, s, punctual.NewMessage{Topic: "o", ID: "held"})
			held := claim(t, s, "o", 1)[0]
			closeStore(t, s)
			if err := os.Rename(filepath.Join(dir, claimlog.Name(s.claims.Segment())), filepath.Join(dir, last)); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time the store has made the newest segment itself
				s, err = Open(dir, &Options{Clock: clock})
				if err != nil {
					t.Fatal(err)
				}
				if ds := claim(t, s, "o", 1); len(ds) != 0 {
					t.Fatalf("P3 one holder: claimed again while leased, as attempt %d", ds[0].Attempt)
				}
				closeStore(t, s)
			}
			s = openAt(t, dir, &Options{Clock: clock})
			if err := settle(t, s, held, punctual.SettleAck); err != nil {
				t.Errorf("P4: ack of the holder: %v", err)
			}
			if names, err := claimlog.Segments(s.fs, dir); err != nil || len(names) != 1 {
				t.Errorf("segments %v, %v; want the newest alone", names, err)
			}
		})
	}
}

// TestEndedLeaseStaysEndedWithoutItsFrame: a lease that a transaction ended does not come back
// when the claim log could not take the frame that says so.
func TestEndedLeaseStaysEndedWithoutItsFrame(t *testing.T) {
	mem, f, clock := vfs.NewCrashableMem(), &faults{}, storekit.NewManualClock(testStart)
	s := openAt(t, "store", &Options{fs: hookFS{mem, f.hook}, Clock: clock, Logger: quiet})
	push(t, s, punctual.NewMessage{Topic: "o", ID: "a"})
	d := claim(t, s, "o", 1)[0]
	f.set(func(_ int, op fsOp) error {
		if op.kind == "write" && strings.HasPrefix(op.name, claimlog.Prefix) {
			return errSpace
		}
		return nil
	})
	if err := settle(t, s, d, punctual.SettleRelease); err != nil {
		t.Fatalf("release on a disk where the claim log has no room: %v", err)
	}
	if _, hits, _ := f.state(); hits == 0 {
		t.Fatal("the claim log was not written to")
	}
	f.set(nil)
	again := openAt(t, "store", &Options{fs: afterKill(mem), Clock: clock, Logger: quiet})
	if err := settle(t, again, d, punctual.SettleExtend); !errors.Is(err, punctual.ErrLeaseLost) {
		t.Errorf("P4 fencing: extend of a lease that was released before the kill: %v, want ErrLeaseLost", err)
	}
	if ds := claim(t, again, "o", 1); len(ds) != 1 || ds[0].Attempt != 1 || ds[0].Token <= d.Token {
		t.Errorf("P1 no loss: after a release and a kill the claim returns %+v, want attempt 1 with a token above %d", ds, d.Token)
	}
}

// TestNewerClaimLog: a whole frame of an unknown kind comes from a newer release, so Open does not
// call it damage.
func TestNewerClaimLog(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	name := filepath.Join(dir, claimlog.Name(s.claims.Segment()))
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	unknown := []byte{99, 1}
	data = binary.LittleEndian.AppendUint32(data, uint32(len(unknown)))
	data = binary.LittleEndian.AppendUint32(data, crc32.Checksum(unknown, crc32.MakeTable(crc32.Castagnoli)))
	if err := os.WriteFile(name, append(data, unknown...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = Open(dir, nil); !errors.Is(err, punctual.ErrUnsupported) || errors.Is(err, punctual.ErrCorrupt) {
		t.Errorf("P13: open of a claim log with a frame of another kind: %v, want ErrUnsupported", err)
	}
}
