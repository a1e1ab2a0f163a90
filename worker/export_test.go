package worker

import "time"

// SetWallClock sets what a worker that has not begun takes for the wall clock at a local instant.
func (w *Worker) SetWallClock(f func(time.Time) time.Time) { w.inflight.clock.wall = f }

// NeverAhead has a worker that has not begun claim nothing ahead of free slots.
func (w *Worker) NeverAhead() { w.slots.ahead.rest = time.Now().Add(1000 * time.Hour) }
