package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/duty"
	"github.com/punctualmq/punctual/internal/tlsfile"
	"github.com/punctualmq/punctual/server"
	"github.com/punctualmq/punctual/storekit"
)

// defaultListen is the default of --listen.
const defaultListen = "127.0.0.1:7878"

type serveFlags struct {
	listen  []string
	hosts   []string
	origins []string
	expose  bool
	drain   time.Duration
	delay   time.Duration
	duties  bool
	run     runFlags
}

func newServe(a *app) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the store over HTTP",
		Long: `Serve gives every program on this machine, in any language, the store over HTTP, and people a
console in a browser, at /. It prints where it listens. GET /openapi.json describes the interface;
docs/server.md explains it.

It listens on loopback addresses and unix sockets alone until it has TLS and tokens, since anyone
who can connect can read and change everything. SIGTERM drains: /readyz fails, claims that wait get
an empty answer, what is under way is finished, and the exit code is 0. Behind a load balancer
--drain-delay keeps the port open until the balancer has seen that.

Each flag that configures the server can be given by the environment (PUNCTUAL_TLS_CERT for
--tls-cert) or in the file in YAML that --config names ("tls-cert: FILE"). The command line counts
first, then the environment, then the file. Sockets that systemd hands over take the place of
--listen.`,
		Example: `  punctual serve
  punctual serve --config /etc/punctual/punctual.yaml --print-config
  punctual serve --store disk:/var/lib/punctual --listen 127.0.0.1:7000
  punctual serve --listen unix:/run/punctual/api.sock --listen '[::1]:7878'
  punctual serve --store redis://localhost --allow-host punctual.internal`,
	}
	cmd.RunE = a.action(func(ctx context.Context, _ []string) error {
		if err := f.run.config.apply(cmd, a.getenv); err != nil {
			return err
		}
		if err := f.run.check(a); err != nil {
			return err
		}
		if f.run.config.print {
			return a.printConfig(&f.run.config, cmd)
		}
		a.warnOfVariables(cmd.Root())
		if c := &f.run.config; c.fileStore != "" {
			a.logger().Warn("the store that counts is that of PUNCTUAL_STORE, not that of the file: unset PUNCTUAL_STORE, or take the store out of the file",
				"store", withoutPassword(a.storeName()), "file", c.fileStore)
		}
		return a.serve(ctx, f)
	})
	flags := cmd.Flags()
	flags.StringArrayVar(&f.listen, "listen", []string{defaultListen}, "listen on `HOST:PORT` or unix:PATH (repeatable)")
	flags.StringArrayVar(&f.hosts, "allow-host", nil, "a `NAME` under which clients reach the server, beside localhost and IP addresses (repeatable)")
	flags.StringArrayVar(&f.origins, "allow-origin", nil, "an `ORIGIN` of web pages that may change something, like https://console.example.com (repeatable)")
	flags.BoolVar(&f.expose, "expose-without-tls-and-tokens", false, "listen also where other machines can connect, and let anyone there do everything")
	durationVar(flags, &f.drain, "drain", "how long requests may go on after SIGTERM (default 30s)")
	durationVar(flags, &f.delay, "drain-delay", "after SIGTERM accept connections for this long still, while /readyz fails (default 0s)")
	flags.BoolVar(&f.duties, "duties", true, "do what any process may do for the store: schedules, copies for groups, follow-ups to forward")
	f.run.addTo(cmd)
	return cmd
}

// serveJSON is what serve prints when it listens.
type serveJSON struct {
	Store  string   `json:"store"`
	Listen []string `json:"listen"` // URLs, or unix:PATH
}

// serve answers requests until ctx ends, or until a listener, the store or its duties fail.
func (a *app) serve(ctx context.Context, f serveFlags) error {
	listeners, err := fromSystemd()
	if err != nil {
		return err
	}
	served := false
	err = a.withStore(ctx, orCreate, func(s punctual.Store) (err error) {
		served = true
		ctx, end := context.WithCancelCause(ctx)
		defer end(nil)
		o := server.Options{
			Hosts: f.hosts, Origins: f.origins, Version: a.version(),
			OnStoreFailed: func(err error) { end(&storeFailure{err}) },
		}
		endMetrics, err := f.run.apply(&o, s, a.logger())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, endMetrics()) }()
		var h *server.Server // set before the first request comes
		pages, err := a.newConsole(s, &f.run, consoleServer{
			authenticate: func(r *http.Request) (*access.Principal, error) { return h.Authenticate(r) },
			consumers:    func(ctx context.Context, topic string) (storekit.Consumers, error) { return h.Consumers(ctx, topic) },
		})
		if err != nil {
			return err
		}
		if pages != nil {
			defer pages.Close()
			o.Console, o.Observer, o.Record = pages, punctual.JoinObservers(o.Observer, pages.Observer()), pages.Record
		}
		if f.duties {
			o.Duties = true
			defer a.duties(ctx, s, o.Observer, end)()
		}
		if h, err = server.New(s, &o); err != nil {
			return err
		}
		how := server.ServeOptions{ExposeWithoutTLSAndTokens: f.expose, DrainDelay: f.delay, DrainTime: f.drain, MaxConnections: f.run.connections}
		if f.run.tls.Cert != "" {
			if how.TLS, err = tlsfile.Config(f.run.tls, a.logger()); err != nil {
				return err
			}
		}
		if len(listeners) == 0 {
			if listeners, err = listenAll(f.listen); err != nil {
				return err
			}
		}
		for _, l := range listeners {
			if err := h.MayServe(l.Addr(), &how); err != nil {
				return errors.Join(withListenFlags(err), closeAll(listeners))
			}
		}
		if err := a.showServing(listeners, &f.run); err != nil {
			return errors.Join(err, closeAll(listeners))
		}
		reported := reportToSystemd(ctx, s, a.logger())
		err = h.Serve(ctx, &how, listeners...)
		end(nil)
		reported()
		if failed := (*storeFailure)(nil); errors.As(context.Cause(ctx), &failed) {
			err = errors.Join(fmt.Errorf("the store has failed, so the server ends: %w", failed.err), err)
		}
		return err
	})
	if kind, _, _ := strings.Cut(a.storeName(), ":"); !served && slices.Contains([]string{"http", "https", "unix"}, kind) {
		err = fmt.Errorf("%w; if the store %s is to be this server itself, name another with --store%s", err, withoutPassword(a.storeName()), f.run.config.storeFrom())
	}
	if !served {
		err = errors.Join(err, closeAll(listeners))
	}
	return err
}

// duties does the duties of a store until ctx ends, in a goroutine. The returned function ends that
// and waits for it; call it before the store is closed. Nothing is done for a store that cannot
// name its topics or does not tell what it can do. If the duties fail, fail is called.
func (a *app) duties(ctx context.Context, s punctual.Store, o *punctual.Observer, fail context.CancelCauseFunc) (stop func()) {
	ctx, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		switch err := duty.Run(ctx, s, &duty.Config{Logger: a.logger(), Observer: o}); {
		case errors.Is(err, punctual.ErrUnsupported):
		case err != nil:
			fail(&storeFailure{err})
		}
	}()
	return func() {
		end()
		<-done
	}
}

// version returns the version of the program, which the server and the console show.
func (a *app) version() string { return versionOf(debug.ReadBuildInfo()).Version }

// storeFailure is the cause of the end of a server whose store, or the duties of whose store, have
// failed. serve then returns an error, so that the supervisor of the process acts.
type storeFailure struct{ err error }

func (f *storeFailure) Error() string { return f.err.Error() }

func listenAll(addresses []string) ([]net.Listener, error) {
	var listeners []net.Listener
	for _, address := range addresses {
		l, err := listen(address)
		if err != nil {
			return nil, errors.Join(err, closeAll(listeners))
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// withListenFlags adds to an err that is an ErrForbidden the flags with which the server may
// listen.
func withListenFlags(err error) error {
	if errors.Is(err, punctual.ErrForbidden) {
		said := strings.TrimSuffix(err.Error(), ": "+punctual.ErrForbidden.Error())
		return &failure{ // with the flags as the remedy, in the place of the one for clients
			code: storekit.ErrorCode(err), exit: exitError, definite: true, cause: err,
			text: said + ": the flags are --tls-cert with --tls-key and --tokens, or --listen 127.0.0.1:PORT, or --expose-without-tls-and-tokens",
		}
	}
	return err
}

func closeAll(listeners []net.Listener) error {
	var err error
	for _, l := range listeners {
		err = errors.Join(err, l.Close())
	}
	return err
}

func listen(address string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix:")
	if !isUnix {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("listen: use another address with --listen: %w", err)
		}
		return l, nil
	}
	if err := removeDeadSocket(path); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l, err := listenPrivately(path)
	if err != nil {
		return nil, fmt.Errorf("listen: use another path with --listen: %w", err)
	}
	return l, nil
}

// listenPrivately listens on a socket to which only the user of this process can connect, on Unix
// from its first instant on. net.Listen makes the socket with the mode that the umask leaves, so
// the umask is set to keep others out meanwhile. To change the mode afterwards is not enough,
// because a connection that is made before stays. What other goroutines create meanwhile is closed
// to others, too.
func listenPrivately(path string) (net.Listener, error) {
	restore := closeUmask()
	l, err := net.Listen("unix", path)
	restore()
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// removeDeadSocket removes a socket on which no process listens, which a server leaves behind when
// it is killed. A socket on which a process listens is an error. A file of another kind is left
// alone.
func removeDeadSocket(path string) error {
	before, err := os.Lstat(path)
	if err != nil || before.Mode().Type() != os.ModeSocket {
		return nil // net.Listen says what is wrong, if anything is
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("a server listens on %s already: end it, or use another path with --listen", path), c.Close())
	}
	now, gone := os.Lstat(path)
	if !errors.Is(err, syscall.ECONNREFUSED) || gone != nil || !os.SameFile(before, now) {
		return nil
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the socket that a server which has ended left: %w", err)
	}
	return nil
}

// withoutPassword returns the name of a store for output and logs, with xxxxx in place of a
// password. If the name cannot be parsed as a URL, only its kind is returned.
func withoutPassword(store string) string {
	if _, err := url.Parse(store); err != nil {
		kind, _, _ := strings.Cut(store, ":")
		return kind
	}
	return redacted(store)
}

// showServing prints where the server listens, and without --json also calls to try. Without --json
// it also prints where the console is, if there is one and the first address is no unix socket.
func (a *app) showServing(listeners []net.Listener, f *runFlags) error {
	scheme := "http://"
	if f.tls.Cert != "" {
		scheme = "https://"
	}
	out := serveJSON{Store: withoutPassword(a.storeName())}
	for _, l := range listeners {
		if l.Addr().Network() == "unix" {
			out.Listen = append(out.Listen, "unix:"+l.Addr().String())
		} else {
			out.Listen = append(out.Listen, scheme+l.Addr().String())
		}
	}
	a.logger().Info("serving", "store", out.Store, "listen", out.Listen)
	if a.json {
		return a.out.writeJSON(out)
	}
	a.printf("Serving %s on %s\n", out.Store, strings.Join(out.Listen, " and "))
	url, options := out.Listen[0], ""
	if path, isUnix := strings.CutPrefix(url, "unix:"); isUnix {
		url, options = "http://localhost", "--unix-socket "+path+" "
	}
	if f.tokens != "" {
		options += `-H "Authorization: Bearer $TOKEN" `
	}
	a.printf("Try:  curl %s-d hello '%s/v1/topics/greetings/messages?in=5s'\n", options, url)
	a.printf("      curl %s-X POST '%s/v1/topics/greetings/claim?wait=10s'\n", options, url)
	if !f.noConsole && strings.HasPrefix(out.Listen[0], scheme) {
		a.printf("Look: %s/\n", out.Listen[0])
	}
	return a.out.failed()
}
