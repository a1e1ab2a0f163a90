package sharedstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/sharedstore"
	"github.com/punctualmq/punctual/worker"
)

// TestSlowRollingRestart: instances of a program that handles messages follow each other, each
// overlapping with the one before, while another process pushes. No message is lost or waits for
// long, and none is handled twice unless its push was in doubt and was repeated.
func TestSlowRollingRestart(t *testing.T) {
	if dir := os.Getenv("PUNCTUAL_TEST_INSTANCE"); dir != "" {
		runInstance(t, dir)
		return
	}
	t.Parallel()
	const instances = 4
	dir := t.TempDir()
	var mu sync.Mutex
	handled := map[string]int{}
	var longest time.Duration // between the due time of a message and its claim
	starts := func(dir string) *exec.Cmd {
		c := exec.Command(os.Args[0], "-test.run=^TestSlowRollingRestart$")
		c.Env = append(os.Environ(), "PUNCTUAL_TEST_INSTANCE="+dir)
		c.Stderr = os.Stderr
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() && lines.Text() != "ready" {
		}
		if err := lines.Err(); err != nil {
			t.Fatalf("read what the program prints: %v", err)
		}
		go func() {
			for lines.Scan() {
				id, late, ok := strings.Cut(lines.Text(), " ")
				ms, err := strconv.Atoi(late)
				if !ok || err != nil {
					continue // what package testing prints
				}
				mu.Lock()
				handled[id]++
				longest = max(longest, time.Duration(ms)*time.Millisecond)
				mu.Unlock()
			}
		}()
		return c
	}
	ends := func(c *exec.Cmd) {
		t.Helper()
		if err := errors.Join(c.Process.Signal(syscall.SIGTERM), c.Wait()); err != nil {
			t.Errorf("an instance ended with %v", err)
		}
	}
	// alone returns how long an instance that has a directory to itself takes from its start to its
	// end.
	alone := func(dir string) time.Duration {
		t.Helper()
		began := time.Now()
		ends(starts(dir))
		return time.Since(began)
	}
	undisturbed, own := time.Duration(0), t.TempDir()
	old := starts(dir) // the first instance, which owns the directory
	s := open(t, dir)
	if s.Owner() {
		t.Fatal("the first instance does not own the directory")
	}
	pushing, end := context.WithCancel(t.Context())
	var pushed []string
	doubtful := map[string]bool{} // the IDs of pushes that met the end of an owner, and were repeated
	var pusher sync.WaitGroup
	var current sync.Mutex // guards s
	pusher.Go(func() {
		for i := 0; pushing.Err() == nil; i++ {
			id := fmt.Sprint("m", i)
			current.Lock()
			s := s
			current.Unlock()
			rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "t", ID: id}})
			if errors.Is(err, punctual.ErrIndeterminate) {
				doubtful[id] = true
				rs, err = s.Push(t.Context(), []punctual.NewMessage{{Topic: "t", ID: id}})
			}
			if err != nil || rs[0].Status != punctual.PushStored && !doubtful[id] {
				t.Errorf("push of %s during the restarts: %+v, %v", id, rs, err)
				return
			}
			pushed = append(pushed, id)
			time.Sleep(2 * time.Millisecond) // this bounds the load, and waits for nothing
		}
	})
	// more waits until n more messages were handled.
	more := func(n int) {
		t.Helper()
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(handled)
		}
		want := count() + n
		for deadline := time.Now().Add(time.Minute); count() < want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("no messages are handled any more, after %d", count())
			}
		}
	}
	owned := 0
	for range instances - 1 {
		more(30)
		undisturbed = max(undisturbed, alone(own))
		next := starts(dir)
		ends(old)
		old = next
		more(30)
		if s.Owner() { // the pusher's store has become the owner; another store takes its place, so that an instance can own the directory
			owned++
			successor := open(t, dir)
			current.Lock()
			before := s
			s = successor
			current.Unlock()
			more(5) // the pusher no longer uses the store before
			closed(t, before)
		}
	}
	more(30)
	end()
	pusher.Wait()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		stats, err := s.Stats(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		if stats.Live() == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d messages are not handled", stats.Live())
		}
	}
	undisturbed = max(undisturbed, alone(own))
	ends(old)
	mu.Lock()
	defer mu.Unlock()
	for _, id := range pushed {
		if n := handled[id]; n != 1 && !(n == 2 && doubtful[id]) {
			t.Errorf("%s was handled %d times", id, handled[id])
		}
	}
	t.Logf("%d messages through %d instances; the pusher became the owner %d times; %d pushes were repeated; the latest message was %v behind its time, an instance alone took %v",
		len(pushed), instances, owned, len(doubtful), longest, undisturbed)
	if len(doubtful) > instances {
		t.Errorf("%d pushes were in doubt; want hardly any where owners end orderly", len(doubtful))
	}
	// The limit is a second (P14), and more on a slow machine: one instance ends and another one
	// opens the directory meanwhile, and how long that takes on this machine is known from an
	// instance that has opened and closed a directory of its own.
	if limit := time.Second + 3*undisturbed; longest > limit {
		t.Errorf("P14: a message was %v late; want at most %v, a second and 3 times what an instance alone took", longest, limit)
	}
}

// runInstance is the program of an instance: it handles messages until SIGTERM, and prints the ID
// and lateness of each.
func runInstance(t *testing.T, dir string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := sharedstore.Open(ctx, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := worker.New(s, &worker.Config{Concurrency: 4})
	w.Handle("t", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		fmt.Println(d.ID, d.Late().Milliseconds())
		return nil
	}))
	fmt.Println("ready")
	if err := w.Run(ctx); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
