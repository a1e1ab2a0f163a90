package pgstore

import "sync"

// knownTopics are topics of a kind, as this process has learned last from claims and from
// transactions that lock messages. It chooses the way of a call by them. What is out of date here
// costs time and nothing else, because the statement that is sent in vain finds out by itself that
// it must change nothing.
type knownTopics struct{ topics sync.Map }

func (k *knownTopics) has(topic string) bool {
	_, has := k.topics.Load(topic)
	return has
}

func (k *knownTopics) learn(topic string, is bool) {
	switch has := k.has(topic); {
	case is && !has:
		k.topics.Store(topic, nil)
	case !is && has:
		k.topics.Delete(topic)
	}
}
