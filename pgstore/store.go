package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// Options configure a Store. The zero value is good for use.
type Options struct {
	// Schema is where the store's tables are. Default "punctual". Stores in different schemas know
	// nothing of each other. It is 1 to 63 of a-z, 0-9 and _. It begins with a letter, and not with
	// pg_, because PostgreSQL keeps such names for itself.
	Schema string
	// Migrate makes the tables, or brings them to this program's version, when the store is opened.
	// Several processes may do so at once. Without it Open returns ErrNotFound where there is no
	// store.
	Migrate bool
	// MaxBody is the largest body accepted, in bytes; a push of more is ErrTooLarge. 0 or less
	// means limits.DefaultMaxBody, 1 MiB.
	MaxBody int
	// Durability, if not empty, is the class that the server must give: Open returns ErrDurability,
	// naming the setting, when it cannot. Empty takes the server as it is.
	//
	// The server is checked every 30 s while the store is open. While it does not give the class,
	// pushes and settlements with follow-ups are refused with ErrDurability; all else goes on.
	Durability punctual.Durability
	// DurableAcks has acks wait for the disk, as other changes do. Without it a crash of the server
	// may take back the acks of its last moments, and their messages are delivered once more. The
	// moments are three times wal_writer_delay, 0.6 s as shipped. Acks wait in any case where an ID
	// is to be remembered, with follow-ups, and where the topic tells of acks.
	DurableAcks bool
	// NoListen turns notifications off: the store holds no connection of its own on which other
	// processes notify it of what is due, and it notifies no others. It learns of what others push
	// by its poll once a second, and they learn so of its own pushes. Behind a pooler that gives
	// each transaction another connection notifications are off in any case.
	NoListen bool
	// Logger gets what the store notices by itself, such as a server that no longer gives the
	// durability asked for. Default slog.Default().
	Logger *slog.Logger
	// OwnPool has Close close the pool, too.
	OwnPool bool

	// clock, for tests, takes the place of the server's.
	clock storekit.Clock
	// checkEvery, heartbeat, pollEvery and wholeLimit, for tests, take the place of the constants
	// of these names. wholePause takes the place of the time between two whole scans. checkEvery is
	// also the time between two sweeps of events.
	checkEvery, heartbeat, pollEvery, wholePause, wholeLimit time.Duration
	// gaveBack, for tests, is called by a claim with what it had leased and is about to give back.
	// The claim calls it with nil when, after its first lease, the answer to one of its statements
	// was lost, because that statement may have leased further messages.
	gaveBack func(ctx context.Context, ds []punctual.Delivery)
}

// Store keeps messages in PostgreSQL. The declarations below name the interfaces of package
// punctual that it implements. It is safe for concurrent use. Make one with Open, and close it with
// Close.
type Store struct {
	db        *database
	migrator  *migrator
	claims    *claims
	given     *guarantee
	steps     *stepping
	topics    *topicSettings
	inspector *inspector
	remover   *remover
	opt       Options
	waits     waits

	// data is what checkTables has read last of the table store. open sets it before the goroutine
	// of watch begins. From then on that goroutine alone reads and writes it, so no lock guards it.
	data data

	damage damage

	closing chan struct{}   // closed when Close begins
	life    context.Context // that of watch, sweeps and the polls; ends when Close begins
	end     context.CancelFunc
	calls   storekit.Calls // the methods under way; whether the store is closed or has failed
	duties  sync.WaitGroup // the goroutines of watch, sweeps and carryOver, and the sweeps of events; waits and its notifier wait for theirs
}

var (
	_ punctual.Store              = (*Store)(nil)
	_ punctual.Inspector          = (*Store)(nil)
	_ storekit.Checker            = (*Store)(nil)
	_ storekit.Examiner           = (*Store)(nil)
	_ storekit.DurabilityReporter = (*Store)(nil)
	_ punctual.FinishedKeeper     = (*Store)(nil)
	_ storekit.Surveyor           = (*Store)(nil)
	_ storekit.AbilityReporter    = (*Store)(nil)
	_ storekit.TopicNamer         = (*Store)(nil)
	_ storekit.ClockKeeper        = (*Store)(nil)
)

// Open opens a store on a pool, which Open itself never closes; see Options.OwnPool. PostgreSQL 13
// or newer is needed.
func Open(ctx context.Context, pool *pgxpool.Pool, o *Options) (*Store, error) {
	s, err := newStore(pool, o)
	if err != nil {
		return nil, fmt.Errorf("open postgres store: %w", err)
	}
	if err := s.open(ctx); err != nil {
		s.db.reserve.close()
		return nil, fmt.Errorf("open postgres store: %w", err)
	}
	s.duties.Go(s.watch)
	s.duties.Go(s.sweeps)
	s.duties.Go(func() { storekit.SweepEventsUntil(s.closing, s.opt.checkEvery, s, s.opt.Logger) })
	s.waits.start()
	return s, nil
}

// schemaName matches the names of schemas that are allowed, but for those that begin with pg_. None
// has a character that needs quotes, but statements quote them all the same (inSchema), because
// some are reserved words, such as user.
var schemaName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// newStore makes a store that is not open. It holds nothing but the connections of its reserve,
// which the caller closes.
func newStore(pool *pgxpool.Pool, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	s := &Store{db: &database{pool: pool, needs: "local"}, opt: *o, closing: make(chan struct{})}
	s.opt.Schema = cmp.Or(s.opt.Schema, "punctual")
	if !schemaName.MatchString(s.opt.Schema) {
		return nil, fmt.Errorf("schema %q: use 1 to 63 of a-z 0-9 _, a letter first: %w", s.opt.Schema, punctual.ErrInvalid)
	}
	if strings.HasPrefix(s.opt.Schema, "pg_") {
		return nil, fmt.Errorf("schema %q: PostgreSQL keeps names that begin with pg_ for itself: use another name: %w", s.opt.Schema, punctual.ErrInvalid)
	}
	s.opt.heartbeat = cmp.Or(s.opt.heartbeat, heartbeat)
	if s.opt.MaxBody <= 0 {
		s.opt.MaxBody = limits.DefaultMaxBody
	}
	if s.opt.Logger == nil {
		s.opt.Logger = slog.Default()
	}
	if s.opt.Durability == punctual.Replicated {
		s.db.needs = "on"
	}
	s.given = &guarantee{db: s.db, want: s.opt.Durability, log: s.opt.Logger}
	s.calls.Name, s.calls.Logger = "postgres store", s.opt.Logger
	s.db.fail = s.calls.Fail
	var err error
	if s.db.defaults, err = newTopicArgs(); err != nil {
		return nil, err
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.db.sql = loadStatements(s.opt.Schema)
	s.db.class = classOfLocks(s.opt.Schema)
	s.db.clock.fake = s.opt.clock
	s.waits.init(s)
	s.migrator = &migrator{s.db, s.opt.Schema}
	s.claims = &claims{db: s.db, waits: &s.waits, damage: &s.damage, opt: &s.opt, giveBack: s.giveBack}
	s.steps = &stepping{db: s.db, waits: &s.waits, log: s.opt.Logger, life: s.life, duties: &s.duties}
	s.topics = &topicSettings{s.db, &s.waits}
	s.inspector = &inspector{s.db}
	s.remover = &remover{s.db}
	return s, nil
}

func classOfLocks(schema string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte("punctual " + schema)) // never fails
	return int32(h.Sum32())
}

// open checks the server, migrates the tables if that was asked for, and reads which store they
// hold.
func (s *Store) open(ctx context.Context) error {
	ctx, end := within(ctx)
	defer end()
	if err := s.given.checkServer(ctx); err != nil {
		return err
	}
	if s.opt.Migrate {
		if err := migrate(ctx, s); err != nil {
			return err
		}
	}
	err := s.migrator.checkVersion(ctx)
	if err != nil {
		return err
	}
	d, err := s.db.readStore(ctx)
	if err == nil {
		s.data, err = s.db.currentEpoch(ctx, d)
	}
	if err != nil {
		return err
	}
	s.db.clock.steps, s.db.clock.latest, s.db.clock.stored = s.data.steps, s.data.micros, s.data.micros // nobody else knows of the clock yet
	_, err = s.db.tick(ctx)
	return err
}

// data is the answer of store.sql: which store the tables hold, how far its clock was, its epoch,
// the steps of its clock, and the server's timeline and clock.
type data struct {
	identity, timeline string
	micros             int64
	server             int64 // the server's own clock then, in µs, or that of a test
	epoch              epoch
	clockSteps
}

// readStore reads the table store, and keeps its epoch for claims and events.
func (db *database) readStore(ctx context.Context) (d data, err error) {
	err = db.read(ctx, func() *step {
		return db.step().add("store", nil, func(rows scanner) error {
			return rows.Scan(&d.identity, &d.micros, &d.timeline, &d.server, &d.epoch.number, &d.epoch.timeline, &d.steps, &d.from, &d.to, &d.carried)
		})
	})
	if err == nil {
		if fake := db.clock.fakeMicros(); fake != nil {
			d.server = *fake
		}
		db.epoch.Store(&d.epoch)
	}
	return d, err
}

// tick reads the clock.
func (db *database) tick(ctx context.Context) (micros int64, err error) {
	err = db.again(ctx, func(ctx context.Context) error { // without plan.sql, since it reads no table
		return db.sendAlone(ctx, db.step().add("now", db.reading(), db.micros(&micros)).own(""))
	}, punctual.ErrUnreachable)
	if err == nil {
		db.clock.hear(micros)
	}
	return micros, err
}

// reading returns the arguments of a statement that reads the clock and changes nothing: those of
// clock.sql, and then more.
func (db *database) reading(more ...any) []any { return db.withClock("off", more) }

// writing is reading for a statement whose transaction changes something, or is to wait for the
// disk.
func (db *database) writing(more ...any) []any { return db.withClock(db.needs, more) }

func (db *database) withClock(durable string, more []any) []any {
	latest, fake := db.clock.args()
	return append([]any{latest, fake, durable}, more...)
}

// micros returns what reads rows that have the clock alone.
func (db *database) micros(into *int64) func(scanner) error {
	return func(rows scanner) error { return rows.Scan(into) }
}

// Now returns the time of the store's clock (P8), in whole milliseconds: that of the server, made
// not to run backwards but for a step (storekit.ClockKeeper).
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	return call(ctx, s, "now", "", nil, func() (time.Time, error) {
		micros, err := s.db.tick(ctx)
		return storekit.FromMillis(micros / 1000), err
	})
}

// Durability returns the class that the server gave when it was last checked.
func (s *Store) Durability() punctual.Durability {
	s.given.mu.Lock()
	defer s.given.mu.Unlock()
	return s.given.durability
}

// Abilities returns what the store can do; see storekit.AbilityReporter. Follow-ups may go to every
// topic, because all are in one database.
func (s *Store) Abilities(ctx context.Context) (storekit.Abilities, error) {
	return call(ctx, s, "abilities", "", nil, func() (storekit.Abilities, error) {
		return storekit.Abilities{Follow: storekit.ReachAny, Emit: true, BoundsLeases: true, Keys: true}, nil
	})
}

// Close ends waiting claims, waits for calls under way, notifies other processes of what these have
// stored, for a second at most, and stops the store's goroutines. The pool is left open unless
// Options.OwnPool is set. A second Close returns ErrClosed.
func (s *Store) Close() error {
	if err := s.calls.Close(); err != nil {
		return err
	}
	close(s.closing)
	s.waits.arrivals.Close()
	s.end()
	s.calls.Wait()
	s.waits.close()
	s.duties.Wait()
	s.writeClock()
	s.db.reserve.close()
	if s.opt.OwnPool {
		s.db.pool.Close()
	}
	return nil
}

// call runs a method of the store by storekit.Call.
func call[T any](ctx context.Context, s *Store, method, subject string, check error, work func() (T, error)) (T, error) {
	return storekit.Call(ctx, &s.calls, method, subject, check, work)
}
