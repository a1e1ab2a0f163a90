// Package server is the HTTP interface of a store: an http.Handler that any Go program can mount, and a way to serve it.
//
// A request passes these steps, each of which may refuse it, in Server.ServeHTTP:
//
//	Host and Origin ─▶ route ─▶ who ─▶ how often ─▶ may he ─▶ body and parameters ─▶ store
//
// The table of routes (routes.go) says for each of them what it is called, what it takes, and which Action on which topic it needs.
// A route without an Action is refused to everybody. The table is also what /openapi.json is made of.
//
// Everything of the wire itself, paths, headers, JSON and problems, is in internal/wire, which clients share.
package server
