package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// pushFlags are the flags of push. Most of them are members of item, a message as the HTTP
// interface takes it.
type pushFlags struct {
	item            wire.PushItem
	when            whenFlags
	headers         []string
	spread          time.Duration
	replace, ndjson bool

	// due is the time of when, and with has the headers. read sets both.
	due  punctual.When
	with map[string]string
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
   "max_attempts"?, "expire"?, "drop_expired"?}

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
		if err := f.read(); err != nil {
			return err
		}
		if f.ndjson {
			return a.pushLines(ctx, args, &f)
		}
		return a.pushOne(ctx, args[0], args[1], &f)
	})
	f.register(a, cmd.Flags())
	return cmd
}

func (f *pushFlags) register(a *app, flags *pflag.FlagSet) {
	f.when.register(a, flags)
	flags.StringVar((*string)(&f.item.ID), "id", "", "name the message; pushing the same ID again keeps the first (see --if-exists)")
	flags.StringArrayVar(&f.headers, "header", nil, "add a header, `NAME=VALUE` (repeatable)")
	flags.IntVar(&f.item.MaxAttempts, "max-attempts", 0, "deliver the message at most this often (default: as the topic says)")
	durationTextVar(flags, &f.item.Expire, "expire", "stop delivering the message this long after its due time")
	flags.BoolVar(&f.item.DropExpired, "drop-expired", false, "drop the message when it expires, instead of keeping it among the dead")
	attributeFlags(flags, &f.item.Attributes)
	durationVar(flags, &f.spread, "spread", "deliver later by a random part of this, so that many messages do not fall due at once")
	flags.StringVar((*string)(&f.item.IfExists), "if-exists", "keep", "when the ID is in use: `keep|replace|replace-dead|fail`; keep fails when it is dead")
	flags.BoolVar(&f.replace, "replace", false, "the same as --if-exists replace")
	a.timeTextVar(flags, &f.item.IfDue, "if-due", "with --replace: replace only a message that is due at this time, as 'punctual get' shows it")
	flags.BoolVar(&f.ndjson, "ndjson", false, "read many messages from standard input, one JSON object per line")
}

func (f *pushFlags) checkArgs(args []string) error {
	switch {
	case f.ndjson && len(args) > 1:
		return usagef("with --ndjson the bodies come from standard input: give at most a TOPIC")
	case f.ndjson && f.item.ID != "":
		return usagef("--id names one message: with --ndjson put \"id\" into the lines")
	case f.replace && f.item.IfExists != "keep" && f.item.IfExists != "replace":
		return usagef("--replace and --if-exists %s are both given: use one", f.item.IfExists)
	case f.item.IfDue != "" && (f.item.ID == "" || !f.replace && f.item.IfExists != "replace"):
		return usagef("--if-due goes with --id and --replace: it is the due time of the message that is to be replaced")
	case !f.ndjson && len(args) != 2:
		return usagef("push takes a TOPIC and a BODY (%d arguments given): see 'punctual push --help'", len(args))
	}
	return nil
}

// read reads the flags, and refuses what would be wrong for every message before a store is made.
func (f *pushFlags) read() (err error) {
	if f.due, err = f.when.when(); err != nil {
		return err
	}
	if f.with, err = readHeaders(f.headers); err != nil {
		return err
	}
	if f.replace {
		f.item.IfExists = "replace"
	}
	_, err = typed(f.message("any", nil))
	return err
}

// message returns the message that the flags describe.
func (f *pushFlags) message(topic string, body []byte) (punctual.NewMessage, error) {
	item := f.item
	item.Topic, item.Body = wire.Given(topic), wire.BodyOf(body)
	m, err := f.compose(&item)
	if err != nil {
		return m, err
	}
	return m, storekit.CheckPush(&m, limits.DefaultMaxBody)
}

// compose makes the message of an item, with the time of the flags if the item has none, and with
// their headers and spread.
func (f *pushFlags) compose(item *wire.PushItem) (punctual.NewMessage, error) {
	m, err := item.Message()
	if err != nil {
		return m, err
	}
	due := f.due
	switch {
	case !m.Due.IsZero():
		due = punctual.At(m.Due)
	case item.In != "":
		due = punctual.In(m.Delay)
	}
	c, err := punctual.Compose(m.Topic, nil, due, punctual.Spread(f.spread), punctual.Headers(f.with), punctual.Headers(m.Headers))
	m.Due, m.Delay, m.Headers = c.Due, c.Delay, c.Headers
	return m, err
}

func (a *app) pushOne(ctx context.Context, topic, body string, f *pushFlags) error {
	content := []byte(body)
	if body == "-" {
		var err error
		if content, err = readBody(a.in); err != nil {
			return err
		}
	}
	m, err := f.message(topic, content)
	if err != nil {
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
	case w.at != "":
		loc := w.app.localZone()
		if w.zone != "" {
			if loc, err = cron.LoadZone(w.zone); err != nil {
				return a, usagef("%v", err)
			}
			if hasOffset(w.at) {
				return a, usagef("time %q names an offset from UTC, and --zone gives it another one: use one of them", w.at)
			}
		}
		var odd string
		if a.Due, odd, err = w.app.readTime(w.at, loc); odd != "" {
			w.app.warn("--at", []string{odd})
		}
	}
	if err == nil && w.at != "" && a.Due.IsZero() {
		err = usagef("time %s cannot be told from none: use --in 0s or --now", stamp(a.Due))
	}
	a.Due = a.Due.Round(0).In(time.UTC)
	return a, err
}

// readAt checks the text of --at.
func (w *whenFlags) readAt(s string) (string, error) {
	_, _, err := w.app.readTime(s, time.UTC)
	return s, err
}
