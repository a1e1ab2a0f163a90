// Package server is the HTTP interface of a store: an http.Handler that any Go program can mount,
// and a way to serve it.
//
// A request passes these steps, each of which may refuse it, in Server.ServeHTTP:
//
//	Host and Origin ─▶ route ─▶ authenticate ─▶ rate ─▶ authorize ─▶ instance ─▶ parameters ─▶ body ─▶ store
//
// A public route, such as /livez, skips authenticate and rate. A request for a page of the console
// goes from Host and Origin to Options.Console, which does the rest by itself. The step instance
// refuses a request that names another instance of the server, because the request may have been
// carried out there.
//
// The table of routes (routes.go) says for each route its name, its parameters and bodies, and
// which action of package access it needs on which topic. A route without an action is refused to
// everybody, unless the table marks it as public or for any principal. /openapi.json is generated
// from the same table.
//
// Paths, headers, JSON and problems are defined in internal/wire, which clients use as well.
package server
