// Package diskstore is the embedded store: messages in one directory, which one process owns, with
// nothing beside it.
//
//	store, err := diskstore.Open("punctual-data", nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	queue := punctual.NewQueue(store, nil)
//
// Open makes a directory that is not there. A second process that opens it gets ErrLocked; package
// sharedstore lets the processes of one user share it.
//
// A push, a cancel and every other change returns when it is on disk; calls that wait at the same
// time share an fsync. There are three exceptions: a claim, an extension and an ack survive kill
// -9, but as a rule they wait for no fsync, so after a power cut a message may be delivered once
// more. An ack waits for its fsync all the same if its topic or message keeps or tells something of
// it, or if it has follow-ups. docs/durability.md has the table. The memory for messages is bounded
// by Options.MemoryBytes, however many messages wait.
//
// A failed write or fsync ends the store, because going on would mean guessing what the disk has.
// Only what a full disk refuses of the claim log does not. Changes that may have happened return
// ErrStoreFailed and ErrIndeterminate, all other calls but Examine ErrStoreFailed. Close the store,
// mend the disk, and open it again. Before the disk is full, pushes and follow-ups are refused with
// ErrNoSpace while other acks and cancels pass. A damaged database is ErrCorrupt; no message is
// skipped or rebuilt. A damaged claim log costs no message, but attempts, acks and leases, and the
// clock may start again some seconds earlier. So Open logs a warning, keeps a copy of the file, and
// goes on.
package diskstore

// What follows is for those who change the package.
//
// # Layout
//
// The directory holds a Pebble database, a claim log and three small files:
//
//	punctual-data/
//	    FORMAT-2          the format of everything here, in the name; see docs/format.md
//	    LOCK              locked while a process has the directory open
//	    OWNER-91c0a1…     the mark of who opened it last: process, host, since when; see package directory
//	    claims-000001.log who holds which lease; see package claimlog
//	    *.log *.sst MANIFEST-* OPTIONS-* marker.*   Pebble's
//	    claims-*.damaged  the copy of a damaged segment of the claim log, for people to look at
//	    COPY              in a backup until its first Open; see package directory
//	    BACKUP-91c0a1…/   while a copy of the store is made: second names (hard links) of most files, copies of the others
//
// The keys of the database are drawn in package database, the record of a message in package
// record. Both say what to do before changing them.
//
// # How it works
//
// The messages of a topic lie on disk in the order in which they fall due, bodies included, so that
// delivery reads them in sequence. The start of that order is also in memory (the window of a
// timeline, package memory). The window is loaded ahead in batches and bounded in bytes. Leased
// messages are in memory too, without their bodies, each at the end of its lease.
//
// All changes of the database pass one write lock (package writer): one transaction at a time reads
// what it needs, decides, and is applied. The wait for its fsync happens outside the lock, so that
// all transactions waiting at that moment share one. What a transaction takes away (a cancelled or
// acked message) leaves memory before the transaction is applied. What it adds is pending in memory
// until the fsync is done, so a message becomes claimable only when it is durable. Extensions, and
// acks that have no follow-ups and of which nothing is kept or told, change memory and the claim
// log alone, and need no write lock.
//
// A claim takes no write lock and waits for no fsync, unless it has to load messages from disk, to
// find them by their IDs, or to end some that must not be delivered any more. It reserves messages
// in memory and counts their attempts. It appends their leases to the claim log with one write,
// which outlives the process, and only then makes them leased in memory. A power cut may lose the
// end of the claim log. Then a message is delivered once more, and the new attempt has the number
// of the one that was lost.
//
// # When something breaks
//
// A failed write or fsync ends the store, except what a full disk refuses of the claim log: changes
// that may have happened return ErrStoreFailed and ErrIndeterminate, all other calls but Examine
// ErrStoreFailed, and nothing is retried (package failstop). Before the disk is full, pushes and
// follow-ups are refused with ErrNoSpace while other acks and cancels pass (package directory).
// Damaged files of the database are reported with ErrCorrupt when they are opened or read. Only the
// torn end of the database's newest log is dropped, and only when it has no transaction that was
// durable as far as the claim log knows (package claimlog). The unreadable end of a segment of the
// claim log is dropped too, with a warning when it is large or damaged; what is lost then are
// attempts, acks and leases, never messages. The clock may start again up to about 10 s earlier,
// and fewer transactions are known to have been durable, so that damage of the database's newest
// log may pass for its torn end.
//
// # Invariants
//
// What is true at every moment, beside the invariants in ARCHITECTURE.md:
//
//  1. What a transaction takes away leaves memory before the transaction is applied. What a
//     transaction adds is in memory as pending until the transaction is durable, and can be
//     claimed only then. So no message is claimable that a power cut could still take.
//  2. Claims that deliver, and calls of acks and extensions alone, change memory and the claim log
//     without the write lock. So a transaction that acts on a message first detaches the message
//     from memory.Index, and learns in that step whether the message was leased or acked
//     meanwhile. A settlement with follow-ups is decided as a whole first. Then one step detaches
//     all that the settlement takes away, and finds out whether a message by which it was decided
//     was acked meanwhile (follow.go). An ack is a transaction when it has follow-ups, when the ID
//     is to be remembered, or when the topic keeps finished records or tells of acks.
//  3. No call reports success once the database has failed to change a file. The store fails
//     first; the goroutine that met the failure stops there, so that the database never learns of
//     the failure (package failstop).
//  4. The claim log never knows a transaction as durable before it was. A database that does not
//     know a transaction that the claim log knows has been damaged, and is refused.
//  5. A lease is made only when it is in the claim log, with its attempt counted. Until then nobody
//     else can claim the message. A new segment of the claim log has every lease that there is or
//     that is being written. Old segments are deleted only when all transactions that began before
//     the new one are durable.
//  6. Only the owner of the directory reports success, and only while the owner's path leads to the
//     directory. After each fsync and each write of the claim log the store looks for its own mark
//     (package directory; decision 15).
//  7. No call answers before all that it saw is durable, also when the call changed nothing.
//     Transactions become durable in their order, so one number stands for all of them
//     (internal/writer/durable.go).
//  8. No transaction holds more than 8 MiB and one item, which with its follow-ups has 8 MiB more
//     at most, and none is left half made. A panic or a failure while a transaction is filled ends
//     the store.
//  9. What memory holds of a message is charged to exactly one count, over all topics. When the
//     counts exceed Options.MemoryBytes, the ends of timelines leave memory, first those of the
//     topics that hold most. Each topic may hold as much as any other.
//
// # The way of a message
//
//   - Push: Store.Push (push.go) opens a transaction with Writer.Some (internal/writer/writer.go).
//     The function decidePush (push.go) decides, and Tx.Insert (internal/writer/tx.go) adds the
//     message. Tx.Commit (internal/writer/tx.go) waits for Writer.run (internal/writer/writer.go),
//     which applies the transaction, syncs, and then makes the message claimable with Index.Publish
//     (internal/memory/pending.go).
//   - Claim: Store.Claim (claim.go) has attempt.run (claim.go) go through the topics.
//     attempt.reserveFrom (claim.go) takes due messages aside with Index.Reserve
//     (internal/memory/reserve.go), Store.countAttempt (claim.go) counts their attempts, and
//     Index.Grant (internal/memory/reserve.go) says until when the leases last. Store.deliver
//     (claim.go) appends the leases to the claim log, and Index.Confirm
//     (internal/memory/reserve.go) makes them.
//   - Ack: Store.Settle (settle.go) has Index.Settle (internal/memory/settle.go) compare the token
//     and note the ack, so that nobody can claim the message. Store.logChanges (settle.go) writes
//     the ack with Log.AppendAcked (internal/claimlog/claimlog.go), and the call returns. If the
//     log cannot take the ack, Store.ensureAcks (acked.go) has the message deleted before that.
//     Otherwise Writer.DeleteAcked (internal/writer/tx.go) deletes the message later, with others.
//
// # Goroutines
//
// Open begins the loader (load.go), maintenance (maintenance.go), the reclaimer (compact.go) and
// the sweep of events (storekit.SweepEventsUntil). Work that the disk may hold up has a goroutine
// of its own, so that its caller can stop waiting: a commit (Writer.run), a change of the claim log
// (State.Do of package failstop), a load of a claim (attempt.aside), the messages that a claim must
// not deliver (endings.run), a copy of the store (Store.checkpoint), the comparison of levels by
// Check (checker.tables). Close ends all of these and waits for them.
//
// # Locks
//
// The locks are taken in this order: archiving, clock step (stepping.mu), forgetting, Log.replacing
// of the claim log, the write lock (Writer), Log.mu, step.mu and endings.mu, Index.mu, and then all
// others, inside which no further lock is taken. The write lock is a token that one transaction
// holds; memory.Index.mu guards every message in memory.
