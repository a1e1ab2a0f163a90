// Package wire defines what passes between a server and its clients: paths, names of headers, JSON
// bodies, problems and limits, with conversions from and to the types of package punctual. Server
// and client both use it, so that neither can write a form that the other does not read.
//
// A request that carries many items, such as /v1/settle, is one JSON object with a list; /v1/push
// takes an array and NDJSON as well. Its answer has one result for each item, in the same order.
// JSON that cannot be decoded fails the whole request, or in NDJSON its line: it is malformed, or
// has an unknown name, a value of another JSON type than expected, an empty Given, or a token or a
// "body_base64" that is none. An item fails alone when it was decoded and a value cannot be used,
// such as a duration of "5 fortnights".
//
// Times are RFC 3339. Durations are written as package notation does ("30m", "2d12h"). Tokens are
// strings, because many languages round numbers beyond 2^53. A body is the member "body" if it is
// UTF-8 and "body_base64" otherwise; a request may have UTF-8 in "body_base64" as well, and any
// JSON value but null in "body".
//
// The compatibility rules: within /v1 a name and its form never change. A client ignores members of
// an answer that it does not know. A server refuses members of a request that it does not know, so
// a client sends a new member only if the caller uses it.
package wire
