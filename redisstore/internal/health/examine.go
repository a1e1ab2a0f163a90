package health

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/errkind"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/storekit"
	"github.com/redis/go-redis/v9"
)

// The limits beyond which Examine warns, and how many pings it measures.
const (
	slowPing    = 10 * time.Millisecond
	pings       = 5
	fullMemory  = 0.8              // as a share of maxmemory
	lateReplica = 10 * time.Second // since the primary last heard from the replica
)

// Connection returns findings about the connection to the servers. It reads the client's options
// and asks no server.
func (h *Health) Connection() []storekit.Finding {
	x := &examination{h: h}
	x.connection()
	return x.findings
}

// Examine asks the servers and returns what it found, good and bad. Beside an error it returns what
// it found until then.
func (h *Health) Examine(ctx context.Context) ([]storekit.Finding, error) {
	x := &examination{h: h, findings: h.Connection()}
	if err := h.checkMode(ctx); err != nil {
		return x.findings, fmt.Errorf("examine redis store: %w", err)
	}
	found, err := primaries(ctx, h.client)
	x.many = len(found) > 1
	if err == nil {
		err = x.cluster(ctx)
	}
	for i := range found {
		x.primary(&found[i])
	}
	if err == nil {
		x.clocks(found)
		x.durability(found)
		err = errors.Join(x.latency(ctx), x.rights(ctx), x.data(ctx))
	}
	if err != nil {
		err = fmt.Errorf("examine redis store: %w", err)
	}
	return x.findings, err
}

// examination collects findings.
type examination struct {
	h        *Health
	many     bool // whether several primaries have answered
	findings []storekit.Finding
}

func (x *examination) add(f storekit.Finding) { x.findings = append(x.findings, f) }

// of returns name, followed by the server's address if several primaries have answered.
func (x *examination) of(name string, p *primary) string {
	if x.many {
		return name + " of " + p.addr
	}
	return name
}

// link is what the client's options say about the connection to the servers.
type link struct {
	kind     string
	hosts    []string
	tls      bool
	password bool
}

func linkOf(client redis.UniversalClient) link {
	switch c := client.(type) {
	case *redis.ClusterClient:
		o := c.Options()
		secret := o.Password != "" || o.CredentialsProvider != nil || o.CredentialsProviderContext != nil || o.StreamingCredentialsProvider != nil
		return link{"cluster", o.Addrs, o.TLSConfig != nil, secret}
	case *redis.Client:
		o := c.Options()
		secret := o.Password != "" || o.CredentialsProvider != nil || o.CredentialsProviderContext != nil || o.StreamingCredentialsProvider != nil
		if o.Addr == sentinelAddr {
			return link{"Sentinel", nil, o.TLSConfig != nil, secret}
		}
		return link{"single server", []string{o.Addr}, o.TLSConfig != nil, secret}
	}
	return link{kind: fmt.Sprintf("%T", client)}
}

// near reports whether the connection does not leave this machine.
func (l link) near() bool {
	for _, addr := range l.hosts {
		host, _, err := net.SplitHostPort(addr)
		if err != nil || strings.HasPrefix(addr, "/") { // a socket of this machine
			continue
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return len(l.hosts) > 0
}

func (x *examination) connection() {
	l := linkOf(x.h.client)
	x.add(storekit.Good("connection", strings.TrimSpace(l.kind+" "+strings.Join(l.hosts, ", "))))
	switch {
	case l.tls:
		x.add(storekit.Good("encryption", "TLS"))
	case l.near():
		x.add(storekit.Good("encryption", "none, and nothing leaves this machine"))
	default:
		x.add(storekit.Warning("encryption", "none", "whoever is on the way reads and changes messages and the password: use TLS (rediss://)"))
	}
	switch {
	case l.password:
		x.add(storekit.Good("password", "given"))
	case l.near():
		x.add(storekit.Good("password", "none, and only this machine is asked"))
	default:
		x.add(storekit.Warning("password", "none", "whoever reaches the server reads and changes all messages: give it a user with a password (docs/format-redis.md has the rights)"))
	}
}

// cluster reports slots of a cluster that no node serves, and nodes that are down.
func (x *examination) cluster(ctx context.Context) error {
	cluster, ok := x.h.client.(*redis.ClusterClient)
	if !ok {
		return nil
	}
	text, err := cluster.ClusterInfo(ctx).Result()
	if err != nil {
		return fmt.Errorf("CLUSTER INFO: %w", errkind.OfRead(err))
	}
	info := ParseInfo(text)
	covered := info["cluster_slots_ok"] + " of 16384 slots served"
	if info["cluster_state"] == "ok" && info["cluster_slots_ok"] == "16384" {
		x.add(storekit.Good("cluster", covered))
	} else {
		x.add(storekit.Bad("cluster", covered+", state "+info["cluster_state"], "topics in the other slots cannot be used: give every slot a primary that is up (redis-cli --cluster check)"))
	}
	nodes, err := cluster.ClusterNodes(ctx).Result()
	if err != nil {
		return fmt.Errorf("CLUSTER NODES: %w", errkind.OfRead(err))
	}
	if down := nodesDown(nodes); len(down) > 0 {
		x.add(storekit.Warning("nodes down", strings.Join(down, ", "), "what they did is done by others or not at all: bring them back, or take them out with CLUSTER FORGET"))
	} else {
		x.add(storekit.Good("nodes down", "none"))
	}
	return nil
}

// nodesDown finds the failing nodes in the answer to CLUSTER NODES.
func nodesDown(text string) []string {
	var down []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) > 2 && slices.ContainsFunc(strings.Split(fields[2], ","), func(f string) bool { return f == "fail" || f == "fail?" }) {
			addr, _, _ := strings.Cut(fields[1], "@")
			down = append(down, addr)
		}
	}
	return down
}

func (x *examination) primary(p *primary) {
	if Older(p.info["redis_version"], oldest) {
		x.add(storekit.Bad(x.of("version", p), p.version(), "the scripts need Redis "+oldest+" or newer, or Valkey"))
	} else {
		x.add(storekit.Good(x.of("version", p), p.version()))
	}
	if role := p.info["role"]; role == "master" {
		x.add(storekit.Good(x.of("role", p), "primary"))
	} else {
		x.add(storekit.Bad(x.of("role", p), "replica of "+p.info["master_host"], "a replica takes no changes: name the primary, or let Sentinel or a cluster tell which it is"))
	}
	if policy := p.info["maxmemory_policy"]; policy == "noeviction" {
		x.add(storekit.Good(x.of("eviction policy", p), policy))
	} else {
		x.add(storekit.Bad(x.of("eviction policy", p), policy, "a full server deletes messages: set maxmemory-policy to noeviction"))
	}
	x.memory(p)
	x.persistence(p)
	x.replicas(p)
	x.clock(p)
}

func (x *examination) memory(p *primary) {
	name := x.of("memory", p)
	used, limit := number(p.info["used_memory"]), number(p.info["maxmemory"])
	switch share := used / max(limit, 1); {
	case limit == 0:
		x.add(storekit.Warning(name, megabytes(used)+", no limit", "a backlog can grow until the system ends the server: set maxmemory, and pushes are refused in time"))
	case share >= 1:
		x.add(storekit.Bad(name, megabytes(used)+" of "+megabytes(limit), "pushes are refused: raise maxmemory or consume the backlog"))
	case share >= fullMemory:
		x.add(storekit.Warning(name, megabytes(used)+" of "+megabytes(limit), "at maxmemory pushes are refused: raise it or consume the backlog"))
	default:
		x.add(storekit.Good(name, megabytes(used)+" of "+megabytes(limit)))
	}
}

func number(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return n
}

func megabytes(n float64) string { return strconv.FormatFloat(n/(1<<20), 'f', 1, 64) + " MiB" }

func (x *examination) persistence(p *primary) {
	name, fsync := x.of("append-only file", p), p.config["appendfsync"]
	switch {
	case p.info["aof_enabled"] != "1":
		x.add(storekit.Warning(name, "off", "a restart loses all since the last snapshot: set appendonly to yes and appendfsync to always"))
	case fsync == "":
		x.add(storekit.Warning(name, "on, appendfsync unknown", "this user may not run CONFIG GET, so the least is assumed: give it +config|get"))
	case fsync == "always":
		x.add(storekit.Good(name, "on, appendfsync always"))
	default:
		x.add(storekit.Warning(name, "on, appendfsync "+fsync, "a power cut loses up to about two seconds, or more with appendfsync no: set appendfsync to always"))
	}
	if p.config["no-appendfsync-on-rewrite"] == "yes" {
		x.add(storekit.Warning(x.of("sync during rewrites", p), "off", "a power cut during a rewrite of the file loses what came since it began: set no-appendfsync-on-rewrite to no"))
	}
	x.lastWrites(p)
}

// lastWrites reports whether the server could write its files the last time.
func (x *examination) lastWrites(p *primary) {
	name := x.of("last writes to disk", p)
	switch {
	case p.info["aof_last_write_status"] == "err":
		x.add(storekit.Bad(name, "the append-only file failed", "the server refuses changes: look at its log and its disk"))
	case p.info["rdb_last_bgsave_status"] == "err":
		x.add(storekit.Bad(name, "the snapshot failed", "with stop-writes-on-bgsave-error the server refuses changes: look at its log and its disk"))
	case p.info["aof_last_bgrewrite_status"] == "err":
		x.add(storekit.Warning(name, "the rewrite of the append-only file failed", "the file grows: look at the server's log and its disk"))
	default:
		x.add(storekit.Good(name, "good"))
	}
}

func (x *examination) replicas(p *primary) {
	name, list := x.of("replicas", p), p.replicaList()
	var late []string
	for _, r := range list {
		if r["state"] != "online" || time.Duration(number(r["lag"]))*time.Second > lateReplica {
			late = append(late, fmt.Sprintf("%s (%s, heard of %s s ago)", net.JoinHostPort(r["ip"], r["port"]), r["state"], r["lag"]))
		}
	}
	value := fmt.Sprintf("%d, %d up to date", len(list), len(list)-len(late))
	switch {
	case len(late) > 0:
		x.add(storekit.Warning(name, value, "when one of these takes over, messages are lost; look at "+strings.Join(late, ", ")))
	case len(list) > x.h.o.replicas() && x.h.o.Durability == punctual.Replicated:
		x.add(storekit.Warning(name, value, fmt.Sprintf("%d of them need not have a message yet and may still take over: ask for as many as there are (replicas=%d)", len(list)-x.h.o.replicas(), len(list))))
	case len(list) == 0:
		x.add(storekit.Good(name, "none"))
	default:
		x.add(storekit.Good(name, value))
	}
}

func (x *examination) clock(p *primary) {
	name, ahead := x.of("clock", p), p.ahead.Round(time.Millisecond)
	value := fmt.Sprintf("%v behind this machine", -ahead)
	if ahead >= 0 {
		value = fmt.Sprintf("%v ahead of this machine", ahead)
	}
	if ahead.Abs() > maxSkew {
		x.add(storekit.Warning(name, value, "due times that are given as a time of day come early or late by this: set both clocks, as with NTP"))
		return
	}
	x.add(storekit.Good(name, value))
}

func (x *examination) clocks(found []primary) {
	if !x.many {
		return
	}
	value := fmt.Sprintf("%v apart", apartOf(found).Round(time.Millisecond))
	if err := skewOf(found); err != nil {
		x.add(storekit.Bad("clocks of the nodes", value, "they are not one clock, and messages come late: set them, as with NTP"))
		return
	}
	x.add(storekit.Good("clocks of the nodes", value))
}

// durability reports which class the servers give, and which settings would give a better one.
func (x *examination) durability(found []primary) {
	class := classOf(x.h.client, found, &x.h.o)
	switch {
	case x.h.o.refuses(class) != nil:
		x.add(storekit.Bad("durability", string(class.durability), fmt.Sprintf("%s was asked for: %s", x.h.o.Durability, class.why)))
	case class.durability == punctual.Volatile:
		x.add(storekit.Warning("durability", string(class.durability), "acknowledged pushes may be lost; for more: "+class.why))
	default:
		x.add(storekit.Good("durability", string(class.durability)))
	}
}

// latency measures how long each primary takes to answer a PING, because every call takes at least
// that long.
func (x *examination) latency(ctx context.Context) error {
	var mu sync.Mutex
	medians := make(map[string]time.Duration) // guarded by mu, by address
	err := forEachPrimary(ctx, x.h.client, func(ctx context.Context, c redis.UniversalClient) error {
		median, err := ping(ctx, c)
		if redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "MISCONF") {
			return nil // rights and lastWrites have findings about that
		}
		if err != nil {
			return fmt.Errorf("PING: %w", errkind.OfRead(err))
		}
		mu.Lock()
		defer mu.Unlock()
		medians[route.AddrOf(c)] = median
		return nil
	})
	for _, addr := range slices.Sorted(maps.Keys(medians)) {
		name, value := x.of("latency", &primary{addr: addr}), medians[addr].Round(10*time.Microsecond).String()
		if medians[addr] > slowPing {
			x.add(storekit.Warning(name, value, "each call takes at least this: bring the program and the server closer together"))
		} else {
			x.add(storekit.Good(name, value))
		}
	}
	return err
}

// ping returns the median of the times that a few answers take.
func ping(ctx context.Context, c redis.UniversalClient) (time.Duration, error) {
	var took []time.Duration
	for range pings {
		begin := time.Now()
		if err := c.Ping(ctx).Err(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took[pings/2], nil
}

func (x *examination) rights(ctx context.Context) error {
	lacking, err := x.h.lackingRights(ctx)
	if errors.Is(err, punctual.ErrDurability) {
		x.add(storekit.Warning("rights", "unknown", "they cannot be tried while the server refuses changes: mend that first"))
		return nil
	}
	if err != nil {
		return err
	}
	notifications, err := x.h.lackingToListen(ctx)
	if err != nil {
		return err
	}
	notifications = append(notifications, lacking.listening...)
	switch {
	case len(lacking.needed) > 0:
		x.add(storekit.Bad("rights", "lacking "+strings.Join(lacking.needed, " "), "some calls would fail: give them to this user with ACL SETUSER"))
	case len(notifications) > 0:
		x.add(storekit.Warning("rights", "lacking "+strings.Join(notifications, " "), "without notifications waiting claims are up to a second late: give them to this user with ACL SETUSER"))
	default:
		x.add(storekit.Good("rights", "all that are needed"))
	}
	return nil
}

// data reports whether the data set is there, and of which format.
func (x *examination) data(ctx context.Context) error {
	got, err := x.h.client.HMGet(ctx, x.h.o.Names.Store(), "format", "epoch").Result()
	if redis.HasErrorPrefix(err, "NOPERM") {
		return nil // rights has a finding about that
	}
	if err != nil {
		return fmt.Errorf("HMGET: %w", errkind.OfRead(err))
	}
	format, _ := got[0].(string)
	epoch, there := got[1].(string)
	name := x.h.o.Names.Store()
	switch {
	case !there && x.h.epoch != "":
		x.add(storekit.Bad("data set", name+" has vanished", "the data was wiped, as by FLUSHALL or a server that came back empty: look for what did it and open the store anew"))
	case !there:
		x.add(storekit.Warning("data set", "no "+name, "there is no store with this prefix yet: the first push makes one. If there was one, it was wiped"))
	case x.h.epoch != "" && epoch != x.h.epoch:
		x.add(storekit.Bad("data set", name+" is another one", "the data was wiped and begun anew: open the store anew"))
	case format != formatVersion:
		x.add(storekit.Bad("data set", "format "+format, "this program knows format "+formatVersion+": "+otherFormat(format)))
	default:
		x.add(storekit.Good("data set", name+" is there, format "+format))
		clock, err := x.h.Clock(ctx, false)
		if err != nil { // other findings may say why
			x.add(storekit.Warning("clock", "unknown", "the store's clock cannot be read: "+err.Error()))
			return nil
		}
		x.findings = append(x.findings, storekit.ClockFindings(clock)...)
	}
	return nil
}
