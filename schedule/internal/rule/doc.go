// Package rule has the rules of recurring schedules: how a schedule is stored, which times it has,
// what is decided about a time that has come, and what an edit makes of it. Everything here is a
// function of its arguments. The root package asks the store what a rule has to know, and carries
// out what was decided.
package rule
