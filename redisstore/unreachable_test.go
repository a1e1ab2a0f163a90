package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/script"
)

// P13: a read whose answer is lost certainly changed nothing.
func TestReadWithoutAnswer(t *testing.T) {
	s, p := openBehind(t, redisrig.Start(t), nil)
	push(t, s, punctual.NewMessage{ID: "a", Delay: time.Hour})
	for _, read := range []struct {
		script *script.Script
		read   func() error
	}{
		{script.Get, func() error { _, err := s.Get(t.Context(), "orders", "a"); return err }},
		{script.Layout, func() error { _, err := s.Settings(t.Context(), "orders"); return err }},
		{script.Layout, func() error { _, err := s.Settings(t.Context(), "unknown"); return err }},
	} {
		lost := p.Lose(route.Tries, runs(read.script))
		err := read.read()
		if n := len(lost.Happened()); n != route.Tries {
			t.Fatalf("this test shows nothing: %d of %d answers were lost", n, route.Tries)
		}
		if !errors.Is(err, punctual.ErrUnreachable) || errors.Is(err, punctual.ErrIndeterminate) || !punctual.Definite(err) {
			t.Errorf("%s: %v; want ErrUnreachable", read.script.Name, err)
		}
	}
}
