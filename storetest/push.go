package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// pushCases: does what was pushed come back, once, as it was?
func pushCases() []testCase {
	return []testCase{
		{"comes back as pushed", p1, pushComesBack},
		{"can be looked up", p1, pushCanBeLookedUp},
		{"empty body and headers", p1, pushEmptyBody},
		{"binary body", p1, pushBinaryBody},
		{"headers of any text", p1, pushAnyHeaders},
		{"largest body and headers", p1, pushLargest},
		{"every printable ID", p1, pushEveryID},
		{"makes IDs", p7, pushMakesIDs},
		{"results in order", p13, pushResultsInOrder},
		{"bad item does not stop others", p13, pushBadItem},
		{"no messages", p13, pushNothing},
		{"largest batch", p1, pushLargestBatch},
		{"same ID in two topics", p7, pushTwoTopics},
		{"names do not run together", p7, pushNamesApart},
		{"due in the past", p2, pushPast},
		{"due at the end of time", p9, pushEndOfTime},
		{"due beyond the end of time", p9, pushBeyond},
		{"far delays do not overflow", p9, pushFar},
	}
}

func pushComesBack(s *harness) {
	m := punctual.NewMessage{
		Topic: orders, ID: "o-1", Body: []byte(`{"order":1}`), Headers: map[string]string{"trace": "abc", "empty": ""},
		Delay: time.Minute, MaxAttempts: 7, ExpireAfter: time.Hour, DropExpired: true, Remember: 1500 * time.Microsecond,
		Timeout: 2500 * time.Microsecond,
	}
	r := s.push(m)
	if r.ID != m.ID || r.Topic != m.Topic || !r.Due.Equal(noon.Add(time.Minute)) {
		s.fail("the result of a push says %+v; want ID %s, topic %s, due %v", r, m.ID, m.Topic, noon.Add(time.Minute))
	}
	s.advance(time.Minute)
	d := s.one(orders)
	s.wantMessage(d.Message, m, noon, r.Due)
	if d.Attempt != 1 || len(d.Failures) != 0 {
		s.fail("the first delivery is attempt %d with history %v; want 1 and none", d.Attempt, d.Failures)
	}
	s.ack(d)
	s.advance(24 * time.Hour)
	s.none(orders, "a day after the ack")
}

// wantMessage compares a stored message with the one that was pushed. created is when it was
// pushed, and due both its due time and its first due time.
func (s *harness) wantMessage(got punctual.Message, m punctual.NewMessage, created, due time.Time) {
	s.Helper()
	if got.ID != m.ID || got.Topic != m.Topic {
		s.fail("%s/%s came back as %s/%s", m.Topic, m.ID, got.Topic, got.ID)
	}
	if !bytes.Equal(got.Body, m.Body) {
		s.fail("the body of %s came back as %d bytes %.40q; want %d bytes %.40q", m.ID, len(got.Body), got.Body, len(m.Body), m.Body)
	}
	if !maps.Equal(got.Headers, m.Headers) {
		s.fail("the headers of %s came back as %.80q; want %.80q", m.ID, fmt.Sprint(got.Headers), fmt.Sprint(m.Headers))
	}
	if !got.Due.Equal(due) || !got.FirstDue.Equal(due) || !got.Created.Equal(created) {
		s.fail("%s is due %v, first %v, created %v; want %v, the same and %v", m.ID, got.Due, got.FirstDue, got.Created, due, created)
	}
	if want := storekit.ExpiresAt(due, m.ExpireAfter); !got.Expires.Equal(want) || got.DropExpired != m.DropExpired {
		s.fail("%s expires %v, dropped %v; want %v, %v", m.ID, got.Expires, got.DropExpired, want, m.DropExpired)
	}
	if want := storekit.WholeMillis(m.Remember); got.Remember != want {
		s.fail("%s is remembered for %v; want %v", m.ID, got.Remember, want)
	}
	if want := storekit.WholeMillis(m.Timeout); got.Timeout != want {
		s.fail("%s has a timeout of %v; want %v", m.ID, got.Timeout, want)
	}
	if got.MaxAttempts != m.MaxAttempts {
		s.fail("%s has MaxAttempts %d; want %d", m.ID, got.MaxAttempts, m.MaxAttempts)
	}
}

func pushCanBeLookedUp(s *harness) {
	s.inspector()
	m := order("o-1", time.Minute)
	m.Headers = map[string]string{"k": "v"}
	m.ExpireAfter, m.Remember = time.Hour, limits.MaxFinishedRetention
	r := s.push(m)
	info := s.get(orders, "o-1")
	s.wantMessage(info.Message, m, noon, r.Due)
	if info.State != punctual.StateScheduled || info.Attempt != 0 || !info.LeaseUntil.IsZero() || !info.Died.IsZero() {
		s.fail("a scheduled message is shown as %+v", info)
	}
}

func pushEmptyBody(s *harness) {
	bodies := map[string][]byte{"nil": nil, "empty": {}}
	for id, body := range bodies {
		s.push(punctual.NewMessage{Topic: orders, ID: id, Body: body, Headers: map[string]string{}})
	}
	for _, d := range s.take(orders, 10) {
		if d.Body != nil {
			s.fail("an empty body came back as %#v; want nil", d.Body)
		}
		if d.Headers != nil {
			s.fail("no headers came back as %#v; want nil", d.Headers)
		}
		delete(bodies, d.ID)
	}
	if len(bodies) != 0 {
		s.fail("messages with an empty body were not delivered: %v", bodies)
	}
}

func pushBinaryBody(s *harness) {
	m := punctual.NewMessage{Topic: orders, ID: "bytes"}
	for i := range 4 * 256 {
		m.Body = append(m.Body, byte(i))
	}
	s.push(m)
	s.wantMessage(s.one(orders).Message, m, noon, noon)
}

func pushAnyHeaders(s *harness) {
	m := punctual.NewMessage{Topic: orders, ID: "h", Headers: map[string]string{
		"": "empty name", "empty value": "", "quote\"s": "it's \\ {} [] ,;=", "line\nbreak": "a\r\nb\tc", "ünï": "日本 ☎", "not UTF-8 \xff": "\xfe\x00",
	}}
	s.push(m)
	s.wantMessage(s.one(orders).Message, m, noon, noon)
}

func pushLargest(s *harness) {
	m := punctual.NewMessage{
		Topic: orders, ID: "big", Body: bytes.Repeat([]byte("0123456789abcdef"), limits.DefaultMaxBody/16),
		Headers: map[string]string{"k": string(bytes.Repeat([]byte("v"), limits.MaxHeaderBytes-1))},
	}
	s.push(m)
	s.wantMessage(s.one(orders).Message, m, noon, noon)
}

func pushEveryID(s *harness) {
	want := map[string]bool{string(bytes.Repeat([]byte("z"), limits.MaxIDBytes)): true}
	for c := byte(' '); c <= '~'; c++ {
		want[string(c)] = true
		want["a"+string(c)+"b"] = true
	}
	for id := range want {
		s.push(order(id, 0))
	}
	for _, d := range s.take(orders, limits.MaxClaim) {
		if !want[d.ID] {
			s.fail("ID %q was delivered but not pushed", d.ID)
		}
		delete(want, d.ID)
		s.ack(d)
	}
	if len(want) != 0 {
		s.fail("%d IDs were not delivered, among them %q", len(want), anyKey(want))
	}
}

func anyKey(m map[string]bool) string {
	for k := range m {
		return k
	}
	return ""
}

func pushMakesIDs(s *harness) {
	batch := make([]punctual.NewMessage, 100)
	for i := range batch {
		batch[i] = punctual.NewMessage{Topic: orders, IfExists: punctual.IfExistsFail}
	}
	pushed := make(map[string]bool)
	var newest string // the greatest ID that was made so far
	for range 3 {
		before := newest
		s.advance(time.Millisecond)
		for _, r := range s.pushAll(batch...) {
			if r.ID <= before {
				s.fail("ID %q was made after %q, a millisecond later, and does not sort behind it", r.ID, before)
			}
			newest = max(newest, r.ID)
			if r.Err != nil || r.Status != punctual.PushStored || storekit.CheckID(r.ID) != nil {
				s.fail("a push without an ID gave ID %q, status %q, error %v", r.ID, r.Status, r.Err)
			}
			pushed[r.ID] = true
		}
	}
	if len(pushed) != 300 {
		s.fail("300 pushes without an ID made %d different ones", len(pushed))
	}
	for _, d := range s.take(orders, 1000) {
		delete(pushed, d.ID)
	}
	if len(pushed) != 0 {
		s.fail("%d messages with made IDs were not delivered", len(pushed))
	}
}

func pushResultsInOrder(s *harness) {
	var batch []punctual.NewMessage
	for i := range 50 {
		batch = append(batch, order(fmt.Sprintf("o-%02d", i*7%50), time.Duration(i)*time.Second))
	}
	for i, r := range s.pushAll(batch...) {
		if r.ID != batch[i].ID || r.Topic != orders || !r.Due.Equal(noon.Add(batch[i].Delay)) {
			s.fail("result %d is for %s, due %v; want %s, due %v", i, r.ID, r.Due, batch[i].ID, noon.Add(batch[i].Delay))
		}
	}
}

func pushBadItem(s *harness) {
	rs := s.pushAll(
		order("first", 0),
		punctual.NewMessage{Topic: "", ID: "bad"},
		order("second", 0),
		punctual.NewMessage{Topic: orders, ID: "bad", Delay: -time.Second},
		order("third", 0),
	)
	for i, r := range rs {
		if i%2 == 1 {
			s.wantErr(r.Err, punctual.ErrInvalid, "malformed item %d of a batch", i)
			if r.Status != punctual.PushNone {
				s.fail("malformed item %d of a batch has status %q; want none", i, r.Status)
			}
		} else if r.Err != nil || r.Status != punctual.PushStored {
			s.fail("sound item %d beside malformed ones: status %q, error %v; want stored", i, r.Status, r.Err)
		}
	}
	if got := s.take(orders, 10); len(got) != 3 {
		s.fail("3 sound items of a batch were stored, %v delivered", ids(got))
	}
}

func pushNothing(s *harness) {
	if rs, err := s.store.Push(s.ctx, nil); err != nil || len(rs) != 0 {
		s.fail("push of no messages: %v, %v; want no results and no error", rs, err)
	}
	if rs, err := s.store.Settle(s.ctx, nil); err != nil || len(rs) != 0 {
		s.fail("settle of no leases: %v, %v; want no results and no error", rs, err)
	}
	if rs, err := s.store.Amend(s.ctx, nil); err != nil || len(rs) != 0 {
		s.fail("amend of no messages: %v, %v; want no outcomes and no error", rs, err)
	}
}

func pushLargestBatch(s *harness) {
	batch := make([]punctual.NewMessage, limits.MaxBatch)
	for i := range batch {
		batch[i] = punctual.NewMessage{Topic: orders, ID: fmt.Sprintf("o-%05d", i), Body: []byte{byte(i), byte(i >> 8)}}
	}
	for i, r := range s.pushAll(batch...) {
		if r.Err != nil || r.Status != punctual.PushStored {
			s.fail("item %d of the largest batch: status %q, error %v", i, r.Status, r.Err)
		}
	}
	ds := s.take(orders, limits.MaxClaim)
	if len(ds) != len(batch) {
		s.fail("%d of %d messages of one batch were delivered", len(ds), len(batch))
	}
	acks := make([]punctual.Settlement, len(ds))
	for i, d := range ds {
		acks[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}
	}
	errs, err := s.store.Settle(s.ctx, acks)
	if err = errors.Join(append(errs, err)...); err != nil {
		s.fail("ack of the largest batch: %v", err)
	}
	s.advance(time.Hour)
	s.none(orders, "after all were acked")
}

func pushTwoTopics(s *harness) {
	s.push(punctual.NewMessage{Topic: orders, ID: x, Body: []byte("order")})
	s.push(punctual.NewMessage{Topic: mails, ID: x, Body: []byte("mail"), IfExists: punctual.IfExistsFail})
	s.outcome(cancel(orders, x), nil, isReady)
	if d := s.one(mails); string(d.Body) != "mail" {
		s.fail("mails/x has body %q", d.Body)
	}
	s.none(orders, "after orders/x was cancelled")
}

// pushNamesApart: a topic and an ID do not run into one name, whatever bytes they consist of.
func pushNamesApart(s *harness) {
	names := [][2]string{
		{"a", "b:c"},
		{"a:b", "c"},
		{"a", "b/c"},
		{"a/b", "c"},
		{"A", "b:c"},
		{"a", "B:C"},
		{"a-", "b"},
		{"a.", "b"},
		{"a", " b"},
		{"aa", "b"},
		{"a", "ab"},
		{"a:", "b"},
		{"a", ":b"},
	}
	for _, n := range names {
		s.push(punctual.NewMessage{Topic: n[0], ID: n[1], Body: []byte(n[0] + " " + n[1])})
	}
	seen := make(map[string]bool)
	for _, n := range names {
		for _, d := range s.take(n[0], 100) {
			if d.Topic != n[0] || string(d.Body) != d.Topic+" "+d.ID {
				s.fail("a claim from %q returned %q/%q with body %q", n[0], d.Topic, d.ID, d.Body)
			}
			seen[string(d.Body)] = true
		}
	}
	if len(seen) != len(names) {
		s.fail("%d messages with names that look alike were pushed, %d delivered", len(names), len(seen))
	}
}

func pushPast(s *harness) {
	past := []time.Time{noon.Add(-time.Millisecond), noon.Add(-time.Hour), time.UnixMilli(0), time.UnixMilli(-1), time.Date(1, 1, 1, 0, 0, 0, 1e6, time.UTC)}
	for i, due := range past {
		if r := s.push(punctual.NewMessage{Topic: orders, ID: fmt.Sprint(i), Due: due}); !r.Due.Equal(due) {
			s.fail("a push due %v in the past reports due %v", due, r.Due)
		}
	}
	ds := s.take(orders, 10)
	if len(ds) != len(past) {
		s.fail("%d of %d messages due in the past were delivered at once", len(ds), len(past))
	}
	s.under(p12, func() { s.wantOrder(ds, "4", "3", "2", "1", "0") })
}

func pushEndOfTime(s *harness) {
	if r := s.push(punctual.NewMessage{Topic: orders, ID: "last", Due: limits.MaxDue, ExpireAfter: time.Hour}); !r.Due.Equal(limits.MaxDue) {
		s.fail("a push due %v reports due %v", limits.MaxDue, r.Due)
	}
	s.push(order("near", time.Second))
	s.none(orders, "at once")
	s.advance(time.Second)
	d := s.one(orders)
	if d.ID != "near" {
		s.Fatalf("%s: a message due in the year 9999 was delivered in 2026", p2)
	}
	s.ack(d)
	s.clock.Set(limits.MaxDue.Add(-time.Millisecond))
	s.under(p2, func() { s.none(orders, "1 ms before the end of time") })
	s.clock.Set(limits.MaxDue)
	if d := s.one(orders); d.ID != "last" || !d.Due.Equal(limits.MaxDue) {
		s.fail("at the end of time %s due %v was delivered; want last due %v", d.ID, d.Due, limits.MaxDue)
	}
}

func pushBeyond(s *harness) {
	beyond := map[string]punctual.NewMessage{
		"100 µs beyond":          {Due: limits.MaxDue.Add(100 * time.Microsecond)},
		"1 ms beyond":            {Due: limits.MaxDue.Add(time.Millisecond)},
		"year 10000":             {Due: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"year 292277026596":      {Due: time.Unix(1<<63-1-62135596801, 0)},
		"2^63-1 ms":              {Due: time.UnixMilli(1<<63 - 1)},
		"before the year 1":      {Due: time.Date(0, 12, 31, 0, 0, 0, 0, time.UTC)},
		"1e13 ms that overflows": {Delay: func(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }(1e13)},
		"2^63-1 ns and a due":    {Delay: 1<<63 - 1, Due: noon},
	}
	for name, m := range beyond {
		m.Topic, m.ID = orders, x
		r := s.try(m)
		s.wantErr(r.Err, punctual.ErrInvalid, "a push due %s", name)
	}
	s.none(orders, "after pushes due beyond all bounds were refused")
	s.wantState(orders, x, punctual.StateNone)
	s.clock.Set(limits.MaxDue.Add(-time.Second))
	r := s.try(order(x, time.Hour))
	s.wantErr(r.Err, punctual.ErrInvalid, "a delay that leads beyond %v", limits.MaxDue)
}

func pushFar(s *harness) {
	far := map[string]punctual.NewMessage{
		"1e13 ms":     {Due: time.UnixMilli(1e13)},
		"2^31 ms":     {Delay: 1 << 31 * time.Millisecond},
		"2^32 ms":     {Delay: 1 << 32 * time.Millisecond},
		"2^32+1 ms":   {Delay: (1<<32 + 1) * time.Millisecond},
		"2^40 ms":     {Delay: 1 << 40 * time.Millisecond},
		"2^63-1 ns":   {Delay: 1<<63 - 1},
		"year 2262":   {Due: time.Date(2262, 4, 12, 0, 0, 0, 0, time.UTC)},
		"year 2300":   {Due: time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)},
		"2^53-ish ms": {Due: time.UnixMilli(253402300799998)},
	}
	for name, m := range far {
		m.Topic, m.ID = orders, name
		want, err := storekit.DueAt(noon, m.Due, m.Delay)
		if err != nil {
			s.fail("DueAt of %s: %v", name, err)
		}
		if r := s.push(m); !r.Due.Equal(want) {
			s.fail("a push due in %s reports due %v; want %v", name, r.Due, want)
		}
	}
	s.none(orders, "right after pushes due far away")
	s.advance(1<<31*time.Millisecond - time.Millisecond)
	s.none(orders, "1 ms before the first of them is due")
	s.advance(time.Millisecond)
	if d := s.one(orders); d.ID != "2^31 ms" {
		s.fail("%s was delivered after 2^31 ms", d.ID)
	}
}
