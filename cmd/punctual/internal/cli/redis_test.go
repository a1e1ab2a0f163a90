package cli

import (
	"strings"
	"testing"

	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
)

// runOn runs a command line on the store that it names, as a process would.
func runOn(t *testing.T, store string, args ...string) result {
	t.Helper()
	var out, err buffer
	args = append([]string{"--store", store}, args...)
	a := newApp(Streams{In: strings.NewReader(""), Out: &out, Err: &err, Getenv: func(string) string { return "" }})
	return result{t, args, a.run(t.Context(), args), out.String(), err.String()}
}

func TestRedisStore(t *testing.T) {
	store := "redis://" + redisrig.Start(t).Addr + "/2?prefix=shop:"
	runOn(t, store, "topics").exits(exitError, "no store in this Redis")
	runOn(t, store, "push", "orders", "close order 42", "--id", "42").ok().prints("42\n")
	runOn(t, store, "push", "orders", "close order 43", "--id", "43", "--in", "1h").ok().prints("43\n")
	runOn(t, store, "cancel", "43", "--topic", "orders").ok()
	runOn(t, store, "consume", "orders", "--until-empty").exits(exitOK).contains(`"body":"close order 42"`)
	runOn(t, store, "topics").ok().contains("orders")
	runOn(t, store, "check").exits(exitOK)
}

func TestBadRedisURL(t *testing.T) {
	r := runOn(t, "redis://user:secret@", "topics").exits(exitUsage, "redis://host")
	if strings.Contains(r.err, "secret") {
		t.Errorf("standard error tells the password: %s", r.err)
	}
}
