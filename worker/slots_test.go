package worker

import "testing"

// TestSlotsKept: how many slots a topic may take, by how many slots and topics there are, and how
// many slots each other topic may take beside it then.
func TestSlotsKept(t *testing.T) {
	for _, c := range []struct{ slots, topics, most, others int }{
		{16, 3, 14, 1},
		{16, 1, 16, 0},
		{4, 4, 1, 1},
		{4, 9, 3, 1}, // one slot is kept for all other topics together
		{1, 3, 1, 0}, // no slot is kept
	} {
		var s slots
		s.init(c.slots)
		s.serves(c.topics, false)
		var all []*polled
		for range c.topics {
			all = append(all, &polled{route: &route{}})
		}
		hangs := all[0].route
		for range 3 * c.slots { // each claim brings as much as it may, all of one topic
			chosen, r := s.reserve(all[:1], s.total)
			if len(chosen) == 0 {
				break
			}
			got := make([]*message, r.slots)
			for i := range got {
				got[i] = &message{route: hangs}
			}
			s.settle(r, got)
		}
		if hangs.busy != c.most {
			t.Errorf("%d slots, %d topics: one has %d slots, want %d", c.slots, c.topics, hangs.busy, c.most)
		}
		reserved := 0
		for _, p := range all[1:] {
			chosen, r := s.reserve([]*polled{p}, s.total)
			if len(chosen) > 0 {
				reserved = max(reserved, r.slots)
				s.settle(r, []*message{{route: p.route}})
			}
		}
		if reserved != c.others {
			t.Errorf("%d slots, %d topics: the others get %d at a time beside it, want %d", c.slots, c.topics, reserved, c.others)
		}
	}
}

// TestSlotsOfClaimsUnderWay: a slot that a claim under way has reserved serves one of the topics
// without a slot. So the topic that the claim left out may have one slot more.
func TestSlotsOfClaimsUnderWay(t *testing.T) {
	var s slots
	s.init(8)
	s.serves(3, false)
	a, b, c := &polled{route: &route{}}, &polled{route: &route{}}, &polled{route: &route{}}
	_, r := s.reserve([]*polled{a, b, c}, s.total)
	if r.slots != 6 || r.covers != 1 {
		t.Fatalf("the first claim is for %d, want 6: two slots are kept", r.slots)
	}
	got := make([]*message, r.slots)
	for i := range got {
		got[i] = &message{route: a.route}
	}
	s.settle(r, got)
	chosen, r := s.reserve([]*polled{a, b, c}, s.total)
	if len(chosen) != 2 || r.slots != 2 || r.perTopic != 1 || r.covers != 2 {
		t.Fatalf("the second claim is for %+v of %d topics, want 1 for each of the two without a slot", r, len(chosen))
	}
	if chosen, _ := s.reserve([]*polled{a}, s.total); len(chosen) != 0 {
		t.Error("a topic takes the slot that is kept for another")
	}
	s.release(a.route, 0)
	if chosen, r := s.reserve([]*polled{a}, s.total); len(chosen) != 1 || r.slots != 1 {
		t.Errorf("%d topics, %d messages: want the slot that came back for the topic that was left out", len(chosen), r.slots)
	}
}

// TestSlotsOfLimitedTopics: a topic with MaxSlots bounds the share of each topic in a claim, which
// asks for no more than can come.
func TestSlotsOfLimitedTopics(t *testing.T) {
	one, five := &polled{route: &route{maxSlots: 1}}, &polled{route: &route{maxSlots: 5}}
	for _, topics := range [][]*polled{{one, five}, {five, one}} { // the smaller limit bounds the claim, wherever its topic stands
		var s slots
		s.init(16)
		s.serves(2, true)
		if chosen, r := s.reserve(topics, s.total); len(chosen) != 2 || r.perTopic != 1 {
			t.Errorf("a claim of %d topics, of which one may have 1 slot, is for %d messages of each; want 2 topics and 1", len(chosen), r.perTopic)
		}
	}
	var s slots
	s.init(16)
	s.serves(2, true)
	limited, other := &polled{route: &route{maxSlots: 3}}, &polled{route: &route{}}
	chosen, r := s.reserve([]*polled{limited, other}, s.total)
	if len(chosen) != 2 || r.slots != 6 || r.perTopic != 3 {
		t.Fatalf("a claim of %d topics for %d messages, %d of each; want 2, 6 and 3", len(chosen), r.slots, r.perTopic)
	}
	s.settle(r, []*message{{route: limited.route}, {route: limited.route}, {route: limited.route}, {route: other.route}})
	chosen, r = s.reserve([]*polled{limited, other}, s.total)
	if len(chosen) != 1 || r.slots != 12 || r.perTopic != 0 {
		t.Errorf("beside a topic at its limit a claim of %d topics is for %d messages, %d of each; want 1 and all 12 slots", len(chosen), r.slots, r.perTopic)
	}
}
