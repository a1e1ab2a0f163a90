package wire

import (
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Message is a stored message with all that the store knows of it.
type Message struct {
	ID    string `json:"id"`
	Topic string `json:"topic"`
	// State is "scheduled", "ready", "leased" or "dead".
	State string `json:"state"`
	Body
	Headers
	Due      Time `json:"due"`
	FirstDue Time `json:"first_due"`
	Created  Time `json:"created"`
	Attempt  int  `json:"attempt"`
	// MaxAttempts is left out when it is as the topic says.
	MaxAttempts int  `json:"max_attempts,omitzero"`
	Expires     Time `json:"expires,omitzero"`
	DropExpired bool `json:"drop_expired,omitzero"`
	Attributes
	LeaseUntil      Time                 `json:"lease_until,omitzero"`
	CancelRequested bool                 `json:"cancel_requested,omitzero"`
	Died            Time                 `json:"died,omitzero"`
	Reason          punctual.DeathReason `json:"reason,omitzero"`
	Failures        []Failure            `json:"failures,omitzero"`
}

// MessageOf is m for an answer. It refers to m's body and headers.
func MessageOf(m *punctual.Info) Message {
	return Message{
		ID: m.ID, Topic: m.Topic, State: m.State.String(), Body: BodyOf(m.Body), Headers: HeadersOf(m.Headers),
		Due: Time(m.Due), FirstDue: Time(m.FirstDue), Created: Time(m.Created),
		Attempt: m.Attempt, MaxAttempts: m.MaxAttempts, Expires: Time(m.Expires), DropExpired: m.DropExpired,
		Attributes: attributesOf(storekit.AttributesOf(&m.Message)),
		LeaseUntil: Time(m.LeaseUntil), CancelRequested: m.CancelRequested, Died: Time(m.Died), Reason: m.Reason,
		Failures: failuresOf(m.Failures),
	}
}

// Info is the message as a store returns it. It refers to the body and headers.
func (m *Message) Info() (punctual.Info, error) {
	body, headers, err := content(m.Body, m.Headers)
	if err != nil {
		return punctual.Info{}, err
	}
	a, err := m.Attributes.answered()
	if err != nil {
		return punctual.Info{}, err
	}
	state, err := punctual.ParseState(m.State)
	if err != nil {
		return punctual.Info{}, strangeAnswer("state %q", m.State)
	}
	out := punctual.Info{
		Message: punctual.Message{
			ID: m.ID, Topic: m.Topic, Body: body, Headers: headers, Due: time.Time(m.Due), FirstDue: time.Time(m.FirstDue),
			Attempt: m.Attempt, MaxAttempts: m.MaxAttempts, Created: time.Time(m.Created), Expires: time.Time(m.Expires),
			DropExpired: m.DropExpired,
		},
		State: state, LeaseUntil: time.Time(m.LeaseUntil), CancelRequested: m.CancelRequested,
		Died: time.Time(m.Died), Reason: m.Reason, Failures: failures(m.Failures),
	}
	a.Set(&out.Message)
	return out, nil
}

// Page is a part of a list.
type Page struct {
	Messages []Message `json:"messages"`
	// Next, if there, is the parameter "after" that continues the list.
	Next string `json:"next,omitzero"`
}

// PageOf is p for an answer.
func PageOf(p punctual.Page) Page {
	out := Page{Messages: make([]Message, len(p.Messages)), Next: p.Next}
	for i := range p.Messages {
		out.Messages[i] = MessageOf(&p.Messages[i])
	}
	return out
}

// Page is the page as a store returns it.
func (p *Page) Page() (punctual.Page, error) {
	out := punctual.Page{Next: p.Next}
	for i := range p.Messages {
		m, err := p.Messages[i].Info()
		if err != nil {
			return out, err
		}
		out.Messages = append(out.Messages, m)
	}
	return out, nil
}

// Topic counts the messages of a topic.
type Topic struct {
	Topic     string   `json:"topic"`
	Scheduled int64    `json:"scheduled"`
	Ready     int64    `json:"ready"`
	Leased    int64    `json:"leased"`
	Dead      int64    `json:"dead"`
	NextDue   Time     `json:"next_due,omitzero"`
	Settings  Settings `json:"settings"`
}

// TopicOf is s for an answer.
func TopicOf(s punctual.TopicStats) Topic {
	return Topic{
		Topic: s.Topic, Scheduled: s.Scheduled, Ready: s.Ready, Leased: s.Leased, Dead: s.Dead,
		NextDue: Time(s.NextDue), Settings: SettingsOf(s.Settings),
	}
}

// Stats is the topic as a store returns it.
func (t *Topic) Stats() (punctual.TopicStats, error) {
	settings, err := t.Settings.Settings()
	return punctual.TopicStats{
		Topic: t.Topic, Scheduled: t.Scheduled, Ready: t.Ready, Leased: t.Leased, Dead: t.Dead,
		NextDue: time.Time(t.NextDue), Settings: settings,
	}, err
}

// Topics is the answer of GET /v1/topics.
type Topics struct {
	Topics []Topic `json:"topics"`
}

// Forecast counts scheduled messages by due time.
type Forecast struct {
	// Topic is left out: all topics.
	Topic string   `json:"topic,omitzero"`
	From  Time     `json:"from"`
	Step  Duration `json:"step"`
	// Counts[i] is the number due in [From+i*Step, From+(i+1)*Step).
	Counts []int64 `json:"counts"`
	// Overdue counts ready and leased messages, Beyond those due after the last bucket.
	Overdue int64 `json:"overdue"`
	Beyond  int64 `json:"beyond"`
}

// ForecastOf is f for an answer.
func ForecastOf(topic string, f punctual.Forecast) Forecast {
	return Forecast{Topic: topic, From: Time(f.From), Step: Duration(f.Step), Counts: f.Counts, Overdue: f.Overdue, Beyond: f.Beyond}
}

// Forecast is the forecast as a store returns it.
func (f *Forecast) Forecast() punctual.Forecast {
	return punctual.Forecast{From: time.Time(f.From), Step: time.Duration(f.Step), Counts: f.Counts, Overdue: f.Overdue, Beyond: f.Beyond}
}

// StateLive is the word that a purge takes for all states but dead.
const StateLive = "live"

// StateWord is the parameter "state" of a purge: StateLive for punctual.StateNone.
func StateWord(s punctual.State) string {
	if s == punctual.StateNone {
		return StateLive
	}
	return s.String()
}

// ParseStateWord is the inverse of StateWord.
func ParseStateWord(word string) (punctual.State, error) {
	if word == StateLive {
		return punctual.StateNone, nil
	}
	s, err := punctual.ParseState(word)
	if err != nil {
		return s, invalidf("\"state\" %q: use scheduled, ready, leased, dead, or live for all but the dead", word)
	}
	return s, nil
}

// Purged is the answer to a purge and to the deletion of a topic.
type Purged struct {
	Topic  string `json:"topic"`
	Purged int64  `json:"purged"`
}

// CheckLine is one line of a check that streams: how many messages were read, then the report or why there is none.
type CheckLine struct {
	Read   int64        `json:"read,omitzero"`
	Report *CheckReport `json:"report,omitzero"`
	Error  *Problem     `json:"error,omitzero"`
}

// CheckReport is the result of a full scan.
type CheckReport struct {
	Topics int64 `json:"topics"`
	Live   int64 `json:"live"`
	Dead   int64 `json:"dead"`
	// Problems is empty for a sound store.
	Problems []string `json:"problems"`
}

// CheckReportOf is r for an answer.
func CheckReportOf(r punctual.CheckReport) CheckReport {
	return CheckReport{Topics: r.Topics, Live: r.Live, Dead: r.Dead, Problems: r.Problems}
}

// Report is the report as a store returns it.
func (r *CheckReport) Report() punctual.CheckReport {
	out := punctual.CheckReport{Topics: r.Topics, Live: r.Live, Dead: r.Dead}
	if len(r.Problems) > 0 {
		out.Problems = r.Problems
	}
	return out
}

// Examination is the answer of GET /v1/examine. Error is why the look could not be finished.
type Examination struct {
	Findings []Finding `json:"findings"`
	Error    *Problem  `json:"error,omitzero"`
}

// Finding is one thing that was looked at below a store.
type Finding struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Severity is "good", "warning" or "bad".
	Severity string `json:"severity"`
	Remedy   string `json:"remedy,omitzero"`
}

// FindingOf is f for an answer.
func FindingOf(f punctual.Finding) Finding {
	return Finding{Name: f.Name, Value: f.Value, Severity: f.Severity.String(), Remedy: f.Remedy}
}

// ExaminationOf is what Examiner.Examine returned, for an answer.
func ExaminationOf(fs []punctual.Finding, err error) Examination {
	out := Examination{Findings: make([]Finding, len(fs)), Error: ItemProblem(err)}
	for i, f := range fs {
		out.Findings[i] = FindingOf(f)
	}
	return out
}

// Examined is what Examiner.Examine returned on the server.
func (e *Examination) Examined() ([]punctual.Finding, error) {
	var out []punctual.Finding
	for _, f := range e.Findings {
		severity := punctual.SeverityBad
		for s := punctual.SeverityGood; s <= punctual.SeverityBad; s++ {
			if s.String() == f.Severity {
				severity = s
			}
		}
		out = append(out, punctual.Finding{Name: f.Name, Value: f.Value, Severity: severity, Remedy: f.Remedy})
	}
	return out, e.Error.Err()
}
