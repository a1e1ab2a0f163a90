package redisstore

import (
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
)

// The text of an error names the operation once, whoever called.
func TestErrorsNameTheOperationOnce(t *testing.T) {
	server := redisrig.Start(t)
	s := openStore(t, connect(t, server), nil)
	q := punctual.NewQueue(s, nil)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"push": func() error {
			_, err := q.Push(t.Context(), "orders", nil)
			return err
		},
		"claim": func() error {
			_, err := s.Claim(t.Context(), orders(0))
			return err
		},
		"cancel": func() error { return q.Cancel(t.Context(), "orders", "a") },
	} {
		err := call()
		if err == nil || strings.Count(err.Error(), name) != 1 || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s of a server that is gone: %v; want an error that begins with %q and says it once", name, err, name+": ")
		}
	}
}
