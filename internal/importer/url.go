package importer

import (
	"crypto/tls"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/punctualmq/punctual/storekit"
	"github.com/redis/go-redis/v9"
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
