package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/bulk"
	"github.com/punctualmq/punctual/duty"
	"github.com/punctualmq/punctual/pgstore"
)

// These scenarios measure what it costs when one message leads to others, and when many messages
// change at once. An ack with a follow-up is compared with a push and an ack, and copies for three
// groups with three pushes. What is compared takes turns on one store, so that a slow moment of the
// machine hits both. The third is a shift of many messages, beside which nothing stands.

const (
	followTurns  = 6    // turns of each way in a round
	followEach   = 6000 // messages of each turn
	groupTurns   = 4    // the same for groups
	groupEach    = 6000
	bulkScenario = "bulk/shift"
)

// followGroups are the groups whose topics get copies.
var followGroups = []string{"billing", "mail", "stock"}

// followStores are the stores on which follow-ups and groups are measured. The shift is measured on
// the embedded store only.
var followStores = []struct {
	name string
	with func(context.Context, *env, func(punctual.Store) error) error
}{
	{"disk", withDiskStore}, {"redis", withRedisStore}, {"postgres", withPostgresStore},
}

// followShapes are the ways of calling Settle: how many settlements are in a call, and how many
// callers there are.
var followShapes = []struct{ batch, callers int }{{1, 16}, {100, 2}}

func onFollow(scenario string) bool {
	return strings.HasPrefix(scenario, "follow/") || strings.HasPrefix(scenario, "groups/") || scenario == bulkScenario
}

func followName(store string, batch int) string { return fmt.Sprintf("follow/%s-%d", store, batch) }

func groupsName(store string) string { return "groups/" + store }

func followScenarios() []scenario {
	var all []scenario
	for _, s := range followStores {
		for _, shape := range followShapes {
			all = append(all, scenario{
				name:  followName(s.name, shape.batch),
				about: fmt.Sprintf("an ack with a follow-up beside a push and an ack, %d in a call by %d callers, on %s", shape.batch, shape.callers, s.name),
				takes: func(sizes) time.Duration { return 20 * time.Second },
				run: func(ctx context.Context, e *env) error {
					return s.with(ctx, e, func(store punctual.Store) error { return runFollow(ctx, e, store, shape.batch, shape.callers) })
				},
			})
		}
		all = append(all, scenario{
			name: groupsName(s.name), about: "copies for three groups beside three pushes by a handler, on " + s.name,
			takes: func(sizes) time.Duration { return 20 * time.Second },
			run: func(ctx context.Context, e *env) error {
				return s.with(ctx, e, func(store punctual.Store) error { return runGroups(ctx, e, store) })
			},
		})
	}
	return append(all, scenario{
		name: bulkScenario, about: "a shift of as many messages as fall due in one instant elsewhere, in a directory", maxRounds: 3,
		takes: func(z sizes) time.Duration { return time.Duration(z.Burst) * 40 * time.Microsecond }, run: runShift,
	})
}

func withDiskStore(_ context.Context, e *env, f func(punctual.Store) error) error {
	store, err := openStore(e)
	if err != nil {
		return err
	}
	return closeStore(store, f(store))
}

func withRedisStore(ctx context.Context, e *env, f func(punctual.Store) error) error {
	return e.withRedis(ctx, everySecond, func(s *redisServer) error {
		store, err := openRedisStore(ctx, s.addr)
		if err != nil {
			return err
		}
		return closeStore(store, f(store))
	})
}

func withPostgresStore(ctx context.Context, e *env, f func(punctual.Store) error) error {
	return e.withPostgres(ctx, func(s *postgresServer) error {
		store, err := pgstore.Open(ctx, s.pool, &pgstore.Options{Migrate: true})
		if err != nil {
			return err
		}
		return closeStore(store, f(store))
	})
}

// runFollow measures how long it takes to ack claimed messages with a follow-up each: in turns by a
// push and an ack ("apart"), and by one settlement with the follow-up ("then"). The follow-ups go
// to a companion topic, because every store can write a message and its follow-up there in one
// step, and are due in an hour.
func runFollow(ctx context.Context, e *env, store punctual.Store, batch, callers int) error {
	const next = topic + "@next"
	follow := func(d *punctual.Delivery) punctual.NewMessage {
		return punctual.NewMessage{Topic: next, ID: d.ID + "~next", Body: d.Body, Delay: time.Hour}
	}
	apart := func(ctx context.Context, ds []punctual.Delivery) error {
		ms := make([]punctual.NewMessage, len(ds))
		for i := range ds {
			ms[i] = follow(&ds[i])
		}
		if err := stored(store.Push(ctx, ms)); err != nil {
			return err
		}
		return settled(ctx, store, ds, nil)
	}
	then := func(ctx context.Context, ds []punctual.Delivery) error { return settled(ctx, store, ds, follow) }
	spent := map[string]time.Duration{}
	for turn := range 2 * followTurns {
		way, settle := "apart", apart
		if turn%2 == 1 {
			way, settle = "then", then
		}
		e.say("turn %d of %d: %s", turn/2+1, followTurns, way)
		if err := pushDue(ctx, store, topic, followEach); err != nil {
			return err
		}
		ds, err := claimAll(ctx, store, followEach)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := inParts(ctx, callers, batch, ds, settle); err != nil {
			return err
		}
		spent[way] += time.Since(began)
	}
	each := func(way string) float64 { return float64(spent[way].Microseconds()) / (followTurns * followEach) }
	e.out.set("apart_us", each("apart"))
	e.out.set("then_us", each("then"))
	e.out.set("ratio", each("then")/each("apart"))
	return nil
}

// runGroups measures how many messages a second get their copies in every group. In turns with that
// it measures a handler that pushes three messages for each message it has claimed, and acks it.
func runGroups(ctx context.Context, e *env, store punctual.Store) error {
	inspector, err := punctual.As[punctual.Inspector](store)
	if err != nil {
		return err
	}
	if _, err := inspector.Configure(ctx, topic, punctual.SettingsPatch{Groups: &followGroups}); err != nil {
		return err
	}
	pushed := func(ctx context.Context, ds []punctual.Delivery) error {
		var ms []punctual.NewMessage
		for i := range ds {
			for _, g := range followGroups {
				ms = append(ms, punctual.NewMessage{Topic: "by-hand-" + g, ID: ds[i].ID, Body: ds[i].Body})
			}
		}
		if err := stored(store.Push(ctx, ms)); err != nil {
			return err
		}
		return settled(ctx, store, ds, nil)
	}
	spent := map[string]time.Duration{}
	for turn := range 2 * groupTurns {
		e.say("turn %d of %d", turn/2+1, groupTurns)
		if turn%2 == 0 {
			if err := pushDue(ctx, store, topic, groupEach); err != nil {
				return err
			}
			began := time.Now()
			if err := copyAll(ctx, store, inspector, int64((turn/2+1)*groupEach)); err != nil {
				return err
			}
			spent["groups"] += time.Since(began)
			continue
		}
		if err := pushDue(ctx, store, "by-hand", groupEach); err != nil {
			return err
		}
		began := time.Now()
		err := inParallel(ctx, 2, func(ctx context.Context, _ int) error {
			for {
				ds, err := store.Claim(ctx, punctual.Claim{Topics: []string{"by-hand"}, Max: 100, Lease: time.Minute})
				if err != nil || len(ds) == 0 {
					return err
				}
				if err := pushed(ctx, ds); err != nil {
					return err
				}
			}
		})
		if err != nil {
			return err
		}
		spent["pushes"] += time.Since(began)
	}
	rate := func(way string) float64 { return groupTurns * groupEach / spent[way].Seconds() }
	e.out.set("groups_rate", rate("groups"))
	e.out.set("pushes_rate", rate("pushes"))
	e.out.set("ratio", rate("groups")/rate("pushes"))
	return nil
}

// copyAll runs the duties until every group has n ready messages.
func copyAll(ctx context.Context, store punctual.Store, inspector punctual.Inspector, n int64) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- duty.Run(ctx, store, nil) }()
	for {
		complete := true
		for _, g := range followGroups {
			st, err := inspector.Stats(ctx, punctual.GroupTopic(topic, g))
			if err != nil {
				stop()
				return errors.Join(err, <-ended)
			}
			complete = complete && st.Ready == n
		}
		if complete {
			stop()
			return <-ended
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the duties ended before all was copied: %w", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// runShift fills the embedded store and measures how many messages a second a bulk change moves by
// an hour.
func runShift(ctx context.Context, e *env) error {
	return withDiskStore(ctx, e, func(store punctual.Store) error {
		e.say("pushing %d messages", e.sizes.Burst)
		var left atomic.Int64
		left.Store(int64(e.sizes.Burst))
		err := inParallel(ctx, 2, func(ctx context.Context, _ int) error {
			for {
				n := min(1000, left.Add(-1000)+1000)
				if n <= 0 {
					return nil
				}
				ms := make([]punctual.NewMessage, n)
				farMessages(ms)
				if err := stored(store.Push(ctx, ms)); err != nil {
					return err
				}
			}
		})
		if err != nil {
			return err
		}
		e.say("moving %d messages", e.sizes.Burst)
		began := time.Now()
		report, err := bulk.Run(ctx, punctual.NewQueue(store, nil), bulk.Job{Do: bulk.Shift, By: time.Hour, Select: bulk.Selection{Topic: topic}})
		if err != nil {
			return err
		}
		if report.Done != int64(e.sizes.Burst) {
			return fmt.Errorf("moved %d of %d messages: %+v", report.Done, e.sizes.Burst, report)
		}
		e.out.set("rate", float64(report.Done)/time.Since(began).Seconds())
		return nil
	})
}

// pushDue pushes n messages that are due immediately.
func pushDue(ctx context.Context, store punctual.Store, topic string, n int) error {
	for done := 0; done < n; done += 1000 {
		ms := make([]punctual.NewMessage, min(1000, n-done))
		for i := range ms {
			ms[i] = punctual.NewMessage{Topic: topic, Body: randomBody()}
		}
		if err := stored(store.Push(ctx, ms)); err != nil {
			return err
		}
	}
	return nil
}

// claimAll claims n messages, and returns an error when none comes for a minute.
func claimAll(ctx context.Context, store punctual.Store, n int) ([]punctual.Delivery, error) {
	var all []punctual.Delivery
	for len(all) < n {
		ds, err := store.Claim(ctx, punctual.Claim{Topics: []string{topic}, Max: 1000, Lease: time.Hour, Wait: time.Minute})
		if err != nil || len(ds) == 0 {
			return nil, errors.Join(err, fmt.Errorf("claimed %d of %d messages", len(all), n))
		}
		all = append(all, ds...)
	}
	return all, nil
}

// inParts has several callers settle ds in parts of batch messages.
func inParts(ctx context.Context, callers, batch int, ds []punctual.Delivery, settle func(context.Context, []punctual.Delivery) error) error {
	var next atomic.Int64
	return inParallel(ctx, callers, func(ctx context.Context, _ int) error {
		for {
			to := int(next.Add(int64(batch)))
			if to-batch >= len(ds) {
				return nil
			}
			if err := settle(ctx, ds[to-batch:min(to, len(ds))]); err != nil {
				return err
			}
		}
	})
}

// settled acks messages by one call. If follow is not nil, each ack carries the follow-up that
// follow returns.
func settled(ctx context.Context, store punctual.Store, ds []punctual.Delivery, follow func(*punctual.Delivery) punctual.NewMessage) error {
	ss := make([]punctual.Settlement, len(ds))
	for i := range ds {
		ss[i] = punctual.Settlement{Topic: ds[i].Topic, ID: ds[i].ID, Token: ds[i].Token, Verb: punctual.SettleAck}
		if follow != nil {
			ss[i].Then = []punctual.NewMessage{follow(&ds[i])}
		}
	}
	answers, err := store.Settle(ctx, ss)
	return errors.Join(append(answers, err)...)
}

// stored returns the errors of a push: that of the call, and those of the messages.
func stored(rs []punctual.PushResult, err error) error {
	for _, r := range rs {
		err = errors.Join(err, r.Err)
	}
	return err
}

// followTables are the tables about follow-ups, groups and bulk changes.
var followTables = []table{{"follow", followTable}, {"groups", groupsTable}, {"bulk", bulkTable}}

func followTable(r run) string {
	var rows []row
	for _, s := range followStores {
		for _, shape := range followShapes {
			rows = append(rows, row{s.name + ": " + callersLabel(shape.callers, shape.batch), followName(s.name, shape.batch)})
		}
	}
	return scenarioTable(r, "settled on", rows, value("push and ack apart, µs", "apart_us", digits), value("ack with the follow-up, µs", "then_us", digits),
		value("ratio", "ratio", ratio), othersColumn, roundsColumn)
}

func groupsTable(r run) string {
	var rows []row
	for _, s := range followStores {
		rows = append(rows, row{s.name, groupsName(s.name)})
	}
	return scenarioTable(r, "on", rows, value("messages/s to three groups", "groups_rate", digits), value("messages/s, three pushes each", "pushes_rate", digits),
		value("ratio", "ratio", ratio), othersColumn, roundsColumn)
}

func bulkTable(r run) string {
	return scenarioTable(r, "moved", []row{{fmt.Sprintf("%s messages of a topic, by an hour", commas(int64(r.machine.Sizes.Burst))), bulkScenario}},
		value("messages/s", "rate", digits), othersColumn, roundsColumn)
}
