package reading

import "sync"

// Other is the label of all topics beyond the limit.
const Other = "other"

// Topics gives each topic its label in the metrics. The first topics that Admit is given, up to the
// limit, have their own name as the label, and all others share the label Other. A client that
// invents topics can therefore not create time series without bound. All methods are safe for
// concurrent use.
type Topics struct {
	limit int

	mu    sync.RWMutex
	named map[string]struct{} // guarded by mu; never more than limit
}

// NewTopics returns Topics that give at most limit topics a label of their own. A limit below 1
// counts as 1.
func NewTopics(limit int) *Topics {
	return &Topics{limit: max(limit, 1), named: make(map[string]struct{})}
}

// Admit returns the label of a topic that exists. A topic that has no label of its own yet gets one
// unless the limit is reached.
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

// Label returns the label of a topic and never gives it a new one. So topic may come from a client
// without a check: a name of a topic that does not exist, or that no topic may have, gets the label
// Other.
func (t *Topics) Label(topic string) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if _, ok := t.named[topic]; ok {
		return topic
	}
	return Other
}

// LabelOf returns the label of the topic that a call named, given the error of the call. When the
// call failed the topic may be invented, so that only a call without an error gives the topic a
// label of its own.
func (t *Topics) LabelOf(topic string, err error) string {
	if err != nil {
		return t.Label(topic)
	}
	return t.Admit(topic)
}
