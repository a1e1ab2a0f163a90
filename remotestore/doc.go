// Package remotestore is a store that a Punctual server holds. It is the same Store, Inspector, Checker and Examiner
// over HTTP, so Queue and Worker run on it unchanged.
//
// A network fault is a fault of the store, and told as one:
//
//   - No server could be reached: ErrUnreachable. The call was never sent.
//   - The answer is lost for good: ErrIndeterminate for what changes something, ErrUnreachable for what only reads.
//
// Before it comes to that the store asks again, for Options.RetryFor, at each of its servers in turn. Every push,
// claim, settlement and amendment has a key by which the server knows a copy, so that it is carried out once. A server
// that keeps those answers in its memory and has been started anew since cannot know. So ErrIndeterminate is the
// answer to what was sent to the old one. Claims and settlements are sent anew, because a lease and a token make
// that safe.
//
// Claims wait at the server, in parts when they wait for longer than it allows.
package remotestore
