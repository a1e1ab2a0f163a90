package storekit

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// TestGoldenSettings: settings are encoded as the golden files have them, and every golden file can
// be decoded.
func TestGoldenSettings(t *testing.T) {
	for file, change := range map[string]func(s *punctual.Settings){
		"testdata/settings-default.json": func(*punctual.Settings) {},
		"testdata/settings-all.json": func(s *punctual.Settings) {
			s.Lease, s.MaxAttempts, s.Backoff = time.Minute, 7, punctual.Backoff{Base: 1500 * time.Microsecond, Max: 90 * time.Minute, Jitter: 0.375}
			s.DeadRetention, s.DedupeWindow, s.PushPaused, s.DeliveryPaused, s.Partitions = 48*time.Hour, 1500*time.Millisecond, true, true, 256
		},
		"testdata/settings-finished.json": func(s *punctual.Settings) {
			s.Lease, s.MaxAttempts, s.Backoff = time.Minute, 7, punctual.Backoff{Delays: []time.Duration{time.Second}}
			s.DedupeWindow, s.FinishedRetention = time.Hour, limits.MaxFinishedRetention
		},
		"testdata/settings-events.json": func(s *punctual.Settings) {
			s.Lease, s.MaxAttempts, s.Backoff = time.Minute, 7, punctual.Backoff{}
			s.Emit, s.EmitKeep = punctual.EventDead|punctual.EventExpired|punctual.EventPushed, 72*time.Hour
		},
		"testdata/settings-delays.json": func(s *punctual.Settings) {
			s.Lease, s.MaxAttempts, s.Backoff = 10*time.Millisecond, 1, punctual.Backoff{Delays: []time.Duration{0, 2 * time.Minute, 15 * time.Hour}}
		},
	} {
		want := punctual.DefaultSettings() // so that a further setting changes nothing here
		change(&want)
		golden, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := EncodeSettings(want)
		if err != nil || string(got)+"\n" != string(golden) {
			t.Errorf("%s: written as\n%s, %v; want\n%s", file, got, err, golden)
		}
		if read, err := DecodeSettings(golden); err != nil || !reflect.DeepEqual(read, want) {
			t.Errorf("%s: read as %+v, %v; want %+v", file, read, err, want)
		}
	}
}

func TestDecodeSettings(t *testing.T) {
	if s, err := DecodeSettings([]byte(`{}`)); err != nil || !reflect.DeepEqual(s, punctual.DefaultSettings()) {
		t.Errorf("settings of which nothing is there: %+v, %v; want the defaults", s, err)
	}
	for text, kind := range map[string]error{
		``:                              punctual.ErrCorrupt,
		`null`:                          nil,
		`{"lease":30000000000}`:         punctual.ErrCorrupt,
		`{"lease":"1 fortnight"}`:       punctual.ErrCorrupt,
		`{"lease":"1ms"}`:               punctual.ErrCorrupt, // shorter than any lease
		`{"max_attempts":0}`:            punctual.ErrCorrupt,
		`{"finished_retention":"-1s"}`:  punctual.ErrCorrupt,
		`{"lease":"1m","colour":"x"}`:   punctual.ErrUnsupported,
		`{"backoff":{"curve":2}}`:       punctual.ErrUnsupported,
		`{"emit":"dead,born"}`:          punctual.ErrUnsupported,
		`{"emit":3}`:                    punctual.ErrCorrupt,
		`{"emit_keep":"1ms"}`:           punctual.ErrCorrupt,
		`{"lease":"1ms","colour":"x"}`:  punctual.ErrCorrupt, // damage comes before unknown settings
		`{"lease":null,"backoff":null}`: nil,
		`{"lease":"1m"} {}`:             punctual.ErrCorrupt,
		`[]`:                            punctual.ErrCorrupt,
	} {
		if _, err := DecodeSettings([]byte(text)); !errors.Is(err, kind) {
			t.Errorf("%s: %v; want %v", text, err, kind)
		}
	}
	if _, err := EncodeSettings(punctual.Settings{Backoff: punctual.Backoff{Jitter: math.NaN()}}); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("a jitter that is not a number: %v; want ErrInvalid", err)
	}
	var x map[string]any
	text, err := EncodeSettings(punctual.DefaultSettings())
	if err != nil || json.Unmarshal(text, &x) != nil {
		t.Errorf("%s, %v: not JSON", text, err)
	}
}

// TestSettingsReader: a text that was decoded before gives the same settings again, each caller
// gets a copy of its own, and no text gives the settings of another.
func TestSettingsReader(t *testing.T) {
	var r SettingsReader
	set := punctual.DefaultSettings()
	set.Backoff = punctual.Backoff{Delays: []time.Duration{time.Second, time.Minute}}
	for n := 1; n <= 2*maxKnownSettings+1; n++ {
		set.MaxAttempts = n
		text, err := EncodeSettings(set)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got, err := r.Decode(text)
			if err != nil || !reflect.DeepEqual(got, set) {
				t.Fatalf("%s is read as %+v, %v", text, got, err)
			}
			got.Backoff.Delays[0] = 0
		}
		if len(r.known) > maxKnownSettings {
			t.Fatalf("P10: %d texts are remembered; want at most %d", len(r.known), maxKnownSettings)
		}
	}
	known := len(r.known)
	set.Backoff.Delays = make([]time.Duration, maxKnownSettingsBytes)
	text, err := EncodeSettings(set)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Decode(text); err != nil || !reflect.DeepEqual(got, set) || len(r.known) != known {
		t.Errorf("P10: a text of %d bytes is read with %v and remembered: %d texts, before it %d", len(text), err, len(r.known), known)
	}
	for range 2 {
		if _, err := r.Decode([]byte(`{"lease":"1ms"}`)); !errors.Is(err, punctual.ErrCorrupt) {
			t.Errorf("settings that break the rules: %v; want ErrCorrupt each time", err)
		}
	}
}

// TestSettingsReaderAtOnce: many goroutines may decode with one reader, also while it drops what it
// keeps.
func TestSettingsReaderAtOnce(t *testing.T) {
	var r SettingsReader
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for n := 1; n <= maxKnownSettings+100; n++ {
				got, err := r.Decode(fmt.Appendf(nil, `{"max_attempts":%d}`, n))
				if err != nil || got.MaxAttempts != n {
					t.Errorf("%d attempts are read as %+v, %v", n, got, err)
				}
			}
		})
	}
	readers.Wait()
}
