package wire

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire/compact"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// The compact form is Protocol Buffers, at a fraction of JSON's CPU time: server/punctual.proto,
// from which package compact is generated. GET /v1 says which version a server knows. A client sets
// Content-Type for a request in this form, and Accept to allow an answer in it. Claims, amendments,
// problems that are the whole answer, and settlements of which one has follow-ups are JSON.
//
// A body has one field, number 1, with the items. compactItems and eachCompact write and read one
// item at a time with the same value, so that no message of Protocol Buffers is made for each item.

// CompactVersion is the version of the compact form. A change that an older program would
// misunderstand, not only a further field, needs a new one.
const CompactVersion = 4

// item is a pointer to a generated message.
type item interface {
	protoreflect.ProtoMessage
	Reset()
	SizeVT() int
	MarshalToSizedBufferVT(b []byte) (int, error)
	UnmarshalVTUnsafe(b []byte) error
}

// compactItems returns the body of n items. set makes p the i-th of them. size is about how many
// bytes the body has.
func compactItems(p item, n, size int, set func(i int)) ([]byte, error) {
	b := make([]byte, 0, size)
	for i := range n {
		set(i)
		size := p.SizeVT()
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(size))
		b = slices.Grow(b, size)[:len(b)+size]
		if _, err := p.MarshalToSizedBufferVT(b[len(b)-size:]); err != nil {
			return nil, fmt.Errorf("item %d: %w", i+1, err)
		}
	}
	return b, nil
}

// eachCompact makes p one item of the body after the other, and calls begin with their number first
// and get with the place of each. Texts and bytes of p are parts of data. More than most items are
// an ErrTooLarge, and what is malformed is an ErrInvalid. An item with more parts than any has is
// refused before it is decoded, so that a short body cannot make the caller allocate much memory.
func eachCompact(data []byte, most int, p item, begin func(n int) error, get func(i int) error) error {
	n, err := parts(data, 1)
	if err != nil {
		return err
	}
	if n > most {
		return fmt.Errorf("%d items in one request: at most %d are allowed: %w", n, most, punctual.ErrTooLarge)
	}
	if err := begin(n); err != nil {
		return err
	}
	for i := range n {
		_, _, tag := protowire.ConsumeTag(data)
		text, size := protowire.ConsumeBytes(data[tag:])
		data = data[tag+size:]
		var err error
		if len(text) > 2*maxParts { // each takes two bytes or more
			err = fewParts(text)
		}
		if err == nil {
			p.Reset()
			err = p.UnmarshalVTUnsafe(text)
		}
		if err != nil {
			return inItem(i, err)
		}
		if err := get(i); err != nil {
			return inItem(i, err)
		}
	}
	return nil
}

// inItem adds the place of the item to an error, which becomes an ErrInvalid if it has no kind.
func inItem(i int, err error) error {
	if storekit.ErrorCode(err) == "internal" {
		err = storekit.Invalidf("compact form: %v", err)
	}
	return fmt.Errorf("item %d: %w", i+1, err)
}

// maxParts is more than how many fields an item has.
const maxParts = 2*maxHeaders + 100

func fewParts(item []byte) error {
	n, err := parts(item, 0)
	if err == nil && n > maxParts {
		err = tooMany(maxHeaders, "headers")
	}
	return err
}

// parts returns how many fields a message has. only, if not 0, is the one number that they may
// have, each with a message.
func parts(data []byte, only protowire.Number) (n int, err error) {
	for ; len(data) > 0; n++ {
		number, kind, size := protowire.ConsumeField(data)
		if size < 0 {
			return 0, storekit.Invalidf("compact form: it is cut short or malformed: %v", protowire.ParseError(size))
		}
		if only != 0 && (number != only || kind != protowire.BytesType) {
			return 0, storekit.Invalidf("compact form: field %d is not known", number)
		}
		data = data[size:]
	}
	return n, nil
}

// known returns an ErrInvalid if a message of a request has a field that this program does not
// know, because what it says would be lost.
func known(m protoreflect.ProtoMessage) error {
	if unknown := m.ProtoReflect().GetUnknown(); len(unknown) > 0 {
		number, _, _ := protowire.ConsumeTag(unknown)
		return storekit.Invalidf("compact form: field %d of %s is not known", number, m.ProtoReflect().Descriptor().Name())
	}
	return nil
}

// choice returns an enumeration's value that is at most most. what names it in the error.
func choice[To ~uint8, From ~int32](what string, v From, most To) (To, error) {
	if v < 0 || v > From(most) {
		return 0, storekit.Invalidf("compact form: %s %d is not known", what, v)
	}
	return To(v), nil
}

// millis returns a time for an optional field, rounded up, nil for the zero Time.
func millis(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := storekit.CeilMillis(t)
	return &ms
}

// givenTime is the inverse of millis. A field that says the zero Time is an ErrInvalid.
func givenTime(ms *int64) (t time.Time, err error) {
	if ms == nil {
		return t, nil
	}
	if t = storekit.FromMillis(*ms); t.IsZero() {
		return t, storekit.Invalidf("compact form: the zero time is given: leave it out")
	}
	return t, nil
}

// bytesOf returns bytes that are parts of a body, nil for none.
func bytesOf(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b[:len(b):len(b)]
}

// compactHeaders are the headers of a message, in the order of their names.
type compactHeaders struct {
	names, values []string
	binary        []*compact.Header
}

func (c *compactHeaders) set(h map[string]string) {
	*c = compactHeaders{c.names[:0], c.values[:0], nil}
	if len(h) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if value := h[name]; utf8.ValidString(name) && utf8.ValidString(value) {
			c.names, c.values = append(c.names, name), append(c.values, value)
		} else {
			c.binary = append(c.binary, &compact.Header{Name: []byte(name), Value: []byte(value)})
		}
	}
}

func (c *compactHeaders) read() (map[string]string, error) {
	if len(c.names) != len(c.values) {
		return nil, storekit.Invalidf("compact form: %d names and %d values of headers", len(c.names), len(c.values))
	}
	n := len(c.names) + len(c.binary)
	if n == 0 {
		return nil, nil
	}
	h := make(map[string]string, n)
	for i, name := range c.names {
		h[strings.Clone(name)] = strings.Clone(c.values[i])
	}
	for _, b := range c.binary {
		if err := known(b); err != nil {
			return nil, err
		}
		h[string(b.GetName())] = string(b.GetValue())
	}
	if len(h) != n {
		return nil, storekit.Invalidf("compact form: a header is given twice")
	}
	return h, nil
}

func compactProblem(err error) *compact.Error {
	if err == nil {
		return nil
	}
	p := ItemProblem(err)
	return &compact.Error{Status: int64(p.Status), Code: p.Code, Detail: strings.ToValidUTF8(p.Detail, "\uFFFD"), Definite: p.Definite}
}

func readCompactProblem(e *compact.Error) error {
	if e == nil {
		return nil
	}
	p := &Problem{Status: int(e.GetStatus()), Code: strings.Clone(e.GetCode()), Detail: strings.Clone(e.GetDetail()), Definite: e.GetDefinite()}
	return p.Err()
}

// again returns the text that next says. It returns last without a copy if that is the same,
// because most items of a body have one topic.
func again(last, next string) string {
	if last == next {
		return last
	}
	return strings.Clone(next)
}

func sizeOfHeaders(h map[string]string) int {
	n := 0
	for name, value := range h {
		n += len(name) + len(value) + 6
	}
	return n
}

func compactPush(ms []punctual.NewMessage) ([]byte, error) {
	size := 0
	for i := range ms {
		size += len(ms[i].Topic) + len(ms[i].ID) + len(ms[i].Body) + sizeOfHeaders(ms[i].Headers) + 50
	}
	p, h := new(compact.NewMessage), compactHeaders{}
	return compactItems(p, len(ms), size, func(i int) {
		m := &ms[i]
		h.set(m.Headers)
		*p = compact.NewMessage{
			Topic: m.Topic, Id: m.ID, Body: m.Body, HeaderNames: h.names, HeaderValues: h.values, BinaryHeaders: h.binary, DueMs: millis(m.Due),
			DelayNs: int64(m.Delay), MaxAttempts: int64(m.MaxAttempts), ExpireAfterNs: int64(m.ExpireAfter), DropExpired: m.DropExpired,
			IfExists: compact.IfExists(m.IfExists), IfDueMs: millis(m.IfDue), Attributes: compactAttributes(storekit.NewAttributes(m)),
		}
	})
}

// DecodeCompactPush reads a push. The bodies of the messages are parts of data, without copies. A
// malformed push is an ErrInvalid that names the item, and more than most items are an ErrTooLarge.
// The memory that the items take beside data is counted with take.
func DecodeCompactPush(data []byte, most int, take Take) (ms []punctual.NewMessage, err error) {
	p, topic := new(compact.NewMessage), ""
	err = eachCompact(data, most, p, func(n int) error {
		ms = make([]punctual.NewMessage, n)
		return take(ItemBytes(n))
	}, func(i int) (err error) {
		topic = again(topic, p.Topic)
		m := &ms[i]
		*m = punctual.NewMessage{
			Topic: topic, ID: strings.Clone(p.Id), Body: bytesOf(p.Body), Delay: time.Duration(p.DelayNs), MaxAttempts: int(p.MaxAttempts),
			ExpireAfter: time.Duration(p.ExpireAfterNs), DropExpired: p.DropExpired,
		}
		readCompactAttributes(p.Attributes).SetNew(m)
		h := compactHeaders{p.HeaderNames, p.HeaderValues, p.BinaryHeaders}
		if m.Headers, err = h.read(); err != nil {
			return err
		}
		if err := take(sizeInMemory(m.Headers)); err != nil {
			return err
		}
		if m.Due, err = givenTime(p.DueMs); err != nil {
			return err
		}
		if m.IfDue, err = givenTime(p.IfDueMs); err != nil {
			return err
		}
		if m.IfExists, err = choice("if exists", p.IfExists, punctual.IfExistsReplaceDead); err != nil {
			return err
		}
		if err := known(p); err != nil {
			return err
		}
		if p.Attributes != nil {
			return known(p.Attributes)
		}
		return nil
	})
	return ms, err
}

func compactPushAnswer(rs []punctual.PushResult) ([]byte, error) {
	size := 0
	for i := range rs {
		size += len(rs[i].Topic) + len(rs[i].ID) + 24
	}
	p := new(compact.PushResult)
	return compactItems(p, len(rs), size, func(i int) {
		r := &rs[i]
		*p = compact.PushResult{
			Topic: r.Topic, Id: r.ID, DueMs: millis(r.Due), Status: compact.PushStatus(r.Status), Existing: compact.State(r.Existing), Error: compactProblem(r.Err),
		}
	})
}

func decodeCompactPushAnswer(data []byte) (rs []punctual.PushResult, err error) {
	p, topic := new(compact.PushResult), ""
	err = eachCompact(data, limits.MaxBatch, p, func(n int) error {
		rs = make([]punctual.PushResult, n)
		return nil
	}, func(i int) (err error) {
		topic = again(topic, p.Topic)
		r := &rs[i]
		*r = punctual.PushResult{Topic: topic, ID: strings.Clone(p.Id), Err: readCompactProblem(p.Error)}
		if r.Due, err = givenTime(p.DueMs); err != nil {
			return err
		}
		if r.Existing, err = choice("state", p.Existing, punctual.StateDead); err != nil {
			return err
		}
		if r.Status, err = choice("status", p.Status, punctual.PushReplaced); err != nil {
			return err
		}
		if (r.Status == punctual.PushNone) != (r.Err != nil) {
			return storekit.Invalidf("compact form: a result and an error, or neither")
		}
		return nil
	})
	return rs, err
}

func compactClaimAnswer(ds []punctual.Delivery) ([]byte, error) {
	size := 0
	for i := range ds {
		size += len(ds[i].Topic) + len(ds[i].ID) + len(ds[i].Body) + sizeOfHeaders(ds[i].Headers) + 90
		for j := range ds[i].Failures {
			size += len(ds[i].Failures[j].Error) + 14
		}
	}
	p, h := new(compact.Delivery), compactHeaders{}
	return compactItems(p, len(ds), size, func(i int) {
		d := &ds[i]
		h.set(d.Headers)
		*p = compact.Delivery{
			Topic: d.Topic, Id: d.ID, Body: d.Body, HeaderNames: h.names, HeaderValues: h.values, BinaryHeaders: h.binary, Token: d.Token,
			DueMs: d.Due.UnixMilli(), FirstDueMs: d.FirstDue.UnixMilli(), CreatedMs: d.Created.UnixMilli(), DeliveredMs: d.Delivered.UnixMilli(),
			LeaseUntilMs: d.LeaseUntil.UnixMilli(), Attempt: int64(d.Attempt), MaxAttempts: int64(d.MaxAttempts), ExpiresMs: millis(d.Expires),
			DropExpired: d.DropExpired, Attributes: compactAttributes(storekit.AttributesOf(&d.Message)), TurnMs: millis(d.Turn),
		}
		for _, f := range d.Failures {
			p.Failures = append(p.Failures, &compact.Failure{Attempt: int64(f.Attempt), AtMs: f.At.UnixMilli(), Error: f.Error})
		}
	})
}

// decodeCompactClaimAnswer copies each body, so that a caller who keeps one body does not keep the
// whole answer in memory.
func decodeCompactClaimAnswer(data []byte) (ds []punctual.Delivery, err error) {
	p, topic := new(compact.Delivery), ""
	err = eachCompact(data, limits.MaxClaim, p, func(n int) error {
		ds = make([]punctual.Delivery, n)
		return nil
	}, func(i int) (err error) {
		topic = again(topic, p.Topic)
		d := &ds[i]
		*d = punctual.Delivery{
			Message: punctual.Message{
				Topic: topic, ID: strings.Clone(p.Id), Body: slices.Clone(bytesOf(p.Body)), Due: storekit.FromMillis(p.DueMs), FirstDue: storekit.FromMillis(p.FirstDueMs),
				Created: storekit.FromMillis(p.CreatedMs), Attempt: int(p.Attempt), MaxAttempts: int(p.MaxAttempts), DropExpired: p.DropExpired,
			},
			Token: p.Token, Delivered: storekit.FromMillis(p.DeliveredMs), LeaseUntil: storekit.FromMillis(p.LeaseUntilMs),
		}
		readCompactAttributes(p.Attributes).Set(&d.Message)
		for _, f := range p.Failures {
			d.Failures = append(d.Failures, punctual.Failure{Attempt: int(f.Attempt), At: storekit.FromMillis(f.AtMs), Error: strings.Clone(f.Error)})
		}
		h := compactHeaders{p.HeaderNames, p.HeaderValues, p.BinaryHeaders}
		if d.Headers, err = h.read(); err != nil {
			return err
		}
		if d.Expires, err = givenTime(p.ExpiresMs); err == nil {
			d.Turn, err = givenTime(p.TurnMs)
		}
		return err
	})
	return ds, err
}

// noDelay is what a settlement for which no delay is given has as its Delay.
func noDelay(s *punctual.Settlement) time.Duration {
	if s.Verb == punctual.SettleRetry && s.Due.IsZero() {
		return punctual.UseBackoff
	}
	return 0
}

func compactSettle(ss []punctual.Settlement) ([]byte, error) {
	size := 0
	for i := range ss {
		size += len(ss[i].Topic) + len(ss[i].ID) + len(ss[i].Error) + 40
	}
	p := new(compact.Settlement)
	return compactItems(p, len(ss), size, func(i int) {
		s := &ss[i]
		*p = compact.Settlement{Topic: s.Topic, Id: s.ID, Token: s.Token, Verb: compact.Verb(s.Verb), DueMs: millis(s.Due), Error: s.Error}
		if delay := int64(s.Delay); s.Delay != noDelay(s) {
			p.DelayNs = &delay
		}
	})
}

// DecodeCompactSettle reads a settle. Its errors are those of DecodeCompactPush.
func DecodeCompactSettle(data []byte, most int, take Take) (ss []punctual.Settlement, err error) {
	p, topic := new(compact.Settlement), ""
	err = eachCompact(data, most, p, func(n int) error {
		ss = make([]punctual.Settlement, n)
		return take(ItemBytes(n))
	}, func(i int) (err error) {
		topic = again(topic, p.Topic)
		s := &ss[i]
		*s = punctual.Settlement{Topic: topic, ID: strings.Clone(p.Id), Token: p.Token, Delay: time.Duration(p.GetDelayNs()), Error: strings.Clone(p.Error)}
		if s.Due, err = givenTime(p.DueMs); err != nil {
			return err
		}
		if s.Verb, err = choice("verb", p.Verb, punctual.SettleExtend); err != nil {
			return err
		}
		if p.DelayNs == nil {
			s.Delay = noDelay(s)
		}
		return known(p)
	})
	return ss, err
}

func compactSettleAnswer(errs []error) ([]byte, error) {
	p := new(compact.SettleResult)
	return compactItems(p, len(errs), 4*len(errs), func(i int) { *p = compact.SettleResult{Error: compactProblem(errs[i])} })
}

func decodeCompactSettleAnswer(data []byte) (errs []error, err error) {
	p := new(compact.SettleResult)
	err = eachCompact(data, limits.MaxBatch, p, func(n int) error {
		errs = make([]error, n)
		return nil
	}, func(i int) error {
		errs[i] = readCompactProblem(p.Error)
		return nil
	})
	return errs, err
}
