// Package redisstore keeps messages in Redis, where several machines share the work. It takes a
// single server, one behind Sentinel, or a Redis Cluster, of version 6.2 or newer, or Valkey.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	store, err := redisstore.Open(ctx, client, nil)
//
// The client stays the caller's: the store uses it as it is and never closes it unless
// Options.OwnClient says so.
//
// # Layout
//
// A topic has one or more partitions, among which messages are divided by a hash of their ID
// (internal/topics, routing.go). The keys of a partition share a hash tag. Sorted sets hold the
// waiting messages by due time, the leased by the end of their lease, and the dead. Hashes hold
// the messages themselves. docs/format-redis.md draws them.
//
// # How it works
//
// Every change is one Lua script (internal/script/lua/*.lua, which say what they are given and
// what they answer). A script runs alone, reads the server's clock once, reads and checks all
// that it needs, and then writes. No script takes more than 200 messages; longer calls
// are several scripts, each atomic (internal/route/chunks.go).
//
// A waiting Claim sleeps until the time that the server has told, or until a notification comes. A
// script that puts a message in front of all others publishes one, if it is due within 2 s. All waiting claims of a
// Store share what is known of each partition and one subscription (wait.go, internal/wait, internal/notify). A notification
// may get lost; so the heads of each partition that is waited for are read once a second, many in one pipeline. A claim
// returns the first messages that come.
//
// Nodes of a cluster are asked side by side. One that has not answered for a second is left alone until it does, and holds
// up nothing of the others (internal/wait/nodes.go, internal/route/chunks.go).
//
// # When something breaks
//
// When the answer to a call is lost, it is sent again, and a record keeps it from being carried
// out twice. A copy that comes behind the deadline of the call changes nothing (internal/route/call.go). The error
// is ErrIndeterminate when no copy gets an answer. What Redis refused to run is tried again a few times when that
// may help, and then a definite error (internal/errkind has the table).
//
// A hash of the store's own proves that the data set is still the one that was opened. When it has vanished, by a
// FLUSHALL or a server that came back empty, the store stops with ErrStoreFailed. It does not go on as if nothing had
// been stored (internal/health).
//
// # What is asked of the servers
//
// Open looks at version, eviction, persistence, clocks and the user's rights, and so does the
// store again every 30 s. A server that may lose more than Options.Durability allows takes no
// pushes until it is mended (internal/health). With Durability
// punctual.Replicated each change that promises something waits until replicas have it
// on disk (internal/route/confirm.go). Examine and ExamineURL tell all that can be seen, with what to do about it.
package redisstore
