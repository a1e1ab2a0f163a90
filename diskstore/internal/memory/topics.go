package memory

import "github.com/punctualmq/punctual/internal/heap"

// topicSet is a set of topics without an order.
type topicSet struct {
	topics []*Topic
	place  func(t *Topic) *int // where a topic keeps its place in the set: -1 outside
}

// update adds a topic if in is true, and removes it otherwise.
func (s *topicSet) update(t *Topic, in bool) {
	at := s.place(t)
	switch {
	case in && *at < 0:
		*at = len(s.topics)
		s.topics = append(s.topics, t)
	case !in && *at >= 0:
		last := s.topics[len(s.topics)-1]
		s.topics[*at], *s.place(last) = last, *at
		s.topics[len(s.topics)-1] = nil
		s.topics = s.topics[:len(s.topics)-1]
		*at = -1
	}
}

// byDiskNext orders the topics to load by the time of their next message on disk.
var byDiskNext = heap.Order[*Topic]{
	Before: func(a, b *Topic) bool { return a.diskNext.Ms < b.diskNext.Ms },
	Place:  func(t *Topic) *int { return &t.toLoadAt },
}
