package answers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/answers"
	"github.com/punctualmq/punctual/memstore"
)

func requestOf(client, key string) context.Context {
	return answers.WithClient(request(client+key), client)
}

// fill makes calls with new keys until one is refused, and returns how many were accepted.
func fill(t *testing.T, s punctual.Store, client string) int {
	t.Helper()
	for n := range 1000 {
		_, err := s.Push(requestOf(client, fmt.Sprint(n)), []punctual.NewMessage{{Topic: "t", ID: client + fmt.Sprint(n)}})
		if errors.Is(err, punctual.ErrOverloaded) {
			return n
		}
		if err != nil {
			t.Fatalf("push %d of %s: %v", n, client, err)
		}
	}
	t.Fatal("1000 pushes fill nothing")
	return 0
}

// TestShares: a client that takes all it can get leaves as much to the others. Each further such
// client gets about half of what the one before it got, so a client that has almost nothing still
// finds room for a push (P14), and the answer to its claim stays.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answers.New(memstore.New(nil), &answers.Options{MaxBytes: 100_000})
		push(t, s, punctual.NewMessage{Topic: "t", ID: "kept"})
		ds := claim(t, s, requestOf("modest", "claim"))
		last := 0
		for n := range 4 {
			got := fill(t, s, fmt.Sprint("greedy", n))
			if n > 0 && (got > last*6/10 || got < last*4/10) {
				t.Errorf("greedy client %d got %d answers after one that got %d: want half of that, as what is free is shared", n, got, last)
			}
			last = got
		}
		if rs, err := s.Push(requestOf("modest", "push"), one); err != nil || rs[0].Err != nil {
			t.Errorf("a push of a client that has almost nothing: %v, %v", rs, err)
		}
		again, err := s.Claim(requestOf("modest", "claim"), claimed)
		if err != nil || len(again) != 1 || again[0].Token != ds[0].Token {
			t.Errorf("the copy of a claim of a client that has almost nothing got %v, %v; want the first answer", again, err)
		}
	})
}

// TestCallsUnderWayCount: calls under way count with the expected size of their answers.
func TestCallsUnderWayCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newSlow()
		s := answers.New(below, &answers.Options{MaxBytes: 10_000})
		ms := make([]punctual.NewMessage, 20)
		for i := range ms {
			ms[i] = punctual.NewMessage{Topic: "t", ID: fmt.Sprint(i)}
		}
		refused := make(chan error, 4)
		for n := range 4 {
			go func() {
				_, err := s.Push(requestOf("c", fmt.Sprint(n)), ms)
				refused <- err
			}()
		}
		synctest.Wait()
		if len(refused) != 3 {
			t.Errorf("of 4 calls under way of which one fits into the share %d were refused", len(refused))
		}
		for range 4 - len(refused) {
			<-below.done
			below.pass <- struct{}{}
		}
		s.Drain()
	})
}
