package sharedstore_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/internal/unixsocket"
	"github.com/punctualmq/punctual/server"
	"github.com/punctualmq/punctual/sharedstore"
)

// losing is an owner of a directory that carries out each request which changes something and then
// loses its answer, until lose is closed.
type losing struct {
	disk   *diskstore.Store
	server *server.Server
	dir    string
	// carriedOut waits for the requests whose answers are to be lost; the test adds their number
	// before it sends them.
	carriedOut sync.WaitGroup
	// lose is closed by the test: the answers are lost then, and the server answers later requests
	// again.
	lose chan struct{}
	// again has a value for each request that comes after that to change something.
	again chan struct{}
}

func newLosing(t *testing.T) *losing {
	t.Helper()
	l := &losing{dir: t.TempDir(), lose: make(chan struct{}), again: make(chan struct{}, 1000)}
	var err error
	if l.disk, err = diskstore.Open(l.dir, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, l.disk) })
	if l.server, err = server.New(l.disk, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.server.Close)
	listener, err := unixsocket.Listen(filepath.Join(l.dir, sharedstore.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewUnstartedServer(l)
	hs.Listener.Close()
	hs.Listener = listener
	hs.Start()
	t.Cleanup(hs.Close)
	return l
}

func (l *losing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/v1/") || r.Method == http.MethodGet { // HTTP/2 begins with a request of its own
		l.server.ServeHTTP(w, r)
		return
	}
	select {
	case <-l.lose:
		l.server.ServeHTTP(w, r)
		l.again <- struct{}{}
		return
	default:
	}
	l.server.ServeHTTP(httptest.NewRecorder(), r)
	l.carriedOut.Done()
	<-l.lose
	panic(http.ErrAbortHandler) // the connection ends without an answer
}

// open opens the directory as a process that calls the owner.
func (l *losing) open(t *testing.T, retryFor time.Duration) *sharedstore.Store {
	t.Helper()
	s, err := sharedstore.Open(t.Context(), l.dir, &sharedstore.Options{RetryFor: retryFor, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	return s
}

// change is a call that changes something.
type change struct {
	name string
	call func(ctx context.Context, s *sharedstore.Store) error
	// happened reports whether the store shows that the call was carried out.
	happened func(d *diskstore.Store) bool
}

// settlements returns one settlement for each verb, of messages that the owner has claimed.
func (l *losing) settlements(t *testing.T) (all []change) {
	t.Helper()
	for verb := punctual.SettleAck; verb <= punctual.SettleExtend; verb++ {
		push(t, l.disk, verb.String())
		ds, err := claim(l.disk, t.Context(), 1, time.Minute)
		if err != nil || len(ds) != 1 {
			t.Fatalf("claim for the %s: %v, %v", verb, ds, err)
		}
		x := punctual.Settlement{Topic: "t", ID: ds[0].ID, Token: ds[0].Token, Verb: verb}
		if verb == punctual.SettleRetry || verb == punctual.SettleSnooze || verb == punctual.SettleExtend {
			x.Delay = time.Hour
		}
		until := ds[0].LeaseUntil
		all = append(all, change{verb.String(), func(ctx context.Context, s *sharedstore.Store) error {
			errs, err := s.Settle(ctx, []punctual.Settlement{x})
			if err == nil {
				err = errs[0]
			}
			return err
		}, func(d *diskstore.Store) bool {
			m, err := d.Get(context.Background(), x.Topic, x.ID)
			if verb == punctual.SettleAck {
				return errors.Is(err, punctual.ErrNotFound)
			}
			return err == nil && (m.State != punctual.StateLeased || m.LeaseUntil.After(until))
		}})
	}
	return all
}

// changes returns the calls that change something, other than claims and settlements.
func (l *losing) changes(t *testing.T) []change {
	t.Helper()
	push(t, l.disk, "cancelled")
	for _, topic := range []string{"purged", "deleted"} {
		if rs, err := l.disk.Push(t.Context(), []punctual.NewMessage{{Topic: topic, ID: "m"}}); err != nil || rs[0].Err != nil {
			t.Fatal(rs, err)
		}
	}
	gone := func(topic, id string) func(d *diskstore.Store) bool {
		return func(d *diskstore.Store) bool {
			_, err := d.Get(context.Background(), topic, id)
			return errors.Is(err, punctual.ErrNotFound)
		}
	}
	lease := 7 * time.Minute
	return []change{
		{"push", func(ctx context.Context, s *sharedstore.Store) error {
			_, err := s.Push(ctx, []punctual.NewMessage{{Topic: "t", ID: "pushed"}})
			return err
		}, func(d *diskstore.Store) bool { return !gone("t", "pushed")(d) }},
		{"amend", func(ctx context.Context, s *sharedstore.Store) error {
			_, err := s.Amend(ctx, []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "t", ID: "cancelled"}})
			return err
		}, gone("t", "cancelled")},
		{"configure", func(ctx context.Context, s *sharedstore.Store) error {
			_, err := s.Configure(ctx, "configured", punctual.SettingsPatch{Lease: &lease})
			return err
		}, func(d *diskstore.Store) bool {
			set, err := d.Settings(context.Background(), "configured")
			return err == nil && set.Lease == lease
		}},
		{"purge", func(ctx context.Context, s *sharedstore.Store) error {
			_, err := s.Purge(ctx, punctual.PurgeQuery{Topic: "purged"})
			return err
		}, gone("purged", "m")},
		{"delete topic", func(ctx context.Context, s *sharedstore.Store) error {
			_, err := s.DeleteTopic(ctx, "deleted")
			return err
		}, gone("deleted", "m")},
	}
}

// errsOf makes all calls at the same time, calls fault when the owner has carried them out and not
// answered yet, and returns their errors.
func (l *losing) errsOf(t *testing.T, ctx context.Context, s *sharedstore.Store, all []change, fault func()) []error {
	t.Helper()
	errs := make([]error, len(all))
	var calls sync.WaitGroup
	l.carriedOut.Add(len(all))
	for i, c := range all {
		calls.Go(func() { errs[i] = c.call(ctx, s) })
	}
	l.carriedOut.Wait()
	for _, c := range all {
		if !c.happened(l.disk) {
			t.Fatalf("this shows nothing: the %s was not carried out", c.name)
		}
	}
	fault()
	calls.Wait()
	return errs
}

// TestCloseDuringAChange: a change that the owner has carried out, and whose answer is cut off
// because the caller's store is closed, returns ErrIndeterminate (P13).
func TestCloseDuringAChange(t *testing.T) {
	l := newLosing(t)
	s := l.open(t, time.Minute)
	all := append(l.changes(t), l.settlements(t)...)
	defer close(l.lose)
	errs := l.errsOf(t, context.Background(), s, all, func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	for i, err := range errs {
		if !errors.Is(err, punctual.ErrIndeterminate) || punctual.Definite(err) {
			t.Errorf("P13: the %s that the store's end cut off: %v; want ErrIndeterminate, since it happened", all[i].name, err)
		}
	}
	if _, err := s.Now(context.Background()); !errors.Is(err, punctual.ErrClosed) {
		t.Errorf("a call behind the end: %v", err)
	}
}

// TestSettlementIsGivenUp: a settlement that an owner has carried out, whose answer is lost, and
// that no owner answers after that, returns ErrIndeterminate (P13), whether its context ends or
// Options.RetryFor is over.
func TestSettlementIsGivenUp(t *testing.T) {
	for _, x := range []struct {
		name     string
		retryFor time.Duration
		ends     bool // the context ends
		kind     error
	}{{"context", time.Minute, true, context.Canceled}, {"RetryFor", 50 * time.Millisecond, false, punctual.ErrUnreachable}} {
		t.Run(x.name, func(t *testing.T) {
			l := newLosing(t)
			s, all := l.open(t, x.retryFor), l.settlements(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			errs := l.errsOf(t, ctx, s, all, func() {
				l.server.Close() // from now on it refuses what it is asked
				close(l.lose)
				<-l.again
				if x.ends {
					cancel()
				}
			})
			kinds := 0
			for i, err := range errs {
				if !errors.Is(err, punctual.ErrIndeterminate) || punctual.Definite(err) {
					t.Errorf("P13: the %s whose answer was lost: %v; want ErrIndeterminate, since it happened", all[i].name, err)
				}
				if errors.Is(err, x.kind) {
					kinds++
				}
			}
			if kinds == 0 {
				t.Errorf("no settlement was given up with %v: %v", x.kind, errs)
			}
		})
	}
}

// TestSettlementAtTheNextOwner: a settlement that an owner has carried out, and whose answer is
// lost, is repeated at the next owner. There its token is no longer the current one, unless it was
// an extension, so it may have happened (P13).
func TestSettlementAtTheNextOwner(t *testing.T) {
	l := newLosing(t)
	s, all := l.open(t, time.Minute), l.settlements(t)
	errs := l.errsOf(t, t.Context(), s, all, func() {
		l.server.Close()
		if err := l.disk.Close(); err != nil {
			t.Error(err)
		}
		close(l.lose)
	})
	if !s.Owner() {
		t.Fatal("this shows nothing: there is no next owner")
	}
	for i, err := range errs {
		if all[i].name == punctual.SettleExtend.String() {
			if err != nil {
				t.Errorf("the extension, which may be made twice: %v", err)
			}
		} else if !errors.Is(err, punctual.ErrIndeterminate) || !errors.Is(err, punctual.ErrLeaseLost) {
			t.Errorf("P13: the %s whose answer was lost: %v; want ErrIndeterminate and ErrLeaseLost", all[i].name, err)
		}
	}
}

// TestChangeAtTheNextOwner: a change that is neither a claim nor a settlement, and whose answer is
// lost, is not made again at the next owner, because a push without an ID would then be stored
// twice. It may have happened (P13).
func TestChangeAtTheNextOwner(t *testing.T) {
	l := newLosing(t)
	s, all := l.open(t, time.Minute), l.changes(t)
	for i, err := range l.errsOf(t, t.Context(), s, all, func() { close(l.lose) }) {
		if !errors.Is(err, punctual.ErrIndeterminate) {
			t.Errorf("P13: the %s whose answer was lost: %v; want ErrIndeterminate", all[i].name, err)
		}
	}
	if n := len(l.again); n != 0 {
		t.Errorf("%d changes were sent again", n)
	}
}

// TestLostLeaseIsCertain: a settlement that the owner has refused, and answered, certainly changed
// nothing (P13).
func TestLostLeaseIsCertain(t *testing.T) {
	l := newLosing(t)
	close(l.lose)
	s := l.open(t, time.Minute)
	errs, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: "t", ID: "nobody", Token: 7, Verb: punctual.SettleAck}})
	if err != nil || !errors.Is(errs[0], punctual.ErrLeaseLost) || !punctual.Definite(errs[0]) {
		t.Errorf("P13: %v, %v; want ErrLeaseLost, which is definite", errs, err)
	}
}

// TestClaimIsGivenUp: a claim whose answer is lost, and that no owner answers after that, returns
// ErrIndeterminate, because the owner may have leased messages. If its context ends, it returns the
// error of the context, as a claim of any store does.
func TestClaimIsGivenUp(t *testing.T) {
	for _, ends := range []bool{false, true} {
		l := newLosing(t)
		push(t, l.disk, "m")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		retryFor := 50 * time.Millisecond
		if ends {
			retryFor = time.Minute
		}
		s := l.open(t, retryFor)
		errs := l.errsOf(t, ctx, s, []change{{"claim", func(ctx context.Context, s *sharedstore.Store) error {
			_, err := claim(s, ctx, 1, 0)
			return err
		}, func(d *diskstore.Store) bool {
			m, err := d.Get(context.Background(), "t", "m")
			return err == nil && m.State == punctual.StateLeased
		}}}, func() {
			l.server.Close()
			close(l.lose)
			<-l.again
			if ends {
				cancel()
			}
		})
		if err := errs[0]; ends && (!errors.Is(err, context.Canceled) || errors.Is(err, punctual.ErrIndeterminate)) || !ends && !errors.Is(err, punctual.ErrIndeterminate) {
			t.Errorf("context ends: %v: %v", ends, err)
		}
	}
}
