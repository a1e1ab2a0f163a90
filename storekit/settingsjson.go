package storekit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// storedSettings are a topic's settings as stores keep them: JSON, drawn in docs/format.md. A store that keeps
// columns or fields instead is free to.
//
// The compatibility rules: a name and its form never change. A setting that is not there has its default. One that is
// added later is left out at its default, so that older programs go on until somebody uses it.
type storedSettings struct {
	Lease             duration       `json:"lease"`
	MaxAttempts       int            `json:"max_attempts"`
	Backoff           *storedBackoff `json:"backoff"`
	DeadRetention     duration       `json:"dead_retention"`
	DedupeWindow      duration       `json:"dedupe_window"`
	FinishedRetention duration       `json:"finished_retention,omitzero"`
	PushPaused        bool           `json:"push_paused"`
	DeliveryPaused    bool           `json:"delivery_paused"`
	Partitions        int            `json:"partitions"`
}

// storedBackoff has delays, or base, max and jitter.
type storedBackoff struct {
	Delays []duration `json:"delays,omitempty"`
	Base   duration   `json:"base,omitzero"`
	Max    duration   `json:"max,omitzero"`
	Jitter float64    `json:"jitter,omitzero"`
}

// duration is stored as Go writes it: "1h30m0s".
type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}

// EncodeSettings returns s as the JSON that stores keep. What cannot be written, such as a jitter that is not a
// number, is an ErrInvalid.
func EncodeSettings(s punctual.Settings) ([]byte, error) {
	x := storedSettings{
		Lease: duration(s.Lease), MaxAttempts: s.MaxAttempts,
		Backoff:       &storedBackoff{Base: duration(s.Backoff.Base), Max: duration(s.Backoff.Max), Jitter: s.Backoff.Jitter},
		DeadRetention: duration(s.DeadRetention), DedupeWindow: duration(s.DedupeWindow), FinishedRetention: duration(s.FinishedRetention),
		PushPaused: s.PushPaused, DeliveryPaused: s.DeliveryPaused, Partitions: s.Partitions,
	}
	for _, d := range s.Backoff.Delays {
		x.Backoff.Delays = append(x.Backoff.Delays, duration(d))
	}
	text, err := json.Marshal(x)
	if err != nil {
		return nil, fmt.Errorf("settings %+v: %w (%w)", s, punctual.ErrInvalid, err)
	}
	return text, nil
}

// DecodeSettings is the inverse of EncodeSettings. A setting that this program does not know is an ErrUnsupported,
// since the next change would lose it. Anything else that cannot be read, or breaks the rules of ApplySettings, is an
// ErrCorrupt.
func DecodeSettings(text []byte) (punctual.Settings, error) {
	known := json.NewDecoder(bytes.NewReader(text))
	known.DisallowUnknownFields()
	s, err := decodeSettings(known)
	if err == nil {
		return s, nil
	}
	if _, anyway := decodeSettings(json.NewDecoder(bytes.NewReader(text))); anyway == nil {
		return s, fmt.Errorf("settings of a newer program: %w: use that one (%w)", punctual.ErrUnsupported, err)
	}
	return s, fmt.Errorf("settings: %w (%w)", punctual.ErrCorrupt, err)
}

func decodeSettings(from *json.Decoder) (punctual.Settings, error) {
	d := punctual.DefaultSettings()
	x := storedSettings{Lease: duration(d.Lease), MaxAttempts: d.MaxAttempts, Partitions: d.Partitions}
	if err := from.Decode(&x); err != nil {
		return d, err
	}
	s := punctual.Settings{
		Lease: time.Duration(x.Lease), MaxAttempts: x.MaxAttempts, Backoff: d.Backoff,
		DeadRetention: time.Duration(x.DeadRetention), DedupeWindow: time.Duration(x.DedupeWindow), FinishedRetention: time.Duration(x.FinishedRetention),
		PushPaused: x.PushPaused, DeliveryPaused: x.DeliveryPaused, Partitions: x.Partitions,
	}
	if b := x.Backoff; b != nil {
		s.Backoff = punctual.Backoff{Base: time.Duration(b.Base), Max: time.Duration(b.Max), Jitter: b.Jitter}
		for _, delay := range b.Delays {
			s.Backoff.Delays = append(s.Backoff.Delays, time.Duration(delay))
		}
	}
	return s, checkSettings(s)
}
