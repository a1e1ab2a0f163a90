package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// measureRecovery logs how late messages are after a clock that was ahead was set right: one with a
// delay of a quarter of a second each 50 ms, for ten seconds. The lateness is that by the clock of
// this process.
func measureRecovery(t *testing.T, open func(*testing.T, storekit.Clock) punctual.Store) {
	for name, ahead := range map[string]time.Duration{"2 h": 2 * time.Hour, "1 day": 24 * time.Hour, "10 years": 10 * 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			clock := &ShiftedClock{}
			s := open(t, clock)
			q := punctual.NewQueue(s, nil)
			push := func(id string) {
				if _, err := q.Push(t.Context(), "orders", nil, punctual.ID(id), punctual.In(250*time.Millisecond)); err != nil {
					t.Error(err)
				}
			}
			clock.Shift(ahead)
			push("ahead")
			clock.Shift(-ahead)
			if now, err := s.Now(t.Context()); err != nil || now.Sub(clock.Now()) < ahead/2 {
				t.Fatalf("the store's clock says %v, %v; want one that is ahead by %v", now, err, ahead)
			}
			const n = 200
			began, due := time.Now(), make(map[string]time.Time, n)
			for i := range n {
				due[fmt.Sprint(i)] = began.Add(time.Duration(i)*50*time.Millisecond + 250*time.Millisecond)
			}
			go func() {
				for i := range n {
					time.Sleep(time.Until(due[fmt.Sprint(i)].Add(-250 * time.Millisecond)))
					push(fmt.Sprint(i))
				}
			}()
			var worst, good time.Duration // good: behind the last push that was more than 100 ms late
			for got := 0; got <= n; {
				ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 100, Wait: 5 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				got += len(ds)
				for _, d := range ds {
					late := time.Since(due[d.ID])
					if d.ID == "ahead" {
						continue
					}
					worst = max(worst, late)
					if late > 100*time.Millisecond {
						good = max(good, due[d.ID].Sub(began)-250*time.Millisecond)
					}
				}
			}
			t.Logf("%s ahead: at most %v late, and within 100 ms for what was pushed later than %v after the clock was right", name, worst.Round(time.Millisecond), good)
		})
	}
}
