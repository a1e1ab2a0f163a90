package importer

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
)

// scriptHook runs around each script that is sent.
type scriptHook struct{ around func(call func() error) error }

func (h *scriptHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *scriptHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		return h.around(func() error { return next(ctx, cmd) })
	}
}

func (h *scriptHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// task adds a task as asynq does.
func (r *rig) task(queue, id, typ, group string, due int64) {
	r.t.Helper()
	fields := []any{"msg", asynqBytes(map[protowire.Number]string{1: typ, 2: "body " + id, 3: id, 4: queue}), "state", "scheduled"}
	if group != "" {
		fields = append(fields, "group", group)
	}
	r.must(r.client.HSet(r.t.Context(), "asynq:{"+queue+"}:t:"+id, fields...).Err())
	r.zadd("asynq:{"+queue+"}:scheduled", id, float64(due))
}

// job adds the hash of a job as BullMQ does.
func (r *rig) job(queue, id, body string, due int64) {
	r.t.Helper()
	r.must(r.client.HSet(r.t.Context(), "{bull}:"+queue+":"+id, "name", "t", "data", body, "opts", `{"attempts":1}`, "timestamp", due*1000, "priority", 0).Err())
}

// asynqBytes is a task, from its fields.
func asynqBytes(fields map[protowire.Number]string) (b []byte) {
	for n, text := range fields {
		b = protowire.AppendTag(b, n, protowire.BytesType)
		b = protowire.AppendString(b, text)
	}
	return b
}

// good adds n messages to a system and returns their bodies. They have been due for a minute.
func (r *rig) good(k Kind, name string, n int) []string {
	r.t.Helper()
	due := r.now() - 60
	var out []string
	for i := range n {
		id := fmt.Sprintf("good-%d", i)
		body := "body " + id
		switch k {
		case ZSet:
			r.zadd(name, body, float64(due))
		case BeeDelayQueue:
			r.bee(beeOrder+name, name, id, body, due, 1)
		case Redisson:
			body = strconv.Quote(body)
			r.offer(name, r.pack("", fmt.Sprintf("%08d", i), body), due*1000)
		case Asynq:
			r.task(name, id, "t", "", due)
		case BullMQ:
			r.job(name, id, body, due)
			r.zadd("{bull}:"+name+":delayed", id, float64(due*1000*bullTick))
		case waiting:
			r.job(name, id, body, due)
			r.must(r.client.LPush(r.t.Context(), "{bull}:"+name+":wait", id).Err())
		case Celery:
			body = fmt.Sprintf(`[["%s"],{},{"chord":null}]`, id)
			r.must(r.client.LPush(r.t.Context(), name, celeryText(id, body, due)).Err())
		case Postgres, marked:
			r.exec("insert into jobs (id, run_at, payload) values ($1, to_timestamp($2), $3)", id, due, body)
		case MySQL, myMarked:
			r.mexec("insert into jobs (id, run_at, payload) values (?, from_unixtime(?), ?)", id, due, body)
		case River:
			body = strconv.Quote(body)
			r.exec("insert into river_job (args, kind, max_attempts, queue, state, scheduled_at) values ($1, 'k', 25, $2, 'scheduled', to_timestamp($3))", body, name, due)
		case RabbitMQ:
			r.publish(name, amqp.Publishing{Body: []byte(body), Headers: amqp.Table{"x-delay": int32(-60_000)}})
		}
		out = append(out, body)
	}
	return out
}

// celeryText is a task as Celery writes it.
func celeryText(id, body string, eta int64) string {
	return fmt.Sprintf(`{"body":"%s","content-type":"application/json","headers":{"task":"t","id":"%s","eta":"%s"},"properties":{"body_encoding":"base64"}}`,
		base64.StdEncoding.EncodeToString([]byte(body)), id, seconds(eta).UTC().Format(time.RFC3339))
}

// options returns options that import what good adds.
func options(k Kind) Options {
	o := Options{Kind: k, Names: []string{"jobs"}, Topic: "t"}
	if k == ZSet {
		o.Unit = time.Second
	}
	if k == Postgres || k == marked || k == MySQL || k == myMarked {
		o.Columns = Columns{ID: []string{"id"}, Due: "run_at", Body: "payload"}
	}
	switch k {
	case BullMQ:
		o.Prefix, o.Parts = "{bull}", []string{"delayed"}
	case waiting:
		o.Kind, o.Prefix, o.Parts = BullMQ, "{bull}", []string{"wait"}
	case Celery:
		o.Parts = []string{"0"}
	}
	if k == marked {
		o.Kind, o.Where, o.Mark = Postgres, "state = 'pending'", "state=moved"
		o.Columns.ID = []string{"tenant", "id"}
	}
	if k == myMarked {
		o.Kind, o.Where, o.Mark = MySQL, "state = 'pending'", "state=moved"
		o.Columns.ID = []string{"tenant", "id"}
	}
	return o
}

// marked is a table of a program's own whose rows are marked, where others are deleted.
const marked Kind = "postgres, marked"

const myMarked Kind = "mysql, marked"

// waiting are jobs of BullMQ that wait in its list, where others wait in the set of those that are
// delayed.
const waiting Kind = "bullmq, waiting"

// kinds returns the kinds in Redis, returning all to which messages can go back, allKinds also
// RabbitMQ.
func kinds() []Kind     { return []Kind{ZSet, BeeDelayQueue, Redisson, Asynq, BullMQ, waiting, Celery} }
func returning() []Kind { return append(kinds(), Postgres, River, marked, MySQL, myMarked) }
func allKinds() []Kind  { return append(returning(), RabbitMQ) }

var errKilled = errors.New("killed")

// killAt ends a run behind the nth step of this name, and does nothing more there.
func killAt(step string, nth int) func(string) error {
	return func(s string) error {
		if s != step {
			return nil
		}
		if nth--; nth == 0 {
			return errKilled
		}
		return nil
	}
}

// killed runs an import that is killed behind the nth step of this name.
func (r *rig) killed(o Options, step string, nth int) {
	r.t.Helper()
	_, err := r.stepping(killAt(step, nth)).tryMove(o)
	if !errors.Is(err, errKilled) {
		r.t.Fatalf("this test shows nothing: the run was not killed at step %d %s: %v", nth, step, err)
	}
}

// stepping returns the rig with importers that call step behind each step of a run.
func (r *rig) stepping(step func(string) error) *rig {
	with := *r
	with.step = step
	return &with
}

// steps is an origin that calls step behind each step. The push is over when finish is called.
type steps struct {
	origin
	step func(string) error
}

func (o steps) take(ctx context.Context, s *source, es []*entry) ([]int64, error) {
	answers, err := o.origin.take(ctx, s, es)
	if err == nil && (len(answers) != 1 || answers[0] != lockHeld) {
		err = o.step("taken")
	}
	return answers, err
}

func (o steps) adopt(ctx context.Context, s *source, es []*entry, old []string) ([]int64, error) {
	answers, err := o.origin.adopt(ctx, s, es, old)
	if err == nil {
		err = o.step("adopted")
	}
	return answers, err
}

func (o steps) finish(ctx context.Context, s *source, es []*entry) error {
	if err := o.step("pushed"); err != nil {
		return err
	}
	if err := o.origin.finish(ctx, s, es); err != nil {
		return err
	}
	return o.step("finished")
}

func (o steps) putBack(ctx context.Context, s *source, es []*entry) ([]int64, error) {
	answers, err := o.origin.putBack(ctx, s, es)
	if err == nil {
		err = o.step("returned")
	}
	return answers, err
}

// A run that is killed between any two steps and begun again delivers each message exactly once. It
// does so also where what it had pushed was delivered and finished in between.
func TestKilledAtEachStep(t *testing.T) {
	// The number says at which step of this name the second run is killed: at that of the batch
	// which the first run had not begun. A first run that was killed behind its push has left a
	// batch that the second run pushes again, so the second push is that of the new batch. Nothing
	// is taken twice, and a first run that was killed behind its finish has left nothing to finish.
	second := map[string]int{"taken": 1, "pushed": 2, "finished": 1}
	for _, k := range allKinds() {
		for step, nth := range second {
			for _, meanwhile := range []bool{true, false} {
				t.Run(fmt.Sprint(k, " ", step, " ", meanwhile), func(t *testing.T) {
					r := newRig(t)
					want := r.good(k, "jobs", firstPage+5) // two batches
					o := options(k)
					for _, nth := range []int{1, nth} {
						r.killed(o, step, nth)
						if meanwhile {
							r.consume("t")
						}
					}
					s := r.move(o).Sets[0]
					if s.Remaining != 0 || s.StillStaged != 0 {
						t.Errorf("left in the source %d, in staging %d", s.Remaining, s.StillStaged)
					}
					r.consume("t")
					r.eachOnce(want)
				})
			}
		}
	}
}

// Messages keep IDs that others have here: of waiting messages, or of dead ones. Wherever the
// import is killed and begun again, each of both arrives once, or the one that was imported is back
// where it came from and reported.
func TestKilledWithIDsInUse(t *testing.T) {
	for _, k := range []Kind{Asynq, BullMQ, waiting, Celery, BeeDelayQueue, Postgres, River, ZSet, RabbitMQ} {
		for _, step := range []string{"", "taken", "adopted", "pushed", "finished"} {
			for _, dead := range []bool{false, true} {
				t.Run(fmt.Sprint(k, " ", step, " ", dead), func(t *testing.T) {
					r := newRig(t)
					want := r.good(k, "jobs", 3)
					o := options(k)
					id := "good-1"
					switch k {
					case River:
						id = "river-2"
					case ZSet:
						o.IDFrom, want[0] = "/no", `{"no":"good-1"}`
						r.must(r.client.Del(t.Context(), "jobs").Err())
						r.zadd("jobs", want[0], float64(r.now()-60))
						want = want[:1]
					case RabbitMQ:
						r.publish("jobs", amqp.Publishing{MessageId: id, Body: []byte("named"), Headers: amqp.Table{"x-delay": int32(-1)}})
						want = append(want, "named")
					}
					other := punctual.NewMessage{Topic: "t", ID: id, Body: []byte("other"), Due: seconds(r.now() - 99)}
					rs, err := r.store.Push(t.Context(), []punctual.NewMessage{other})
					if err != nil || rs[0].Status != punctual.PushStored {
						t.Fatalf("%+v, %v", rs, err)
					}
					if dead {
						ds, err := r.store.Claim(t.Context(), punctual.Claim{Topics: []string{"t"}, Max: 1})
						r.must(err)
						errs, err := r.store.Settle(t.Context(), []punctual.Settlement{{Topic: "t", ID: ds[0].ID, Token: ds[0].Token, Verb: punctual.SettleDiscard}})
						r.must(errors.Join(append(errs, err)...))
					} else {
						want = append(want, "other")
					}
					rep, err := r.stepping(killAt(step, 1)).tryMove(o)
					if err != nil {
						if !errors.Is(err, errKilled) {
							t.Fatal(err)
						}
						if step == "adopted" { // and the record has the other ID
							r.consume("t")
						}
						rep = r.move(o)
					}
					if err == nil && step != "" && (step != "adopted" || k == Asynq || k == BullMQ || k == waiting || k == Celery || k == ZSet || k == RabbitMQ) {
						t.Fatalf("this test shows nothing: the run was not killed")
					}
					s := rep.Sets[0]
					back := s.Rejected[Conflict]
					if s.StillStaged != 0 || s.Remaining != back {
						t.Errorf("%+v, want what was not stored back in the source", s)
					}
					if back == 0 && step != "finished" && len(s.Renamed) != 1 {
						t.Errorf("renamed %v, want one", s.Renamed)
					}
					for _, m := range r.messages("t") {
						if own := s.Renamed[m.ID]; own != "" && k == Asynq && m.Headers[asynqHeaderID] != own {
							t.Errorf("%s has the headers %v, want its own ID %s among them", m.ID, m.Headers, own)
						}
					}
					if back > 0 {
						at := slices.Index(want, "body good-1")
						if k == River {
							at = 1
						}
						want = slices.Delete(want, at, at+1)
					}
					r.consume("t")
					r.eachOnce(want)
				})
			}
		}
	}
}

// A run that goes on with what another one staged may be killed as well.
func TestKilledWhileResuming(t *testing.T) {
	for _, k := range allKinds() {
		for _, step := range []string{"adopted", "pushed", "finished"} {
			t.Run(fmt.Sprint(k, " ", step), func(t *testing.T) {
				r := newRig(t)
				want := r.good(k, "jobs", 5)
				o := options(k)
				for _, step := range []string{"taken", step} {
					r.killed(o, step, 1)
					r.consume("t")
				}
				r.move(o)
				r.consume("t")
				r.eachOnce(want)
			})
		}
	}
}

// A run that is killed when it has put back what the store refused has left nothing in staging.
func TestKilledWhileGivingBack(t *testing.T) {
	for _, k := range returning() {
		r := newRig(t)
		want := r.good(k, "jobs", 5)
		before := r.everything()
		r.withFaults(refuseAll)
		r.killed(options(k), "returned", 1)
		if got := r.everything(); got != before {
			t.Errorf("%s: the source held\n%s\nand now\n%s", k, before, got)
		}
		r.healed()
		r.move(options(k))
		r.consume("t")
		r.eachOnce(want)
	}
}

// refuseAll is a store without space.
func refuseAll(context.Context, []punctual.NewMessage, punctual.Store) ([]punctual.PushResult, error) {
	return nil, fmt.Errorf("the disk is full: %w", punctual.ErrNoSpace)
}

// isScript picks what runs a script.
func isScript(words []string) bool { return strings.HasPrefix(strings.ToLower(words[0]), "eval") }

// When the answer of a script is lost, the client sends it a second time; whichever script it is,
// each message is delivered once.
func TestLostAnswersOfTheSource(t *testing.T) {
	plays := map[string]func(r *rig, o Options){
		"a move": func(r *rig, o Options) { r.move(o) },
		"a run that goes on": func(r *rig, o Options) {
			r.killed(o, "taken", 1)
			r.move(o)
		},
		"a push that is refused": func(r *rig, o Options) {
			r.withFaults(refuseAll)
			if rep, err := r.tryMove(o); !errors.Is(err, punctual.ErrNoSpace) || rep.Sets[0].Returned != 5 {
				r.t.Errorf("%v, returned %d; want ErrNoSpace and 5", err, rep.Sets[0].Returned)
			}
			r.healed()
		},
	}
	for name, play := range plays {
		for _, k := range kinds() {
			t.Run(fmt.Sprint(k, " ", name), func(t *testing.T) {
				// lost plays once with the answer of the nth script lost, and returns how many
				// there were.
				lost := func(nth int) int {
					r := newRig(t)
					want := r.good(k, "jobs", 5)
					p := redisrig.StartProxy(t, shared)
					direct := r.client
					r.client = redis.NewClient(&redis.Options{Addr: p.Addr})
					sent := p.Count(isScript)
					if nth > 0 {
						p.Lose(1, redisrig.Nth(nth, isScript))
					}
					play(r, options(k))
					r.must(r.client.Close())
					r.client = direct
					r.move(options(k))
					r.consume("t")
					r.eachOnce(want)
					return sent.Seen()
				}
				lost(0) // from now on the server knows the scripts
				n := lost(0)
				if n < 2 {
					t.Fatalf("this test shows nothing: %d scripts were run", n)
				}
				for nth := 1; nth <= n; nth++ {
					if sent := lost(nth); sent != n+1 {
						t.Errorf("with one answer lost %d scripts were sent; want one more than %d", sent, n)
					}
				}
			})
		}
	}
}

// When the answer of the store is lost, the messages are pushed again under the same IDs.
func TestLostAnswersOfTheStore(t *testing.T) {
	for _, k := range allKinds() {
		r := newRig(t)
		want := r.good(k, "jobs", 5)
		pushes := 0
		r.withFaults(func(ctx context.Context, ms []punctual.NewMessage, real punctual.Store) ([]punctual.PushResult, error) {
			res, err := real.Push(ctx, ms)
			if pushes++; pushes == 1 {
				return nil, punctual.ErrIndeterminate
			}
			return res, err
		})
		r.move(options(k))
		r.consume("t")
		r.eachOnce(want)
		if pushes != 2 {
			t.Errorf("%s: %d pushes, want 2", k, pushes)
		}
	}
}

// Messages that the store certainly did not take go back exactly as they were.
func TestRefusedPushes(t *testing.T) {
	for _, k := range returning() {
		r := newRig(t)
		want := r.good(k, "jobs", 5)
		before := r.everything()
		r.withFaults(refuseAll)
		rep, err := r.tryMove(options(k))
		if !errors.Is(err, punctual.ErrNoSpace) || rep.Sets[0].Returned != 5 {
			t.Errorf("%s: %v, returned %d; want ErrNoSpace and 5", k, err, rep.Sets[0].Returned)
		}
		if got := r.everything(); got != before {
			t.Errorf("%s: the source held\n%s\nand now\n%s", k, before, got)
		}
		r.healed()
		r.move(options(k))
		r.consume("t")
		r.eachOnce(want)
	}
}

// One message that the store refuses goes back, and the others are moved.
func TestOneRefused(t *testing.T) {
	for _, k := range returning() {
		r := newRig(t)
		r.good(k, "jobs", 5)
		r.withFaults(func(ctx context.Context, ms []punctual.NewMessage, real punctual.Store) ([]punctual.PushResult, error) {
			res, err := real.Push(ctx, ms[1:])
			return append([]punctual.PushResult{{Err: fmt.Errorf("too much: %w", punctual.ErrTooLarge)}}, res...), err
		})
		s := r.move(options(k)).Sets[0]
		// The first page has room for all five, so they come in one batch; the refused one is not
		// tried again.
		if s.Stored != 4 || s.Rejected[Refused] != 1 || s.Remaining != 1 || s.StillStaged != 0 || s.Returned != 1 {
			t.Errorf("%s: %+v, want 4 stored and 1 refused and back", k, s)
		}
	}
}

// What another run took may have been pushed by it: a message that the store refuses now stays in
// staging, and is reported.
func TestOneRefusedWhileResuming(t *testing.T) {
	for _, k := range allKinds() {
		r := newRig(t)
		r.good(k, "jobs", 3)
		o := options(k)
		r.killed(o, "taken", 1)
		r.withFaults(func(_ context.Context, ms []punctual.NewMessage, _ punctual.Store) ([]punctual.PushResult, error) {
			out := make([]punctual.PushResult, len(ms))
			for i := range out {
				out[i].Err = fmt.Errorf("too much: %w", punctual.ErrTooLarge)
			}
			return out, nil
		})
		s := r.move(options(k)).Sets[0]
		if s.Rejected[Refused] != 3 || s.StillStaged != 3 || s.Remaining != 0 || s.Returned != 0 {
			t.Errorf("%s: %+v, want 3 refused and still staged", k, s)
		}
	}
}

// Messages that a push without an answer may have stored do not go back, also when a second push
// refuses one or all of them. Those that the second push does not settle stay in staging until a
// later run finds them in the store.
func TestRefusedAfterPushWithoutAnswer(t *testing.T) {
	tooMuch := fmt.Errorf("too much: %w", punctual.ErrTooLarge)
	second := map[string]struct {
		answer                                    func(ms []punctual.NewMessage) ([]punctual.PushResult, error)
		kind                                      error
		stored, rejected, stillStaged, unfinished int64
	}{
		"one is refused": {func(ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			out := make([]punctual.PushResult, len(ms))
			for i := range out {
				out[i].Status, out[i].Existing = punctual.PushDuplicate, punctual.StateReady
			}
			out[1] = punctual.PushResult{Err: tooMuch}
			return out, nil
		}, nil, 4, 1, 1, 0},
		"all are refused": {func([]punctual.NewMessage) ([]punctual.PushResult, error) {
			return nil, fmt.Errorf("the disk is full: %w", punctual.ErrNoSpace)
		}, punctual.ErrNoSpace, 0, 0, 5, 5},
	}
	for name, c := range second {
		for _, k := range allKinds() {
			t.Run(fmt.Sprint(k, " ", name), func(t *testing.T) {
				r := newRig(t)
				want := r.good(k, "jobs", 5)
				pushes := 0
				r.withFaults(func(ctx context.Context, ms []punctual.NewMessage, real punctual.Store) ([]punctual.PushResult, error) {
					if pushes++; pushes > 1 {
						return c.answer(ms)
					}
					if rs, err := real.Push(ctx, ms); err != nil || len(rs) != 5 {
						t.Errorf("this test shows nothing: the push without an answer stored %v, %v", rs, err)
					}
					return nil, punctual.ErrIndeterminate
				})
				rep, err := r.tryMove(options(k))
				if !errors.Is(err, c.kind) || pushes != 2 {
					t.Errorf("%d pushes, %v; want 2 and %v", pushes, err, c.kind)
				}
				s := rep.Sets[0]
				if s.Returned != 0 || s.Remaining != 0 || s.StillStaged != c.stillStaged || s.Duplicates != c.stored || s.Rejected[Refused] != c.rejected || rep.Unfinished != c.unfinished {
					t.Errorf("%+v, unfinished %d; want nothing back and %d staged", s, rep.Unfinished, c.stillStaged)
				}
				r.healed()
				r.consume("t")
				r.move(options(k))
				r.consume("t")
				r.eachOnce(want)
			})
		}
	}
}

// A message that a push without an answer has stored is a duplicate and no conflict, also if
// somebody has rescheduled it since.
func TestRescheduledAfterPushWithoutAnswer(t *testing.T) {
	for _, k := range allKinds() {
		r := newRig(t)
		r.good(k, "jobs", 3)
		pushes := 0
		r.withFaults(func(ctx context.Context, ms []punctual.NewMessage, real punctual.Store) ([]punctual.PushResult, error) {
			rs, err := real.Push(ctx, ms)
			if pushes++; pushes > 1 || err != nil {
				return rs, err
			}
			for _, m := range ms {
				out, err := real.Amend(ctx, []punctual.Amendment{{Change: punctual.ChangeReschedule, Topic: m.Topic, ID: m.ID, Delay: time.Hour}})
				if err != nil || out[0].Err != nil {
					t.Errorf("this test shows nothing: reschedule: %+v, %v", out, err)
				}
			}
			return nil, punctual.ErrIndeterminate
		})
		s := r.move(options(k)).Sets[0]
		if pushes != 2 || s.Duplicates != 3 || s.Rejected[Conflict] != 0 || s.StillStaged != 0 {
			t.Errorf("%s: %d pushes, %+v; want three known from the first push", k, pushes, s)
		}
	}
}

// Messages that cannot be put back stay in staging, and the run says so, whether the store has
// refused all or one.
func TestPutBackThatFails(t *testing.T) {
	putBack := redis.NewScript(putBackText).Hash()
	one := func(ctx context.Context, ms []punctual.NewMessage, real punctual.Store) ([]punctual.PushResult, error) {
		rs, err := real.Push(ctx, ms[1:])
		return append([]punctual.PushResult{{Err: fmt.Errorf("too much: %w", punctual.ErrTooLarge)}}, rs...), err
	}
	for staged, faults := range map[int64]func(context.Context, []punctual.NewMessage, punctual.Store) ([]punctual.PushResult, error){1: one, 5: refuseAll} {
		for _, k := range kinds() {
			r := newRig(t)
			want := r.good(k, "jobs", 5)
			r.withFaults(faults)
			p := redisrig.StartProxy(t, shared)
			direct := r.client
			r.client = redis.NewClient(&redis.Options{Addr: p.Addr})
			refused := p.Refuse("OOM command not allowed", func(words []string) bool {
				return len(words) > 1 && (words[1] == putBack || words[1] == putBackText)
			})
			rep, err := r.tryMove(options(k))
			refused.Happened()
			if err == nil || !strings.Contains(err.Error(), "stay in staging") || rep.Unfinished != staged || rep.Sets[0].StillStaged != staged {
				t.Errorf("%s: %v, unfinished %d, staged %d; want an error and %d in staging", k, err, rep.Unfinished, rep.Sets[0].StillStaged, staged)
			}
			r.must(r.client.Close())
			r.client = direct
			r.healed()
			r.move(options(k))
			r.consume("t")
			r.eachOnce(want)
		}
	}
}

// A task that has the ID of one that should go back keeps its place.
func TestPutBackOntoANewTask(t *testing.T) {
	r := newRig(t)
	r.task("jobs", "1", "t", "", r.now()+60)
	o := options(Asynq)
	r.withFaults(func(context.Context, []punctual.NewMessage, punctual.Store) ([]punctual.PushResult, error) {
		r.task("jobs", "1", "new", "", r.now()+90)
		return nil, fmt.Errorf("the disk is full: %w", punctual.ErrNoSpace)
	})
	rep, err := r.tryMove(o)
	if !errors.Is(err, punctual.ErrNoSpace) || rep.Unfinished != 1 || rep.Sets[0].Returned != 0 || rep.Sets[0].StillStaged != 1 {
		t.Errorf("%v, %+v; want the first one still staged", err, rep.Sets[0])
	}
	r.healed()
	r.move(o)
	if n := len(r.messages("t")); n != 2 {
		t.Errorf("%d messages, want both tasks (P1)", n)
	}
}

// A member that was moved to another time between being read and being taken is imported with the
// new time.
func TestScoreThatChanges(t *testing.T) {
	r := newRig(t)
	first := r.now() + 3600
	r.zadd("jobs", "a", float64(first))
	moved := sync.OnceFunc(func() { r.zadd("jobs", "a", float64(first+60)) })
	r.client.AddHook(&scriptHook{around: func(call func() error) error {
		moved()
		return call()
	}})
	r.move(options(ZSet))
	if ms := r.messages("t"); len(ms) != 1 || !ms[0].Due.Equal(seconds(first+60)) {
		t.Errorf("%d messages, want one at the later time", len(ms))
	}
}

// A run that goes on keeps the topic and the due time that the first run had decided, though its
// own flags say otherwise.
func TestResumeKeepsWhatWasDecided(t *testing.T) {
	r := newRig(t)
	now := r.now()
	r.zadd("jobs", "a", float64(now-60))
	o := options(ZSet)
	o.Spread = 100 * time.Hour
	r.killed(o, "taken", 1)
	o.Topic, o.Spread = "other", 0
	r.move(o)
	ms := r.messages("t")
	if len(ms) != 1 || len(r.messages("other")) != 0 {
		t.Fatalf("%d messages in the topic of the first run, want 1", len(ms))
	}
	if !ms[0].Due.After(seconds(now)) {
		t.Errorf("due %v, want the time over which the first run spread it", ms[0].Due)
	}
}

// A run that goes on stores what the first run had read in another way: under another unit, or with
// other topics.
func TestResumeWithOtherOptions(t *testing.T) {
	byType, inSeconds, inMillis := options(Asynq), options(ZSet), options(ZSet)
	byType.ByType, byType.Topic = true, ""
	inMillis.Unit = time.Millisecond
	for name, c := range map[string]struct {
		first, then Options
		typ         string // of the task
		unit        int64  // how many of the score's units are a second
		topic       string // that the first run decided on
	}{
		"by type, then one topic":           {first: byType, then: options(Asynq), typ: "typed", topic: "typed"},
		"one topic, then by type":           {first: options(Asynq), then: byType, typ: "typed", topic: "t"},
		"one topic, then by a type of none": {first: options(Asynq), then: byType, typ: "no topic", topic: "t"},
		"seconds, then milliseconds":        {first: inSeconds, then: inMillis, unit: 1, topic: "t"},
		"milliseconds, then seconds":        {first: inMillis, then: inSeconds, unit: 1000, topic: "t"},
	} {
		r := newRig(t)
		due := r.now() + 60
		if c.typ != "" {
			r.task("jobs", "1", c.typ, "", due)
		} else {
			r.zadd("jobs", "a", float64(due*c.unit))
		}
		r.killed(c.first, "taken", 1)
		rep := r.move(c.then)
		if ms := r.messages(c.topic); len(ms) != 1 || ms[0].Due.Unix() != due || rep.Rejects() != 0 {
			t.Errorf("%s: %d messages in %s, %v rejected; want the message that was staged, due when it was", name, len(ms), c.topic, rep.Sets[0].Rejected)
		}
	}
}

// A push of which nothing is known leaves the messages in staging for the next run.
func TestPushWithoutAnswer(t *testing.T) {
	r := newRig(t)
	want := r.good(ZSet, "jobs", 5)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.withFaults(func(ctx context.Context, ms []punctual.NewMessage, real punctual.Store) ([]punctual.PushResult, error) {
		if _, err := real.Push(ctx, ms[:2]); err != nil {
			return nil, err
		}
		cancel() // an interrupt does not end a batch
		return nil, punctual.ErrIndeterminate
	})
	im, err := newRedis(r.client, options(ZSet))
	r.must(err)
	rep, err := im.Move(ctx, r.store)
	if !errors.Is(err, punctual.ErrIndeterminate) || rep.Unfinished != 5 || rep.Sets[0].StillStaged != 5 {
		t.Errorf("%v, unfinished %d, staged %d; want ErrIndeterminate and 5", err, rep.Unfinished, rep.Sets[0].StillStaged)
	}
	r.healed()
	r.consume("t")
	s := r.move(options(ZSet)).Sets[0]
	if s.Stored != 3 || s.Duplicates != 2 || s.Staged != 5 {
		t.Errorf("%+v, want 3 stored and 2 duplicates", s)
	}
	r.consume("t")
	r.eachOnce(want)
}

func TestTwoImportsAtOnce(t *testing.T) {
	for _, k := range returning() {
		r := newRig(t)
		const n = 3*maxPage + 1 // so that each finds a page of its own
		want := r.good(k, "jobs", n)
		var wg sync.WaitGroup
		reports := make([]*Report, 3)
		var moved sync.WaitGroup // each has moved something before any goes on
		moved.Add(len(reports))
		for i := range reports {
			wg.Go(func() {
				first := sync.OnceFunc(moved.Done)
				defer first() // also if it fails
				o := options(k)
				im, err := r.stepping(func(step string) error {
					if step == "finished" {
						first()
						moved.Wait()
					}
					return nil
				}).apart(o)
				if err == nil {
					reports[i], err = im.Move(t.Context(), r.store)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		var stored int64
		for _, rep := range reports {
			stored += rep.Sets[0].Stored
			if rep.Sets[0].Stored == 0 {
				t.Errorf("this test shows nothing: %s: one of the imports had nothing to move", k)
			}
		}
		if stored != n {
			t.Errorf("%s: %d were stored, want %d", k, stored, n)
		}
		r.consume("t")
		r.eachOnce(want)
	}
}

// oldConsumer takes what is due as the other system's consumers do, and returns the bodies.
func (r *rig) oldConsumer(k Kind) []string {
	ctx, c := context.WithoutCancel(r.t.Context()), r.client
	now := strconv.FormatInt(r.now(), 10)
	due := func(key string, n int64) []string {
		out, err := c.ZRangeByScore(ctx, key, &redis.ZRangeBy{Min: "-inf", Max: now, Count: n}).Result()
		r.must(err)
		return out
	}
	var out []string
	switch k {
	case ZSet: // looks, and owns what it could remove
		for _, m := range due("jobs", 10) {
			n, err := c.ZRem(ctx, "jobs", m).Result()
			r.must(err)
			if n == 1 {
				out = append(out, m)
			}
		}
	case BeeDelayQueue: // removes under a lock, and does not look whether it could
		lock := beeLock + "jobs"
		if ok, err := c.SetNX(ctx, lock, "jobs", 3*time.Second).Result(); err != nil || !ok {
			return nil
		}
		for _, m := range due(beeOrder+"jobs", 1) {
			r.must(c.ZAdd(ctx, beeOrder+"jobs_Ack", redis.Z{Score: 4e9, Member: m}).Err())
			r.must(c.ZRem(ctx, beeOrder+"jobs", m).Err())
			var b struct{ Body string }
			r.must(json.Unmarshal([]byte(m), &b))
			out = append(out, b.Body)
		}
		r.must(c.Del(ctx, lock).Err())
	case Redisson: // transfers in one script
		reply, err := c.Eval(ctx, `local out = {}
			for i, m in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], 0, ARGV[1], 'LIMIT', 0, 10)) do
				local _, value = struct.unpack('Bc0Lc0', m)
				redis.call('LREM', KEYS[2], 1, m)
				redis.call('ZREM', KEYS[1], m)
				out[i] = value
			end
			return out`, []string{redissonSet + "{jobs}", redissonList + "{jobs}"}, now+"000").StringSlice()
		r.must(err)
		out = reply
	case BullMQ, waiting: // moves what is due into the list, and what waits there into another one
		reply, err := c.Eval(ctx, `local set, wait, active = KEYS[1], KEYS[2], KEYS[3]
			for _, id in ipairs(redis.call('ZRANGEBYSCORE', set, 0, ARGV[1], 'LIMIT', 0, 10)) do
				redis.call('LPUSH', wait, id)
				redis.call('ZREM', set, id)
			end
			local out = {}
			for i = 1, 10 do
				local id = redis.call('RPOPLPUSH', wait, active)
				out[i] = id and redis.call('HGET', ARGV[2] .. id, 'data') or nil
			end
			return out`, []string{"{bull}:jobs:delayed", "{bull}:jobs:wait", "{bull}:jobs:active"}, r.now()*1000*bullTick, "{bull}:jobs:").StringSlice()
		r.must(err)
		out = reply
	case Celery:
		for range 10 {
			text, err := c.RPop(ctx, "jobs").Bytes()
			if errors.Is(err, redis.Nil) {
				break
			}
			r.must(err)
			var task celeryTask
			r.must(json.Unmarshal(text, &task))
			body, err := base64.StdEncoding.DecodeString(task.Body)
			r.must(err)
			out = append(out, string(body))
		}
	case Asynq: // forwards in one script
		reply, err := c.Eval(ctx, `local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 10)
			for _, id in ipairs(ids) do
				redis.call('LPUSH', KEYS[2], id)
				redis.call('ZREM', KEYS[1], id)
				redis.call('HSET', ARGV[2] .. id, 'state', 'pending')
			end
			return ids`, []string{"asynq:{jobs}:scheduled", "asynq:{jobs}:pending"}, now, "asynq:{jobs}:t:").StringSlice()
		r.must(err)
		for _, id := range reply {
			if !strings.Contains(c.HGet(ctx, "asynq:{jobs}:t:"+id, "msg").Val(), "body "+id) {
				r.t.Errorf("asynq has forwarded %s, but its task is gone", id)
			}
			out = append(out, "body "+id)
		}
	}
	return out
}

// Old consumers run during the move, and everything is due: each message goes to exactly one of
// both systems.
func TestOldConsumersRun(t *testing.T) {
	for _, k := range kinds() {
		t.Run(string(k), func(t *testing.T) {
			r := newRig(t)
			want := r.good(k, "jobs", 400)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			// Each begins, and then waits until the other one has: so both have some.
			consumed, imported := make(chan struct{}), make(chan struct{})
			hasConsumed := sync.OnceFunc(func() { close(consumed) })
			hasImported := sync.OnceFunc(func() { close(imported) })
			old := map[string]int{}
			var wg sync.WaitGroup
			wg.Go(func() {
				for ctx.Err() == nil {
					for _, body := range r.oldConsumer(k) {
						old[body]++
					}
					if len(old) >= 20 {
						hasConsumed()
						<-imported
					}
				}
			})
			o := options(k)
			rep, err := r.stepping(func(step string) error {
				if step == "finished" {
					hasImported()
				}
				<-consumed
				return nil
			}).tryMove(o)
			hasImported() // also if it failed
			r.must(err)
			cancel()
			wg.Wait()
			n := len(old)
			for body, times := range old {
				r.delivered[body] += times
			}
			r.consume("t")
			r.eachOnce(want)
			if s := rep.Sets[0]; n == 0 || s.Stored == 0 {
				t.Errorf("the old consumer had %d and the import %d: they did not run side by side", n, s.Stored)
			}
			t.Logf("the old consumer had %d, the import %d", n, rep.Sets[0].Stored)
		})
	}
}

// The run that took an entry can neither finish it nor put it back after another run has adopted
// it, and a third run that read the old record cannot adopt it.
func TestAdopted(t *testing.T) {
	for _, k := range kinds() {
		r := newRig(t)
		r.good(k, "jobs", 1)
		o := options(k)
		r.killed(o, "taken", 1)
		im, err := newRedis(r.client, options(k))
		r.must(err)
		sources, err := im.sources(t.Context())
		r.must(err)
		s := sources[0]
		staged := func() *entry {
			pairs, _, err := r.client.HScan(t.Context(), stagingKey(s.set), 0, "", 10).Result()
			r.must(err)
			e, err := parseStaged(pairs[0], pairs[1])
			r.must(err)
			return e
		}
		first, second, late := staged(), staged(), staged()
		if got, err := im.adopt(t.Context(), s, []*entry{second}); err != nil || got[0] != itemDone {
			t.Fatalf("%s: adopt: %v, %v", k, got, err)
		}
		other, err := newRedis(r.client, options(k))
		r.must(err)
		if got, err := other.adopt(t.Context(), s, []*entry{late}); err != nil || got[0] != itemGone {
			t.Errorf("%s: a second run adopted it, too: %v, %v", k, got, err)
		}
		if got := staged().text; got != second.text {
			t.Errorf("%s: the record is %s, want that of the run which adopted it", k, got)
		}
		before := r.everything()
		if got, err := im.from.putBack(t.Context(), s, []*entry{first}); err != nil || got[0] != itemGone {
			t.Errorf("%s: put back by the run that took it: %v, %v", k, got, err)
		}
		r.must(im.from.finish(t.Context(), s, []*entry{first}))
		if got := r.everything(); got != before {
			t.Errorf("%s: the run that took it changed\n%s\nto\n%s", k, before, got)
		}
	}
}

// age makes what is staged look as if it had been taken earlier.
func (r *rig) age(k Kind, by time.Duration) {
	r.t.Helper()
	switch options(k).Kind.Scheme() {
	case "amqp":
		r.ageRabbit(by)
		return
	case "mysql":
		r.mexec("update punctual_import set record = json_set(convert(record using utf8mb4), '$.taken', json_value(convert(record using utf8mb4), '$.taken') - ?)", by.Milliseconds())
		return
	case "postgres":
		r.exec("update punctual_import set record = jsonb_set(record::jsonb, '{taken}', to_jsonb((record::jsonb->>'taken')::bigint - $1))::text", by.Milliseconds())
		return
	}
	im, err := newRedis(r.client, options(k))
	r.must(err)
	sources, err := im.sources(r.t.Context())
	r.must(err)
	key := stagingKey(sources[0].set)
	for member, text := range r.client.HGetAll(r.t.Context(), key).Val() {
		e, err := parseStaged(member, text)
		r.must(err)
		e.record.Taken -= by.Milliseconds()
		r.must(r.client.HSet(r.t.Context(), key, member, e.record.String()).Err())
	}
}

// Messages nearly due are left to consumers that remove only what they have worked on.
func TestLeave(t *testing.T) {
	r := newRig(t)
	r.zadd("jobs", "soon", float64(r.now()+30))
	r.zadd("jobs", "later", float64(r.now()+300))
	o := options(ZSet)
	o.Leave = time.Minute
	if s := r.survey(o).Sets[0]; s.Left != 1 || s.Importable != 1 {
		t.Errorf("survey: %+v", s)
	}
	s := r.move(o).Sets[0]
	if s.Left != 1 || s.Stored != 1 || s.Remaining != 1 {
		t.Errorf("%+v, want one left and one stored", s)
	}
	if got := bodies(r.messages("t")); !slices.Equal(got, []string{"later"}) {
		t.Errorf("moved %q", got)
	}
}

func TestSpread(t *testing.T) {
	r := newRig(t)
	r.good(ZSet, "jobs", 50)
	o := options(ZSet)
	o.Spread = time.Hour
	r.move(o)
	ms := r.messages("t")
	if span := ms[len(ms)-1].Due.Sub(ms[0].Due); len(ms) != 50 || span < 30*time.Minute || span > time.Hour {
		t.Errorf("%d messages over %v, want 50 over nearly an hour", len(ms), span)
	}
}

func TestLimit(t *testing.T) {
	r := newRig(t)
	r.good(ZSet, "jobs", 50)
	o := options(ZSet)
	o.Limit = 20
	for _, want := range []int64{20, 20, 10} {
		if s := r.move(o).Sets[0]; s.Stored != want {
			t.Errorf("stored %d, want %d", s.Stored, want)
		}
	}
}

// A message that another consumer takes between being read and being taken does not count towards
// the limit.
func TestLimitWithoutThoseThatWent(t *testing.T) {
	r := newRig(t)
	members := r.good(ZSet, "jobs", 10)
	went := sync.OnceFunc(func() { r.must(r.client.ZRem(t.Context(), "jobs", members[0]).Err()) })
	r.client.AddHook(&scriptHook{around: func(call func() error) error {
		went()
		return call()
	}})
	o := options(ZSet)
	o.Limit = 4
	if s := r.move(o).Sets[0]; s.Gone != 1 || s.Stored != 4 || s.Remaining != 5 {
		t.Errorf("%d were gone, %d stored, %d remain; want 1, 4 and 5", s.Gone, s.Stored, s.Remaining)
	}
}

// A task that is spread to a later time expires at its deadline, also when another run pushes it.
func TestSpreadKeepsDeadlines(t *testing.T) {
	for _, step := range []string{"", "taken"} {
		r := newRig(t)
		deadline := r.now() + 3600
		task := protowire.AppendVarint(protowire.AppendTag(nil, 9, protowire.VarintType), uint64(deadline))
		for n, text := range map[protowire.Number]string{1: "t", 3: "1", 4: "jobs"} {
			task = protowire.AppendString(protowire.AppendTag(task, n, protowire.BytesType), text)
		}
		r.must(r.client.HSet(t.Context(), "asynq:{jobs}:t:1", "msg", task).Err())
		r.zadd("asynq:{jobs}:scheduled", "1", float64(r.now()-60))
		o := options(Asynq)
		o.Spread = 3000 * time.Second
		if step != "" {
			r.killed(o, step, 1)
		}
		r.move(o)
		ms := r.messages("t")
		if len(ms) != 1 || !ms[0].Due.After(seconds(r.now())) || !ms[0].Expires.Equal(seconds(deadline)) {
			t.Errorf("%+v, want one message that is spread and expires at %v", ms, seconds(deadline))
		}
	}
}

// Following takes over what old producers still add.
func TestFollow(t *testing.T) {
	r := newRig(t)
	r.good(ZSet, "jobs", 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := options(ZSet)
	o.Follow = true
	o.Progress = func(done int64) {
		if done == 1 {
			r.zadd("jobs", "added meanwhile", float64(r.now()))
		} else {
			cancel()
		}
	}
	im, err := newRedis(r.client, o)
	r.must(err)
	rep, err := im.Move(ctx, r.store)
	if err != nil || rep.Sets[0].Stored != 2 {
		t.Errorf("%v, stored %d; want no error and 2", err, rep.Sets[0].Stored)
	}
}

// The same member with another time is another message, also after the first one was moved and
// done. With the same time it is the same message.
func TestMemberAddedAgain(t *testing.T) {
	r := newRig(t)
	now := r.now()
	for _, due := range []int64{now - 5, now - 4, now - 4} {
		r.zadd("jobs", "user 42", float64(due))
		r.move(options(ZSet))
		r.consume("t")
	}
	if r.delivered["user 42"] != 2 {
		t.Errorf("delivered %d times, want 2", r.delivered["user 42"])
	}
}

// A member that is added again while it is in staging must not take its place there.
func TestMemberAddedAgainWhileStaged(t *testing.T) {
	r := newRig(t)
	first := r.now() - 60
	r.zadd("jobs", "a", float64(first))
	o := options(ZSet)
	r.killed(o, "taken", 1)
	r.zadd("jobs", "a", float64(first+1))
	o.Target = "another store" // so that what is staged stays there
	s := r.move(o).Sets[0]
	if s.Stored != 0 || s.Rejected[Uncertain] != 1 || s.StillStaged != 1 || s.Remaining != 1 {
		t.Errorf("%+v, want both untouched", s)
	}
	o.Target = ""
	r.move(o)
	if ms := r.messages("t"); len(ms) != 2 || !ms[0].Due.Equal(seconds(first)) || !ms[1].Due.Equal(seconds(first+1)) {
		t.Errorf("%d messages, want both times", len(ms))
	}
}

// Staged messages that an earlier run may have delivered, which nobody remembers, are decided by
// people.
func TestUncertain(t *testing.T) {
	for _, k := range allKinds() {
		for decision, want := range map[Decision]struct{ stored, staged, remaining, dropped int64 }{
			LeaveUncertain:  {0, 3, 0, 0},
			PushUncertain:   {3, 0, 0, 0},
			DropUncertain:   {0, 0, 0, 3},
			ReturnUncertain: {0, 0, 3, 0},
		} {
			if k == RabbitMQ && decision == ReturnUncertain {
				continue
			}
			t.Run(fmt.Sprint(k, " ", decision), func(t *testing.T) {
				r := newRig(t)
				r.good(k, "jobs", 3)
				before := r.everything()
				o := options(k)
				r.killed(o, "taken", 1)
				// Somebody made the topic forget.
				i, err := punctual.As[punctual.Inspector](r.store)
				r.must(err)
				none := time.Duration(0)
				_, err = i.Configure(t.Context(), "t", punctual.SettingsPatch{DedupeWindow: &none})
				r.must(err)
				o.Uncertain = decision
				// The run that took young entries may still be alive and working on them.
				rep, err := r.tryMove(o)
				if err != nil || rep.Sets[0].StillStaged != 3 || rep.Sets[0].Rejected[Uncertain] != 3 {
					t.Errorf("young entries: %v, %+v; want them left alone", err, rep.Sets[0])
				}
				r.age(k, 10*time.Minute)
				_, err = i.Configure(t.Context(), "t", punctual.SettingsPatch{DedupeWindow: &none})
				r.must(err)
				var texts []string
				o.Rejected = func(x Reject) error { texts = append(texts, x.Text); return nil }
				im, err := r.importer(o)
				r.must(err)
				m, err := im.mover(r.store)
				r.must(err)
				sources, err := im.sources(t.Context())
				r.must(err)
				s := newSetReport(sources[0])
				r.must(m.resume(t.Context(), sources[0], s))
				r.must(im.from.count(t.Context(), sources[0], &s.Remaining, &s.StillStaged))
				if s.Stored != want.stored || s.StillStaged != want.staged || s.Remaining != want.remaining || s.Dropped != want.dropped {
					t.Errorf("%+v, want %+v", s, want)
				}
				if decision == LeaveUncertain && (len(texts) != 3 || !strings.Contains(texts[0], "--uncertain")) {
					t.Errorf("reported %q, want three that say how to decide", texts)
				}
				if decision == ReturnUncertain && r.everything() != before {
					t.Errorf("not as before:\n%s\nwas\n%s", r.everything(), before)
				}
			})
		}
	}
}

// Imports of a plain sorted set, Redisson, asynq and BullMQ work on Redis Cluster, where a script
// may touch one slot only. BeeDelayQueue is refused there.
func TestSlowCluster(t *testing.T) {
	c := redisrig.StartCluster(t, 1, 0)
	for _, k := range []Kind{ZSet, Redisson, Asynq, BullMQ, waiting, Celery} {
		r := newRig(t)
		r.client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
		want := r.good(k, "jobs", 5)
		o := options(k)
		if k != ZSet {
			o.Names = nil // found by itself
			r.must(r.client.SAdd(t.Context(), asynqQueues, "jobs").Err())
			r.must(r.client.Set(t.Context(), "{bull}:jobs:id", 5, 0).Err())
			r.must(r.client.SAdd(t.Context(), celeryBinding+"jobs", "jobs"+celerySep+celerySep+"jobs").Err())
		}
		r.move(o)
		r.consume("t")
		r.eachOnce(want)
		r.must(r.client.Close())
	}
	if _, _, err := Open(t.Context(), "redis+cluster://"+strings.Join(c.Addrs(), ","), Options{Kind: BeeDelayQueue}); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("BeeDelayQueue on a cluster: %v, want ErrInvalid", err)
	}
}

// The report of the first run says that the topic remembers finished IDs for longer now. A second
// run changes nothing there.
func TestRemember(t *testing.T) {
	r := newRig(t)
	r.good(ZSet, "jobs", 1)
	rep := r.move(options(ZSet))
	if len(rep.Remembered) != 1 || rep.Remembered[0] != (Remembered{"t", "0s", "7d"}) {
		t.Errorf("changed %+v", rep.Remembered)
	}
	r.good(ZSet, "jobs", 2)
	if rep := r.move(options(ZSet)); len(rep.Remembered) != 0 {
		t.Errorf("changed again: %+v", rep.Remembered)
	}
}

// Another message has the ID of one that is imported: it stays, even if only its times differ.
func TestConflict(t *testing.T) {
	r := newRig(t)
	r.good(BeeDelayQueue, "jobs", 2)
	r.move(options(BeeDelayQueue))
	r.bee(beeOrder+"jobs", "jobs", "good-1", "body good-1", r.now()-3, 1)
	s := r.move(options(BeeDelayQueue)).Sets[0]
	if s.Stored != 0 || s.Rejected[Conflict] != 1 || s.Remaining != 1 || s.StillStaged != 0 {
		t.Errorf("%+v, want it left because of a conflict", s)
	}
}

// A stored message is taken for the imported one when body and headers are the same, and the due
// time, too, unless there has been an attempt, after which a retry may have moved the due time.
func TestSameMessage(t *testing.T) {
	due := seconds(1_800_000_000)
	there := func() *punctual.Info {
		return &punctual.Info{Message: punctual.Message{Body: []byte("body"), Headers: map[string]string{"a": "1"}, Due: due}}
	}
	m := &punctual.NewMessage{Body: []byte("body"), Headers: map[string]string{"a": "1"}, Due: due}
	for name, c := range map[string]struct {
		change func(i *punctual.Info)
		same   bool
	}{
		"nothing":                      {func(*punctual.Info) {}, true},
		"another body":                 {func(i *punctual.Info) { i.Body = []byte("bodY") }, false},
		"no body":                      {func(i *punctual.Info) { i.Body = nil }, false},
		"another header":               {func(i *punctual.Info) { i.Headers["a"] = "2" }, false},
		"one header more":              {func(i *punctual.Info) { i.Headers["b"] = "1" }, false},
		"no headers":                   {func(i *punctual.Info) { i.Headers = nil }, false},
		"another time":                 {func(i *punctual.Info) { i.Due = due.Add(time.Millisecond) }, false},
		"an earlier time":              {func(i *punctual.Info) { i.Due = due.Add(-time.Millisecond) }, false},
		"another time after attempts":  {func(i *punctual.Info) { i.Due, i.Attempt = due.Add(time.Hour), 1 }, true},
		"the same time after attempts": {func(i *punctual.Info) { i.Attempt = 2 }, true},
		"another body after attempts":  {func(i *punctual.Info) { i.Body, i.Attempt = nil, 1 }, false},
		"other headers after attempts": {func(i *punctual.Info) { i.Headers, i.Attempt = nil, 1 }, false},
	} {
		i := there()
		c.change(i)
		if got := sameMessage(i, m, true); got != c.same {
			t.Errorf("%s: the same message: %v; want %v", name, got, c.same)
		}
	}
}

// A message that was moved, failed there and waits for its next attempt is known again.
func TestKnownAfterAnAttempt(t *testing.T) {
	for _, k := range kinds() {
		r := newRig(t)
		r.good(k, "jobs", 1)
		dump := map[string]string{}
		for _, key := range r.client.Keys(t.Context(), "*").Val() {
			dump[key] = r.client.Dump(t.Context(), key).Val()
		}
		r.move(options(k))
		ds, err := r.store.Claim(t.Context(), punctual.Claim{Topics: []string{"t"}, Max: 1})
		if err != nil || len(ds) != 1 {
			t.Fatalf("%s: claimed %v, %v", k, ds, err)
		}
		errs, err := r.store.Settle(t.Context(), []punctual.Settlement{{Topic: "t", ID: ds[0].ID, Token: ds[0].Token, Verb: punctual.SettleRetry, Delay: time.Hour}})
		r.must(errors.Join(append(errs, err)...))
		r.must(r.client.FlushAll(t.Context()).Err())
		for key, value := range dump {
			r.must(r.client.Restore(t.Context(), key, 0, value).Err())
		}
		if s := r.move(options(k)).Sets[0]; s.Duplicates != 1 || s.Rejected[Conflict] != 0 || s.Remaining != 0 {
			t.Errorf("%s: %+v, want it known from before", k, s)
		}
	}
}

// A task that changed between being read and being taken stays. Nothing of a task that was imported
// is left beside the source.
func TestTaskThatChanged(t *testing.T) {
	for _, k := range []Kind{Asynq, BullMQ, waiting} {
		r := newRig(t)
		r.good(k, "jobs", 2)
		o := options(k)
		o.setDefaults()
		origin := &redisOrigin{client: r.client, opt: &o}
		im := newImporter(origin, &o)
		s := im.newSource("jobs", o.Parts[0])
		var read []*entry
		for _, walk := range origin.walks(s) {
			err := walk(t.Context(), s, func(_ context.Context, es []*entry) ([]bool, error) {
				read = append(read, es...)
				return nil, errKilled
			})
			if !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
		}
		if len(read) != 2 {
			t.Fatalf("%s: read %d entries, want 2", k, len(read))
		}
		for _, e := range read {
			e.text = "record"
		}
		r.must(r.client.HSet(t.Context(), s.tasks+read[1].member, s.fields[0], "changed").Err())
		answers, err := origin.take(t.Context(), s, read)
		if err != nil || !slices.Equal(answers, []int64{itemDone, itemChanged}) {
			t.Errorf("%s: taking a task and one that changed: %v, %v", k, answers, err)
		}
		r.must(origin.finish(t.Context(), s, read[:1]))
		if keys := r.client.Keys(t.Context(), "punctual*").Val(); len(keys) > 0 {
			t.Errorf("%s: left beside the source: %q", k, keys)
		}
	}
}

// A source that lost its last second in a crash has messages again that were moved already.
func TestSourceThatForgot(t *testing.T) {
	for _, k := range kinds() {
		r := newRig(t)
		want := r.good(k, "jobs", 4)
		dump := map[string]string{}
		for _, key := range r.client.Keys(t.Context(), "*").Val() {
			dump[key] = r.client.Dump(t.Context(), key).Val()
		}
		for range 2 {
			r.move(options(k))
			r.consume("t")
			r.must(r.client.FlushAll(t.Context()).Err())
			for key, value := range dump {
				r.must(r.client.Restore(t.Context(), key, 0, value).Err())
			}
		}
		s := r.move(options(k)).Sets[0]
		switch {
		case k == BeeDelayQueue && s.Stored == 0 && s.Rejected[Conflict] == 4:
			// Its own IDs do not tell whether these are the same ones.
		case (k == Asynq || k == BullMQ || k == waiting || k == Celery) && s.Duplicates == 4 && len(s.Renamed) == 4:
			// Nor do those that a program chose, so the messages came once more, under other IDs.
			// Those do tell.
			for _, body := range want {
				r.delivered[body]--
			}
		case s.Stored != 0 || s.Duplicates != 4:
			t.Errorf("%s: %+v, want 4 known from before", k, s)
		}
		r.eachOnce(want)
	}
}

// A topic that takes no messages ends the run, and all goes back.
func TestPausedTopic(t *testing.T) {
	for _, k := range returning() {
		r := newRig(t)
		r.good(k, "jobs", 3)
		before := r.everything()
		i, err := punctual.As[punctual.Inspector](r.store)
		r.must(err)
		paused := true
		_, err = i.Configure(t.Context(), "t", punctual.SettingsPatch{PushPaused: &paused})
		r.must(err)
		rep, err := r.tryMove(options(k))
		if !errors.Is(err, punctual.ErrPaused) || rep.Sets[0].Returned != 3 {
			t.Errorf("%s: %v, returned %d; want ErrPaused and 3", k, err, rep.Sets[0].Returned)
		}
		if got := r.everything(); got != before {
			t.Errorf("%s: the source held\n%s\nand now\n%s", k, before, got)
		}
	}
}

// full makes the source refuse whatever needs memory, or ends that.
func (r *rig) full(is bool) {
	r.t.Helper()
	limit := "0"
	if is {
		limit = "1"
	}
	ctx := context.WithoutCancel(r.t.Context())
	r.must(r.client.ConfigSet(ctx, "maxmemory", limit).Err())
	if err := r.client.Set(ctx, "probe", "x", time.Millisecond).Err(); (err != nil) != is {
		r.t.Errorf("this test shows nothing: with maxmemory %s a write returned %v", limit, err)
	}
	r.must(r.client.Del(ctx, "probe").Err())
}

// A source out of memory refuses to stage anything, and nothing else: what is staged can be gone
// on with, finished and put back.
func TestSourceOutOfMemory(t *testing.T) {
	for _, k := range kinds() {
		t.Run(string(k), func(t *testing.T) {
			r := newRig(t)
			t.Cleanup(func() { r.full(false) })
			want := r.good(k, "jobs", 3)
			before := r.everything()
			r.full(true)
			if _, err := r.tryMove(options(k)); err == nil || !strings.Contains(err.Error(), "maxmemory") {
				t.Errorf("take: %v, want an error that names maxmemory", err)
			}
			r.full(false)
			r.withFaults(func(context.Context, []punctual.NewMessage, punctual.Store) ([]punctual.PushResult, error) {
				r.full(true)
				return nil, punctual.ErrNoSpace
			})
			if rep, err := r.tryMove(options(k)); !errors.Is(err, punctual.ErrNoSpace) || rep.Sets[0].Returned != 3 {
				t.Errorf("put back: %v, %+v", err, rep.Sets[0])
			}
			if got := r.everything(); got != before {
				t.Errorf("the source held\n%s\nand now\n%s", before, got)
			}
			r.full(false)
			r.healed()
			o := options(k)
			r.killed(o, "taken", 1)
			r.full(true)
			r.move(options(k))
			r.consume("t")
			r.eachOnce(want)
		})
	}
}
