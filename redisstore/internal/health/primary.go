package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/errkind"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/redis/go-redis/v9"
)

const (
	// maxSkew is by how much the clocks of a cluster's nodes may differ.
	maxSkew = 5 * time.Second
	// oldest is the oldest version of Redis that has all that the scripts need.
	oldest = "6.2.0"
	// OldestReplicated is the oldest version that has WAITAOF.
	OldestReplicated = "7.2.0"
)

// primary is what the server, or a primary of a cluster, has answered about itself.
type primary struct {
	addr   string            // as the client knows it
	info   map[string]string // of INFO
	config map[string]string // of CONFIG GET *appendfsync*; empty if the user may not read it
	ahead  time.Duration     // by how much its clock is ahead of this machine's
}

// primaries asks the server, or each primary of a cluster. It returns the primaries in the order of
// their addresses, beside an error those that did answer.
func primaries(ctx context.Context, client redis.UniversalClient) ([]primary, error) {
	var mu sync.Mutex
	var found []primary
	err := forEachPrimary(ctx, client, func(ctx context.Context, c redis.UniversalClient) error {
		p, err := ask(ctx, c)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		found = append(found, p)
		return nil
	})
	slices.SortFunc(found, func(a, b primary) int { return strings.Compare(a.addr, b.addr) })
	return found, err
}

// forEachPrimary calls f for the server, or concurrently for each primary of a cluster.
func forEachPrimary(ctx context.Context, client redis.UniversalClient, f func(context.Context, redis.UniversalClient) error) error {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return f(ctx, client)
	}
	var mu sync.Mutex
	asked := 0
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		mu.Lock()
		asked++
		mu.Unlock()
		return f(ctx, c)
	})
	switch {
	case err != nil && asked == 0:
		return fmt.Errorf("CLUSTER SLOTS: %w", errkind.OfRead(err))
	case err == nil && asked == 0:
		return fmt.Errorf("the cluster has no primary: %w", punctual.ErrUnreachable)
	}
	return err
}

func ask(ctx context.Context, c redis.UniversalClient) (primary, error) {
	text, err := c.Info(ctx).Result()
	if err != nil {
		return primary{}, fmt.Errorf("INFO: %w", errkind.OfRead(err))
	}
	begin := time.Now()
	now, err := c.Time(ctx).Result()
	if err != nil {
		return primary{}, fmt.Errorf("TIME: %w", errkind.OfRead(err))
	}
	here := begin.Add(time.Since(begin) / 2)
	p := primary{addr: route.AddrOf(c), info: ParseInfo(text), ahead: now.Sub(here)}
	// Some providers hide CONFIG. Then the settings are unknown, and lacksFsync assumes the
	// weakest.
	if got, err := c.ConfigGet(ctx, "*appendfsync*").Result(); err == nil {
		p.config = got
	}
	return p, nil
}

// sentinelAddr is what the client for Sentinel has in the place of an address.
const sentinelAddr = "FailoverClient"

// ParseInfo reads an answer to INFO, or to CLUSTER INFO: its values by name.
func ParseInfo(text string) map[string]string {
	out := make(map[string]string)
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[k] = v
		}
	}
	return out
}

// version returns the name of the server's program with its own version. Valkey also reports the
// version of Redis with which it is compatible; the checks compare that one.
func (p *primary) version() string {
	if v := p.info["valkey_version"]; v != "" {
		return "Valkey " + v
	}
	return "Redis " + p.info["redis_version"]
}

// checkMode returns an error if the client is of another kind than its server, because such a
// client may work at first and fail later.
func (h *Health) checkMode(ctx context.Context) error {
	if _, ok := h.client.(*redis.ClusterClient); ok {
		return nil // its calls fail unless the server answers CLUSTER SLOTS
	}
	text, err := h.client.Info(ctx, "server").Result()
	switch {
	case redis.HasErrorPrefix(err, "NOPERM"):
		return nil // checkRights names the right that is lacking
	case err != nil:
		return fmt.Errorf("INFO: %w", errkind.OfRead(err))
	}
	info := ParseInfo(text)
	switch cmp.Or(info["redis_mode"], info["server_mode"]) { // server_mode is Valkey's name
	case "cluster":
		return fmt.Errorf("the server is a node of a cluster: use redis+cluster:// (redis.NewClusterClient): %w", punctual.ErrUnsupported)
	case "sentinel":
		return fmt.Errorf("the server is a Sentinel: use redis+sentinel://HOST/PRIMARY (redis.NewFailoverClient): %w", punctual.ErrUnsupported)
	}
	return nil
}

// refuseReplica returns an error if the server is a replica, which takes no messages.
func refuseReplica(found []primary) error {
	for i := range found {
		if info := found[i].info; info["role"] == "slave" {
			return fmt.Errorf("the server is a replica of %s and takes no messages: open its primary: %w",
				net.JoinHostPort(info["master_host"], info["master_port"]), punctual.ErrUnreachable)
		}
	}
	return nil
}

// fit returns why a server must not be used, or nil.
func (p *primary) fit() error {
	if Older(p.info["redis_version"], oldest) {
		return fmt.Errorf("the server is %s: Redis %s or newer is needed: %w", p.version(), oldest, punctual.ErrUnsupported)
	}
	if policy := p.info["maxmemory_policy"]; policy != "noeviction" {
		return fmt.Errorf("the server may evict messages: set maxmemory-policy to noeviction (it is %s): %w", policy, punctual.ErrDurability)
	}
	return nil
}

// replicas returns how many replicas have all changes but those under way.
func (p *primary) replicas() int {
	n := 0
	for _, r := range p.replicaList() {
		if r["state"] == "online" {
			n++
		}
	}
	return n
}

// replicaList returns what the server reports of each of its replicas: ip, port, state, offset,
// lag.
func (p *primary) replicaList() []map[string]string {
	var out []map[string]string
	for i := 0; ; i++ {
		text, ok := p.info["slave"+strconv.Itoa(i)]
		if !ok {
			return out
		}
		r := make(map[string]string)
		for field := range strings.SplitSeq(text, ",") {
			k, v, _ := strings.Cut(field, "=")
			r[k] = v
		}
		out = append(out, r)
	}
}

// skewOf returns an error if the clocks of servers differ by more than maxSkew (P8).
func skewOf(found []primary) error {
	if apart := apartOf(found); apart > maxSkew {
		return fmt.Errorf("the clocks of the cluster's nodes are %v apart: set them, as with NTP: %w", apart.Round(time.Millisecond), punctual.ErrDurability)
	}
	return nil
}

// apartOf returns by how much the clocks of servers differ; there must be at least one server.
func apartOf(found []primary) time.Duration {
	byClock := func(a, b primary) int { return int(a.ahead - b.ahead) }
	return slices.MaxFunc(found, byClock).ahead - slices.MinFunc(found, byClock).ahead
}

// Older reports whether version is older than the version than; both have the form 7.0.15. A
// version of another form counts as older.
func Older(version, than string) bool {
	a, errA := numbers(version)
	b, errB := numbers(than)
	return errors.Join(errA, errB) != nil || slices.Compare(a, b) < 0
}

func numbers(version string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, fmt.Errorf("version %q: %w", version, err)
		}
		out = append(out, n)
	}
	return out, nil
}
