package server

import (
	"context"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// spacious is a store that knows how much room it has.
type spacious struct{ punctual.Store }

func (spacious) Space(context.Context) (storekit.Space, error) {
	return storekit.Space{Free: 3, Total: 10, Reserve: 1}, nil
}

func TestSpace(t *testing.T) {
	r := newRig(t, nil)
	r.ask("GET /v1/space", "").problem(t, 422, "unsupported")
	r.Server = newServer(t, spacious{r.store}, &Options{Limits: Limits{StoreTime: time.Minute}})
	r.ask("GET /v1/space", "").want(t, 200, `{"free":3,"total":10,"reserve":1}`)
}

// A server whose store refuses pushes, because too little space is free, says so at /readyz.
func TestReadyWithoutSpace(t *testing.T) {
	r := newRig(t, nil)
	free := int64(1)
	r.Server = newServer(t, roomy{r.store, &free}, nil)
	r.ask("GET /readyz", "").want(t, 200, `{"status":"ok"}`)
	free = 0
	r.ask("GET /readyz", "").want(t, 200, `"degraded"`, "pushes are refused")
}

// roomy is a store with a reserve of 1 byte.
type roomy struct {
	punctual.Store
	free *int64
}

func (r roomy) Space(context.Context) (storekit.Space, error) {
	return storekit.Space{Free: *r.free, Total: 10, Reserve: 1}, nil
}

// A server whose store's clock is ahead says so at /readyz, to those who examine the store and at
// /v1/clock/state, until the store's clock follows.
func TestClockAhead(t *testing.T) {
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	r := &rig{t, store, newServer(t, store, nil)}
	r.ask("GET /readyz", "").want(t, 200, `{"status":"ok"}`)
	clock.Advance(time.Hour)
	r.ask("GET /v1/clock", "").want(t, 200, `"2026-11-20T13:00:00.000Z"`)
	clock.Advance(-time.Hour)
	r.ask("GET /v1/clock/state", "").want(t, 200, `{"now":"2026-11-20T13:00:00.000Z","follows":"machine","ahead":"1h","steps":0}`)
	r.ask("GET /readyz", "").want(t, 200, `"degraded"`, "the store's clock is 1h0m0s ahead of that of the machine", "NTP")
	r.ask("GET /v1/examine", "").want(t, 200, `"1h0m0s ahead of that of the machine"`)
	r.ask("POST /v1/clock/state", "").want(t, 200, `"ahead":"0s","steps":1,"from":"2026-11-20T13:00:00.000Z","to":"2026-11-20T12:00:00.000Z"`)
	r.ask("GET /readyz", "").want(t, 200, `{"status":"ok"}`)
	r.Server = newServer(t, struct{ punctual.Store }{store}, nil)
	r.ask("GET /v1/clock/state", "").problem(t, 422, "unsupported")
	r.ask("GET /readyz", "").want(t, 200, `{"status":"ok"}`)
}
