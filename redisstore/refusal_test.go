package redisstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/health"
)

// refusals has, by the error of Redis, how a real server is brought to refuse changes, and how that
// is ended.
var refusals = map[string]struct {
	args       []string
	begin, end func(t *testing.T, s *redisrig.Server)
	want       error
}{
	"READONLY": {
		begin: steer("REPLICAOF 127.0.0.1 1"), // nobody is there
		end:   steer("REPLICAOF NO ONE"),
		want:  punctual.ErrUnreachable,
	},
	"MASTERDOWN": {
		args:  []string{"--replica-serve-stale-data", "no"},
		begin: steer("REPLICAOF 127.0.0.1 1"),
		end:   steer("REPLICAOF NO ONE"),
		want:  punctual.ErrUnreachable,
	},
	"NOREPLICAS": {
		begin: steer("CONFIG SET min-replicas-to-write 1"),
		end:   steer("CONFIG SET min-replicas-to-write 0"),
		want:  punctual.ErrDurability,
	},
	"MISCONF": {
		args: []string{"--appendonly", "no", "--save", "3600 1000000"},
		begin: func(t *testing.T, s *redisrig.Server) {
			if err := os.MkdirAll(filepath.Join(s.Dir, "dump.rdb", "in the way"), 0o700); err != nil {
				t.Fatal(err)
			}
			snapshot(t, s, "err")
		},
		end: func(t *testing.T, s *redisrig.Server) {
			if err := os.RemoveAll(filepath.Join(s.Dir, "dump.rdb")); err != nil {
				t.Fatal(err)
			}
			snapshot(t, s, "ok")
		},
		want: punctual.ErrDurability,
	},
}

func steer(command string) func(*testing.T, *redisrig.Server) {
	return func(t *testing.T, s *redisrig.Server) {
		t.Helper()
		do(t, s, strings.Fields(command)...)
	}
}

// snapshot has a server write a snapshot, and waits until that has ended with a status.
func snapshot(t *testing.T, s *redisrig.Server, status string) {
	t.Helper()
	do(t, s, "BGSAVE")
	for {
		info := health.ParseInfo(do(t, s, "INFO", "persistence"))
		if info["rdb_bgsave_in_progress"] == "0" && info["rdb_last_bgsave_status"] == status {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// P13: a call that a server refuses has changed nothing, and its error says so. When the refusals
// end, a consumer that has claimed again and again meanwhile gets its message without a new push.
func TestRefusals(t *testing.T) {
	for name, r := range refusals {
		t.Run(name, func(t *testing.T) {
			server := redisrig.Start(t, r.args...)
			s := openStore(t, connect(t, server), nil)
			held := situations(t, s)
			r.begin(t, server)
			for what, change := range changes(s, held) {
				err := change(t.Context())
				if !errors.Is(err, r.want) || !punctual.Definite(err) || !strings.Contains(err.Error(), name) {
					t.Errorf("P13: %s = %v; want %v with %s", what, err, r.want, name)
				}
			}
			got := persist(t, s)
			r.end(t, server)
			if d := <-got; d.ID != "ready" || d.Attempt != 1 {
				t.Errorf("P11: delivered %s, attempt %d; want what was ready", d.ID, d.Attempt)
			}
			ack(t, s, held)
			if st, err := s.Stats(t.Context(), "orders"); err != nil || st.Scheduled != 1 || st.Leased != 1 || st.Dead != 1 || st.Ready != 0 {
				t.Errorf("P13: after refusals there are %+v, %v; want one scheduled, one leased, one dead", st, err)
			}
		})
	}
}

// persist claims until it has a message, also behind errors that are definite or ErrIndeterminate.
// Any other error, and that of a closed store, fails the test.
func persist(t *testing.T, s *Store) <-chan punctual.Delivery {
	got := make(chan punctual.Delivery, 1)
	go func() {
		for {
			ds, err := s.Claim(context.Background(), orders(time.Minute))
			if len(ds) == 1 {
				got <- ds[0]
				return
			}
			if !punctual.Definite(err) && !errors.Is(err, punctual.ErrIndeterminate) || errors.Is(err, punctual.ErrClosed) {
				t.Errorf("P13: claim: %v", err)
				close(got)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return got
}

// A server that loads a long file refuses calls until it has loaded it, with a definite error.
func TestLoading(t *testing.T) {
	server := redisrig.Start(t, "--appendfsync", "always", "--key-load-delay", "50") // µs per command; it answers after each 1024
	s := openStore(t, connect(t, server), nil)
	push(t, s, punctual.NewMessage{ID: "x"})
	for range 15 {
		do(t, server, "EVAL", "for i = 1, 1000 do redis.call('SET', KEYS[1], i) end", "1", "something else")
	}
	held := claimOne(t, s, 0)
	push(t, s, punctual.NewMessage{ID: "y"})
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	up := make(chan error, 1)
	go func() { up <- server.Restart() }() // which ends when all is loaded
	seen := false
	for loaded := false; !loaded; {
		_, err := s.Now(t.Context())
		if err != nil && strings.Contains(err.Error(), "LOADING") {
			seen = true
			if !errors.Is(err, punctual.ErrUnreachable) || !punctual.Definite(err) {
				t.Errorf("P13: while the server loads: %v; want ErrUnreachable", err)
			}
		}
		select {
		case err := <-up:
			if err != nil {
				t.Fatal(err)
			}
			loaded = true
		default:
		}
	}
	if !seen {
		t.Error("the server was never seen loading")
	}
	ack(t, s, held)
	if d := claimOne(t, s, 0); d.ID != "y" {
		t.Errorf("P1: after loading %s was delivered; want y", d.ID)
	}
}
