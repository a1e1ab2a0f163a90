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
// of a machine share it.
//
// A push, a cancel and every other change returns when it is on disk; calls that wait at the same time share an fsync. An
// ack waits for no fsync, unless its topic or message keeps or tells something of it or it has follow-ups: it survives kill
// -9, and a power cut may have the message delivered once more. docs/durability.md has the table. Memory is bounded by
// Options.MemoryBytes, however many messages wait.
//
// A failed write or fsync ends the store, because going on would mean guessing what the disk has: calls under way return
// ErrStoreFailed and ErrIndeterminate, later ones ErrStoreFailed. Close the store, mend the disk, and open it again. Before the
// disk is full, pushes are refused with ErrNoSpace while acks and cancels pass. Damaged files are ErrCorrupt; nothing is skipped
// or rebuilt.
package diskstore

// What follows is for those who change the package.
//
// # Layout
//
// The directory holds a Pebble database, a claim log and three small files:
//
//	punctual-data/
//	    FORMAT-1          the format of everything here, in the name; see docs/format.md
//	    LOCK              locked while a process has the directory open
//	    OWNER-91c0a1…     the mark of who opened it last: process, host, since when; see package directory
//	    claims-000001.log who holds which lease; see package claimlog
//	    *.log *.sst MANIFEST-* OPTIONS-* marker.*   Pebble's
//	    BACKUP-91c0a1…/   second names of Pebble's files, while a copy of the store is made
//
// The keys of the database are drawn in package database, the record of a message in package record.
// Both say what to do before changing them.
//
// # How it works
//
// The messages of a topic lie on disk in the order in which they fall due, bodies
// included, so that delivery reads them in sequence. The start of that order is also in memory (the
// window of a timeline, package memory). It is loaded ahead in batches and bounded in bytes. Leased
// messages are in memory too, without their bodies, each at the end of its lease.
//
// All changes on disk pass one write lock (package writer): one transaction at a time reads what it needs, decides, and is
// applied to the database. The wait for its fsync happens outside, so that all transactions waiting at that moment share
// one. What a transaction takes away (a cancelled or acked message) leaves memory before it is applied. What it adds comes
// into memory only after its fsync, so a message becomes claimable only when it is durable. Extensions, and acks of which
// nothing is kept or told, change memory and the claim log alone, and need no write lock.
//
// A claim does not pass the write lock and waits for no fsync. It reserves messages in memory and counts their
// attempts. It appends their leases to the claim log with one write, which outlives the process, and only then
// makes them leased in memory. A power cut may lose the end of the claim log. Then a message is delivered once more, with an
// attempt that is counted twice as the same number.
//
// # When something breaks
//
// A failed write or fsync ends the store: the calls under way return
// ErrStoreFailed and ErrIndeterminate, later ones ErrStoreFailed, and nothing is retried
// (package failstop). Before the disk is full, pushes are refused with ErrNoSpace while
// acks and cancels pass (package directory). Damaged files are reported with ErrCorrupt when they
// are opened or read. Only the torn end of the newest log is dropped, and only when
// nothing in it was reported as stored. The claim log keeps the number of the last
// transaction that was (package claimlog).
