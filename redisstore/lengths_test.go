package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// However many lengths leases were given for, new lengths get onto the fast path of claims again
// once old leases have ended. A lease that is still held keeps its length, and with it its token.
func TestManyLeaseLengths(t *testing.T) {
	const lengths = 32 // LENGTHS of lua/claim_fast.lua
	s, clock := openStill(t, Options{})
	claim := func(id string, lease time.Duration) punctual.Delivery {
		t.Helper()
		if clock.Now().UnixMilli()%16 == 0 {
			clock.Advance(time.Millisecond) // because claims may tidy in such a ms, and then give leases with states
		}
		push(t, s, punctual.NewMessage{ID: id, Due: time.Unix(1, 0)})
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Lease: lease})
		if err != nil || len(ds) != 1 || ds[0].ID != id {
			t.Fatalf("claimed %+v, %v; want %s", ds, err, id)
		}
		clock.Advance(time.Millisecond) // because the claims of one millisecond use up its turns, which tell their leases apart
		return ds[0]
	}
	var held []punctual.Delivery
	for i := range lengths {
		d := claim(fmt.Sprint("held ", i), time.Hour+time.Duration(i)*time.Second)
		if held = append(held, d); !withoutState(t, s, d) {
			t.Fatalf("lease %d has a state", i)
		}
	}
	for i := range 20 { // among them is one in a millisecond in which claims look for a free length
		if d := claim(fmt.Sprint("full ", i), time.Minute); withoutState(t, s, d) {
			t.Fatalf("lease %d has no state, although all %d lengths are in use: the test shows nothing, or a length was taken from a lease", i, lengths)
		}
	}
	for _, d := range held[5:7] {
		ack(t, s, d)
	}
	without := 0
	for i := range 40 {
		if d := claim(fmt.Sprint("new ", i), 2*time.Hour+time.Duration(i%2)*time.Second); withoutState(t, s, d) {
			without++
		}
	}
	if without < 2 {
		t.Errorf("%d of 40 leases of new lengths have no state; want some, two lengths are free", without)
	}
	wantSound(t, s)
	for i, d := range held {
		if i == 5 || i == 6 {
			continue
		}
		ack(t, s, d) // its token is still known
	}
	wantSound(t, s)
}
