package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// This scenario measures how late messages are delivered where one worker serves many topics, each
// of which has few messages.

const (
	topicsScenario = "topics/redis"
	// topicsRate is how many messages a second become due, in all topics together. Each message is
	// in another topic than the one before.
	topicsRate = 500
)

// manyTopics returns how many topics there are: 10,000 at the full sizes.
func manyTopics(z sizes) int { return min(10_000, z.RedisPending/10) }

// numberedTopic returns the name of a topic with a number.
func numberedTopic(n int) string { return fmt.Sprintf("%s-%d", topic, n) }

func redisTopicsScenarios() []scenario {
	return []scenario{{
		name: topicsScenario, about: fmt.Sprintf("lateness at %d messages a second in 10,000 topics of one worker, on Redis", topicsRate), maxRounds: 2,
		takes: func(z sizes) time.Duration { return z.RedisWindow + lateLead + 12*time.Second }, run: runRedisTopics,
	}}
}

// topicsSystem pushes each letter to a topic that depends on the letter's number, so that the
// letters spread evenly over the topics.
type topicsSystem struct {
	*punctualSystem
	topics int
}

func (s topicsSystem) push(ctx context.Context, _ int, ls []letter) error {
	ms := make([]punctual.NewMessage, len(ls))
	for i, l := range ls {
		// Each letter goes 7919 topics further than the one before it, so that letters that are due
		// one after the other are far apart in the order of the topics' names. 7919 is a prime
		// number, so that every topic gets letters.
		ms[i] = punctual.NewMessage{Topic: numberedTopic(int(l.seq) * 7919 % s.topics), Body: l.body(), Due: l.due}
	}
	return checkPushed(s.queue.PushMany(ctx, ms))
}

func (s topicsSystem) pending(ctx context.Context) (n int64, err error) {
	all, err := s.store.Topics(ctx)
	if err != nil {
		return 0, err
	}
	for _, t := range all {
		st, err := s.store.Stats(ctx, t.Topic)
		if err != nil {
			return 0, err
		}
		n += st.Scheduled + st.Ready + st.Leased + st.Dead
	}
	return n, nil
}

func runRedisTopics(ctx context.Context, e *env) error {
	return e.withRedis(ctx, everySecond, func(s *redisServer) error {
		own, err := openPunctual(ctx, s)
		if err != nil {
			return err
		}
		return errors.Join(topicsLateness(ctx, e, s, topicsSystem{own, manyTopics(e.sizes)}), own.close())
	})
}

// topicsLateness gives each topic a message that is due in a year, has one worker wait for all
// topics, and puts the load on it.
func topicsLateness(ctx context.Context, e *env, s *redisServer, sys topicsSystem) error {
	e.say("%d topics come into being", sys.topics)
	for n := 0; n < sys.topics; n += redisFill {
		ls := make([]letter, min(redisFill, sys.topics-n))
		for i := range ls {
			ls[i] = letter{uint32(n + i), ceilMillis(time.Now().Add(365 * 24 * time.Hour))}
		}
		if err := sys.push(ctx, 0, ls); err != nil {
			return err
		}
	}
	f, err := e.startFleet(ctx, 1, consumerTask{System: sysPunctual, Addr: s.addr, Slots: redisHands, Topics: sys.topics})
	if err != nil {
		return err
	}
	if err := sleepUntil(ctx, time.Now().Add(3*time.Second)); err != nil { // time for the worker to ask for most topics once
		_, serr := f.stop()
		return errors.Join(err, serr)
	}
	x := redisLateness{topicsRate, sysPunctual, 1}
	if err := x.load(ctx, e, s, sys, f); err != nil {
		return err
	}
	return expectPending(ctx, sys, int64(sys.topics))
}
