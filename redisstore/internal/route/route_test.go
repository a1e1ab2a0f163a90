package route

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/clock"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/redisstore/internal/wait"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// router returns a Router whose server is never asked.
func router(t *testing.T) *Router {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	r := New(client, Options{Names: keys.Names{Prefix: "p:"}, Clock: clock.New(nil)})
	t.Cleanup(func() {
		r.Close()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// Items go to the script of their partition, in their order, and no script has more than it may.
func TestChunks(t *testing.T) {
	g := NewChunks[int](router(t))
	if !g.Empty() {
		t.Error("a call without items has chunks")
	}
	first, other := wait.Part{Topic: "orders", Number: 0}, wait.Part{Topic: "orders", Number: 1}
	for i := range script.Items + 1 {
		g.Add(first, i, 0)
	}
	g.Add(other, -1, script.Bytes)
	g.Add(first, -2, 0) // to the second chunk of its partition, and not to a new one
	g.Add(other, -3, 1)
	var got []string
	for _, c := range g.All() {
		got = append(got, fmt.Sprint(c.Partition.Number, " ", len(c.Items), " ", c.Items[len(c.Items)-1], " ", c.first))
	}
	want := []string{fmt.Sprint("0 ", script.Items, " ", script.Items-1, " true"), "0 2 -2 false", "1 1 -1 true", "1 1 -3 false"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("chunks %q; want %q", got, want)
	}
}

// P13: when no chunk was answered the call has an error, which is the one that is not definite if
// there is one. When a chunk was answered, each item without an answer has its own error.
func TestOutcome(t *testing.T) {
	g := NewChunks[int](router(t))
	g.Add(wait.Part{Topic: "orders", Number: 0}, 0, 0).Err = punctual.ErrNoSpace
	g.Add(wait.Part{Topic: "orders", Number: 1}, 1, 0).Err = punctual.ErrIndeterminate
	refused := make(map[int]error)
	if err := g.Outcome(func(i int, err error) { refused[i] = err }); !errors.Is(err, punctual.ErrIndeterminate) || len(refused) > 0 {
		t.Errorf("P13: nothing was answered: %v, %v", err, refused)
	}
	g.Add(wait.Part{Topic: "orders", Number: 2}, 2, 0)
	if err := g.Outcome(func(i int, err error) { refused[i] = err }); err != nil || len(refused) != 2 || refused[0] != punctual.ErrNoSpace {
		t.Errorf("P13: one of three was answered: %v, %v", err, refused)
	}
}

// A slot has one call under way at a time, and the numbers of its calls grow.
func TestSlots(t *testing.T) {
	s := slots{sender: "me"}
	a, b := s.begin(), s.begin()
	if a.caller != "me:0" || b.caller != "me:1" || a.number != 1 || b.number != 1 {
		t.Errorf("two calls at once are %+v and %+v", a, b)
	}
	s.end(a)
	if c := s.begin(); c.caller != "me:0" || c.number != 2 {
		t.Errorf("the call after the first is %+v; want the second of its slot", c)
	}
}

// P14: with several nodes FanOut does not wait for the works of one that is late. With one node it
// waits for all works.
func TestFanOutLeavesLateNodes(t *testing.T) {
	r := router(t)
	held, ended := make(chan struct{}), make(chan string, 2)
	slow := Work{Node: "slow", Run: func(late func()) {
		late()
		<-held
		ended <- "slow"
	}}
	quick := Work{Node: "quick", Run: func(func()) { ended <- "quick" }}
	r.FanOut([]Work{slow, quick}) // if FanOut waited for slow, the test would hang here, because held is closed further down
	if got := <-ended; got != "quick" {
		t.Errorf("P14: %s ended first", got)
	}
	close(held)
	if got := <-ended; got != "slow" {
		t.Errorf("%s ended at last", got)
	}
	r.FanOut([]Work{{"one", func(late func()) { late(); ended <- "a" }}, {"one", func(func()) { ended <- "b" }}})
	if len(ended) != 2 {
		t.Errorf("%d of 2 parts of the only node had ended", len(ended))
	}
}
