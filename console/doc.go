// Package console shows a store to people: pages over any punctual.Store, as an http.Handler that a
// Go program mounts beside its own.
//
//	c, err := console.New(store, &console.Options{Prefix: "/queues"})
//	mux.Handle("/queues/", c)
//
// A request passes these steps, each of which may refuse it, in Console.ServeHTTP:
//
//	route ─▶ origin ─▶ authenticate ─▶ authorize ─▶ form ─▶ store ─▶ page
//
// Between authorize and form it is refused if its route needs an Inspector and the store is none.
//
// The table of routes (routes.go) says for each route which access.Action on which topic it needs.
// A route without an action is refused to everybody, unless the table marks it as public or for any
// principal. A page is a struct with what the page shows and a template named after the struct
// (topicsPage and topics.html). The console makes the page anew for each request, from a bounded
// number of calls of the store. All forms work without the script, which renews what is shown,
// previews a schedule while its form is filled in, and handles keys. Bulk changes run in goroutines
// of their own and may outlast their request (bulkjobs.go).
package console
