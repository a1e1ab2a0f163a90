package pgstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/punctualmq/punctual"
	netrig "github.com/punctualmq/punctual/internal/rigs/net"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
	"github.com/punctualmq/punctual/storekit"
)

// poolOver is a pool whose connections go over a wire.
func poolOver(t *testing.T, w *netrig.Wire) *pgxpool.Pool {
	t.Helper()
	return newPool(t, &pgrig.Server{Addr: w.Addr})
}

// P1, P13: the network carries nothing in one direction for longer than callers wait, and then all
// arrives that was sent meanwhile. Each message is delivered once.
func TestNetworkCut(t *testing.T) {
	t.Parallel()
	for _, d := range []netrig.Direction{netrig.ToServer, netrig.FromServer} {
		t.Run(d.String(), func(t *testing.T) {
			w := netrig.StartWire(t, shared.Addr)
			s := openStore(t, poolOver(t, w), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
			here := openStore(t, newPool(t, shared), &Options{Schema: s.opt.Schema, OwnPool: true})
			pushOrders(t, s, 3, 0)
			w.Cut(d)
			ctx, end := context.WithTimeout(t.Context(), 300*time.Millisecond)
			_, err := s.Push(ctx, []punctual.NewMessage{{Topic: "orders", ID: "in doubt"}})
			end()
			// The pool may have tested the connection first, so that the call ended before anything
			// of it was sent.
			if storekit.ErrorCode(err) != storekit.ErrorCode(context.DeadlineExceeded) {
				wantIndeterminate(t, "push over a network that was cut", err)
			}
			w.AwaitHeld(t, d, 1)
			if _, err := here.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "beside"}}); err != nil {
				t.Fatal(err)
			}
			w.Mend(d)
			seen := make(map[string]int)
			waitUntil(t, "the store is reached again", func() bool {
				ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 100, Lease: time.Hour})
				for _, d := range ds {
					seen[d.ID]++
				}
				return err == nil
			})
			// The same push again has a definite answer: the message is there, or it is stored now.
			rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "in doubt"}})
			if err != nil || rs[0].Err != nil {
				t.Errorf("P7: the push again: %+v, %v", rs, err)
			}
			waitUntil(t, "all is delivered", func() bool {
				for _, d := range claimN(t, here, 100) {
					seen[d.ID]++
				}
				return len(seen) == 5
			})
			for id, n := range seen {
				if n != 1 {
					t.Errorf("P3: %s was delivered %d times under leases of an hour", id, n)
				}
			}
		})
	}
}

// listener returns the client's port of a connection on which a store listens, as the server sees
// it; 0 while there is none. The connection with the port but does not count.
func listener(t *testing.T, server *pgrig.Server, but int) int {
	t.Helper()
	out := doIt(t, server, fmt.Sprintf("select coalesce(max(client_port), 0) from pg_stat_activity where query = 'LISTEN \"punctual_due\"' and client_port <> %d", but))
	port, err := strconv.Atoi(out)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// P11: the network has forgotten the connection that listens, so no notification comes. What others
// push is found all the same, and the store listens on another connection.
func TestHalfOpenListener(t *testing.T) {
	t.Parallel()
	server := pgrig.Start(t, "fsync=off")
	w := netrig.StartWire(t, server.Addr)
	s := openStore(t, poolOver(t, w), &Options{Migrate: true, OwnPool: true, heartbeat: 5 * time.Second})
	other := openStore(t, newPool(t, server), &Options{OwnPool: true, NoListen: true})
	port := 0
	waitUntil(t, "the store listens", func() bool { port = listener(t, server, 0); return port != 0 })
	found := make(chan claimResult, 1)
	go func() {
		ds, err := s.Claim(context.Background(), punctual.Claim{Topics: []string{"orders"}, Max: 10, Wait: time.Minute})
		found <- claimResult{ds, err}
	}()
	awaitWaiting(t, s, "orders")
	if !w.Forget(port) {
		t.Fatal("this test shows nothing: the connection that listens does not go over the wire")
	}
	pushOrders(t, other, 1, 0)
	doIt(t, server, "notify punctual_due, 'somebody\norders 0'") // other does not notify by itself
	w.AwaitLost(t, netrig.FromServer, 1)
	if got := <-found; got.err != nil || len(got.ds) != 1 {
		t.Fatalf("P11: a claim whose store hears nothing found %v, %v; want the message within a second", got.ds, got.err)
	} else if late := got.ds[0].ReadyFor(); late > 10*time.Second { // a poll each second, and a loaded machine
		t.Errorf("P11: the message was found after %v; want it within a second", late)
	}
	// The server does not learn that the first connection is forgotten.
	waitUntil(t, "the store listens on another connection", func() bool { return listener(t, server, port) != 0 })
}

// P14: a process that is paused and does not read its notifications holds up nobody. The server
// ends its connection, so that it keeps no dead rows.
func TestUnreadListener(t *testing.T) {
	t.Parallel()
	server := pgrig.Start(t, "fsync=off")
	// The connection unread is made as the store makes the one that listens, but nobody reads from
	// it.
	s := openStore(t, newPool(t, server), &Options{Migrate: true, OwnPool: true, heartbeat: time.Second})
	unread, err := s.waits.others.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unread.PgConn().Conn().Close() }()
	if err := s.waits.others.begin(unread); err != nil {
		t.Fatal(err)
	}
	pid := unread.PgConn().PID()
	other := openStore(t, newPool(t, server), &Options{OwnPool: true})
	conn, err := other.db.pool.Acquire(t.Context()) // doIt would start a program for each query, which takes too long on a loaded machine
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	state := func() string {
		return string(run(t, conn.Conn(), fmt.Sprintf("SELECT coalesce(max(coalesce(wait_event, '')), 'gone') FROM pg_stat_activity WHERE pid = %d", pid))[0])
	}
	flood(t, server)
	pushOrders(t, other, 10, 0)
	if ds := claimN(t, other, 10); len(ds) != 10 {
		t.Errorf("P14: beside a process that does not read a claim found %d messages, want 10", len(ds))
	}
	waited := false
	waitUntil(t, "the server has ended the connection", func() bool {
		got := state()
		waited = waited || got == "ClientWrite"
		return got == "gone"
	})
	// If the wait was too short to be seen, the server's log tells of it.
	if !waited && !strings.Contains(server.Log(), "could not send data to client: Connection timed out") {
		t.Errorf("this test shows nothing: the server has not waited for the process to read; its log says:\n%s", server.Log())
	}
}

// flood sends more notifications than the buffers of a connection hold.
func flood(t *testing.T, server *pgrig.Server) {
	t.Helper()
	doIt(t, server, "do $$ begin for i in 1..4000 loop perform pg_notify('punctual_due', i || repeat('x', 7000)); end loop; end $$")
}
