// Package pgstore keeps messages in PostgreSQL, where several machines share the work: version 13
// or newer, alone or behind a pooler.
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
// The pool stays the caller's: the store uses it as it is and never closes it unless
// Options.OwnPool says so. Options.Migrate makes the tables, as "punctual migrate up" does.
//
// PushTx, CancelTx, RescheduleTx and SettleTx work in a transaction of the caller's, of pgx or
// database/sql: the message exists exactly if the row does that it belongs to. docs/postgres.md
// shows how.
//
// A change returns when its transaction is committed, as durably as Store.Durability says. When the
// answer to a commit is lost, the error is ErrIndeterminate. Most acks do not wait for the disk: a
// crash of the server may take back those of the last moments, and their messages are delivered
// once more. The moments are three times wal_writer_delay, 0.6 s as shipped. Acks wait as well with
// Options.DurableAcks, where an ID is to be remembered, and where they take a transaction of
// several steps, as with follow-ups.
package pgstore

// What follows is for those who change the package.
//
// # Layout
//
// A message is one row of one table. While the message is live, its row has the time at which it
// next needs attention: the due time, or the end of the lease. One index orders live messages by
// topic and that time, and the primary key finds all by topic and ID. docs/format-postgres.md draws
// the tables.
//
// # How it works
//
// The statements on messages and topics are files in sql, each of which begins with what it does
// and what it locks. In the fast path a push, an ack and a claim of one topic are one message to
// the server each, which is one transaction (push.go, settle.go, claim.go). Amendments, other
// settlements, and pushes of an ID that is in use lock their messages, decide in Go what becomes of
// each, and write that in the same transaction (change.go). A statement that may wait for locks of
// several messages takes them in the order of topic and ID. Claims, and calls of Settle without
// follow-ups, skip what is locked. So transactions of the store's own do not wait for each other's
// messages in a circle.
//
// Pushes, amendments and settlements with follow-ups wait for what others hold: at first for 200
// ms, if the call has several items. Then the items are carried out again in halves, so that only
// what is held waits further (held.go). A call with many items is several transactions: none takes
// a further item when its items name 1000 messages, or would have more than 2 MiB of bodies with it
// (parts.go).
//
// Claims of a topic with MaxLeases or MaxRate take effect one after the other: they hold a lock
// (claim_lock.sql), and count the leases behind it. Nothing else that begins or ends a lease does.
// Claims of other topics know nothing of this, and lease nothing where a topic is bounded after
// all. Whoever gives a topic its first bound waits for such claims that are under way
// (topicSettings.beginBounds). Where a bound has stopped a claim that waits, only notice of room
// wakes it, or the time at which the rate allows a lease or a lease runs out (waits.notice).
//
// Claims of a topic with keys hold that lock, too, and they alone decide which message of a key
// comes next. Whoever else changes a message of a key only adds a row to the table key, from which
// claims learn at which keys to look and when (claim.sql, look.sql; docs/format-postgres.md). So
// pushes and acks of one key do not wait for each other, and no change is missed whatever commits
// meanwhile. The sweep looks for keys at which no claim would look, which would be an error in the
// program.
//
// A token is the epoch of the store, the number of the claim and some random bits. The epoch rises
// when the server or its timeline changes, so that no token is given twice when a standby takes
// over without the last claims (epoch.go, claim.sql).
//
// # Parts
//
// Store has the methods of the contract. They check what they are given, and hand it to a part:
//
//   - database carries statements to the server, and knows the clock and the epoch (database.go).
//   - topicSettings makes topics and changes them (settings.go).
//   - claims lease messages, and end those that must not be delivered (claim.go).
//   - waits has the claims that wait (wait.go, notify.go).
//   - inspector reads for people (inspect.go, finished.go, survey.go).
//   - remover removes (purge.go, sweep.go).
//   - stepping steps the clock back (clock_step.go).
//   - guarantee knows how durable the server is (durability.go).
//   - migrator brings the tables up to date (migrate.go).
//
// A pushing, a settling and an amending are each a call under way.
//
// # Waiting
//
// A claim that waits sleeps until a time that was read ahead, or until there is notice of something
// earlier: this process has stored it, or another one has notified this process of it (wait.go).
// Once a second a poll reads the next due times of all topics that are waited for. Processes notify
// each other (NOTIFY) only of what is due within 2 s, after the commit, many topics at a time
// (notify.go). Notifications may be lost.
//
// A claim that waits, and a poll, begin at a scan start, before which this process knows of no
// message that a claim can find. So they skip the index entries of finished messages, which stay as
// long as a snapshot needs them. A claim without a wait does so, too, while polls go on, and reads
// the whole topic only if that does not fill it. Notice of something earlier sets the scan start
// back. So does the end of a transaction that more than one poll has seen in pg_locks, because it
// was open for longer than a second. A whole scan, which is a poll that reads the topics from their
// beginning, finds the rest. Each poll is one while whole scans take at most 100 ms. Slower ones
// rest, so that they take a tenth of the time, or half of it behind such a transaction.
//
// A connection may hang. When a claim reads for longer than 250 ms the next one is woken. A poll
// does not wait for the one before, until four are under way.
//
// # Connections
//
// Calls share the pool. Handlers that each hold a transaction may have all of it. A call that finds
// the pool full takes one of up to three connections of the store's own, unless it reads all
// messages (reserve.go). A topic that a caller's transaction needs and nobody has made yet is made,
// if possible, on another connection, which is found in the same way (tx.go).
//
// Notifications need a session of their own; apart from that the store keeps no state in a session.
// So behind a pooler that gives each transaction another connection only notifications are missing.
// A pooler that carries no prepared statements, such as pgbouncer before 1.21, needs
// default_query_exec_mode=cache_describe in the pool's URL.
//
// # When something breaks
//
// What the server has rolled back, because of a deadlock for instance, is tried again, ten times in
// all at most. What the server has refused is a definite error. When the answer to a commit is lost
// the error is ErrIndeterminate (database.go, errors.go).
//
// Open checks the version and the durability of the server, and the store checks them again every
// 30 s (durability.go). A transaction that changes messages or settings for a call raises
// synchronous_commit for itself where the session has less than the store needs (clock.sql).
// ack.sql turns it off for itself, unless an ID is to be remembered or Options.DurableAcks is set.
// Answers that say that something is gone wait for the disk, and so do lists, statistics, purges
// and checks (durable.sql).
//
// # Goroutines
//
// Open begins the watch of the server (Store.watch: each second the clock and which store it is,
// every 30 s the server's settings), the sweep (Store.sweeps: every 30 s what was kept long
// enough), the sweep of events, the one that sends notifications (notifier.send), and, unless a
// pooler is in between, the one that receives them (notifier.listen). The first claim that waits
// begins the poller (waits.poll), which has up to four others read times. Close ends all and waits
// for them.
//
// # Locks
//
// waits.mu guards the topics that are waited for, and is taken before the other locks of the
// package. Which topics tell of acks, are bounded or have keys (knownTopics) is read without a
// lock.
