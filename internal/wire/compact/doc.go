// Package compact is generated from server/punctual.proto by "make proto": the messages of the
// compact form as Go types. What is not generated of that form is in package wire.
package compact
