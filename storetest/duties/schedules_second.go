package duties

import (
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
	"github.com/punctualmq/punctual/storetest/ledger"
	"github.com/punctualmq/punctual/storetest/promise"
)

// RunEverySecond runs a schedule that has a time in every second, for so many simulated seconds or
// as many as PUNCTUAL_TORTURE_SECONDS says, over a store whose clock it moves. Each second the duty
// runs, and a consumer acks what the duty has stored. Every occurrence must come once, in its
// second.
func RunEverySecond(t *testing.T, open storetest.Open, seconds int) {
	seconds = ledger.FromEnv(t, "PUNCTUAL_TORTURE_SECONDS", seconds)
	clock := storekit.NewManualClock(time.Now().Truncate(time.Second))
	store := open(t, clock)
	b := &cronBench{bench: newBench(t, store, "seconds"), clock: clock, duty: schedule.NewScheduler(store)}
	s := schedule.Schedule{Topic: b.topic, Name: hourly, Spec: "* * * * * *", Overlap: schedule.OverlapAllow}
	if _, err := schedule.Put(t.Context(), b.queue, s); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for range seconds {
		clock.Advance(time.Second)
		b.tick()
		ds, err := store.Claim(t.Context(), punctual.Claim{Topics: []string{b.topic}, Max: 10})
		if err != nil {
			t.Fatal(err)
		}
		if len(ds) != 1 || !ds[0].Due.Equal(clock.Now()) {
			t.Fatalf("%s: at %v there are %d occurrences: %+v", promise.P1, clock.Now(), len(ds), ds)
		}
		b.settle(punctual.Settlement{Topic: b.topic, ID: ds[0].ID, Token: ds[0].Token, Verb: punctual.SettleAck})
	}
	b.wantCounts(int64(seconds), 0, 0)
	t.Logf("%d simulated seconds in %v", seconds, time.Since(began).Round(time.Millisecond))
}
