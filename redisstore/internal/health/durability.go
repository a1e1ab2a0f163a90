package health

import (
	"fmt"

	"github.com/punctualmq/punctual"
	"github.com/redis/go-redis/v9"
)

// The classes of durability that servers give (P1). docs/durability.md has the table.

// durabilityClass is the class that servers give. why says what keeps them from the class that was
// asked for, or from a better one; it is empty if nothing does.
type durabilityClass struct {
	durability punctual.Durability
	why        string
}

// classOf returns the best class that the servers give to a store with the given options. Class
// replicated is given only if it was asked for, because only then the store waits for replicas.
func classOf(client redis.UniversalClient, found []primary, o *Options) durabilityClass {
	lack := ""
	if o.Durability == punctual.Replicated {
		if lack = lacksReplicated(found, o.replicas()); lack == "" {
			return durabilityClass{durability: punctual.Replicated}
		}
	}
	why := lacksFsync(client, found)
	if why == "" {
		return durabilityClass{punctual.Fsync, lack}
	}
	if lack == "" {
		lack = why
	}
	return durabilityClass{punctual.Volatile, lack}
}

// refuses returns an error if the servers do not give the class that was asked for, and else nil.
func (o *Options) refuses(got durabilityClass) error {
	if want := o.Durability; want != "" && want != got.durability && want != punctual.Volatile {
		return fmt.Errorf("the server gives %q, not %q: %s: %w", got.durability, want, got.why, punctual.ErrDurability)
	}
	return nil
}

// replicas returns how many replicas have to confirm a change with class replicated.
func (o *Options) replicas() int { return max(o.Replicas, 1) }

// lacksFsync returns what keeps servers from class fsync, or the empty string.
func lacksFsync(client redis.UniversalClient, found []primary) string {
	if why := failsOver(client, found); why != "" {
		return why + ": ask for class replicated (Redis 7.2 or newer)"
	}
	for i := range found {
		if why := found[i].lacksFsync(); why != "" {
			return why
		}
	}
	return ""
}

// failsOver returns why a replica without the last changes may take over, or the empty string.
func failsOver(client redis.UniversalClient, found []primary) string {
	switch c := client.(type) {
	case *redis.ClusterClient:
		for _, p := range found {
			if p.info["connected_slaves"] != "0" {
				return "a cluster with replicas fails over without the latest changes"
			}
		}
	case *redis.Client:
		if c.Options().Addr == sentinelAddr {
			return "Sentinel fails over without the latest changes"
		}
	}
	return ""
}

func (p *primary) lacksFsync() string {
	fsync := p.config["appendfsync"]
	switch {
	case p.info["aof_enabled"] != "1":
		return "set appendonly to yes and appendfsync to always (there is no append-only file)"
	case fsync == "":
		return "let this user run CONFIG GET appendfsync (it may not, so appendfsync is unknown)"
	case fsync != "always":
		return "set appendfsync to always (it is " + fsync + ")"
	case p.config["no-appendfsync-on-rewrite"] == "yes":
		return "set no-appendfsync-on-rewrite to no (nothing is synced while the file is rewritten)"
	}
	return ""
}

// lacksReplicated returns what keeps servers from class replicated with n replicas, or the empty
// string. It cannot see whether the replicas have append-only files: a change that waits for the
// replicas shows that.
func lacksReplicated(found []primary, n int) string {
	for _, p := range found {
		where := ""
		if len(found) > 1 {
			where = " of " + p.addr
		}
		switch {
		case Older(p.info["redis_version"], OldestReplicated):
			return fmt.Sprintf("use Redis or Valkey %s or newer, which have WAITAOF (the server%s is %s)", OldestReplicated, where, p.version())
		case p.info["aof_enabled"] != "1":
			return fmt.Sprintf("set appendonly to yes (there is no append-only file%s)", where)
		case p.config["appendfsync"] == "no":
			return fmt.Sprintf("set appendfsync%s to always or everysec (it is no)", where)
		case p.replicas() < n:
			return fmt.Sprintf("let at least %d replicas follow the primary%s (%d do), or ask for fewer with Options.Replicas or replicas=", n, where, p.replicas())
		}
	}
	return ""
}
