package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

type consumeFlags struct {
	exec        string
	group       string
	concurrency int
	strict      bool
	count       int64
	untilEmpty  bool
	lease       time.Duration
	timeout     time.Duration // negative: no limit; 0: the flag was not given
	snooze      *time.Duration
	then        bool
	quiet, zone string
	schedules   bool
	ids         []string
}

func newConsume(a *app) *cobra.Command {
	var f consumeFlags
	cmd := &cobra.Command{
		Use:   "consume TOPIC...",
		Short: "Receive messages as they fall due",
		Long: `Consume receives messages of the topics as they fall due and prints each as one JSON line. A message
is acked once its line was written. Consume runs until it is interrupted: on the first SIGINT or
SIGTERM it finishes the messages under way. On the second it ends CMD and gives them back.

With --exec each message is given to CMD, run by sh -c, and the JSON line is only printed, after
CMD succeeded, with --json. CMD gets the body on standard input. In its environment are
PUNCTUAL_ID, PUNCTUAL_TOPIC, PUNCTUAL_ATTEMPT, PUNCTUAL_DUE and, for each header,
PUNCTUAL_HEADER_NAME. NAME is in upper case, with _ for other characters than letters and digits.
What CMD prints goes to standard output and, in whole lines, to standard error; the end of its
standard error is kept as the error of a failed attempt. Its exit code decides:

  0   ack          75  snooze: again after --snooze, without using an attempt
  65  discard      others  retry, as the topic's backoff says

With --group the messages are the copies that this group gets of those of the topic; see 'punctual
topic set --groups'. The copies for all groups of the topic are made meanwhile, when they are due.

With --then CMD prints messages on standard output, one JSON object per line as for 'punctual push
--ndjson', each with its topic. They are stored in the same step as the ack: either the message is
acked and all of them are stored, or neither happens. They may be 64. If a line cannot be read, none
of them is stored, and the message is retried with the reason as its error. After another exit code
than 0 what CMD has printed is not stored.

With --quiet what comes in quiet hours is snoozed to their end and up to five minutes more, so that
not all of a night come at once. No attempt is used, and a retry waits as well.

With --id only the messages with these IDs are received, each once, in the order of the flags. Those
that are not ready are left out. Consume ends behind the last one, and fails if any was left out.

Several topics are asked in a random order, so that none starves, or with --strict in the order
given: messages of a later one come while the earlier ones have nothing due. With --concurrency 1,
the default, lines come in the order in which messages were claimed.`,
		Example: `  punctual consume order.cancel
  punctual consume reminders invoices --until-empty
  punctual consume jobs --count 10 --json > jobs.ndjson
  punctual consume mail --exec 'echo "$PUNCTUAL_ID is due at $PUNCTUAL_DUE"' --quiet 22:00-08:00 --zone Europe/Berlin
  punctual consume orders --group billing --exec ./close --then`,
		RunE: a.action(func(ctx context.Context, topics []string) error {
			if err := f.check(topics); err != nil {
				return err
			}
			if f.group != "" {
				for i := range topics {
					topics[i] = punctual.GroupTopic(topics[i], f.group)
				}
			}
			return a.withStore(ctx, orCreate, func(s punctual.Store) error {
				if err := f.checkGroup(ctx, s, topics); err != nil {
					return err
				}
				return a.consume(ctx, s, topics, f)
			})
		}),
	}
	flags := cmd.Flags()
	parsedVar(flags, &f.exec, "exec", "run `CMD` by sh -c for each message", "command", readCommand)
	flags.StringVar(&f.group, "group", "", "receive the copies of this `GROUP` of the topics")
	flags.IntVar(&f.concurrency, "concurrency", 1, "handle this many messages at the same time")
	flags.BoolVar(&f.strict, "strict", false, "ask for the topics in the order given")
	flags.Int64Var(&f.count, "count", 0, "end after this many deliveries; what was claimed beyond them is given back (default: no end)")
	flags.BoolVar(&f.untilEmpty, "until-empty", false, "end when the topics hold nothing scheduled, ready or leased")
	durationVar(flags, &f.lease, "lease", "the length of a lease, renewed while a message is handled (default: as the topic says)")
	parsedVar(flags, &f.timeout, "timeout", "end a CMD that runs longer and retry (default 1h; 0: no limit)", "duration", func(s string) (time.Duration, error) {
		d, err := readDuration(s)
		return cmp.Or(d, -1), err
	})
	givenDurationVar(flags, &f.snooze, "snooze", "how long exit code 75 puts a message off (default 30s)")
	flags.BoolVar(&f.then, "then", false, "store the messages that CMD prints, one JSON object per line, together with the ack")
	flags.StringVar(&f.quiet, "quiet", "", "put off what comes in these `HOURS` to their end, like 22:00-08:00")
	flags.StringVar(&f.zone, "zone", "", "the `ZONE` whose clock --quiet means, like Europe/Berlin (default UTC)")
	flags.StringArrayVar(&f.ids, "id", nil, "receive the message with this `ID` alone; repeat the flag for several")
	flags.BoolVar(&f.schedules, "schedules", false, "also store the messages of the topics' schedules when these come, which a server does by itself")
	return cmd
}

// check refuses bad input before a store is made for it.
func (f *consumeFlags) check(topics []string) error {
	for some := range slices.Chunk(topics, limits.MaxClaimTopics) { // a worker of more topics makes several claims
		claim := punctual.Claim{Topics: some, Max: 1, IDs: f.ids, Lease: f.lease}
		if err := storekit.CheckClaim(&claim); err != nil {
			return err
		}
	}
	if f.group != "" {
		if err := checkGroupFlag(topics, f.group); err != nil {
			return err
		}
	}
	switch {
	case f.concurrency < 1 || f.concurrency > limits.MaxClaim:
		return usagef("concurrency %d: use 1 to %d", f.concurrency, limits.MaxClaim)
	case f.zone != "" && f.quiet == "":
		return usagef("--zone goes with --quiet: it says whose clock the hours mean")
	case f.count < 0:
		return usagef("count %d: use 1 or more, or 0 for no end", f.count)
	case f.snooze != nil && f.exec == "":
		return usagef("--snooze goes with --exec: without it every message is acked")
	case f.then && f.exec == "":
		return usagef("--then goes with --exec: it stores what the command prints")
	case f.timeout != 0 && f.exec == "":
		return usagef("--timeout goes with --exec: without it there is nothing to wait for")
	}
	_, err := f.middleware()
	return err
}

// middleware returns what the flags ask for around the handler of the messages: the quiet hours of
// --quiet, or nothing.
func (f *consumeFlags) middleware() ([]worker.Middleware, error) {
	if f.quiet == "" {
		return nil, nil
	}
	from, to, ok := strings.Cut(f.quiet, "-")
	if !ok {
		return nil, usagef("quiet hours %q: write them like 22:00-08:00", f.quiet)
	}
	quiet, err := worker.Quiet(worker.QuietHours{From: strings.TrimSpace(from), To: strings.TrimSpace(to), Zone: f.zone})
	if err != nil {
		return nil, err
	}
	return []worker.Middleware{quiet}, nil
}

// readCommand refuses a command that is empty, as from a variable that is not set, because without
// a command every message would be printed and acked.
func readCommand(s string) (string, error) {
	if strings.TrimSpace(s) == "" {
		return "", usagef("the command is empty")
	}
	return s, nil
}

// drainLimit is how long a drain may last. It is so long that in effect only a second signal ends a
// drain early.
const drainLimit = 365 * 24 * time.Hour

// consume runs a worker until ctx ends, --count is reached, with --until-empty the topics are
// empty, or something fails, such as the writing of a line. Then the worker drains.
func (a *app) consume(ctx context.Context, s punctual.Store, topics []string, f consumeFlags) error {
	topics = withoutRepeats(topics)
	c := &consumer{app: a, topics: topics, flags: f}
	run, end := context.WithCancel(ctx)
	defer end()
	c.end = end

	around, err := f.middleware()
	if err != nil {
		return err
	}
	if f.count > 0 { // so that no more messages are claimed than the command is to handle
		f.concurrency = int(min(int64(f.concurrency), f.count))
	}
	only := &named{store: s, topic: topics[0], end: end, ids: withoutRepeats(f.ids)}
	if len(f.ids) > 0 {
		s = only
	}
	w := worker.New(s, &worker.Config{
		Concurrency:     f.concurrency,
		Strict:          f.strict,
		Lease:           f.lease,
		Timeout:         f.timeout,
		ShutdownTimeout: drainLimit,
		Logger:          a.logger(),
		Schedules:       f.schedules,
		Middleware:      append([]worker.Middleware{c.stopAtWriteError, c.count}, around...),
		Observer:        &punctual.Observer{OnSettle: c.settled},
	})
	handle := c.print
	if f.exec != "" {
		handle = c.execute
	}
	for _, topic := range topics {
		w.Handle(topic, punctual.HandlerFunc(handle))
	}

	var watching sync.WaitGroup
	if f.untilEmpty {
		watching.Go(func() { c.fail(endWhenEmpty(run, s, withParents(topics), end)) })
	}
	finished := make(chan struct{})
	watching.Go(func() {
		select {
		case <-a.forced.Done():
			_ = w.Stop(a.forced) // it says how many handlers ran, whose messages are given back
		case <-finished:
		}
	})
	err = w.Run(run)
	close(finished)
	end()
	watching.Wait()
	if len(only.out) > 0 {
		c.fail(&failure{code: "changed", exit: exitUnwished, definite: true, text: fmt.Sprintf("not ready: %s: 'punctual get %s ID' says why", strings.Join(only.out, ", "), topics[0])})
	}
	return errors.Join(err, c.failed())
}

// named is a store from which a worker claims the messages of --id, each once, and then no more.
type named struct {
	store punctual.Store
	topic string
	end   func() // makes the worker drain

	mu  sync.Mutex
	ids []string // those to come; guarded by mu
	out []string // those that were not ready; guarded by mu while the worker runs
}

// Unwrap lets punctual.As find the optional interfaces of the store.
func (n *named) Unwrap() punctual.Store { return n.store }

func (n *named) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return n.store.Push(ctx, ms)
}

func (n *named) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	return n.store.Settle(ctx, ss)
}

func (n *named) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	return n.store.Amend(ctx, as)
}
func (n *named) Now(ctx context.Context) (time.Time, error) { return n.store.Now(ctx) }
func (n *named) Close() error                               { return n.store.Close() }

// Claim implements punctual.Store.
func (n *named) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if c.Topics[0] != n.topic { // of a duty
		return n.store.Claim(ctx, c)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.ids) == 0 {
		n.end()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c.IDs, c.Wait, c.PerTopic = n.ids, 0, 0
	ds, err := n.store.Claim(ctx, c)
	if err != nil {
		return nil, err
	}
	for came := 0; len(n.ids) > 0 && came < c.Max; n.ids = n.ids[1:] {
		if came < len(ds) && ds[came].ID == n.ids[0] {
			came++
		} else {
			n.out = append(n.out, n.ids[0])
		}
	}
	return ds, nil
}

// withoutRepeats returns the topics or IDs, each once, in the order in which they were first named.
func withoutRepeats(topics []string) []string {
	seen := make(map[string]bool)
	var out []string
	for _, t := range topics {
		if !seen[t] {
			seen[t] = true
			out = append(out, t)
		}
	}
	return out
}

// logger returns the logger for what a worker or store reports on its own. Unless the command has
// set app.log, it writes warnings and errors to standard error.
func (a *app) logger() *slog.Logger {
	if a.log != nil {
		return a.log
	}
	options := &slog.HandlerOptions{Level: slog.LevelWarn}
	if a.json {
		return slog.New(slog.NewJSONHandler(a.errs, options))
	}
	return slog.New(slog.NewTextHandler(a.errs, options))
}

// consumer is one run of consume. Its methods are safe for concurrent use.
type consumer struct {
	*app
	topics []string
	flags  consumeFlags
	end    func()       // makes the worker drain
	begun  atomic.Int64 // how many handlers have begun

	mu  sync.Mutex
	err error // what ended the run early; guarded by mu
}

// print writes the line of a message. The message is acked only after that.
func (c *consumer) print(_ context.Context, d *punctual.Delivery) error {
	if err := c.out.writeJSON(wire.DeliveryOf(d)); err != nil {
		c.fail(err)
		return punctual.Snooze(0) // given back without using an attempt, because the handling did not fail
	}
	return nil
}

// stopAtWriteError starts no handler once the run has failed, for example because a line could not
// be written. It gives the message back without using an attempt.
func (c *consumer) stopAtWriteError(next punctual.Handler) punctual.Handler {
	return punctual.HandlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
		if c.failed() != nil {
			return punctual.Snooze(0)
		}
		return next.Handle(ctx, d)
	})
}

// count ends the run when the last of the deliveries that --count asks for begins. The worker gives
// back what it has claimed beyond that, and a handler that would begin all the same gives its
// message back.
func (c *consumer) count(next punctual.Handler) punctual.Handler {
	return punctual.HandlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
		if c.flags.count > 0 && slices.Contains(c.topics, d.Topic) { // and not those of duties
			n := c.begun.Add(1)
			if n >= c.flags.count {
				c.end()
			}
			if n > c.flags.count {
				return punctual.Snooze(0)
			}
		}
		return next.Handle(ctx, d)
	})
}

// fail keeps the first error and ends the run.
func (c *consumer) fail(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.end()
}

func (c *consumer) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// emptyCheck is how often --until-empty counts the messages. A run may go on for about this long
// after its last message.
const emptyCheck = 100 * time.Millisecond

// endWhenEmpty calls end once the topics hold nothing that could still be delivered.
func endWhenEmpty(ctx context.Context, s punctual.Store, topics []string, end func()) error {
	i, err := punctual.As[punctual.Inspector](s)
	if err != nil {
		return fmt.Errorf("--until-empty: %w", err)
	}
	ticker := time.NewTicker(emptyCheck)
	defer ticker.Stop()
	for {
		live, err := liveMessages(ctx, i, topics)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("--until-empty: %w", err)
		}
		if live == 0 {
			end()
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func liveMessages(ctx context.Context, i punctual.Inspector, topics []string) (int64, error) {
	var live int64
	for _, topic := range topics {
		s, err := i.Stats(ctx, topic)
		if errors.Is(err, punctual.ErrNotFound) {
			continue // it has no messages yet
		}
		if err != nil {
			return 0, err
		}
		live += s.Live()
	}
	return live, nil
}

// What commands say and do about the groups of a topic.

// allGroups, in place of the name of a group, stands for the topic itself and all its groups.
const allGroups = "all"

// checkGroupFlag refuses --group beside a topic that is a companion, and a name that a group cannot
// have.
func checkGroupFlag(topics []string, group string) error {
	for _, topic := range topics {
		if strings.Contains(topic, "@") {
			return usagef("topic %q and --group: name the topic that the group belongs to", topic)
		}
	}
	_, err := storekit.ApplySettings(punctual.DefaultSettings(), punctual.SettingsPatch{Groups: &[]string{group}}, storekit.AllAbilities())
	if err != nil {
		return usagef("--group %q: %v", group, err)
	}
	return nil
}

// checkGroup refuses to consume a topic whose messages are for its groups, and a group that the
// topic does not have.
func (f *consumeFlags) checkGroup(ctx context.Context, s punctual.Store, topics []string) error {
	i, err := punctual.As[punctual.Inspector](s)
	if err != nil {
		return nil // a store without settings has no groups
	}
	for _, topic := range topics {
		parent, companion := storekit.Companion(topic)
		if companion != "" && f.group == "" {
			continue
		}
		set, err := i.Settings(ctx, parent)
		switch {
		case errors.Is(err, punctual.ErrForbidden): // who may consume need not be allowed to inspect
		case ctx.Err() != nil: // the run ends before it begins
			return nil
		case err != nil:
			return err
		case f.group != "" && !slices.Contains(set.Groups, f.group):
			return usagef("topic %q has no group %q, but %s: 'punctual topic set %s --groups' sets them", parent, f.group, groupNames(set.Groups), parent)
		case f.group == "" && len(set.Groups) > 0:
			return usagef("topic %q has the groups %s, and its messages are for them: name one with --group", topic, groupNames(set.Groups))
		}
	}
	return nil
}

func groupNames(groups []string) string {
	if len(groups) == 0 {
		return "none"
	}
	return strings.Join(groups, ", ")
}

// withParents returns the topics and those that they are companions of.
func withParents(topics []string) []string {
	all := slices.Clone(topics)
	for _, topic := range topics {
		if parent, companion := storekit.Companion(topic); companion != "" {
			all = append(all, parent)
		}
	}
	return withoutRepeats(all)
}

// groupTopics returns the topic, and behind it the topics of all groups that it has. If the store
// can name its topics, those of groups that the topic had before are among them.
func groupTopics(ctx context.Context, i punctual.Inspector, s punctual.Store, topic string) ([]string, error) {
	set, err := i.Settings(ctx, topic)
	if err != nil {
		return nil, err
	}
	all := []string{topic}
	for _, group := range set.Groups {
		all = append(all, punctual.GroupTopic(topic, group))
	}
	namer, err := punctual.As[storekit.TopicNamer](s)
	if err != nil {
		return all, nil
	}
	names, err := namer.TopicNames(ctx, storekit.NameQuery{Prefix: punctual.GroupTopic(topic, "")})
	if err != nil {
		return nil, fmt.Errorf("groups of %s: %w", topic, err)
	}
	return withoutRepeats(append(all, names...)), nil
}
