package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

func TestQuietHours(t *testing.T) {
	night := worker.QuietHours{From: "22:00", To: "08:00", Zone: "Europe/Berlin", ZoneHeader: "zone", Spread: -1}
	for name, c := range map[string]struct {
		hours    worker.QuietHours
		now, end string // in UTC; no end: it is handled
		zone     string
	}{
		"in the evening":                        {night, "2026-11-20T21:00:00Z", "2026-11-21T07:00:00Z", ""},
		"in the morning":                        {night, "2026-11-20T06:59:59Z", "2026-11-20T07:00:00Z", ""},
		"the first minute":                      {night, "2026-11-20T20:59:59Z", "", ""},
		"at the end":                            {night, "2026-11-20T07:00:00Z", "", ""},
		"at noon":                               {night, "2026-11-20T12:00:00Z", "", ""},
		"where its receiver is":                 {night, "2026-11-20T12:00:00Z", "2026-11-20T13:00:00Z", "America/New_York"},
		"where its receiver is awake":           {night, "2026-11-20T22:00:00Z", "", "America/New_York"},
		"with a zone that nobody knows":         {night, "2026-11-20T21:00:00Z", "2026-11-21T07:00:00Z", "Mars/Base"},
		"over a change of clocks":               {night, "2026-10-24T21:00:00Z", "2026-10-25T07:00:00Z", ""},
		"at noon by hours of one day":           {worker.QuietHours{From: "12:00", To: "13:30", Spread: -1}, "2026-11-20T12:10:00Z", "2026-11-20T13:30:00Z", ""},
		"in the evening by hours of one day":    {worker.QuietHours{From: "12:00", To: "13:30", Spread: -1}, "2026-11-20T22:00:00Z", "", ""},
		"to a time that is left out":            {worker.QuietHours{From: "01:00", To: "02:30", Zone: "Europe/Berlin", Spread: -1}, "2026-03-29T00:10:00Z", "2026-03-29T01:00:00Z", ""},
		"in an hour that is repeated, at first": {worker.QuietHours{From: "01:00", To: "02:30", Zone: "Europe/Berlin", Spread: -1}, "2026-10-25T00:10:00Z", "2026-10-25T00:30:00Z", ""},
		"in an hour that is repeated, again":    {worker.QuietHours{From: "01:00", To: "02:30", Zone: "Europe/Berlin", Spread: -1}, "2026-10-25T01:10:00Z", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			now, err := time.Parse(time.RFC3339, c.now)
			if err != nil {
				t.Fatal(err)
			}
			store := memstore.New(&memstore.Options{Clock: storekit.NewManualClock(now)})
			defer store.Close()
			quiet, err := worker.Quiet(c.hours)
			if err != nil {
				t.Fatal(err)
			}
			handled := false
			w := worker.New(store, &worker.Config{Middleware: []worker.Middleware{quiet}})
			w.Handle("calls", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error {
				handled = true
				return nil
			}))
			m := punctual.NewMessage{Topic: "calls", ID: "a"}
			if c.zone != "" {
				m.Headers = map[string]string{"zone": c.zone}
			}
			if rs, err := store.Push(t.Context(), []punctual.NewMessage{m}); err != nil || rs[0].Err != nil {
				t.Fatal(err, rs)
			}
			if _, err := w.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, err := store.Get(t.Context(), "calls", "a")
			switch {
			case c.end == "" && (!handled || !errors.Is(err, punctual.ErrNotFound)):
				t.Errorf("not handled: %+v, %v", got, err)
			case c.end != "" && (handled || err != nil || got.Due.Format(time.RFC3339) != c.end || got.Attempt != 0):
				t.Errorf("handled %v, due %v in attempt %d, %v; want %s", handled, got.Due, got.Attempt, err, c.end)
			}
		})
	}
}

func TestQuietHoursSpread(t *testing.T) {
	now := time.Date(2026, 11, 20, 23, 0, 0, 0, time.UTC)
	store := memstore.New(&memstore.Options{Clock: storekit.NewManualClock(now)})
	defer store.Close()
	quiet, err := worker.Quiet(worker.QuietHours{From: "22:00", To: "08:00"})
	if err != nil {
		t.Fatal(err)
	}
	w := worker.New(store, &worker.Config{Middleware: []worker.Middleware{quiet}})
	w.Handle("calls", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error { return nil }))
	for range 200 {
		if rs, err := store.Push(t.Context(), []punctual.NewMessage{{Topic: "calls"}}); err != nil || rs[0].Err != nil {
			t.Fatal(err, rs)
		}
	}
	if _, err := w.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	page, err := store.List(t.Context(), punctual.ListQuery{Topic: "calls", State: punctual.StateScheduled, Limit: 1000})
	if err != nil || len(page.Messages) != 200 {
		t.Fatalf("%d messages, %v", len(page.Messages), err)
	}
	end := now.Add(9 * time.Hour)
	first, last := page.Messages[0].Due, page.Messages[199].Due
	if first.Before(end) || last.After(end.Add(5*time.Minute)) || last.Sub(first) < 4*time.Minute {
		t.Errorf("from %v to %v", first, last)
	}
}

func TestBadQuietHours(t *testing.T) {
	for _, h := range []worker.QuietHours{
		{}, {From: "22:00"}, {From: "22:00", To: "22:00"}, {From: "24:00", To: "08:00"}, {From: "10pm", To: "08:00"}, {From: "22:00", To: "08:00", Zone: "Mars/Base"},
	} {
		if _, err := worker.Quiet(h); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%+v: %v", h, err)
		}
	}
}
