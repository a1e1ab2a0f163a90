package sharedstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/sharedstore"
	"github.com/punctualmq/punctual/storekit"
)

// open opens the store in dir as a further process would. The store is closed at the end of the
// test, if not before.
func open(t testing.TB, dir string) *sharedstore.Store {
	t.Helper()
	s, err := sharedstore.Open(t.Context(), dir, &sharedstore.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	return s
}

// closed closes a store that may be closed already.
func closed(t testing.TB, s punctual.Store) {
	t.Helper()
	if err := s.Close(); err != nil && !errors.Is(err, punctual.ErrClosed) {
		t.Errorf("close: %v", err)
	}
}

// TestConsumers: the owner and the other process both report the consumer that claims through the
// owner, with its leases.
func TestConsumers(t *testing.T) {
	dir := t.TempDir()
	owner, other := open(t, dir), open(t, dir)
	push(t, owner, "a", "b", "c")
	until(t, "all messages are ready", func() bool { // a message that was pushed just now is due in the next millisecond
		stats, err := owner.Stats(t.Context(), "t")
		return err == nil && stats.Ready == 3
	})
	ds, err := claim(other, t.Context(), 2, 10*time.Second)
	if err != nil || len(ds) != 2 {
		t.Fatalf("%d messages, %v", len(ds), err)
	}
	for name, s := range map[string]*sharedstore.Store{"owner": owner, "other": other} {
		r, err := punctual.As[storekit.ConsumerReporter](s)
		if err != nil {
			t.Fatal(err)
		}
		c, err := r.Consumers(t.Context(), "t")
		if err != nil || len(c.All) != 1 || c.All[0].Leases != 2 || c.All[0].Name == "" {
			t.Errorf("the %s says %+v, %v; want one that holds two leases", name, c, err)
		}
	}
	ack(t, other, ds)
	if c, err := owner.Consumers(t.Context(), "t"); err != nil || len(c.All) != 1 || c.All[0].Leases != 0 || c.All[0].Settled != 2 {
		t.Errorf("after the acks: %+v, %v", c, err)
	}
}

func push(t testing.TB, s punctual.Store, ids ...string) {
	t.Helper()
	for _, id := range ids {
		rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "t", ID: id, Body: []byte(id)}})
		if err != nil || rs[0].Status != punctual.PushStored {
			t.Fatalf("push of %s: %v, %v", id, rs, err)
		}
	}
}

func claim(s punctual.Store, ctx context.Context, max int, wait time.Duration) ([]punctual.Delivery, error) {
	return s.Claim(ctx, punctual.Claim{Topics: []string{"t"}, Max: max, Wait: wait})
}

func ack(t testing.TB, s punctual.Store, ds []punctual.Delivery) {
	t.Helper()
	for _, d := range ds {
		errs, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}})
		if err != nil || errs[0] != nil {
			t.Fatalf("ack of %s: %v, %v", d.ID, errs, err)
		}
	}
}

// TestEverybody: three stores of one directory, of which one owns it, have the same messages. The
// socket in the directory has mode 0600.
func TestEverybody(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	a, b, c := open(t, dir), open(t, dir), open(t, dir)
	if !a.Owner() || b.Owner() || c.Owner() {
		t.Fatalf("owners: %v %v %v; want the first alone", a.Owner(), b.Owner(), c.Owner())
	}
	push(t, b, "1")
	push(t, a, "2")
	for range 2 {
		ds, err := claim(c, t.Context(), 1, time.Minute)
		if err != nil || len(ds) != 1 {
			t.Fatalf("claim of what two others pushed: %v, %v", ds, err)
		}
		ack(t, a, ds)
	}
	stats, err := b.Topics(t.Context())
	if err != nil || len(stats) != 1 || stats[0].Live() != 0 {
		t.Fatalf("topics after both were acked: %v, %v", stats, err)
	}
	if r, err := b.Check(t.Context(), nil); err != nil || len(r.Problems) > 0 {
		t.Errorf("check: %v, %v", r, err)
	}
	info, err := os.Lstat(filepath.Join(dir, sharedstore.SocketName))
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket: %v, %v; want mode 0600", info, err)
	}
}

// TestOwnerEnds: a process that acks a message after the owner has ended becomes the next owner,
// under which the lease of the first one still holds. Another process then pushes through the next
// owner, and a claim there gets the message.
func TestOwnerEnds(t *testing.T) {
	dir := t.TempDir()
	a, b, c := open(t, dir), open(t, dir), open(t, dir)
	got := make(chan []punctual.Delivery)
	go func() {
		ds, err := claim(b, t.Context(), 1, time.Minute)
		if err != nil {
			t.Errorf("the claim that waited: %v", err)
		}
		got <- ds
	}()
	push(t, c, "before")
	ds := <-got
	if err := a.Close(); err != nil {
		t.Fatalf("close of the owner: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, sharedstore.SocketName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket of an owner that has ended: %v; want it removed", err)
	}
	ack(t, b, ds) // the message was claimed under the first owner
	if !b.Owner() {
		t.Error("the store that was used after its owner ended does not own the directory")
	}
	go func() {
		ds, err := claim(b, t.Context(), 1, time.Minute)
		if err != nil {
			t.Errorf("the claim at the new owner: %v", err)
		}
		got <- ds
	}()
	push(t, c, "after")
	if ds := <-got; len(ds) != 1 || ds[0].ID != "after" {
		t.Errorf("claimed %v; want what was pushed after the first owner ended", ds)
	}
	if c.Owner() {
		t.Error("there are two owners")
	}
}

// TestWaitingTakesOver: when an owner ends, a claim of another process that waits there makes its
// process the next owner and goes on waiting.
func TestWaitingTakesOver(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	type result struct {
		ds  []punctual.Delivery
		err error
	}
	got := make(chan result, 1)
	go func() {
		ds, err := claim(b, t.Context(), 1, time.Minute)
		got <- result{ds, err}
	}()
	until(t, "the claim waits at the first owner", func() bool {
		c, err := a.Consumers(t.Context(), "t")
		return err == nil && len(c.All) == 1 && c.All[0].Waiting == 1
	})
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "the claim makes its process the owner", b.Owner)
	select {
	case r := <-got:
		t.Fatalf("the claim did not go on waiting: %v, %v", r.ds, r.err)
	default:
	}
	push(t, b, "later")
	if r := <-got; r.err != nil || len(r.ds) != 1 || r.ds[0].ID != "later" {
		t.Errorf("the claim that waited through the end of the owner: %v, %v", r.ds, r.err)
	}
}

// until waits for a condition, at most half a minute.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("%s: not within half a minute", what)
		}
	}
}

// TestManyUseIt: three stores push and a fourth one claims. Each of the three, of which the first
// is the owner, ends when it is done. Each message is handled once.
func TestManyUseIt(t *testing.T) {
	dir := t.TempDir()
	const n = 300
	var stores []*sharedstore.Store
	for range 4 {
		stores = append(stores, open(t, dir))
	}
	last := stores[3]
	var mu sync.Mutex
	handled := map[string]int{}
	var all sync.WaitGroup
	ctx, end := context.WithCancel(t.Context())
	defer end()
	for range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				ds, err := claim(last, ctx, 5, 10*time.Second)
				if err != nil && ctx.Err() == nil {
					t.Errorf("claim: %v", err)
					return
				}
				for _, d := range ds {
					mu.Lock()
					handled[d.ID]++
					if len(handled) == n {
						end()
					}
					mu.Unlock()
				}
				if ctx.Err() == nil {
					ack(t, last, ds)
				}
			}
		})
	}
	for i := range n {
		s := stores[i*3/n] // 0, then 1, then 2: each ends when it is done
		push(t, s, fmt.Sprint("m", i))
		if i*3/n != (i+1)*3/n {
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	}
	all.Wait()
	for id, times := range handled {
		if times != 1 {
			t.Errorf("%s was handled %d times", id, times)
		}
	}
}

// TestOwnerDoesNotShare: a process that opens a directory with diskstore alone does not share it.
// Open is an ErrLocked, or with a Wait succeeds when that process has closed the store.
func TestOwnerDoesNotShare(t *testing.T) {
	dir := t.TempDir()
	d, err := diskstore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = sharedstore.Open(t.Context(), dir, &sharedstore.Options{Wait: -1})
	if !errors.Is(err, punctual.ErrLocked) || !strings.Contains(err.Error(), "process") {
		t.Errorf("open of a directory that is not shared: %v; want ErrLocked with the name of the owner", err)
	}
	opened := make(chan error)
	var s *sharedstore.Store
	go func() {
		var err error
		s, err = sharedstore.Open(context.WithoutCancel(t.Context()), dir, &sharedstore.Options{Wait: time.Minute})
		opened <- err
	}()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil || !s.Owner() {
		t.Fatalf("open behind an owner that ends: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestShare: a program that has opened a directory with diskstore shares it with Share, until it
// calls stop.
func TestShare(t *testing.T) {
	dir := t.TempDir()
	d, err := diskstore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	stop, err := sharedstore.Share(d, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	push(t, s, "1")
	if ds, err := claim(d, t.Context(), 1, time.Minute); err != nil || len(ds) != 1 {
		t.Errorf("claim: %v, %v", ds, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(stop(), stop()); err != nil {
		t.Error(err)
	}
	if _, err := sharedstore.Open(t.Context(), dir, &sharedstore.Options{Wait: -1}); !errors.Is(err, punctual.ErrLocked) {
		t.Errorf("open when it is shared no more: %v", err)
	}
}

// TestLongPath: a directory is shared although the path of its socket is longer than the kernel
// allows.
func TestLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 200))
	a, b := open(t, dir), open(t, dir)
	push(t, b, "1")
	if ds, err := claim(a, t.Context(), 1, time.Minute); err != nil || len(ds) != 1 {
		t.Errorf("claim: %v, %v", ds, err)
	}
}

// TestStaleSocket: a directory is shared although it has a socket on which nobody listens, as an
// owner that was killed leaves it.
func TestStaleSocket(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, sharedstore.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if _, err := os.Lstat(filepath.Join(dir, sharedstore.SocketName)); err != nil {
		t.Fatalf("there is no socket: %v", err)
	}
	a, b := open(t, dir), open(t, dir)
	push(t, b, "1")
	if !a.Owner() || b.Owner() {
		t.Errorf("owners: %v, %v", a.Owner(), b.Owner())
	}
}

func TestClosed(t *testing.T) {
	dir := t.TempDir()
	for _, s := range []*sharedstore.Store{open(t, dir), open(t, dir)} {
		waiting := make(chan error)
		go func() {
			_, err := claim(s, context.Background(), 1, time.Hour)
			waiting <- err
		}()
		defer func() {
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if err := <-waiting; !errors.Is(err, punctual.ErrClosed) {
				t.Errorf("a claim that waited when the store was closed: %v", err)
			}
			if _, err := s.Now(context.Background()); !errors.Is(err, punctual.ErrClosed) {
				t.Errorf("the clock of a closed store: %v", err)
			}
			if err := s.Close(); !errors.Is(err, punctual.ErrClosed) {
				t.Errorf("second close: %v", err)
			}
		}()
	}
}
