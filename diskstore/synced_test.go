package diskstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/failstop"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/storekit"
)

// question is a call whose answer depends on what another call has changed.
type question struct {
	name string
	// prepare makes what there is before the change, and makes it durable.
	prepare func(t *testing.T, s *Store)
	// change makes the change, whose fsync is held.
	change func(ctx context.Context, s *Store) error
	// ask asks, and returns the answer in words.
	ask func(ctx context.Context, s *Store) (string, error)
	// read tells that ask changes nothing, so that its errors are definite.
	read bool
	// again asks the store that is opened after the power cut; nil stands for ask.
	again func(ctx context.Context, s *Store) (string, error)
}

var onePush = []punctual.NewMessage{{Topic: "o", ID: "a", Body: []byte("new"), Delay: time.Hour}}

// pushed returns a question that pushes a again.
func pushed(on punctual.IfExists) func(context.Context, *Store) (string, error) {
	return func(ctx context.Context, s *Store) (string, error) {
		rs, err := s.Push(ctx, []punctual.NewMessage{{Topic: "o", ID: "a", Delay: time.Hour, IfExists: on}})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%v %v %v", rs[0].Status, rs[0].Existing, errors.Is(rs[0].Err, punctual.ErrDuplicate)), nil
	}
}

func changePush(ctx context.Context, s *Store) error {
	_, err := s.Push(ctx, onePush)
	return err
}

func changeConfigure(p punctual.SettingsPatch) func(context.Context, *Store) error {
	return func(ctx context.Context, s *Store) error {
		_, err := s.Configure(ctx, "o", p)
		return err
	}
}

func amended(c punctual.Change) func(context.Context, *Store) (string, error) {
	return func(ctx context.Context, s *Store) (string, error) {
		out, err := s.Amend(ctx, []punctual.Amendment{{Change: c, Topic: "o", ID: "a"}})
		if err != nil {
			return "", err
		}
		return storekit.ErrorCode(out[0].Err), nil
	}
}

func changeAmend(c punctual.Change) func(context.Context, *Store) error {
	return func(ctx context.Context, s *Store) error {
		_, err := amended(c)(ctx, s)
		return err
	}
}

// settledAs returns a question that settles the lease on a.
func settledAs(v punctual.Verb) func(context.Context, *Store) (string, error) {
	return func(ctx context.Context, s *Store) (string, error) {
		errs, err := s.Settle(ctx, []punctual.Settlement{{Topic: "o", ID: "a", Token: 1, Verb: v}})
		if err != nil {
			return "", err
		}
		return storekit.ErrorCode(errs[0]), nil
	}
}

// followedBy returns a question that acks a with a follow-up b.
func followedBy(m punctual.NewMessage) func(context.Context, *Store) (string, error) {
	return func(ctx context.Context, s *Store) (string, error) {
		m.Topic, m.ID, m.Delay = "p", "b", time.Hour
		errs, err := s.Settle(ctx, []punctual.Settlement{{Topic: "o", ID: "a", Token: 1, Verb: punctual.SettleAck, Then: []punctual.NewMessage{m}}})
		if err != nil {
			return "", err
		}
		return storekit.ErrorCode(errs[0]), nil
	}
}

func changeFollow(ctx context.Context, s *Store) error {
	_, err := followedBy(punctual.NewMessage{})(ctx, s)
	return err
}

// pushB is a change that takes the ID of a follow-up.
func pushB(ctx context.Context, s *Store) error {
	_, err := s.Push(ctx, []punctual.NewMessage{{Topic: "p", ID: "b", Delay: time.Hour}})
	return err
}

func changeSettle(v punctual.Verb) func(context.Context, *Store) error {
	return func(ctx context.Context, s *Store) error {
		_, err := settledAs(v)(ctx, s)
		return err
	}
}

func changeReplace(ctx context.Context, s *Store) error {
	_, err := s.Push(ctx, []punctual.NewMessage{{Topic: "o", ID: "a", Body: []byte("new"), Delay: time.Hour, IfExists: punctual.IfExistsReplace}})
	return err
}

// got asks for the message itself.
func got(ctx context.Context, s *Store) (string, error) {
	i, err := s.Get(ctx, "o", "a")
	if errors.Is(err, punctual.ErrNotFound) {
		return "none", nil
	}
	return fmt.Sprintf("%v %q %v", i.State, i.Body, i.CancelRequested), err
}

func prepareNone(*testing.T, *Store) {}

func prepareMessage(t *testing.T, s *Store) { push(t, s, onePush...) }

// prepareLease makes a lease on a, with token 1, that survives the power cut.
func prepareLease(t *testing.T, s *Store) {
	push(t, s, punctual.NewMessage{Topic: "o", ID: "a", Body: []byte("old")})
	if ds := claim(t, s, "o", 1); len(ds) != 1 || ds[0].Token != 1 {
		t.Fatalf("claimed %+v", ds)
	}
	if err := errors.Join(s.claims.Sync(), failstop.SyncDir(s.opt.fs, s.dir)); err != nil {
		t.Fatal(err)
	}
}

// prepareTelling makes a lease on a, whose topic tells of acks.
func prepareTelling(t *testing.T, s *Store) {
	prepareLease(t, s)
	if err := changeConfigure(punctual.SettingsPatch{Emit: ptr(punctual.EventAcked)})(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func prepareDead(t *testing.T, s *Store) {
	prepareLease(t, s)
	if _, err := settledAs(punctual.SettleDiscard)(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func prepareRemembering(t *testing.T, s *Store) {
	if _, err := s.Configure(t.Context(), "o", punctual.SettingsPatch{DedupeWindow: ptr(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	prepareMessage(t, s)
}

// prepareKeeping makes a in a topic that keeps finished records.
func prepareKeeping(t *testing.T, s *Store) {
	configure(t, s, "o", punctual.SettingsPatch{FinishedRetention: ptr(time.Hour)})
	prepareMessage(t, s)
}

func ptr[T any](v T) *T { return &v }

// questions returns questions for the answers that calls give without changing anything, and for
// reads.
func questions() []question {
	counts := func(st punctual.TopicStats) string {
		return fmt.Sprint(st.Topic, st.Scheduled, st.Ready, st.Leased, st.Dead)
	}
	return []question{
		{name: "push, duplicate", prepare: prepareNone, change: changePush, ask: pushed(punctual.IfExistsKeep)},
		{name: "push, ErrDuplicate", prepare: prepareNone, change: changePush, ask: pushed(punctual.IfExistsFail)},
		{
			name: "push, duplicate of a remembered ID", prepare: prepareRemembering,
			change: changeAmend(punctual.ChangeCancel), ask: pushed(punctual.IfExistsKeep),
		},
		{name: "push, duplicate of a dead one", prepare: prepareLease, change: changeSettle(punctual.SettleDiscard), ask: pushed(punctual.IfExistsKeep)},
		{
			name: "push, ErrPaused", prepare: prepareMessage, change: changeConfigure(punctual.SettingsPatch{PushPaused: ptr(true)}),
			ask: func(ctx context.Context, s *Store) (string, error) {
				rs, err := s.Push(ctx, []punctual.NewMessage{{Topic: "o", ID: "b"}})
				if err != nil {
					return "", err
				}
				return storekit.ErrorCode(rs[0].Err), nil
			},
		},
		{name: "cancel, not found", prepare: prepareMessage, change: changeAmend(punctual.ChangeCancel), ask: amended(punctual.ChangeCancel)},
		{name: "reschedule, not found", prepare: prepareMessage, change: changeAmend(punctual.ChangeCancel), ask: amended(punctual.ChangeReschedule)},
		{name: "cancel, not found because dead", prepare: prepareLease, change: changeSettle(punctual.SettleDiscard), ask: amended(punctual.ChangeCancel)},
		{name: "requeue, not found", prepare: prepareMessage, change: changeAmend(punctual.ChangeCancel), ask: amended(punctual.ChangeRequeue)},
		{name: "requeue, not dead", prepare: prepareDead, change: changeAmend(punctual.ChangeRequeue), ask: amended(punctual.ChangeRequeue)},
		{name: "ack, lease lost by replacing", prepare: prepareLease, change: changeReplace, ask: settledAs(punctual.SettleAck), again: got},
		{name: "retry, lease lost by replacing", prepare: prepareLease, change: changeReplace, ask: settledAs(punctual.SettleRetry), again: got},
		{name: "extend, cancelled", prepare: prepareLease, change: changeAmend(punctual.ChangeCancel), ask: settledAs(punctual.SettleExtend)},
		{name: "ack, lease lost by discard", prepare: prepareLease, change: changeSettle(punctual.SettleDiscard), ask: settledAs(punctual.SettleAck), again: got},
		{
			name: "deletion of an acked message", prepare: prepareLease,
			change: func(ctx context.Context, s *Store) error {
				return s.writer.Do(ctx, func(tx *writer.Tx) error { // acks with the write lock held, so that maintenance does not delete first
					_, err := settledAs(punctual.SettleAck)(ctx, s)
					tx.DeleteAcked()
					return err
				})
			},
			ask:   func(ctx context.Context, s *Store) (string, error) { return "", s.writer.Barrier(ctx) },
			again: got, read: true,
		},
		{
			name: "ack with a follow-up, ErrDuplicate", prepare: prepareLease, change: pushB,
			ask: followedBy(punctual.NewMessage{IfExists: punctual.IfExistsFail}),
		},
		{
			name: "ack with a follow-up, ErrChanged",
			prepare: func(t *testing.T, s *Store) {
				prepareLease(t, s)
				if err := pushB(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			},
			change: func(ctx context.Context, s *Store) error {
				_, err := s.Amend(ctx, []punctual.Amendment{{Change: punctual.ChangeReschedule, Topic: "p", ID: "b", Delay: 2 * time.Hour}})
				return err
			},
			ask: followedBy(punctual.NewMessage{IfExists: punctual.IfExistsReplace, IfDue: testStart.Add(time.Hour)}),
		},
		{name: "ack, lease lost by an ack with a follow-up", prepare: prepareLease, change: changeFollow, ask: settledAs(punctual.SettleAck), again: got},
		{name: "get of a message acked with a follow-up", prepare: prepareLease, change: changeFollow, ask: got, read: true},
		{name: "get of a message whose ack is told of", prepare: prepareTelling, change: changeSettle(punctual.SettleAck), ask: got, read: true},
		{
			name: "list of events", prepare: prepareTelling, change: changeSettle(punctual.SettleAck), read: true,
			ask: func(ctx context.Context, s *Store) (string, error) {
				page, err := s.List(ctx, punctual.ListQuery{Topic: "o@events", State: punctual.StateReady})
				return fmt.Sprint(len(page.Messages)), err
			},
		},
		{name: "get of a follow-up", prepare: prepareLease, change: changeFollow, read: true, ask: func(ctx context.Context, s *Store) (string, error) {
			i, err := s.Get(ctx, "p", "b")
			return i.State.String(), err
		}},
		{name: "topic names", prepare: prepareLease, change: changeFollow, read: true, ask: func(ctx context.Context, s *Store) (string, error) {
			names, err := s.TopicNames(ctx, storekit.NameQuery{})
			return fmt.Sprint(names), err
		}},
		{name: "finished", prepare: prepareKeeping, change: changeAmend(punctual.ChangeCancel), read: true, ask: func(ctx context.Context, s *Store) (string, error) {
			f, err := s.Finished(ctx, "o", "a")
			return string(f.Outcome), err
		}},
		{name: "list of finished", prepare: prepareKeeping, change: changeAmend(punctual.ChangeCancel), read: true, ask: func(ctx context.Context, s *Store) (string, error) {
			page, err := s.ListFinished(ctx, punctual.FinishedQuery{Topic: "o"})
			return fmt.Sprint(len(page.Records)), err
		}},
		{name: "get", prepare: prepareNone, change: changePush, ask: got, read: true},
		{name: "get, not found", prepare: prepareMessage, change: changeAmend(punctual.ChangeCancel), ask: got, read: true},
		{name: "list", prepare: prepareNone, change: changePush, read: true, ask: func(ctx context.Context, s *Store) (string, error) {
			page, err := s.List(ctx, punctual.ListQuery{Topic: "o", State: punctual.StateScheduled})
			return fmt.Sprint(len(page.Messages)), err
		}},
		{name: "stats", prepare: prepareMessage, change: changeAmend(punctual.ChangeCancel), read: true, ask: func(ctx context.Context, s *Store) (string, error) {
			st, err := s.Stats(ctx, "o")
			return counts(st), err
		}},
		{name: "topics", prepare: prepareNone, change: changePush, read: true, ask: func(ctx context.Context, s *Store) (string, error) {
			ts, err := s.Topics(ctx)
			return fmt.Sprint(len(ts)), err
		}},
		{name: "forecast", prepare: prepareNone, change: changePush, read: true, ask: func(ctx context.Context, s *Store) (string, error) {
			f, err := s.Forecast(ctx, punctual.ForecastQuery{Topic: "o", Step: time.Hour, Buckets: 2})
			return fmt.Sprint(f.Counts), err
		}},
		{
			name: "settings", prepare: prepareMessage, change: changeConfigure(punctual.SettingsPatch{MaxAttempts: ptr(7)}), read: true,
			ask: func(ctx context.Context, s *Store) (string, error) {
				set, err := s.Settings(ctx, "o")
				return fmt.Sprint(set.MaxAttempts), err
			},
		},
		{name: "check", prepare: prepareNone, change: changePush, read: true, ask: func(ctx context.Context, s *Store) (string, error) {
			r, err := s.Check(ctx, nil)
			return fmt.Sprint(r.Live, r.Problems), err
		}},
		{
			name: "purge of nothing", prepare: prepareMessage, change: changeAmend(punctual.ChangeCancel),
			ask: func(ctx context.Context, s *Store) (string, error) {
				n, err := s.Purge(ctx, punctual.PurgeQuery{Topic: "o", State: punctual.StateScheduled})
				return fmt.Sprint(n), err
			},
			read: true, // because a purge that has removed nothing before its error has only read
		},
		{
			name: "delete topic, not found", prepare: prepareMessage,
			change: func(ctx context.Context, s *Store) error {
				_, err := s.DeleteTopic(ctx, "o")
				return err
			},
			ask: func(ctx context.Context, s *Store) (string, error) {
				_, err := s.DeleteTopic(ctx, "o")
				if errors.Is(err, punctual.ErrNotFound) {
					return "none", nil
				}
				return "", err
			},
			again: func(ctx context.Context, s *Store) (string, error) {
				ts, err := s.Topics(ctx)
				return fmt.Sprint(len(ts)), err
			},
		},
		{
			name: "delete topic, refused because of its follow-ups", prepare: prepareMessage,
			change: func(ctx context.Context, s *Store) error {
				_, err := s.Push(ctx, []punctual.NewMessage{{Topic: "o@out", ID: "f"}})
				return err
			},
			ask: func(ctx context.Context, s *Store) (string, error) {
				_, err := s.DeleteTopic(ctx, "o")
				if errors.Is(err, punctual.ErrInvalid) {
					return "refused", nil
				}
				return "", err
			},
			again: func(ctx context.Context, s *Store) (string, error) {
				ts, err := s.Topics(ctx)
				return fmt.Sprint(len(ts)), err
			},
		},
	}
}

// held is a store with a change whose fsync is held, and whose caller has given up.
type held struct {
	*rig
	s       *Store
	clock   *storekit.ManualClock
	release func()
}

// hold opens a store, prepares it, and makes the change, whose fsync does not end before release is
// called.
func (q *question) hold(t *testing.T) *held {
	h := &held{rig: newRig(t), clock: storekit.NewManualClock(testStart)}
	h.opt.CommitTimeout, h.opt.Clock = waitLimit, h.clock
	var err error
	if h.s, err = Open("store", &h.opt); err != nil {
		t.Fatal(err)
	}
	q.prepare(t, h.s)
	gate, begun := make(chan struct{}), make(chan struct{}, 100)
	h.release = func() { close(gate) }
	h.faults.hang(func(op fsOp) chan struct{} {
		if op.kind != "sync" || !isLog(op) {
			return nil
		}
		begun <- struct{}{}
		return gate
	})
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	var first error
	done := make(chan struct{})
	go func() {
		defer close(done)
		first = q.change(ctx, h.s)
	}()
	for !underWay("(*Tx).Commit(", "(*question).hold") && !isClosed(done) {
		runtime.Gosched()
	}
	if !isClosed(done) {
		<-begun
	}
	giveUp()
	<-done
	if !errors.Is(first, punctual.ErrIndeterminate) {
		t.Fatalf("P13: the first call ended with %v while its fsync was held, want ErrIndeterminate", first)
	}
	return h
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// asking asks in a goroutine of its own and returns when the answer waits for the disk, or is
// there.
func (h *held) asking(ctx context.Context, ask func(context.Context, *Store) (string, error)) (answer <-chan result, answered bool) {
	c := make(chan result, 1)
	go func() {
		text, err := ask(ctx, h.s)
		c <- result{text, err}
	}()
	for giveUp := time.Now().Add(waitLimit); time.Now().Before(giveUp); runtime.Gosched() {
		if h.s.writer.Awaited(0) || len(c) > 0 {
			return c, len(c) > 0
		}
	}
	h.t.Fatal("P10: the question neither waits for the disk nor is answered")
	return nil, false
}

type result struct {
	text string
	err  error
}

// after returns the answer of a store that is opened on what a power cut leaves: all that was
// synced, nothing else.
func (h *held) after(ask func(context.Context, *Store) (string, error)) string {
	h.t.Helper()
	mem := h.mem.CrashClone(vfs.CrashCloneCfg{RNG: rand.New(rand.NewPCG(1, 1))})
	s, err := Open("store", &Options{fs: hookFS{mem, func(fsOp) error { return nil }}, Logger: quiet, Clock: h.clock})
	if err != nil {
		h.t.Fatal(err)
	}
	defer closeStore(h.t, s)
	text, err := ask(h.t.Context(), s)
	if err != nil && !errors.Is(err, punctual.ErrNotFound) {
		h.t.Errorf("after the power cut: %v", err)
	}
	return text
}

// TestAnswersRestOnWhatIsDurable holds the fsync of a change and asks about the change. There is no
// answer before the fsync is done, because a power cut would make it untrue. The answer that comes
// then is still true after a power cut.
func TestAnswersRestOnWhatIsDurable(t *testing.T) {
	for _, q := range questions() {
		t.Run(q.name, func(t *testing.T) {
			again := q.ask
			if q.again != nil {
				again = q.again
			}
			h := q.hold(t)
			defer closeStore(t, h.s)
			undone := h.after(again)
			answer, answered := h.asking(t.Context(), q.ask)
			if answered {
				t.Errorf("P13: answered %+v before what it says is durable; after a power cut it is %q", <-answer, undone)
			}
			h.release()
			if answered {
				return
			}
			got := <-answer
			if got.err != nil {
				t.Fatalf("the answer is an error: %v", got.err)
			}
			done := h.after(again)
			if q.again == nil && done != got.text {
				t.Errorf("P13: answered %q, and after a power cut it is %q", got.text, done)
			}
			if done == undone {
				t.Errorf("the change makes no difference to the answer %q, so this question shows nothing", done)
			}
		})
	}
}

// TestQuestionsThatCannotBeAnswered: a caller gives up, or its store fails, while the answer waits
// for the fsync. The error of a read is definite then. That of any other call is not, because the
// change that it found may or may not survive.
func TestQuestionsThatCannotBeAnswered(t *testing.T) { alone(t, questionsThatCannotBeAnswered) }

func questionsThatCannotBeAnswered(t *testing.T) {
	for _, q := range questions() {
		h := q.hold(t)
		ctx, giveUp := context.WithCancel(t.Context())
		answer, _ := h.asking(ctx, q.ask)
		giveUp()
		if got := <-answer; !errors.Is(got.err, context.Canceled) || punctual.Definite(got.err) != q.read {
			t.Errorf("P13: %s, given up: %v; want the context's error, definite %v", q.name, got.err, q.read)
		}
		h.release()
		closeStore(t, h.s)

		h = q.hold(t)
		answer, _ = h.asking(t.Context(), q.ask)
		h.s.state.Fail(errIO)
		if got := <-answer; !errors.Is(got.err, punctual.ErrStoreFailed) || punctual.Definite(got.err) != q.read {
			t.Errorf("P13: %s, when the store fails: %v; want ErrStoreFailed, definite %v", q.name, got.err, q.read)
		}
		h.release()
		if err := h.s.Close(); !errors.Is(err, punctual.ErrStoreFailed) {
			t.Errorf("%s: close: %v, want ErrStoreFailed", q.name, err)
		}
	}
}

// TestTokensWaitForTheirReservation: claims wait for no fsync, so they use no token of a block
// whose reservation is not durable. Otherwise the same tokens would be given out again after a
// power cut (P4).
func TestTokensWaitForTheirReservation(t *testing.T) {
	const left, more = 3, 4
	var limit int64
	q := question{
		prepare: func(t *testing.T, s *Store) {
			push(t, s, unnamed(left+more)...)
			limit = s.index.Stats().TokenLimit
			s.index.StartTokens(limit-left, limit)
		},
		change: changePush, // its transaction reserves the next block of tokens
	}
	h := q.hold(t)
	defer closeStore(t, h.s)
	ds := claim(t, h.s, "o", left+more)
	for _, d := range ds {
		if d.Token >= limit {
			t.Errorf("P4 fencing: token %d was given out while those from %d on were not reserved durably", d.Token, limit)
		}
	}
	if len(ds) != left {
		t.Errorf("%d messages were claimed with %d tokens left", len(ds), left)
	}
	answer, _ := h.asking(t.Context(), got)
	h.release()
	<-answer
	if ds := claim(t, h.s, "o", more); len(ds) != more || ds[0].Token != limit {
		t.Errorf("with the reservation durable %d messages came, want %d, the first with token %d: %+v", len(ds), more, limit, ds)
	}
}

func unnamed(n int) (ms []punctual.NewMessage) {
	for range n {
		ms = append(ms, punctual.NewMessage{Topic: "o"})
	}
	return ms
}
