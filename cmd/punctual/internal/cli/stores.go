package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/internal/tlsfile"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/pgstore"
	"github.com/punctualmq/punctual/redisstore"
	"github.com/punctualmq/punctual/remotestore"
	"github.com/punctualmq/punctual/sharedstore"
	"github.com/punctualmq/punctual/storekit"
)

// defaultStore is opened when neither --store nor PUNCTUAL_STORE names one.
const defaultStore = "disk:punctual-data"

// scheme is one kind of store that --store can name: `NAME:WHERE`.
type scheme struct {
	name string
	// form shows users what to write; empty for a variant of another scheme.
	form string
	open func(ctx context.Context, p place) (punctual.Store, error)
	// examine returns the findings of doctor. It does not open a store in a directory, in Redis or
	// in PostgreSQL, because such a store may refuse to open. The findings about a server's store
	// come from that server.
	examine func(ctx context.Context, p place) ([]storekit.Finding, error)
	// alsoOpen opens the store for the part of doctor that reads schedules, when examine has found
	// nothing bad. It is nil where examine has these findings already or there can be none, and
	// returns a nil Store where nothing may be opened.
	alsoOpen func(ctx context.Context, p place) (punctual.Store, error)
}

// place says which store to open, and how.
type place struct {
	// name is the full name of the store, and where the text behind its first colon.
	name, where string
	// create says to create a store that does not exist. Without it open creates nothing, and
	// returns a failure with codeNoStore. A store in memory is made in any case, because it cannot
	// exist before.
	create bool
	// wait is how long to wait for another process that has the store to itself.
	wait time.Duration
	// token is sent with the calls to a server, or else the token in the file tokenFile.
	token, tokenFile string
	// log gets the log entries of the store.
	log *slog.Logger
}

// schemes returns the table of stores. A new kind of store is a further row.
func schemes() []scheme {
	return []scheme{
		{"disk", "disk:PATH", openDisk, examineDisk, openShared},
		{"mem", "mem:", openMemory, examineMemory, nil},
		{"http", "http://HOST:PORT", openRemote, examineRemote, nil},
		{"https", "", openRemote, examineRemote, nil},
		{"unix", "unix:SOCKET", openRemote, examineRemote, nil},
		{"redis", "redis://HOST", openRedis, examineRedis, openRedis},
		{"redis+sentinel", "redis+sentinel://HOST,HOST/PRIMARY", openRedis, examineRedis, openRedis},
		{"redis+cluster", "redis+cluster://HOST,HOST", openRedis, examineRedis, openRedis},
		{"rediss", "", openRedis, examineRedis, openRedis}, // with TLS, as the two below
		{"rediss+sentinel", "", openRedis, examineRedis, openRedis},
		{"rediss+cluster", "", openRedis, examineRedis, openRedis},
		{"postgres", "postgres://HOST/DATABASE", openPostgres, examinePostgres, openPostgres},
		{"postgresql", "", openPostgres, examinePostgres, openPostgres},
	}
}

// opened returns s as a Store. An ErrNotFound becomes the failure of a store that is not there;
// missing says where.
func opened[S punctual.Store](s S, err error, missing string) (punctual.Store, error) {
	switch {
	case errors.Is(err, punctual.ErrNotFound):
		return nil, noStore(missing)
	case err != nil:
		return nil, err // not s: a nil pointer in an interface is not nil
	}
	return s, nil
}

func openRedis(ctx context.Context, p place) (punctual.Store, error) {
	s, err := redisstore.OpenURL(ctx, p.name, &redisstore.Options{Logger: p.log, MustExist: !p.create})
	return opened(s, err, "in this Redis, or not with this prefix")
}

func examineRedis(ctx context.Context, p place) ([]storekit.Finding, error) {
	return redisstore.ExamineURL(ctx, p.name, &redisstore.Options{Logger: p.log})
}

// openPostgres opens a store in PostgreSQL. A command that may make a store makes the tables.
func openPostgres(ctx context.Context, p place) (punctual.Store, error) {
	s, err := pgstore.OpenURL(ctx, p.name, &pgstore.Options{Logger: p.log, Migrate: p.create})
	return opened(s, err, "in this database, or not in this schema")
}

func examinePostgres(ctx context.Context, p place) ([]storekit.Finding, error) {
	return pgstore.ExamineURL(ctx, p.name, &pgstore.Options{Logger: p.log})
}

func openMemory(_ context.Context, p place) (punctual.Store, error) {
	if err := noPlace(p); err != nil {
		return nil, err
	}
	return memstore.New(nil), nil
}

func examineMemory(_ context.Context, p place) ([]storekit.Finding, error) {
	if err := noPlace(p); err != nil {
		return nil, err
	}
	return memstore.Examine(), nil
}

func noPlace(p place) error {
	if p.where != "" {
		return usagef("store \"mem:%s\": a store in memory has no place: use mem:", p.where)
	}
	return nil
}

func examineDisk(ctx context.Context, p place) ([]storekit.Finding, error) {
	if err := namesDirectory(p); err != nil {
		return nil, err
	}
	return diskstore.Examine(ctx, p.where, &diskstore.Options{Logger: p.log})
}

func namesDirectory(p place) error {
	if p.where == "" {
		return usagef("store \"disk:\" names no directory: use disk:PATH")
	}
	return nil
}

func openDisk(ctx context.Context, p place) (punctual.Store, error) {
	if err := namesDirectory(p); err != nil {
		return nil, err
	}
	if !p.create {
		there, err := diskstore.Exists(p.where)
		switch {
		case err != nil:
			return nil, fmt.Errorf("open the store: %w", err)
		case !there:
			full, err := filepath.Abs(p.where)
			if err != nil {
				full = p.where
			}
			return nil, noStore("at " + full)
		}
	}
	s, err := sharedstore.Open(ctx, p.where, &sharedstore.Options{Logger: p.log, Wait: cmp.Or(p.wait, -1)})
	return opened(s, err, "there")
}

// openShared opens the store in a directory at the process that has it open and shares it. It
// returns nil if there is none, so that nothing is changed in the directory.
func openShared(ctx context.Context, p place) (punctual.Store, error) {
	socket := filepath.Join(p.where, sharedstore.SocketName)
	if _, err := os.Stat(socket); err != nil {
		return nil, nil
	}
	p.name, p.where = "unix:"+socket, socket
	s, err := openRemote(ctx, p)
	if errors.Is(err, punctual.ErrUnreachable) { // left by an owner that was killed
		return nil, nil
	}
	return s, err
}

// openRemote opens a store at a server. place.where is //HOST:PORT, perhaps with a path, or for a
// unix socket its path. Several servers of one store are separated by commas, with or without the
// prefix in front of each. With https the files of certificates may follow a ? behind the last.
func openRemote(ctx context.Context, p place) (punctual.Store, error) {
	prefix := strings.TrimSuffix(p.name, p.where)
	o := remotestore.Options{Token: p.token, TokenFile: p.tokenFile, Logger: p.log}
	where := p.where
	if prefix == "https:" {
		var err error
		if where, o.TLS, err = certificates(where); err != nil {
			return nil, err
		}
	}
	var urls []string
	for n, part := range strings.Split(where, ",") {
		part = strings.TrimPrefix(part, prefix)
		switch kind, _, ok := strings.Cut(part, "://"); {
		case n > 0 && part == "":
			return nil, usagef("store %s: behind a comma no server is named: write it like %s", prefix, severalServers(prefix))
		case ok:
			return nil, usagef("store %s: another server begins with %s: write all alike, as %s", prefix, kind, severalServers(prefix))
		case n > 0 && prefix != "unix:" && !strings.HasPrefix(part, "//"):
			part = "//" + part
		}
		urls = append(urls, prefix+part)
	}
	s, err := remotestore.Open(ctx, urls, &o)
	if err != nil {
		return nil, withCertificateRemedy(err)
	}
	return s, nil
}

// severalServers is how several servers of one store are named.
func severalServers(prefix string) string {
	if prefix == "unix:" {
		return "unix:SOCKET,SOCKET"
	}
	return prefix + "//HOST:PORT,HOST:PORT"
}

// certificates splits //HOST:PORT?ca=FILE&cert=FILE&key=FILE at the question mark, and returns the
// TLS configuration that the files behind it make. The configuration is nil when there is no
// question mark.
func certificates(where string) (rest string, c *tls.Config, err error) {
	rest, text, ok := strings.Cut(where, "?")
	if !ok {
		return rest, nil, nil
	}
	query, err := url.ParseQuery(text)
	if err != nil {
		return "", nil, usagef("store https:%s: what follows the ? cannot be read: use ca=FILE, or cert=FILE&key=FILE, or all three", rest)
	}
	for name, values := range query {
		if !slices.Contains([]string{"ca", "cert", "key"}, name) || len(values) != 1 {
			return "", nil, usagef("store https:%s: unknown or repeated option %q: use ca, cert and key, each once", rest, name)
		}
	}
	if c, err = tlsfile.Client(query.Get("ca"), query.Get("cert"), query.Get("key")); err != nil {
		return "", nil, usagef("store https:%s: %v", rest, err)
	}
	return rest, c, nil
}

// withCertificateRemedy adds to err what to do when only one side speaks TLS, when the client does
// not know who vouches for the certificate of the server, or when the server demands one of the
// client.
func withCertificateRemedy(err error) error {
	stranger, remote := x509.UnknownAuthorityError{}, (*net.OpError)(nil)
	switch {
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"): // the text of http.ErrSchemeMismatch
		return fmt.Errorf("%w; the server there speaks no TLS: write http:// in the place of https://", err)
	case strings.Contains(err.Error(), "status 400, which no Punctual server gives"):
		return fmt.Errorf("%w; where the server speaks TLS write https:// in the place of http://", err)
	case errors.As(err, &stranger):
		return fmt.Errorf("%w; name the certificates of who vouches for the server with ?ca=FILE behind its URL", err)
	case errors.As(err, &remote) && remote.Op == "remote error" && strings.Contains(remote.Error(), "certificate required"): // crypto/tls does not export the type of this alert
		return fmt.Errorf("%w; show a certificate of your own with ?cert=FILE&key=FILE behind its URL", err)
	}
	return err
}

// examineRemote asks a server for the findings about its store.
func examineRemote(ctx context.Context, p place) (found []storekit.Finding, err error) {
	s, err := openRemote(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	e, err := punctual.As[storekit.Examiner](s)
	if err != nil {
		return nil, err
	}
	return e.Examine(ctx)
}

func noStore(where string) error {
	return &failure{
		code: codeNoStore, exit: exitError, definite: true,
		text: fmt.Sprintf("no store %s: push something first or name another with --store", where),
	}
}

func (a *app) storeForms() []string {
	var forms []string
	for _, s := range a.schemes {
		if s.form != "" {
			forms = append(forms, s.form)
		}
	}
	return forms
}

// newStoreHelp is 'punctual help store'.
func newStoreHelp(a *app) *cobra.Command {
	return &cobra.Command{Use: "store", Short: "How to name a store", Long: `--store, else the environment variable PUNCTUAL_STORE, else ` + defaultStore + `, names the store:

  ` + strings.Join(a.storeForms(), "\n  ") + `

A bare path is a directory, and HOST:PORT is a Redis. https://HOST:PORT is a server with TLS, and
with rediss in the place of redis the connections to Redis are TLS. docs/cli.md has the options that
may follow behind a ?, and how to give a password or a token.`}
}

// storeName returns the name of the store in the form KIND:WHERE: that of --store, else of
// PUNCTUAL_STORE, else the default.
func (a *app) storeName() string {
	if a.storeFlag != "" {
		return a.fullName(a.storeFlag)
	}
	if name := a.getenv("PUNCTUAL_STORE"); name != "" {
		return a.fullName(name)
	}
	return defaultStore
}

// fullName returns a bare path with the kind disk, and HOST:PORT with the kind redis, in front. Any
// other name stays as it is, and so does one that begins with a kind and a colon.
func (a *app) fullName(name string) string {
	kind, _, colon := strings.Cut(name, ":")
	switch {
	case slices.ContainsFunc(a.schemes, func(s scheme) bool { return s.name == kind }):
		return name
	case hostAndPort.MatchString(name):
		return "redis://" + name
	case !colon, strings.ContainsAny(kind, `/\`), kind == ".", kind == "..":
		return "disk:" + name
	}
	return name
}

// hostAndPort matches the name or address of a host, an IPv6 address in brackets, with a port.
var hostAndPort = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d+$`)

// How withStore treats a store that does not exist.
const (
	mustExist = false
	orCreate  = true
)

// withStore opens the store, lets f use it, and closes it.
func (a *app) withStore(ctx context.Context, create bool, f func(punctual.Store) error) error {
	s, err := a.openStore(ctx, a.storeName(), create)
	if err != nil {
		return a.withKindRemedy(err)
	}
	return closing(s, f(s))
}

// withNamed is withStore for a store that an argument names, and not --store.
func (a *app) withNamed(ctx context.Context, name string, create bool, f func(punctual.Store) error) error {
	s, err := a.openStore(ctx, a.fullName(name), create)
	if err != nil {
		return fmt.Errorf("%s: %w", withoutPassword(name), err)
	}
	return closing(s, f(s))
}

// closing closes a store, and returns err with the error of that.
func closing(s punctual.Store, err error) error {
	if closing := s.Close(); closing != nil {
		err = errors.Join(err, fmt.Errorf("close the store: %w", closing))
	}
	return err
}

func (a *app) openStore(ctx context.Context, name string, create bool) (punctual.Store, error) {
	s, p, err := a.place(name)
	if err != nil {
		return nil, err
	}
	p.create = create
	return s.open(ctx, p)
}

// withKindRemedy adds to err, the error of opening the store, that HOST:PORT without a kind was
// taken for a Redis server, if the store was named like that. A failure stays as it is.
func (a *app) withKindRemedy(err error) error {
	name := cmp.Or(a.storeFlag, a.getenv("PUNCTUAL_STORE"))
	if err == nil || !hostAndPort.MatchString(name) || a.fullName(name) == name || errors.As(err, new(*failure)) {
		return err
	}
	return fmt.Errorf("%w; %s alone was taken for a Redis: for a Punctual server write http://%s", err, name, name)
}

// lockedFor is how long a command waits, unless --wait says otherwise, for a directory whose owner
// does not share it. By then an owner that has just been started usually shares the directory, and
// one that is about to end has usually gone.
const lockedFor = 2 * time.Second

// place returns the kind of the store with this full name, and its place, with create unset.
func (a *app) place(name string) (s scheme, p place, err error) {
	kind, where, ok := strings.Cut(name, ":")
	n := slices.IndexFunc(a.schemes, func(s scheme) bool { return ok && s.name == kind })
	if n < 0 {
		return s, p, usagef("store %q is of no known kind: use %s", name, strings.Join(a.storeForms(), " or "))
	}
	return a.schemes[n], place{
		name: name, where: where, wait: a.wait, log: a.logger(),
		token: a.getenv("PUNCTUAL_TOKEN"), tokenFile: a.getenv("PUNCTUAL_TOKEN_FILE"),
	}, nil
}

// withInspector is withStore for commands that need an Inspector, for example to list messages or
// to change the settings of topics.
func (a *app) withInspector(ctx context.Context, create bool, f func(punctual.Inspector, punctual.Store) error) error {
	return with(ctx, a, create, f)
}

// with is withStore for commands that need a store to be a T, such as a storekit.Checker.
func with[T any](ctx context.Context, a *app, create bool, f func(T, punctual.Store) error) error {
	return a.withStore(ctx, create, func(s punctual.Store) error {
		i, err := punctual.As[T](s)
		if err != nil {
			return err
		}
		return f(i, s)
	})
}
