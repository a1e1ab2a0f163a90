// Package server is the HTTP interface of a store: an http.Handler that any Go program can mount, and a way to serve it.
//
// A request passes these steps, each of which may refuse it, in Server.ServeHTTP:
//
//	Host and Origin ─▶ route ─▶ who ─▶ how often ─▶ may he ─▶ body and parameters ─▶ store
//
// The table of routes (routes.go) says for each route what it is called, what it takes, and which action of package access it needs on which
// topic. A route that names neither an action nor everybody is refused to everybody. /openapi.json is made of the same table.
//
// Everything of the wire itself, paths, headers, JSON and problems, is in internal/wire, which clients share.
package server
