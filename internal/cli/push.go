package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

type pushFlags struct {
	when        whenFlags
	id          string
	headers     []string
	maxAttempts int
	expire      time.Duration
	dropExpired bool
	attributes  storekit.Attributes
	spread      time.Duration
	ifExists    string
	replace     bool
	ifDue       time.Time
	ndjson      bool
}

func newPush(a *app) *cobra.Command {
	var f pushFlags
	cmd := &cobra.Command{
		Use:   "push TOPIC BODY|-",
		Short: "Store a message to be delivered later",
		Long: `Push stores a message that is delivered at the time asked for, and prints its ID once
the message is durable. BODY "-" reads the body from standard input; with --ndjson many
messages are read from standard input, one JSON object per line:

  {"topic"?, "id"?, "body" or "body_base64", "in"? or "due"?, "headers"?, "headers_base64"?,
   "max_attempts"?, "expire"?, "drop_expired"?, "remember"?, "timeout"?}

These and the other members are those of the HTTP interface. A "body" that is text is the body; any
other JSON value is kept as it is written. A line that list has printed is taken, too.
For each message that was stored a JSON line is printed, in the order of the input. A line
that is refused is reported on standard error with its number, and the others are stored. A
flag, --expire 1h for instance, is for the lines that do not have the member themselves.`,
		Example: `  punctual push order.cancel '{"order":42}' --in 30m
  punctual push reminder "See you on Sunday" --at '2026-11-20 9:00' --zone Europe/Berlin --id visit-7
  punctual push search.index "page 9" --in 5s --id page-9 --if-exists replace
  printf '%s\n' '{"body":"a","in":"1s"}' '{"body":"b","in":"2s"}' | punctual push jobs --ndjson
  date | punctual push log -`,
		Annotations: map[string]string{mayBeEmpty: "1"},
		Args: func(_ *cobra.Command, args []string) error {
			return f.checkArgs(args)
		},
	}
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		options, err := f.options()
		if err != nil {
			return err
		}
		if f.ndjson {
			return a.pushLines(ctx, args, options)
		}
		return a.pushOne(ctx, args[0], args[1], options)
	})
	f.register(a, cmd.Flags())
	return cmd
}

func (f *pushFlags) register(a *app, flags *pflag.FlagSet) {
	f.when.register(a, flags)
	flags.StringVar(&f.id, "id", "", "name the message; pushing the same ID again keeps the first (see --if-exists)")
	flags.StringArrayVar(&f.headers, "header", nil, "add a header, `NAME=VALUE` (repeatable)")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "deliver the message at most this often (default: as the topic says)")
	durationVar(flags, &f.expire, "expire", "stop delivering the message this long after its due time")
	flags.BoolVar(&f.dropExpired, "drop-expired", false, "drop the message when it expires, instead of keeping it among the dead")
	attributeFlags(flags, &f.attributes)
	durationVar(flags, &f.spread, "spread", "deliver later by a random part of this, so that many messages do not fall due at once")
	flags.StringVar(&f.ifExists, "if-exists", "keep", "when the ID is in use: `keep|replace|replace-dead|fail`; keep fails when it is dead")
	flags.BoolVar(&f.replace, "replace", false, "the same as --if-exists replace")
	a.timeVar(flags, &f.ifDue, "if-due", "with --replace: replace only a message that is due at this time, as 'punctual get' shows it")
	flags.BoolVar(&f.ndjson, "ndjson", false, "read many messages from standard input, one JSON object per line")
}

func (f *pushFlags) checkArgs(args []string) error {
	switch {
	case f.ndjson && len(args) > 1:
		return usagef("with --ndjson the bodies come from standard input: give at most a TOPIC")
	case f.ndjson && f.id != "":
		return usagef("--id names one message: with --ndjson put \"id\" into the lines")
	case f.replace && f.ifExists != "keep" && f.ifExists != "replace":
		return usagef("--replace and --if-exists %s are both given: use one", f.ifExists)
	case !f.ifDue.IsZero() && (f.id == "" || !f.replaces()):
		return usagef("--if-due goes with --id and --replace: it is the due time of the message that is to be replaced")
	case !f.ndjson && len(args) != 2:
		return usagef("push takes a TOPIC and a BODY (%d arguments given): see 'punctual push --help'", len(args))
	}
	return nil
}

func (f *pushFlags) replaces() bool { return f.replace || f.ifExists == "replace" }

// options turns the flags into what Compose takes.
func (f *pushFlags) options() ([]punctual.PushOption, error) {
	w, err := f.when.when()
	if err != nil {
		return nil, err
	}
	var o []punctual.PushOption
	if f.when.given() {
		o = append(o, w)
	}
	if f.id != "" {
		o = append(o, punctual.ID(f.id))
	}
	headers, err := readHeaders(f.headers)
	if err != nil {
		return nil, err
	}
	if headers != nil {
		o = append(o, punctual.Headers(headers))
	}
	if f.maxAttempts < 0 {
		return nil, usagef("max attempts %d: use 1 to %d", f.maxAttempts, limits.MaxAttemptsLimit)
	}
	o = append(o, punctual.MaxAttempts(f.maxAttempts), punctual.Expire(f.expire), punctual.Spread(f.spread))
	o = append(o, attributeOptions(f.attributes)...)
	if f.dropExpired {
		o = append(o, punctual.DropExpired())
	}
	switch {
	case !f.ifDue.IsZero():
		o = append(o, punctual.ReplaceIfDue(f.ifDue))
	case f.replaces():
		o = append(o, punctual.Replace())
	case f.ifExists == "keep":
	case f.ifExists == "replace-dead":
		o = append(o, punctual.ReplaceDead())
	case f.ifExists == "fail":
		o = append(o, punctual.FailIfExists())
	default:
		return nil, usagef("--if-exists %q: use keep, replace, replace-dead or fail", f.ifExists)
	}
	return o, nil
}

func (a *app) pushOne(ctx context.Context, topic, body string, options []punctual.PushOption) error {
	content := []byte(body)
	if body == "-" {
		var err error
		if content, err = readBody(a.in); err != nil {
			return err
		}
	}
	m, err := punctual.Compose(topic, content, options...)
	if err != nil {
		return err
	}
	if err := storekit.CheckPush(&m, limits.DefaultMaxBody); err != nil {
		return err // before a store is made for it
	}
	return a.withStore(ctx, orCreate, func(s punctual.Store) error {
		results, err := s.Push(ctx, []punctual.NewMessage{m})
		if err != nil {
			return err
		}
		if err := results[0].Err; err != nil {
			return err
		}
		return a.printPushed(results[0])
	})
}

func (a *app) printPushed(r punctual.PushResult) error {
	if a.json {
		return a.out.writeJSON(wire.PushResultOf(r))
	}
	a.printf("%s\n", r.ID)
	if r.Status == punctual.PushDuplicate {
		kept := "the first message is kept"
		if r.Due.IsZero() {
			kept = "it is that of a message that has finished, and this one is not stored"
		}
		fmt.Fprintf(a.errs, "punctual: push: ID %q is in use (duplicate): %s\n", r.ID, kept)
	}
	return nil
}

// readBody returns all of standard input, or an ErrTooLarge if that is more than a body may have.
func readBody(in io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(in, limits.DefaultMaxBody+1))
	if err != nil {
		return nil, fmt.Errorf("read the body from standard input: %w", err)
	}
	if len(body) > limits.DefaultMaxBody {
		return nil, fmt.Errorf("standard input holds more than %d bytes: put large content elsewhere and push its name: %w", limits.DefaultMaxBody, punctual.ErrTooLarge)
	}
	return body, nil
}

// whenFlags are --in, --at and --zone, and of some commands --now.
type whenFlags struct {
	app  *app
	in   *time.Duration
	at   string // the text, because --zone, which may come later on the command line, decides about it
	zone string
	now  bool
}

func (w *whenFlags) register(a *app, flags *pflag.FlagSet) {
	w.app = a
	givenDurationVar(flags, &w.in, "in", "deliver after this long: 90s, 30m, 2d12h, 1w")
	parsedVar(flags, &w.at, "at", "deliver at this time: "+timeForms+"; a time past is now", "time", w.readAt)
	flags.StringVar(&w.zone, "zone", "", "the time `ZONE` of --at, such as Europe/Berlin (default: the local one)")
}

func (w *whenFlags) registerNow(flags *pflag.FlagSet) {
	flags.BoolVar(&w.now, "now", false, "deliver now")
}

func (w *whenFlags) given() bool { return w.now || w.in != nil || w.at != "" }

// when returns the time that the flags ask for, which is now if they ask for none.
func (w *whenFlags) when() (punctual.When, error) {
	a, err := w.amendment(punctual.ChangeReschedule)
	if a.Due.IsZero() {
		return punctual.In(a.Delay), err
	}
	return punctual.At(a.Due), err
}

// amendment returns the change c to the time of when.
func (w *whenFlags) amendment(c punctual.Change) (a punctual.Amendment, err error) {
	a.Change = c
	switch {
	case w.in != nil && w.at != "":
		err = usagef("--in and --at are both given: use one")
	case w.now && (w.in != nil || w.at != ""):
		err = usagef("--now is given with --in or --at: use one")
	case w.zone != "" && w.at == "":
		err = usagef("--zone goes with --at: it says where the clocks are that show the time")
	case w.in != nil:
		a.Delay = *w.in
	case w.zone != "":
		a.Due, err = w.app.readTimeIn(w.at, w.zone)
	case w.at != "":
		a.Due, err = w.app.readTime(w.at)
	}
	if err == nil && w.at != "" && a.Due.IsZero() {
		err = usagef("time %s cannot be told from none: use --in 0s", stamp(a.Due))
	}
	a.Due = a.Due.Round(0).In(time.UTC)
	return a, err
}

// readAt checks the text of --at. A time that the local clocks skip is refused later, unless --zone
// is given.
func (w *whenFlags) readAt(s string) (string, error) {
	_, err := w.app.readTime(s)
	if errors.Is(err, errSkipped) {
		err = nil
	}
	return s, err
}
