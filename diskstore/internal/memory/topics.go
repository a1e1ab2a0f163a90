package memory

import "github.com/punctualmq/punctual/internal/heap"

// topicSet has topics in no order.
type topicSet struct {
	topics []*Topic
	place  func(t *Topic) *int // where a topic keeps its place in the set: -1 outside
}

// update puts a topic in, or takes it out.
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

// byDiskNext is the order of the topics to load.
var byDiskNext = heap.Order[*Topic]{
	Before: func(a, b *Topic) bool { return a.diskNext.Ms < b.diskNext.Ms },
	Place:  func(t *Topic) *int { return &t.toLoadAt },
}
