// Package crontab reads the files of cron. It guesses nothing: a line that means something which a
// schedule does not mean is a problem, with the line's number and, where there is something, what
// to do instead.
package crontab

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/punctualmq/punctual/internal/cron"
)

// Entry is a line that runs a command.
type Entry struct {
	// Line is the number of the line, from 1.
	Line int
	// Name is made from the command and its user, so that it stays the same when lines are moved or
	// their times are changed. Where the same command of the same user stands in several lines, the
	// names from the second one on end with a number: "-2".
	Name string
	// Spec is the expression, Zone the zone of the last CRON_TZ line before it; empty without one.
	Spec, Zone string
	// Command is the text behind the times, or behind the user in the form that has one, and User
	// who runs it there.
	Command, User string
}

// Problem is something in the file that is not taken over.
type Problem struct {
	Line int
	Text string
	// Left tells that a line with times was left out, so that no schedule comes of it. Otherwise
	// the user of the file only has to know of the problem, for example of a % in a command or of a
	// line that sets a variable.
	Left bool
}

func (p Problem) String() string { return fmt.Sprintf("line %d: %s", p.Line, p.Text) }

var variable = regexp.MustCompile(`^["']?([A-Za-z_][A-Za-z0-9_]*)["']?\s*=\s*(.*)$`)

// Read reads a crontab. With withUser the command stands behind the name of a user, as in
// /etc/crontab and /etc/cron.d.
func Read(text string, withUser bool) (entries []Entry, problems []Problem) {
	r := reader{withUser: withUser, seen: make(map[string]int)}
	for i, line := range strings.Split(text, "\n") {
		r.line(i+1, strings.TrimSpace(strings.TrimSuffix(line, "\r")))
	}
	return r.entries, r.problems
}

type reader struct {
	withUser bool
	zone     string
	seen     map[string]int // how often a name was made
	entries  []Entry
	problems []Problem
}

func (r *reader) line(number int, line string) {
	if line == "" || strings.HasPrefix(line, "#") {
		return
	}
	if m := variable.FindStringSubmatch(line); m != nil {
		r.variable(number, m[1], strings.Trim(m[2], `"' `))
		return
	}
	e := Entry{Line: number, Zone: r.zone}
	fields := 5
	if strings.HasPrefix(line, "@") {
		fields = 1
	}
	words, rest := cut(line, fields)
	if r.withUser {
		var user []string
		user, rest = cut(rest, 1)
		e.User = strings.Join(user, "")
	}
	e.Spec, e.Command = strings.Join(words, " "), rest
	switch problem := r.problemOf(&e); {
	case problem != "":
		r.problems = append(r.problems, Problem{number, problem, true})
		return
	case strings.Contains(strings.ReplaceAll(e.Command, `\%`, ""), "%"):
		r.problems = append(r.problems, Problem{number, "the command has a %, behind which cron begins its standard input: the message has the text as it stands", false})
	}
	sum := sha256.Sum256([]byte(e.User + "\x00" + e.Command))
	e.Name = "cron-" + hex.EncodeToString(sum[:6])
	if r.seen[e.Name]++; r.seen[e.Name] > 1 {
		e.Name = fmt.Sprintf("%s-%d", e.Name, r.seen[e.Name])
	}
	r.entries = append(r.entries, e)
}

// problemOf says why a line cannot be taken, and returns "" when it can.
func (r *reader) problemOf(e *Entry) string {
	switch {
	case e.Command == "":
		return "there is no command behind the times"
	case e.Spec == "@reboot":
		return "@reboot is no time that a clock shows: push a message when the machine starts"
	case strings.Contains(e.Spec, "~"):
		return "~ is a random time, which cron draws anew when it reads the file: write a time, and use --spread to keep schedules apart"
	case strings.HasPrefix(e.Command, "-") && !strings.HasPrefix(e.Command, "--"):
		return "the - before the command keeps cron from logging it, and no schedule knows that: leave it out"
	}
	s, err := cron.Parse(e.Spec)
	if err != nil {
		return err.Error()
	}
	if s.Zone() != "" {
		return "a zone within the times is not cron's: give it a line of its own, CRON_TZ=..."
	}
	return ""
}

// variable takes a line that sets a variable.
func (r *reader) variable(number int, name, value string) {
	known := func(text string) { r.problems = append(r.problems, Problem{number, text, false}) }
	switch name {
	case "CRON_TZ":
		r.zone = value
	case "RANDOM_DELAY":
		known("RANDOM_DELAY delays each run by a random time: --spread delays each schedule by a fixed one")
	case "MAILTO", "MAILFROM":
		known(name + " mails what a command prints: a message has no output; whoever runs the command may mail it")
	case "TZ":
		known("TZ is the zone that commands see, and not that of their times: whoever runs the command sets it")
	case "START_HOURS_RANGE":
		known("START_HOURS_RANGE is anacron's: use --from and --until, or hours in the times")
	default:
		known(name + " is for the command: whoever runs the command sets it")
	}
}

// cut takes n words, or as many as there are, from the start of a line.
func cut(line string, n int) (words []string, rest string) {
	rest = line
	for range n {
		rest = strings.TrimLeft(rest, " \t")
		if rest == "" {
			break
		}
		end := strings.IndexAny(rest, " \t")
		if end < 0 {
			end = len(rest)
		}
		words, rest = append(words, rest[:end]), rest[end:]
	}
	return words, strings.TrimLeft(rest, " \t")
}
