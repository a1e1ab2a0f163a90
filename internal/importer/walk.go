package importer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/redis/go-redis/v9"
)

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
		bytes += len(e.member) + len(e.task.msg) + len(e.row.body)
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

// readTasks reads the hashes of asynq's tasks.
func (o *redisOrigin) readTasks(ctx context.Context, s *source, es []*entry, key func(*entry) string) error {
	if s.tasks == "" || len(es) == 0 {
		return nil
	}
	pipe := o.client.Pipeline()
	var replies []*redis.SliceCmd
	for _, e := range es {
		replies = append(replies, pipe.HMGet(ctx, key(e), "msg", "group", "unique_key"))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fault(err, "read the tasks of %s", s.set)
	}
	for i, e := range es {
		v := replies[i].Val()
		e.task.msg, e.task.found = v[0].(string)
		e.task.group, _ = v[1].(string)
		e.task.lock, _ = v[2].(string)
	}
	return nil
}

// walkList calls visit with the members in the order of Redisson's list. To remove a member Redis
// goes through the list in front of it, in which with this order there are only members that stay.
func (o *redisOrigin) walkList(ctx context.Context, s *source, visit visitor) error {
	var p pager
	skip := int64(0)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		members, err := o.client.LRange(ctx, s.list, skip, skip+p.next()-1).Result()
		if err != nil {
			return fault(err, "read %s", s.list)
		}
		if len(members) == 0 {
			return nil
		}
		es, err := o.withScores(ctx, s, members)
		if err != nil {
			return err
		}
		skip += int64(len(members) - len(es)) // members without a score are not in the set
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
