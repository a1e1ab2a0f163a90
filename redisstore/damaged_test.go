package redisstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/script"
)

// readings returns calls that read in the topic filled by scene, and a claim that waits, because
// its polls read, too.
func readings() []verb {
	var out []verb
	read := func(name string, call func(ctx context.Context, s *Store) error) {
		out = append(out, verb{name, script.Get, func(ctx context.Context, s *Store, _ punctual.Delivery) (string, error) { return "", call(ctx, s) }})
	}
	read("get", func(ctx context.Context, s *Store) error { _, err := s.Get(ctx, "orders", "later"); return err })
	read("list", func(ctx context.Context, s *Store) error {
		_, err := s.List(ctx, punctual.ListQuery{Topic: "orders", State: punctual.StateScheduled})
		return err
	})
	read("stats", func(ctx context.Context, s *Store) error { _, err := s.Stats(ctx, "orders"); return err })
	read("settings", func(ctx context.Context, s *Store) error { _, err := s.Settings(ctx, "orders"); return err })
	read("a claim that waits", func(ctx context.Context, s *Store) error {
		_, err := s.Claim(ctx, punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: time.Millisecond})
		return err
	})
	return out
}

// P13: a number in a partition's settings that cannot be read is ErrCorrupt, for reads too, and
// nothing was changed. A call that does not need the number may pass.
func TestSlowDamagedNumbers(t *testing.T) {
	fields := []string{"version", "clock", "token", "lease", "max_attempts", "dedupe_window", "dead_retention", "finished_retention", "gone", "lengths", "delays", "jitter"}
	always := map[string]bool{"version": true, "clock": true} // every script needs these
	noticed := make(map[string]bool)
	all := append(everyCall(), readings()...)
	all = append(all, verb{"acks alone", script.Settle, func(ctx context.Context, s *Store, held punctual.Delivery) (string, error) {
		_, err := s.Settle(ctx, []punctual.Settlement{{Topic: held.Topic, ID: held.ID, Token: held.Token, Verb: punctual.SettleAck}})
		return "", err
	}}, verb{"retries with the topic's backoff", script.Settle, func(ctx context.Context, s *Store, held punctual.Delivery) (string, error) {
		snooze := punctual.Settlement{Topic: held.Topic, ID: held.ID, Token: held.Token, Verb: punctual.SettleExtend, Delay: time.Hour}
		retry := punctual.Settlement{Topic: held.Topic, ID: held.ID, Token: held.Token, Verb: punctual.SettleRetry, Delay: punctual.UseBackoff}
		_, err := s.Settle(ctx, []punctual.Settlement{snooze, retry})
		return "", err
	}})
	for _, general := range []func() bool{nil, func() bool { return true }} {
		for _, v := range all {
			if v.script == script.Delete {
				continue // a deletion needs few of the numbers, and ends the topic
			}
			s, _ := openStill(t, Options{general: general})
			held := scene(t, s)
			keepFinished(t, s, time.Hour)
			g := s.names.Partition("orders", 0).Keys()[6]
			for _, field := range fields {
				good, err := s.client.HGet(t.Context(), g, field).Result()
				missing := err != nil
				for _, bad := range []string{"planted", "", "nan"} {
					if err := s.client.HSet(t.Context(), g, field, bad).Err(); err != nil {
						t.Fatal(err)
					}
					left := contents(t, s)
					_, err := v.call(t.Context(), s, held)
					if err == nil { // the scene is another one now
						if always[field] {
							t.Errorf("P13: %s passes with %q in %s", v.name, bad, field)
						}
						s, _ = openStill(t, Options{general: general})
						held = scene(t, s)
						keepFinished(t, s, time.Hour)
						g = s.names.Partition("orders", 0).Keys()[6]
						continue
					}
					noticed[field] = true
					if !errors.Is(err, punctual.ErrCorrupt) || !punctual.Definite(err) {
						t.Errorf("P13: %s with %q in %s = %v; want ErrCorrupt", v.name, bad, field, err)
					}
					if got := contents(t, s); got != left {
						t.Errorf("P13: %s with %q in %s has changed\n%s\nto\n%s", v.name, bad, field, left, got)
					}
				}
				if missing {
					err = s.client.HDel(t.Context(), g, field).Err()
				} else {
					err = s.client.HSet(t.Context(), g, field, good).Err()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, field := range fields {
		if !noticed[field] {
			t.Errorf("this test shows nothing of %s: no call needs it", field)
		}
	}
}
