package redisstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/storekit"
)

// wrong is a URL that names a server of another kind, or a database, primary or server that is not
// there.
type wrong struct {
	url  string
	want error
	says string
}

// refused fails the test unless OpenURL and ExamineURL return an error that says what is wrong with
// the URL, and is definite (P13).
func (w wrong) refused(t *testing.T) {
	t.Helper()
	s, err := OpenURL(t.Context(), w.url, nil)
	if err == nil {
		closeAtEnd(t, s.Close)
	}
	_, looked := ExamineURL(t.Context(), w.url, nil)
	for _, err := range []error{err, looked} {
		if !errors.Is(err, w.want) || !punctual.Definite(err) || !strings.Contains(err.Error(), w.says) {
			t.Errorf("P13: %s: %v; want %v, definite, that says %q", w.url, err, w.want, w.says)
		}
	}
}

func TestWrongServer(t *testing.T) {
	single, node := redisrig.Start(t), redisrig.Start(t, "--cluster-enabled", "yes")
	for _, w := range []wrong{
		{"redis://" + single.Addr + "/99", punctual.ErrInvalid, "no database of this number"},
		{"redis+cluster://" + single.Addr, punctual.ErrUnsupported, "use redis://"},
		{"redis+sentinel://" + single.Addr + "/main", punctual.ErrUnsupported, "use redis://"},
		{"redis://" + node.Addr, punctual.ErrUnsupported, "use redis+cluster://"},
		{"redis+sentinel://127.0.0.1:1/main", punctual.ErrUnreachable, "nobody listens"},
	} {
		w.refused(t)
	}
}

func TestWrongSentinel(t *testing.T) {
	sentinel := redisrig.StartSentinel(t)
	for _, w := range []wrong{
		{"redis://" + sentinel.Addr, punctual.ErrUnsupported, "use redis+sentinel://"},
		{"redis+cluster://" + sentinel.Addr, punctual.ErrUnsupported, "redis+sentinel://"},
		{"redis+sentinel://" + sentinel.Addr + "/another", punctual.ErrUnreachable, "no primary of this name"},
	} {
		w.refused(t)
	}
}

// A store on a replica would refuse each push.
func TestReplica(t *testing.T) {
	primary := redisrig.Start(t)
	openStore(t, connect(t, primary), nil)
	replica := redisrig.StartReplica(t, primary)
	waitUntil(t, "the replica has the data", func() bool { return do(t, replica, "EXISTS", "punctual:store") == "1" })
	s, err := OpenURL(t.Context(), "redis://"+replica.Addr, nil)
	if err == nil {
		closeAtEnd(t, s.Close)
	}
	if !errors.Is(err, punctual.ErrUnreachable) || !punctual.Definite(err) || !strings.Contains(err.Error(), "replica of "+primary.Addr) {
		t.Errorf("P13: open of a replica = %v; want ErrUnreachable, definite, with the address of the primary", err)
	}
}

// A client that the store makes itself sends nothing for which the rights of docs/format-redis.md
// do not suffice.
func TestOpenURLWithLeastRights(t *testing.T) {
	server := redisrig.Start(t)
	do(t, server, append([]string{"ACL", "SETUSER", "punctual", "on", ">secret"}, strings.Fields(leastRights)...)...)
	s, err := OpenURL(t.Context(), "redis://punctual:secret@"+server.Addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, s.Close)
	push(t, s, punctual.NewMessage{ID: "a"})
	if denied := do(t, server, "ACL", "LOG"); denied != "" {
		t.Errorf("the server has refused %s", denied)
	}
}

// A server that wants TLS closes a connection without TLS.
func TestPlainToTLS(t *testing.T) {
	wrong{"redis://" + startSecure(t, newAuthority(t, "ca")), punctual.ErrUnreachable, "rediss://"}.refused(t)
}

// A server that cannot write to its disk refuses even a ping. It can be examined all the same.
func TestExamineWhereDiskFails(t *testing.T) {
	failing := refusals["MISCONF"]
	server := redisrig.Start(t, failing.args...)
	s := openStore(t, connect(t, server), nil)
	failing.begin(t, server)
	if _, err := server.Do("PING"); err == nil || !strings.Contains(err.Error(), "MISCONF") {
		t.Fatalf("this test shows nothing: ping is answered with %v", err)
	}
	all, err := s.Examine(t.Context())
	if err != nil {
		t.Errorf("a look: %v", err)
	}
	if f := finding(t, all, "last writes to disk"); f.Severity != storekit.SeverityBad {
		t.Errorf("%+v; want it bad", f)
	}
	if f := finding(t, all, "rights"); f.Severity != storekit.SeverityWarning {
		t.Errorf("%+v; want a warning", f)
	}
	failing.end(t, server)
}
