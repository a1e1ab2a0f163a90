package storekit

import (
	"testing"
	"testing/synctest"
	"time"
)

var clockStart = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func received(ch <-chan time.Time) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestManualClockWakesWhenReached(t *testing.T) {
	c := NewManualClock(clockStart)
	soon, stopSoon := c.After(clockStart.Add(time.Minute))
	defer stopSoon()
	later, stopLater := c.After(clockStart.Add(time.Hour))
	defer stopLater()
	c.Advance(time.Minute - 1)
	if received(soon) {
		t.Error("P2: woken 1 ns early")
	}
	c.Advance(1)
	if !received(soon) {
		t.Error("not woken at the time")
	}
	if received(later) {
		t.Error("P2: woken 59 minutes early")
	}
	c.Set(clockStart.Add(24 * time.Hour))
	if !received(later) {
		t.Error("not woken after the time")
	}
}

func TestManualClockReachedAlready(t *testing.T) {
	c := NewManualClock(clockStart)
	for _, at := range []time.Time{clockStart, clockStart.Add(-time.Hour)} {
		ch, stop := c.After(at)
		stop()
		if !received(ch) {
			t.Errorf("After(%v) does not receive at once", at)
		}
	}
}

func TestManualClockStop(t *testing.T) {
	c := NewManualClock(clockStart)
	ch, stop := c.After(clockStart.Add(time.Minute))
	stop()
	stop() // a second one does no harm
	c.Advance(time.Hour)
	if received(ch) {
		t.Error("a stopped wait was woken")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waits) != 0 {
		t.Errorf("%d waits are kept after their stop", len(c.waits))
	}
}

func TestManualClockStepsBack(t *testing.T) {
	c := NewManualClock(clockStart)
	ch, stop := c.After(clockStart.Add(time.Minute))
	defer stop()
	c.Advance(-time.Hour)
	if got := c.Now(); !got.Equal(clockStart.Add(-time.Hour)) {
		t.Errorf("the clock stands at %v", got)
	}
	c.Set(clockStart.Add(30 * time.Second))
	if received(ch) {
		t.Error("P2: woken early after a step back")
	}
}

func TestSystemClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := SystemClock{}
		at := c.Now().Add(time.Hour)
		ch, stop := c.After(at)
		<-ch
		if got := c.Now(); !got.Equal(at) {
			t.Errorf("woken at %v: want %v", got, at)
		}
		stop()
		past, stop := c.After(at.Add(-time.Minute))
		defer stop()
		<-past
		if got := c.Now(); !got.Equal(at) {
			t.Errorf("a time in the past was waited for until %v", got)
		}
		ch, stop = c.After(at.Add(time.Minute))
		stop()
		time.Sleep(time.Hour) // the bubble's time
		if received(ch) {
			t.Error("a stopped wait was woken")
		}
	})
}
