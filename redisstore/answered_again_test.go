package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// P3, P13: a copy of a call with a key has the first answer and changes nothing, for as long as the
// store says (Repeats). It does not matter where in its window the call was made. The answers of
// claims are not compared, because their leases run out meanwhile.
func TestCopyUntilTheEndOfRepeats(t *testing.T) {
	const window = script.RecordWindow * time.Millisecond
	for _, v := range verbs() {
		for _, into := range []time.Duration{0, window / 2, window - 20*time.Second, window - time.Millisecond} {
			t.Run(fmt.Sprint(v.name, " ", into), func(t *testing.T) {
				clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0).Add(into)) // a window begins at that second
				one, other := twoStores(t, Options{clock: clock})
				held := scene(t, one)
				want, err := v.call(storekit.WithRequest(t.Context(), storekit.Request{Key: "k", First: true}), one, held)
				if err != nil {
					t.Fatal(err)
				}
				left := theClock.ReplaceAllString(contents(t, one), "")
				for _, step := range []time.Duration{time.Millisecond, 15 * time.Second, one.Repeats() - 15*time.Second - 2*time.Millisecond} {
					clock.Advance(step)
					if got, err := v.call(keyedBy(t.Context(), "k"), other, held); v.script != script.Claim && (err != nil || got != want) {
						t.Errorf("P13: the copy is answered\n%s, %v\nthe first one was\n%s", got, err, want)
					}
					if got := theClock.ReplaceAllString(contents(t, one), ""); got != left {
						t.Errorf("P3: the copy has changed\n%s\nto\n%s", left, got)
					}
				}
			})
		}
	}
}

// P3: a claim whose answer was lost is answered again with what it still leases, and with nothing
// that another claim has leased meanwhile. The other claim has a message of the first one that was
// given back, and one whose lease has the same end.
func TestClaimAnsweredAgainBesideOthers(t *testing.T) {
	server := redisrig.Start(t)
	for name, m := range map[string]punctual.NewMessage{
		"leases without states": {},
		"leases with states":    {ExpireAfter: 24 * time.Hour},
	} {
		for _, keyed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", with a key: ", keyed), func(t *testing.T) {
				start := time.Unix(1_800_000_000, 0)
				clock := storekit.NewManualClock(start)
				s, p := openBehind(t, server, &Options{Prefix: fresh(), clock: clock})
				other := openStore(t, connect(t, server), &Options{Prefix: s.opt.Prefix, clock: clock})
				add := func(id string, state bool, due int64) {
					t.Helper()
					x := m
					if state {
						x.ExpireAfter = 24 * time.Hour
					}
					x.ID, x.Due = id, start.Add(time.Duration(due)*time.Millisecond)
					push(t, other, x)
				}
				add("given back", false, 0)
				add("kept", false, 0)
				claim := func(s *Store, max int, lease time.Duration) (string, error) {
					ctx := t.Context()
					if keyed {
						ctx = keyedBy(ctx, "of-"+s.sender)
					}
					ds, err := s.Claim(ctx, punctual.Claim{Topics: []string{"orders"}, Max: max, Lease: lease})
					text := ""
					for _, d := range ds {
						text += fmt.Sprint(d.ID, " ", d.Token, " ")
					}
					return text, err
				}
				lost := p.Lose(1, runs(script.Claim)).Paused()
				got := begin(func() (string, error) { return claim(s, 2, time.Minute) })
				lost.Await()
				first, err := server.Do("HGET", other.names.Partition("orders", 0).Keys()[6], "token")
				if err != nil {
					t.Fatal(err)
				}
				var token int64
				if _, err := fmt.Sscan(first, &token); err != nil {
					t.Fatal(err)
				}
				release := []punctual.Settlement{{Topic: "orders", ID: "given back", Token: token, Verb: punctual.SettleRelease}}
				if errs, err := other.Settle(t.Context(), release); err != nil || errs[0] != nil {
					t.Fatal(errs, err)
				}
				clock.Advance(time.Second)
				add("same end", true, 0)
				others, err := claim(other, 2, 59*time.Second)
				if want := fmt.Sprintf("given back %d same end %[1]d ", token+limits.MaxPartitions); err != nil || len(others) != len(want) {
					t.Fatalf("this test shows nothing: the other claim has %q, %v; want both messages", others, err)
				}
				lost.Resume()
				want := fmt.Sprint("kept ", token, " ")
				if a := <-got; a.err != nil || a.text != want {
					t.Errorf("P3: the claim that was answered again has %q, %v, and the other one %q; want %q", a.text, a.err, others, want)
				}
				wantSound(t, s)
			})
		}
	}
}
