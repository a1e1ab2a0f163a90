// Package diskstore is the embedded store: messages in one directory, owned by one
// process, durable when Push returns, and nothing beside it.
//
//	store, err := diskstore.Open("punctual-data", nil)
//
// # Layout
//
// The directory holds a Pebble database, a claim log and two small files:
//
//	punctual-data/
//	    HOLDER            who has the directory open: process, host, since when
//	    LOCK              the lock itself (released by the kernel when the process dies)
//	    claims-000001.log who holds which lease; see claimlog.go
//	    *.log *.sst MANIFEST-* OPTIONS-* marker.*   Pebble's
//
// The keys of the database are drawn in keys.go, the record of a message in record.go.
// Both say what to do before changing them.
//
// # How it works
//
// The messages of a topic lie on disk in the order in which they fall due, bodies
// included, so that delivery reads them in sequence. The start of that order is also in
// memory (the near part of a timeline, timeline.go), loaded ahead in batches and
// bounded in bytes; what lies behind it is not. Leased messages are in memory too, without
// their bodies, each at the end of its lease.
//
// All changes pass one sequencer (commit.go): one transaction at a time reads what it
// needs, decides, and is applied to the database; the wait for its fsync happens
// outside, so that all transactions waiting at that moment share one. What a transaction
// takes away (a cancelled or acked message) leaves memory before it is applied; what it
// adds comes into memory only after its fsync, so a message becomes claimable
// only when it is durable.
//
// A claim does not pass the sequencer and waits for no fsync: it takes messages off the
// timeline in memory, counts their attempts, makes them leased, and appends who holds them
// to the claim log with one write, which outlives the process. A power cut may lose the end of the claim log: then a message
// is delivered once more, with an attempt that is counted twice as the same number.
//
// # When something breaks
//
// A failed write or fsync ends the store: the calls under way return
// ErrStoreFailed and ErrIndeterminate, later ones ErrStoreFailed, and nothing is retried
// (failure.go). Before the disk is full, pushes are refused with ErrNoSpace while
// acks and cancels pass (space.go). Damaged files are reported with ErrCorrupt when they
// are opened or read. Only the torn end of the newest log is dropped, and only when
// nothing in it was reported as stored: the claim log keeps the number of the last
// transaction that was (claimlog.go).
package diskstore
