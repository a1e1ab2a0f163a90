package importer

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	mysqlrig "github.com/punctualmq/punctual/internal/rigs/mysql"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
	rabbitrig "github.com/punctualmq/punctual/internal/rigs/rabbit"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/memstore"
)

// shared, postgres and rabbit are the servers that the tests share. Each rig begins with an empty
// Redis, and with a database and empty queues of its own when it first needs them.
var (
	shared   *redisrig.Server
	postgres *pgrig.Server
	rabbit   rabbitrig.Shared
	maria    *mysqlrig.Server
)

func TestMain(m *testing.M) {
	os.Exit(pgrig.Run(onMySQL{onRedis{m}}, &postgres, func() error { return goleak.Find() }, "fsync=off"))
}

// onRedis runs the tests with the shared Redis, and ends the shared RabbitMQ. onMySQL runs them
// with the shared MariaDB.
type (
	onRedis struct{ m *testing.M }
	onMySQL struct{ m interface{ Run() int } }
)

func (o onRedis) Run() int {
	code := redisrig.Run(o.m, &shared, func() error { return nil })
	if err := rabbit.Kill(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
func (o onMySQL) Run() int { return mysqlrig.Run(o.m, &maria, func() error { return nil }) }

// rig is a source, a target in memory, and what was delivered from there.
type rig struct {
	t         *testing.T
	client    redis.UniversalClient
	store     punctual.Store
	delivered map[string]int // by body
	db        *pgx.Conn      // of the kinds in PostgreSQL; nil before the first use
	amqp      *rabbitRig     // of RabbitMQ; nil before the first use
	my        *sql.DB        // of those in MySQL, the same
	myName    string         // of its database
	step      func(string) error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: shared.Addr})
	store := memstore.New(nil)
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	r := &rig{t: t, client: client, store: store, delivered: map[string]int{}}
	r.must(client.FlushAll(t.Context()).Err())
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// now returns the time of the source, as Unix seconds.
func (r *rig) now() int64 {
	r.t.Helper()
	t, err := r.client.Time(r.t.Context()).Result()
	r.must(err)
	return t.Unix()
}

func (r *rig) zadd(key, member string, score float64) {
	r.t.Helper()
	r.must(r.client.ZAdd(r.t.Context(), key, redis.Z{Score: score, Member: member}).Err())
}

// move runs an import with the options, and expects that it does not fail.
func (r *rig) move(o Options) *Report {
	r.t.Helper()
	rep, err := r.tryMove(o)
	r.must(err)
	return rep
}

func (r *rig) tryMove(o Options) (*Report, error) {
	r.t.Helper()
	im, err := r.importer(o)
	r.must(err)
	return im.Move(r.t.Context(), r.store)
}

// importer returns one from the server of its kind.
func (r *rig) importer(o Options) (*Importer, error) {
	switch o.Kind.Scheme() {
	case "amqp":
		r.hangUp() // as the end of the process that ran the last one does
		return r.steps(r.newRabbit(o))
	case "postgres":
		return r.steps(newPostgres(r.sql(), o))
	case "mysql":
		r.mysql()
		return r.apart(o)
	}
	return r.steps(newRedis(r.client, o))
}

func (r *rig) steps(im *Importer, err error) (*Importer, error) {
	if err == nil && r.step != nil {
		im.from = steps{im.from, r.step}
	}
	return im, err
}

func newRedis(client redis.UniversalClient, o Options) (*Importer, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return newImporter(&redisOrigin{client: client, opt: &o}, &o), nil
}

func newPostgres(conn *pgx.Conn, o Options) (*Importer, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return newImporter(&pgOrigin{conn: conn, opt: &o}, &o), nil
}

func (r *rig) survey(o Options) *Report {
	r.t.Helper()
	im, err := r.importer(o)
	r.must(err)
	rep, err := im.Survey(r.t.Context())
	r.must(err)
	return rep
}

// messages returns all scheduled and ready messages of a topic, by due time.
func (r *rig) messages(topic string) []punctual.Info {
	r.t.Helper()
	i, err := punctual.As[punctual.Inspector](r.store)
	r.must(err)
	var out []punctual.Info
	for _, state := range []punctual.State{punctual.StateReady, punctual.StateScheduled} {
		q := punctual.ListQuery{Topic: topic, State: state, Limit: 10_000}
		for {
			page, err := i.List(r.t.Context(), q)
			if errors.Is(err, punctual.ErrNotFound) {
				return nil
			}
			r.must(err)
			out = append(out, page.Messages...)
			if q.After = page.Next; q.After == "" {
				break
			}
		}
	}
	return out
}

func bodies(ms []punctual.Info) []string {
	out := []string{}
	for _, m := range ms {
		out = append(out, string(m.Body))
	}
	return out
}

// consume delivers and acks all that is due, and counts it by body.
func (r *rig) consume(topic string) {
	r.t.Helper()
	for {
		ds, err := r.store.Claim(r.t.Context(), punctual.Claim{Topics: []string{topic}, Max: 1000})
		r.must(err)
		if len(ds) == 0 {
			return
		}
		var acks []punctual.Settlement
		for _, d := range ds {
			r.delivered[string(d.Body)]++
			acks = append(acks, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck})
		}
		errs, err := r.store.Settle(r.t.Context(), acks)
		r.must(errors.Join(append(errs, err)...))
	}
}

// eachOnce fails the test unless each body was delivered exactly once.
func (r *rig) eachOnce(want []string) {
	r.t.Helper()
	for _, body := range want {
		if n := r.delivered[body]; n != 1 {
			r.t.Errorf("%q was delivered %d times, want once (P1, P7)", body, n)
		}
	}
	if len(r.delivered) != len(want) {
		r.t.Errorf("%d different messages were delivered, want %d: %q", len(r.delivered), len(want), slices.Sorted(maps.Keys(r.delivered)))
	}
}

// everything returns all values in Redis, and what tables returns if the rig has a database, as a
// text, to compare.
func (r *rig) everything() string {
	r.t.Helper()
	ctx := r.t.Context()
	keys, err := r.client.Keys(ctx, "*").Result()
	r.must(err)
	slices.Sort(keys)
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "%s ", k)
		switch r.client.Type(ctx, k).Val() {
		case "zset":
			for _, z := range r.client.ZRangeWithScores(ctx, k, 0, -1).Val() {
				fmt.Fprintf(&b, "%q %s ", z.Member, formatScore(z.Score))
			}
			b.WriteString("\n")
		case "hash":
			fmt.Fprintf(&b, "%q\n", r.client.HGetAll(ctx, k).Val())
		case "list":
			members := r.client.LRange(ctx, k, 0, -1).Val()
			slices.Sort(members) // what was put back stands at the end of its list
			fmt.Fprintf(&b, "%q\n", members)
		case "set":
			members := r.client.SMembers(ctx, k).Val()
			slices.Sort(members)
			fmt.Fprintf(&b, "%q\n", members)
		default:
			fmt.Fprintf(&b, "%q\n", r.client.Get(ctx, k).Val())
		}
	}
	if r.db != nil {
		b.WriteString(r.tables())
	}
	if r.my != nil {
		b.WriteString(r.myTables())
	}
	return b.String()
}

// pack makes a member as Redisson does, by the server's own struct.pack.
func (r *rig) pack(format, random, value string) string {
	r.t.Helper()
	text := "return struct.pack('Bc0Lc0', #ARGV[1], ARGV[1], #ARGV[2], ARGV[2])"
	if format == "before 3.21.1" {
		text = "return struct.pack('dLc0', tonumber(ARGV[1]), #ARGV[2], ARGV[2])"
	}
	member, err := r.client.Eval(r.t.Context(), text, nil, random, value).Text()
	r.must(err)
	return member
}

// offer adds an element to Redisson's delayed queue.
func (r *rig) offer(queue, member string, dueMs int64) {
	r.t.Helper()
	r.zadd("redisson_delay_queue_timeout:{"+queue+"}", member, float64(dueMs))
	r.must(r.client.RPush(r.t.Context(), "redisson_delay_queue:{"+queue+"}", member).Err())
}

// bee adds a message as BeeDelayQueue writes it.
func (r *rig) bee(key, topic, id, body string, due, retries int64) {
	r.t.Helper()
	text, err := json.Marshal(struct {
		ID         string `json:"id"`
		Topic      string `json:"topic"`
		Body       string `json:"body"`
		ExecTime   int64  `json:"execTime"`
		RetryCount int64  `json:"retryCount"`
		CreateTime int64  `json:"createTime"`
	}{id, topic, body, due, retries, due - 60})
	r.must(err)
	r.zadd(key, string(text), float64(due))
}

// restore loads what asynq's own client and server wrote; see testdata/asynq.
func (r *rig) restore(file string) {
	r.t.Helper()
	text, err := os.ReadFile(file)
	r.must(err)
	for line := range strings.Lines(string(text)) {
		var k struct {
			Key    string
			Hash   map[string][]byte
			ZSet   map[string]string
			Set    []string
			List   []string
			String *string
		}
		r.must(json.Unmarshal([]byte(line), &k))
		ctx, pipe := r.t.Context(), r.client.Pipeline()
		for f, v := range k.Hash {
			pipe.HSet(ctx, k.Key, f, v)
		}
		for m, score := range k.ZSet {
			pipe.Do(ctx, "ZADD", k.Key, score, m)
		}
		for _, v := range k.Set {
			pipe.SAdd(ctx, k.Key, v)
		}
		for _, v := range k.List {
			pipe.RPush(ctx, k.Key, v)
		}
		if k.String != nil {
			pipe.Set(ctx, k.Key, *k.String, 0)
		}
		_, err := pipe.Exec(ctx)
		r.must(err)
	}
}

// seconds returns a due time from seconds since 1970, as BeeDelayQueue, asynq and many others count
// it.
func seconds(s int64) time.Time { return time.Unix(s, 0).UTC() }

// faulty is a store whose pushes fail as they are told to.
type faulty struct {
	punctual.Store
	punctual.Inspector
	push func(ctx context.Context, ms []punctual.NewMessage, real punctual.Store) ([]punctual.PushResult, error)
}

func (f *faulty) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return f.push(ctx, ms, f.Store)
}

// withFaults lets every push go through f.
func (r *rig) withFaults(f func(ctx context.Context, ms []punctual.NewMessage, real punctual.Store) ([]punctual.PushResult, error)) {
	r.t.Helper()
	i, err := punctual.As[punctual.Inspector](r.store)
	r.must(err)
	r.store = &faulty{Store: r.store, Inspector: i, push: f}
}

// healed takes the faults away again.
func (r *rig) healed() { r.store = r.store.(*faulty).Store }
