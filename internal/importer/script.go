package importer

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/punctualmq/punctual/storekit"
	"github.com/redis/go-redis/v9"
)

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

// keptKey returns the key of the hash of an asynq task while the task is in staging.
func (s *source) keptKey(member string) string { return stagingKey(s.set) + ":t:" + member }

// taskKeys adds the keys of asynq's tasks, and the keys of their hashes in staging.
func (s *source) taskKeys(keys []string, es []*entry) []string {
	if s.tasks != "" {
		for _, e := range es {
			keys = append(keys, s.tasks+e.member, s.keptKey(e.member))
		}
	}
	return keys
}

// setKeys returns the keys of the set and of its staging hash, beside if it is not empty, and the
// keys of asynq's tasks.
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
	args := []any{string(s.kind)}
	for _, e := range es {
		sum := ""
		if s.tasks != "" {
			sum = e.task.sum()
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
	args := []any{string(s.kind)}
	for _, e := range es {
		args = append(args, e.member, e.record.Score, e.text)
	}
	return o.runItems(ctx, "put back", putBackText, s.setKeys(s.list, es), args, len(es))
}
