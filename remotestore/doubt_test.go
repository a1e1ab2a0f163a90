package remotestore_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/answers"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/remotestore"
	"github.com/punctualmq/punctual/server"
	"github.com/punctualmq/punctual/storekit"
)

// losing is a server that carries requests out and loses some of the answers to those for one path.
// It notes the headers of all requests.
type losing struct {
	path string

	mu             sync.Mutex
	*server.Server                                  // guarded by mu
	loses          func(n int) bool                 // whether the answer to the n-th request for the path, from 0, gets lost; guarded by mu
	instead        func(w http.ResponseWriter) bool // answers the other requests for the path if it returns true; guarded by mu
	seen           []http.Header                    // of the requests for the path; guarded by mu
	at             []time.Time                      // when they came; guarded by mu
	others         []http.Header                    // of the requests for other paths; guarded by mu
}

func newLosing(t *testing.T, below punctual.Store, path string) (l *losing, url string) {
	t.Helper()
	h, err := server.New(below, nil)
	if err != nil {
		t.Fatal(err)
	}
	l = &losing{Server: h, path: path}
	hs := newHTTPServer(l, true, true)
	t.Cleanup(func() {
		hs.Close()
		h.Close()
	})
	return l, hs.URL
}

func (l *losing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	if r.URL.Path != l.path {
		l.others = append(l.others, r.Header)
		l.mu.Unlock()
		l.current().ServeHTTP(w, r)
		return
	}
	n := len(l.seen)
	l.seen, l.at = append(l.seen, r.Header), append(l.at, time.Now())
	lose, instead := l.loses != nil && l.loses(n), l.instead
	l.mu.Unlock()
	if !lose && instead != nil && instead(w) {
		return
	}
	if lose {
		l.current().ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler) // the connection ends without an answer
	}
	l.current().ServeHTTP(w, r)
}

func (l *losing) current() *server.Server {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Server
}

// refuse answers with the problem of an error.
func refuse(t *testing.T, w http.ResponseWriter, err error) {
	p := wire.ProblemOf(err)
	data, eerr := wire.Encode(p)
	if eerr != nil {
		t.Error(eerr)
	}
	w.Header().Set("Content-Type", wire.ProblemType)
	w.WriteHeader(p.Status)
	_, _ = w.Write(data)
}

// TestSettlementOfAServerThatEnded: the answer to an ack is lost with its server, and the server
// that follows, which does not know of the ack, refuses it or answers until RetryFor is over that
// it cannot. The ack may have been made, so it is in doubt (P13).
func TestSettlementOfAServerThatEnded(t *testing.T) {
	for _, refusal := range []error{punctual.ErrForbidden, punctual.ErrOverloaded, punctual.ErrStoreFailed} {
		below := closing(t, memstore.New(nil), nil)
		l, url := newLosing(t, below, wire.PathSettle)
		s := connect(t, &remotestore.Options{RetryFor: 100 * time.Millisecond}, url)
		pushOne(t, s, "a")
		d := claimOne(t, s)
		second, err := server.New(below, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		l.loses = func(n int) bool { return n == 0 }
		refused := 0
		l.instead = func(w http.ResponseWriter) bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.Server != second { // the copy names the memory of the first server, so the second one asks for another copy
				l.Server = second
				return false
			}
			refused++
			refuse(t, w, refusal)
			return true
		}
		errs, err := s.Settle(t.Context(), ackOf(d))
		if err == nil {
			err = errs[0]
		}
		l.mu.Lock()
		if len(l.seen) < 3 || refused == 0 {
			t.Fatalf("%v: this shows nothing: %d copies, %d of them refused by the second server; %v", refusal, len(l.seen), refused, err)
		}
		l.mu.Unlock()
		if _, gerr := below.Get(t.Context(), "t", d.ID); !errors.Is(gerr, punctual.ErrNotFound) {
			t.Fatalf("this shows nothing: the message: %v; want it acked", gerr)
		}
		if !errors.Is(err, punctual.ErrIndeterminate) || punctual.Definite(err) {
			t.Errorf("P13: the ack that was made and then refused with %v: %v; want it in doubt", refusal, err)
		}
	}
}

// TestCopiesEndInTime: no copy of a request may be carried out after the server has forgotten the
// answer to the first copy.
func TestCopiesEndInTime(t *testing.T) {
	const keep = 2 * time.Second
	below := memstore.New(nil)
	l, url := newLosing(t, closing(t, answers.New(below, &answers.Options{Keep: keep}), nil), wire.PathPush)
	began := time.Now()
	l.loses = func(int) bool { return time.Since(began) < keep/2 }
	s := connect(t, nil, url)
	began = time.Now()
	pushOne(t, s, "a")
	l.mu.Lock()
	defer l.mu.Unlock()
	var until []time.Time
	for _, h := range l.seen {
		at, err := time.Parse(time.RFC3339Nano, h.Get(wire.HeaderNotAfter))
		if err != nil {
			t.Fatalf("%v: %v", h, err)
		}
		until = append(until, at)
	}
	// The first copy may be carried out for three quarters of the time for which answers are kept.
	forgotten := until[0].Add(keep / 4)
	if last := l.at[len(l.at)-1].Sub(l.at[0]); last < keep/4 {
		t.Fatalf("the last of %d copies came %v after the first, so this shows nothing", len(until), last)
	}
	for i, at := range until {
		if at.After(forgotten.Add(time.Millisecond)) {
			t.Errorf("copy %d may be carried out until %v, and the first one's answer is kept until %v", i, at, forgotten)
		}
	}
	if stats, err := below.Stats(t.Context(), "t"); err != nil || stats.Live() != 1 {
		t.Errorf("%+v, %v", stats, err)
	}
}

// TestWhatIsAnswered: the client tells the server that it may forget an answer if no copy of the
// request can be on its way any more, which is so when a single copy was sent, with a key of the
// store.
func TestWhatIsAnswered(t *testing.T) {
	for _, x := range []struct {
		name       string
		lost       int
		ownKey     bool
		wantForget bool
	}{
		{"answered at once", 0, false, true},
		{"one answer lost", 1, false, false},
		{"two answers lost", 2, false, false},
		{"the caller's key", 0, true, false},
	} {
		l, url := newLosing(t, closing(t, memstore.New(nil), nil), wire.PathPush)
		l.loses = func(n int) bool { return n < x.lost }
		s := connect(t, nil, url)
		ctx := t.Context()
		if x.ownKey {
			ctx = storekit.WithRequest(ctx, storekit.Request{Key: "mine"})
		}
		if rs, err := s.Push(ctx, []punctual.NewMessage{{Topic: "t", ID: "a"}}); err != nil || rs[0].Status != punctual.PushStored {
			t.Fatal(rs, err)
		}
		if _, err := s.Topics(t.Context()); err != nil { // the next request tells the server what it may forget
			t.Fatal(err)
		}
		l.mu.Lock()
		if len(l.seen) != x.lost+1 {
			t.Fatalf("%s: %d copies", x.name, len(l.seen))
		}
		key := l.seen[0].Get(wire.HeaderRequest)
		var told []string
		for _, h := range l.others {
			told = append(told, strings.Split(h.Get(wire.HeaderAnswered), ",")...)
		}
		if forgets := slices.Contains(told, key); key == "" || forgets != x.wantForget {
			t.Errorf("%s: the server is told to forget %q of key %q; want that %v", x.name, told, key, x.wantForget)
		}
		l.mu.Unlock()
	}
}

// TestRefusedCopies: the answer to the first copy of a push is lost, and the second copy is
// refused. The push is in doubt if the refusal may have come from in front of the store, which does
// not know what became of the first copy. It is not in doubt if the store has refused the copy.
func TestRefusedCopies(t *testing.T) {
	inFront := []string{"unauthenticated", "forbidden", "overloaded", "too_large", "invalid"}
	sentAgain := []string{"closed", "store_failed", "unreachable", "locked"}
	tried := 0
	for _, k := range storekit.ErrorKinds() {
		if !k.Definite || slices.Contains(sentAgain, k.Code) {
			continue
		}
		tried++
		l, url := newLosing(t, closing(t, memstore.New(nil), nil), wire.PathPush)
		l.loses = func(n int) bool { return n == 0 }
		l.instead = func(w http.ResponseWriter) bool {
			refuse(t, w, k.Err)
			return true
		}
		s := connect(t, &remotestore.Options{RetryFor: 100 * time.Millisecond}, url)
		rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "t", ID: "a"}})
		if err == nil {
			err = rs[0].Err
		}
		l.mu.Lock()
		if len(l.seen) < 2 {
			t.Fatalf("%s: this shows nothing: %d copies, %v", k.Code, len(l.seen), err)
		}
		l.mu.Unlock()
		doubt := slices.Contains(inFront, k.Code)
		if errors.Is(err, punctual.ErrIndeterminate) != doubt || !doubt && !errors.Is(err, k.Err) {
			t.Errorf("P13: a copy is refused with %s: %v; want it in doubt: %v", k.Code, err, doubt)
		}
	}
	if tried < 10 {
		t.Errorf("%d kinds of errors were tried", tried)
	}
}

// TestPartsOfARequestInDoubt: a batch whose first copy was carried out, and whose second one a
// limit in front of the server refuses, is in doubt as a whole. It must not be sent again in parts,
// because they are other requests: messages without an ID would be stored twice.
func TestPartsOfARequestInDoubt(t *testing.T) {
	ms := []punctual.NewMessage{{Topic: "t", Delay: time.Hour}, {Topic: "t", Delay: time.Hour}}
	below := closing(t, memstore.New(nil), nil)
	tooLarge := func(w http.ResponseWriter) bool {
		refuse(t, w, punctual.ErrTooLarge)
		return true
	}
	l, url := newLosing(t, below, wire.PathPush)
	l.loses = func(n int) bool { return n == 0 }
	refused := 0
	l.instead = func(w http.ResponseWriter) bool {
		refused++
		return refused == 1 && tooLarge(w) // smaller requests get through
	}
	s := connect(t, &remotestore.Options{RetryFor: 5 * time.Second}, url)
	rs, err := s.Push(t.Context(), ms)
	stats, serr := below.Stats(t.Context(), "t")
	if serr != nil {
		t.Fatal(serr)
	}
	if refused == 0 {
		t.Fatalf("this shows nothing: no copy was refused; %+v, %v", rs, err)
	}
	if stats.Scheduled != int64(len(ms)) {
		t.Errorf("P7: %d messages are stored of a push of %d; it returned %+v, %v", stats.Scheduled, len(ms), rs, err)
	}
	if !errors.Is(err, punctual.ErrIndeterminate) {
		t.Errorf("P13: the push returned %+v, %v; want ErrIndeterminate", rs, err)
	}
	// A request that a limit refuses and that nobody carried out is still halved.
	l, url = newLosing(t, below, wire.PathPush)
	refused = 0
	l.instead = func(w http.ResponseWriter) bool {
		refused++
		return refused == 1 && tooLarge(w)
	}
	rs, err = connect(t, nil, url).Push(t.Context(), ms)
	if err != nil || len(rs) != 2 || rs[0].Status != punctual.PushStored || rs[1].Status != punctual.PushStored || refused != 3 {
		t.Errorf("a push that is too large in one request returned %+v, %v after %d requests; want it stored by 3", rs, err, refused)
	}
}
