package punctual

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/punctualmq/punctual/limits"
)

// Topic is a topic of a Queue whose messages carry values of type T, encoded by a Codec. It is safe
// for concurrent use.
type Topic[T any] struct {
	queue *Queue
	name  string
	codec Codec
}

// Codec encodes values as message bodies and decodes them. It must be safe for concurrent use.
type Codec interface {
	// Encode returns the body for v. The Codec must neither keep nor reuse the slice.
	Encode(v any) ([]byte, error)
	// Decode decodes data into the value that v points to, which has the topic's type.
	Decode(data []byte, v any) error
}

// JSONCodec encodes with encoding/json. It is the default.
type JSONCodec struct{}

// Encode returns json.Marshal(v).
func (JSONCodec) Encode(v any) ([]byte, error) { return json.Marshal(v) }

// Decode calls json.Unmarshal(data, v).
func (JSONCodec) Decode(data []byte, v any) error { return json.Unmarshal(data, v) }

// TopicOption adjusts a Topic. The only one is WithCodec.
type TopicOption interface {
	applyTopic(c *topicConfig)
}

type topicConfig struct{ codec Codec }

type topicOption func(c *topicConfig)

func (o topicOption) applyTopic(c *topicConfig) { o(c) }

// WithCodec has a Topic use c instead of JSONCodec. All programs that push to a topic or handle its
// messages must use the same Codec.
func WithCodec(c Codec) TopicOption {
	return topicOption(func(t *topicConfig) { t.codec = c })
}

// NewTopic returns the topic with this name on q. With a name that is not valid each push fails
// with ErrInvalid.
func NewTopic[T any](q *Queue, name string, opts ...TopicOption) *Topic[T] {
	c := topicConfig{codec: JSONCodec{}}
	for _, o := range opts {
		o.applyTopic(&c)
	}
	return &Topic[T]{queue: q, name: name, codec: c.codec}
}

// Name returns the topic's name.
func (t *Topic[T]) Name() string {
	if t == nil {
		return ""
	}
	return t.name
}

// Push is Queue.Push with the encoded v as the body. A value that cannot be encoded is ErrInvalid.
func (t *Topic[T]) Push(ctx context.Context, v T, opts ...PushOption) (PushResult, error) {
	m, err := t.Compose(v, opts...)
	if err != nil {
		return PushResult{Topic: t.Name(), Err: err}, fmt.Errorf("push: %w", err)
	}
	return t.queue.pushOne(ctx, m)
}

// PushMany is Queue.PushMany with a message for each value. options, if not nil, returns the
// options of the message for v, such as its ID and due time. If a value cannot be encoded or an
// option is invalid, nothing is stored.
func (t *Topic[T]) PushMany(ctx context.Context, vs []T, options func(v T) []PushOption) ([]PushResult, error) {
	if err := t.refused(); err != nil {
		return nil, err
	}
	ms := make([]NewMessage, len(vs))
	for i, v := range vs {
		var opts []PushOption
		if options != nil {
			opts = options(v)
		}
		m, err := t.Compose(v, opts...)
		if err != nil {
			return nil, fmt.Errorf("push of value %d of %d: %w", i+1, len(vs), err)
		}
		ms[i] = m
	}
	return t.queue.PushMany(ctx, ms)
}

// refused returns why the Topic cannot work at all, or nil. Because every method that uses the
// queue asks it first, the zero Topic returns an error instead of a panic.
func (t *Topic[T]) refused() error {
	if t == nil || t.codec == nil {
		return invalidf("topic was not made by NewTopic: use that")
	}
	return t.queue.refused()
}

// Compose builds a message that carries v from options, as the function Compose does, for programs
// that push several messages at once or later.
func (t *Topic[T]) Compose(v T, opts ...PushOption) (NewMessage, error) {
	if err := t.refused(); err != nil {
		return NewMessage{}, err
	}
	body, err := t.codec.Encode(v)
	if err != nil {
		return NewMessage{}, fmt.Errorf("%w body: encode %T: %w", ErrInvalid, v, err)
	}
	return Compose(t.name, body, opts...)
}

// Get returns the value of a message with its Info, or ErrNotFound. When the body cannot be decoded
// it returns the error with the Info.
func (t *Topic[T]) Get(ctx context.Context, id string) (v T, i Info, err error) {
	if err := t.refused(); err != nil {
		return v, Info{}, err
	}
	if i, err = t.queue.Get(ctx, t.name, id); err != nil {
		return v, i, err
	}
	if err := t.codec.Decode(i.Body, &v); err != nil {
		return v, i, fmt.Errorf("decode body of %s as %T: %w", id, v, err)
	}
	return v, i, nil
}

// CancelMany is Queue.CancelMany in this topic.
func (t *Topic[T]) CancelMany(ctx context.Context, ids []string) ([]Amended, error) {
	if err := t.refused(); err != nil {
		return nil, err
	}
	return t.queue.CancelMany(ctx, t.name, ids)
}

// Configure is Queue.Configure of this topic.
func (t *Topic[T]) Configure(ctx context.Context, change func(s *Settings)) (Settings, error) {
	if err := t.refused(); err != nil {
		return Settings{}, err
	}
	return t.queue.Configure(ctx, t.name, change)
}

// Cancel is Queue.Cancel in this topic.
func (t *Topic[T]) Cancel(ctx context.Context, id string) error {
	if err := t.refused(); err != nil {
		return err
	}
	return t.queue.Cancel(ctx, t.name, id)
}

// Reschedule is Queue.Reschedule in this topic.
func (t *Topic[T]) Reschedule(ctx context.Context, id string, w When) (time.Time, error) {
	if err := t.refused(); err != nil {
		return time.Time{}, err
	}
	return t.queue.Reschedule(ctx, t.name, id, w)
}

// Requeue is Queue.Requeue in this topic.
func (t *Topic[T]) Requeue(ctx context.Context, id string, w When) (time.Time, error) {
	if err := t.refused(); err != nil {
		return time.Time{}, err
	}
	return t.queue.Requeue(ctx, t.name, id, w)
}

// Delete is Queue.Delete in this topic.
func (t *Topic[T]) Delete(ctx context.Context, id string) error {
	if err := t.refused(); err != nil {
		return err
	}
	return t.queue.Delete(ctx, t.name, id)
}

// Handler returns a Handler, for worker.Handle, that decodes the body and calls f. A message whose
// body cannot be decoded is retried as after any other error, because while a new release is rolled
// out its messages also reach processes of the old release, and a further attempt may reach a
// process that can decode them.
func (t *Topic[T]) Handler(f func(ctx context.Context, v T, d *Delivery) error) Handler {
	return HandlerFunc(func(ctx context.Context, d *Delivery) error {
		var v T
		if err := t.refused(); err != nil {
			return err
		}
		if err := t.codec.Decode(d.Body, &v); err != nil {
			return fmt.Errorf("decode body as %T: %w", v, err)
		}
		return f(ctx, v, d)
	})
}

// The copies of a message are follow-ups of its settlement, which have at most limits.MaxThenBytes
// together. A store does not compare a push with the groups of its topic. So a Queue and a server
// do, in order that a message which can never be copied is refused at its push and not found among
// the dead ones later.

// CheckCopies returns an ErrTooLarge if m could never be copied to the groups of its topic: if the
// copies could have more than limits.MaxThenBytes together, however long the names of the groups
// are. It calls settings, for those of the topic, only for a message that is large. If settings
// fails, CheckCopies returns nil, because the push then says what is wrong with the store.
func CheckCopies(m *NewMessage, settings func() (Settings, error)) error {
	n := copyBytes(m)
	if n*limits.MaxGroups <= limits.MaxThenBytes {
		return nil
	}
	s, err := settings()
	if err != nil || n*len(s.Groups) <= limits.MaxThenBytes {
		return nil
	}
	return errorf(ErrTooLarge, "message has %d bytes, and its copies for %d groups would have more than %d: store what is large elsewhere",
		n, len(s.Groups), limits.MaxThenBytes)
}

// copyBytes is the most that a copy of m counts towards limits.MaxThenBytes: the names of its topic
// and its ID may be longer than those of m.
func copyBytes(m *NewMessage) int {
	n := len(m.Topic) + 1 + limits.MaxCompanionBytes + limits.MaxIDBytes + len(m.Body)
	for name, value := range m.Headers {
		n += len(name) + len(value)
	}
	return n
}

// GroupTopic returns the name of the topic in which a group has its copies of the messages of a
// topic (Settings.Groups). For example, the group billing of the topic orders has its copies in
// orders@g.billing.
func GroupTopic(topic, group string) string { return topic + "@g." + group }
