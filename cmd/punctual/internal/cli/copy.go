package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/internal/settings"
	"github.com/punctualmq/punctual/storekit"
)

// The values of --dead.
const (
	deadRefuse = "refuse"
	deadLeave  = "leave"
)

type copyFlags struct {
	topics      []string
	yes, dryRun bool
	pause       bool
	dead        string
}

func newCopy(a *app) *cobra.Command {
	var f copyFlags
	cmd := &cobra.Command{
		Use:   "copy FROM TO",
		Short: "Copy topics from one store into another",
		Long: `Copy puts the topics of one store into another one, of whatever kinds the two are. It is a way from
a directory to Redis or PostgreSQL, and back. FROM and TO are written as --store takes them.

Without --yes nothing is changed: the command says what would be copied and what cannot be. With
--yes it copies. FROM must be at rest: its topics have to be paused, which --pause does, and nobody
may hold a lease. FROM keeps all its messages, and messages that TO has already are left as they
are, so a run that ended early can simply be made again. At the end the counts of both stores are
compared.

A message keeps its ID, body, headers, due time, expiry, its --remember and --timeout, and the
number of attempts that it has left. An event of T@events gets another ID, because its own is a
number that TO gives anew. A topic keeps its settings except for the pauses. Not copied are the
history of failed attempts, the time of the push, the first due time, and what is kept about
finished messages: the IDs of the duplicate window and the finished records. Dead messages are not
copied either: while a topic has some, the copy refuses until they are requeued, or until --dead
leave says that they are to be left behind.`,
		Example: `  punctual copy ./punctual-data redis://localhost
  punctual copy ./punctual-data postgres://localhost/shop --pause --yes
  punctual copy redis://localhost ./orders --topic order.close --dead leave --pause --yes`,
		RunE: a.action(func(ctx context.Context, args []string) error {
			if err := f.check(a, args); err != nil {
				return err
			}
			return a.copyStores(ctx, args[0], args[1], f)
		}),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.yes, "yes", false, "copy; without it nothing is changed")
	flags.BoolVar(&f.dryRun, "dry-run", false, "change nothing, which is the default without --yes")
	flags.BoolVar(&f.pause, "pause", false, "pause pushes and deliveries of the topics in FROM first, and leave them paused")
	flags.StringArrayVar(&f.topics, "topic", nil, "copy this `TOPIC` alone; may be given more than once")
	flags.StringVar(&f.dead, "dead", deadRefuse, "what to do when there are dead messages, which are not copied: `refuse|leave`")
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return cmd
}

func (f *copyFlags) check(a *app, args []string) error {
	from, to := a.fullName(args[0]), a.fullName(args[1])
	switch {
	case f.yes && f.dryRun:
		return usagef("--yes and --dry-run contradict each other: use one")
	case a.storeFlag != "":
		return usagef("--store names nothing here: the two stores are the arguments FROM and TO")
	case from == to:
		return usagef("FROM and TO are the same store: name two")
	case strings.HasPrefix(from, "mem:") || strings.HasPrefix(to, "mem:"):
		return usagef("a store in memory is gone when this command ends: name another one")
	case f.dead != deadRefuse && f.dead != deadLeave:
		return usagef("--dead %q: use refuse or leave", f.dead)
	}
	for _, t := range f.topics {
		if err := storekit.CheckTopic(t); err != nil {
			return err
		}
	}
	return nil
}

// copyStores opens FROM. Without --yes it only shows what there is to copy; with --yes it opens TO
// as well, and copies.
func (a *app) copyStores(ctx context.Context, from, to string, f copyFlags) error {
	return a.withNamed(ctx, from, mustExist, func(source punctual.Store) error {
		look, err := punctual.As[punctual.Inspector](source)
		if err != nil {
			return fmt.Errorf("FROM: %w", err)
		}
		c := &copier{app: a, flags: f, from: look}
		if err := c.survey(ctx); err != nil {
			return err
		}
		if !f.yes {
			return c.show(true)
		}
		if err := c.mayCopy(); err != nil {
			return err
		}
		return a.withNamed(ctx, to, orCreate, func(target punctual.Store) error {
			if c.to, err = punctual.As[punctual.Inspector](target); err != nil {
				return fmt.Errorf("TO: %w", err)
			}
			c.target = target
			if err := c.atRest(ctx); err != nil {
				return err
			}
			return c.run(ctx)
		})
	})
}

// copier copies topics. One goroutine uses it.
type copier struct {
	*app
	flags  copyFlags
	from   punctual.Inspector
	to     punctual.Inspector
	target punctual.Store
	topics []*copiedTopic
	bar    *term.Bar
	done   int64
}

// copiedTopic is a topic and what became of it.
type copiedTopic struct {
	stats punctual.TopicStats // of FROM, before the copying
	// emit is Settings.Emit of FROM where TO can have it. The topic gets it when all topics are
	// copied: TO must not tell again of what FROM has told of, such as the push of each message.
	emit *punctual.Events
	copyJSON
}

// survey counts what there is to copy, and notes what will not be copied.
func (c *copier) survey(ctx context.Context) error {
	all, err := c.from.Topics(ctx)
	if err != nil {
		return err
	}
	for _, name := range c.flags.topics {
		if !slices.ContainsFunc(all, func(t punctual.TopicStats) bool { return t.Topic == name }) {
			return unwishedf("not_found", "FROM has no topic %s: see 'punctual topics'", name)
		}
	}
	for _, t := range all {
		if len(c.flags.topics) > 0 && !slices.Contains(c.flags.topics, t.Topic) || len(c.flags.topics) == 0 && t.Topic == access.AuditTopic {
			continue
		}
		ct := &copiedTopic{stats: t}
		ct.copyJSON = copyJSON{Topic: t.Topic, DryRun: !c.flags.yes, From: t.Live(), FromDead: t.Dead}
		if t.Dead > 0 {
			ct.Notes = append(ct.Notes, fmt.Sprintf("%d dead messages are not copied: see --dead", t.Dead))
		}
		if t.Leased > 0 {
			ct.Notes = append(ct.Notes, fmt.Sprintf("%d messages are being worked on: end the consumers and wait", t.Leased))
		}
		if t.Settings.DedupeWindow > 0 {
			ct.Notes = append(ct.Notes, "the IDs of the duplicate window are not copied: a push that repeats the ID of a finished message is stored")
		}
		if t.Settings.FinishedRetention > 0 {
			ct.Notes = append(ct.Notes, "records of finished messages are not copied")
		}
		c.topics = append(c.topics, ct)
	}
	return nil
}

// mayCopy refuses what has to be decided first, before anything is changed or made.
func (c *copier) mayCopy() error {
	for _, t := range c.topics {
		if t.stats.Dead > 0 && c.flags.dead == deadRefuse {
			return usagef("topic %s has %d dead messages, which are not copied: requeue them, or say --dead leave to leave them behind; 'punctual dead list --json --limit 0' exports them", t.Topic, t.stats.Dead)
		}
		if !c.flags.pause && !isPaused(t.Topic, t.stats.Settings) {
			return usagef("topic %s of FROM is not paused, so what is pushed, delivered or cancelled meanwhile would be wrong in TO: say --pause, or pause it with 'punctual topic pause %s --push --delivery'", t.Topic, t.Topic)
		}
	}
	return nil
}

// isPaused tells whether pushes to a topic and deliveries from it are paused. Pushes to a companion
// cannot be paused, so for a companion paused deliveries are enough.
func isPaused(topic string, s punctual.Settings) bool {
	return s.DeliveryPaused && (s.PushPaused || isCompanion(topic))
}

func isCompanion(topic string) bool {
	_, name := storekit.Companion(topic)
	return name != ""
}

// atRest pauses the topics of FROM that are not paused yet, so that none of their messages is
// delivered while they are copied. It returns an error if somebody still holds a lease.
func (c *copier) atRest(ctx context.Context) error {
	paused := true
	for _, t := range c.topics {
		if isPaused(t.Topic, t.stats.Settings) {
			continue
		}
		p := punctual.SettingsPatch{DeliveryPaused: &paused}
		if !isCompanion(t.Topic) {
			p.PushPaused = &paused
		}
		if _, err := c.from.Configure(ctx, t.Topic, p); err != nil {
			return fmt.Errorf("pause topic %s of FROM: %w", t.Topic, err)
		}
	}
	for _, t := range c.topics {
		now, err := c.from.Stats(ctx, t.Topic)
		if err != nil {
			return err
		}
		if now.Leased > 0 {
			return &failure{
				code: "leased", exit: exitUnwished, definite: true,
				text: fmt.Sprintf("%d messages of topic %s are being worked on: end the consumers, wait until the leases have ended, and repeat this", now.Leased, t.Topic),
			}
		}
		t.stats = now
		t.From, t.FromDead = now.Live(), now.Dead
	}
	return nil
}

// run copies all topics and compares.
func (c *copier) run(ctx context.Context) error {
	var total int64
	for _, t := range c.topics {
		total += t.From
	}
	c.bar = c.newBar("messages copied", total)
	err := c.copyAll(ctx)
	c.bar.Stop(err)
	if err != nil {
		return soFar(err, true, "messages copied before that: %d; repeat the command to go on", c.done) // settings may have been changed even if no message was copied
	}
	return c.show(false)
}

func (c *copier) copyAll(ctx context.Context) error {
	for _, t := range c.topics {
		if err := c.settings(ctx, t); err != nil {
			return fmt.Errorf("topic %s: settings: %w", t.Topic, err)
		}
		// A message that falls due while the scheduled ones are listed is found among the ready
		// ones.
		for _, state := range []punctual.State{punctual.StateScheduled, punctual.StateReady} {
			if err := c.copyState(ctx, t, state); err != nil {
				return fmt.Errorf("topic %s: %w", t.Topic, err)
			}
		}
		from, err := c.from.Stats(ctx, t.Topic)
		if err != nil {
			return err
		}
		to, err := c.to.Stats(ctx, t.Topic)
		if err != nil {
			return err
		}
		t.From, t.FromDead, t.To = from.Live(), from.Dead, to.Live()
	}
	for _, t := range c.topics {
		if t.emit == nil || *t.emit == 0 {
			continue
		}
		if _, err := c.to.Configure(ctx, t.Topic, punctual.SettingsPatch{Emit: t.emit}); err != nil {
			return fmt.Errorf("topic %s: events: %w", t.Topic, err)
		}
	}
	return nil
}

// settings gives the topic in TO the settings of that in FROM, except for the pauses and for what
// TO cannot have. The topic tells of no events until all topics are copied.
func (c *copier) settings(ctx context.Context, t *copiedTopic) error {
	s := t.stats.Settings
	var p punctual.SettingsPatch
	for _, row := range settings.Table {
		if !row.Pause {
			row.Take(&p, &s)
		}
	}
	if isCompanion(t.Topic) {
		p.Partitions, p.Keyed, p.Groups = nil, nil, nil // it has the partitions of its topic, keys if that has, and no groups
		if s.Emit == 0 {
			p.Emit = nil // only the topic of a group may have it
		}
	}
	if !c.targetEmits(ctx) {
		p.Emit, p.EmitKeep = nil, nil
		if s.Emit != 0 {
			t.Notes = append(t.Notes, "TO tells of no events")
		}
	}
	if t.emit = p.Emit; p.Emit != nil {
		p.Emit = new(punctual.Events)
	}
	now, err := c.to.Settings(ctx, t.Topic)
	if err != nil {
		return err
	}
	if now.PushPaused {
		return fmt.Errorf("the topic is paused in TO: %w", punctual.ErrPaused)
	}
	_, err = c.to.Configure(ctx, t.Topic, p)
	if err != nil && p.Partitions != nil && s.Partitions != now.Partitions {
		t.Notes = append(t.Notes, fmt.Sprintf("TO keeps the topic in %d partitions and not in %d", now.Partitions, s.Partitions))
		p.Partitions = nil
		_, err = c.to.Configure(ctx, t.Topic, p)
	}
	if errors.Is(err, punctual.ErrUnsupported) && s.FinishedRetention > 0 {
		t.Notes = append(t.Notes, "TO keeps no records of finished messages")
		p.FinishedRetention = nil
		_, err = c.to.Configure(ctx, t.Topic, p)
	}
	return err
}

// targetEmits tells whether topics in TO can tell of events.
func (c *copier) targetEmits(ctx context.Context) bool {
	reporter, err := punctual.As[storekit.AbilityReporter](c.target)
	if err != nil {
		return false
	}
	can, err := reporter.Abilities(ctx)
	return err == nil && can.Emit
}

// copyBatch is how many messages are read and pushed at a time: their bodies are in memory
// meanwhile.
const copyBatch = 200

func (c *copier) copyState(ctx context.Context, t *copiedTopic, state punctual.State) error {
	q := punctual.ListQuery{Topic: t.Topic, State: state, Limit: copyBatch}
	for {
		page, err := c.from.List(ctx, q)
		if err == nil && len(page.Messages) > 0 {
			err = c.copyPage(ctx, t, page.Messages)
		}
		if q.After = page.Next; err != nil || q.After == "" {
			return err
		}
	}
}

// copyPage pushes a page of live messages into TO, and counts what became of them.
func (c *copier) copyPage(ctx context.Context, t *copiedTopic, ms []punctual.Info) error {
	news := make([]punctual.NewMessage, len(ms))
	for i := range ms {
		news[i] = copyOf(&ms[i], t.stats.Settings.MaxAttempts)
	}
	rs, err := c.target.Push(ctx, news)
	if err != nil {
		return err
	}
	for i, r := range rs {
		switch {
		case errors.Is(r.Err, punctual.ErrDuplicate), r.Err == nil && r.Status == punctual.PushDuplicate:
			t.Kept++
		case r.Err != nil:
			return fmt.Errorf("message %s: %w", ms[i].ID, r.Err)
		default:
			t.Stored++
			if len(ms[i].Failures) > 0 {
				t.Histories++
			}
		}
	}
	c.done += int64(len(ms))
	c.bar.Set(c.done)
	return nil
}

// copyOf returns a message to push that is like the stored message m. It has the attempts that m
// has left, at least one.
func copyOf(m *punctual.Info, topicMax int) punctual.NewMessage {
	n := punctual.NewMessage{
		Topic: m.Topic, ID: m.ID, Body: m.Body, Headers: m.Headers, Due: m.Due, MaxAttempts: m.MaxAttempts, DropExpired: m.DropExpired,
	}
	n.ID = copiedID(m)
	storekit.AttributesOf(&m.Message).SetNew(&n)
	if m.Attempt > 0 {
		most := m.MaxAttempts
		if most == 0 {
			most = topicMax
		}
		n.MaxAttempts = max(1, most-m.Attempt)
	}
	if !m.Expires.IsZero() {
		n.ExpireAfter = max(time.Millisecond, m.Expires.Sub(m.Due))
	}
	return n
}

// eventID is what the ID of an event looks like (storekit.EventID).
var eventID = regexp.MustCompile(`^[^~]+~[0-9a-f]{16}$`)

// copiedID returns the ID that the copy of m has in TO: that of m, except for an event. The ID of
// an event is a number that is unique in one store alone, so in TO another event may have it, or
// get it later and replace the copy. The new ID has a hash of the body, so that copies of two
// stores do not meet, and begins with the number, which keeps events of one millisecond in their
// order.
func copiedID(m *punctual.Info) string {
	if !strings.HasSuffix(m.Topic, storekit.EventSuffix) || !eventID.MatchString(m.ID) {
		return m.ID
	}
	if _, err := event.Parse(m.Body); err != nil {
		return m.ID
	}
	sum := sha256.Sum256(m.Body)
	return fmt.Sprintf("copied-%s-%x", m.ID, sum[:8])
}

// show prints what was found or copied. After a copy it returns an error if a topic has fewer
// messages in TO than in FROM.
func (c *copier) show(dryRun bool) error {
	short := 0
	for _, t := range c.topics {
		if t.Histories > 0 {
			t.Notes = append(t.Notes, fmt.Sprintf("%d messages came without the history of their failed attempts", t.Histories))
		}
		if !dryRun && t.To < t.From {
			short++
			t.Notes = append(t.Notes, "TO has fewer messages than FROM")
		}
	}
	show := lister[*copiedTopic]{
		app: c.app, columns: []any{"TOPIC", "LIVE", "DEAD", "COPIED", "THERE ALREADY", "LIVE IN TO"}, numbers: []int{2, 3, 4, 5, 6},
		row: func(t **copiedTopic) []any {
			if dryRun {
				return []any{(*t).Topic, (*t).From, (*t).FromDead, "-", "-", "-"}
			}
			return []any{(*t).Topic, (*t).From, (*t).FromDead, (*t).Stored, (*t).Kept, (*t).To}
		},
		line: func(t **copiedTopic, _ string) any { return (*t).copyJSON },
	}
	if err := show.all(c.topics, "topics"); err != nil {
		return err
	}
	if !c.json {
		for _, t := range c.topics {
			for _, note := range t.Notes {
				c.printf("%s: %s\n", t.Topic, note)
			}
		}
		if dryRun {
			c.printf("nothing was changed: copy with --yes\n")
		}
	}
	if short > 0 {
		return &failure{
			code: codeProblems, exit: exitError, definite: false,
			text: fmt.Sprintf("%d topics have fewer messages in TO than in FROM: repeat the command, and see that nobody works on TO meanwhile", short),
		}
	}
	return nil
}

// copyJSON is what copy prints for one topic. Without --yes all counts but those of FROM are 0.
type copyJSON struct {
	Topic     string   `json:"topic"`
	DryRun    bool     `json:"dry_run"`
	From      int64    `json:"from"`            // messages in FROM that are not dead
	FromDead  int64    `json:"from_dead"`       // dead ones
	Stored    int64    `json:"stored"`          // messages that were copied
	Kept      int64    `json:"kept"`            // messages that TO had already
	Histories int64    `json:"histories"`       // messages whose failed attempts were left behind
	To        int64    `json:"to"`              // messages in TO that are not dead, at the end
	Notes     []string `json:"notes,omitempty"` // for people: what is not copied, and what stands in the way
}
