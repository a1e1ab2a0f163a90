package wire

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/limits"
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
	// IfExists is "keep", "replace", "replace-dead" or "fail". Left out means "keep".
	IfExists Given `json:"if_exists,omitzero"`
	// IfDue replaces only a stored message that is due at this time. It goes with "if_exists":
	// "replace".
	IfDue Given `json:"if_due,omitzero"`
}

// PushItemOf returns m for a request. The item may share m's body and headers. A topic or ID that
// is not UTF-8, and an unknown IfExists, are an ErrInvalid.
func PushItemOf(m *punctual.NewMessage) (PushItem, error) {
	if err := checkNames(m.Topic, m.ID); err != nil {
		return PushItem{}, err
	}
	word, err := IfExistsWord(m.IfExists)
	return PushItem{
		Topic: Given(m.Topic), ID: Given(m.ID), Body: bodyToPush(m.Body), Headers: HeadersOf(m.Headers),
		When: WhenOf(m.Delay, m.Due), MaxAttempts: m.MaxAttempts,
		Expire: Given(DurationText(m.ExpireAfter)), DropExpired: m.DropExpired, Attributes: attributesOf(storekit.NewAttributes(m)), IfExists: Given(word),
		IfDue: Given(TimeText(m.IfDue)),
	}, err
}

// Message returns the item as a punctual.NewMessage, which may share the item's body and headers. A
// malformed member is an ErrInvalid that names it.
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
	a, err := p.Attributes.Read()
	if err != nil {
		return m, err
	}
	a.SetNew(&m)
	if m.IfExists, err = ParseIfExists(string(p.IfExists)); err != nil {
		return m, err
	}
	m.IfDue, err = ParseIfDue(string(p.IfDue))
	return m, err
}

// FollowUps are the messages that a settlement stores (punctual.Settlement.Then). Decoding more
// than limits.MaxThen of them is a punctual.ErrTooLarge.
type FollowUps []PushItem

// UnmarshalJSONFrom reads an array.
func (f *FollowUps) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return decodeAtMost(d, (*[]PushItem)(f), limits.MaxThen, "follow-ups of a settlement")
}

// FollowUpsOf returns ms for a request. The error for a malformed message names its number.
func FollowUpsOf(ms []punctual.NewMessage) (out FollowUps, err error) {
	if len(ms) == 0 {
		return nil, nil
	}
	out = make(FollowUps, len(ms))
	for i := range ms {
		if out[i], err = PushItemOf(&ms[i]); err != nil {
			return nil, storekit.FollowUpError(i, err)
		}
	}
	return out, nil
}

// Messages returns the follow-ups as punctual.NewMessages, nil if there are none. The error for a
// malformed one is an ErrInvalid that names its number.
func (f FollowUps) Messages() (out []punctual.NewMessage, err error) {
	if len(f) == 0 {
		return nil, nil
	}
	out = make([]punctual.NewMessage, len(f))
	for i := range f {
		if out[i], err = f[i].Message(); err != nil {
			return nil, storekit.FollowUpError(i, err)
		}
	}
	return out, nil
}

// Size returns about how many bytes of memory the follow-ups take.
func (f FollowUps) Size() int64 {
	n := int64(0)
	for i := range f {
		n += f[i].Size()
	}
	return n
}

// ParseIfDue reads the time at which a message has to be due so that a call changes it; "" is no
// condition, the zero Time.
func ParseIfDue(text string) (time.Time, error) {
	t, err := ParseTimeText("if_due", text)
	if err == nil && text != "" && t.IsZero() {
		err = storekit.Invalidf("\"if_due\" is the zero time, which would be no condition: give the due time of the message, or leave it out")
	}
	return t, err
}

// When says when a message is due. At most one of In, Due, At and AtLocal may be given. Due and At
// mean the same.
type When struct {
	In  Given `json:"in,omitzero"`
	Due Given `json:"due,omitzero"`
	At  Given `json:"at,omitzero"`
	// AtLocal is a date and time on the wall of the zone Zone, such as "2026-11-20 09:00" in
	// "Europe/Berlin": see punctual.AtLocal.
	AtLocal Given `json:"at_local,omitzero"`
	Zone    Given `json:"zone,omitzero"`
}

// WhenOf returns a delay or a due time for a request.
func WhenOf(delay time.Duration, due time.Time) When {
	return When{In: Given(DurationText(delay)), Due: Given(TimeText(due))}
}

// IsZero reports whether no member is given.
func (w When) IsZero() bool { return w == When{} }

// Times returns the delay or due time that is given, both zero if none is. A malformed member, or
// more than one, is an ErrInvalid that names it.
func (w When) Times() (delay time.Duration, due time.Time, err error) {
	name, at := "due", w.Due
	switch {
	case w.Due != "" && w.At != "":
		return 0, due, storekit.Invalidf("\"due\" and \"at\" are both given, which mean the same: use one")
	case w.At != "":
		name, at = "at", w.At
	}
	switch {
	case w.AtLocal == "" && w.Zone != "":
		return 0, due, storekit.Invalidf("\"zone\" goes with \"at_local\", a date and time there: give it, or leave the zone out")
	case w.AtLocal != "" && (w.In != "" || at != ""):
		return 0, due, storekit.Invalidf("\"at_local\" is given with \"in\" or %q: use one", name)
	case w.AtLocal != "":
		due, err = cron.LocalTime(string(w.AtLocal), string(w.Zone))
		if err != nil {
			err = storekit.Invalidf("\"at_local\": %v", err)
		}
		return 0, due.UTC(), err
	case w.In != "" && at != "":
		return 0, due, storekit.Invalidf("\"in\" and %q are both given: use one", name)
	}
	if delay, err = ParseDurationText("in", string(w.In)); err != nil {
		return 0, due, err
	}
	if due, err = ParseTimeText(name, string(at)); err == nil && at != "" && due.IsZero() {
		err = storekit.Invalidf("%q is the zero time: give the time, or \"in\": \"0s\" for now", name)
	}
	return delay, due, err
}

var ifExistsWords = [...]string{"keep", "replace", "fail", "replace-dead"}

// IfExistsWord returns the word for v: "" for keep, which is the default, "replace", "fail" or
// "replace-dead". Another value is an ErrInvalid.
func IfExistsWord(v punctual.IfExists) (string, error) {
	switch {
	case v == punctual.IfExistsKeep:
		return "", nil
	case int(v) < len(ifExistsWords):
		return ifExistsWords[v], nil
	}
	return "", storekit.Invalidf("unknown IfExists %d", v)
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
	return 0, storekit.Invalidf("\"if_exists\" %q: use keep, replace, replace-dead or fail", word)
}

// PushAnswer is the answer to a PushRequest: a result for each message, in their order.
type PushAnswer struct {
	Results []PushResult `json:"results"`
}

// PushResult is the result of pushing one message.
type PushResult struct {
	ID    string `json:"id,omitzero"`
	Topic string `json:"topic,omitzero"`
	// Due is the due time of the message that has the ID. It is left out beside an Error, and for
	// the ID of a finished message within its duplicate window.
	Due Time `json:"due,omitzero"`
	// Result is "stored", "duplicate" or "replaced". It is left out if there is an Error.
	Result string `json:"result,omitzero"`
	// Existing is the state of the stored message that has the ID, for a duplicate, and beside an
	// Error because a dead message has the ID.
	Existing string   `json:"existing,omitzero"`
	Error    *Problem `json:"error,omitzero"`
}

// PushResultOf returns r for an answer.
func PushResultOf(r punctual.PushResult) PushResult {
	return PushResult{
		ID: r.ID, Topic: r.Topic, Due: Time(r.Due), Result: r.Status.String(), Existing: r.Existing.String(), Error: ItemProblem(r.Err),
	}
}

// PushResult returns the result as a punctual.PushResult. Its Err is an ErrIndeterminate if the
// result is malformed.
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
