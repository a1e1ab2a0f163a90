package storekit

import (
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// BenchmarkDecodeSettings measures how long a store needs to decode the settings of a topic, as it
// does for each topic of a survey.
func BenchmarkDecodeSettings(b *testing.B) {
	all := punctual.Settings{
		Lease: time.Minute, MaxAttempts: 7, Backoff: punctual.Backoff{Delays: []time.Duration{time.Second, time.Minute, time.Hour}},
		DeadRetention: time.Hour, DedupeWindow: time.Hour, FinishedRetention: time.Hour, Partitions: 4,
	}
	for name, s := range map[string]punctual.Settings{"defaults": punctual.DefaultSettings(), "all changed": all} {
		text, err := EncodeSettings(s)
		if err != nil {
			b.Fatal(err)
		}
		var reader SettingsReader
		for way, decode := range map[string]func([]byte) (punctual.Settings, error){"first": DecodeSettings, "again": reader.Decode} {
			b.Run(name+"/"+way, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := decode(text); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
