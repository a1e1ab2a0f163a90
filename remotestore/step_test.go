package remotestore_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/remotestore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/ledger"
)

// steppedServer is a server whose store's clock the test sets, and a client that was connected
// before.
type steppedServer struct {
	*testing.T
	store *remotestore.Store
	below punctual.Store
	shift func(ahead time.Duration) // of the clock below the store, against the machine's
	ahead time.Duration
}

// overDisk serves a directory.
func overDisk(t *testing.T) *steppedServer {
	clock := new(ledger.ShiftedClock)
	below, err := diskstore.Open(filepath.Join(t.TempDir(), "store"), &diskstore.Options{Clock: clock})
	below = closing(t, below, err)
	x := &steppedServer{T: t, store: connect(t, nil, serve(t, below, "").url), below: below}
	x.shift = func(ahead time.Duration) { clock.Shift(ahead - x.ahead) }
	return x
}

// step sets the clock, and makes sure that the store goes by it: its clock follows the source
// forward, and never goes back with the source.
func (x *steppedServer) step(ahead time.Duration) {
	x.Helper()
	before, err := x.below.Now(x.Context())
	if err != nil {
		x.Fatal(err)
	}
	x.shift(ahead)
	after, err := x.below.Now(x.Context())
	if err != nil {
		x.Fatal(err)
	}
	source := time.Now().Add(ahead)
	switch {
	case after.Before(before):
		x.Fatalf("P8: the clock went back from %v to %v", before, after)
	case source.Sub(before) > time.Minute && source.Sub(after) > time.Minute:
		x.Fatalf("this test shows nothing: the source of the clock went to %v, and the clock from %v to %v", source, before, after)
	}
	x.ahead = ahead
}

// clockSteps are by how much the source of the store's clock is ahead of the machine's clock, one
// after the other. While the source is behind it is not set forward, because a store would take
// that for elapsed time, and step.
var clockSteps = []time.Duration{
	0, time.Second, time.Hour, -time.Minute, -time.Hour, 30 * 24 * time.Hour, 30*24*time.Hour - 5*time.Minute, 31 * 24 * time.Hour,
}

// P2, P7, P8, P11: however the clock below a server steps, its clients can push, amend, claim and
// settle right after the step. The message comes once, in its first attempt, and not before it is
// due by the server's clock.
func TestClockOfAServerSteps(t *testing.T) {
	x := overDisk(t)
	for i, ahead := range clockSteps {
		x.step(ahead)
		x.callsWork(fmt.Sprint("m", i))
		if t.Failed() {
			t.Fatalf("at step %d, to %v", i, ahead)
		}
	}
}

// P8, P13: a client that has read the clock while it was ahead goes on right after the step, with
// all calls and without an error.
func TestStoreUnderAServerStepsBack(t *testing.T) {
	x := overDisk(t)
	keeper, err := punctual.As[storekit.ClockKeeper](x.below)
	if err != nil {
		t.Fatal(err)
	}
	for i, ahead := range []time.Duration{time.Hour, 10 * 365 * 24 * time.Hour} {
		x.step(ahead)
		x.callsWork(fmt.Sprint("ahead", i)) // these have the client read the clock
		x.step(0)
		state, err := keeper.StepClock(t.Context())
		if err != nil || state.Steps != int64(i+1) || state.Last.From.Sub(state.Last.To) < ahead/2 {
			t.Fatalf("this test shows nothing: %+v, %v", state, err)
		}
		x.callsWork(fmt.Sprint("after", i))
	}
}

// callsWork makes a push, a cancel, a claim and an ack right after a step.
func (x *steppedServer) callsWork(id string) {
	x.Helper()
	ctx := x.Context()
	rs, err := x.store.Push(ctx, []punctual.NewMessage{{Topic: "t", ID: id, Delay: time.Millisecond}, {Topic: "t", ID: id + "-far", Delay: time.Hour}})
	if err != nil || rs[0].Status != punctual.PushStored || rs[1].Status != punctual.PushStored {
		x.Fatalf("push: %+v, %v", rs, err)
	}
	as, err := x.store.Amend(ctx, []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "t", ID: id + "-far"}})
	if err != nil || as[0].Err != nil {
		x.Fatalf("cancel: %+v, %v", as, err)
	}
	ds, err := x.store.Claim(ctx, punctual.Claim{Topics: []string{"t"}, Max: 10, Wait: time.Minute})
	if err != nil || len(ds) != 1 || ds[0].ID != id || ds[0].Attempt != 1 {
		x.Fatalf("claim: %+v, %v; want %s at the first attempt", ds, err, id)
	}
	if ds[0].Delivered.Before(ds[0].Due) {
		x.Errorf("P2: %s was delivered at %v, before it was due at %v", id, ds[0].Delivered, ds[0].Due)
	}
	errs, err := x.store.Settle(ctx, ackOf(ds[0]))
	if err != nil || errs[0] != nil {
		x.Fatalf("ack: %v, %v", errs, err)
	}
}
