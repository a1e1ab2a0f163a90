// Package redisstore keeps messages in Redis, where several machines share the work: a single
// server, one behind Sentinel, or a Redis Cluster, of version 6.2 or newer, or Valkey.
// docs/durability.md says which versions were tested.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	store, err := redisstore.Open(ctx, client, nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	queue := punctual.NewQueue(store, nil)
//
// The client stays the caller's: the store uses it as it is and never closes it unless
// Options.OwnClient says so. OpenURL makes one of a URL. There is nothing to install on the server,
// and all keys begin with Options.Prefix.
//
// What a push promises depends on the server's settings: Durability says what was found, and
// Options.Durability has Open refuse a server that gives less. A server that may evict messages is
// refused in any case. Examine says what to set. While a server gives less than was asked for,
// pushes are refused with ErrDurability and all other calls go on. A server that comes back empty
// ends the store with ErrStoreFailed.
//
// An answer that is lost is asked for again without doing anything twice. When no copy of a call
// that changes something gets an answer, the error is ErrIndeterminate: repeat the call with the
// same ID.
package redisstore

// What follows is for those who change the package.
//
// # Layout
//
// A topic has one or more partitions, among which messages are divided by a hash of the stem of
// their ID (internal/topics, routing.go). The keys of a partition share a hash tag. Sorted sets
// hold the waiting messages by due time, the leased by the end of their lease, and the dead by
// time of death. Hashes hold the messages themselves. docs/format-redis.md draws them.
//
// # How it works
//
// Each change of a message is made in one Lua script (internal/script/lua/*.lua, which say what
// they are given and what they answer). A script runs alone, reads the server's clock once, reads
// and checks all that it needs, and then writes. A call of more than 200 messages is several
// scripts, each atomic (internal/route/chunks.go).
//
// A waiting Claim sleeps until the next message of its topics is due, as far as is known, or until
// a notification comes. A script that makes a message the first of its partition publishes a
// notification if the message is due within 2 s. All waiting claims of a Store share what is known
// of each partition, and one subscription (wait.go, internal/wait, internal/notify). Because a
// notification may get lost, the next due times of each partition that a claim waits for are read
// once a second, those of many partitions in one pipeline. A claim returns the first messages that
// come.
//
// Pushes, settlements, amendments and claims that wait ask the nodes of a cluster side by side.
// When a node has not answered for a second, small reads test it, these calls send it nothing until
// it answers again, and those that ask other nodes as well do not wait for it
// (internal/wait/nodes.go, internal/route/chunks.go).
//
// # When something breaks
//
// When the answer to a change is lost, the call is sent again, and a record keeps it from being
// carried out twice. A copy that arrives after the deadline of the call changes no message
// (internal/route/call.go). When no copy gets an answer the error is ErrIndeterminate. A command
// that Redis refused is tried again a few times when that may help, and then fails with a definite
// error (internal/errkind has the table).
//
// A hash of the store's own proves that the data set is still the one that was opened. When the
// hash has vanished, after a FLUSHALL or because a server came back empty, the store stops with
// ErrStoreFailed, so that it does not go on as if nothing had been stored (internal/health).
//
// # What is asked of the servers
//
// Open checks version, eviction, persistence, clocks and the user's rights, and the store checks
// them again every 30 s. While a server may lose more than Options.Durability allows, pushes are
// refused (internal/health). With Durability punctual.Replicated a push, an amendment, a purge, a
// deletion or a change of settings returns when replicas have it on disk
// (internal/route/confirm.go). Examine and ExamineURL report all that can be found out, with
// remedies.
//
// # Goroutines
//
// Each belongs to the part that begins it, and Close waits for all. Open begins the watch of the
// servers (Health.watch: the clocks each second, all else every 30 s) and the sweep of events. The
// first claim that waits begins the poller (Waiter.poll) and the listener (Listener.listen). Each
// question to a partition has a goroutine (Waiter.ask, Waiter.pollDue), so that a node that is late
// keeps nobody else waiting: after half a second others ask the same partition. Further ones test a
// node that does not answer (Nodes.test), read a topic's settings anew (waits.renewSoon), move a
// partition's messages over a step of the clock (Router.Move), and do what one node does of a call
// (Router.FanOut).
//
// # Locks
//
// wait.Waiter.mu guards the topics that are waited for. wait.Nodes.mu, notify.Listener.mu and
// clock.Clock.mu are taken inside it, and wait.Nodes.mu also inside waits.mu. Inside all other
// locks none is taken.
