package redisstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
)

// A server that has reached maxmemory refuses pushes. Calls that free memory or steer the work
// pass, because their scripts begin with a command that such a server carries out.
func TestOutOfMemoryLetsThrough(t *testing.T) {
	server := redisrig.Start(t)
	settle := func(v punctual.Verb) func(context.Context, *Store, punctual.Delivery) error {
		return func(ctx context.Context, s *Store, held punctual.Delivery) error {
			x := punctual.Settlement{Topic: held.Topic, ID: held.ID, Token: held.Token, Verb: v, Error: "no"}
			if v == punctual.SettleRetry || v == punctual.SettleSnooze || v == punctual.SettleExtend {
				x.Delay = time.Minute
			}
			errs, err := s.Settle(ctx, []punctual.Settlement{x})
			return errors.Join(append(errs, err)...)
		}
	}
	amend := func(id string, c punctual.Change, delay time.Duration, want error) func(context.Context, *Store, punctual.Delivery) error {
		return func(ctx context.Context, s *Store, _ punctual.Delivery) error {
			out, err := s.Amend(ctx, []punctual.Amendment{{Topic: "orders", ID: id, Change: c, Delay: delay}})
			if err == nil && !errors.Is(out[0].Err, want) {
				t.Errorf("%v of %s = %+v; want %v", c, id, out[0], want)
			}
			return err
		}
	}
	configure := func(patch punctual.SettingsPatch) func(context.Context, *Store, punctual.Delivery) error {
		return func(ctx context.Context, s *Store, _ punctual.Delivery) error {
			_, err := s.Configure(ctx, "orders", patch)
			return err
		}
	}
	on := true
	for name, change := range map[string]func(context.Context, *Store, punctual.Delivery) error{
		"ack":                    settle(punctual.SettleAck),
		"retry":                  settle(punctual.SettleRetry),
		"snooze":                 settle(punctual.SettleSnooze),
		"discard":                settle(punctual.SettleDiscard),
		"release":                settle(punctual.SettleRelease),
		"extend":                 settle(punctual.SettleExtend),
		"cancel":                 amend("scheduled", punctual.ChangeCancel, 0, nil),
		"cancel of a leased one": amend("leased", punctual.ChangeCancel, 0, punctual.ErrLeased),
		"reschedule":             amend("scheduled", punctual.ChangeReschedule, time.Minute, nil),
		"reschedule to be ready": amend("scheduled", punctual.ChangeReschedule, 0, nil),
		"requeue":                amend("dead", punctual.ChangeRequeue, 0, nil),
		"pause of delivery":      configure(punctual.SettingsPatch{DeliveryPaused: &on}),
		"pause of pushes":        configure(punctual.SettingsPatch{PushPaused: &on}),
		"claim": func(ctx context.Context, s *Store, _ punctual.Delivery) error {
			_, err := s.Claim(ctx, orders(0))
			return err
		},
		"purge": func(ctx context.Context, s *Store, _ punctual.Delivery) error {
			_, err := s.Purge(ctx, punctual.PurgeQuery{Topic: "orders"})
			return err
		},
		"deletion": func(ctx context.Context, s *Store, _ punctual.Delivery) error {
			_, err := s.DeleteTopic(ctx, "orders")
			return err
		},
		"the check of the server": func(ctx context.Context, s *Store, _ punctual.Delivery) error { return s.health.CheckRunning(ctx) },
	} {
		for _, partitions := range []int{1, 4} {
			s := openStore(t, connect(t, server), &Options{Prefix: fresh(), Partitions: partitions})
			if partitions == 4 {
				keepFinished(t, s, time.Hour)
			}
			held := situations(t, s)
			do(t, server, "CONFIG", "SET", "maxmemory", "1")
			_, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "more"}})
			if !errors.Is(err, punctual.ErrNoSpace) || !punctual.Definite(err) {
				t.Fatalf("this test shows nothing: push to a server out of memory = %v; want ErrNoSpace", err)
			}
			if err := change(t.Context(), s, held); err != nil {
				t.Errorf("%s on a server out of memory, with %d partitions = %v; want it to pass", name, partitions, err)
			}
			do(t, server, "CONFIG", "SET", "maxmemory", "0")
			wantSound(t, s)
		}
	}
}
