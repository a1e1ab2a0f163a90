package wire

import (
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Message is a stored message with everything that the store knows about it.
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
	// MaxAttempts is left out if the topic's setting holds.
	MaxAttempts int  `json:"max_attempts,omitzero"`
	Expires     Time `json:"expires,omitzero"`
	DropExpired bool `json:"drop_expired,omitzero"`
	Attributes
	LeaseUntil      Time                 `json:"lease_until,omitzero"`
	CancelRequested bool                 `json:"cancel_requested,omitzero"`
	Waiting         bool                 `json:"waiting,omitzero"`
	Died            Time                 `json:"died,omitzero"`
	Reason          punctual.DeathReason `json:"reason,omitzero"`
	Failures        []Failure            `json:"failures,omitzero"`
}

// MessageOf returns m for an answer. The result may share m's body and headers.
func MessageOf(m *punctual.Info) Message {
	return Message{
		ID: m.ID, Topic: m.Topic, State: m.State.String(), Body: BodyOf(m.Body), Headers: HeadersOf(m.Headers),
		Due: Time(m.Due), FirstDue: Time(m.FirstDue), Created: Time(m.Created),
		Attempt: m.Attempt, MaxAttempts: m.MaxAttempts, Expires: Time(m.Expires), DropExpired: m.DropExpired,
		Attributes: attributesOf(storekit.AttributesOf(&m.Message)),
		LeaseUntil: Time(m.LeaseUntil), CancelRequested: m.CancelRequested, Waiting: m.Waiting, Died: Time(m.Died), Reason: m.Reason,
		Failures: failuresOf(m.Failures),
	}
}

// Info returns the message as a punctual.Info, which may share the body and headers. A malformed
// message is an ErrIndeterminate.
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
		State: state, LeaseUntil: time.Time(m.LeaseUntil), CancelRequested: m.CancelRequested, Waiting: m.Waiting,
		Died: time.Time(m.Died), Reason: m.Reason, Failures: failures(m.Failures),
	}
	a.Set(&out.Message)
	return out, nil
}

// Page is a part of a list.
type Page struct {
	Messages []Message `json:"messages"`
	// Next is the value of the parameter "after" for the next page. It is left out on the last
	// page.
	Next string `json:"next,omitzero"`
}

// PageOf returns p for an answer.
func PageOf(p punctual.Page) Page {
	out := Page{Messages: make([]Message, len(p.Messages)), Next: p.Next}
	for i := range p.Messages {
		out.Messages[i] = MessageOf(&p.Messages[i])
	}
	return out
}

// Page returns the page as a punctual.Page. A malformed message in it is an ErrIndeterminate.
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

// Topic is the counts and settings of a topic.
type Topic struct {
	Topic     string `json:"topic"`
	Scheduled int64  `json:"scheduled"`
	Ready     int64  `json:"ready"`
	Leased    int64  `json:"leased"`
	Dead      int64  `json:"dead"`
	// Waiting is how many of the ready ones wait for their keys.
	Waiting  int64    `json:"waiting,omitzero"`
	NextDue  Time     `json:"next_due,omitzero"`
	Settings Settings `json:"settings"`
}

// TopicOf returns s for an answer.
func TopicOf(s punctual.TopicStats) Topic {
	return Topic{
		Topic: s.Topic, Scheduled: s.Scheduled, Ready: s.Ready, Leased: s.Leased, Dead: s.Dead, Waiting: s.Waiting,
		NextDue: Time(s.NextDue), Settings: SettingsOf(s.Settings),
	}
}

// Stats returns the topic as a punctual.TopicStats. Its error is that of Settings.Settings.
func (t *Topic) Stats() (punctual.TopicStats, error) {
	settings, err := t.Settings.Settings()
	return punctual.TopicStats{
		Topic: t.Topic, Scheduled: t.Scheduled, Ready: t.Ready, Leased: t.Leased, Dead: t.Dead, Waiting: t.Waiting,
		NextDue: time.Time(t.NextDue), Settings: settings,
	}, err
}

// Topics is the answer of GET /v1/topics.
type Topics struct {
	Topics []Topic `json:"topics"`
}

// Names is the answer of GET /v1/names: the names of topics, sorted.
type Names struct {
	Topics []string `json:"topics"`
	// Mark is for the next request with a mark; left out in the answer to one without.
	Mark string `json:"mark,omitzero"`
}

// Forecast counts scheduled messages by due time.
type Forecast struct {
	// Topic is left out for a forecast of all topics.
	Topic string   `json:"topic,omitzero"`
	From  Time     `json:"from"`
	Step  Duration `json:"step"`
	// Counts[i] is the number due in [From+i*Step, From+(i+1)*Step).
	Counts []int64 `json:"counts"`
	// Overdue counts ready and leased messages, Beyond those due after the last bucket.
	Overdue int64 `json:"overdue"`
	Beyond  int64 `json:"beyond"`
}

// ForecastOf returns f for an answer.
func ForecastOf(topic string, f punctual.Forecast) Forecast {
	return Forecast{Topic: topic, From: Time(f.From), Step: Duration(f.Step), Counts: f.Counts, Overdue: f.Overdue, Beyond: f.Beyond}
}

// Forecast returns the forecast as a punctual.Forecast.
func (f *Forecast) Forecast() punctual.Forecast {
	return punctual.Forecast{From: time.Time(f.From), Step: time.Duration(f.Step), Counts: f.Counts, Overdue: f.Overdue, Beyond: f.Beyond}
}

// StateLive is the word by which a purge names all states but dead.
const StateLive = "live"

// StateWord returns the value of a purge's parameter "state": StateLive for punctual.StateNone,
// otherwise the state's name.
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
		return s, storekit.Invalidf("\"state\" %q: use scheduled, ready, leased, dead, or live for all but the dead", word)
	}
	return s, nil
}

// Purged is the answer to a purge and to the deletion of a topic.
type Purged struct {
	Topic  string `json:"topic"`
	Purged int64  `json:"purged"`
}

// CheckLine is one line of a streaming check. The lines before the last one say how many messages
// were read so far. The last line has the report, or the error for which there is none.
type CheckLine struct {
	Read   int64        `json:"read,omitzero"`
	Report *CheckReport `json:"report,omitzero"`
	Error  *Problem     `json:"error,omitzero"`
}

// CheckReport is a storekit.CheckReport: the result of a full scan.
type CheckReport struct {
	Topics int64 `json:"topics"`
	Live   int64 `json:"live"`
	Dead   int64 `json:"dead"`
	// Problems is empty if the store has no damage.
	Problems []string `json:"problems"`
}

// CheckReportOf returns r for an answer.
func CheckReportOf(r storekit.CheckReport) CheckReport {
	return CheckReport{Topics: r.Topics, Live: r.Live, Dead: r.Dead, Problems: r.Problems}
}

// Report returns the report as a storekit.CheckReport.
func (r *CheckReport) Report() storekit.CheckReport {
	out := storekit.CheckReport{Topics: r.Topics, Live: r.Live, Dead: r.Dead}
	if len(r.Problems) > 0 {
		out.Problems = r.Problems
	}
	return out
}

// Examination is the answer of GET /v1/examine. Error says why the examination could not be
// finished.
type Examination struct {
	Findings []Finding `json:"findings"`
	Error    *Problem  `json:"error,omitzero"`
}

// Finding is one property of what the store stands on, with its severity.
type Finding struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Severity is "good", "warning" or "bad".
	Severity string `json:"severity"`
	Remedy   string `json:"remedy,omitzero"`
}

// FindingOf returns f for an answer.
func FindingOf(f storekit.Finding) Finding {
	return Finding{Name: f.Name, Value: f.Value, Severity: f.Severity.String(), Remedy: f.Remedy}
}

// ExaminationOf returns the results of storekit.Examiner.Examine for an answer.
func ExaminationOf(fs []storekit.Finding, err error) Examination {
	out := Examination{Findings: make([]Finding, len(fs)), Error: ItemProblem(err)}
	for i, f := range fs {
		out.Findings[i] = FindingOf(f)
	}
	return out
}

// Examined returns the results of storekit.Examiner.Examine on the server. A severity that this
// program does not know becomes storekit.SeverityBad.
func (e *Examination) Examined() ([]storekit.Finding, error) {
	var out []storekit.Finding
	for _, f := range e.Findings {
		severity := storekit.SeverityBad
		for s := storekit.SeverityGood; s <= storekit.SeverityBad; s++ {
			if s.String() == f.Severity {
				severity = s
			}
		}
		out = append(out, storekit.Finding{Name: f.Name, Value: f.Value, Severity: severity, Remedy: f.Remedy})
	}
	return out, e.Error.Err()
}
