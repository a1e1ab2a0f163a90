// Package diskstore is the embedded store: messages in one directory, which one process owns, with nothing beside it.
//
//	store, err := diskstore.Open("punctual-data", nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	queue := punctual.NewQueue(store, nil)
//
// Open makes a directory that is not there. A second process that opens it gets ErrLocked; package sharedstore lets the processes
// of one user share it.
//
// A push, a cancel and every other change returns when it is on disk; calls that wait at the same time share an fsync. There are
// three exceptions: a claim, an extension and an ack survive kill -9, but as a rule they wait for no fsync, so after a power cut
// a message may be delivered once more. An ack waits for its fsync all the same if its topic or message keeps or tells something
// of it, or if it has follow-ups. docs/durability.md has the table. The memory for messages is bounded by Options.MemoryBytes,
// however many messages wait.
//
// A failed write or fsync ends the store, because going on would mean guessing what the disk has. Only what a full disk refuses
// of the claim log does not. Changes that may have happened return ErrStoreFailed and ErrIndeterminate, all other calls but
// Examine ErrStoreFailed. Close the store, mend the disk, and open it again. Before the disk is full, pushes and follow-ups are
// refused with ErrNoSpace while other acks and cancels pass. A damaged database is ErrCorrupt; no message is skipped or rebuilt.
// A damaged claim log costs no message, but attempts, acks and leases, and the clock may start again some seconds earlier. So Open
// logs a warning, keeps a copy of the file, and goes on.
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
// The keys of the database are drawn in package database, the record of a message in package record.
// Both say what to do before changing them.
//
// # How it works
//
// The messages of a topic lie on disk in the order in which they fall due, bodies
// included, so that delivery reads them in sequence. The start of that order is also in memory (the
// window of a timeline, package memory). The window is loaded ahead in batches and bounded in bytes. Leased
// messages are in memory too, without their bodies, each at the end of its lease.
//
// All changes of the database pass one write lock (package writer): one transaction at a time reads what it needs, decides, and
// is applied. The wait for its fsync happens outside the lock, so that all transactions waiting at that moment share
// one. What a transaction takes away (a cancelled or acked message) leaves memory before the transaction is applied. What it adds is
// pending in memory until the fsync is done, so a message becomes claimable only when it is durable. Extensions, and acks that have
// no follow-ups and of which nothing is kept or told, change memory and the claim log alone, and need no write lock.
//
// A claim takes no write lock and waits for no fsync, unless it has to load messages from disk or to end some that must not be
// delivered any more. It reserves messages in memory and counts their
// attempts. It appends their leases to the claim log with one write, which outlives the process, and only then
// makes them leased in memory. A power cut may lose the end of the claim log. Then a message is delivered once more, and
// the new attempt has the number of the one that was lost.
//
// # When something breaks
//
// A failed write or fsync ends the store, except what a full disk refuses of the claim log: changes that may have happened return
// ErrStoreFailed and ErrIndeterminate, all other calls but Examine ErrStoreFailed, and nothing is retried (package failstop).
// Before the disk is full, pushes and follow-ups are refused with ErrNoSpace while other acks and cancels pass (package
// directory). Damaged files of the database are reported with ErrCorrupt when they are opened or read. Only the torn end of the
// database's newest log is dropped, and only when it has no transaction that was durable as far as the claim log knows (package
// claimlog). The unreadable end of a segment of the claim log is dropped too, with a warning when it is large or damaged; what is
// lost then are attempts, acks and leases, never messages. The clock may start again up to about 10 s earlier, and fewer transactions
// are known to have been durable, so that damage of the database's newest log may pass for its torn end.
