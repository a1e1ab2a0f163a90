// Package browsertest has tests that open the console's pages in a real browser. It is a module of
// its own, so that neither the driver of the browser nor its protocol enters the go.mod of those
// who import Punctual. "make browser" runs the tests.
package browsertest
