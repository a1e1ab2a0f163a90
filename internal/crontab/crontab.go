// Package crontab reads the files of cron. It guesses nothing: a line that means something which a
// schedule does not mean is left out, and Read says why and, where there is something, what to do
// instead.
package crontab

import (
	"cmp"
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
	// Name is made from the content of the line and its zone, so that it stays the same when lines
	// are moved. Where the same line stands there several times, the names from the second one on
	// end with a number: "-2".
	Name string
	// Times is the expression, Zone the zone of the last CRON_TZ line before it; empty without one.
	Times cron.Translation
	Zone  string
	// Command is the text behind the times, or behind the user in the form that has one, and User
	// who runs it there.
	Command, User string
}

// IsName tells whether a schedule's name is one that Read has made.
func IsName(name string) bool { return madeName.MatchString(name) }

var madeName = regexp.MustCompile(`^cron-[0-9a-f]{12}(-[0-9]+)?$`)

var variable = regexp.MustCompile(`^["']?([A-Za-z_][A-Za-z0-9_]*)["']?\s*=\s*(.*)$`)

// Read reads a crontab. With withUser the command stands behind the name of a user, as in
// /etc/crontab and /etc/cron.d. Of a line with times that is Left no schedule comes; what is said
// beside that is for example that a line sets a variable.
func Read(text string, withUser bool) (entries []Entry, findings []cron.Finding) {
	r := reader{withUser: withUser, seen: make(map[string]int)}
	for i, line := range strings.Split(text, "\n") {
		r.line(i+1, strings.TrimSpace(strings.TrimSuffix(line, "\r")))
	}
	return r.entries, r.findings
}

type reader struct {
	withUser bool
	zone     string
	seen     map[string]int // how often a name was made
	entries  []Entry
	findings []cron.Finding
}

func (r *reader) line(number int, line string) {
	if line == "" || strings.HasPrefix(line, "#") {
		return
	}
	if m := variable.FindStringSubmatch(line); m != nil {
		r.variable(number, m[1], strings.Trim(m[2], `"' `))
		return
	}
	if rest, quiet := strings.CutPrefix(line, "-"); quiet {
		r.say(number, cron.Noted, "the - in front keeps cron from logging the command, which no schedule does")
		line = rest
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
	spec := strings.Join(words, " ")
	command, standardInput := unescape(rest)
	e.Command = command
	problem := r.problemOf(&e, spec)
	if problem == "" && standardInput {
		problem = `cron gives the command what stands behind the % as its standard input: write it like printf 'text\n' | command, and each % that is part of the command as \%`
	}
	if problem != "" {
		r.say(number, cron.Left, problem)
		return
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{e.User, e.Zone, spec, e.Command}, "\x00")))
	e.Name = "cron-" + hex.EncodeToString(sum[:6])
	if r.seen[e.Name]++; r.seen[e.Name] > 1 {
		e.Name = fmt.Sprintf("%s-%d", e.Name, r.seen[e.Name])
	}
	r.entries = append(r.entries, e)
}

func (r *reader) say(number int, kind cron.FindingKind, text string) {
	r.findings = append(r.findings, cron.Finding{Where: fmt.Sprintf("line %d", number), Text: text, Kind: kind})
}

// unescape returns a command as cron runs it, with % for each \%. It tells whether there is a %
// without a backslash, behind which cron begins the standard input.
func unescape(command string) (text string, standardInput bool) {
	var out strings.Builder
	for i := 0; i < len(command); i++ {
		switch {
		case command[i] == '%':
			standardInput = true
		case command[i] == '\\' && i+1 < len(command):
			if i++; command[i] != '%' {
				out.WriteByte('\\')
			}
		}
		out.WriteByte(command[i])
	}
	return out.String(), standardInput
}

// problemOf reads the times of a line. It says why a line cannot be taken, and returns "" when it
// can.
func (r *reader) problemOf(e *Entry, spec string) string {
	switch {
	case e.Command == "":
		return "there is no command behind the times"
	case spec == "@reboot":
		return "@reboot is no time that a clock shows: push a message when the machine starts"
	case strings.Contains(spec, "~"):
		return "~ is a random time, which cron draws anew when it reads the file: write a time, and use --spread to keep schedules apart"
	case strings.HasPrefix(e.Command, "-") && !strings.HasPrefix(e.Command, "--"):
		return "the - before the command keeps cron from logging it, and no schedule knows that: leave it out"
	case strings.HasPrefix(spec, "CRON_TZ="):
		return "a zone within the times is not cron's: give it a line of its own, CRON_TZ=..."
	}
	if _, err := cron.LoadZone(e.Zone); err != nil {
		return "CRON_TZ: " + err.Error()
	}
	var err error
	if e.Times, err = cron.Translate(spec, cron.Crontab); err != nil {
		return err.Error()
	}
	return ""
}

// variable takes a line that sets a variable.
func (r *reader) variable(number int, name, value string) {
	known := func(text string) { r.say(number, cron.Noted, text) }
	switch name {
	case "CRON_TZ":
		r.zone = cmp.Or(strings.TrimPrefix(value, ":"), "UTC")
		known("CRON_TZ is the zone of the times behind it, as in cronie; Debian's cron takes no notice of it: leave the line out if that one has run this file")
	case "RANDOM_DELAY":
		r.say(number, cron.Changed, "RANDOM_DELAY delays each run by a random time: --spread delays each schedule by a fixed one")
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
