package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/access/tokens"
	"github.com/punctualmq/punctual/console"
	"github.com/punctualmq/punctual/internal/slo"
	"github.com/punctualmq/punctual/internal/tlsfile"
	"github.com/punctualmq/punctual/metrics/punctualprom"
	"github.com/punctualmq/punctual/server"
	"github.com/punctualmq/punctual/storekit"
)

// What serve needs beside the HTTP interface: the flags for configuration, logs, tokens, TLS,
// limits and metrics, and what is done for systemd.

// runFlags are the flags of serve that say how it runs.
type runFlags struct {
	config     config
	logFormat  string
	logLevel   string
	tokens     string
	tls        tlsfile.Files
	objective  string
	topicLimit int
	limits     server.Limits
	// connections bounds the open connections; 0 is the default of server.ServeOptions.
	connections int
	// noConsole, hideBodies and showHeaders say what the console shows.
	noConsole, hideBodies bool
	showHeaders           []string
}

func (f *runFlags) addTo(cmd *cobra.Command) {
	f.config.addTo(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.logFormat, "log-format", "text", "write logs as text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "log from this `LEVEL` on: debug, info, warn, error")
	flags.StringVar(&f.tokens, "tokens", "", "let in who is in this `FILE`, made by 'punctual token' (default: everybody)")
	flags.StringVar(&f.tls.Cert, "tls-cert", "", "speak TLS with the certificate in this PEM `FILE`; it may be replaced at any time")
	flags.StringVar(&f.tls.Key, "tls-key", "", "the PEM `FILE` of its key")
	flags.StringVar(&f.tls.ClientCA, "tls-client-ca", "", "let clients show certificates signed by the roots in this PEM `FILE`")
	flags.BoolVar(&f.tls.ClientRequired, "tls-client-required", false, "refuse clients that show none")
	flags.StringVar(&f.objective, "lateness-slo", "", "watch a promise: `1s@99`, 99 of 100 deliveries are at most 1 s late")
	flags.IntVar(&f.topicLimit, "metrics-topics", 100, "how many topics have a label of their own in /metrics")
	flags.Int64Var(&f.limits.MaxBody, "max-body", 0, "the largest body of a message, in `BYTES` (default: 1 MiB)")
	flags.Int64Var(&f.limits.MaxRequest, "max-request", 0, "the largest body of a request, in `BYTES` (default: 32 MiB)")
	flags.Int64Var(&f.limits.MaxMemory, "max-memory", 0, "what all requests and answers may take at once, in `BYTES`; one client at most half (default: 256 MiB)")
	flags.IntVar(&f.limits.MaxTopics, "max-topics", 0, "how many topics there may be for clients to make another (default: 10000)")
	flags.IntVar(&f.limits.MaxWaiting, "max-waiting", 0, "how many claims and streams of one client may be under way (default: 10000)")
	flags.Float64Var(&f.limits.Rate, "rate", 0, "how many requests one client may send in a second (default: 20000)")
	flags.BoolVar(&f.noConsole, "no-console", false, "serve the interface alone, without pages for people")
	flags.BoolVar(&f.hideBodies, "console-hide-bodies", false, "show no bodies and headers of messages in the console")
	flags.StringArrayVar(&f.showHeaders, "console-show-header", nil, "show the header `NAME` all the same (repeatable)")
	flags.IntVar(&f.connections, "max-connections", 0, "how many connections may be open (default: 16384)")
}

// check returns an error for flags that are wrong or do not fit together, before a store is opened.
// It sets the logger of the app.
func (f *runFlags) check(a *app) (err error) {
	if a.log, err = f.logger(a); err != nil {
		return err
	}
	if f.objective != "" {
		if _, err := typed(slo.Parse(f.objective)); err != nil {
			return err
		}
	}
	switch {
	case (f.tls.Cert == "") != (f.tls.Key == ""):
		return usagef("--tls-cert and --tls-key go together")
	case f.tls.ClientCA != "" && f.tls.Cert == "":
		return usagef("--tls-client-ca goes with --tls-cert and --tls-key")
	case f.tls.ClientCA != "" && f.tokens == "":
		return usagef("--tls-client-ca goes with --tokens, whose file has the subjects of the certificates: see 'punctual token new --help'")
	case f.tls.ClientRequired && f.tls.ClientCA == "":
		return usagef("--tls-client-required goes with --tls-client-ca")
	case !(f.limits.Rate >= 0): // also NaN
		return usagef("--rate %v: use a positive number, or 0 for the default", f.limits.Rate)
	case f.connections < 0:
		return usagef("--max-connections %d: use 1 or more, or 0 for the default", f.connections)
	case f.topicLimit < 1:
		return usagef("--metrics-topics %d: use 1 or more", f.topicLimit)
	case f.noConsole && (f.hideBodies || len(f.showHeaders) > 0):
		return usagef("--no-console goes without --console-hide-bodies and --console-show-header")
	case len(f.showHeaders) > 0 && !f.hideBodies:
		return usagef("--console-show-header goes with --console-hide-bodies, which hides the other ones")
	}
	return nil
}

// logger returns the logger that the flags describe.
func (f *runFlags) logger(a *app) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, usagef("--log-level %q: use debug, info, warn or error", f.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch f.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(a.errs, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(a.errs, options)), nil
	}
	return nil, usagef("--log-format %q: use text or json", f.logFormat)
}

// printConfig prints the configuration in force.
func (a *app) printConfig(c *config, cmd *cobra.Command) error {
	if a.storeFlag == "" {
		a.storeFlag = a.storeName() // so that the default is printed, too
	}
	text, err := c.text(cmd)
	if err != nil {
		return fmt.Errorf("print the configuration: %w", err)
	}
	a.printf("%s", text)
	return nil
}

// apply sets the options of the server that the flags name: logs, limits, access and metrics. The
// returned function ends the metrics, which read s, and has to be called before s is closed.
func (f *runFlags) apply(o *server.Options, s punctual.Store, log *slog.Logger) (end func() error, err error) {
	o.Logger, o.Limits = log, f.limits
	if f.tokens != "" {
		file, err := tokens.Open(f.tokens, log)
		if err != nil {
			return nil, err
		}
		o.Authenticator = file
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics, err := punctualprom.New(registry, &punctualprom.Options{TopicLimit: f.topicLimit})
	if err != nil {
		return nil, err
	}
	if _, err := punctual.As[punctual.Inspector](s); err == nil {
		if err := metrics.AddStore(s); err != nil {
			return nil, err
		}
	}
	o.Observer = metrics.Observer()
	if f.objective != "" {
		objective, err := slo.Parse(f.objective)
		if err != nil {
			return nil, err
		}
		lateness := slo.New(objective)
		registry.MustRegister(lateness)
		o.Degraded = lateness.Degraded
		o.Observer = punctual.JoinObservers(o.Observer, &punctual.Observer{
			OnStart: func(_ context.Context, d *punctual.Delivery) { lateness.Delivered(d) },
		})
	}
	o.Metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError)})
	return metrics.Close, nil
}

// fromSystemd returns the sockets that systemd has passed to the process, if any. They take the
// place of --listen.
func fromSystemd() ([]net.Listener, error) {
	listeners, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("take the sockets of systemd: %w", err)
	}
	for _, l := range listeners {
		if l == nil {
			return nil, usagef("systemd hands over a socket that is not of a stream: use ListenStream alone in the socket unit")
		}
	}
	return listeners, nil
}

// reportToSystemd tells systemd that the server is ready, and when ctx ends, that it stops. If the
// unit has a watchdog, it tells systemd regularly that the store answers. Without systemd it does
// nothing. The returned function waits until the reports have ended; call it after ctx has ended.
func reportToSystemd(ctx context.Context, s punctual.Store, log *slog.Logger) (wait func()) {
	notify := func(state string) bool {
		there, err := daemon.SdNotify(false, state)
		if err != nil {
			log.Error("systemd could not be told", "state", state, "err", err)
		}
		return there
	}
	if !notify(daemon.SdNotifyReady) {
		return func() {}
	}
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Error("systemd's wish for a watchdog is malformed", "err", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var ticks <-chan time.Time
		if every > 0 {
			t := time.NewTicker(every / 3)
			defer t.Stop()
			ticks = t.C
		}
		for {
			select {
			case <-ctx.Done():
				notify(daemon.SdNotifyStopping)
				return
			case <-ticks:
				look, cancel := context.WithTimeout(ctx, every/3)
				if _, err := s.Now(look); err == nil {
					notify(daemon.SdNotifyWatchdog)
				}
				cancel()
			}
		}
	}()
	return func() { <-done }
}

// consoleServer has the functions of the server that the console calls.
type consoleServer struct {
	authenticate func(*http.Request) (*access.Principal, error)
	consumers    func(context.Context, string) (storekit.Consumers, error)
}

// newConsole returns the console of a store, or nil when the flags turn it off.
func (a *app) newConsole(s punctual.Store, f *runFlags, beside consoleServer) (*console.Console, error) {
	if f.noConsole {
		return nil, nil
	}
	return console.New(s, &console.Options{
		Version: a.version(), HideBodies: f.hideBodies, ShowHeaders: f.showHeaders, Logger: a.logger(), API: "/",
		LoginByToken: f.tokens != "", Consumers: beside.consumers, Authenticate: beside.authenticate,
	})
}
