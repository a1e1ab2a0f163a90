package redisstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/errkind"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/ledger"
)

// A copy that arrives when its caller has given up can do nothing once its deadline is past by the
// store's clock.

// givenUp makes a call of which the first copy is held until the caller has given up. The caller's
// error says that it may have happened.
func givenUp(t *testing.T, p *redisrig.Proxy, sc *script.Script, ctx context.Context, end func(), call func(ctx context.Context) error) *redisrig.Fault {
	t.Helper()
	held := p.Hold(runs(sc)).Paused()
	got := begin(func() (string, error) { return "", call(ctx) })
	held.Await()
	end()
	held.Resume()
	wantIndeterminate(t, sc.Name+" that was given up", (<-got).err)
	return held
}

// theClock finds the clock of a partition in what contents returns.
var theClock = regexp.MustCompile(`"clock":"[0-9]+"`)

// wantUnchanged releases a copy, and fails the test when it changes anything but the partition's
// clock.
func wantUnchanged(t *testing.T, s *Store, held *redisrig.Fault) (answer string) {
	t.Helper()
	look := func() string { return theClock.ReplaceAllString(contents(t, s), "") }
	left := look()
	answer = held.Release()
	if got := look(); got != left {
		t.Errorf("P5: the late copy was answered %q and has changed\n%s\nto\n%s", answer, left, got)
	}
	wantSound(t, s)
	return answer
}

func wantLate(t *testing.T, answer string) {
	t.Helper()
	if !strings.Contains(answer, errkind.LateMark) {
		t.Errorf("P5: the late copy was answered %q; want %q", answer, errkind.LateMark)
	}
}

// P1, P5, P6: a copy of any call changes nothing after its deadline, although the record of the
// copy that was carried out is gone by then.
func TestCopyBehindItsDeadline(t *testing.T) {
	server := redisrig.Start(t)
	for _, v := range everyCall() {
		t.Run(v.name, func(t *testing.T) {
			clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
			s, p := openBehind(t, server, &Options{Prefix: fresh(), clock: clock})
			other := openStore(t, connect(t, server), &Options{Prefix: s.opt.Prefix, clock: clock})
			lease := scene(t, s)
			held := p.Hold(runs(v.script))
			if _, err := v.call(t.Context(), s, lease); err != nil {
				t.Fatal(err)
			}
			held.Await()
			part := s.names.Partition("orders", 0)
			if do(t, server, "UNLINK", part.Records(0), part.Records(1)) == "0" {
				t.Fatal("this test shows nothing: there was no record")
			}
			clock.Advance((route.CallTime + 1) * time.Millisecond)
			push(t, other, punctual.NewMessage{ID: "later", Delay: time.Hour, IfExists: punctual.IfExistsReplace}, punctual.NewMessage{ID: "new", Due: time.Unix(1, 0)})
			wantLate(t, wantUnchanged(t, s, held))
		})
	}
}

// P1, P5, P6: the deadline of a call is the end of its context, if that comes first. (Claims are
// left out, because the end of the context does not break off their scripts.)
func TestCopyBehindItsContext(t *testing.T) {
	server := redisrig.Start(t)
	for _, v := range everyCall() {
		if v.script == script.Claim {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel() // because each waits for the end of its context
			s, p := openBehind(t, server, &Options{Prefix: fresh()})
			other := openStore(t, connect(t, server), &Options{Prefix: s.opt.Prefix})
			lease := scene(t, s)
			const waitLimit = 2 * time.Second // the call has reached the proxy by then, and the client waits for 5 s
			ctx, end := context.WithTimeout(t.Context(), waitLimit)
			defer end()
			over := now(t, other).Add(waitLimit)
			held := givenUp(t, p, v.script, ctx, func() { <-ctx.Done() }, func(ctx context.Context) error {
				_, err := v.call(ctx, s, lease)
				return err
			})
			for !now(t, other).After(over) {
				time.Sleep(time.Millisecond)
			}
			wantLate(t, wantUnchanged(t, s, held))
		})
	}
}

// P5: a late copy of a push must not bring back a message that was cancelled, whether the cancel
// found it or not.
func TestLateCopyAfterCancel(t *testing.T) {
	server := redisrig.Start(t)
	x := punctual.NewMessage{Topic: "orders", ID: "x", Due: time.Unix(1, 0)}
	for name, stored := range map[string]bool{"the repetition was stored and cancelled": true, "the cancel found nothing": false} {
		t.Run(name, func(t *testing.T) {
			clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
			s, p := openBehind(t, server, &Options{Prefix: fresh(), clock: clock})
			other := openStore(t, connect(t, server), &Options{Prefix: s.opt.Prefix, clock: clock})
			push(t, other, punctual.NewMessage{ID: "first", Delay: time.Hour}) // the topic is there
			ctx, end := context.WithCancel(t.Context())
			late := givenUp(t, p, script.Push, ctx, end, func(ctx context.Context) error {
				_, err := s.Push(ctx, []punctual.NewMessage{x})
				return err
			})
			clock.Advance((route.CallTime + 1) * time.Millisecond)
			push(t, other, punctual.NewMessage{ID: "later", Delay: time.Hour})
			want := error(punctual.ErrNotFound)
			if stored {
				push(t, other, x)
				want = nil
			}
			out, err := other.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "orders", ID: x.ID}})
			if err != nil || !errors.Is(out[0].Err, want) {
				t.Fatalf("cancel = %+v, %v; want %v", out, err, want)
			}
			wantLate(t, wantUnchanged(t, s, late))
			if ds, err := other.Claim(t.Context(), orders(0)); err != nil || len(ds) > 0 {
				t.Errorf("P5: claimed %+v, %v; want nothing: it was cancelled", ds, err)
			}
		})
	}
}

// P1, P3, P5, P8, P13: the server's clock may step between the copies of a call. The call is
// carried out once, or the error says that it may have been; then the copy that was held is
// refused. make torture tries each call with each first and second step; make test tries a third of
// these.
func TestSlowClockStepsBetweenCopies(t *testing.T) {
	server := redisrig.StartShifted(t)
	shift := func(d time.Duration) {
		t.Helper()
		before := serverTime(t, server)
		if err := server.Shift(d); err != nil {
			t.Fatal(err)
		}
		if after := serverTime(t, server); (time.Until(after) - d).Abs() > 500*time.Millisecond {
			t.Fatalf("this test shows nothing: the server's clock went from %v to %v; want it %v ahead", before, after, d)
		}
	}
	steps := []time.Duration{-time.Hour, -time.Minute, -time.Second, time.Second, time.Minute, time.Hour}
	lost := 0
	for turn, v := range everyCall() {
		for i, step := range steps {
			for j, then := range []time.Duration{0, steps[len(steps)-1-i], 2 * time.Hour} {
				if !ledger.Tortured() && (turn+i+j)%3 != 0 {
					continue
				}
				t.Run(fmt.Sprint(v.name, " ", step, " ", then), func(t *testing.T) {
					shift(0)
					s, p := openBehind(t, server, &Options{Prefix: fresh()})
					lease := scene(t, s)
					held := p.Hold(runs(v.script)).Paused()
					got := begin(func() (string, error) { return v.call(t.Context(), s, lease) })
					held.Await()
					shift(step)
					held.Resume()
					a := <-got
					if a.err != nil {
						lost++
						wantIndeterminate(t, v.name, a.err)
						if step < route.CallTime*time.Millisecond {
							t.Errorf("P13: %s = %v; want an answer, its time is not over", v.name, a.err)
						}
					}
					shift(then)
					if answer := wantUnchanged(t, s, held); a.err != nil {
						wantLate(t, answer)
					}
				})
			}
		}
	}
	if lost == 0 {
		t.Error("this test shows nothing: no step has ended the time of a call")
	}
}

func serverTime(t *testing.T, server *redisrig.Server) time.Time {
	t.Helper()
	var s, us int64
	if _, err := fmt.Sscan(do(t, server, "TIME"), &s, &us); err != nil {
		t.Fatal(err)
	}
	return time.Unix(s, us*1000)
}

// P10: calls leave records for copies of them in a bounded number of keys, at most one record for
// each caller in each hash, and the records expire.
func TestRecordsOfCalls(t *testing.T) {
	const callers, partitions = 64, 16
	server := redisrig.Start(t)
	clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
	s := openStore(t, connect(t, server), &Options{Partitions: partitions, clock: clock})
	pushAll := func(name string) {
		var pushing sync.WaitGroup
		for c := range callers {
			pushing.Go(func() {
				for i := range 50 {
					_, err := s.Push(context.Background(), []punctual.NewMessage{{Topic: "orders", ID: fmt.Sprint(name, c, " ", i), Delay: time.Hour}})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		pushing.Wait()
	}
	pushAll("a")
	there := strings.Fields(do(t, server, "KEYS", "*"))
	if most := 7*partitions + 2; len(there) > most {
		t.Errorf("P10: %d callers and %d partitions have left %d keys; want at most %d", callers, partitions, len(there), most)
	}
	records := func(key string) int {
		n, err := strconv.Atoi(do(t, server, "HLEN", key))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	p := s.names.Partition("orders", 0)
	key := p.Records(s.clock.Deadline(t.Context(), route.CallTime) / script.RecordWindow % 2)
	if n := records(key); n < 2 || n > callers+1 {
		t.Errorf("P10: %d callers have left %d records in a partition", callers, n)
	}
	left, err := s.client.PTTL(t.Context(), key).Result()
	if most := 2 * script.RecordWindow * time.Millisecond; err != nil || left <= most/2 || left > most {
		t.Errorf("P10: the records go in %v, %v; want within %v", left, err, most)
	}
	// Two windows later the same hash begins anew.
	clock.Advance(2 * script.RecordWindow * time.Millisecond)
	for i := 0; ; i++ {
		if id := fmt.Sprint("b", i); keys.Home(id, partitions) == 0 {
			push(t, s, punctual.NewMessage{ID: id, Delay: time.Hour})
			break
		}
	}
	if n := records(key); n != 2 {
		t.Errorf("P10: %d fields are left of a window that is over; want that of the window and one record", n)
	}
}

// P8: a call changes nothing from the time on that its request names.
func TestCallBehindItsRequest(t *testing.T) {
	s, clock := openStill(t, Options{})
	push(t, s, punctual.NewMessage{ID: "first", Delay: time.Hour})
	for left, want := range map[time.Duration]error{-time.Hour: context.DeadlineExceeded, 0: context.DeadlineExceeded, time.Millisecond: nil, s.Repeats(): nil} {
		ctx := storekit.WithRequest(t.Context(), storekit.Request{Key: left.String(), NotAfter: clock.Now().Add(left)})
		if _, err := s.Push(ctx, []punctual.NewMessage{{Topic: "orders", ID: left.String(), Delay: time.Hour}}); !errors.Is(err, want) || err != nil && !punctual.Definite(err) {
			t.Errorf("push with %v left = %v; want %v", left, err, want)
		}
		if _, err := s.Get(t.Context(), "orders", left.String()); (err == nil) != (want == nil) {
			t.Errorf("after a push with %v left get = %v", left, err)
		}
	}
}
