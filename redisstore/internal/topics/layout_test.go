package topics

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/settings"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// The scripts are given the delays of a backoff up to the longest one, or the explicit list of
// delays, and the jitter.
func TestBackoffFields(t *testing.T) {
	for _, c := range []struct {
		backoff        punctual.Backoff
		delays, jitter string
	}{
		{punctual.Backoff{Base: time.Second, Max: 5 * time.Second, Jitter: 0.25}, "1000 2000 4000 5000", "0.25"},
		{punctual.Backoff{Base: time.Second, Max: time.Second}, "1000", "0"},
		{punctual.Backoff{Delays: []time.Duration{2 * time.Minute, 1500 * time.Microsecond}}, "120000 2", "0"},
	} {
		if delays, jitter := backoffFields(c.backoff); delays != c.delays || jitter != c.jitter {
			t.Errorf("backoffFields(%+v) = %q, %q; want %q, %q", c.backoff, delays, jitter, c.delays, c.jitter)
		}
	}
}

// A topic that comes into being has a version above the last one that is known, and not below the
// clock, because versions of a topic that was deleted may have been forgotten. The next version of
// a topic that exists is one more.
func TestNextVersion(t *testing.T) {
	const now = 1000
	for _, c := range []struct{ version, want int64 }{{0, now}, {-7, now}, {-now - 7, now + 8}, {3, 4}, {now + 3, now + 4}} {
		l, err := (&Layout{Version: c.version}).with(punctual.DefaultSettings(), now)
		if err != nil || l.Version != c.want {
			t.Errorf("the version after %d is %d (%v); want %d", c.version, l.Version, err, c.want)
		}
	}
}

// A field tells scripts that a topic keeps finished records. The field stays when the retention is
// set back to 0, because the topic still has records.
func TestFieldOfFinished(t *testing.T) {
	set := punctual.DefaultSettings()
	has := func(l *Layout) bool { return slices.Contains(l.fields, any(FinishedField)) }
	step := func(l *Layout, keep time.Duration) *Layout {
		set.FinishedRetention = keep
		next, err := l.with(set, 0)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	never := step(Unknown, 0)
	kept := step(never, time.Hour)
	ended := step(kept, 0)
	if has(never) || !has(kept) || !has(ended) {
		t.Errorf("the field is there: never kept %v, kept %v, no longer kept %v; want false, true, true", has(never), has(kept), has(ended))
	}
}

// TestFieldsOfSettings: a field of the hash g that repeats a setting has the name of its row and
// gets the value of that setting. A setting without such a field changes the JSON alone, a backoff
// also its own two fields, and the events and the bounds of leases also theirs.
func TestFieldsOfSettings(t *testing.T) {
	fieldsWith := func(set punctual.Settings) map[string]any {
		set.FinishedRetention = max(set.FinishedRetention, time.Second) // its field is there then
		l, err := Unknown.with(set, 0)
		if err != nil {
			t.Fatal(err)
		}
		fields, all := map[string]any{}, slices.Concat(l.fields, l.shares(0))
		for i := 0; i < len(all); i += 2 {
			fields[all[i].(string)] = all[i+1]
		}
		return fields
	}
	before := fieldsWith(punctual.DefaultSettings())
	ofBackoff := []string{"delays", "jitter"}
	for field := range before {
		if field != "settings" && !slices.Contains(ofBackoff, field) && settings.Find(field) == nil {
			t.Errorf("the field %s has the name of no setting", field)
		}
	}
	other := map[settings.Kind]string{settings.Duration: "77m", settings.Count: "7", settings.Truth: "true", settings.Backoff: "5s", settings.List: "billing,mail", settings.Events: "dead,acked", settings.Rate: "10/1s"}
	for _, row := range settings.Table {
		var p punctual.SettingsPatch
		if err := row.Parse(&p, other[row.Kind()]); err != nil {
			t.Fatal(err)
		}
		set := punctual.DefaultSettings()
		row.Apply(&set, &p)
		after := fieldsWith(set)
		var changed []string
		for field, value := range after {
			if !reflect.DeepEqual(value, before[field]) {
				changed = append(changed, field)
			}
		}
		slices.Sort(changed)
		want := []string{"settings"}
		if _, repeated := before[row.Name]; repeated {
			want = append(want, row.Name)
			value := map[settings.Kind]any{settings.Duration: storekit.CeilDuration(77 * time.Minute), settings.Count: 7, settings.Truth: script.Flag(true)}[row.Kind()]
			if row.Name == "push_paused" {
				value = 1
			}
			if after[row.Name] != value {
				t.Errorf("the field %s has %v; want %v", row.Name, after[row.Name], value)
			}
		}
		switch row.Kind() {
		case settings.Backoff:
			want = append(want, ofBackoff...)
		case settings.Events: // a topic that emits no events has none of these fields
			want = append(want, EmitField, "emit_keep")
		}
		if row.Needs == settings.BoundedLeases { // a topic without bounds has none of these fields
			want = append(want, "max_leases", "rate_interval", "rate_at_once", "delivery_paused")
		}
		if row.Name == "keyed" { // a topic without keys has none of these fields
			want = append(want, "key_leases", "key_interval", "key_at_once", "in_order", "push_paused")
		}
		slices.Sort(want)
		if !slices.Equal(changed, want) {
			t.Errorf("another %s changes the fields %q; want %q", row.Name, changed, want)
		}
	}
}

// A caller that changes the settings which it gave or was given changes nothing in the layout.
func TestSettingsAreTheCallers(t *testing.T) {
	set := punctual.DefaultSettings()
	set.Backoff.Delays = []time.Duration{time.Second}
	l, err := Unknown.with(set, 0)
	if err != nil {
		t.Fatal(err)
	}
	set.Backoff.Delays[0] = time.Hour
	l.Settings().Backoff.Delays[0] = time.Hour
	if got := l.Settings().Backoff.Delays[0]; got != time.Second {
		t.Errorf("the first delay is %v; want 1s", got)
	}
}

// P10: what is remembered of deleted topics is bounded, however many come and go. Topics that exist
// stay known.
func TestDeletedTopicsAreForgotten(t *testing.T) {
	r := New(Options{})
	r.learn("stays", &Layout{Version: 7})
	for i := range 5 * mostDeleted {
		topic := fmt.Sprint(i)
		for _, version := range []int64{1, -2, -2} { // the version of the deleted topic is learned twice
			r.learn(topic, &Layout{Version: version})
		}
		if got := r.Known(topic).Version; got != -2 {
			t.Fatalf("the version of a topic that was just deleted is %d; want -2", got)
		}
		if i%3 == 0 {
			r.learn(topic, &Layout{Version: 5}) // the topic is created again
			r.learn(topic, &Layout{})           // and later the server knows no version of it any more
		}
		if n := len(r.of); n > mostDeleted+1 || r.deleted != n-1 {
			t.Fatalf("P10: %d topics are known and %d count as deleted, after %d that were; want at most %d", n, r.deleted, i+1, mostDeleted)
		}
	}
	if got := r.Known("stays").Version; got != 7 {
		t.Errorf("the topic that exists has version %d; want 7", got)
	}
}
