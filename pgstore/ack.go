package pgstore

import "sync"

// ackTellers are the topics that tell of acks (punctual.EventAcked), as this process has learned
// last from claims and from transactions that lock messages. An ack there takes a transaction that
// stores the event, and ack.sql would only find out that it must leave it. So what is out of date
// here costs time and nothing else.
type ackTellers struct{ topics sync.Map }

func (a *ackTellers) has(topic string) bool {
	_, tells := a.topics.Load(topic)
	return tells
}

func (a *ackTellers) learn(topic string, tells bool) {
	switch has := a.has(topic); {
	case tells && !has:
		a.topics.Store(topic, nil)
	case !tells && has:
		a.topics.Delete(topic)
	}
}
