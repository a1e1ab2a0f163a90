package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/settings"
)

// The JSON that scripts rely on: each shape is one struct of this file. Fields are only
// ever added. Times are RFC 3339 in UTC with exactly three digits of milliseconds,
// by the store's clock.

// stamp is a time as all shapes print it.
type stamp time.Time

const stampFormat = "2006-01-02T15:04:05.000Z"

func (s stamp) String() string { return time.Time(s).UTC().Format(stampFormat) }

// IsZero lets omitzero leave out a time that is not there.
func (s stamp) IsZero() bool { return time.Time(s).IsZero() }

// MarshalJSON writes the time as a string.
func (s stamp) MarshalJSON() ([]byte, error) { return []byte(`"` + s.String() + `"`), nil }

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *stamp) UnmarshalJSON(data []byte) error {
	t, err := time.Parse(`"`+stampFormat+`"`, string(data))
	*s = stamp(t)
	return err
}

// consumerJSON is what consumers prints for one who works on a topic. Others is true for the sum of those who are not told
// apart.
type consumerJSON struct {
	Topic    string `json:"topic"`
	User     string `json:"user,omitempty"`
	Name     string `json:"name,omitempty"`
	Address  string `json:"address,omitempty"`
	Others   bool   `json:"others,omitempty"`
	Waiting  int    `json:"waiting"`
	Leases   int    `json:"leases"`
	NextEnd  stamp  `json:"next_end,omitzero"`
	Claimed  int64  `json:"claimed"`
	Settled  int64  `json:"settled"`
	LastSeen stamp  `json:"last_seen,omitzero"`
}

func consumerOf(topic string, c punctual.Consumer, others bool) consumerJSON {
	return consumerJSON{
		Topic: topic, User: c.User, Name: c.Name, Address: c.Address, Others: others, Waiting: c.Waiting, Leases: c.Leases,
		NextEnd: stamp(c.NextEnd), Claimed: c.Claimed, Settled: c.Settled, LastSeen: stamp(c.LastSeen),
	}
}

// content is a body as JSON: "body" when it is valid UTF-8, else "body_base64".
type content struct {
	Body       *string `json:"body,omitempty"`
	BodyBase64 []byte  `json:"body_base64,omitempty"`
}

func contentOf(body []byte) content {
	if utf8.Valid(body) {
		text := string(body)
		return content{Body: &text}
	}
	return content{BodyBase64: body}
}

// pushJSON is what push prints for one message. Due is left out only when the ID
// belongs to a finished message that the topic still remembers.
type pushJSON struct {
	ID     string `json:"id"`
	Topic  string `json:"topic"`
	Due    stamp  `json:"due,omitzero"`
	Result string `json:"result"` // "stored", "duplicate" or "replaced"
}

// deliveryJSON is what consume prints for one message.
type deliveryJSON struct {
	ID    string `json:"id"`
	Topic string `json:"topic"`
	content
	Headers   map[string]string `json:"headers"` // {} when there are none
	Due       stamp             `json:"due"`
	FirstDue  stamp             `json:"first_due"` // that of the first attempt
	Delivered stamp             `json:"delivered"`
	LateMS    int64             `json:"late_ms"`       // of this attempt, never negative
	TotalLate int64             `json:"total_late_ms"` // since FirstDue, never negative
	Attempt   int               `json:"attempt"`
}

func deliveryOf(d *punctual.Delivery) deliveryJSON {
	return deliveryJSON{
		ID: d.ID, Topic: d.Topic, content: contentOf(d.Body), Headers: headersOf(d.Headers),
		Due: stamp(d.Due), FirstDue: stamp(d.FirstDue), Delivered: stamp(d.Delivered),
		LateMS: max(0, d.Late().Milliseconds()), TotalLate: max(0, d.TotalLate().Milliseconds()), Attempt: d.Attempt,
	}
}

func headersOf(h map[string]string) map[string]string {
	if h == nil {
		return map[string]string{}
	}
	return h
}

// cancelJSON is what cancel prints for one ID.
type cancelJSON struct {
	ID      string `json:"id"`
	Outcome string `json:"outcome"` // "cancelled", "leased" or "not_found"
}

// amendJSON is what reschedule, dead requeue and dead delete print for one ID.
type amendJSON struct {
	ID      string `json:"id"`
	Topic   string `json:"topic,omitempty"` // left out when the ID was found in no topic
	Outcome string `json:"outcome"`         // "rescheduled", "requeued", "deleted", "leased", "not_found" or "not_dead"
	Due     stamp  `json:"due,omitzero"`
}

// messageJSON is a stored message, as get, list and dead list print it.
type messageJSON struct {
	ID    string `json:"id"`
	Topic string `json:"topic"`
	State string `json:"state"` // "scheduled", "ready", "leased" or "dead"
	content
	Headers         map[string]string `json:"headers"`
	Due             stamp             `json:"due"`
	FirstDue        stamp             `json:"first_due"` // before retries moved it
	Created         stamp             `json:"created"`
	Attempt         int               `json:"attempt"`
	MaxAttempts     int               `json:"max_attempts,omitempty"` // left out: as the topic says
	Expires         stamp             `json:"expires,omitzero"`
	DropExpired     bool              `json:"drop_expired,omitempty"`
	Remember        string            `json:"remember,omitempty"` // left out: as the topic says
	LeaseUntil      stamp             `json:"lease_until,omitzero"`
	CancelRequested bool              `json:"cancel_requested,omitempty"`
	Died            stamp             `json:"died,omitzero"`
	Reason          string            `json:"reason,omitempty"`
	Failures        []failureJSON     `json:"failures,omitempty"`
	// Next stands on the last message of a page when more follow: the --after that
	// continues.
	Next string `json:"next,omitempty"`
}

// failureJSON is one failed attempt.
type failureJSON struct {
	Attempt int    `json:"attempt"`
	At      stamp  `json:"at"`
	Error   string `json:"error"`
}

func messageOf(m punctual.Info) messageJSON {
	return messageJSON{
		ID: m.ID, Topic: m.Topic, State: m.State.String(), content: contentOf(m.Body),
		Headers: headersOf(m.Headers), Due: stamp(m.Due), FirstDue: stamp(m.FirstDue), Created: stamp(m.Created),
		Attempt: m.Attempt, MaxAttempts: m.MaxAttempts, Expires: stamp(m.Expires),
		DropExpired: m.DropExpired, Remember: rememberOf(m.Remember), LeaseUntil: stamp(m.LeaseUntil),
		CancelRequested: m.CancelRequested, Died: stamp(m.Died), Reason: string(m.Reason), Failures: failuresOf(m.Failures),
	}
}

func rememberOf(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return notation.FormatDuration(d)
}

func failuresOf(fs []punctual.Failure) (out []failureJSON) {
	for _, f := range fs {
		out = append(out, failureJSON{f.Attempt, stamp(f.At), f.Error})
	}
	return out
}

// finishedJSON is the story of a finished message, as get prints it.
type finishedJSON struct {
	ID        string        `json:"id"`
	Topic     string        `json:"topic"`
	Outcome   string        `json:"outcome"` // "acked", "cancelled" or "expired"
	At        stamp         `json:"at"`
	Due       stamp         `json:"due"`
	FirstDue  stamp         `json:"first_due"`
	Created   stamp         `json:"created"`
	Attempt   int           `json:"attempt"`
	Delivered stamp         `json:"delivered,omitzero"` // when its last lease began
	Failures  []failureJSON `json:"failures,omitempty"`
	KeptUntil stamp         `json:"kept_until"`
}

func finishedOf(f punctual.Finished) finishedJSON {
	return finishedJSON{
		ID: f.ID, Topic: f.Topic, Outcome: string(f.Outcome), At: stamp(f.At), Due: stamp(f.Due), FirstDue: stamp(f.FirstDue),
		Created: stamp(f.Created), Attempt: f.Attempt, Delivered: stamp(f.Delivered), Failures: failuresOf(f.Failures), KeptUntil: stamp(f.KeptUntil),
	}
}

// topicJSON is one topic, as topics and stats print it.
type topicJSON struct {
	Topic          string `json:"topic"`
	Scheduled      int64  `json:"scheduled"`
	Ready          int64  `json:"ready"`
	Leased         int64  `json:"leased"`
	Dead           int64  `json:"dead"`
	NextDue        stamp  `json:"next_due,omitzero"`
	PushPaused     bool   `json:"push_paused"`
	DeliveryPaused bool   `json:"delivery_paused"`
}

func topicOf(s punctual.TopicStats) topicJSON {
	return topicJSON{
		Topic: s.Topic, Scheduled: s.Scheduled, Ready: s.Ready, Leased: s.Leased, Dead: s.Dead,
		NextDue: stamp(s.NextDue), PushPaused: s.Settings.PushPaused, DeliveryPaused: s.Settings.DeliveryPaused,
	}
}

// settingsJSON is a topic's settings, as topic set, show, pause and resume print
// them: the topic, and the members that internal/settings has. Durations are as the flags take them.
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

// purgeJSON is what dead purge, topic purge and topic delete print.
type purgeJSON struct {
	Topic  string `json:"topic"`
	Purged int64  `json:"purged"` // how many messages went
}

// forecastJSON is what forecast prints.
type forecastJSON struct {
	Topic   string       `json:"topic,omitempty"` // left out: all topics
	By      string       `json:"by"`              // "minute", "hour" or "day"
	Overdue int64        `json:"overdue"`         // ready and leased messages
	Buckets []bucketJSON `json:"buckets"`
	Beyond  int64        `json:"beyond"` // due after the last bucket
}

// bucketJSON counts the messages due from From on, until the next bucket.
type bucketJSON struct {
	From  stamp `json:"from"`
	Count int64 `json:"count"`
}

// migrationJSON is what migrate up and migrate status print.
type migrationJSON struct {
	Tables  int      `json:"tables"`
	Program int      `json:"program"`
	Pending []string `json:"pending"`
}

// backupJSON is what backup prints.
type backupJSON struct {
	Target string `json:"target"` // the directory, as an absolute path
	Bytes  int64  `json:"bytes"`  // of the copy
}

// copyJSON is what copy prints for one topic. Without --yes only the counts of FROM are there.
type copyJSON struct {
	Topic     string   `json:"topic"`
	DryRun    bool     `json:"dry_run"`
	From      int64    `json:"from"`      // messages in FROM that are not dead
	FromDead  int64    `json:"from_dead"` // dead ones
	Stored    int64    `json:"stored"`    // messages that were copied
	Kept      int64    `json:"kept"`      // messages that TO had already
	Carried   int64    `json:"carried"`   // dead ones that were made dead in TO
	Histories int64    `json:"histories"` // messages whose failed attempts were left behind
	To        int64    `json:"to"`        // messages in TO that are not dead, at the end
	ToDead    int64    `json:"to_dead"`
	Notes     []string `json:"notes,omitempty"` // what could not be carried, for people
}

// checkJSON is what check prints.
type checkJSON struct {
	Topics   int64    `json:"topics"`
	Live     int64    `json:"live"`
	Dead     int64    `json:"dead"`
	Problems []string `json:"problems"` // [] for a sound store
}

// clockJSON is what clock prints.
type clockJSON struct {
	Store   stamp `json:"store,omitzero"` // what the store's clock had reached
	Machine stamp `json:"machine"`
	Reset   bool  `json:"reset"`
	Leases  int   `json:"leases"` // how many were moved with the clock
}

// findingJSON is what doctor prints for one finding.
type findingJSON struct {
	Name     string `json:"name"`
	Value    string `json:"value"`
	Severity string `json:"severity"`         // "good", "warning" or "bad"
	Remedy   string `json:"remedy,omitempty"` // left out when good
}

// versionJSON is what version prints.
type versionJSON struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from changed files
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// errorJSON is an error on standard error.
type errorJSON struct {
	Error errorBody `json:"error"`
	// Line is the number of the input line that push --ndjson refused.
	Line int64 `json:"line,omitempty"`
}

// errorBody says what failed; Definite that it certainly did not happen.
type errorBody struct {
	Code     string `json:"code"`
	Message  string `json:"message"`
	Definite bool   `json:"definite"`
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

// jsonLine is v as one line of JSON, with <, > and & as they are.
func jsonLine(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}
