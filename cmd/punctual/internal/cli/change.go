package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/view"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

func newCancel(a *app) *cobra.Command {
	var group string
	var f byIDFlags
	cmd := &cobra.Command{
		Use:   "cancel ID...|-",
		Short: "Take back messages that are not yet worked on",
		Long: `Cancel removes messages that nobody works on yet. Each ID has a definite outcome:

  cancelled  the message will never be delivered
  leased     too late: a consumer works on it; if that attempt fails, no further one follows
  not_found  there is no such message to be delivered

A topic with groups keeps one message until it is due: cancelled before, it is so for all groups at
once. After that each group has a copy. --group all cancels the message and all copies, and says of
each topic what became of it there; the ID counts as leased if one of them is being worked on, else
as cancelled if one was cancelled, and else as changed if one is due at another time than --if-due.

` + ifDueHelp + `

` + idsHelp,
		Example: `  punctual cancel 01KB1B2M8E6QZ4V9H2W3T5N7RD
  punctual cancel order-42 --topic order.cancel
  punctual cancel visit-7 visit-8 --json
  punctual cancel order-42 --topic orders --group all
  punctual cancel - --topic order.cancel < paid.txt`,
		RunE: a.action(func(ctx context.Context, ids []string) error {
			c := punctual.Amendment{Change: punctual.ChangeCancel}
			if group == "" {
				return f.change(ctx, a, ids, c)
			}
			return a.cancelInGroups(ctx, &f, group, ids, c)
		}),
	}
	f.register(a, cmd.Flags())
	cmd.Flags().StringVar(&group, "group", "", "cancel the copy of this `GROUP` of the topic, or for \"all\" the message and every copy")
	return cmd
}

// cancelInGroups cancels the copies of a group, or the messages of the topic and the copies of all
// its groups.
func (a *app) cancelInGroups(ctx context.Context, f *byIDFlags, group string, ids []string, c punctual.Amendment) (err error) {
	if f.topic == "" {
		return usagef("--group %s: name the topic with --topic", group)
	}
	if group != allGroups {
		if err := checkGroupFlag([]string{f.topic}, group); err != nil {
			return err
		}
		f.topic = punctual.GroupTopic(f.topic, group)
		return f.change(ctx, a, ids, c)
	}
	if c.IfDue, err = f.condition(ids); err != nil {
		return err
	}
	if err := storekit.CheckTopic(f.topic); err != nil {
		return err
	}
	return a.withInspector(ctx, mustExist, func(i punctual.Inspector, s punctual.Store) error {
		topics, err := groupTopics(ctx, i, s, f.topic)
		if err != nil {
			return err
		}
		t := &tally{change: c.Change}
		return a.eachID(ctx, ids, t, func(ctx context.Context, ids []string) error {
			return a.cancelEverywhere(ctx, i, s, topics, ids, c, t)
		})
	})
}

// cancelEverywhere cancels each ID in each of the topics, prints what became of it there, and
// counts one outcome for each ID.
func (a *app) cancelEverywhere(ctx context.Context, i punctual.Inspector, s punctual.Store, topics, ids []string, c punctual.Amendment, t *tally) error {
	for _, id := range ids {
		if err := storekit.CheckID(id); err != nil {
			return err
		}
	}
	var printing error // the first one; the other IDs are cancelled all the same, as those of one topic are
	for _, id := range ids {
		places := make([]found, len(topics))
		for n, topic := range topics {
			places[n] = found{id, topic}
		}
		done, err := amend(ctx, i, s, c, places, t)
		if err != nil {
			return err
		}
		all := amended{found{id, topics[0]}, punctual.Amended{Err: punctual.ErrNotFound}}
		for _, d := range done {
			err := d.outcome.Err
			if err != nil && exitOf(storekit.ErrorCode(err)) != exitUnwished {
				return fmt.Errorf("ID %q in %s: %w", id, d.topic, err)
			}
			if printing == nil {
				printing = a.printAmended(d, c.Change, " in "+d.topic)
			}
			if cancelRank(err) > cancelRank(all.outcome.Err) {
				all = d
			}
		}
		t.add(all)
	}
	return printing
}

// cancelRank orders the outcomes of a cancel in several topics: the highest one counts for the ID.
func cancelRank(err error) int {
	switch {
	case errors.Is(err, punctual.ErrLeased):
		return 3
	case err == nil:
		return 2
	case errors.Is(err, punctual.ErrChanged):
		return 1
	}
	return 0
}

func newReschedule(a *app) *cobra.Command {
	var when whenFlags
	var f byIDFlags
	cmd := &cobra.Command{
		Use:   "reschedule (ID...|-) (--in DURATION|--at TIME|--now)",
		Short: "Move the due time of messages",
		Long: `Reschedule moves the due time of messages that nobody works on yet, earlier or later; ID, body and
attempts stay. Each ID has a definite outcome: rescheduled (it is delivered at the new time only),
leased (too late, a consumer works on it) or not_found. 'punctual bulk shift' moves messages from
the due time that each has.

` + ifDueHelp + `

` + idsHelp,
		Example: `  punctual reschedule order-42 --in 1h
  punctual reschedule visit-7 --at 2026-11-21T09:00:00Z --topic reminder
  punctual reschedule visit-7 visit-8 --in 1d
  punctual reschedule 01KB1B2M8E6QZ4V9H2W3T5N7RD --now`,
		RunE: a.action(func(ctx context.Context, ids []string) error {
			c, err := when.amendment(punctual.ChangeReschedule)
			if err != nil {
				return err
			}
			if !when.given() {
				return usagef("no new time is given: use --in, --at or --now")
			}
			return f.change(ctx, a, ids, c)
		}),
	}
	when.register(a, cmd.Flags())
	when.registerNow(cmd.Flags())
	f.register(a, cmd.Flags())
	return cmd
}

// stdinIDs, in place of IDs, has them read from standard input.
const stdinIDs = "-"

// idsHelp is what the help of each command says that can read IDs from standard input.
const idsHelp = `ID "-" reads the IDs from standard input, one on each line, and works on them in batches as they
come.`

// ifDueHelp is what the help of each command with --if-due says of it.
const ifDueHelp = `--if-due changes the one message that is named only if it is due at that time, as 'punctual get'
shows it. Otherwise somebody has changed it since: its outcome is "changed", and it stays as it is.`

// byIDFlags are --topic and --if-due of the commands that change messages by their IDs. The
// --if-due of push is in pushFlags.
type byIDFlags struct {
	topic string
	ifDue time.Time
}

func (f *byIDFlags) register(a *app, flags *pflag.FlagSet) {
	a.timeVar(flags, &f.ifDue, "if-due", "change the one message only if it is due at this time")
	flags.StringVar(&f.topic, "topic", "", topicFlagHelp)
}

// condition returns the condition for the message that ids name, the zero Time for none.
func (f *byIDFlags) condition(ids []string) (time.Time, error) {
	if !f.ifDue.IsZero() && (len(ids) != 1 || readsIDs(ids)) {
		return f.ifDue, usagef("--if-due goes with one ID: it is the due time of one message")
	}
	return f.ifDue.Round(0).In(time.UTC), nil
}

// change finds the IDs, makes the change c of each, prints each outcome, and fails unless all are
// the wished one.
func (f *byIDFlags) change(ctx context.Context, a *app, ids []string, c punctual.Amendment) (err error) {
	if c.IfDue, err = f.condition(ids); err != nil {
		return err
	}
	if f.topic != "" {
		if err := storekit.CheckTopic(f.topic); err != nil {
			return err
		}
	}
	return a.withInspector(ctx, mustExist, func(i punctual.Inspector, s punctual.Store) error {
		t := &tally{change: c.Change, unseen: a.notLookedInto(f.topic)}
		return a.eachID(ctx, ids, t, func(ctx context.Context, ids []string) error {
			places, err := lookUp(ctx, i, f.topic, ids)
			if err != nil {
				return err
			}
			return a.changeFound(ctx, i, s, places, c, t)
		})
	})
}

func readsIDs(ids []string) bool { return len(ids) == 1 && ids[0] == stdinIDs }

// eachID calls f with the IDs: once with those given as arguments, or in batches with those on
// standard input. When ctx ends, a batch from standard input that is under way is finished. f
// counts outcomes and changes in t, and eachID returns t.result() at the end.
func (a *app) eachID(ctx context.Context, ids []string, t *tally, f func(context.Context, []string) error) error {
	if len(ids) > 1 && slices.Contains(ids, stdinIDs) {
		return usagef("\"-\" stands alone, for the IDs on standard input; an ID that is \"-\" can be given there")
	}
	if !readsIDs(ids) {
		err := f(ctx, ids)
		switch {
		case err == nil:
			return t.result()
		case onlyBrokenPipe(err):
			return err // all was done, and nobody wants to read it
		}
		return t.cutShort(err)
	}
	read := func(put func(string, int) bool) error { return readIDs(a.in, put) }
	if err := inBatches(ctx, limits.MaxBatch, read, f); err != nil {
		return t.cutShort(err)
	}
	return t.result()
}

// readIDs puts the lines of in that are not empty. It returns io.EOF at the end of in, or when put
// returns false, and an error of usage for a line that is too long for its buffer.
func readIDs(in io.Reader, put func(string, int) bool) error {
	r := bufio.NewReaderSize(in, 64<<10)
	for number := 1; ; number++ {
		line, err := r.ReadSlice('\n')
		id := strings.TrimSpace(string(line))
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			if errors.Is(err, bufio.ErrBufferFull) {
				return usagef("line %d of standard input is no ID: it is longer than %d bytes", number, r.Size())
			}
			return fmt.Errorf("read standard input: %w", err)
		case id != "" && !put(id, len(id)), err != nil:
			return io.EOF
		}
	}
}

// amended is the outcome for one ID.
type amended struct {
	found
	outcome punctual.Amended
}

// amend makes the change c of the messages that were found, in batches. A delete is of dead
// messages alone. The changes are counted in t, also those that were made before an error.
func amend(ctx context.Context, i punctual.Inspector, s punctual.Store, c punctual.Amendment, ids []found, t *tally) ([]amended, error) {
	out := make([]amended, len(ids))
	var as []punctual.Amendment
	var places []int // places[k] is where the outcome of as[k] goes
	flush := func() error {
		outcomes, err := s.Amend(ctx, as)
		if err != nil {
			return err
		}
		for k, o := range outcomes {
			out[places[k]].outcome = o
			if o.Err == nil {
				t.changed++
			}
		}
		as, places = as[:0], places[:0]
		return nil
	}
	for n, f := range ids {
		out[n] = amended{f, punctual.Amended{Err: punctual.ErrNotFound}}
		if f.topic == "" {
			continue
		}
		c.Topic, c.ID = f.topic, f.id
		one, err := c, error(nil)
		if c.Change == punctual.ChangeDelete {
			one.IfDue, err = dueOfDead(ctx, i, f, c.IfDue)
		}
		if errors.Is(err, punctual.ErrNotFound) || errors.Is(err, punctual.ErrNotDead) {
			out[n].outcome.Err = err
			continue
		}
		if err != nil {
			return nil, err
		}
		as, places = append(as, one), append(places, n)
		if len(as) == limits.MaxBatch {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	if len(as) == 0 {
		return out, nil
	}
	return out, flush()
}

// dueOfDead returns the condition for the delete of a dead message: ifDue, or else the due time
// that the message has, so that it stays if somebody requeues it in between. The error of a message
// that is not dead is an ErrNotDead.
func dueOfDead(ctx context.Context, i punctual.Inspector, f found, ifDue time.Time) (time.Time, error) {
	m, err := i.Get(ctx, f.topic, f.id)
	if err == nil && m.State != punctual.StateDead {
		err = fmt.Errorf("%s in %s: %w", f.id, f.topic, punctual.ErrNotDead)
	}
	if ifDue.IsZero() {
		ifDue = m.Due
	}
	return ifDue, err
}

// changeFound changes messages, prints each outcome and counts it. A message that was refused has
// no outcome. The first error of such a message is returned once the outcomes of the others are
// printed.
func (a *app) changeFound(ctx context.Context, i punctual.Inspector, s punctual.Store, places []found, c punctual.Amendment, t *tally) error {
	done, err := amend(ctx, i, s, c, places, t)
	if err != nil {
		return err
	}
	var refused error
	for _, d := range done {
		if err := d.outcome.Err; err != nil && exitOf(storekit.ErrorCode(err)) != exitUnwished {
			refused = cmp.Or(refused, fmt.Errorf("ID %q: %w", d.id, err))
			continue
		}
		if err := a.printAmended(d, c.Change, ""); err != nil {
			return err
		}
		if t.add(d); t.others == 1 && t.first.id == d.id {
			t.firstIsDead = a.isDead(ctx, i, d)
		}
	}
	return refused
}

// isDead reports whether a message that was not found among those to be delivered is dead.
func (a *app) isDead(ctx context.Context, i punctual.Inspector, d amended) bool {
	if d.topic == "" || !errors.Is(d.outcome.Err, punctual.ErrNotFound) {
		return false
	}
	m, err := i.Get(ctx, d.topic, d.id)
	return err == nil && m.State == punctual.StateDead // after an error the outcome stays "not found"
}

// tally counts outcomes, and keeps the first that was not the wished one.
type tally struct {
	change       punctual.Change
	unseen       string // the remark of app.notLookedInto
	done, others int    // how many outcomes there were, and how many of them were not the wished one
	changed      int    // how many changes were made, also those whose outcome is not printed yet
	first        amended
	firstIsDead  bool
}

// cutShort returns err, which ended the run before its last ID, with the number of IDs that were
// done by then.
func (t *tally) cutShort(err error) error {
	if t.changed+t.done == 0 {
		return err
	}
	return soFar(err, t.changed > 0, "IDs done before that: %d", t.done)
}

func (t *tally) add(d amended) {
	t.done++
	if d.outcome.Err == nil {
		return
	}
	if t.others++; t.others == 1 {
		t.first = d
	}
}

// result returns nil if every outcome was the wished one, and otherwise an error about the first
// that was not.
func (t *tally) result() error {
	if t.others == 0 {
		return nil
	}
	text := fmt.Sprintf("ID %q: %s", t.first.id, view.Explain(t.first.outcome.Err, t.change))
	if t.firstIsDead {
		text = fmt.Sprintf("ID %q: it is dead: 'punctual dead requeue' delivers it again, 'punctual dead delete' removes it", t.first.id)
	}
	if t.first.topic == "" {
		text += t.unseen
	}
	if t.done > 1 {
		text = fmt.Sprintf("%d of %d messages were not %s; the first: %s", t.others, t.done, wire.OutcomeWord(t.change), text)
	}
	return &failure{code: storekit.ErrorCode(t.first.outcome.Err), exit: exitUnwished, definite: t.changed == 0, text: text}
}

// amendJSON is what cancel, reschedule, dead requeue and dead delete print for one ID.
type amendJSON struct {
	ID      string    `json:"id"`
	Topic   string    `json:"topic,omitempty"` // left out when the ID was found in no topic
	Outcome string    `json:"outcome"`         // "cancelled", "rescheduled", "requeued", "deleted", "leased", "not_found", "not_dead" or "changed"
	Due     wire.Time `json:"due,omitzero"`
}

// printAmended prints the outcome for one ID. In text for people, where follows the ID, such as
// " in TOPIC".
func (a *app) printAmended(d amended, c punctual.Change, where string) error {
	status := cmp.Or(storekit.ErrorCode(d.outcome.Err), wire.OutcomeWord(c))
	if a.json {
		return a.out.writeJSON(amendJSON{ID: d.id, Topic: d.topic, Outcome: status, Due: wire.Time(d.outcome.Due)})
	}
	if !d.outcome.Due.IsZero() {
		status += ", due " + stamp(d.outcome.Due)
	}
	a.printf("%s%s %s\n", d.id, where, status)
	return nil
}
