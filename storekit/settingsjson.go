package storekit

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/settings"
)

// EncodeSettings returns s as the JSON that stores keep, which docs/format.md describes. A store
// may keep columns or fields instead. A value that JSON cannot have, such as a jitter that is not a
// number, is an ErrInvalid.
//
// Settings stay readable for other releases by these rules. The name and the form of a setting
// never change. A setting that is missing has its default. A setting that was added in a later
// release is left out while it has its default, so that older programs can read the settings until
// somebody changes it.
func EncodeSettings(s punctual.Settings) ([]byte, error) {
	text := []byte{'{'}
	for _, row := range settings.Table {
		if row.Quiet && row.IsDefault(&s) {
			continue
		}
		value, err := row.Stored(&s)
		if err != nil {
			return nil, fmt.Errorf("settings %+v: %w (%w)", s, punctual.ErrInvalid, err)
		}
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = append(append(append(text, '"'), row.Name...), '"', ':')
		text = append(text, value...)
	}
	return append(text, '}'), nil
}

// DecodeSettings is the inverse of EncodeSettings. A text that cannot be read, or that breaks the
// rules of ApplySettings, is an ErrCorrupt. A setting that this program does not know is otherwise
// an ErrUnsupported, because this program would lose it with the next change. A store that decodes
// settings often uses a SettingsReader.
func DecodeSettings(text []byte) (punctual.Settings, error) {
	s, newer, err := decodeSettings(text)
	switch {
	case err != nil:
		return s, fmt.Errorf("settings: %w (%w)", punctual.ErrCorrupt, err)
	case newer != nil:
		return s, fmt.Errorf("settings of a newer program: %w: use that one (%w)", punctual.ErrUnsupported, newer)
	}
	return s, nil
}

// decodeSettings returns the settings in text. newer says what a newer program has added to them,
// err what is damaged.
func decodeSettings(text []byte) (s punctual.Settings, newer, err error) {
	s = punctual.DefaultSettings()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return s, nil, err
	}
	var p punctual.SettingsPatch
	for _, row := range settings.Table {
		value, ok := members[row.Name]
		if !ok {
			continue
		}
		delete(members, row.Name)
		switch err := row.FromStored(&p, value); {
		case errors.Is(err, punctual.ErrUnsupported):
			newer = err
		case err != nil:
			return s, nil, err
		}
		row.Apply(&s, &p)
	}
	if len(members) > 0 {
		newer = fmt.Errorf("unknown settings %q", slices.Sorted(maps.Keys(members)))
	}
	return s, newer, checkSettings(&s)
}

// SettingsReader decodes settings as DecodeSettings does, and keeps the results by their text,
// because most topics of a store have the same settings and decoding is slow. Its zero value is
// ready. It is safe for concurrent use.
type SettingsReader struct {
	mu    sync.RWMutex
	known map[string]punctual.Settings
}

// A SettingsReader keeps the settings of at most maxKnownSettings texts with at most
// maxKnownSettingsBytes each, a megabyte of texts in all. When it is full it drops them all.
const (
	maxKnownSettings      = 1000
	maxKnownSettingsBytes = 1000
)

// Decode is DecodeSettings. The settings are the caller's to keep and change.
func (r *SettingsReader) Decode(text []byte) (punctual.Settings, error) {
	r.mu.RLock()
	s, known := r.known[string(text)]
	r.mu.RUnlock()
	if !known {
		var err error
		if s, err = DecodeSettings(text); err != nil {
			return s, err
		}
		r.remember(text, s)
	}
	return s.Clone(), nil
}

func (r *SettingsReader) remember(text []byte, s punctual.Settings) {
	if len(text) > maxKnownSettingsBytes {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= maxKnownSettings {
		r.known = map[string]punctual.Settings{}
	}
	r.known[string(text)] = s
}
