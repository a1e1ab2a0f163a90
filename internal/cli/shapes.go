package cli

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/settings"
	"github.com/punctualmq/punctual/internal/wire"
)

// The JSON that scripts rely on. What a store holds is printed as a server answers it, by the types
// of package wire. The other shapes stand beside a command that prints them, such as amendJSON in
// lookup.go, or in this file. Members are only ever added, which TestMembers checks for most
// commands by testdata/members.txt. Times, except for that of version, are RFC 3339 in UTC with
// exactly three digits of milliseconds, by the store's clock unless the shape says otherwise.

// stamp writes a time for people as the shapes have it.
func stamp(t time.Time) string { return notation.FormatTime(t.Truncate(time.Millisecond)) }

// messageJSON is a stored message, as list and dead list print it.
type messageJSON struct {
	wire.Message
	// Next stands on the last message of a page when more may follow: the --after that continues
	// the list.
	Next string `json:"next,omitzero"`
}

// topicJSON is one topic, as topics and stats print it. The pauses stand among the settings, too.
type topicJSON struct {
	wire.Topic
	PushPaused     bool `json:"push_paused"`
	DeliveryPaused bool `json:"delivery_paused"`
}

func topicOf(s punctual.TopicStats) topicJSON {
	return topicJSON{Topic: wire.TopicOf(s), PushPaused: s.Settings.PushPaused, DeliveryPaused: s.Settings.DeliveryPaused}
}

// settingsJSON is a topic's settings, as topic set, show, pause and resume print them: the topic,
// and the members that internal/settings has. Durations are as the flags take them.
type settingsJSON struct {
	Topic    string
	Settings punctual.Settings
}

// MarshalJSON writes topic and settings side by side.
func (s settingsJSON) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(s.Topic)
	if err != nil {
		return nil, err
	}
	text = append([]byte(`{"topic":`), text...)
	for _, row := range settings.Table {
		text = fmt.Appendf(text, `,"%s":%s`, row.Name, row.JSON(&s.Settings))
	}
	return append(text, '}'), nil
}

// writeJSON prints v as one line. A failed write is kept in o and returned.
func (o *output) writeJSON(v any) error {
	line, err := jsonLine(v)
	if err != nil {
		return err
	}
	_, err = o.Write(line)
	return outputError(err)
}

// jsonLine is v as one line of JSON.
func jsonLine(v any) ([]byte, error) {
	line, err := wire.EncodeText(v)
	return append(line, '\n'), err
}
