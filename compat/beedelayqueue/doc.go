// Package BeeDelayQueue is the programming interface of the library BeeDelayQueue
// (github.com/godgoto/BeeDelayQueue) on Punctual's store in Redis. A program moves over by changing
// the path of one import:
//
//	import "github.com/punctualmq/punctual/compat/beedelayqueue"
//
// The name of the package is the original's, so it is not in lower case. So are the names that
// Go would spell otherwise (Id, Db) and those that are misspelt there: MassageListener,
// OnMassage and AddMassageListener are about messages.
//
// # What comes from the original
//
// Names, parameters and results are those of commit ebb1240d of the original, which its readme
// describes. There Push takes the time at which to deliver, and GetTimeUnix returns an error, too.
// Commit 8d9b568c, the last one, takes seconds from now instead, and its GetTimeUnix returns only
// the time. Push takes both, see there; a program written for that commit has to take a second
// result from GetTimeUnix.
//
// The behaviour is what the readme of the original promises, also where its code did something
// else; docs/beedelayqueue.md compares the two. Remove, Settle, Close, DelayMsg.Token and
// NewDelayQueueControllerOnStore are not in the original.
//
// # How it works
//
// Each topic is a topic of Punctual, and each message one of its messages. Whatever Punctual has,
// from the command line to a Worker, works on them. The time until a retry is the lease of a topic,
// the number of retries its MaxAttempts less one. Nothing renews a lease: a message that is not
// acknowledged within it is delivered again while it has retries left. One that has been given up
// is dead, and "punctual dead list --on DAY" shows those of a day.
//
// For each created topic with a listener one goroutine claims messages (consume, in listen.go), and
// each message has a goroutine that calls the listener. Close ends the claims and waits for all of
// these goroutines.
package BeeDelayQueue
