// Package remotestore is the client of a Punctual server. Its Store calls the store behind the
// server over HTTP and has the same interfaces: Store, Inspector, Checker, storekit.Examiner,
// FinishedKeeper, storekit.Backuper, storekit.DurabilityReporter, storekit.SpaceReporter,
// storekit.ConsumerReporter, storekit.AbilityReporter, storekit.TopicNamer and
// storekit.ClockKeeper, and of package storekit Repeater. So Queue and Worker run on it unchanged.
// A method that the store behind the server does not have returns ErrUnsupported, except that
// Durability returns "" and Abilities returns none.
//
// A fault of the network is returned as a fault of the store:
//
//   - ErrUnreachable when no server could be reached, or those that answered could not carry the
//     call out for now. So it was not carried out.
//   - When the answer is lost for good: ErrIndeterminate for a call that changes something,
//     ErrUnreachable for one that only reads.
//
// Before it returns one of them, the Store sends the request again to each of its servers in turn,
// for Options.RetryFor. Every push, claim, settlement and amendment has a key, by which a server
// recognizes a copy of a request that it has carried out already. Servers over Redis share the
// answers to such requests there. Other servers keep them in memory, and lose them when they are
// started anew. A push or amendment whose answer such a server has lost is therefore not repeated:
// it ends with ErrIndeterminate. Claims and settlements are repeated, because leases and tokens
// make that safe. A change without a key, such as a purge, is not sent again once a server may have
// it.
//
// A claim waits at the server. One that is to wait for longer than the server allows is sent in
// several requests.
//
// The files: store.go opens and closes the Store; calls.go, inspect.go, abilities.go and backup.go
// have the methods that call a server. A request goes from one server to the next in failover.go,
// and is exchanged with one server in exchange.go over the connections of transport.go.
package remotestore
