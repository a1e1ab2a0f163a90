package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/internal/importer"
	"github.com/punctualmq/punctual/internal/wire"
)

// rejectJSON is one line of --rejects.
type rejectJSON struct {
	Key          string    `json:"key"`
	Member       wire.Text `json:"member,omitzero"`
	MemberBase64 []byte    `json:"member_base64,omitzero"`
	Score        string    `json:"score"`
	Reason       string    `json:"reason"`
	Message      string    `json:"message"`
}

func (a *app) showImport(r *importer.Report, f *importFlags) error {
	if a.json {
		return a.out.writeJSON(r)
	}
	if len(r.Sets) == 0 {
		a.printf("nothing of %s is there\n", r.Kind)
		return nil
	}
	if f.yes {
		a.showMoved(r)
	} else {
		a.showSurvey(r, f)
	}
	return nil
}

func (a *app) showSurvey(r *importer.Report, f *importFlags) {
	show := lister[*importer.SetReport]{
		app: a, columns: []any{"FROM", "TO TOPIC", "FOUND", "IMPORTABLE", "OVERDUE", "REJECTED", "LEFT", "STAGED", "FIRST DUE", "LAST DUE"}, numbers: []int{3, 4, 5, 6, 7, 8},
	}
	for _, s := range r.Sets {
		show.rows = append(show.rows, []any{setName(s), topicsOf(s), s.Found, s.Importable, s.Overdue, rejected(s), s.Left, s.Staged, when(time.Time(s.FirstDue)), when(time.Time(s.LastDue))})
	}
	show.end()
	for _, s := range r.Sets {
		for _, m := range s.Samples {
			a.printf("%s: due %s, ID %s, body %s\n", setName(s), when(m.Due), term.Printable(m.ID), term.OneLine(string(m.Body), 60))
		}
		for _, note := range s.Notes {
			a.printf("%s: %s\n", setName(s), note)
		}
		if s.Locks > 0 {
			a.printf("%s: tasks with a unique lock: %d; the locks stay with asynq until their time is over\n", setName(s), s.Locks)
		}
		if s.Staged > 0 {
			a.printf("%s: staged by an earlier run that did not end: %d; the next import begins with them\n", setName(s), s.Staged)
		}
	}
	if r.Guessed {
		a.printf("The scores look like %s: if that is right, import with --unit %s.\n", map[string]string{"s": "seconds", "ms": "milliseconds"}[r.Unit], r.Unit)
	}
	if r.Add(func(s *importer.SetReport) int64 { return s.Overdue }) > 0 && f.opt.Spread == 0 {
		a.printf("What is overdue is delivered at once: --spread 10m spreads it over ten minutes.\n")
	}
	a.printf("Nothing was changed. To import, run the same command with --yes.\n")
}

func (a *app) showMoved(r *importer.Report) {
	show := lister[*importer.SetReport]{
		app: a, columns: []any{"FROM", "TO TOPIC", "STORED", "STORED BEFORE", "REJECTED", "LEFT", "GONE", "PUT BACK", "DROPPED", "REMAINING", "STAGED"}, numbers: []int{3, 4, 5, 6, 7, 8, 9, 10, 11},
	}
	for _, s := range r.Sets {
		show.rows = append(show.rows, []any{setName(s), topicsOf(s), s.Stored, s.Duplicates, rejected(s), s.Left, s.Gone, s.Returned, s.Dropped, s.Remaining, s.StillStaged})
	}
	show.end()
	for _, c := range r.Remembered {
		a.printf("The duplicate window of topic %s is %s now, so that a run that was killed can be resumed.\n", c.Topic, c.Now)
		a.printf("When the import is over: punctual topic set %s --dedupe-window %s\n", c.Topic, c.Was)
	}
}

// setName is a set as people call it.
func setName(s *importer.SetReport) string {
	if s.Part == "" {
		return term.Printable(s.Name)
	}
	return term.Printable(s.Name) + " (" + s.Part + ")"
}

func topicsOf(s *importer.SetReport) string {
	if s.Topic != "" {
		return s.Topic
	}
	if len(s.Topics) == 0 {
		return "by type"
	}
	return term.OneLine(strings.Join(slices.Sorted(maps.Keys(s.Topics)), ", "), 40)
}

// rejected is "0", or the number of rejects and how many of them each reason has: "5: 2 body, 3
// score".
func rejected(s *importer.SetReport) string {
	var total int64
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(s.Rejected)) {
		total += s.Rejected[reason]
		parts = append(parts, fmt.Sprintf("%d %s", s.Rejected[reason], reason))
	}
	if total == 0 {
		return "0"
	}
	return fmt.Sprintf("%d: %s", total, strings.Join(parts, ", "))
}

// shownRejects is how many rejects at most are printed on standard error. The file of --rejects
// gets all of them.
const shownRejects = 10

// rejectLog notes the messages that were not imported and stay where they are.
type rejectLog struct {
	app  *app
	file *os.File // nil without --rejects
	n    int
	kept []string // the first ones as lines, to be printed when the bar has ended
}

// openRejects opens the file for --rejects, and adds to one that is there.
func (a *app) openRejects(name string) (*rejectLog, error) {
	l := &rejectLog{app: a}
	if name == "" {
		return l, nil
	}
	var err error
	if l.file, err = os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, fmt.Errorf("open the file for --rejects: %w", err)
	}
	return l, nil
}

func (l *rejectLog) write(r importer.Reject) error {
	if l.n++; l.n <= shownRejects {
		l.kept = append(l.kept, fmt.Sprintf("left in %s: %s: %s", term.Printable(r.Set), term.OneLine(r.Member, 60), term.Printable(r.Text)))
	}
	if l.file == nil {
		return nil
	}
	member := wire.BodyOf([]byte(r.Member))
	line, err := jsonLine(rejectJSON{
		Key: r.Set, Member: member.Text, MemberBase64: member.Base64,
		Score: strconv.FormatFloat(r.Score, 'g', -1, 64), Reason: string(r.Reason), Message: r.Text,
	})
	if err == nil {
		_, err = l.file.Write(line)
	}
	if err != nil {
		return fmt.Errorf("write to the file for --rejects: %w", err)
	}
	return nil
}

// showRest prints the first rejects, and says where all of them are or could be. With --json it
// prints nothing.
func (l *rejectLog) showRest(a *app, file string) {
	if a.json {
		return
	}
	for _, line := range l.kept {
		fmt.Fprintf(a.errs, "%s\n", line)
	}
	switch more := l.n - len(l.kept); {
	case more > 0 && file == "":
		fmt.Fprintf(a.errs, "and %d more: --rejects FILE writes all of them to a file\n", more)
	case l.n > 0 && file != "":
		fmt.Fprintf(a.errs, "all %d are in %s\n", l.n, file)
	}
}

func (l *rejectLog) close() error {
	if l.file == nil {
		return nil
	}
	if err := l.file.Sync(); err != nil {
		return errors.Join(fmt.Errorf("write to the file for --rejects: %w", err), l.file.Close())
	}
	return l.file.Close()
}
