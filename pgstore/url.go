package pgstore

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// OpenURL opens a store with a pool of its own, which Close closes. The URL is one of PostgreSQL,
//
//	postgres://[user[:password]@]host[:port][,host[:port]...][/database]
//
// A ? may be followed by what package pgxpool allows, and by these options, separated by &:
//
//	schema=NAME          Options.Schema
//	durability=CLASS     Options.Durability: fsync, replicated or volatile
//	acks=durable         Options.DurableAcks
//	password-file=FILE   the password is the first line of this file, and so in no list of processes
//
// The URL's options win over those in o. A relative FILE is resolved against the working directory.
// With several hosts the one that takes changes is chosen, unless target_session_attrs says
// otherwise.
//
// Errors never repeat the password.
func OpenURL(ctx context.Context, text string, o *Options) (*Store, error) {
	pool, opt, err := connectURL(ctx, text, o)
	if err != nil {
		return nil, err
	}
	s, err := Open(ctx, pool, opt)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

// ExamineURL is Examine for a URL as OpenURL takes it, with a pool that it closes again.
func ExamineURL(ctx context.Context, text string, o *Options) ([]storekit.Finding, error) {
	pool, opt, err := connectURL(ctx, text, o)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	return Examine(ctx, pool, opt)
}

// MigrateURL is Migrate for a URL as OpenURL takes it, with a pool that it closes again.
func MigrateURL(ctx context.Context, text string, o *Options) error {
	pool, opt, err := connectURL(ctx, text, o)
	if err != nil {
		return err
	}
	defer pool.Close()
	return Migrate(ctx, pool, opt)
}

// MigrationStatusURL is MigrationStatus for a URL as OpenURL takes it, with a pool that it closes
// again.
func MigrationStatusURL(ctx context.Context, text string, o *Options) (Version, error) {
	pool, opt, err := connectURL(ctx, text, o)
	if err != nil {
		return Version{}, err
	}
	defer pool.Close()
	return MigrationStatus(ctx, pool, opt)
}

// connectURL makes the pool and the options that a URL asks for. It waits for no connection.
func connectURL(ctx context.Context, text string, o *Options) (*pgxpool.Pool, *Options, error) {
	opt := Options{}
	if o != nil {
		opt = *o
	}
	opt.OwnPool = true
	config, err := parseURL(text, &opt)
	if err != nil {
		return nil, nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, badURL("%v", err)
	}
	return pool, &opt, nil
}

func badURL(format string, args ...any) error {
	return fmt.Errorf("postgres URL: %s: use postgres://host:port/database: %w", fmt.Sprintf(format, args...), punctual.ErrInvalid)
}

// parseURL takes this store's own options out of a URL, and leaves the rest to the driver. Package
// net/url reads only what follows the ?, because it knows no lists of hosts.
func parseURL(text string, o *Options) (*pgxpool.Config, error) {
	scheme, _, ok := strings.Cut(text, "://")
	if !ok || scheme != "postgres" && scheme != "postgresql" {
		return nil, badURL("it does not begin with postgres://")
	}
	place, query, _ := strings.Cut(text, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, badURL("what follows the ? cannot be read")
	}
	password, err := ownOptions(values, o)
	if err != nil {
		return nil, err
	}
	if strings.Contains(place, ",") && !values.Has("target_session_attrs") {
		values.Set("target_session_attrs", "read-write")
	}
	config, err := pgxpool.ParseConfig(place + "?" + values.Encode())
	if err != nil { // err is left out: it says what was wrong with the password hidden, but with the user
		return nil, badURL("the driver cannot read it")
	}
	if password != "" {
		config.ConnConfig.Password = password
	}
	return config, nil
}

// ownOptions moves this store's options from values to o, and returns the password of the
// password-file, if there is one.
func ownOptions(values url.Values, o *Options) (password string, err error) {
	own := []string{"schema", "durability", "acks", "password-file"}
	for _, name := range own {
		if len(values[name]) > 1 {
			return "", badURL("option %q is given twice", name)
		}
	}
	if values.Has("schema") {
		o.Schema = values.Get("schema")
	}
	if values.Has("durability") {
		o.Durability = punctual.Durability(values.Get("durability"))
		if !slices.Contains([]punctual.Durability{punctual.Fsync, punctual.Replicated, punctual.Volatile}, o.Durability) {
			return "", badURL("unknown durability %q; use fsync, replicated or volatile", o.Durability)
		}
	}
	if values.Has("acks") {
		if values.Get("acks") != "durable" {
			return "", badURL("unknown acks %q; use durable, or leave it out", values.Get("acks"))
		}
		o.DurableAcks = true
	}
	if file := values.Get("password-file"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", badURL("password-file: %v", err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		if password = strings.TrimSuffix(line, "\r"); password == "" {
			return "", badURL("the first line of the password-file %s is empty", file)
		}
	}
	for _, name := range own {
		values.Del(name)
	}
	return password, nil
}
