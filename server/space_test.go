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
