package server

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// able is a store whose reach the test sets, or the error with which it answers what it can do.
type able struct {
	punctual.Store
	reach storekit.Reach
	err   error
}

func (a *able) Abilities(context.Context) (storekit.Abilities, error) {
	return storekit.Abilities{Follow: a.reach}, a.err
}

// GET /v1 has what the store can do. While the store does not answer, it has what the store said
// before, or nothing at all: a client must not take the silence of a store for a lack of abilities.
func TestAbilities(t *testing.T) {
	r := newRig(t, nil)
	r.ask("GET /v1", "").want(t, 200, `"abilities":{"follow":"any","emit":true,"bounds_leases":true,"keys":true}`)

	plain := struct{ punctual.Store }{r.store}
	r.Server = newServer(t, plain, nil)
	r.ask("GET /v1", "").want(t, 200, `"abilities":{"follow":"none"}`)
	r.ask("GET /v1/names", "").problem(t, 422, "unsupported")

	store := &able{Store: r.store, err: fmt.Errorf("asking: %w", punctual.ErrUnreachable)}
	r.Server = newServer(t, store, nil)
	if a := r.ask("GET /v1", ""); a.status != 200 || strings.Contains(a.body, "abilities") {
		t.Errorf("of a store that does not answer: %d %s", a.status, a.body)
	}
	store.reach, store.err = storekit.ReachFamily, nil
	r.ask("GET /v1", "").want(t, 200, `"abilities":{"follow":"family"}`)
	store.err = punctual.ErrUnreachable
	r.ask("GET /v1", "").want(t, 200, `"abilities":{"follow":"family"}`)
}
