package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Options configure a Store. The zero value is good for use.
type Options struct {
	// Schema is where the store's tables are. Default "punctual". Stores in different schemas know nothing of each other.
	// It is 1 to 63 of a-z, 0-9 and _, and begins with a letter.
	Schema string
	// Migrate makes the tables, or brings them to this program's version, when the store is opened. Several processes may
	// do so at once. Without it Open returns ErrNotFound where there is no store.
	Migrate bool
	// MaxBody is the largest body accepted, in bytes; a push of more is ErrTooLarge. 0 or less means punctual.DefaultMaxBody, 1 MiB.
	MaxBody int
	// Durability, if not empty, is the class that the server must give: Open returns ErrDurability, naming the setting, when it
	// cannot. Empty takes the server as it is.
	//
	// The server is checked every 30 s while the store is open. While it does not give the class, pushes are
	// refused with ErrDurability; all else goes on.
	Durability punctual.Durability
	// DurableAcks has acks wait for the disk, as all else does. Without it a crash of the server may take back those of its last
	// moments, and their messages are delivered once more. The moments are three times wal_writer_delay, 0.6 s as shipped.
	DurableAcks bool
	// NoListen keeps the store from holding a connection of its own on which other processes notify it of pushes. It then
	// polls once a second. Behind a pooler it is so in any case.
	NoListen bool
	// Logger gets what the store notices by itself, such as a server whose settings have become dangerous. Default
	// slog.Default().
	Logger *slog.Logger
	// OwnPool lets Close close the pool, too.
	OwnPool bool

	// clock, for tests, takes the place of the server's.
	clock storekit.Clock
	// checkEvery, heartbeat and pollEvery, for tests, take the place of the constants. wholePause takes the place of the time
	// between two whole scans.
	checkEvery, heartbeat, pollEvery, wholePause time.Duration
	// gaveBack, for tests, is called by a claim with what it had leased and is about to give back. It is called with nothing where the claim
	// may have leased what it does not know.
	gaveBack func(ctx context.Context, ds []punctual.Delivery)
}

// Store keeps messages in PostgreSQL. The declarations below name the interfaces of package punctual that it implements. It
// is safe for concurrent use. Make one with Open, and close it with Close.
type Store struct {
	pool    *pgxpool.Pool
	reserve reserve
	opt     Options
	sql     statements
	class   int32 // distinguishes the advisory locks of this schema from others
	clock   clock
	waits   waits
	// settings keeps the decoded settings of topics, so that they are decoded once for each text that the tables hold.
	settings storekit.SettingsReader
	needs    string // the least synchronous_commit of a transaction that changes something

	// data says which store the tables hold, and how far its clock was, as it was read last. open sets it before the duties
	// begin. From then on the goroutine of watch alone reads and writes it, in checkTables, so no lock guards it. Whoever else
	// wants to know what the tables hold reads them anew with readStore.
	data  data
	epoch atomic.Pointer[epoch] // as it was read last; nil until the store is open

	damage damage
	acks   ackPaths

	defaults []any // the settings of a new topic, as arguments of topic_create.sql; never changed

	closing chan struct{}   // closed when Close begins
	life    context.Context // that of the duties; ends when Close begins
	end     context.CancelFunc
	calls   storekit.Calls // the methods under way; whether the store is closed or has failed
	duties  sync.WaitGroup // the store's goroutines

	mu         sync.Mutex
	durability punctual.Durability // guarded by mu
	refusing   error               // guarded by mu: why pushes are refused, or nil
}

var (
	_ punctual.Store              = (*Store)(nil)
	_ punctual.Inspector          = (*Store)(nil)
	_ punctual.Checker            = (*Store)(nil)
	_ punctual.Examiner           = (*Store)(nil)
	_ punctual.DurabilityReporter = (*Store)(nil)
	_ punctual.FinishedKeeper     = (*Store)(nil)
	_ punctual.Surveyor           = (*Store)(nil)
	_ punctual.AbilityReporter    = (*Store)(nil)
	_ punctual.TopicNamer         = (*Store)(nil)
)

// Open opens a store on a pool, which stays the caller's. PostgreSQL 13 or newer is needed.
func Open(ctx context.Context, pool *pgxpool.Pool, o *Options) (*Store, error) {
	s, err := newStore(pool, o)
	if err != nil {
		return nil, fmt.Errorf("open postgres store: %w", err)
	}
	if err := s.open(ctx); err != nil {
		return nil, fmt.Errorf("open postgres store: %w", err)
	}
	s.duties.Go(s.watch)
	s.waits.start()
	return s, nil
}

// schemaName keeps schemas to names that need no quotes anywhere.
var schemaName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

func newStore(pool *pgxpool.Pool, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	s := &Store{pool: pool, opt: *o, needs: "local", closing: make(chan struct{})}
	s.opt.Schema = cmp.Or(s.opt.Schema, "punctual")
	if !schemaName.MatchString(s.opt.Schema) {
		return nil, fmt.Errorf("schema %q: use 1 to 63 of a-z 0-9 _, a letter first: %w", s.opt.Schema, punctual.ErrInvalid)
	}
	s.opt.heartbeat = cmp.Or(s.opt.heartbeat, heartbeat)
	if s.opt.MaxBody <= 0 {
		s.opt.MaxBody = punctual.DefaultMaxBody
	}
	if s.opt.Logger == nil {
		s.opt.Logger = slog.Default()
	}
	if s.opt.Durability == punctual.Replicated {
		s.needs = "on"
	}
	s.calls.Name, s.calls.Logger = "postgres store", s.opt.Logger
	var err error
	if s.defaults, err = settingsArgs(punctual.DefaultSettings()); err != nil {
		return nil, err
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.sql = loadStatements(s.opt.Schema)
	s.class = classOfLocks(s.opt.Schema)
	s.clock.fake = s.opt.clock
	s.waits.init(s)
	return s, nil
}

func classOfLocks(schema string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte("punctual " + schema)) // never fails
	return int32(h.Sum32())
}

// open checks the server and reads which store it holds.
func (s *Store) open(ctx context.Context) error {
	ctx, end := within(ctx)
	defer end()
	if err := s.checkServer(ctx); err != nil {
		return err
	}
	if s.opt.Migrate {
		if err := migrate(ctx, s); err != nil {
			return err
		}
	}
	err := s.checkVersion(ctx)
	if err != nil {
		return err
	}
	if s.data, err = s.readStore(ctx); err != nil {
		return err
	}
	s.clock.kept(s.data.micros)
	_, err = s.tick(ctx)
	return err
}

// data says which store the tables hold, and how far its clock was.
type data struct {
	identity, timeline string
	micros             int64
	server             int64 // the server's own clock then, in µs
	epoch              epoch
}

// readStore reads which store the tables hold.
func (s *Store) readStore(ctx context.Context) (d data, err error) {
	err = s.read(ctx, func() *step {
		return s.step().add("store", nil, func(rows scanner) error {
			return rows.Scan(&d.identity, &d.micros, &d.timeline, &d.server, &d.epoch.number, &d.epoch.timeline)
		})
	})
	if err == nil {
		s.epoch.Store(&d.epoch)
	}
	return d, err
}

// tick reads the clock.
func (s *Store) tick(ctx context.Context) (micros int64, err error) {
	err = s.again(ctx, func(ctx context.Context) error { // without plan.sql, since it reads no table
		return s.sendAlone(ctx, s.step().add("now", s.reading(), s.micros(&micros)).own(""))
	}, punctual.ErrUnreachable)
	if err == nil {
		s.clock.hear(micros)
	}
	return micros, err
}

// reading and writing are the arguments with which statements begin that read the clock.
func (s *Store) reading(more ...any) []any { return s.withClock("off", more) }

func (s *Store) writing(more ...any) []any { return s.withClock(s.needs, more) }

func (s *Store) withClock(durable string, more []any) []any {
	latest, fake := s.clock.args()
	return append([]any{latest, fake, durable}, more...)
}

// micros reads rows of the clock alone.
func (s *Store) micros(into *int64) func(scanner) error {
	return func(rows scanner) error { return rows.Scan(into) }
}

// Now is the store's clock (P8): that of the server, made never to run backwards.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	return call(ctx, s, "now", "", nil, func() (time.Time, error) {
		micros, err := s.tick(ctx)
		return storekit.FromMillis(micros / 1000), err
	})
}

// Durability is the class that the server gave when it was last checked.
func (s *Store) Durability() punctual.Durability {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.durability
}

// Abilities returns what the store can do; see punctual.AbilityReporter. Follow-ups may go to every topic, because all are in one database.
func (s *Store) Abilities(ctx context.Context) (punctual.Abilities, error) {
	return call(ctx, s, "abilities", "", nil, func() (punctual.Abilities, error) {
		return punctual.Abilities{Follow: punctual.ReachAny, Emit: true}, nil
	})
}

// Close ends waiting claims, waits for calls under way and stops the store's goroutines. The pool is left open unless
// Options.OwnPool is set. A second Close returns ErrClosed.
func (s *Store) Close() error {
	if err := s.calls.Close(); err != nil {
		return err
	}
	close(s.closing)
	s.end()
	s.calls.Wait()
	s.waits.close()
	s.duties.Wait()
	s.writeClock()
	s.reserve.close()
	if s.opt.OwnPool {
		s.pool.Close()
	}
	return nil
}

// call is storekit.Call for a method of this store.
func call[T any](ctx context.Context, s *Store, method, subject string, check error, work func() (T, error)) (T, error) {
	return storekit.Call(ctx, &s.calls, method, subject, check, work)
}
