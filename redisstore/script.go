package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/redis/go-redis/v9"
)

// What a script takes at most; longer calls are several scripts.
const (
	scriptItems = 500
	scriptBytes = 4 << 20
)

// script is one file of lua/, with what stands in front of it.
type script struct {
	name, text, sha string
	repeat          repeat
}

// repeat says what it means to send a script a second time.
type repeat uint8

const (
	once      repeat = iota // a change of its own
	harmless                // it changes nothing
	receipted               // lua/receipt.lua knows it again
)

func (sc *script) as(r repeat) *script {
	sc.repeat = r
	return sc
}

func newScript(name string, parts ...string) *script {
	text := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(text))
	return &script{name: name, text: text, sha: hex.EncodeToString(sum[:])}
}

//go:embed lua/start.lua
var startText string

//go:embed lua/glance.lua
var glanceText string

//go:embed lua/prelude.lua
var preludeText string

//go:embed lua/select.lua
var selectText string

//go:embed lua/push.lua
var pushText string

//go:embed lua/claim.lua
var claimText string

//go:embed lua/settle.lua
var settleText string

//go:embed lua/amend.lua
var amendText string

//go:embed lua/get.lua
var getText string

//go:embed lua/list.lua
var listText string

//go:embed lua/stats.lua
var statsText string

//go:embed lua/forecast.lua
var forecastText string

//go:embed lua/configure.lua
var configureText string

//go:embed lua/purge.lua
var purgeText string

//go:embed lua/delete.lua
var deleteText string

//go:embed lua/check.lua
var checkText string

//go:embed lua/layout.lua
var layoutText string

//go:embed lua/spread.lua
var spreadText string

//go:embed lua/store.lua
var storeText string

//go:embed lua/registry.lua
var registryText string

// The scripts. They never change while a program runs.
var (
	pushScript      = newScript("push", startText, preludeText, receiptText, pushText).as(receipted)
	claimScript     = newScript("claim", startText, glanceText, preludeText, receiptText, claimText).as(receipted)
	settleScript    = newScript("settle", startText, preludeText, receiptText, settleText).as(receipted)
	amendScript     = newScript("amend", startText, preludeText, receiptText, amendText).as(receipted)
	getScript       = newScript("get", startText, preludeText, getText).as(harmless)
	listScript      = newScript("list", startText, preludeText, selectText, listText).as(harmless)
	statsScript     = newScript("stats", startText, preludeText, statsText).as(harmless)
	forecastScript  = newScript("forecast", startText, preludeText, forecastText).as(harmless)
	layoutScript    = newScript("layout", startText, preludeText, layoutText).as(harmless)
	configureScript = newScript("configure", startText, preludeText, configureText)
	copyScript      = newScript("copy settings", startText, preludeText, configureText).as(harmless) // with a version, which never goes back
	spreadScript    = newScript("spread", startText, preludeText, spreadText).as(harmless)
	purgeScript     = newScript("purge", startText, preludeText, selectText, purgeText)
	deleteScript    = newScript("delete", startText, preludeText, deleteText)
	checkScript     = newScript("check", startText, preludeText, checkText).as(harmless)
	storeScript     = newScript("store", storeText)
	registryScript  = newScript("registry", registryText)
)

// onceCmd is a command that the client must not send a second time by itself: when its
// answer is lost, it may have been done. Whether to send it again is for run to say.
type onceCmd struct{ *redis.Cmd }

// NoRetry tells the client.
func (onceCmd) NoRetry() bool { return true }

// tries is how often a command is sent that Redis certainly did not carry out, for a reason
// that may pass; between them it waits from firstPause, doubling.
const (
	tries      = 5
	firstPause = 10 * time.Millisecond
)

// answer is what a script replied.
type answer struct {
	reader
	now     int64 // by the clock of the script, in ms
	version int64 // of the settings in a partition; 0 or less if there is no such topic
}

// runPartition runs a script of a partition. It notices when the whole data set is gone.
func (s *Store) runPartition(ctx context.Context, sc *script, p partition, args ...any) (*answer, error) {
	keys := p.keys()
	if sc.repeat == receipted {
		c := s.slots.begin()
		defer s.slots.end(c)
		keys, args = append(keys, p.receipt(s.sender, c.slot)), append(args, c.number)
	}
	a, err := s.runTimed(ctx, sc, keys, args)
	if err != nil {
		return nil, err
	}
	a.version = a.int()
	if a.bad {
		return nil, badReply(sc)
	}
	return a, s.sawVersion(ctx, sc, p.topic, a.version)
}

// runTimed runs a script that is told the time and answers with it.
func (s *Store) runTimed(ctx context.Context, sc *script, keys []string, args []any) (*answer, error) {
	floor, seconds, micros := s.clock.args()
	reply, err := s.run(ctx, sc, keys, append([]any{floor, seconds, micros}, args...))
	if err != nil {
		return nil, err
	}
	a := &answer{reader: reader{items: reply}}
	ms, us := a.int(), a.int()
	if a.bad {
		return nil, badReply(sc)
	}
	a.now = ms
	s.clock.hear(ms, us)
	return a, nil
}

// run runs a script: again if Redis certainly refused to for a reason that may pass, and also
// if no answer came, where it may be sent twice. Once a copy may have been carried out, no
// refusal of a later one is definite.
func (s *Store) run(ctx context.Context, sc *script, keys []string, args []any) ([]any, error) {
	if err := s.refusal(); err != nil && sc == pushScript {
		return nil, fmt.Errorf("%s: %w", sc.name, err)
	}
	pause, unsure := firstPause, false
	for try := 1; ; try++ {
		val, err := s.eval(ctx, sc, keys, sc.copyArgs(args, try))
		if err == nil {
			return itemsOf(val), nil
		}
		if isUnconfirmed(err) {
			s.lookSoon()
			return nil, fmt.Errorf("%s: %w", sc.name, err)
		}
		f := classify(err)
		s.lookForNodes(ctx, err)
		unsure = unsure || f.unknown() && sc.repeat != harmless
		if again := f.passing || f.unknown() && sc.repeat != once; !again || try == tries || ctx.Err() != nil {
			return nil, doubt(unsure, f.wrap(sc.name, err))
		}
		if err := s.pause(ctx, pause); err != nil {
			return nil, doubt(unsure, err)
		}
		pause *= 2
	}
}

// copyArgs says to a script that knows calls again whether this copy is the first.
func (sc *script) copyArgs(args []any, try int) []any {
	if sc.repeat != receipted {
		return args
	}
	return append(args[:len(args):len(args)], flag(try > 1))
}

func itemsOf(val any) []any {
	if items, ok := val.([]any); ok {
		return items
	}
	return []any{val}
}

// lookForNodes lets a cluster client ask who serves what, when a node does not answer or is
// the wrong one. By itself it asks only once a minute (go-redis 9.23), and a failover takes seconds.
func (s *Store) lookForNodes(ctx context.Context, err error) {
	var reply redis.Error
	if cluster, ok := s.client.(*redis.ClusterClient); ok && (!errors.As(err, &reply) || redis.HasErrorPrefix(err, "MOVED")) {
		cluster.ReloadState(ctx)
	}
}

// pause sleeps in real time.
func (s *Store) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.closing:
		return errClosed()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// eval sends a script by its hash, and in full to a server that does not know it.
func (s *Store) eval(ctx context.Context, sc *script, keys []string, args []any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, unsent{err}
	}
	send := s.evalOnce
	if s.promises(sc, args) {
		send = s.evalConfirmed
	}
	val, err := send(ctx, "evalsha", sc.sha, keys, args)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		return send(ctx, "eval", sc.text, keys, args)
	}
	return val, err
}

func (s *Store) evalOnce(ctx context.Context, command, body string, keys []string, args []any) (any, error) {
	cmd := evalCmd(ctx, command, body, keys, args)
	if err := s.client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Result()
}

func evalCmd(ctx context.Context, command, body string, keys []string, args []any) onceCmd {
	line := make([]any, 0, 3+len(keys)+len(args))
	line = append(line, command, body, len(keys))
	for _, k := range keys {
		line = append(line, k)
	}
	return onceCmd{redis.NewCmd(ctx, append(line, args...)...)}
}

// reader takes values off the front of a reply; bad is set once one is not as it should be.
type reader struct {
	items []any
	bad   bool
}

func (r *reader) next() any {
	if len(r.items) == 0 {
		r.bad = true
		return nil
	}
	v := r.items[0]
	r.items = r.items[1:]
	return v
}

func (r *reader) int() int64 {
	n, ok := r.next().(int64)
	r.bad = r.bad || !ok
	return n
}

func (r *reader) string() string {
	s, ok := r.next().(string)
	r.bad = r.bad || !ok
	return s
}

// badReply is an answer that no version of the script gives.
func badReply(sc *script) error {
	return fmt.Errorf("%s: the server's answer cannot be read; does something between it and this program change answers?: %w", sc.name, punctual.ErrIndeterminate)
}
