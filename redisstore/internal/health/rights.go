package health

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/errkind"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/redis/go-redis/v9"
)

// lacking has the rights that a user lacks, in the form in which ACL SETUSER takes them.
type lacking struct {
	// needed has the rights without which some call would fail, perhaps in the middle of a script.
	needed []string
	// listening has the rights to notifications, without which waiting claims are up to a second
	// late.
	listening []string
}

// err returns an error that names the needed rights that are lacking, or nil.
func (l lacking) err() error {
	if len(l.needed) == 0 {
		return nil
	}
	return fmt.Errorf("this user lacks rights: give them with ACL SETUSER user %s (docs/format-redis.md has the whole list): %w",
		strings.Join(l.needed, " "), punctual.ErrUnsupported)
}

// lackingRights finds out which rights this user lacks, but for the right to subscribe, by trying
// commands on each primary, which changes nothing. The rights that it returns are sorted.
func (h *Health) lackingRights(ctx context.Context) (lacking, error) {
	var mu sync.Mutex
	var l lacking
	err := forEachPrimary(ctx, h.client, func(ctx context.Context, c redis.UniversalClient) error {
		needed, err := h.tryCommands(ctx, c)
		if err != nil {
			return err
		}
		scripted, err := h.tryScripted(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		l.needed = append(l.needed, needed...)
		l.add(scripted, h.o.Names)
		return err
	})
	l.needed, l.listening = sortedSet(l.needed), sortedSet(l.listening)
	return l, err
}

func sortedSet(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}

// tryCommands tries what the store needs outside of scripts, and returns the rights that are
// lacking. The commands on keys that the store also sends outside of scripts are among those of
// tryScripted.
func (h *Health) tryCommands(ctx context.Context, c redis.UniversalClient) (needed []string, err error) {
	noScript := strings.Repeat("0", 40)
	tries := []struct {
		command string
		try     func() error
	}{
		{"ping", func() error { return c.Ping(ctx).Err() }},
		{"info", func() error { return c.Info(ctx, "server").Err() }},
		{"time", func() error { return c.Time(ctx).Err() }},
		{"evalsha", func() error { return c.EvalSha(ctx, noScript, h.triedKeys()).Err() }},
		{"eval", func() error { return c.Eval(ctx, "return 1", h.triedKeys()).Err() }},
		{"waitaof", func() error {
			if h.o.Durability != punctual.Replicated {
				return nil
			}
			return c.Do(ctx, "waitaof", 0, 0, 1).Err()
		}},
	}
	for _, t := range tries {
		err := t.try()
		switch {
		case err == nil, redis.HasErrorPrefix(err, "NOSCRIPT"), redis.HasErrorPrefix(err, "unknown command"): // HasErrorPrefix skips "ERR "
		case redis.HasErrorPrefix(err, "NOPERM"):
			needed = append(needed, rightOf(t.command, err.Error(), h.o.Names))
		default:
			return nil, fmt.Errorf("%s: %w", t.command, errkind.OfRead(err))
		}
	}
	return needed, nil
}

// tryScripted tries the commands that scripts run. It returns pairs of a refused command and the
// server's error.
func (h *Health) tryScripted(ctx context.Context, c redis.UniversalClient) ([]string, error) {
	said, err := c.Eval(ctx, script.Rights.Text, h.triedKeys(), h.o.Names.Never(), h.o.Names.NeverChannel()).StringSlice()
	switch {
	case err == nil:
		return said, nil
	case redis.HasErrorPrefix(err, "NOPERM"):
		return []string{"EVAL", err.Error()}, nil
	}
	return nil, fmt.Errorf("rights: %w", errkind.OfRead(err))
}

// triedKeys returns the keys for the scripts that are tried. There are some because some proxies
// let no script pass without keys. On a cluster there are none, because each node is asked and no
// key is on all nodes.
func (h *Health) triedKeys() []string {
	if _, ok := h.client.(*redis.ClusterClient); ok {
		return nil
	}
	return []string{h.o.Names.Store(), h.o.Names.Never()}
}

// lackingToListen tries to subscribe to notifications, which takes a connection of its own, and
// returns the rights that are lacking.
func (h *Health) lackingToListen(ctx context.Context) ([]string, error) {
	sub := h.client.Subscribe(ctx, h.o.Names.NeverChannel())
	_, err := sub.ReceiveTimeout(ctx, checkTimeout)
	err = errors.Join(err, sub.Close())
	switch {
	case err == nil:
		return nil, nil
	case strings.Contains(err.Error(), "NOPERM"):
		return []string{rightOf("subscribe", err.Error(), h.o.Names)}, nil
	}
	return nil, fmt.Errorf("subscribe: %w", errkind.OfRead(err))
}

// add adds the rights with which the refused commands that tryScripted has returned would have
// passed.
func (l *lacking) add(said []string, n keys.Names) {
	for i := 0; i+1 < len(said); i += 2 {
		right := rightOf(strings.ToLower(said[i]), said[i+1], n)
		if said[i] == "PUBLISH" {
			l.listening = append(l.listening, right)
		} else {
			l.needed = append(l.needed, right)
		}
	}
}

// rightOf returns the right with which a refused command would have passed: to run the command, or
// to use its key or channel. said is the server's error. If that names a command, it may be another
// one than was tried, such as SELECT, which a client sends first.
func rightOf(command, said string, n keys.Names) string {
	name := errkind.RefusedCommand(said)
	switch {
	case name != "":
		return "+" + name
	case strings.Contains(said, "channel"):
		return "&" + n.Prefix + "*"
	case strings.Contains(said, "key"):
		return "~" + n.Prefix + "*"
	}
	return "+" + command
}
