// Package storekit holds what only the author of a [punctual.Store] needs, so that all stores round, check and
// record alike. It has times in whole milliseconds, checks of what a call is given, settings and the delays that
// follow from them. It also has histories, new IDs, clocks, and calls that may be sent again. Package storetest is the
// suite that a store must pass.
//
// All functions are safe for concurrent use.
package storekit
