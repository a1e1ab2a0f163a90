// Package settings is the table of a topic's settings. A row has everything about one setting: its
// name, what it does, which values are allowed, and how it is written for people, in JSON and in a
// store. Storekit, the HTTP interface, the command line, the console and the tables in docs all
// read the rows. So a further setting needs a field of punctual.Settings and
// punctual.SettingsPatch, a row, and the code that acts on it.
package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/punctualmq/punctual"
)

//go:generate go test -count=1 -run ^TestTablesInDocs$ . -update

// Setting is one row of the table.
type Setting struct {
	// Name is the member in JSON, stored and sent, and the field of the console's form:
	// finished_retention.
	Name string
	// About is one line for flags, the description of the HTTP interface and the tables in docs.
	About string
	// Zero says what 0 means where 0 is not a quantity like others: "until purged".
	Zero string
	// Fixed settings cannot change once the topic exists.
	Fixed bool
	// In the JSON that a store keeps, a Quiet setting stands only where its value differs from the
	// default, so that programs that do not know the setting go on until somebody uses it. A column
	// or a field of a hash that repeats the setting may be there in any case. Every setting that is
	// added is Quiet.
	Quiet bool
	// Pause settings are changed by a command and a button of their own, and stay behind when a
	// topic is copied.
	Pause bool
	// Needs is the ability that a store must have for any value but the default; 0 when every store
	// can have every value.
	Needs Ability

	kind
}

// Ability is something that only some stores can do.
type Ability uint8

const (
	// DividedTopics is dividing a topic into partitions.
	DividedTopics Ability = iota + 1
	// FinishedRecords is keeping records of finished messages: see punctual.FinishedKeeper.
	FinishedRecords
	// EventMessages is telling of what happens to messages: see punctual.Settings.Emit.
	EventMessages
	// BoundedLeases is bounding how many messages are leased: see punctual.Settings.MaxLeases and
	// MaxRate.
	BoundedLeases
	// KeyedTopics is delivering messages by their keys: see punctual.Settings.Keyed.
	KeyedTopics
)

// Find returns the row of that name, or nil.
func Find(name string) *Setting {
	for _, row := range Table {
		if row.Name == name {
			return row
		}
	}
	return nil
}

// Names returns the names of all settings, as an error about an unknown setting lists them: "lease,
// max_attempts, …".
func Names() string {
	names := make([]string, len(Table))
	for i, row := range Table {
		names[i] = row.Name
	}
	return strings.Join(names, ", ")
}

// Words returns the name as it stands in sentences: "finished retention".
func (r *Setting) Words() string { return strings.ReplaceAll(r.Name, "_", " ") }

// Flag returns the name of the flag, without the dashes in front: "finished-retention".
func (r *Setting) Flag() string { return strings.ReplaceAll(r.Name, "_", "-") }

// Text returns the value in s as people write it. Parse reads the same value from it.
func (r *Setting) Text(s *punctual.Settings) string { return r.text(s) }

// Shown returns the value in s for display: Zero if the value is 0 and 0 has a meaning of its own,
// otherwise Text.
func (r *Setting) Shown(s *punctual.Settings) string {
	if r.Zero != "" && r.isZero(s) {
		return r.Zero
	}
	return r.text(s)
}

// Default returns the Text of the value in punctual.DefaultSettings.
func (r *Setting) Default() string {
	d := punctual.DefaultSettings()
	return r.text(&d)
}

// Allowed returns which values the setting can have: "10ms to 1d", "0 (until purged) or more".
func (r *Setting) Allowed() string { return r.allowed(r.Zero) }

// Meaning returns what the setting does, whether only some stores can have it, and whether it is
// fixed once the topic exists.
func (r *Setting) Meaning() string {
	text := r.About
	if r.Needs != 0 {
		text += ", on stores that can"
	}
	if r.Fixed {
		text += "; fixed once the topic exists"
	}
	return text
}

// Sentence returns what the setting does and which values it can have: "How long dead messages are
// kept: 0 (until purged) or more. Default 0s."
func (r *Setting) Sentence() string {
	meaning := r.Meaning()
	return strings.ToUpper(meaning[:1]) + meaning[1:] + ": " + r.Allowed() + ". Default " + r.Default() + "."
}

// Usage returns the help of a flag for the setting: what it does, what 0 means, and the default.
func (r *Setting) Usage() string {
	text := r.Meaning()
	if r.Zero != "" {
		text += "; 0: " + r.Zero
	}
	return text + " (" + r.Default() + ")"
}

// Parse sets the setting in p to the value that people wrote as text. A text that cannot be read is
// an ErrInvalid that names the setting and says which values it can have or how to write them.
func (r *Setting) Parse(p *punctual.SettingsPatch, text string) error {
	if text == "" {
		return invalidf("%s is empty: use %s", r.Words(), r.Allowed())
	}
	err := r.parse(p, text)
	switch {
	case err == nil, strings.HasPrefix(err.Error(), r.Words()): // notation calls a backoff by its name
		return err
	case r.Kind() == Count:
		return invalidf("%s %q is not a whole number: use %s", r.Words(), text, r.Allowed())
	}
	return fmt.Errorf("%s: %w", r.Words(), err)
}

// JSON returns the value in s as a JSON value: the Text, in quotes unless it is a number or a truth
// value, and for a list an array.
func (r *Setting) JSON(s *punctual.Settings) []byte {
	if r.Kind() == List {
		array, _ := r.stored(s) // strings can always be written
		return array
	}
	text := r.text(s)
	if r.Kind() == Count || r.Kind() == Truth {
		return []byte(text)
	}
	quoted, _ := json.Marshal(text) // a string can always be written
	return quoted
}

// FromJSON sets the setting in p to a JSON value; null leaves p as it is. Its errors are ErrInvalid
// and name the setting, as those of Parse do. For a value of another JSON type the error names the
// type that is expected.
func (r *Setting) FromJSON(p *punctual.SettingsPatch, value []byte) error {
	value = bytes.TrimSpace(value)
	if string(value) == "null" {
		return nil
	}
	if wanted, given := r.Kind().json(), jsonKind(value); wanted != given {
		if wanted == jsonNumber {
			wanted = "a whole number"
		}
		return invalidf("%s: %s where %s is expected", r.Words(), given, wanted)
	}
	if r.Kind() == List {
		if err := r.restore(p, value); err != nil {
			return invalidf("%s: %s is no array of strings: use %s", r.Words(), value, r.Allowed())
		}
		return nil
	}
	text := string(value)
	if value[0] == '"' {
		if err := json.Unmarshal(value, &text); err != nil {
			return invalidf("%s: %s is not JSON", r.Words(), value)
		}
	}
	return r.Parse(p, text)
}

// Stored returns the value in s as the JSON value that stores keep: durations as Go writes them, a
// backoff as an object. A value that JSON cannot have, such as a jitter that is not a number, is an
// error.
func (r *Setting) Stored(s *punctual.Settings) ([]byte, error) { return r.stored(s) }

// FromStored is the inverse of Stored: it sets the setting in p. null leaves p as it is. An object
// with a member that this program does not know, and an event that it does not know, are an
// ErrUnsupported.
func (r *Setting) FromStored(p *punctual.SettingsPatch, value []byte) error {
	if string(value) == "null" {
		return nil
	}
	if err := r.restore(p, value); err != nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	return nil
}

// Given reports whether p changes the setting.
func (r *Setting) Given(p *punctual.SettingsPatch) bool { return r.given(p) }

// Apply sets the setting in s to its value in p, if p has one.
func (r *Setting) Apply(s *punctual.Settings, p *punctual.SettingsPatch) { r.apply(s, p) }

// Take sets the setting in p to its value in s.
func (r *Setting) Take(p *punctual.SettingsPatch, s *punctual.Settings) { r.take(p, s) }

// Check returns an ErrInvalid that names the setting and says what is wrong with its value in s, or
// nil.
func (r *Setting) Check(s *punctual.Settings) error {
	if problem := r.problem(s, r.Zero); problem != "" {
		return invalidf("%s %s", r.Words(), problem)
	}
	return nil
}

// IsDefault reports whether the value in s is stored as the default value is.
func (r *Setting) IsDefault(s *punctual.Settings) bool {
	d := punctual.DefaultSettings()
	ours, err := r.stored(s)
	defaults, _ := r.stored(&d) // the defaults can be written: a test reads them
	return err == nil && bytes.Equal(ours, defaults)
}

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), punctual.ErrInvalid)
}
