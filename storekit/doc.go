// Package storekit has functions for the authors of a [punctual.Store], so that all stores round,
// check and record alike: times in whole milliseconds, checks of arguments, settings and retry
// delays, histories of failures, new IDs, clocks, and calls that may be sent again. optional.go has
// what a store may be beside a punctual.Store: one that tells what it can do, that can be checked,
// examined, surveyed or copied. Package storekit/lifecycle decides what becomes of a message, and
// package storetest is the suite that a store must pass.
//
// All functions are safe for concurrent use.
package storekit
