package rule

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"unicode/utf8"

	"github.com/punctualmq/punctual/storekit"
)

// Version is the version of the form in which a schedule is stored.
//
// # The stored form
//
// A schedule is a message of the companion topic T@cron. Its ID is the name of the schedule, it is
// due when the schedule comes next, and its body is a Record as JSON. Times are Unix milliseconds,
// durations milliseconds; a member with its zero value is left out, unless no record can do without
// it, such as spec:
//
//	{"v":1,
//	 "spec":"0 9 * * MON-FRI", "zone":"Europe/Berlin", "from":…, "until":…, "except":["12-25"],
//	 "spread":300000, "overlap":"replace", "missed":"all", "grace":60000, "limit":10, "max_dead":3,
//	 "body":"…" (or "body64" in base64, see SetBody), "headers":{"name":"value"},
//	 "max_attempts":5, "expire":3600000, "drop_expired":true, "attributes":"…" (the block in base64),
//	 "state":{"created":…, "changed":…, "revision":7,
//	  "next":{"at":…, "offset":3600},                 the earliest time that is not decided; absent: there is none
//	  "mark":{"at":…, "offset":3600},                 the latest time that is decided
//	  "earlier":[{"spec":…, …, "end":…}],             former definitions, each of which still gives the times up to its end
//	  "skip":[…], "skip_to":…,                        times that do not come: these, and all up to skip_to
//	  "stored":41, "missed":2, "skipped":1,           how many times were decided how
//	  "ran":[…],                                      the last times stored, at most 10
//	  "left":[{"at":…, "why":"overlap"}],             the last times left out, at most 10
//	  "watch_from":…,                                 occurrences up to here do not count for max_dead
//	  "paused":{"at":…, "by":"anna", "note":"…"}}}
//
// # The law of changing it
//
// Whoever changes a record writes all of it. So a program that met a member which it does not know
// would lose it, and refuses the record instead: it leaves the schedule to newer programs.
// Therefore each new member raises Version, and a record is written with the lowest version that
// has all its members, so that older programs go on with the schedules that do not use the new one.
// A member never changes its meaning. testdata/v1.json is a record of version 1, which every later
// program has to read.
const Version = 1

// Record is a schedule as it is stored.
type Record struct {
	V int `json:"v"`
	Definition
	State State `json:"state"`
}

// Overlap says what becomes of a time that comes while the occurrence before it is not finished.
type Overlap string

// The values of Overlap.
const (
	OverlapSkip    Overlap = "" // also "skip" in the interfaces
	OverlapAllow   Overlap = "allow"
	OverlapReplace Overlap = "replace"
)

// Missed says what becomes of the times that came while no duty ran.
type Missed string

// The values of Missed.
const (
	MissedLatest Missed = "" // also "latest" in the interfaces
	MissedAll    Missed = "all"
	MissedNone   Missed = "none"
)

// Definition is what the owner of a schedule says.
type Definition struct {
	Timing
	// Spread is over how long schedules for one instant are spread; see Delay.
	Spread  int64   `json:"spread,omitempty"`
	Overlap Overlap `json:"overlap,omitempty"`
	Missed  Missed  `json:"missed,omitempty"`
	// Grace is how late a time may be decided without having been missed.
	Grace int64 `json:"grace,omitempty"`
	// Limit is how many occurrences are stored at most, and MaxDead how many dead ones in a row
	// pause the schedule; 0 is no bound.
	Limit   int64 `json:"limit,omitempty"`
	MaxDead int   `json:"max_dead,omitempty"`

	// Text or Base64 is the body of the occurrences.
	Text        string            `json:"body,omitempty"`
	Base64      []byte            `json:"body64,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	MaxAttempts int               `json:"max_attempts,omitempty"`
	Expire      int64             `json:"expire,omitempty"`
	DropExpired bool              `json:"drop_expired,omitempty"`
	Attributes  Attributes        `json:"attributes,omitzero"`
}

// Attributes are the attributes of the occurrences. They are stored as the block that
// [storekit.Attributes] describes, whose bytes stay as they came, so that a program which does not
// know an attribute of a newer one does not lose it when it writes the record.
type Attributes struct {
	storekit.Attributes
	block []byte
}

// NewAttributes returns a as a record has them.
func NewAttributes(a storekit.Attributes) Attributes { return Attributes{a.Whole(), a.Block()} }

// MarshalJSON returns the block in base64.
func (a Attributes) MarshalJSON() ([]byte, error) { return json.Marshal(a.block) }

// UnmarshalJSON reads what MarshalJSON writes.
func (a *Attributes) UnmarshalJSON(text []byte) (err error) {
	if err = json.Unmarshal(text, &a.block); err == nil {
		a.Attributes, err = storekit.ReadAttributes(a.block)
	}
	return err
}

// SetBody sets the body of the occurrences. The body is kept as text where it is UTF-8 and the text
// is not longer in JSON than base64, which takes four bytes for three. A quotation mark and a
// backslash take two bytes in JSON, and a control character counts as six, the most that it takes.
// That JSON escapes U+2028 and U+2029 is not counted.
func (d *Definition) SetBody(body []byte) {
	d.Text, d.Base64 = "", nil
	more := 0
	for _, c := range body {
		switch {
		case c == '"' || c == '\\':
			more++
		case c < ' ':
			more += 5
		}
	}
	if utf8.Valid(body) && more <= len(body)/3 {
		d.Text = string(body)
	} else {
		d.Base64 = body
	}
}

// Body is the body of the occurrences, nil when it is empty.
func (d *Definition) Body() []byte {
	if d.Text != "" {
		return []byte(d.Text)
	}
	return d.Base64
}

// Equal tells whether two definitions say the same.
func (d *Definition) Equal(e *Definition) bool {
	return d.Timing.equal(e.Timing) && d.Spread == e.Spread && d.Overlap == e.Overlap && d.Missed == e.Missed && d.Grace == e.Grace &&
		d.Limit == e.Limit && d.MaxDead == e.MaxDead && d.Text == e.Text && bytes.Equal(d.Base64, e.Base64) && maps.Equal(d.Headers, e.Headers) &&
		d.MaxAttempts == e.MaxAttempts && d.Expire == e.Expire && d.DropExpired == e.DropExpired &&
		bytes.Equal(d.Attributes.block, e.Attributes.block)
}

// State is how far a schedule has come. The stored form at Version says what its members mean.
type State struct {
	Created  int64     `json:"created"`
	Changed  int64     `json:"changed"`
	Revision int64     `json:"revision"`
	Next     Time      `json:"next,omitzero"`
	Mark     Time      `json:"mark,omitzero"`
	Earlier  []Earlier `json:"earlier,omitempty"`
	Skip     []int64   `json:"skip,omitempty"`
	SkipTo   int64     `json:"skip_to,omitempty"`
	Stored   int64     `json:"stored,omitempty"`
	Missed   int64     `json:"missed,omitempty"`
	Skipped  int64     `json:"skipped,omitempty"`
	Ran      []int64   `json:"ran,omitempty"`
	Left     []Left    `json:"left,omitempty"`
	Watch    int64     `json:"watch_from,omitempty"`
	Paused   *Pause    `json:"paused,omitempty"`
}

// Earlier is a Timing that was replaced while some of its times were not decided yet.
type Earlier struct {
	Timing
	// End is when it was replaced: its times up to this instant count, and those of its successor
	// after that.
	End int64 `json:"end"`
}

// Left is a time that was not stored.
type Left struct {
	At  int64 `json:"at"`
	Why Why   `json:"why"`
}

// Why says why a time was not stored.
type Why string

// The reasons. Those but WhyMissed count as skipped.
const (
	WhyMissed  Why = "missed"  // it came too late
	WhyOverlap Why = "overlap" // the occurrence before it was not finished, or a later one took its place
	WhySkipped Why = "skipped" // somebody asked for that
	WhyPaused  Why = "paused"  // the schedule was paused
)

// Pause says since when and why a schedule does not come.
type Pause struct {
	At   int64  `json:"at"`
	By   string `json:"by,omitempty"`
	Note string `json:"note,omitempty"`
}

// kept is how many of the last times stored and left out a State has.
const kept = 10

// Encode returns the stored form of r.
func (r *Record) Encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // a body with < and & stays readable, and short
	if err := e.Encode(r); err != nil {
		return nil, fmt.Errorf("encode schedule: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Decode reads the stored form of a schedule. Its error says whether a newer program wrote what it
// cannot read.
func Decode(body []byte) (*Record, error) {
	r := new(Record)
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil || r.V != Version {
		var v struct {
			V int `json:"v"`
		}
		if unread := json.Unmarshal(body, &v); unread == nil && v.V != Version { // a member that is not known comes with a newer version
			return nil, fmt.Errorf("the schedule has version %d and this program reads %d: use a newer program", v.V, Version)
		}
		return nil, fmt.Errorf("this message is no schedule: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("this message is no schedule: there is something behind its JSON")
	}
	return r, nil
}
