// Package pgstore keeps messages in PostgreSQL, where several machines share the work: version 13 or newer, alone or behind a
// pooler.
//
//	pool, err := pgxpool.New(ctx, "postgres://localhost/shop")
//	if err != nil {
//		return err
//	}
//	store, err := pgstore.Open(ctx, pool, &pgstore.Options{Migrate: true})
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	queue := punctual.NewQueue(store, nil)
//
// The pool stays the caller's: the store uses it as it is and never closes it unless Options.OwnPool says so. Options.Migrate
// makes the tables, as "punctual migrate up" does.
//
// PushTx, CancelTx, RescheduleTx and SettleTx work in a transaction of the caller's, of pgx or database/sql: the message exists
// exactly if the row does that it belongs to. docs/postgres.md shows it.
//
// A change returns when its transaction is committed, as durably as the server's settings say (Durability). An ack may be lost
// when the server crashes within three times its wal_writer_delay, 0.6 s as shipped, unless Options.DurableAcks; then its message is delivered once more. When the answer to a
// commit is lost, the error is ErrIndeterminate.
package pgstore

// What follows is for those who change the package.
//
// # Layout
//
// A message is one row of one table, with the time at which it next needs attention. That is its due time, or the
// end of its lease. One index orders live messages by topic and that time, the primary key finds all by topic and
// ID. docs/format-postgres.md draws the tables.
//
// # How it works
//
// Each statement is a file in sql, which says what it locks. Pushes, acks and claims are one message to the server each,
// which is one transaction (push.go, settle.go, claim.go). All other changes lock their messages, decide in Go what becomes
// of each, and write that together with the commit (change.go). A statement that may wait for locks of several messages
// takes them in the order of topic and ID. Claims, and settlements without follow-ups, skip what is locked. So nobody waits
// in a circle. All other changes wait 200 ms for what others hold, if the call has several items; then they are carried out
// again in halves, so that only what is held waits further (held.go). A transaction names at most 1000 messages; longer
// calls are several (parts.go).
//
// A token is the epoch of the store, the number of the claim and some random bits. The epoch rises when the server's timeline
// changes, so no token is given twice when a standby takes over without the last claims (claim.sql).
//
// # Waiting
//
// A claim that waits sleeps until a time that was read ahead, or until this process pushes something earlier (wait.go). Once
// a second a poll reads the next due times of all topics that are waited for. Processes notify each other (NOTIFY) only of what
// is due within 2 s, after the commit, many topics at a time (notify.go). Notifications may be lost.
//
// A claim that waits, and a poll, begin at a scan start, before which this process knows of no message that a claim can find. So they
// skip the index entries of finished messages, which stay as long as a snapshot needs them. Notices set the scan start back. So does
// the end of a transaction that was open for longer than a second, which polls see in pg_locks. A poll that reads the whole topic finds
// the rest. Each poll does so while that takes at most 100 ms; if it takes longer, such polls rest so that they take a tenth of the time.
//
// A connection may hang. When a claim reads for longer than 250 ms the next one is woken, and a poll does not wait for the one before.
//
// # Connections
//
// Calls share the pool. Handlers that each hold a transaction may have all of it. A call that finds it full takes one of up to
// three connections of the store's own (reserve.go). So do the topics that a caller's transaction needs and nobody has made yet
// (tx.go).
//
// Behind a pooler that gives each transaction another connection nothing else changes: the store keeps no state in a session. One that
// carries no prepared statements, such as pgbouncer before 1.21, needs default_query_exec_mode=cache_describe in the pool's URL.
//
// # When something breaks
//
// What the server has rolled back, because of a deadlock for instance, is tried again a few times. What it has refused is
// a definite error. When the answer to a commit is lost the error is ErrIndeterminate (run.go, errors.go).
//
// Open checks the version and the durability of the server, and the store checks them again every 30 s (durability.go). Each
// transaction that changes something raises synchronous_commit for itself where the session has less than it needs
// (clock.sql). An ack turns it off for itself, unless an ID is to be remembered or Options.DurableAcks is set (ack.sql,
// ack_keep.sql). Answers that say that something is gone wait for the disk (durable.sql).
