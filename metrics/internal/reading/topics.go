package reading

import "sync"

// Other is the label of all topics beyond the limit.
const Other = "other"

// Topics gives each topic a label. The first ones have their own name, as many as the limit allows;
// all others share Other. So a client that makes up topics cannot make up time series.
type Topics struct {
	limit int

	mu    sync.RWMutex
	named map[string]struct{} // guarded by mu; never more than limit
}

// NewTopics returns labels for at most limit topics of their own, at least one.
func NewTopics(limit int) *Topics {
	return &Topics{limit: max(limit, 1), named: make(map[string]struct{})}
}

// Admit returns the label of a topic that exists, and gives it one of its own while there is room.
func (t *Topics) Admit(topic string) string {
	if label := t.Label(topic); label != Other {
		return label
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.named[topic]; !ok && len(t.named) >= t.limit {
		return Other
	}
	t.named[topic] = struct{}{}
	return topic
}

// Label returns the label of a topic, which may be a name that does not exist or cannot be.
func (t *Topics) Label(topic string) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if _, ok := t.named[topic]; ok {
		return topic
	}
	return Other
}

// LabelOf is the label of a topic that a call with this outcome has named. One that was met with an error alone may be made
// up, and gets no label of its own.
func (t *Topics) LabelOf(topic string, err error) string {
	if err != nil {
		return t.Label(topic)
	}
	return t.Admit(topic)
}
