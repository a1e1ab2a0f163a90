package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/errkind"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/redis/go-redis/v9"
)

// lacking are the rights that a user has not, as ACL SETUSER names them, sorted.
type lacking struct {
	// needed are those without which some call would fail, perhaps in the middle of a script.
	needed []string
	// listening are those without which waiting claims are up to a second late.
	listening []string
}

// err is nil when nothing that is needed is lacking.
func (l lacking) err() error {
	if len(l.needed) == 0 {
		return nil
	}
	return fmt.Errorf("this user lacks rights: give them with ACL SETUSER user %s (docs/format-redis.md has the whole list): %w",
		strings.Join(l.needed, " "), punctual.ErrUnsupported)
}

// lackingRights tries out what this user may do, on each primary, and changes nothing.
func (s *Store) lackingRights(ctx context.Context) (lacking, error) {
	var mu sync.Mutex
	var l lacking
	err := forEachPrimary(ctx, s.client, func(ctx context.Context, c redis.UniversalClient) error {
		needed, err := s.tryCommands(ctx, c)
		if err != nil {
			return err
		}
		scripted, err := s.tryScripted(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		l.needed = append(l.needed, needed...)
		l.add(scripted, s.names)
		return err
	})
	l.needed, l.listening = sortedSet(l.needed), sortedSet(l.listening)
	return l, err
}

func sortedSet(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}

// tryCommands tries what is sent outside of scripts.
func (s *Store) tryCommands(ctx context.Context, c redis.UniversalClient) (needed []string, err error) {
	noScript := strings.Repeat("0", 40)
	tries := []struct {
		command string
		try     func() error
	}{
		{"ping", func() error { return c.Ping(ctx).Err() }},
		{"info", func() error { return c.Info(ctx, "server").Err() }},
		{"time", func() error { return c.Time(ctx).Err() }},
		{"evalsha", func() error { return c.EvalSha(ctx, noScript, s.triedKeys()).Err() }},
		{"eval", func() error { return c.Eval(ctx, "return 1", s.triedKeys()).Err() }},
		{"waitaof", func() error {
			if s.opt.Durability != punctual.Replicated {
				return nil
			}
			return c.Do(ctx, "waitaof", 0, 0, 1).Err()
		}},
	}
	for _, t := range tries {
		err := t.try()
		switch {
		case err == nil, redis.HasErrorPrefix(err, "NOSCRIPT"), redis.HasErrorPrefix(err, "unknown command"): // behind ERR
		case redis.HasErrorPrefix(err, "NOPERM"):
			needed = append(needed, rightOf(t.command, err.Error(), s.names))
		default:
			return nil, fmt.Errorf("%s: %w", t.command, errkind.Of(err).Wrap(err))
		}
	}
	return needed, nil
}

// tryScripted tries what the scripts do. It returns pairs of a command and what was said of it.
func (s *Store) tryScripted(ctx context.Context, c redis.UniversalClient) ([]string, error) {
	said, err := c.Eval(ctx, script.Rights.Text, s.triedKeys(), s.names.Store(), s.names.Never(), s.names.NeverChannel()).StringSlice()
	switch {
	case err == nil:
		return said, nil
	case redis.HasErrorPrefix(err, "NOPERM"):
		return []string{"EVAL", err.Error()}, nil
	}
	return nil, fmt.Errorf("rights: %w", errkind.Of(err).Wrap(err))
}

// triedKeys are the keys of the scripts that are tried: those of the store, because some
// proxies let no script pass without; none on a cluster, where each node is asked.
func (s *Store) triedKeys() []string {
	if _, ok := s.client.(*redis.ClusterClient); ok {
		return nil
	}
	return []string{s.names.Store(), s.names.Never()}
}

// lackingToListen tries to listen to notifications, which takes a connection of its own.
func (s *Store) lackingToListen(ctx context.Context) ([]string, error) {
	sub := s.client.Subscribe(ctx, s.names.NeverChannel())
	_, err := sub.ReceiveTimeout(ctx, checkTimeout)
	err = errors.Join(err, sub.Close())
	switch {
	case err == nil:
		return nil, nil
	case strings.Contains(err.Error(), "NOPERM"):
		return []string{rightOf("subscribe", err.Error(), s.names)}, nil
	}
	return nil, fmt.Errorf("subscribe: %w", errkind.Of(err).Wrap(err))
}

// add notes what tryScripted found.
func (l *lacking) add(said []string, n names) {
	for i := 0; i+1 < len(said); i += 2 {
		right := rightOf(strings.ToLower(said[i]), said[i+1], n)
		if said[i] == "PUBLISH" {
			l.listening = append(l.listening, right)
		} else {
			l.needed = append(l.needed, right)
		}
	}
}

// rightOf is the right that would have let a command pass: to run it, or to use its key or
// channel. Where the server names a command, it may be another one: SELECT, which a client sends in
// front of the first.
func rightOf(command, said string, n names) string {
	name := errkind.RefusedCommand(said)
	switch {
	case name != "":
		return "+" + name
	case strings.Contains(said, "channel"):
		return "&" + n.prefix + "*"
	case strings.Contains(said, "key"):
		return "~" + n.prefix + "*"
	}
	return "+" + command
}
