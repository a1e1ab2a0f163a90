package wire

import (
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// PushRequest is the body of POST /v1/push. In NDJSON each line is a PushItem.
type PushRequest struct {
	Messages Items[PushItem] `json:"messages"`
}

// PushItem is one message to push. Only Body is required beside the topic.
type PushItem struct {
	Topic Given `json:"topic,omitzero"`
	ID    Given `json:"id,omitzero"`
	Body
	Headers
	When
	// MaxAttempts 0 means the topic's setting.
	MaxAttempts int   `json:"max_attempts,omitzero"`
	Expire      Given `json:"expire,omitzero"`
	DropExpired bool  `json:"drop_expired,omitzero"`
	Attributes
	// IfExists is a word of IfExistsWord. "" means "keep".
	IfExists Given `json:"if_exists,omitzero"`
}

// PushItemOf returns m for a request. The item shares m's body and headers. A name that is not UTF-8 is an ErrInvalid.
func PushItemOf(m *punctual.NewMessage) (PushItem, error) {
	if err := checkNames(m.Topic, m.ID); err != nil {
		return PushItem{}, err
	}
	word, err := IfExistsWord(m.IfExists)
	return PushItem{
		Topic: Given(m.Topic), ID: Given(m.ID), Body: BodyOf(m.Body), Headers: HeadersOf(m.Headers),
		When: WhenOf(m.Delay, m.Due), MaxAttempts: m.MaxAttempts,
		Expire: Given(DurationText(m.ExpireAfter)), DropExpired: m.DropExpired, Attributes: attributesOf(storekit.NewAttributes(m)), IfExists: Given(word),
	}, err
}

// Message returns the item as a punctual.NewMessage, which shares the item's body and headers. A malformed member is an ErrInvalid that names
// it.
func (p *PushItem) Message() (m punctual.NewMessage, err error) {
	m = punctual.NewMessage{Topic: string(p.Topic), ID: string(p.ID), MaxAttempts: p.MaxAttempts, DropExpired: p.DropExpired}
	if m.Body, err = p.Bytes(); err != nil {
		return m, err
	}
	if m.Headers, err = p.Map(); err != nil {
		return m, err
	}
	if m.Delay, m.Due, err = p.Times(); err != nil {
		return m, err
	}
	if m.ExpireAfter, err = ParseDurationText("expire", string(p.Expire)); err != nil {
		return m, err
	}
	a, err := p.Attributes.read()
	if err != nil {
		return m, err
	}
	a.SetNew(&m)
	m.IfExists, err = ParseIfExists(string(p.IfExists))
	return m, err
}

// When says when a message is due. At most one member may be given. Due and At mean the same.
type When struct {
	In  Given `json:"in,omitzero"`
	Due Given `json:"due,omitzero"`
	At  Given `json:"at,omitzero"`
}

// WhenOf returns a delay or a due time for a request.
func WhenOf(delay time.Duration, due time.Time) When {
	return When{In: Given(DurationText(delay)), Due: Given(TimeText(due))}
}

// IsZero reports whether no member is given.
func (w When) IsZero() bool { return w == When{} }

// Times returns the delay or due time that is given, both zero if none is. A malformed member, or more than one, is an ErrInvalid that names
// it.
func (w When) Times() (delay time.Duration, due time.Time, err error) {
	name, at := "due", w.Due
	switch {
	case w.Due != "" && w.At != "":
		return 0, due, invalidf("\"due\" and \"at\" are both given, which mean the same: use one")
	case w.At != "":
		name, at = "at", w.At
	}
	if w.In != "" && at != "" {
		return 0, due, invalidf("\"in\" and %q are both given: use one", name)
	}
	if delay, err = ParseDurationText("in", string(w.In)); err != nil {
		return 0, due, err
	}
	if due, err = ParseTimeText(name, string(at)); err == nil && at != "" && due.IsZero() {
		err = invalidf("%q is the zero time: give the time, or \"in\": \"0s\" for now", name)
	}
	return delay, due, err
}

var ifExistsWords = [...]string{"keep", "replace", "fail", "replace-dead"}

// IfExistsWord returns the word for v: "" for keep, which is the default, "replace", "fail" or "replace-dead". Another value is an ErrInvalid.
func IfExistsWord(v punctual.IfExists) (string, error) {
	switch {
	case v == punctual.IfExistsKeep:
		return "", nil
	case int(v) < len(ifExistsWords):
		return ifExistsWords[v], nil
	}
	return "", invalidf("unknown IfExists %d", v)
}

// ParseIfExists is the inverse of IfExistsWord. It also takes "keep".
func ParseIfExists(word string) (punctual.IfExists, error) {
	if word == "" {
		return punctual.IfExistsKeep, nil
	}
	for i, w := range ifExistsWords {
		if w == word {
			return punctual.IfExists(i), nil
		}
	}
	return 0, invalidf("\"if_exists\" %q: use keep, replace, replace-dead or fail", word)
}

// PushAnswer is the answer to a PushRequest: a result for each message, in their order.
type PushAnswer struct {
	Results []PushResult `json:"results"`
}

// PushResult is the result of pushing one message.
type PushResult struct {
	ID    string `json:"id,omitzero"`
	Topic string `json:"topic,omitzero"`
	// Due is the due time of the message that has the ID. It is left out beside an Error, and for the ID of a finished message within its
	// duplicate window.
	Due Time `json:"due,omitzero"`
	// Result is "stored", "duplicate" or "replaced". It is left out if there is an Error.
	Result string `json:"result,omitzero"`
	// Existing is, for a duplicate, the state of the message that has the ID.
	Existing string   `json:"existing,omitzero"`
	Error    *Problem `json:"error,omitzero"`
}

// PushResultOf returns r for an answer.
func PushResultOf(r punctual.PushResult) PushResult {
	return PushResult{
		ID: r.ID, Topic: r.Topic, Due: Time(r.Due), Result: r.Status.String(), Existing: r.Existing.String(), Error: ItemProblem(r.Err),
	}
}

// PushResult returns the result as a punctual.PushResult. Its Err is an ErrIndeterminate if the result is malformed.
func (r *PushResult) PushResult() punctual.PushResult {
	out := punctual.PushResult{ID: r.ID, Topic: r.Topic, Due: time.Time(r.Due), Err: r.Error.Err()}
	for s := punctual.PushStored; s <= punctual.PushReplaced; s++ {
		if r.Result == s.String() {
			out.Status = s
		}
	}
	if r.Existing != "" {
		state, err := punctual.ParseState(r.Existing)
		if err != nil {
			out.Err = strangeAnswer("existing state %q", r.Existing)
		}
		out.Existing = state
	}
	if out.Status == punctual.PushNone && out.Err == nil {
		out.Err = strangeAnswer("result %q of a push", r.Result)
	}
	return out
}

func checkNames(topic, id string) error {
	if err := checkText("topic", topic); err != nil {
		return err
	}
	return checkText("ID", id)
}
