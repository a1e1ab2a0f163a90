package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/internal/importer"
)

const importHelp = `Import takes over the delayed messages that another system holds in Redis or PostgreSQL: none lost,
and none delivered twice by the import.

Without --yes nothing is changed: the command counts what is there, says when it is due, shows
samples, and lists what cannot be imported and why.

With --yes each message is taken out of the other system in one step on its server, so that no old
consumer can have it as well, and is then pushed here. After a run was killed, the same command goes
on where it ended, and two runs at once do no harm. Producers and consumers of the other system may
go on meanwhile. Messages that cannot be imported stay where they are, and the exit code is 1.

docs/importing.md has the steps for each system, with both systems running side by side.`

const importExample = `  punctual import zset jobs --topic jobs --from redis://localhost/0
  punctual import redisson --from redis://localhost/0 --store redis://localhost/1
  punctual import asynq --from redis://localhost/0 --store redis://localhost/1 --yes
  punctual import river --from postgres://localhost/shop --yes`

// fromVariable names the source as --from does. Other users of the machine can see the arguments of a process, but not its environment.
const fromVariable = "PUNCTUAL_IMPORT_FROM"

func newImport(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:     "import",
		Short:   "Take over what another delayed queue holds in Redis or PostgreSQL",
		Long:    importHelp,
		Example: importExample,
	}, newImportZSet(a), newImportBee(a), newImportRedisson(a), newImportAsynq(a), newImportPostgres(a), newImportRiver(a))
}

// importFlags are the flags that all kinds have, and --map, which most have. The other flags of single kinds set fields of opt.
type importFlags struct {
	from, rejects         string
	yes, dryRun           bool
	maps                  []string
	leave, spread, dedupe durationFlag
	uncertain             string
	opt                   importer.Options
}

func (f *importFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	from := "the Redis to import from: `redis://HOST[:PORT][/DATABASE]`, redis+sentinel://... or redis+cluster://... (" + fromVariable + ")"
	if f.opt.Kind.InPostgres() {
		from = "the database to import from: `postgres://HOST[:PORT]/DATABASE` (" + fromVariable + ")"
	}
	flags.StringVar(&f.from, "from", "", from)
	flags.BoolVar(&f.yes, "yes", false, "import; without it nothing is changed")
	flags.BoolVar(&f.dryRun, "dry-run", false, "change nothing, which is the default without --yes")
	flags.StringVar(&f.opt.Topic, "topic", "", "the `TOPIC` for all messages")
	flags.Int64Var(&f.opt.Limit, "limit", 0, "import at most `N` messages; 0 is no limit")
	flags.Var(&f.leave, "leave", "leave messages to the old consumers that are due or will be within this `DURATION`")
	flags.Var(&f.spread, "spread", "deliver messages whose time has passed over this `DURATION`, not all at once")
	flags.BoolVar(&f.opt.Follow, "follow", false, "go on until interrupted, and take over what old producers still add")
	flags.StringVar(&f.rejects, "rejects", "", "write what is left where it is to this `FILE`, one JSON object per line")
	flags.Var(&f.dedupe, "dedupe-window", "how long a run that was killed can be resumed; the duplicate window of the topics is set to at least this `DURATION` (7d)")
	flags.StringVar(&f.uncertain, "uncertain", "leave", "what to do with messages that an earlier run took, and perhaps stored, too long ago: `leave|push|drop|return`")
}

// addMap adds --map, for kinds whose queues or topics have names. what is the word for one of them.
func (f *importFlags) addMap(cmd *cobra.Command, what string) {
	cmd.Flags().StringArrayVar(&f.maps, "map", nil, "import one "+what+" into a topic of another name: `NAME=TOPIC`; may be given more than once")
}

// options checks the flags, and returns them as options of the importer.
func (f *importFlags) options(a *app, names []string) (importer.Options, error) {
	o := f.opt
	if len(names) > 0 {
		o.Names = names
	}
	o.Leave, o.Spread, o.DedupeWindow = f.leave.or(0), f.spread.or(0), f.dedupe.or(0)
	o.Uncertain, o.Logger = importer.Decision(f.uncertain), a.logger()
	o.Target = a.storeFingerprint()
	switch {
	case f.yes && f.dryRun:
		return o, usagef("--yes and --dry-run contradict each other: use one")
	case o.Follow && !f.yes:
		return o, usagef("--follow imports: use it with --yes")
	case f.yes && o.Kind == importer.ZSet && o.Unit == 0:
		return o, usagef("say what the scores count with --unit s or --unit ms: a run without --yes shows what they look like")
	case f.yes && strings.HasPrefix(a.storeName(), "mem:"):
		return o, usagef("a store in memory is gone when this command ends: name another one with --store")
	case o.Limit < 0:
		return o, usagef("limit %d is negative: use 0 for no limit", o.Limit)
	}
	for _, m := range f.maps {
		at := strings.LastIndex(m, "=")
		if at < 1 || at == len(m)-1 {
			return o, usagef("map %q is not understood: write it like oldname=new.topic", m)
		}
		if o.Topics == nil {
			o.Topics = map[string]string{}
		}
		o.Topics[m[:at]] = m[at+1:]
	}
	return o, nil
}

// storeFingerprint returns a hash of the name of the store without user and password, which tells apart the stores that messages may be
// imported into.
func (a *app) storeFingerprint() string {
	kind, where, _ := strings.Cut(a.storeName(), ":")
	if kind == "disk" {
		if full, err := filepath.Abs(where); err == nil {
			where = full
		}
	} else if at := strings.LastIndex(where, "@"); at >= 0 {
		where = "//" + where[at+1:]
	}
	sum := sha256.Sum256([]byte(kind + ":" + where))
	return hex.EncodeToString(sum[:8])
}

// action is the RunE of all kinds.
func (f *importFlags) action(a *app) func(*cobra.Command, []string) error {
	return a.action(func(ctx context.Context, args []string) error {
		o, err := f.options(a, args)
		if err != nil {
			return err
		}
		from := f.from
		if from == "" {
			from = a.getenv(fromVariable)
		}
		if from == "" {
			if o.Kind.InPostgres() {
				return usagef("name the database to import from, with --from postgres://HOST:PORT/DATABASE or %s", fromVariable)
			}
			return usagef("name the Redis to import from, with --from redis://HOST:PORT/DATABASE or %s", fromVariable)
		}
		return a.importFrom(ctx, from, o, f)
	})
}

// importFrom surveys the source, or with --yes imports from it, and shows what came of that.
func (a *app) importFrom(ctx context.Context, from string, o importer.Options, f *importFlags) (err error) {
	rejects, err := a.openRejects(f.rejects)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rejects.close()) }()
	o.Rejected = rejects.write

	message := "looked at"
	if f.yes {
		message = "imported"
	}
	bar := &term.Bar{}
	o.Started = func(total int64) {
		if o.Follow {
			total = 0
		}
		bar = a.newBar(message, total)
	}
	o.Progress = func(done int64) { bar.Set(done) }
	im, hangUp, err := newImporter(ctx, from, o)
	if err != nil {
		return err
	}
	defer func() {
		if closing := hangUp(); closing != nil {
			err = errors.Join(err, fmt.Errorf("close the connection to the source: %w", closing))
		}
	}()
	report, err := a.lookOrMove(ctx, im, f.yes)
	bar.Stop(err)
	return a.endImport(report, rejects, f, err)
}

// newImporter connects with the server that the URL from names. Unless there is an error, the caller calls hangUp when it is done.
func newImporter(ctx context.Context, from string, o importer.Options) (im *importer.Importer, hangUp func() error, err error) {
	if o.Kind.InPostgres() {
		conn, err := importer.DialPostgres(ctx, from)
		if err != nil {
			return nil, nil, err
		}
		hangUp = func() error { return conn.Close(context.WithoutCancel(ctx)) }
		im, err = importer.NewPostgres(conn, o)
		return im, hangUp, closeIf(err, hangUp)
	}
	client, err := importer.Dial(from)
	if err != nil {
		return nil, nil, err
	}
	im, err = importer.New(client, o)
	return im, client.Close, closeIf(err, client.Close)
}

// closeIf returns nil if err is nil. Otherwise it calls hangUp, and returns err together with the error of hangUp.
func closeIf(err error, hangUp func() error) error {
	if err == nil {
		return nil
	}
	return errors.Join(err, hangUp())
}

func (a *app) lookOrMove(ctx context.Context, im *importer.Importer, yes bool) (report *importer.Report, err error) {
	if !yes {
		return im.Survey(ctx)
	}
	opened := a.withStore(ctx, orCreate, func(s punctual.Store) error {
		report, err = im.Move(ctx, s)
		return nil
	})
	return report, errors.Join(err, opened)
}

// endImport shows the report, also that of a run that failed, and returns the error with which the command ends.
func (a *app) endImport(r *importer.Report, rejects *rejectLog, f *importFlags, err error) error {
	if r == nil || len(r.Sets) == 0 && err != nil {
		return err
	}
	if showing := a.showImport(r, f); showing != nil {
		return errors.Join(err, showing)
	}
	rejects.showRest(a, f.rejects)
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("nothing is lost, the same command goes on: %w", err)
	case err != nil:
		return err
	case r.Rejects() > 0:
		return &failure{
			code: codeSomeFailed, exit: exitError, definite: r.Add(func(s *importer.SetReport) int64 { return s.Stored + s.Duplicates + s.Dropped }) == 0,
			text: fmt.Sprintf("not imported, and left where they are: %d; the reasons are above, or with --rejects in a file", r.Rejects()),
		}
	}
	return nil
}

// unitFlag takes s or ms.
type unitFlag struct{ unit *time.Duration }

// Set, String and Type implement pflag.Value.
func (u unitFlag) Set(s string) error {
	switch s {
	case "s":
		*u.unit = time.Second
	case "ms":
		*u.unit = time.Millisecond
	default:
		return usagef("unit %q: use s or ms", s)
	}
	return nil
}

func (u unitFlag) String() string {
	if u.unit == nil || *u.unit == 0 {
		return ""
	}
	return unitWord(*u.unit)
}

// Type is the word for the value in a command's help.
func (u unitFlag) Type() string { return "s|ms" }

func unitWord(d time.Duration) string {
	if d == time.Second {
		return "s"
	}
	return "ms"
}
