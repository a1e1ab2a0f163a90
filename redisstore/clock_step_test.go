package redisstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
)

// When the server's clock was set back, the store's clock stands still until the server's has
// caught up with it (P8). A message that is due in some ms is then not due for long, and a claim
// that waits for it must not send one script after the other meanwhile.
func TestWaitingWhileTheClockStandsStill(t *testing.T) {
	server := redisrig.Start(t)
	s := openStore(t, connect(t, server), nil)
	push(t, s, punctual.NewMessage{ID: "x", Delay: time.Hour})
	x, err := s.Get(t.Context(), "orders", "x")
	if err != nil {
		t.Fatal(err)
	}
	ahead := x.Due.Add(-5 * time.Millisecond) // what partitions keep of a clock that was an hour ahead
	do(t, server, "HSET", s.names.Partition("orders", 0).Keys()[6], "clock", strconv.FormatInt(ahead.UnixMilli(), 10))
	if ds, err := s.Claim(t.Context(), orders(0)); err != nil || len(ds) > 0 {
		t.Fatalf("claim: %v, %v; want nothing", ds, err)
	}
	before := calls(t, server)
	for range 2 {
		if ds, err := s.Claim(t.Context(), orders(time.Second)); err != nil || len(ds) > 0 {
			t.Fatalf("claim: %v, %v; want nothing", ds, err)
		}
	}
	if first, then := ahead, now(t, s); !then.Equal(first) {
		t.Fatalf("this test shows nothing: the clock went from %v to %v", first, then)
	}
	// Scripts after pauses of 1, 2, 4 ... ms, the last one of either claim, and one for the
	// subscription.
	if n := calls(t, server) - before; n > 30 {
		t.Errorf("P10: two claims that waited a second each ran %d scripts; want a few", n)
	}
}

// P3, P11: when the server's clock was set back, claims with a short lease go on. By the store's
// clock, which stands still, their leases have not ended.
func TestShortLeasesWhileTheClockStandsStill(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	server := redisrig.StartShifted(t)
	s := openStore(t, connect(t, server), nil)
	push(t, s, punctual.NewMessage{ID: "a", Due: time.Unix(1, 0)}, punctual.NewMessage{ID: "b", Due: time.Unix(2, 0)})
	ack(t, s, claimOne(t, s, 0))
	if err := server.Shift(-time.Hour); err != nil {
		t.Fatal(err)
	}
	before := now(t, s)
	time.Sleep(lease + 100*time.Millisecond) // the store gets no answer meanwhile, and so does not hear the time
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Lease: lease})
	if after := now(t, s); after.Sub(before) > lease/2 {
		t.Fatalf("this test shows nothing: the clock went from %v to %v", before, after)
	}
	if err != nil || len(ds) != 1 {
		t.Errorf("P11: claimed %v, %v; want what is due", ds, err)
	}
}
