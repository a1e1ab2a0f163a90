package server

import (
	"context"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// spacious is a store that knows how much room it has.
type spacious struct{ punctual.Store }

func (spacious) Space(context.Context) (punctual.Space, error) {
	return punctual.Space{Free: 3, Total: 10, Reserve: 1}, nil
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

func (r roomy) Space(context.Context) (punctual.Space, error) {
	return punctual.Space{Free: *r.free, Total: 10, Reserve: 1}, nil
}
