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
	"github.com/punctualmq/punctual/redisstore/internal/errkind"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/record"
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
	once     repeat = iota // a change of its own
	harmless               // once more makes no difference
	reading                // it changes nothing
	recorded               // lua/call.lua knows it again
)

func (sc *script) as(r repeat) *script {
	sc.repeat = r
	return sc
}

// newReader makes a script that changes nothing, newChange one that lua/call.lua knows again.
func newReader(name string, parts ...string) *script {
	return newScript(name, append([]string{startText, settingsText, preludeText}, parts...)...).as(reading)
}

func newChange(name string, parts ...string) *script {
	return newScript(name, append([]string{startText, callText, "if kept then return kept end", settingsText, preludeText}, parts...)...).as(recorded)
}

func newScript(name string, parts ...string) *script {
	text := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(text))
	return &script{name: name, text: text, sha: hex.EncodeToString(sum[:])}
}

//go:embed lua/start.lua
var startText string

//go:embed lua/claim_heads.lua
var claimHeadsText string

//go:embed lua/settings.lua
var settingsText string

//go:embed lua/push_usual.lua
var pushUsualText string

//go:embed lua/claim_usual.lua
var claimUsualText string

//go:embed lua/settle_usual.lua
var settleUsualText string

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
	pushScript      = newScript("push", startText, callText, pushUsualText, settingsText, preludeText, pushText).as(recorded)
	claimScript     = newScript("claim", startText, claimHeadsText, callText, claimUsualText, settingsText, preludeText, claimText).as(recorded)
	settleScript    = newScript("settle", startText, callText, settleUsualText, settingsText, preludeText, settleText).as(recorded)
	amendScript     = newChange("amend", amendText)
	getScript       = newReader("get", getText)
	listScript      = newReader("list", selectText, listText)
	statsScript     = newReader("stats", statsText)
	forecastScript  = newReader("forecast", forecastText)
	layoutScript    = newReader("layout", layoutText)
	checkScript     = newReader("check", checkText)
	configureScript = newChange("configure", configureText)
	copyScript      = newChange("copy settings", configureText)
	spreadScript    = newChange("spread", spreadText)
	purgeScript     = newChange("purge", selectText, purgeText)
	deleteScript    = newChange("delete", deleteText)
	storeScript     = newScript("store", storeText)
	forgetScript    = newScript("forget", forgetText)
	registryScript  = newScript("registry", registryText).as(harmless)
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

// moreMark begins what a script says that has put as many messages into x as one may, and is to be sent
// again before it can do what it was asked to.
const moreMark = "PUNCTUAL_MORE"

// answer is what a script replied.
type answer struct {
	reader
	now     int64 // by the clock of the script, in ms
	version int64 // of the settings in a partition; 0 or less if there is no such topic
}

// runPartition runs a script of a partition. It notices when the whole data set is gone.
func (s *Store) runPartition(ctx context.Context, sc *script, p keys.Partition, args ...any) (*answer, error) {
	return s.runKeyed(ctx, sc, p, nil, args...)
}

// runKeyed is runPartition for a part of a call that has a key; nil is none.
func (s *Store) runKeyed(ctx context.Context, sc *script, p keys.Partition, k *keyedPart, args ...any) (*answer, error) {
	var a *answer
	var err error
	if sc.repeat == recorded {
		a, err = s.runCall(ctx, sc, p, k, args)
	} else {
		a, err = s.runTimed(ctx, sc, s.keyArgs.Of(p)[:keys.Count], append([]any{s.header(0, 0), ""}, args...))
	}
	if err != nil {
		return nil, err
	}
	a.version = a.int()
	if a.bad {
		return nil, badReply(sc)
	}
	return a, s.sawVersion(ctx, sc, p.Topic, a.version)
}

// header is what lua/start.lua is given.
type header struct {
	floor           int64 // the latest time told, in ms
	seconds, micros int64 // the time of a test; seconds below 0: that of the server
	number          int64 // of the call
	deadline        int64 // of the call, in ms
	general         bool  // for tests: no usual case
	key             *keyedPart
}

func (s *Store) header(number, deadline int64) header {
	h := header{number: number, deadline: deadline, general: s.opt.general != nil && s.opt.general()}
	h.floor, h.seconds, h.micros = s.clock.Args()
	return h
}

// Flags of a header.
const (
	flagAgain   = 1 // the call was sent before
	flagGeneral = 2 // no usual case
)

func (h header) pack(again bool) []byte {
	b := make([]byte, 0, 5*8+1)
	for _, n := range [...]int64{h.floor, h.seconds, h.micros, h.number, h.deadline} {
		b = record.AppendDouble(b, float64(n))
	}
	var flags byte
	if again || h.key != nil && h.key.again {
		flags |= flagAgain
	}
	if h.general {
		flags |= flagGeneral
	}
	b = append(b, flags)
	if h.key != nil {
		b = append(append(b, h.key.field...), h.key.content...)
	}
	return b
}

// runStore runs a script that belongs to the whole store.
func (s *Store) runStore(ctx context.Context, sc *script, key string, args ...any) (*answer, error) {
	floor, seconds, micros := s.clock.Args()
	times := []any{floor, "", ""}
	if seconds >= 0 {
		times[1], times[2] = seconds, micros
	}
	return s.runTimed(ctx, sc, []any{key}, append(times, args...))
}

// runTimed runs a script that is told the time, and answers with it.
func (s *Store) runTimed(ctx context.Context, sc *script, keys, args []any) (*answer, error) {
	reply, err := s.run(ctx, sc, keys, args)
	if err != nil {
		return nil, err
	}
	a := &answer{reader: reader{items: reply}}
	ms, us := a.int(), a.int()
	if a.bad {
		return nil, badReply(sc)
	}
	a.now = ms
	s.clock.Hear(ms, us)
	return a, nil
}

// called names the script in an error. Those with records are the Store's own methods, which name
// themselves.
func (sc *script) called(err error) error {
	if sc.repeat == recorded {
		return err
	}
	return fmt.Errorf("%s: %w", sc.name, err)
}

// run runs a script: again if Redis certainly refused to for a reason that may pass, and also
// if no answer came, where it may be sent twice. Once a copy may have been carried out, no
// refusal of a later one is definite.
func (s *Store) run(ctx context.Context, sc *script, keys, args []any) ([]any, error) {
	if err := s.refusal(); err != nil && sc == pushScript {
		return nil, err
	}
	pause, unsure := firstPause, false
	for try := 1; ; try++ {
		val, err := s.eval(ctx, sc, keys, args, try > 1)
		if err == nil {
			return itemsOf(val), nil
		}
		if isUnconfirmed(err) {
			s.lookSoon()
			return nil, sc.called(err)
		}
		if redis.HasErrorPrefix(err, moreMark) {
			if err := ctx.Err(); err != nil {
				return nil, errkind.Doubt(unsure, err)
			}
			try-- // it has come further
			continue
		}
		f := errkind.Of(err)
		s.lookForNodes(ctx, err)
		if f.Unknown() && sc.repeat == reading {
			f.Err, f.Passing = punctual.ErrUnreachable, true // a read never "may have happened"
		}
		if errors.Is(f.Err, errkind.Late) {
			s.clock.Correct(errkind.LateTime(err))
		}
		unsure = unsure || f.Unknown()
		if again := f.Passing || f.Unknown() && sc.repeat != once; !again || try == tries || ctx.Err() != nil {
			return nil, errkind.Doubt(unsure, sc.called(f.Wrap(err)))
		}
		if err := s.pause(ctx, pause); err != nil {
			return nil, errkind.Doubt(unsure, err)
		}
		pause *= 2
	}
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
func (s *Store) eval(ctx context.Context, sc *script, keys, args []any, again bool) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, errkind.NotSent(err)
	}
	send := s.evalOnce
	if s.promises(sc, args) {
		send = s.evalConfirmed
	}
	val, err := send(ctx, evalLine("evalsha", sc.sha, keys, args, again))
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		return send(ctx, evalLine("eval", sc.text, keys, args, again))
	}
	return val, err
}

func (s *Store) evalOnce(ctx context.Context, line []any) (any, error) {
	cmd := onceCmd{redis.NewCmd(ctx, line...)}
	if err := s.client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Result()
}

// evalLine is the command that runs a script. Its header tells whether this copy is not the first.
func evalLine(command, body string, keys, args []any, again bool) []any {
	line := make([]any, 0, firstKey+len(keys)+len(args))
	line = append(line, command, body, len(keys))
	line = append(append(line, keys...), args...)
	if h, ok := args[0].(header); ok {
		line[firstKey+len(keys)] = h.pack(again)
	}
	return line
}

// firstKey is the place of the first key in what evalLine makes.
const firstKey = 3

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

// list reads an array of texts.
func (r *reader) list() []string {
	items, ok := r.next().([]any)
	r.bad = r.bad || !ok
	texts := reader{items: items}
	out := make([]string, len(items))
	for i := range out {
		out[i] = texts.string()
	}
	r.bad = r.bad || texts.bad
	return out
}

// badReply is an answer that no version of the script gives.
func badReply(sc *script) error {
	return fmt.Errorf("%s: the server's answer cannot be read; does something between it and this program change answers?: %w", sc.name, punctual.ErrIndeterminate)
}
