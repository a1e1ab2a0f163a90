//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storetest/ledger"
)

// Each client works at random over a network that loses, refuses and delays, while the server is
// killed and started again. The ledger judges what the client was told: that nothing is early or
// lost, that what was settled does not come again, and that no handler begins under a lease that is
// over.
func TestSlowClientsLedger(t *testing.T) {
	t.Parallel() // it waits for processes
	forEachClient(t, func(t *testing.T, command []string) {
		c := newClientRun(t, command)
		seed := ledger.TortureSeed(t)
		rng := rand.New(rand.NewPCG(seed, 0))
		var faults sync.Mutex // guards rng from here on
		c.network.random = func() string {
			faults.Lock()
			defer faults.Unlock()
			switch n := rng.IntN(100); {
			case n < 3:
				return "lose"
			case n < 5:
				return "refuse"
			case n < 6:
				return "502"
			}
			return ""
		}
		var lines []json.RawMessage
		c.onLine = func(raw json.RawMessage) { lines = append(lines, raw) }
		c.start()
		defer c.end()
		c.step(&scenarioStep{Open: &map[string]any{"record": true}})
		c.step(&scenarioStep{Work: &map[string]any{"lease": "2s", "topics": []any{
			map[string]any{"topic": "w0", "slots": 4}, map[string]any{"topic": "w1", "slots": 2, "async": true},
		}}})
		rounds := ledger.FromEnv(t, "PUNCTUAL_TORTURE_CYCLES", 3)
		var kills [][2]int64
		var answers []chan said
		for round := range rounds {
			for i := range 120 {
				faults.Lock()
				topic, id := fmt.Sprint("w", rng.IntN(2)), fmt.Sprint("m", rng.IntN(60))
				plan := []string{`{}`, `{}`, `{"once":"fail"}`, `{"1":{"end":"retry","delay":"100ms"}}`, `{"1":{"end":"snooze","delay":"50ms"}}`, `{"1":{"end":"discard"}}`, `{"sleep":0.3}`, `{"1":{"sleep":2.5}}`}[rng.IntN(8)]
				delay, cancels := fmt.Sprintf("%dms", rng.IntN(500)), rng.IntN(6) == 0
				faults.Unlock()
				do := map[string]any{"do": "call", "call": "push", "args": []any{topic, ""}, "options": map[string]any{
					"id": id, "delay": delay, "headers": map[string]any{"name": fmt.Sprintf("r%d-%d", round, i), "plan": plan},
				}}
				if cancels {
					do = map[string]any{"do": "call", "call": "cancel", "args": []any{topic, id}}
				}
				answers = append(answers, c.tell(do))
				if i%10 == 9 { // the client has to get to its work
					<-answers[len(answers)-1]
				}
			}
			from := time.Now().UnixMilli()
			c.kill()
			kills = append(kills, [2]int64{from, time.Now().UnixMilli()})
			c.serve()
		}
		c.until("work after the last kill", func() bool {
			a := <-c.tell(map[string]any{"do": "call", "call": "push", "args": []any{"w0", ""}, "options": map[string]any{"headers": map[string]any{"name": "last"}}})
			return a.Error == nil
		})
		<-c.tell(map[string]any{"do": "stop", "options": map[string]any{"timeout": 20}}) // the end of a handler may be late, which is no fault
		c.end()
		c.kill()
		l := judged(t, lines, kills)
		clock := &ledger.ShiftedClock{}
		s, err := diskstore.Open(c.shell.dir, &diskstore.Options{Logger: slog.New(slog.DiscardHandler), Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.Audit(t.Context(), s, 1<<20, clock), s.Close()); err != nil {
			t.Error(err)
		}
		for _, p := range l.Problems() {
			t.Error(p)
		}
		t.Logf("%v; faults %v", l, c.network.happened)
		if l.Deliveries < 50 || l.Acknowledged < 50 || c.network.count("lose") == 0 || c.network.count("refuse") == 0 {
			t.Errorf("this test shows nothing: %v; faults %v", l, c.network.happened)
		}
	})
}

// judged returns a ledger that has read what a runner told. A Recorder over a store that answers as
// the server had answered writes the lines, so that they are those of a store in Go.
func judged(t *testing.T, raw []json.RawMessage, kills [][2]int64) *ledger.Ledger {
	l := ledger.New(ledger.KeepsTransactions)
	l.Lossy, l.GivesBack, l.Grace = true, true, 50
	l.Expected = []string{"deadline", "canceled", "indeterminate", "unreachable", "overloaded", "closed"}
	for _, k := range kills {
		l.ServerKilled(k[0], k[1])
	}
	var at int64
	rec := ledger.NewRecorder(toldStore{}, 1, func() time.Time { return time.UnixMilli(at) }, l.Add)
	calls := make(map[int]*toldCall)
	for _, text := range raw {
		var line toldLine
		if err := json.Unmarshal(text, &line); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if line.At > 0 {
			at = max(at, line.At)
		}
		switch {
		case line.Line == "call":
			c := &toldCall{entered: make(chan struct{}), answer: make(chan *toldLine), done: make(chan struct{})}
			calls[line.K] = c
			go c.make(t, rec, &line)
			select {
			case <-c.entered:
			case <-c.done:
			}
		case line.Line == "answer":
			c := calls[line.K]
			delete(calls, line.K)
			select {
			case c.answer <- &line:
				<-c.done
			case <-c.done:
			}
		case line.Event == "begin" || line.Event == "end":
			until, err := time.Parse(time.RFC3339, line.Until)
			if err != nil {
				t.Fatal(err)
			}
			var token int64
			if _, err := fmt.Sscan(line.Token, &token); err != nil {
				t.Fatal(err)
			}
			l.Add(ledger.Line{
				Call: map[string]string{"begin": ledger.LineStart, "end": ledger.LineStop}[line.Event], N: ledger.FirstCall(1), At: at,
				Facts: []ledger.Fact{{Topic: line.Topic, ID: line.ID, Token: token, Attempt: line.Attempt, Until: until.UnixMilli(), Life: line.Life}},
			})
		}
	}
	for _, c := range calls { // nobody saw their answers
		close(c.answer)
		<-c.done
	}
	l.End(time.Now().UnixMilli())
	return l
}

// toldLine is a line for the ledger that a runner has told.
type toldLine struct {
	Line    string          `json:"line"`
	K       int             `json:"k"`
	Path    string          `json:"path"`
	Request json.RawMessage `json:"request"`
	Answer  json.RawMessage `json:"answer"`
	Error   *wire.Problem   `json:"error"`
	Doubt   bool            `json:"doubt"`
	At      int64           `json:"at"`

	Event   string `json:"event"`
	Topic   string `json:"topic"`
	ID      string `json:"id"`
	Token   string `json:"token"`
	Attempt int    `json:"attempt"`
	Until   string `json:"until"`
	Life    string `json:"life"`
}

// toldCall is a call of a client, made anew on a Recorder.
type toldCall struct {
	entered chan struct{}  // closed when the Recorder has written its line
	answer  chan *toldLine // closed when there is none
	done    chan struct{}
}

type toldKey struct{}

// take waits for the answer that the client got, which ends the goroutine if there was none.
func take(ctx context.Context) (answer *toldLine, err error) {
	c := ctx.Value(toldKey{}).(*toldCall)
	close(c.entered)
	answer, ok := <-c.answer
	if !ok {
		runtime.Goexit()
	}
	return answer, answer.Error.Err()
}

// make makes a call with what the client had asked for.
func (c *toldCall) make(t *testing.T, rec *ledger.Recorder, line *toldLine) {
	defer close(c.done)
	ctx := context.WithValue(context.Background(), toldKey{}, c)
	var err error
	switch line.Path {
	case wire.PathPush:
		var ms []punctual.NewMessage
		err = wire.DecodePush(line.Request, 10_000, func(p *wire.PushItem) error {
			m, err := p.Message()
			ms = append(ms, m)
			return err
		})
		if err == nil {
			_, _ = rec.Push(ctx, ms) // the ledger has the error
		}
	case wire.PathClaim:
		var r wire.ClaimRequest
		if err = wire.DecodeRequest(line.Request, &r); err == nil {
			_, _ = rec.Claim(ctx, r.Claim())
		}
	case wire.PathSettle:
		var ss []punctual.Settlement
		err = wire.DecodeSettle(line.Request, 10_000, func(i *wire.SettleItem) error {
			s, err := i.Settlement()
			ss = append(ss, s)
			return err
		})
		if err == nil {
			_, _ = rec.Settle(ctx, ss)
		}
	case wire.PathAmend:
		var as []punctual.Amendment
		err = wire.DecodeAmend(line.Request, 10_000, func(i *wire.AmendItem) error {
			a, err := i.Amendment()
			as = append(as, a)
			return err
		})
		if err == nil {
			_, _ = rec.Amend(ctx, as)
		}
	}
	if err != nil {
		t.Errorf("%s %s: %v", line.Path, line.Request, err)
	}
}

// toldStore is a store that answers as a client was answered.
type toldStore struct{}

func (toldStore) Push(ctx context.Context, _ []punctual.NewMessage) ([]punctual.PushResult, error) {
	a, err := take(ctx)
	if err != nil {
		return nil, err
	}
	return wire.DecodePushAnswer(wire.JSON, a.Answer)
}

func (toldStore) Claim(ctx context.Context, _ punctual.Claim) ([]punctual.Delivery, error) {
	a, err := take(ctx)
	if err != nil || string(a.Answer) == "{}" {
		return nil, err
	}
	return wire.DecodeClaimAnswer(wire.JSON, a.Answer)
}

func (toldStore) Settle(ctx context.Context, _ []punctual.Settlement) ([]error, error) {
	a, err := take(ctx)
	if err != nil {
		return nil, err
	}
	errs, err := wire.DecodeSettleAnswer(wire.JSON, a.Answer)
	for i := range errs {
		if a.Doubt && errors.Is(errs[i], punctual.ErrLeaseLost) {
			errs[i] = fmt.Errorf("%w: %w", punctual.ErrIndeterminate, errs[i])
		}
	}
	return errs, err
}

func (toldStore) Amend(ctx context.Context, _ []punctual.Amendment) ([]punctual.Amended, error) {
	a, err := take(ctx)
	if err != nil {
		return nil, err
	}
	var answer wire.AmendAnswer
	if err := wire.DecodeAnswer(a.Answer, &answer); err != nil {
		return nil, err
	}
	out := make([]punctual.Amended, len(answer.Results))
	for i := range answer.Results {
		out[i] = answer.Results[i].Amended()
	}
	return out, nil
}

func (toldStore) Now(context.Context) (time.Time, error) { return time.Now(), nil }
func (toldStore) Close() error                           { return nil }
