package remotestore_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/redisstore"
	"github.com/punctualmq/punctual/remotestore"
	"github.com/punctualmq/punctual/server"
)

// dying is a server that is to end with one request for a path: it carries the request out, loses
// the answer and answers nothing more.
type dying struct {
	t      *testing.T
	server *server.Server
	url    string

	mu   sync.Mutex
	path string // guarded by mu: the path of its last request; empty if there is none yet
	ran  func() // guarded by mu: called when the last request was carried out
	done int    // guarded by mu: how many last requests were carried out
	gone bool   // guarded by mu: the last request has begun
}

func newDying(t *testing.T, below punctual.Store) *dying {
	t.Helper()
	h, err := server.New(below, &server.Options{Limits: server.Limits{Rate: 1e6}})
	if err != nil {
		t.Fatal(err)
	}
	d := &dying{t: t, server: h}
	hs := httptest.NewServer(d)
	d.url = hs.URL
	t.Cleanup(func() {
		hs.Close()
		h.Close()
	})
	return d
}

func (d *dying) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	last := d.path != "" && r.URL.Path == d.path && !d.gone
	if last {
		d.gone = true // so that no copy of the request is carried out here
	}
	gone := d.gone && !last
	d.mu.Unlock()
	if gone {
		panic(http.ErrAbortHandler)
	}
	if !last {
		d.server.ServeHTTP(w, r)
		return
	}
	answer := httptest.NewRecorder()
	d.server.ServeHTTP(answer, r)
	if answer.Code < 300 {
		d.mu.Lock()
		d.done++
		d.mu.Unlock()
		d.ran()
	}
	panic(http.ErrAbortHandler) // the connection ends without an answer
}

// dieAfter makes the next request for a path the last one. ran is called after that request was
// carried out and before its answer is lost.
func (d *dying) dieAfter(path string, ran func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.path, d.ran = path, ran
}

// wantDied makes sure that the last request was carried out.
func (d *dying) wantDied() {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done != 1 {
		d.t.Fatalf("%d requests were carried out by the server that is gone: this shows nothing", d.done)
	}
}

// shared is one Redis, or a Redis cluster, with a topic that two servers serve.
type shared struct {
	t          *testing.T
	url        string
	partitions int
	below      *redisstore.Store
}

func (x *shared) open() *redisstore.Store {
	x.t.Helper()
	s, err := redisstore.OpenURL(x.t.Context(), x.url, &redisstore.Options{Prefix: x.t.Name() + ":", Partitions: x.partitions})
	return closing(x.t, s, err)
}

// all describes the messages of the topic with everything that a second run of a call would change.
func (x *shared) all() string {
	x.t.Helper()
	var b strings.Builder
	for _, state := range []punctual.State{punctual.StateScheduled, punctual.StateReady, punctual.StateLeased, punctual.StateDead} {
		for after := ""; ; {
			page, err := x.below.List(context.Background(), punctual.ListQuery{Topic: "t", State: state, Limit: 1000, After: after})
			if err != nil {
				x.t.Error(err)
				return ""
			}
			for _, m := range page.Messages {
				fmt.Fprintf(&b, "%s %s due %v attempt %d lease until %v failures %v\n", state, m.ID, m.Due.UnixMilli(), m.Attempt, m.LeaseUntil.UnixMilli(), m.Failures)
			}
			if after = page.Next; after == "" {
				break
			}
		}
	}
	return b.String()
}

// scene has the messages that a call finds, and makes the call.
type scene struct {
	t     *testing.T
	store punctual.Store // the store by which the call is made
	below punctual.Store
	n     int
	ids   []string
	held  []punctual.Delivery
}

func newMessages(n int, of punctual.NewMessage) []punctual.NewMessage {
	ms := make([]punctual.NewMessage, n)
	for i := range ms {
		ms[i] = of
		ms[i].Topic = "t"
	}
	return ms
}

// fill pushes n messages, and claims them if leased is true.
func (x *scene) fill(delay time.Duration, leased bool) {
	x.t.Helper()
	rs, err := x.below.Push(x.t.Context(), newMessages(x.n, punctual.NewMessage{Delay: delay}))
	if err != nil {
		x.t.Fatal(err)
	}
	for _, r := range rs {
		x.ids = append(x.ids, r.ID)
	}
	for leased && len(x.held) < x.n {
		ds, err := x.below.Claim(x.t.Context(), punctual.Claim{Topics: []string{"t"}, Max: x.n, Wait: time.Minute, Lease: time.Hour})
		if err != nil {
			x.t.Fatal(err)
		}
		x.held = append(x.held, ds...)
	}
}

func (x *scene) settle(v punctual.Verb, delay time.Duration) error {
	ss := make([]punctual.Settlement, len(x.held))
	for i, d := range x.held {
		ss[i] = punctual.Settlement{Topic: "t", ID: d.ID, Token: d.Token, Verb: v, Delay: delay}
	}
	errs, err := x.store.Settle(x.t.Context(), ss)
	for _, e := range errs {
		if err == nil {
			err = e
		}
	}
	return err
}

func (x *scene) amend(c punctual.Change, delay time.Duration) error {
	as := make([]punctual.Amendment, len(x.ids))
	for i, id := range x.ids {
		as[i] = punctual.Amendment{Topic: "t", ID: id, Change: c, Delay: delay}
	}
	out, err := x.store.Amend(x.t.Context(), as)
	for _, a := range out {
		if err == nil {
			err = a.Err
		}
	}
	return err
}

func (x *scene) push(of punctual.NewMessage, named bool) error {
	ms := newMessages(x.n, of)
	for i := range ms {
		if named {
			ms[i].ID = fmt.Sprint("m", i)
		}
	}
	rs, err := x.store.Push(x.t.Context(), ms)
	for _, r := range rs {
		if err == nil && r.Status != punctual.PushStored {
			err = fmt.Errorf("%s: %s, %w", r.ID, r.Status, r.Err)
		}
	}
	return err
}

func (x *scene) claim(wait time.Duration) error {
	ds, err := x.store.Claim(x.t.Context(), punctual.Claim{Topics: []string{"t"}, Max: x.n, Wait: wait})
	if err != nil || len(ds) == 0 || wait == 0 && len(ds) != x.n {
		return fmt.Errorf("claimed %d of %d, %w", len(ds), x.n, err)
	}
	x.held = ds
	return x.settle(punctual.SettleExtend, time.Hour) // fails unless the leases are there
}

// verbOf is a call that is made through two servers.
type verbOf struct {
	name, path string
	delay      time.Duration
	leased     bool
	empty      bool
	do         func(x *scene) error
}

func callsOf() []verbOf {
	settle := func(v punctual.Verb, delay time.Duration) verbOf {
		return verbOf{name: v.String(), path: wire.PathSettle, leased: true, do: func(x *scene) error { return x.settle(v, delay) }}
	}
	amend := func(c punctual.Change, delay time.Duration) verbOf {
		return verbOf{name: c.String(), path: wire.PathAmend, delay: time.Hour, do: func(x *scene) error { return x.amend(c, delay) }}
	}
	return []verbOf{
		{name: "push", path: wire.PathPush, empty: true, do: func(x *scene) error {
			return x.push(punctual.NewMessage{IfExists: punctual.IfExistsFail, Delay: time.Hour}, true)
		}},
		{name: "push without IDs", path: wire.PathPush, empty: true, do: func(x *scene) error { return x.push(punctual.NewMessage{Delay: time.Hour}, false) }},
		{name: "claim", path: wire.PathClaim, do: func(x *scene) error { return x.claim(0) }},
		{name: "claim that waits", path: wire.PathClaim, do: func(x *scene) error { return x.claim(20 * time.Second) }},
		settle(punctual.SettleAck, 0), settle(punctual.SettleRetry, time.Hour), settle(punctual.SettleSnooze, time.Hour),
		settle(punctual.SettleDiscard, 0), settle(punctual.SettleRelease, 0), settle(punctual.SettleExtend, 2*time.Hour),
		amend(punctual.ChangeCancel, 0), amend(punctual.ChangeReschedule, 2*time.Hour),
		{name: "requeue", path: wire.PathAmend, leased: true, do: func(x *scene) error { return x.amend(punctual.ChangeRequeue, time.Hour) }},
	}
}

// P3, P5, P7, P13: when a server ends after it has carried a call out and before it answers, the
// call is sent to the other server, and is carried out once.
func TestSlowServerGoneBetweenDoingAndAnswering(t *testing.T) {
	t.Parallel()
	single := "redis://" + redisrig.Start(t).Addr
	cluster := "redis+cluster://" + strings.Join(redisrig.StartCluster(t, 3, 0).Addrs(), ",")
	for name, x := range map[string]shared{
		"one partition":  {url: single, partitions: 1},
		"partitions":     {url: single, partitions: 4},
		"on one cluster": {url: cluster, partitions: 4},
	} {
		for _, n := range []int{1, 40, 700} {
			for _, v := range callsOf() {
				if n == 700 && strings.HasPrefix(v.name, "claim") {
					continue // one claim may return fewer messages than that
				}
				t.Run(fmt.Sprint(name, "/", v.name, " of ", n), func(t *testing.T) {
					x := x
					x.t = t
					x.below = x.open()
					one, other := newDying(t, x.open()), newDying(t, x.open())
					sc := &scene{t: t, below: x.below, n: n, store: connect(t, &remotestore.Options{}, one.url, other.url)}
					if !v.empty {
						sc.fill(v.delay, v.leased)
					}
					if v.name == "requeue" {
						sc.store = x.below
						if err := sc.settle(punctual.SettleDiscard, 0); err != nil {
							t.Fatal(err)
						}
						sc.store = connect(t, nil, one.url, other.url)
					}
					before, after := x.all(), ""
					died := make(chan struct{})
					one.dieAfter(v.path, func() {
						after = x.all()
						close(died)
					})
					var left string
					if err := v.do(sc); err != nil {
						t.Errorf("P13: %v", err)
					}
					one.wantDied()
					<-died
					if after == before {
						t.Fatal("the call has changed nothing: this shows nothing")
					}
					if left = x.all(); left != after && !strings.HasPrefix(v.name, "claim") {
						t.Errorf("P13: behind the copy there is\n%.2000s\nthe first had left\n%.2000s", left, after)
					}
					if strings.HasPrefix(v.name, "claim") && strings.Count(left, "leased") != strings.Count(after, "leased") {
						t.Errorf("P3: behind the copy there is\n%.2000s\nthe first had left\n%.2000s", left, after)
					}
				})
			}
		}
	}
}
