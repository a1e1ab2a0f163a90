package diskstore

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/directory"
	"github.com/punctualmq/punctual/storekit"
)

// chain is what one consumer does: it pushes a work message, claims it, pushes a receipt, acks the
// work, and then pushes a note that the work was acked. So a copy of one instant has the receipt
// when the work is gone, and no note while the work is there.
type chain struct {
	name string

	mu     sync.Mutex
	pushed int // works whose push was reported; guarded by mu
	acked  int // works whose ack was reported; guarded by mu
	noted  int // notes whose push was reported; guarded by mu
}

func (c *chain) id(n int) string { return fmt.Sprintf("%s-%05d", c.name, n) }

func (c *chain) at(field *int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *field
}

func (c *chain) set(field *int, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*field = n
}

// run goes through the chain again and again until stop is closed.
func (c *chain) run(ctx context.Context, s *Store, stop <-chan struct{}) error {
	pushOne := func(topic, id string, in time.Duration) error {
		rs, err := s.Push(ctx, []punctual.NewMessage{{Topic: topic, ID: id, Body: []byte(id), Delay: in}})
		if err != nil {
			return err
		}
		return rs[0].Err
	}
	for n := 1; ; n++ {
		select {
		case <-stop:
			return nil
		default:
		}
		work := "work-" + c.name
		if err := pushOne(work, c.id(n), 0); err != nil {
			return err
		}
		c.set(&c.pushed, n)
		ds, err := s.Claim(ctx, punctual.Claim{Topics: []string{work}, Max: 1, Wait: 10 * time.Second, Lease: time.Hour})
		if err != nil || len(ds) != 1 {
			return fmt.Errorf("claimed %d: %w", len(ds), err)
		}
		if err := pushOne("receipts", c.id(n), time.Hour); err != nil {
			return err
		}
		errs, err := s.Settle(ctx, []punctual.Settlement{{Topic: work, ID: ds[0].ID, Token: ds[0].Token, Verb: punctual.SettleAck}})
		if err != nil || errs[0] != nil {
			return fmt.Errorf("ack: %w, %v", err, errs)
		}
		c.set(&c.acked, n)
		if err := pushOne("notes", c.id(n), time.Hour); err != nil {
			return err
		}
		c.set(&c.noted, n)
	}
}

// copied is a copy, with how many works, acks and notes each chain had done before it, and how many
// works when the copy was there.
type copied struct {
	dir                         string
	pushed, acked, noted, after map[*chain]int
}

// A copy that is made while others push, claim and ack is the store at one instant of the copying.
// It has each work whose push was reported before the copy, or its receipt, no work that was acked
// before the copy, and no note without what was done before the note.
func TestBackupUnderLoad(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "store"), &Options{Logger: quiet, claimLimit: 8 << 10}) // segments are replaced often meanwhile
	chains := make([]*chain, 4)
	stop, failed := make(chan struct{}), make(chan error, len(chains))
	for i := range chains {
		chains[i] = &chain{name: string(rune('a' + i))}
		go func() { failed <- chains[i].run(context.WithoutCancel(t.Context()), s, stop) }()
	}
	var copies []copied
	for i := range 5 {
		for _, c := range chains { // something is to happen between two copies
			for c.at(&c.noted) < (i+1)*20 {
				select {
				case err := <-failed:
					t.Fatal(err)
				case <-time.After(time.Millisecond):
				}
			}
		}
		b := copied{filepath.Join(t.TempDir(), "copy"), map[*chain]int{}, map[*chain]int{}, map[*chain]int{}, map[*chain]int{}}
		for _, c := range chains {
			b.noted[c], b.acked[c], b.pushed[c] = c.at(&c.noted), c.at(&c.acked), c.at(&c.pushed)
		}
		var last, total int64
		if err := s.Backup(t.Context(), b.dir, func(n, of int64) { last, total = n, of }); err != nil {
			t.Fatal(err)
		}
		if last == 0 || last != total {
			t.Errorf("progress ended at %d of %d", last, total)
		}
		for _, c := range chains {
			b.after[c] = c.at(&c.pushed)
		}
		copies = append(copies, b)
	}
	if s.claims.Segment() < 3 {
		t.Errorf("the claim log is at segment %d: none was replaced", s.claims.Segment())
	}
	close(stop)
	for range chains {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	if names, err := filepath.Glob(filepath.Join(s.dir, directory.StagingPrefix+"*")); err != nil || len(names) > 0 {
		t.Errorf("left in the store's directory: %v, %v", names, err)
	}
	for i, b := range copies {
		b.mustBeOneInstant(t, i)
	}
}

func (b copied) mustBeOneInstant(t *testing.T, i int) {
	t.Helper()
	r := openAt(t, b.dir, &Options{Logger: quiet})
	mustBeSound(t, r)
	has := func(topic, id string) bool {
		_, err := r.Get(t.Context(), topic, id)
		if err != nil && !errors.Is(err, punctual.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	for c := range b.pushed {
		if c.at(&c.noted) <= b.noted[c] {
			t.Errorf("copy %d: chain %s did nothing afterwards", i, c.name)
		}
		for n := 1; n <= b.after[c]+1; n++ {
			id := c.id(n)
			work, receipt, note := has("work-"+c.name, id), has("receipts", id), has("notes", id)
			switch {
			case n <= b.acked[c] && work:
				t.Errorf("copy %d: %s was acked before and is there", i, id)
			case n <= b.pushed[c] && !work && !receipt:
				t.Errorf("copy %d: %s was pushed before and is lost: neither it nor its receipt is there", i, id)
			case n <= b.noted[c] && !note:
				t.Errorf("copy %d: the note of %s was pushed before and is missing", i, id)
			case work && note:
				t.Errorf("copy %d: %s is there although its ack was noted", i, id)
			case note && !receipt:
				t.Errorf("copy %d: %s has a note and no receipt", i, id)
			}
		}
	}
	rs := push(t, r, punctual.NewMessage{Topic: "notes"}, punctual.NewMessage{Topic: "notes"})
	if rs[0].ID == rs[1].ID {
		t.Errorf("new IDs %v", rs)
	}
	mustBeSound(t, r) // so the new messages have not taken the numbers of others
}

// A leased message is leased in the copy, too, with its attempt counted, and is delivered again
// when the lease has run out.
func TestBackupKeepsLeases(t *testing.T) {
	clock := storekit.NewManualClock(testStart)
	s := openAt(t, filepath.Join(t.TempDir(), "store"), &Options{Clock: clock, Logger: quiet})
	push(t, s, punctual.NewMessage{Topic: "jobs", ID: "1"})
	d := claim(t, s, "jobs", 1)[0]
	dir := filepath.Join(t.TempDir(), "copy")
	if err := s.Backup(t.Context(), dir, nil); err != nil {
		t.Fatal(err)
	}
	r := openAt(t, dir, &Options{Clock: clock, Logger: quiet})
	if m, err := r.Get(t.Context(), "jobs", "1"); err != nil || m.State != punctual.StateLeased || !m.LeaseUntil.Equal(d.LeaseUntil) || m.Attempt != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	clock.Advance(time.Minute)
	again := claim(t, r, "jobs", 1)
	if len(again) != 1 || again[0].Attempt != 2 || again[0].Token <= d.Token {
		t.Errorf("claimed %+v after %+v", again, d)
	}
	if err := settle(t, s, d, punctual.SettleAck); err != nil {
		t.Errorf("the original: %v", err)
	}
}

// A copy into a directory that is not empty, into the store's own, or onto a file is refused, and
// nothing is added to the first. A copy whose context has ended leaves no directories behind.
func TestBackupRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := openAt(t, dir, &Options{Logger: quiet})
	push(t, s, punctual.NewMessage{Topic: "jobs", ID: "1"})
	full := t.TempDir()
	file := filepath.Join(full, "mine")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, target := range []string{full, dir, filepath.Join(dir, "copy"), file, "copy", filepath.Join(link, "copy"), filepath.Join(link, "new", "..", "copy")} {
		if err := s.Backup(t.Context(), target, nil); err == nil || !punctual.Definite(err) {
			t.Errorf("backup into %s: %v", target, err)
		}
	}
	if entries, err := os.ReadDir(full); err != nil || len(entries) != 1 {
		t.Errorf("the full directory holds %v, %v", entries, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	target := filepath.Join(t.TempDir(), "a", "b")
	if err := s.Backup(ended, target, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(target)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directories were left: %v", err)
	}
}

// One copy is made at a time, and closing the store ends the copy.
func TestBackupOneAtATime(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "store"), &Options{Logger: quiet})
	push(t, s, punctual.NewMessage{Topic: "jobs", ID: "1"})
	first, started, goOn := make(chan error, 1), make(chan struct{}), make(chan struct{})
	ctx := context.WithoutCancel(t.Context())
	go func() {
		first <- s.Archive(ctx, io.Discard, func(int64) { close(started); <-goOn })
	}()
	<-started
	if err := s.Archive(t.Context(), io.Discard, nil); !errors.Is(err, punctual.ErrOverloaded) {
		t.Errorf("a second copy: %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	<-s.state.Ended()
	close(goOn)
	if err := <-first; !errors.Is(err, punctual.ErrClosed) {
		t.Errorf("the first copy: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// A copy that was cut short is not taken for a store, before whichever of its files it was cut.
func TestBackupCutShort(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "store"), &Options{Logger: quiet})
	push(t, s, punctual.NewMessage{Topic: "jobs", ID: "1"})
	var b bytes.Buffer
	var size int64
	if err := s.Archive(t.Context(), &b, func(n int64) { size = n }); err != nil {
		t.Fatal(err)
	}
	if size != int64(b.Len()) {
		t.Errorf("the archive has %d bytes and was said to have %d", b.Len(), size)
	}
	dir := t.TempDir()
	in := tar.NewReader(&b)
	files := 0
	for ; ; files++ {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if there, err := Exists(dir); err != nil || there {
			t.Errorf("before %s the copy counts as a store: %v", h.Name, err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, h.Name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if files < 5 {
		t.Errorf("%d files", files)
	}
	r := openAt(t, dir, &Options{Logger: quiet})
	if _, err := r.Get(t.Context(), "jobs", "1"); err != nil {
		t.Error(err)
	}
}

// When a change of a file in the directory of the copy fails, the copy fails and the store goes on.
// Only a link that fails does no harm, because the file is copied instead.
func TestBackupFails(t *testing.T) {
	for _, kind := range []string{"mkdir", "create", "write", "sync", "link"} {
		t.Run(kind, func(t *testing.T) {
			f := &faults{}
			base := t.TempDir()
			s := openAt(t, filepath.Join(base, "store"), &Options{Logger: quiet, fs: hookFS{vfs.Default, f.hook}})
			push(t, s, punctual.NewMessage{Topic: "jobs", ID: "1"})
			f.set(func(_ int, op fsOp) error {
				if op.kind == kind && strings.Contains(op.path, directory.StagingPrefix) {
					return errSpace
				}
				return nil
			})
			target := filepath.Join(base, "copy")
			err := s.Backup(t.Context(), target, nil)
			if _, hits, _ := f.state(); hits == 0 {
				t.Fatal("no fault happened")
			}
			if kind == "link" { // a file that cannot have a second name is copied instead
				if err != nil {
					t.Errorf("backup: %v", err)
				}
				return
			}
			if !errors.Is(err, punctual.ErrNoSpace) || errors.Is(err, punctual.ErrStoreFailed) {
				t.Errorf("backup: %v", err)
			}
			if _, err := os.Stat(target); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the target is there: %v", err)
			}
			f.set(nil)
			push(t, s, punctual.NewMessage{Topic: "jobs", ID: "2"})
			if err := s.Backup(t.Context(), filepath.Join(base, "next"), nil); err != nil {
				t.Errorf("the next one: %v", err)
			}
		})
	}
}

// A copy whose process was killed leaves a directory behind, which is removed when the store is
// opened.
func TestBackupLeftovers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := openAt(t, dir, &Options{Logger: quiet})
	push(t, s, punctual.NewMessage{Topic: "jobs", ID: "1"})
	closeStore(t, s)
	left := filepath.Join(dir, directory.StagingPrefix+"0000000000000001")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "000004.sst"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	openAt(t, dir, &Options{Logger: quiet})
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// TestBackupCopiedOverAStore: who copies the files of a backup over those of a store has files of
// both, so the store does not open, as often as one tries. The same files in an empty directory
// open.
func TestBackupCopiedOverAStore(t *testing.T) {
	dir, backup := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "backup")
	s := openAt(t, dir, &Options{Logger: quiet})
	push(t, s, punctual.NewMessage{Topic: "jobs", ID: "old"})
	if err := s.Backup(t.Context(), backup, nil); err != nil {
		t.Fatal(err)
	}
	push(t, s, punctual.NewMessage{Topic: "jobs", ID: "new"})
	closeStore(t, s)
	restored := t.TempDir()
	for _, into := range []string{dir, restored} {
		files, err := os.ReadDir(backup)
		if err != nil || len(files) == 0 {
			t.Fatal("the backup has no files", err)
		}
		for _, f := range files {
			b, err := os.ReadFile(filepath.Join(backup, f.Name()))
			if err == nil {
				err = os.WriteFile(filepath.Join(into, f.Name()), b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 {
		if s, err := Open(dir, &Options{Logger: quiet}); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("P13: a backup over a newer store opens: %v", err)
			if err == nil {
				closeStore(t, s)
			}
		}
	}
	for range 2 { // the second time as any store
		s := openAt(t, restored, &Options{Logger: quiet})
		if r := mustBeSound(t, s); r.Live != 1 {
			t.Errorf("the restored store has %d messages, want 1", r.Live)
		}
		closeStore(t, s)
	}
}
