package route

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/punctualmq/punctual/redisstore/internal/errkind"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/redis/go-redis/v9"
)

// When the store's clock steps back, each partition makes the step when it is next asked
// (lua/step.lua): leases and all that has ended in one go, before anything else, and then the
// messages that wait. Of these the call that met the step moves those that are due first, and a
// goroutine of this process the rest.

// movedAtOnce is how many pieces of waiting messages the call that met a step has moved before it
// goes on.
const movedAtOnce = 50

// movingPartitions are the partitions whose waiting messages this process moves.
type movingPartitions struct {
	mu sync.Mutex
	of map[string]bool // guarded by mu: by Partition.Tag
}

// step has a partition make its next step of the clock, because a script has answered that it needs
// that; err is the answer.
func (r *Router) step(ctx context.Context, err error) error {
	_, text, _ := strings.Cut(err.Error(), script.StepMark)
	steps, key, _ := strings.Cut(text, " ")
	made, err := strconv.ParseInt(steps, 10, 64)
	if err != nil || key == "" {
		return fmt.Errorf("%q does not name a step of the clock: %w", text, script.BadReply(script.Step))
	}
	p := keys.Partition{Tag: key[:len(key)-1]}
	last, err := r.client.HGet(ctx, r.o.Names.Store(), script.StepField(made+1)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("HGET: %w", errkind.OfRead(err))
	}
	var from, to any = "", "" // lost by a failover
	if a, b, ok := script.StepOf(last); ok {
		from, to = a, b
	}
	for moved := 0; moved < movedAtOnce; {
		switch state, err := r.stepPiece(ctx, p, made+1, from, to); {
		case err != nil:
			return err
		case state == stepDone:
			return nil
		case state == stepWaiting:
			moved++
		}
	}
	r.Move(p)
	return nil
}

// What lua/step.lua answers.
const (
	stepDone     = 0
	stepUnderWay = 1
	stepWaiting  = 2 // only messages that wait are left
)

// stepPiece has a partition make a piece of a step, after which it will have made so many steps as
// era says. With era 0 no step begins.
func (r *Router) stepPiece(ctx context.Context, p keys.Partition, era int64, from, to any) (int64, error) {
	if err := ctx.Err(); err != nil {
		return stepUnderWay, err
	}
	h := r.header(0, 0)
	h.Stepping, h.Era = true, era
	reply, err := r.Send(ctx, script.Step, r.keyArgs.Of(p), []any{h, "*", from, to})
	if err != nil {
		return stepUnderWay, err
	}
	a := script.Reader{Items: reply}
	state := a.Int()
	if a.Bad {
		return stepUnderWay, script.BadReply(script.Step)
	}
	return state, nil
}

// Move moves the waiting messages of a partition that has made a step of the clock, in the
// background, unless this process does so already. What it leaves when it fails or the store
// closes, the next process finds that asks the partition.
func (r *Router) Move(p keys.Partition) {
	m := &r.moving
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of[p.Tag] {
		return
	}
	if m.of == nil {
		m.of = make(map[string]bool)
	}
	m.of[p.Tag] = true
	r.work.Go(func() {
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.of, p.Tag)
		}()
		for {
			select {
			case <-r.o.Closing:
				return
			default:
			}
			if state, err := r.stepPiece(context.Background(), p, 0, "", ""); err != nil || state == stepDone {
				return
			}
		}
	})
}
