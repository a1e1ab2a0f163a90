package importer

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/punctualmq/punctual"
)

// BeeDelayQueue keeps each message as JSON in a sorted set, with a score in seconds. One set has
// those that wait, the other those that were delivered and not acked.
const (
	beeOrder   = "BeeDelay:Queue:Order:"
	beeLock    = "BeeDelay:Queue:Lock:"
	beeAckLock = "BeeDelay:Queue:Kock:" // as it is spelt there
	beeDiscard = "Discard:"
	beeAck     = "_Ack"
)

// What a message of BeeDelayQueue carries that one of Punctual does not is kept in these headers.
const (
	beeHeaderCreated = "beedelayqueue-create-time"
	beeHeaderRetry   = "beedelayqueue-retry-count"
)

func (s *source) describeBee() {
	s.set, s.lock = beeOrder+s.name, beeLock+s.name
	if s.part == "ack" {
		s.set, s.lock = beeOrder+s.name+beeAck, beeAckLock+s.name+"_Aak" // as it is spelt there
	}
	s.read = s.readBee
}

// beeTopic tells the topic of a key with messages that wait, or were not acked.
func beeTopic(key string) (string, bool) {
	topic := strings.TrimSuffix(strings.TrimPrefix(key, beeOrder), beeAck)
	return topic, !strings.HasPrefix(topic, beeDiscard)
}

// beeMessage is a member.
type beeMessage struct {
	ID         *string `json:"id"`
	Topic      *string `json:"topic"`
	Body       *string `json:"body"`
	ExecTime   int64   `json:"execTime"`
	RetryCount int64   `json:"retryCount"`
	CreateTime int64   `json:"createTime"`
}

func (s *source) readBee(e *entry) (m punctual.NewMessage, p *problem) {
	var b beeMessage
	if err := json.Unmarshal([]byte(e.member), &b); err != nil {
		return m, problemf(BadLayout, "the member is not a message of BeeDelayQueue: %v", err)
	}
	if b.ID == nil || *b.ID == "" || b.Body == nil || b.Topic == nil {
		return m, problemf(BadLayout, "the member is not a message of BeeDelayQueue: it has no id, topic or body")
	}
	if *b.Topic != s.name {
		return m, problemf(BadLayout, "the message says that it is of topic %q", *b.Topic)
	}
	m.ID = e.keep(*b.ID, makeID(BeeDelayQueue, s.name, e.member))
	m.Body = []byte(*b.Body)
	m.Headers = map[string]string{
		beeHeaderCreated: strconv.FormatInt(b.CreateTime, 10),
		beeHeaderRetry:   strconv.FormatInt(b.RetryCount, 10),
	}
	return m, nil
}
