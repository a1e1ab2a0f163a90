// Package rights writes down for tests who gets which answer: one block of text for each request,
// in which everybody who sends that request stands under the answer that he or she gets. The tests
// of the server and of the console each compare such a text with a file.
package rights

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/access/tokens"
)

// The topics that the requests are about. Grants name Mine itself, "mine.*", "*" or Audit, and
// never Theirs.
const (
	Mine   = "mine.a"
	Theirs = "theirs"
	Audit  = access.AuditTopic
)

// Holder is somebody who sends requests.
type Holder struct {
	// Name says in the table what the holder may do: "push *" is the action push in all topics.
	Name string
	// Token stands in the header Authorization; empty for none.
	Token string
}

// Holders makes a file of tokens and returns it with everybody who sends requests. These are the
// holders of one action each, in all topics and in some; of all actions, also with the audit topic;
// of all but one; and of inspect and admin together. Others are to get nothing, because they have
// no token, or one that does not count.
func Holders(t testing.TB) (*tokens.File, []Holder) {
	t.Helper()
	now := time.Now()
	path := filepath.Join(t.TempDir(), "tokens.json")
	holders := []Holder{{Name: "no token"}, {Name: "unknown token", Token: "punctual_aaaaaaaaaa_" + strings.Repeat("a", 26)}}
	err := tokens.Change(path, func(entries []tokens.Entry) ([]tokens.Entry, error) {
		add := func(name string, e tokens.Entry) {
			e.Name, e.Created = name, now
			holders = append(holders, Holder{name, tokens.NewToken(&e)})
			entries = append(entries, e)
		}
		add("revoked", tokens.Entry{Actions: []string{"all"}, Topics: []string{"*"}, Revoked: now})
		add("expired", tokens.Entry{Actions: []string{"all"}, Topics: []string{"*"}, Expires: now})
		actions := []string{"push", "work", "inspect", "amend", "admin"}
		for _, topics := range []string{"*", "mine.*", Mine} {
			for _, action := range append(actions, "all") {
				add(action+" "+topics, tokens.Entry{Actions: []string{action}, Topics: []string{topics}})
			}
		}
		for i, action := range actions {
			add("all but "+action+" *", tokens.Entry{Actions: slices.Delete(slices.Clone(actions), i, i+1), Topics: []string{"*"}})
		}
		add("inspect+admin *", tokens.Entry{Actions: []string{"inspect", "admin"}, Topics: []string{"*"}})
		add("all "+Audit, tokens.Entry{Actions: []string{"all"}, Topics: []string{Audit}})
		add("all * "+Audit, tokens.Entry{Actions: []string{"all"}, Topics: []string{"*", Audit}})
		return entries, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	file, err := tokens.Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return file, holders
}

// Table is the text of all answers.
type Table struct {
	holders []Holder
	text    strings.Builder
}

// NewTable returns an empty table of what these holders get.
func NewTable(holders []Holder) *Table { return &Table{holders: holders} }

// Add adds the block of one request, which head names. The holders who get the same answer stand
// together.
func (t *Table) Add(head string, answer func(Holder) string) {
	by := make(map[string][]string)
	for _, h := range t.holders {
		a := answer(h)
		by[a] = append(by[a], h.Name)
	}
	fmt.Fprintln(&t.text, head)
	var answers []string
	for a := range by {
		answers = append(answers, a)
	}
	slices.Sort(answers)
	for _, a := range answers {
		fmt.Fprintf(&t.text, "  %s: %s\n", a, strings.Join(by[a], ", "))
	}
}

// Compare fails the test unless the file holds the text. With update it writes the file.
func (t *Table) Compare(tb testing.TB, path string, update bool) {
	tb.Helper()
	if update {
		if err := os.WriteFile(path, []byte(t.text.String()), 0o644); err != nil {
			tb.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	got, old := strings.Split(t.text.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(old)) {
		g, w := "", ""
		if i < len(got) {
			g = got[i]
		}
		if i < len(old) {
			w = old[i]
		}
		if g != w {
			tb.Fatalf("rights are not those of %s, line %d (if they are meant, go test -update writes the file):\n got %s\nwant %s", path, i+1, g, w)
		}
	}
}
