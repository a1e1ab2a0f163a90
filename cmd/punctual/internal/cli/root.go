// Package cli is the command line of Punctual. A file is named like the command in it; commands of
// one kind share a file, such as those below topic in topic.go. Most commands open the store that
// --store names, and work with it directly, or through a Queue, a Worker or a server.
//
// A command is built by a function whose name begins with new, such as newPush. It checks most of
// its flags and arguments before it opens a store. Its answer goes to a.out, with --json usually as
// one JSON object per line. The function of a command returns the error that ends it; report in
// failure.go prints that error and decides the exit code.
package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/settings"
	"github.com/punctualmq/punctual/internal/wire"
)

// Streams is what a run of the command line reads, writes and looks up.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Getenv looks up an environment variable; nil stands for os.Getenv.
	Getenv func(string) string
	// Environ lists the environment variables in the form of os.Environ. If it is nil, it stands
	// for os.Environ when Getenv is nil, too, and otherwise for an empty list.
	Environ func() []string
}

// app is one run of the command line. Its fields do not change any more once a command's own code
// runs, with these exceptions: before they open a store, top, serve and the completion of topics
// set log, and serve sets storeFlag and wait from its configuration. out, errs and children are
// safe for concurrent use.
type app struct {
	in     io.Reader
	out    *output
	errs   *output
	getenv func(string) string
	// environ lists the environment variables, so that serve finds those without effect.
	environ func() []string
	// now is the machine's clock, which decides what "tomorrow" means to whoever types it. The
	// times of messages are by the store's clock.
	now func() time.Time
	// schemes are the kinds of stores that --store can name.
	schemes []scheme
	// children are the processes started by consume --exec.
	children processes
	// forced ends with the second signal, when a command has to give up what is under way.
	forced context.Context

	// log, if not nil, takes the place of the logger that app.logger makes. A command sets it
	// before it opens a store.
	log *slog.Logger

	storeFlag string
	wait      time.Duration // for a directory whose owner does not share it
	json      bool
	// operation is the path of the subcommand, such as "topic set", for errors. It is empty until
	// the command's own code is reached, and an error before that is one of usage.
	operation string
}

func newApp(s Streams) *app {
	switch {
	case s.Getenv == nil && s.Environ == nil:
		s.Getenv, s.Environ = os.Getenv, os.Environ
	case s.Getenv == nil:
		s.Getenv = os.Getenv
	case s.Environ == nil:
		s.Environ = func() []string { return nil }
	}
	colours := s.Getenv("NO_COLOR") == ""
	return &app{
		in:      s.In,
		out:     &output{term.NewOutput(s.Out, colours)},
		errs:    &output{term.NewOutput(s.Err, colours)},
		getenv:  s.Getenv,
		environ: s.Environ,
		now:     time.Now,
		schemes: schemes(),
		wait:    lockedFor,
		forced:  context.Background(),
	}
}

// run carries out one command line and returns its exit code. When ctx ends, consume and serve
// drain, commands that read messages or IDs line by line from standard input finish the batch under
// way, and most other commands give up.
func (a *app) run(ctx context.Context, args []string) int {
	root := newRoot(a)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && a.operation == "" {
		err = asUsage(err, cmd.CommandPath())
		a.json = a.json || asksForJSON(args) // the flags behind the wrong one were not read
	}
	return a.report(err)
}

func asksForJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json")
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "punctual",
		Short: "Deliver messages at the time asked for",
		Long: `Punctual delivers a message to a consumer at the time asked for.

          push              time comes           claim                   ack
(absent) ──────▶ scheduled ───────────▶ ready ───────────▶ leased ──────────────▶ (done)
                  ▲  ▲  │                 │                 │ │ │
       reschedule └──┘  │ cancel          │ cancel          │ │ └ discard, attempts used
                        ▼                 ▼                 │ │   up, expired ──▶ dead
                   (cancelled)       (cancelled)            │ └ retry ──▶ scheduled  │
                                                            └ lease ran out ─▶ ready │
                                                  scheduled ◀──────── requeue ◀──────┘

Start here: punctual demo`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	var version bool
	root.Flags().BoolVar(&version, "version", false, "print the version")
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if !version {
			return cmd.Help()
		}
		return a.action(func(context.Context, []string) error { return a.showVersion() })(cmd, args)
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.errs)
	flags := root.PersistentFlags()
	flags.StringVar(&a.storeFlag, "store", "", "the `STORE`, like disk:PATH or redis://HOST; see 'punctual help store'")
	durationVar(flags, &a.wait, "wait", "wait for a directory whose owner does not share it (default 2s; 0s: no wait)")
	flags.BoolVar(&a.json, "json", false, "print JSON, one object per line")

	root.AddGroup(
		&cobra.Group{ID: groupMessages, Title: "Messages:"},
		&cobra.Group{ID: groupLook, Title: "Looking in:"},
		&cobra.Group{ID: groupMaintenance, Title: "Maintenance:"},
	)
	addTo(root, groupMessages, newPush(a), newConsume(a), newCancel(a), newReschedule(a), newBulk(a), newGet(a), newDead(a), newSchedule(a))
	addTo(root, groupLook, newList(a), newFinished(a), newStats(a), newConsumers(a), newForecast(a), newTop(a))
	addTo(root, groupMaintenance, newTopic(a), newImport(a), newBackup(a), newCopy(a), newCheck(a), newDemo(a), newVersion(a))
	addTo(root, groupMaintenance, newDoctor(a), newClock(a), newMigrate(a), newServe(a), newToken(a))
	root.AddCommand(newExitCodesHelp(), newStoreHelp(a))
	refuseUnknownHelp(root)
	root.InitDefaultCompletionCmd()
	explainUsage(root)
	a.complete(root)
	return root
}

// explainUsage makes the errors of wrong arguments and flags say what to write, for each command
// below root. Commands that only have subcommands show their help.
func explainUsage(root *cobra.Command) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd.HasSubCommands() && cmd != root { // the flag may belong to a subcommand that does not exist
			return cmp.Or(noSuchCommand(cmd, cmd.Flags().Args()), err)
		}
		return err
	})
	for _, cmd := range root.Commands() {
		explainArguments(cmd)
	}
}

func explainArguments(cmd *cobra.Command) {
	switch {
	case cmd.HasSubCommands(): // it takes no arguments of its own
		cmd.Args, cmd.RunE = noSuchCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	case cmd.Args == nil && cmd.Runnable():
		cmd.Args = argumentsOf(cmd.Use)
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil || errors.As(err, new(*failure)) {
				return err
			}
			return wrongArguments(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		explainArguments(sub)
	}
}

// argumentsOf returns the check of the number of arguments that a usage line names, as NAME,
// [NAME], NAME... or [NAME...]. Flags end them.
func argumentsOf(use string) cobra.PositionalArgs {
	least, most := 0, 0
	for _, word := range strings.Fields(use)[1:] {
		if strings.Contains(word, "--") {
			break
		}
		if most++; !strings.HasPrefix(word, "[") {
			least++
		}
		if strings.Contains(word, "...") {
			return cobra.MinimumNArgs(least)
		}
	}
	return cobra.RangeArgs(least, most)
}

// wrongArguments is the error of a command that does not take this number of arguments. A URL among
// them is not shown, because it may hold a password.
func wrongArguments(cmd *cobra.Command, args []string) error {
	given := "no argument is given"
	if len(args) > 0 {
		var shown []string
		for _, arg := range args {
			if strings.Contains(arg, "://") {
				arg = "…"
			}
			shown = append(shown, strconv.Quote(arg))
		}
		given = fmt.Sprintf("wrong number of arguments (%d: %s)", len(args), strings.Join(shown, ", "))
	}
	name, takes, _ := strings.Cut(cmd.Use, " ")
	line := strings.TrimSuffix(cmd.CommandPath(), name) + cmd.Use
	hint := ""
	if len(args) > 1 && takes != "" && !strings.ContainsAny(takes, " .") {
		hint = ", once for each"
	}
	return usagef("%s: write '%s'%s: see '%s --help'", given, line, hint, cmd.CommandPath())
}

// refuseUnknownHelp makes help on a command that does not exist an error of usage.
func refuseUnknownHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		panic("punctual: no help command: " + err.Error()) // cobra has just made it
	}
	help.Args = func(_ *cobra.Command, args []string) error {
		if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
			return usagef("unknown help topic %q: see 'punctual --help'", strings.Join(args, " "))
		}
		return nil
	}
}

// group makes subs the subcommands of cmd, which does nothing itself.
func group(cmd *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(subs...)
	return cmd
}

// The groups under which the root's help lists the commands.
const (
	groupMessages    = "messages"
	groupLook        = "look"
	groupMaintenance = "maintenance"
)

func addTo(root *cobra.Command, group string, cmds ...*cobra.Command) {
	for _, c := range cmds {
		c.GroupID = group
	}
	root.AddCommand(cmds...)
}

// action adapts a command's function to cobra: from here on errors are the command's own.
// A failed write to standard output fails the command, too.
func (a *app) action(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.operation = strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
		if err := refuseEmpty(cmd, args); err != nil {
			return err
		}
		if err := f(cmd.Context(), args); err != nil {
			return err
		}
		return a.out.failed()
	}
}

// mayBeEmpty is the name of an annotation. Its value is the number, from 0, of the argument of the
// command that may be empty.
const mayBeEmpty = "may be empty"

// refuseEmpty returns an error of usage if a flag other than --after, or an argument other than the
// one of mayBeEmpty, was given with an empty value, as a shell passes it for a variable that is not
// set. An empty value must not count as a flag that was left out, because the command would then
// mean something else, for example every topic.
func refuseEmpty(cmd *cobra.Command, args []string) error {
	for i, arg := range args {
		if arg == "" && cmd.Annotations[mayBeEmpty] != strconv.Itoa(i) {
			return usagef("argument %d is empty: give a value, or leave it out", i+1)
		}
	}
	var empty error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name == "after" { // a script that reads page by page has no cursor for the first page
			return
		}
		isEmpty := f.Value.String() == ""
		if many, ok := f.Value.(pflag.SliceValue); ok {
			values := many.GetSlice()
			isEmpty = len(values) == 0 || slices.Contains(values, "")
		}
		if isEmpty && empty == nil {
			empty = usagef("--%s is empty: give a value, or leave it out", f.Name)
		}
	})
	return empty
}

// output is one of the two output streams.
type output struct{ *term.Output }

// failed returns the error of the first write that failed, as a failure with an exit code, or nil.
func (o *output) failed() error { return outputError(o.Err()) }

// printf prints on standard output. The error of a write that fails is kept, and action returns it
// at the end of a command that has no other error.
func (a *app) printf(format string, args ...any) { a.out.Printf(format, args...) }

// sayNothing says on standard error that a list is empty, so that people do not take the silence
// for a failure. With --json it prints nothing, because a script sees that there are no lines.
func (a *app) sayNothing(what string) {
	if !a.json {
		fmt.Fprintf(a.errs, "no %s\n", what)
	}
}

// newBar starts a bar on standard error; with --json it returns one that shows nothing. total is 0
// when it is not known. The caller must call Stop.
func (a *app) newBar(message string, total int64) *term.Bar {
	if a.json {
		return &term.Bar{}
	}
	return term.NewBar(a.errs.Output, message, total)
}

// when writes a time for people, and "-" for the zero time.
func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return stamp(t)
}

// completionTime bounds how long the Tab key waits for the store.
const completionTime = 2 * time.Second

// completeTopics completes topic names for the first n arguments, all for -1. It offers nothing
// when the store cannot be opened or does not answer within completionTime, and says nothing then.
func (a *app) completeTopics(n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if n >= 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		a.log = slog.New(slog.DiscardHandler)
		var names []cobra.Completion
		err := a.withInspector(ctx, mustExist, func(i punctual.Inspector, _ punctual.Store) error {
			topics, err := i.Topics(ctx)
			for _, t := range topics {
				names = append(names, t.Topic)
			}
			return err
		})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// complete has a shell complete, for a command and those below it, the names of topics that an
// argument or --topic takes, and the values of flags whose help names them as `a|b` or `a,b`.
func (a *app) complete(cmd *cobra.Command) {
	_, takes, _ := strings.Cut(cmd.Use, " ")
	if strings.HasPrefix(strings.Trim(takes, "[("), "TOPIC") && cmd.Parent().Name() != "import" { // below import, TOPIC is a topic of another system
		cmd.ValidArgsFunction = a.completeTopics(1)
		if takes == "TOPIC..." {
			cmd.ValidArgsFunction = a.completeTopics(-1)
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		complete := a.completeTopics(-1)
		switch value, _ := pflag.UnquoteUsage(f); {
		case valuesInUsage.MatchString(value):
			complete = fixedValues(append(strings.FieldsFunc(value, func(r rune) bool { return r == '|' || r == ',' }), value)...)
		case f.Name != "topic" || cmd.Name() == "copy": // copy takes topics of the store FROM
			return
		}
		registerCompletion(cmd, f.Name, complete)
	})
	for _, sub := range cmd.Commands() {
		a.complete(sub)
	}
}

// valuesInUsage matches the values of a flag as its help names them.
var valuesInUsage = regexp.MustCompile(`^[a-z-]+([|,][a-z-]+)+$`)

// fixedValues completes values. One with a | in it is none.
func fixedValues(values ...string) cobra.CompletionFunc {
	values = slices.DeleteFunc(values, func(v string) bool { return strings.Contains(v, "|") })
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

func registerCompletion(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic("punctual: " + err.Error()) // there is no such flag, or it is completed already
	}
}

// The JSON that scripts rely on. What a store holds is printed as a server answers it, by the types
// of package wire. The other shapes stand beside a command that prints them, such as amendJSON in
// change.go, or in this file. Members are only ever added, which TestMembers checks for most
// commands by testdata/members.txt. Times, except for that of version, are RFC 3339 in UTC with
// exactly three digits of milliseconds, by the store's clock unless the shape says otherwise.

// stamp writes a time for people as the shapes have it.
func stamp(t time.Time) string { return notation.FormatTime(t.Truncate(time.Millisecond)) }

// messageJSON is a stored message, as list and dead list print it.
type messageJSON struct {
	wire.Message
	// Next stands on the last message of a page when more may follow: the --after that continues
	// the list.
	Next string `json:"next,omitzero"`
}

// topicJSON is one topic, as topics and stats print it. The pauses stand among the settings, too.
type topicJSON struct {
	wire.Topic
	PushPaused     bool `json:"push_paused"`
	DeliveryPaused bool `json:"delivery_paused"`
}

func topicOf(s punctual.TopicStats) topicJSON {
	return topicJSON{Topic: wire.TopicOf(s), PushPaused: s.Settings.PushPaused, DeliveryPaused: s.Settings.DeliveryPaused}
}

// settingsJSON is a topic's settings, as topic set, show, pause and resume print them: the topic,
// and the members that internal/settings has. Durations are as the flags take them.
type settingsJSON struct {
	Topic    string
	Settings punctual.Settings
}

// MarshalJSON writes topic and settings side by side.
func (s settingsJSON) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(s.Topic)
	if err != nil {
		return nil, err
	}
	text = append([]byte(`{"topic":`), text...)
	for _, row := range settings.Table {
		text = fmt.Appendf(text, `,"%s":%s`, row.Name, row.JSON(&s.Settings))
	}
	return append(text, '}'), nil
}

// writeJSON prints v as one line. A failed write is kept in o and returned.
func (o *output) writeJSON(v any) error {
	line, err := jsonLine(v)
	if err != nil {
		return err
	}
	_, err = o.Write(line)
	return outputError(err)
}

// jsonLine is v as one line of JSON.
func jsonLine(v any) ([]byte, error) {
	line, err := wire.EncodeText(v)
	return append(line, '\n'), err
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Version prints which build this is: the module's version, the commit, and the Go release that
built it.`,
		Example: `  punctual version
  punctual version --json
  punctual version --json > version.json`,
		RunE: a.action(func(context.Context, []string) error { return a.showVersion() }),
	}
}

// versionJSON is what version prints.
type versionJSON struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitzero"` // built from changed files
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) showVersion() error {
	v := versionOf(debug.ReadBuildInfo())
	if a.json {
		return a.out.writeJSON(v)
	}
	a.printf("punctual %s %s %s\n", v.Version, v.Go, v.Platform)
	if v.Commit != "" {
		changed := ""
		if v.Modified {
			changed = ", with changes"
		}
		a.printf("commit %s of %s%s\n", v.Commit, v.Time, changed)
	}
	return nil
}

// versionOf reads what the build left in the binary. Only the Go release and the platform are
// always known.
func versionOf(b *debug.BuildInfo, ok bool) versionJSON {
	v := versionJSON{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if !ok {
		return v
	}
	if b.Main.Version != "" {
		v.Version = b.Main.Version
	}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
