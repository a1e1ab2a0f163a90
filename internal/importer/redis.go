package importer

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/punctualmq/punctual/storekit"
	"github.com/redis/go-redis/v9"
)

// redisOrigin is the origin for messages in Redis: the servers of the other system.
type redisOrigin struct {
	client redis.UniversalClient
	opt    *Options
}

// ownKey matches the sorted sets in which redisstore keeps a topic, behind any prefix, and that of
// the names of all topics behind the default prefix; see docs/format-redis.md. An import from such
// a key would damage the store.
var ownKey = regexp.MustCompile(`\{[^{}]*#[0-9]+\}(@[A-Za-z0-9._-]+)?:[a-z]$|^punctual:topics$`)

// now returns the time of the source's server, by which the other system judges due times.
func (o *redisOrigin) now(ctx context.Context) (time.Time, error) {
	t, err := o.client.Time(ctx).Result()
	if err != nil {
		return t, fault(err, "ask the source for its time")
	}
	return t, nil
}

// names returns the names of everything that could be imported.
func (o *redisOrigin) names(ctx context.Context) ([]string, error) {
	var names []string
	var err error
	switch o.opt.Kind {
	case Asynq:
		names, err = o.client.SMembers(ctx, asynqQueues).Result()
	case BeeDelayQueue:
		names, err = o.scan(ctx, beeOrder, beeTopic)
	case Redisson:
		names, err = o.scan(ctx, redissonSet, redissonName)
	}
	if err != nil {
		return nil, fault(err, "look for what is there")
	}
	return names, nil
}

// scan finds the keys with a prefix on all nodes, and returns what name makes of them.
func (o *redisOrigin) scan(ctx context.Context, prefix string, name func(key string) (string, bool)) ([]string, error) {
	nodes := []redis.Cmdable{o.client}
	if cluster, ok := o.client.(*redis.ClusterClient); ok {
		var err error
		if nodes, err = primaries(ctx, cluster); err != nil {
			return nil, err
		}
	}
	var names []string
	for _, node := range nodes {
		keys := node.Scan(ctx, 0, prefix+"*", 1000).Iterator()
		for keys.Next(ctx) {
			if n, ok := name(keys.Val()); ok {
				names = append(names, n)
			}
		}
		if err := keys.Err(); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// expect returns an error if the set or the list of a source has another type than the other system
// gives it, or if the set is one of Punctual's own. Neither need exist.
func (o *redisOrigin) expect(ctx context.Context, s *source) error {
	if err := o.expectType(ctx, s.set, "zset"); err != nil {
		return err
	}
	if s.list != "" {
		if err := o.expectType(ctx, s.list, "list"); err != nil {
			return err
		}
	}
	if ownKey.MatchString(s.set) {
		return storekit.Invalidf("%s is a key of Punctual's own: name the one of the other system", s.set)
	}
	return nil
}

func (o *redisOrigin) expectType(ctx context.Context, key, want string) error {
	is, err := o.client.Type(ctx, key).Result()
	if err != nil {
		return fault(err, "look at %s", key)
	}
	if is != want && is != "none" {
		return storekit.Invalidf("%s is a %s, not a %s: is it another system's?", key, typeNames(is), typeNames(want))
	}
	return nil
}

// count returns the sizes of a set and of its staging hash.
func (o *redisOrigin) count(ctx context.Context, s *source, members, staged *int64) (err error) {
	if *members, err = o.client.ZCard(ctx, s.set).Result(); err == nil {
		*staged, err = o.client.HLen(ctx, stagingKey(s.set)).Result()
	}
	if err != nil {
		return fault(err, "count %s", s.set)
	}
	return nil
}

// guessUnit finds out the unit of the scores of a plain sorted set, if the options do not name it.
// Times of the years 2001 to 5138 lie between 10^9 and 10^11 in seconds, and between 10^12 and
// 10^14 in milliseconds. When a set has scores in both ranges or in neither, the unit cannot be
// guessed.
func (o *redisOrigin) guessUnit(ctx context.Context, r *Report) error {
	if o.opt.Kind != ZSet || o.opt.Unit != 0 {
		return nil
	}
	key := o.opt.Names[0]
	if err := o.expectType(ctx, key, "zset"); err != nil {
		return err
	}
	inSeconds, err := o.client.ZCount(ctx, key, "1e9", "(1e11").Result()
	if err != nil {
		return fault(err, "read %s", key)
	}
	inMillis, err := o.client.ZCount(ctx, key, "1e12", "(1e14").Result()
	if err != nil {
		return fault(err, "read %s", key)
	}
	switch {
	case inSeconds > 0 && inMillis > 0:
		return storekit.Invalidf("%d scores of %s look like seconds and %d like milliseconds: say which is right with --unit, and the others are left where they are", inSeconds, key, inMillis)
	case inSeconds > 0:
		o.opt.Unit = time.Second
	case inMillis > 0:
		o.opt.Unit = time.Millisecond
	default:
		return storekit.Invalidf("%s has no score that looks like a time in seconds or milliseconds: is it empty, or another database? Or say what they count with --unit", key)
	}
	r.Unit, r.Guessed = o.opt.Unit, true
	return nil
}

// note adds to the report what the other system keeps beside the set and is not imported.
func (o *redisOrigin) note(ctx context.Context, s *source, r *SetReport) error {
	count := func(what string, n *redis.IntCmd) error {
		if n.Err() != nil {
			return fault(n.Err(), "look beside %s", s.set)
		}
		if n.Val() > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf(what, n.Val()))
		}
		return nil
	}
	c := o.client
	switch {
	case s.kind == BeeDelayQueue && s.part == "order" && !slices.Contains(o.opt.Parts, "ack"):
		return count("delivered and not acked yet: %d; when no old consumer runs any more, --part order,ack takes those over", c.ZCard(ctx, s.set+beeAck))
	case s.kind == Redisson:
		if c.Type(ctx, s.name).Val() == "list" { // or nothing, or a queue of another kind
			if err := count("in the list of due elements already: %d; the old consumers take those", c.LLen(ctx, s.name)); err != nil {
				return err
			}
		}
		return o.noteOrphans(ctx, s, r)
	case s.kind == Asynq && s.part == "scheduled":
		queue := "asynq:{" + s.name + "}:"
		if err := count("pending already: %d; the old servers run those", c.LLen(ctx, queue+"pending")); err != nil {
			return err
		}
		if err := count("archived: %d; they stay", c.ZCard(ctx, queue+"archived")); err != nil {
			return err
		}
		return count("groups that wait to be run as one task each: %d; they stay", c.SCard(ctx, queue+"groups"))
	}
	return nil
}

// noteOrphans adds to the report how many more elements Redisson's list has than its set. Those
// never fall due.
func (o *redisOrigin) noteOrphans(ctx context.Context, s *source, r *SetReport) error {
	listed, err := o.client.LLen(ctx, s.list).Result()
	if err != nil {
		return fault(err, "look beside %s", s.set)
	}
	if n := listed - r.Found; n > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("in %s and without a due time: %d; those never fall due in Redisson, and stay", s.list, n))
	}
	return nil
}

func typeNames(t string) string {
	if t == "zset" {
		return "sorted set"
	}
	return t
}

// staged calls visit with the entries in the staging of a source: member, record, member, record
// and so on.
func (o *redisOrigin) staged(ctx context.Context, s *source, visit func(pairs []string) error) error {
	cursor := uint64(0)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		pairs, next, err := o.client.HScan(ctx, stagingKey(s.set), cursor, "", maxPage).Result()
		if err != nil {
			return fault(err, "read what is staged of %s", s.set)
		}
		for len(pairs) > 0 {
			n := min(len(pairs), 2*maxPage)
			if err := visit(pairs[:n]); err != nil {
				return err
			}
			pairs = pairs[n:]
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// readKept reads the task hashes of asynq that staging keeps.
func (o *redisOrigin) readKept(ctx context.Context, s *source, es []*entry) error {
	return o.readTasks(ctx, s, es, func(e *entry) string { return s.keptKey(e.member) })
}

// walks returns the walks that visit the members. With Redisson the walk along its list comes
// first, because it removes the members that are in the list faster.
func (o *redisOrigin) walks(s *source) []walk {
	if s.list != "" {
		return []walk{o.walkList, o.walkSet}
	}
	return []walk{o.walkSet}
}
