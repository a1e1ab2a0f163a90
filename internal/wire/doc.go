// Package wire is what passes between a server and its clients: paths, names of headers, JSON bodies, problems and limits. It
// converts from and to the types of package punctual. Server and client both use it, so neither can know a form
// that the other does not.
//
// A request that carries many items, such as /v1/push, is one JSON object with a list. Its answer has as many results
// in the same order. What is malformed as JSON fails the whole request, what is malformed in an item fails that item
// alone.
//
// Times are RFC 3339, durations as package notation writes them ("30m", "2d12h"), tokens strings, since numbers lose digits beyond
// 2^53 in many languages. A body is "body" when it is UTF-8 and "body_base64" otherwise.
//
// The compatibility rules: within /v1 a name and its form never change. A client ignores members of an answer that it does not know.
// A server refuses members of a request that it does not know, so a new one is sent only when it is used.
package wire
