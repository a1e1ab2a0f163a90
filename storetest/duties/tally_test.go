package duties

import (
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
)

// TestTally: tally finds each way in which a group can have too few copies or too many.
func TestTally(t *testing.T) {
	told := newTally()
	for _, id := range []string{"done", "open", "gone", "late", "maybe"} {
		told.pushing(id)
		if id != "open" {
			told.pushed(id)
		}
	}
	told.cancelling("gone")
	told.cancelled("gone", nil)
	told.cancelling("late")
	told.cancelled("late", punctual.ErrNotFound)
	told.cancelling("maybe") // which gets no answer
	for name, c := range map[string]struct {
		billing, mail []string
		want          string // what the first problem has to contain; empty when there must be none
	}{
		"all":           {[]string{"done", "late", "maybe", "open"}, []string{"done", "late", "maybe", "open"}, ""},
		"what may miss": {[]string{"done", "late"}, []string{"done", "late"}, ""},
		"one missing":   {[]string{"late"}, []string{"late"}, "has no done"},
		"too late":      {[]string{"done"}, []string{"done"}, "has no late"},
		"half":          {[]string{"done", "late", "maybe"}, []string{"done", "late"}, "maybe"},
		"other half":    {[]string{"done", "late"}, []string{"done", "late", "open"}, "open"},
		"twice":         {[]string{"done", "done~2", "late"}, []string{"done", "done~2", "late"}, "twice"},
		"cancelled":     {[]string{"done", "gone", "late"}, []string{"done", "gone", "late"}, "was cancelled"},
		"unknown":       {[]string{"done", "late", "x"}, []string{"done", "late", "x"}, "nobody pushed"},
	} {
		got := told.judge([]string{"billing", "mail"}, [][]string{c.billing, c.mail})
		if (len(got) > 0) != (c.want != "") || len(got) > 0 && !strings.Contains(got[0], c.want) {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}
