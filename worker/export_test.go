package worker

import "time"

// SetWallClock sets the function that gives the wall clock at a local instant. The worker must not
// have been started.
func (w *Worker) SetWallClock(f func(time.Time) time.Time) { w.inflight.clock.wall = f }

// NeverAhead makes a worker that has not been started claim nothing ahead of free slots.
func (w *Worker) NeverAhead() { w.slots.ahead.rest = time.Now().Add(1000 * time.Hour) }
