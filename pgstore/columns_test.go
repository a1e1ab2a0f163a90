package pgstore

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/settings"
	"github.com/punctualmq/punctual/storekit"
)

// TestColumnsOfSettings: a column of the table topic that repeats a setting has the name of its row
// and gets the value of that setting, in the statement that makes a topic and in the one that
// changes it. A setting without a column changes the JSON alone.
func TestColumnsOfSettings(t *testing.T) {
	columns := columnsOf(t, "sql/topic_create.sql", `INSERT INTO punctual\.topic \(name, (.*)\)`, `\w+`)
	if changed := columnsOf(t, "sql/topic_change.sql", `(?s)SET (.*)\nWHERE`, `\w+ =`); !slices.Equal(changed, columns) {
		t.Errorf("topic_create.sql fills %q, topic_change.sql %q", columns, changed)
	}
	if len(columns) < 5 || columns[0] != "settings" {
		t.Fatalf("the columns are %q: has the form of the statement changed?", columns)
	}
	for _, column := range columns[1:] {
		if settings.Find(column) == nil {
			t.Errorf("the column %s has the name of no setting", column)
		}
	}
	before, err := settingsArgs(punctual.DefaultSettings())
	if err != nil || len(before) != len(columns) {
		t.Fatalf("%d arguments for %d columns, %v", len(before), len(columns), err)
	}
	other := map[settings.Kind]string{settings.Duration: "77m", settings.Count: "7", settings.Truth: "true", settings.Backoff: "5s", settings.List: "billing,mail", settings.Events: "dead,acked", settings.Rate: "10/1s"}
	for _, row := range settings.Table {
		var p punctual.SettingsPatch
		if err := row.Parse(&p, other[row.Kind()]); err != nil {
			t.Fatal(err)
		}
		set := punctual.DefaultSettings()
		row.Apply(&set, &p)
		after, err := settingsArgs(set)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(before)
		want[0] = after[0]
		if at := slices.Index(columns, row.Name); at >= 0 {
			want[at] = map[settings.Kind]any{settings.Duration: storekit.CeilDuration(77 * 60e9), settings.Count: int32(7), settings.Truth: true, settings.Events: int32(punctual.EventDead | punctual.EventAcked)}[row.Kind()]
		}
		if !reflect.DeepEqual(after, want) || after[0] == before[0] {
			t.Errorf("with another %s the arguments are\n%v, want\n%v", row.Name, after, want)
		}
	}
}

// columnsOf returns the columns that a statement names: each match of word in what the group of
// part matches in the file.
func columnsOf(t *testing.T, file, part, word string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(part).FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s has no %s", file, part)
	}
	columns := regexp.MustCompile(word).FindAllString(string(found[1]), -1)
	for i, c := range columns {
		columns[i] = strings.TrimSuffix(c, " =")
	}
	return columns
}
