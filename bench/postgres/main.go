// Command postgres compares layouts of a delayed queue in PostgreSQL, as raw SQL on a real server of its own: what decision
// 38 rests on. It measures the server, not Punctual.
//
//	go run ./postgres                    all experiments, some ten minutes
//	go run ./postgres -only head -n 1e7  one of them, with ten million acks
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"

	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "postgres:", err)
		stop()
		os.Exit(1)
	}
}

// experiment is one question about the layout.
type experiment struct {
	name, question string
	run            func(*lab) error
}

func experiments() []experiment {
	return []experiment{
		{"head", "does a floor keep claims fast after many acks, with and without a snapshot held open?", head},
		{"life", "what does a life cost: body inline or apart, claim by UPDATE or by receipt?", lives},
		{"inflight", "what does a life cost beside messages that others hold?", inFlight},
		{"notify", "what does NOTIFY cost pushes: none, in the transaction, coalesced?", notify},
		{"topics", "what does one claim over many topics cost?", topics},
	}
}

// lab is a server and what the experiments are told.
type lab struct {
	ctx    context.Context
	server *pgrig.Server
	out    io.Writer
	acks   int           // of head, for each variant
	floors []bool        // of head: with a floor, without
	span   time.Duration // of each measurement of a rate
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("postgres", flag.ContinueOnError)
	only := flags.String("only", ".", "regular expression: which experiments")
	acks := flags.Float64("n", 1e6, "acks of each variant of head")
	withFloor := flags.Bool("floor", false, "head with a floor only, since without one it becomes slow")
	span := flags.Duration("span", 3*time.Second, "length of each measurement of a rate")
	dir := flags.String("dir", "", "folder for the server's files; a temporary one by default")
	if err := flags.Parse(args); err != nil {
		return err
	}
	which, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp(*dir, "postgres-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	for _, x := range experiments() {
		if !which.MatchString(x.name) {
			continue
		}
		l := &lab{ctx: ctx, out: out, acks: int(math.Max(*acks, 1000)), span: *span, floors: []bool{true, false}}
		if *withFloor {
			l.floors = l.floors[:1]
		}
		if err := l.measure(x, folder); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
	}
	return nil
}

// measure runs an experiment on a server of its own.
func (l *lab) measure(x experiment, folder string) (err error) {
	dir := folder + "/" + x.name
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(folder, 0o755); err != nil { // the server's account goes through it
		return err
	}
	l.server, err = pgrig.Launch(dir, "shared_buffers=256MB", "max_wal_size=4GB", "shared_preload_libraries=pg_stat_statements", "track_io_timing=on", "max_connections=200")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.server.Kill(), os.RemoveAll(dir)) }()
	version, err := l.server.Do("create extension pg_stat_statements", "show server_version")
	if err != nil {
		return err
	}
	fmt.Fprintf(l.out, "\n## %s: %s\nPostgreSQL %s, %s\n\n", x.name, x.question, version, time.Now().UTC().Format(time.RFC3339))
	return x.run(l)
}

// connect returns a connection that ends with the lab's server.
func (l *lab) connect() (*pgx.Conn, error) { return pgx.Connect(l.ctx, l.server.URL("postgres")) }

// wal is how many bytes of WAL the server has written.
func wal(ctx context.Context, c *pgx.Conn) (n int64, err error) {
	err = c.QueryRow(ctx, "select (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&n)
	return n, err
}

// execAll carries out statements one by one.
func execAll(ctx context.Context, c *pgx.Conn, statements ...string) error {
	for _, s := range statements {
		if _, err := c.Exec(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}
