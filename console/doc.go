// Package console shows a store to people: pages over any punctual.Store, as an http.Handler that a Go program mounts beside its own.
//
//	c, err := console.New(store, &console.Options{Prefix: "/queues"})
//	mux.Handle("/queues/", c)
//
// A request passes these steps, each of which may refuse it, in Console.ServeHTTP:
//
//	route ─▶ origin and form ─▶ who ─▶ may he ─▶ store ─▶ page
//
// The table of routes (routes.go) says for each of them which Action on which topic it needs. A route without an Action
// is refused to everybody. A page is a struct of what it shows (such as topicsPage) and a template of the same name. It
// is made anew for each request, from a bounded number of calls of the store. All forms work without the script, which
// only renews what is shown and listens to keys.
package console
