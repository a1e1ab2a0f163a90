package importer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual/storekit"
)

// Dial returns a client of the servers that a URL names, which the caller closes. It does not
// connect yet. The URL is one of
//
//	redis://[user:password@]host[:port][/database]
//	redis+sentinel://[user:password@]host[:port],host[:port].../primary[/database]
//	redis+cluster://[user:password@]host[:port],host[:port]...
//
// With rediss in place of redis the connections use TLS. Errors do not contain the URL, because it
// may have a password.
func Dial(text string) (redis.UniversalClient, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	protocol, kind, _ := strings.Cut(scheme, "+")
	switch {
	case !ok:
		return nil, badSource("has no :// and so names no kind of server")
	case protocol != "redis" && protocol != "rediss":
		return nil, badSource("is not one of Redis")
	}
	if scheme == protocol {
		o, err := redis.ParseURL(text)
		if err != nil {
			return nil, badSource("cannot be read")
		}
		return redis.NewClient(o), nil
	}
	hosts, path, _ := strings.Cut(rest, "/")
	credentials := ""
	if at := strings.LastIndex(hosts, "@"); at >= 0 {
		credentials, hosts = hosts[:at+1], hosts[at+1:]
	}
	u, err := url.Parse(protocol + "://" + credentials + "host") // for the user alone
	if err != nil || hosts == "" || strings.Contains(rest, "?") {
		return nil, badSource("has no host, an option behind a ?, or user and password that cannot be read")
	}
	user := u.User.Username()
	password, _ := u.User.Password()
	var secure *tls.Config
	if protocol == "rediss" {
		secure = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	primary, database, _ := strings.Cut(path, "/")
	db, err := strconv.Atoi("0" + database)
	switch {
	case kind == "cluster" && path == "":
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: withPorts(hosts, "6379"), Username: user, Password: password, TLSConfig: secure,
		}), nil
	case kind == "sentinel" && primary != "" && err == nil:
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: primary, SentinelAddrs: withPorts(hosts, "26379"), SentinelUsername: user, SentinelPassword: password,
			Username: user, Password: password, DB: db, TLSConfig: secure,
		}), nil
	}
	return nil, badSource("is not one of Sentinel with a primary, nor one of a Cluster without a path")
}

// badSource is the error of a source's URL; what says what is wrong with it.
func badSource(what string) error {
	return storekit.Invalidf("the source's URL %s: use redis://user:password@host:port/database, "+
		"redis+sentinel://host,host/primary or redis+cluster://host,host, with special characters of user and password escaped with %%", what)
}

// withPorts splits a list of hosts and adds the default port to hosts without one.
func withPorts(hosts, port string) []string {
	var out []string
	for host := range strings.SplitSeq(hosts, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		out = append(out, host)
	}
	return out
}

// fault returns err with a text in front: what could not be done on the source, and what to do
// about that where it is known.
func fault(err error, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	var dial *net.OpError
	var refused *pgconn.PgError
	var dialling *pgconn.ConnectError
	switch {
	case errors.As(err, &dialling):
		err = errors.Unwrap(dialling) // whose text does not name host, user and database
		what += ": " + unreachable
	case errors.As(err, &dial) && dial.Op == "dial":
		what += ": " + unreachable
	case errors.As(err, &refused):
		if remedy := remedies[refused.Code]; remedy != "" {
			what += ": " + remedy
		}
	default:
		for prefix, remedy := range remedies {
			if redis.HasErrorPrefix(err, prefix) {
				what += ": " + remedy
			}
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

const unreachable = "the source cannot be reached: is its URL right, and the server up?"

// remedies say what to do about the errors of Redis, by the beginnings of their texts, and about
// those of PostgreSQL, by their codes.
var remedies = map[string]string{
	"NOAUTH":      "the source asks for a password: redis://user:password@host",
	"WRONGPASS":   "the source does not accept this user and password",
	"NOPERM":      "this user lacks a right on the source: docs/importing.md has those that are needed",
	"WRONGTYPE":   "the source has something else under this key",
	"READONLY":    "this is a replica: name its primary",
	"MOVED":       "this is a cluster: use redis+cluster://",
	"OOM":         "the source has reached maxmemory: a staged message needs a little room",
	"LOADING":     "the source is loading its data: try again",
	"BUSY":        "the source is busy with somebody's script: try again",
	"CLUSTERDOWN": "the source's cluster is down: try again",
	"MISCONF":     "the source cannot write to its disk and refuses changes",
	"ERR unknown": "the source lacks a command that is needed",
	"25006":       "this is a standby: name its primary",
	"28P01":       "the source does not accept this user and password",
	"28000":       "the source does not accept this user",
	"3D000":       "there is no such database",
	"42501":       "this user lacks a right on the source: docs/importing.md has those that are needed",
	"42703":       "the condition names a column that is not there",
	"23503":       "another table refers to these rows: they cannot be taken out",
	"23505":       "a row with the same key is there by now",
	"53100":       "the disk of the source is full",
}
