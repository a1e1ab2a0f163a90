package importer

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual/storekit"
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
		names, err = o.scan(ctx, beeOrder+"*", beeTopic)
	case Redisson:
		names, err = o.scan(ctx, redissonSet+"*", redissonName)
	case BullMQ:
		names, err = o.bullQueues(ctx, o.opt.Prefix, "id")
	case Celery:
		names, err = o.celeryQueues(ctx)
	}
	if err != nil {
		return nil, fault(err, "look for what is there")
	}
	return names, nil
}

// scan finds the keys of a pattern on all nodes, and returns what name makes of them.
func (o *redisOrigin) scan(ctx context.Context, pattern string, name func(key string) (string, bool)) ([]string, error) {
	nodes := []redis.Cmdable{o.client}
	if cluster, ok := o.client.(*redis.ClusterClient); ok {
		var err error
		if nodes, err = primaries(ctx, cluster); err != nil {
			return nil, err
		}
	}
	var names []string
	for _, node := range nodes {
		keys := node.Scan(ctx, 0, pattern, 1000).Iterator()
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
	if err := o.expectType(ctx, s.set, s.setType()); err != nil {
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
	size := o.client.ZCard
	if s.isList {
		size = o.client.LLen
	}
	if *members, err = size(ctx, s.set).Result(); err == nil {
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
	return r.guess(o.opt, key, inSeconds, inMillis)
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
	case s.kind == BullMQ && s.part == "delayed":
		queue := strings.TrimSuffix(s.set, s.part)
		if err := count("active: %d; the old workers finish those", c.LLen(ctx, queue+"active")); err != nil {
			return err
		}
		if err := count("parents of flows that wait for their children: %d; they stay", c.ZCard(ctx, queue+"waiting-children")); err != nil {
			return err
		}
		if err := count("job schedulers: %d; 'punctual schedule import bullmq' takes those over", c.ZCard(ctx, queue+"repeat")); err != nil || slices.Contains(o.opt.Parts, "failed") {
			return err
		}
		return count("failed: %d; --part failed takes those over", c.ZCard(ctx, queue+"failed"))
	case s.kind == Celery:
		return o.noteCelery(ctx, s, r, count)
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

// readKept reads the hashes of tasks that staging keeps.
func (o *redisOrigin) readKept(ctx context.Context, s *source, es []*entry) error {
	return o.readTasks(ctx, s, es, func(e *entry) string { return s.keptKey(e.member) })
}

// walks returns the walks that visit the members. With Redisson the walk along its list comes
// first, because it removes the members that are in the list faster.
func (o *redisOrigin) walks(s *source) []walk {
	switch {
	case s.list != "":
		return []walk{o.walkList, o.walkSet}
	case s.isList:
		return []walk{o.walkIDs}
	}
	return []walk{o.walkSet}
}

// primaries returns the clients of the primaries of a cluster.
func primaries(ctx context.Context, cluster *redis.ClusterClient) ([]redis.Cmdable, error) {
	var mu sync.Mutex
	var out []redis.Cmdable
	err := cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		out = append(out, c)
		return nil
	})
	return out, err
}

// stagingKey returns the key of the staging hash of a set. The key is in the hash slot of the set,
// so that one script may change both.
func stagingKey(set string) string {
	switch {
	case hashTag(set) != set:
		return "punctual-import:" + set
	case !strings.Contains(set, "}"):
		return "punctual-import-of:{" + set + "}"
	}
	// The braces of this key make no hash tag, so any short tag of the same slot is put in front.
	want := slotOf(set)
	for n := 0; ; n++ {
		if tag := strconv.Itoa(n); slotOf(tag) == want {
			return "punctual-import-at:{" + tag + "}:" + set
		}
	}
}

// hashTag returns the part of a key that decides its slot: the text between the first { and the
// next }, or the whole key when there is no such text.
func hashTag(key string) string {
	_, behind, ok := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(behind, "}")
	if !ok || !closed || tag == "" {
		return key
	}
	return tag
}

// slotOf returns the hash slot of a key in Redis Cluster: CRC-16/XMODEM of its hash tag, modulo
// 16384 (Redis Cluster specification, appendix A).
func slotOf(key string) int {
	crc := uint16(0)
	for _, b := range []byte(hashTag(key)) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}

//go:embed lua/take.lua
var takeText string

//go:embed lua/finish.lua
var finishText string

//go:embed lua/adopt.lua
var adoptText string

//go:embed lua/putback.lua
var putBackText string

// runScript runs a script. When an answer is lost the client runs the script again by itself. Every
// script is written so that a second run changes nothing more and gives the same answer, except for
// the answer of finish, which nobody uses.
func (o *redisOrigin) runScript(ctx context.Context, name, text string, keys []string, args []any) ([]int64, error) {
	reply, err := redis.NewScript(text).Run(ctx, o.client, keys, args...).Result()
	if err != nil {
		if _, what, ok := strings.Cut(err.Error(), "PUNCTUAL_TYPE "); ok {
			return nil, storekit.Invalidf("%s: is it another system's?", what)
		}
		return nil, fault(err, "%s on the source", name)
	}
	items, ok := reply.([]any)
	if !ok {
		items = []any{reply}
	}
	out := make([]int64, len(items))
	for i, item := range items {
		if out[i], ok = item.(int64); !ok {
			return nil, fmt.Errorf("%s on the source: its answer cannot be read", name)
		}
	}
	return out, nil
}

// runItems is runScript for a script whose answer has an entry for each of n items.
func (o *redisOrigin) runItems(ctx context.Context, name, text string, keys []string, args []any, n int) ([]int64, error) {
	out, err := o.runScript(ctx, name, text, keys, args)
	if err == nil && len(out) != n && (len(out) != 1 || out[0] != lockHeld) {
		err = fmt.Errorf("%s on the source: %d answers for %d items", name, len(out), n)
	}
	return out, err
}

// setType is the type in Redis of the key set.
func (s *source) setType() string {
	if s.isList {
		return "list"
	}
	return "zset"
}

// keptKey returns the key of the hash of a task while the task is in staging.
func (s *source) keptKey(member string) string { return stagingKey(s.set) + ":t:" + member }

// taskKeys adds the keys of the hashes of tasks, and the keys of their hashes in staging.
func (s *source) taskKeys(keys []string, es []*entry) []string {
	if s.tasks != "" {
		for _, e := range es {
			keys = append(keys, s.tasks+e.member, s.keptKey(e.member))
		}
	}
	return keys
}

// setKeys returns the keys of the set and of its staging hash, beside if it is not empty, and the
// keys of tasks.
func (s *source) setKeys(beside string, es []*entry) []string {
	keys := []string{s.set, stagingKey(s.set)}
	if beside != "" {
		keys = append(keys, beside)
	}
	return s.taskKeys(keys, es)
}

// take moves entries into staging. It returns one of the item constants for each, or a single
// lockHeld.
func (o *redisOrigin) take(ctx context.Context, s *source, es []*entry) ([]int64, error) {
	args := []any{string(s.kind), s.setType(), s.compared}
	for _, field := range s.fields[:s.compared] {
		args = append(args, field)
	}
	for _, e := range es {
		sum := ""
		if s.tasks != "" {
			sum = e.task.sum(s.compared)
		}
		args = append(args, e.member, formatScore(e.score), e.text, sum)
	}
	beside := s.list
	if s.lock != "" {
		beside = s.lock
	}
	return o.runItems(ctx, "take", takeText, s.setKeys(beside, es), args, len(es))
}

// finish ends the staging of entries.
func (o *redisOrigin) finish(ctx context.Context, s *source, es []*entry) error {
	if len(es) == 0 {
		return nil
	}
	keys, args := []string{stagingKey(s.set)}, []any{string(s.kind)}
	for _, e := range es {
		if s.tasks != "" {
			keys = append(keys, s.keptKey(e.member))
		}
		args = append(args, e.member, e.text)
	}
	_, err := o.runScript(ctx, "finish", finishText, keys, args)
	return err
}

// adopt replaces the records of staged entries. It returns itemDone for the entries that still had
// their old records.
func (o *redisOrigin) adopt(ctx context.Context, s *source, es []*entry, old []string) ([]int64, error) {
	var args []any
	for i, e := range es {
		args = append(args, e.member, old[i], e.text)
	}
	return o.runItems(ctx, "adopt", adoptText, []string{stagingKey(s.set)}, args, len(es))
}

// putBack returns staged entries to the other system. It returns one of the item constants for
// each.
func (o *redisOrigin) putBack(ctx context.Context, s *source, es []*entry) ([]int64, error) {
	args := []any{string(s.kind), s.setType()}
	for _, e := range es {
		args = append(args, e.member, e.record.Score, e.text)
	}
	return o.runItems(ctx, "put back", putBackText, s.setKeys(s.list, es), args, len(es))
}

// A walk reads firstPage members at first, and then pages of twice as many each time, up to maxPage
// members. After a page of more than pageBytes it reads fewer.
const (
	firstPage = 16
	maxPage   = 500
	pageBytes = 1 << 20
)

// pager decides how many members to read next.
type pager struct{ size int }

func (p *pager) next() int64 {
	if p.size == 0 {
		p.size = firstPage
	}
	return int64(p.size)
}

// saw sets the size of the next page by the bytes of the last one.
func (p *pager) saw(es []*entry) {
	bytes := 0
	for _, e := range es {
		bytes += len(e.member) + len(e.row.body)
		for _, value := range e.task.values {
			bytes += len(value)
		}
		if e.got != nil {
			bytes += len(e.got.body)
		}
	}
	if bytes > pageBytes {
		p.size = max(1, p.size*pageBytes/bytes)
	} else {
		p.size = min(2*p.size, maxPage)
	}
}

// visitor handles a page of entries and returns for each whether it stays in the source.
type visitor func(ctx context.Context, es []*entry) (stay []bool, err error)

// walkSet calls visit with every member of the sorted set, the earliest first. Other programs may
// change the set meanwhile; walkSet does not visit a member that is added with an earlier score
// than it has reached.
func (o *redisOrigin) walkSet(ctx context.Context, s *source, visit visitor) error {
	var p pager
	from, skip := math.Inf(-1), int64(0)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		es, err := o.readSet(ctx, s, from, skip, p.next())
		if err != nil || len(es) == 0 {
			return err
		}
		stay, err := visit(ctx, es)
		if err != nil {
			return err
		}
		p.saw(es)
		// Continue behind the members with the last score that stay in the set.
		if last := es[len(es)-1].score; last != from {
			from, skip = last, 0
		}
		for i, e := range es {
			if stay[i] && e.score == from {
				skip++
			}
		}
	}
}

// readSet reads up to n members with a score of at least from, without the first skip of them.
func (o *redisOrigin) readSet(ctx context.Context, s *source, from float64, skip, n int64) ([]*entry, error) {
	zs, err := o.client.ZRangeByScoreWithScores(ctx, s.set, &redis.ZRangeBy{
		Min: strconv.FormatFloat(from, 'g', -1, 64), Max: "+inf", Offset: skip, Count: n,
	}).Result()
	if err != nil {
		return nil, fault(err, "read %s", s.set)
	}
	var es []*entry
	for _, z := range zs {
		member, ok := z.Member.(string)
		if !ok {
			return nil, fmt.Errorf("read %s: a member is not a string", s.set)
		}
		es = append(es, &entry{member: member, score: z.Score})
	}
	return es, o.readTasks(ctx, s, es, func(e *entry) string { return s.tasks + e.member })
}

// readTasks reads the hashes of the tasks of asynq or BullMQ.
func (o *redisOrigin) readTasks(ctx context.Context, s *source, es []*entry, key func(*entry) string) error {
	if s.tasks == "" || len(es) == 0 {
		return nil
	}
	pipe := o.client.Pipeline()
	var replies []*redis.SliceCmd
	var flows []*redis.IntCmd
	for _, e := range es {
		replies = append(replies, pipe.HMGet(ctx, key(e), s.fields...))
		if s.kind == BullMQ {
			flows = append(flows, pipe.Exists(ctx, s.tasks+e.member+":dependencies", s.tasks+e.member+":processed"))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fault(err, "read the tasks of %s", s.set)
	}
	for i, e := range es {
		e.task.values = make([]string, len(s.fields))
		e.task.parent = s.kind == BullMQ && flows[i].Val() > 0
		for j, v := range replies[i].Val() {
			e.task.values[j], _ = v.(string)
			e.task.found = e.task.found || j == 0 && v != nil
		}
	}
	return nil
}

// walkList calls visit with the members in the order of Redisson's list. To remove a member Redis
// goes through the list in front of it, in which with this order there are only members that stay.
func (o *redisOrigin) walkList(ctx context.Context, s *source, visit visitor) error {
	return walkPages(ctx, visit, func(skip, n int64) (es []*entry, others int, err error) {
		members, err := o.client.LRange(ctx, s.list, skip, skip+n-1).Result()
		if err != nil {
			return nil, 0, fault(err, "read %s", s.list)
		}
		if len(members) > 0 {
			es, err = o.withScores(ctx, s, members)
		}
		return es, len(members) - len(es), err // members without a score are not in the set
	})
}

// walkIDs calls visit with the members of a list of BullMQ or Celery, from its right end, where the
// workers take from it. So they come in the order in which they wait.
func (o *redisOrigin) walkIDs(ctx context.Context, s *source, visit visitor) error {
	return walkPages(ctx, visit, func(skip, n int64) (es []*entry, _ int, err error) {
		ids, err := o.client.LRange(ctx, s.set, -skip-n, -skip-1).Result()
		if err != nil {
			return nil, 0, fault(err, "read %s", s.set)
		}
		for _, id := range slices.Backward(ids) {
			es = append(es, &entry{member: id})
		}
		return es, 0, o.readTasks(ctx, s, es, func(e *entry) string { return s.tasks + e.member })
	})
}

// walkPages calls visit with what read returns: up to n entries of a list without its first skip
// members, and how many others are among those. The walk ends where there are neither.
func walkPages(ctx context.Context, visit visitor, read func(skip, n int64) (es []*entry, others int, err error)) error {
	var p pager
	skip := int64(0)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		es, others, err := read(skip, p.next())
		if err != nil || len(es)+others == 0 {
			return err
		}
		skip += int64(others)
		if len(es) == 0 {
			continue
		}
		stay, err := visit(ctx, es)
		if err != nil {
			return err
		}
		p.saw(es)
		for _, stays := range stay {
			if stays {
				skip++
			}
		}
	}
}

// withScores makes entries of the members that are in the set.
func (o *redisOrigin) withScores(ctx context.Context, s *source, members []string) ([]*entry, error) {
	pipe := o.client.Pipeline()
	var replies []*redis.FloatCmd
	for _, m := range members {
		replies = append(replies, pipe.ZScore(ctx, s.set, m))
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fault(err, "read %s", s.set)
	}
	var es []*entry
	for i, m := range members {
		score, err := replies[i].Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return nil, fault(err, "read %s", s.set)
		}
		es = append(es, &entry{member: m, score: score})
	}
	return es, nil
}
