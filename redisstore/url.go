package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/tlsfile"
	"github.com/punctualmq/punctual/storekit"
	"github.com/redis/go-redis/v9"
)

// OpenURL opens a store with a client of its own, which Close closes. The URL is one of
//
//	redis://[user:password@]host[:port][/database]
//	redis+sentinel://[user:password@]host[:port],host[:port].../primary[/database]
//	redis+cluster://[user:password@]host[:port],host[:port]...
//
// and with rediss in the place of redis the connections are TLS, with the machine's roots of
// trust unless ca says otherwise. User and password may be escaped with %; those of Sentinel are
// taken to be the same as those of the servers. Ports are 6379, and 26379 for Sentinel, unless
// given. Options may follow a ?, separated by &:
//
//	prefix=TEXT          Options.Prefix
//	durability=CLASS     Options.Durability: fsync, replicated or volatile
//	replicas=N           Options.Replicas
//	password-file=FILE   the password is the first line of this file, and so in no list of processes
//	ca=FILE              PEM certificates of those who vouch for the server, in place of the machine's
//	cert=FILE key=FILE   PEM certificate and key of this program, for servers that ask for one
//
// They win over o. A relative FILE is looked for in the working directory. An @ behind the ? is
// written as %40.
//
// Errors never repeat the password.
func OpenURL(ctx context.Context, text string, o *Options) (*Store, error) {
	client, opt, err := connectURL(text, o)
	if err != nil {
		return nil, err
	}
	s, err := Open(ctx, client, opt)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return s, nil
}

// Connect returns a client of the servers that a URL names, as OpenURL takes it but without the
// options of a store, for those who keep something else in them. It dials nothing. The caller
// closes the client.
func Connect(text string) (redis.UniversalClient, error) {
	client, o, err := connectURL(text, nil)
	if err == nil && (o.Prefix != "" || o.Replicas != 0 || o.Durability != "") {
		return nil, errors.Join(badURL("prefix, durability and replicas are options of a store"), client.Close())
	}
	return client, err
}

// ExamineURL is Examine for a URL as OpenURL takes it, with a client that it closes again.
func ExamineURL(ctx context.Context, text string, o *Options) ([]storekit.Finding, error) {
	client, opt, err := connectURL(text, o)
	if err != nil {
		return nil, err
	}
	findings, err := Examine(ctx, client, opt)
	return findings, errors.Join(err, client.Close())
}

// connectURL makes the client and the options that a URL asks for. It dials nothing.
func connectURL(text string, o *Options) (redis.UniversalClient, *Options, error) {
	a, err := parseURL(text)
	if err != nil {
		return nil, nil, err
	}
	opt := Options{}
	if o != nil {
		opt = *o
	}
	if opt, err = a.options(opt); err != nil {
		return nil, nil, err
	}
	secure, err := a.secure()
	if err != nil {
		return nil, nil, err
	}
	return a.client(secure), &opt, nil
}

// address is a parsed URL.
type address struct {
	kind           string // "", "sentinel" or "cluster"
	tls            bool
	user, password string
	hosts          []string // each with its port
	primary        string   // the name that Sentinel knows
	database       int
	query          url.Values
}

// forms says how URLs are written, for the errors of parseURL.
const forms = "use redis://host:port/database, redis+sentinel://host,host/primary or redis+cluster://host,host"

func badURL(format string, args ...any) error {
	return fmt.Errorf("redis URL: %s: %s: %w", fmt.Sprintf(format, args...), forms, punctual.ErrInvalid)
}

// parseURL reads the text of a URL. It cannot leave that to net/url, which knows only one host in a
// URL.
func parseURL(text string) (a address, err error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return a, badURL("there is no ://")
	}
	protocol, kind, _ := strings.Cut(scheme, "+")
	a.kind, a.tls = kind, protocol == "rediss"
	if protocol != "redis" && !a.tls || !slices.Contains([]string{"", "sentinel", "cluster"}, kind) || strings.HasSuffix(scheme, "+") {
		return a, badURL("unknown scheme %q", scheme)
	}
	rest, query, _ := strings.Cut(rest, "?")
	if strings.Contains(query, "@") { // with a ? in the password the rest of it stands there, and no error may repeat that
		return a, badURL("there is an @ behind the ?: write %%3F for a ? in user and password, and %%40 for an @ in options")
	}
	if a.query, err = url.ParseQuery(query); err != nil {
		return a, badURL("what follows the ? cannot be read")
	}
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		if err := a.parseUser(rest[:i]); err != nil {
			return a, err
		}
		rest = rest[i+1:]
	}
	hosts, path, _ := strings.Cut(rest, "/")
	if err := a.parseHosts(hosts); err != nil {
		return a, err
	}
	return a, a.parsePath(strings.TrimSuffix(path, "/"))
}

func (a *address) parseUser(text string) (err error) {
	user, password, _ := strings.Cut(text, ":")
	if a.user, err = url.PathUnescape(user); err == nil {
		a.password, err = url.PathUnescape(password)
	}
	if err != nil {
		return badURL("escape each special character of user and password with %%: one cannot be read")
	}
	return nil
}

func (a *address) parseHosts(text string) error {
	port := "6379"
	if a.kind == "sentinel" {
		port = "26379"
	}
	for host := range strings.SplitSeq(text, ",") {
		if host == "" {
			return badURL("a host is empty")
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		name, p, err := net.SplitHostPort(host)
		if _, noIP := netip.ParseAddr(name); err != nil || !isNumber(p, 65535) || strings.Contains(name, ":") && noIP != nil {
			name, _, _ = strings.Cut(name, ":") // a password may stand behind the :
			return badURL("host %q is not followed by a port; behind user and password there must be @ and a host", name)
		}
		a.hosts = append(a.hosts, host)
	}
	if a.kind == "" && len(a.hosts) > 1 {
		return badURL("%d hosts for a single server", len(a.hosts))
	}
	return nil
}

func isNumber(text string, most int) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= 0 && n <= most
}

func (a *address) parsePath(path string) error {
	database := path
	if a.kind == "sentinel" {
		if a.primary, database, _ = strings.Cut(path, "/"); a.primary == "" {
			return badURL("the name of the primary is missing behind the hosts")
		}
	}
	if database == "" {
		return nil
	}
	if a.kind == "cluster" {
		return badURL("a cluster has no databases, but there is /%s", database)
	}
	if !isNumber(database, 1<<20) {
		return badURL("database %q is not a number", database)
	}
	a.database, _ = strconv.Atoi(database) // does not fail, because isNumber was true
	return nil
}

// options adds to o what follows the ?, and notes in a what is said there of the connection.
func (a *address) options(o Options) (Options, error) {
	o.OwnClient = true
	for name, values := range a.query {
		value, err := values[0], error(nil)
		if len(values) > 1 {
			return o, badURL("option %q is given twice", name)
		}
		switch name {
		case "prefix":
			o.Prefix = value
		case "durability":
			o.Durability = punctual.Durability(value)
			if !slices.Contains([]punctual.Durability{punctual.Fsync, punctual.Replicated, punctual.Volatile}, o.Durability) {
				err = badURL("unknown durability %q; use fsync, replicated or volatile", value)
			}
		case "replicas":
			if o.Replicas, err = strconv.Atoi(value); err != nil || o.Replicas < 1 {
				err = badURL("replicas=%s: use a number from 1", value)
			}
		case "password-file":
			err = a.readPassword(value)
		case "ca", "cert", "key":
			if !a.tls {
				err = badURL("%s= is for connections with TLS: use rediss", name)
			}
		default:
			err = badURL("unknown option %q; use prefix, durability, replicas, password-file, ca, cert or key", name)
		}
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

func (a *address) readPassword(file string) error {
	if a.password != "" {
		return badURL("there is a password and a password-file: use one")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return badURL("password-file: %v", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if a.password = strings.TrimSuffix(line, "\r"); a.password == "" {
		return badURL("the first line of the password-file %s is empty", file)
	}
	return nil
}

// secure returns how to speak TLS, or nil for connections without TLS.
func (a *address) secure() (*tls.Config, error) {
	if !a.tls {
		return nil, nil
	}
	c, err := tlsfile.Client(a.query.Get("ca"), a.query.Get("cert"), a.query.Get("key"))
	if err != nil {
		return nil, badURL("%v", err)
	}
	return c, nil
}

// client makes a client. With DisableIdentity it does not send CLIENT SETINFO, for which the rights
// in docs/format-redis.md do not suffice.
func (a *address) client(secure *tls.Config) redis.UniversalClient {
	switch a.kind {
	case "sentinel":
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: a.primary, SentinelAddrs: a.hosts, SentinelUsername: a.user, SentinelPassword: a.password,
			Username: a.user, Password: a.password, DB: a.database, TLSConfig: secure,
			DialerRetries: dials, DisableIdentity: true,
		})
	case "cluster":
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: a.hosts, Username: a.user, Password: a.password, TLSConfig: secure, DialerRetries: dials, DisableIdentity: true})
	}
	return redis.NewClient(&redis.Options{Addr: a.hosts[0], Username: a.user, Password: a.password, DB: a.database, TLSConfig: secure, DialerRetries: dials, DisableIdentity: true})
}

// dials is how often each try of a command dials. More is not needed, because the client and the
// store try commands again. With the five dials that are the default of go-redis, an address that
// does not answer was reported only after 100 s.
const dials = 1
