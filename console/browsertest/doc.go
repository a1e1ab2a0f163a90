// Package browsertest opens the console's pages in a real browser. It is a module of its own. So neither the driver of
// the browser nor its protocol enters the go.mod of those who import Punctual. "make browser" runs it.
package browsertest
