package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/compare"
)

// inspectCases: is what people are shown true?
func inspectCases() []testCase {
	return []testCase{
		{"get in every state", p13, inspectGet},
		{"get what is not there", p13, inspectGetNothing},
		{"list in order", p13, inspectList},
		{"list page by page", p13, inspectPages},
		{"list between two times", p13, inspectListRange},
		{"list from the end", p13, inspectDescending},
		{"list that turns round", p13, inspectTurn},
		{"list without bodies", p13, inspectBare},
		{"list messages of the same time page by page", p13, inspectSameTime},
		{"list by reason", p13, inspectReason},
		{"list few by reason among many dead", p13, inspectReasonFew},
		{"list while messages go", p13, inspectListMoving},
		{"malformed list", p13, inspectListMalformed},
		{"list of a hundred by default", p13, inspectDefaultLimit},
		{"scan", p13, inspectScan},
		{"durability class", p13, inspectDurability},
		{"statistics", p13, inspectStats},
		{"statistics of every topic", p13, inspectAllStats},
		{"forecast", p13, inspectForecast},
		{"forecast from a time past", p13, inspectForecastFrom},
		{"forecast over all time", p13, inspectForecastAll},
		{"forecast in steps of broken milliseconds", p13, inspectForecastFine},
		{"malformed forecast", p13, inspectForecastMalformed},
		{"survey", p13, inspectSurvey},
		{"next due times", p13, inspectNextDue},
		{"malformed survey", p13, inspectSurveyMalformed},
	}
}

// list reads all pages and checks that each is well-formed.
func (s *harness) list(q punctual.ListQuery) []punctual.Info {
	s.Helper()
	all, err := compare.List(s.ctx, s.inspector(), q)
	if err != nil {
		s.fail("%v", err)
	}
	return all
}

// wantList compares the IDs of a list, all pages of it, with the wanted ones in order.
func (s *harness) wantList(q punctual.ListQuery, want ...string) {
	s.Helper()
	var got []string
	for _, i := range s.list(q) {
		got = append(got, i.ID)
	}
	if !slices.Equal(got, want) {
		s.fail("a list of %s messages (limit %d, from %v to %v) shows %v; want %v", q.State, q.Limit, q.From, q.To, got, want)
	}
}

func inspectGet(s *harness) {
	s.inspector()
	s.eachSituation(func(s *harness, at situation, last punctual.Delivery) {
		if at.state == punctual.StateNone {
			_, err := s.inspector().Get(s.ctx, orders, x)
			s.wantErr(err, punctual.ErrNotFound, "Get of a message that is %s", at.name)
			return
		}
		info := s.get(orders, x)
		if info.State != at.state || info.Attempt != last.Attempt || string(info.Body) != "body of x" {
			s.fail("a message that is %s is shown %s, attempt %d, body %q; want %s, %d", at.name, info.State, info.Attempt, info.Body, at.state, last.Attempt)
		}
		if leased := at.state == punctual.StateLeased; leased != !info.LeaseUntil.IsZero() {
			s.fail("a message that is %s shows the end of its lease as %v", at.name, info.LeaseUntil)
		}
		if dead := at.state == punctual.StateDead; dead == info.Died.IsZero() || dead == (info.Reason == "") {
			s.fail("a message that is %s shows died %v, reason %q", at.name, info.Died, info.Reason)
		}
	})
}

func inspectGetNothing(s *harness) {
	in := s.inspector()
	s.push(order(x, 0))
	for _, name := range [][2]string{{orders, "y"}, {mails, x}, {"never-heard-of", x}, {orders, x + " "}} {
		_, err := in.Get(s.ctx, name[0], name[1])
		s.wantErr(err, punctual.ErrNotFound, "Get of %q/%q", name[0], name[1])
	}
	for _, name := range [][2]string{{"", x}, {"a b", x}, {orders, ""}, {orders, "\x00"}} {
		if _, err := in.Get(s.ctx, name[0], name[1]); !errors.Is(err, punctual.ErrInvalid) && !errors.Is(err, punctual.ErrNotFound) {
			s.fail("Get of %q/%q: got error %v; want %v or %v", name[0], name[1], err, punctual.ErrInvalid, punctual.ErrNotFound)
		}
	}
}

// fillStates fills topic orders with n messages in each state; message i of a state has
// the i-th time of it, a second apart.
func (s *harness) fillStates(n int) {
	s.Helper()
	id := func(state string, i int) string { return fmt.Sprintf("%s-%02d", state, i) }
	for i := range n {
		s.push(punctual.NewMessage{Topic: orders, ID: id("dead", i), Due: noon.Add(-time.Hour)})
		s.done(s.one(orders), punctual.SettleDiscard, 0)
		s.push(punctual.NewMessage{Topic: orders, ID: id("leased", i), Due: noon.Add(-time.Hour)})
		if ds := s.claim(punctual.Claim{Topics: []string{orders}, Max: 1, Lease: time.Hour}); len(ds) != 1 {
			s.fail("claimed %v; want one message to hold", ids(ds))
		}
		s.advance(time.Second)
	}
	for i := range n {
		j := i * 7 % n
		s.push(order(id("scheduled", j), time.Duration(j+1)*time.Second))
		s.push(punctual.NewMessage{Topic: orders, ID: id("ready", j), Due: noon.Add(-time.Duration(n-j) * time.Second)})
	}
}

// stateIDs returns the IDs of the messages that fillStates made in a state, from number from up to
// number to-1.
func stateIDs(state punctual.State, from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("%s-%02d", state, i))
	}
	return out
}

// States are all states that a message may have.
func States() []punctual.State {
	return []punctual.State{punctual.StateScheduled, punctual.StateReady, punctual.StateLeased, punctual.StateDead}
}

func inspectList(s *harness) {
	s.inspector()
	s.fillStates(10)
	for _, state := range States() {
		s.wantList(punctual.ListQuery{Topic: orders, State: state}, stateIDs(state, 0, 10)...)
		s.wantList(punctual.ListQuery{Topic: mails, State: state})
	}
}

func inspectPages(s *harness) {
	s.inspector()
	s.fillStates(10)
	for _, state := range States() {
		for _, limit := range []int{1, 3, 5, 9, 10, 11, 10_000} {
			s.wantList(punctual.ListQuery{Topic: orders, State: state, Limit: limit}, stateIDs(state, 0, 10)...)
		}
	}
}

// inspectDescending: a list from its end shows what the list from its beginning shows, in the
// reverse order, however it is divided into pages.
func inspectDescending(s *harness) {
	s.inspector()
	s.fillStates(10)
	for range 6 { // at one time, so that the order of those of one time is reversed, too
		s.push(punctual.NewMessage{Topic: orders, Due: noon.Add(time.Hour)})
	}
	for _, state := range States() {
		forwards := s.list(punctual.ListQuery{Topic: orders, State: state})
		at := func(i int) time.Time { return compare.SortTime(forwards[i]) }
		for _, r := range []struct {
			from, to   time.Time
			first, end int
		}{
			{first: 0, end: len(forwards)},
			{from: at(3), first: 3, end: len(forwards)},
			{from: at(3).Add(1), first: 4, end: len(forwards)},
			{to: at(3), first: 0, end: 3},
			{from: at(2), to: at(7), first: 2, end: 7},
			{from: at(2), to: at(2), first: 0, end: 0},
		} {
			want := infoIDs(forwards[r.first:r.end])
			slices.Reverse(want)
			for _, limit := range []int{1, 2, 4, 5, 100} {
				s.wantList(punctual.ListQuery{Topic: orders, State: state, From: r.from, To: r.to, Limit: limit, Descending: true}, want...)
			}
		}
	}
	var want []string
	for i := 9; i >= 0; i-- {
		want = append(want, fmt.Sprintf("dead-%02d", i))
	}
	for _, limit := range []int{3, 100} {
		s.wantList(punctual.ListQuery{Topic: orders, State: punctual.StateDead, Reason: punctual.ReasonDiscarded, Limit: limit, Descending: true}, want...)
	}
}

// inspectTurn: the cursor of a page can be used in the other direction, too. The list then goes
// back over the page, without the message at the cursor.
func inspectTurn(s *harness) {
	in := s.inspector()
	s.fillStates(10)
	for _, state := range States() {
		p, err := in.List(s.ctx, punctual.ListQuery{Topic: orders, State: state, Limit: 4})
		if err != nil || p.Next == "" {
			s.fail("a page of 4 of 10 %s messages goes on at %q, %v; want a cursor", state, p.Next, err)
		}
		want := stateIDs(state, 0, 3)
		slices.Reverse(want)
		s.wantList(punctual.ListQuery{Topic: orders, State: state, Limit: 2, After: p.Next, Descending: true}, want...)
	}
}

// inspectBare: a bare list has all but the bodies.
func inspectBare(s *harness) {
	in := s.inspector()
	s.fillStates(3)
	s.push(punctual.NewMessage{Topic: mails, ID: x, Body: []byte("a body"), Headers: map[string]string{"campaign": "autumn"}, Due: noon.Add(time.Hour)})
	for _, topic := range []string{orders, mails} {
		for _, state := range States() {
			whole := s.list(punctual.ListQuery{Topic: topic, State: state})
			bare := s.list(punctual.ListQuery{Topic: topic, State: state, Bare: true})
			if len(whole) != len(bare) {
				s.fail("a bare list of %s messages shows %v; want %v", state, infoIDs(bare), infoIDs(whole))
			}
			for i := range whole {
				if bare[i].Body != nil {
					s.fail("a bare list shows %s with the body %q", bare[i].ID, bare[i].Body)
				}
				whole[i].Body = nil
				if diff := compare.Info(bare[i], whole[i]); diff != "" {
					s.fail("a bare list shows %s otherwise than a list with bodies: %s", bare[i].ID, diff)
				}
			}
		}
	}
	i, err := in.Get(s.ctx, mails, x)
	if err != nil || string(i.Body) != "a body" {
		s.fail("Get behind a bare list shows the body %q, %v", i.Body, err)
	}
}

func inspectListRange(s *harness) {
	s.inspector()
	s.fillStates(10)
	for _, state := range States() {
		all := s.list(punctual.ListQuery{Topic: orders, State: state})
		at := func(i int) time.Time { return compare.SortTime(all[i]) }
		for _, r := range []struct {
			from, to   time.Time
			first, end int
		}{
			{at(0), time.Time{}, 0, 10},
			{at(3), time.Time{}, 3, 10},
			{at(3).Add(1), time.Time{}, 4, 10},
			{time.Time{}, at(3), 0, 3},
			{time.Time{}, at(3).Add(1), 0, 4},
			{at(2), at(7), 2, 7},
			{at(2), at(2), 0, 0},
			{at(2), at(2).Add(time.Millisecond), 2, 3},
			{at(9).Add(time.Second), time.Time{}, 0, 0},
			{time.Time{}, at(0), 0, 0},
		} {
			for _, limit := range []int{2, 100} {
				q := punctual.ListQuery{Topic: orders, State: state, From: r.from, To: r.to, Limit: limit}
				s.wantList(q, stateIDs(state, r.first, r.end)...)
			}
		}
	}
}

func inspectSameTime(s *harness) {
	s.inspector()
	const n = 25
	for i := range n {
		s.push(punctual.NewMessage{Topic: orders, ID: fmt.Sprint(i), Due: noon.Add(time.Hour)})
	}
	var first []string
	for _, limit := range []int{25, 24, 5, 4, 1} {
		var got []string
		seen := make(map[string]bool)
		for _, i := range s.list(punctual.ListQuery{Topic: orders, State: punctual.StateScheduled, Limit: limit}) {
			if seen[i.ID] {
				s.fail("%s is on two pages of %d messages of the same time", i.ID, limit)
			}
			seen[i.ID] = true
			got = append(got, i.ID)
		}
		if len(got) != n {
			s.fail("pages of %d show %d of %d messages of the same time", limit, len(got), n)
		}
		if first == nil {
			first = got
		}
		if !slices.Equal(got, first) {
			s.fail("pages of %d show messages of the same time as %v; one page shows them as %v", limit, got, first)
		}
	}
}

// inspectListMoving: every message is shown once although the message that a page ended with is
// cancelled before the next page is read.
func inspectListMoving(s *harness) {
	in := s.inspector()
	for i := range 20 {
		s.push(order(fmt.Sprintf("%02d", i), time.Duration(i+1)*time.Second))
	}
	q := punctual.ListQuery{Topic: orders, State: punctual.StateScheduled, Limit: 5}
	seen := make(map[string]int)
	for pages := 0; pages < 10; pages++ {
		p, err := in.List(s.ctx, q)
		if err != nil {
			s.fail("List: unexpected error: %v", err)
		}
		for _, i := range p.Messages {
			seen[i.ID]++
		}
		if p.Next == "" {
			break
		}
		if len(p.Messages) > 0 {
			s.outcome(cancel(orders, p.Messages[len(p.Messages)-1].ID), nil, isScheduled)
		}
		q.After = p.Next
	}
	for i := range 20 {
		if id := fmt.Sprintf("%02d", i); seen[id] != 1 {
			s.fail("%s was shown %d times while others went; want once", id, seen[id])
		}
	}
}

func inspectReason(s *harness) {
	s.inspector()
	want := make(map[punctual.DeathReason][]string)
	for i := range 4 {
		d, u, e := fmt.Sprint("discarded", i), fmt.Sprint("used up", i), fmt.Sprint("expired", i)
		s.push(order(d, 0))
		s.done(s.one(orders), punctual.SettleDiscard, 0)
		s.pushAll(punctual.NewMessage{Topic: orders, ID: u, MaxAttempts: 1}, punctual.NewMessage{Topic: mails, ID: e, ExpireAfter: time.Millisecond})
		s.done(s.one(orders), punctual.SettleRetry, 0)
		s.advance(time.Second)
		s.none(mails, "when all are expired")
		want[punctual.ReasonDiscarded] = append(want[punctual.ReasonDiscarded], d)
		want[punctual.ReasonAttemptsUsedUp] = append(want[punctual.ReasonAttemptsUsedUp], u)
	}
	for _, limit := range []int{0, 1, 3} {
		for reason, names := range want {
			got := s.list(punctual.ListQuery{Topic: orders, State: punctual.StateDead, Reason: reason, Limit: limit})
			if !slices.Equal(infoIDs(got), names) {
				s.fail("the list of those %s, in pages of %d, shows %v; want %v", reason, limit, infoIDs(got), names)
			}
		}
		if got := s.list(punctual.ListQuery{Topic: orders, State: punctual.StateDead, Reason: punctual.ReasonExpired, Limit: limit}); len(got) != 0 {
			s.fail("a list of those expired shows %v; want none", infoIDs(got))
		}
	}
	got := s.list(punctual.ListQuery{
		Topic: orders, State: punctual.StateDead, Reason: punctual.ReasonDiscarded, From: noon.Add(time.Second), To: noon.Add(3 * time.Second),
	})
	if !slices.Equal(infoIDs(got), []string{"discarded1", "discarded2"}) {
		s.fail("between two times those discarded are %v; want two", infoIDs(got))
	}
}

// inspectReasonFew: a list by reason finds the few that it selects although more messages are dead
// for another reason than a store reads for one page (storekit.ReadLimit).
func inspectReasonFew(s *harness) {
	s.inspector()
	const most = storekit.ReadLimit * 5 / 4
	ms := make([]punctual.NewMessage, 0, limits.MaxBatch)
	for i := range most {
		if i%(most/2) == most/4 {
			s.push(order(fmt.Sprint("few", i), 0))
			s.done(s.one(orders), punctual.SettleDiscard, 0)
		}
		ms = append(ms, punctual.NewMessage{Topic: orders, ID: fmt.Sprint(i), ExpireAfter: time.Millisecond})
		if len(ms) == cap(ms) || i == most-1 {
			s.pushAll(ms...)
			ms = ms[:0]
			s.advance(time.Second)
			s.none(orders, "when all are expired")
		}
	}
	got := s.list(punctual.ListQuery{Topic: orders, State: punctual.StateDead, Reason: punctual.ReasonDiscarded, Limit: 10})
	if want := []string{fmt.Sprint("few", most/4), fmt.Sprint("few", most*3/4)}; !slices.Equal(infoIDs(got), want) {
		s.fail("the list of 2 discarded among %d expired shows %v; want %v", most, infoIDs(got), want)
	}
}

func infoIDs(is []punctual.Info) []string {
	out := make([]string, len(is))
	for n, i := range is {
		out[n] = i.ID
	}
	return out
}

func inspectListMalformed(s *harness) {
	in := s.inspector()
	s.push(order(x, 0))
	for name, q := range map[string]punctual.ListQuery{
		"no topic":                 {State: punctual.StateReady},
		"a bad topic":              {Topic: "a b", State: punctual.StateReady},
		"no state":                 {Topic: orders},
		"an unknown state":         {Topic: orders, State: 9},
		"a negative limit":         {Topic: orders, State: punctual.StateReady, Limit: -1},
		"a limit of 10001":         {Topic: orders, State: punctual.StateReady, Limit: 10_001},
		"an unknown reason":        {Topic: orders, State: punctual.StateDead, Reason: "bored"},
		"the reason of ready ones": {Topic: orders, State: punctual.StateReady, Reason: punctual.ReasonExpired},
		"a broken cursor":          {Topic: orders, State: punctual.StateReady, After: "\x00 no cursor"},
	} {
		_, err := in.List(s.ctx, q)
		s.wantErr(err, punctual.ErrInvalid, "a list with %s", name)
	}
}

func inspectDefaultLimit(s *harness) {
	in := s.inspector()
	for range 101 {
		s.push(punctual.NewMessage{Topic: orders})
	}
	p, err := in.List(s.ctx, punctual.ListQuery{Topic: orders, State: punctual.StateReady})
	if err != nil || len(p.Messages) != 100 || p.Next == "" {
		s.fail("a list without a limit of 101 messages shows %d, goes on at %q, %v; want 100 and a cursor", len(p.Messages), p.Next, err)
	}
	p, err = in.List(s.ctx, punctual.ListQuery{Topic: orders, State: punctual.StateReady, After: p.Next})
	if err != nil || len(p.Messages) != 1 || p.Next != "" {
		s.fail("the second page shows %d messages, goes on at %q, %v; want the last and no cursor", len(p.Messages), p.Next, err)
	}
}

func inspectScan(s *harness) {
	c, err := punctual.As[storekit.Checker](s.store)
	if err != nil {
		s.Skipf("skipped: the case needs a Checker")
		return
	}
	s.fillStates(5)
	s.push(punctual.NewMessage{Topic: mails})
	var last int64
	r, err := c.Check(s.ctx, func(read int64) {
		if read < last || read > 21 {
			s.Errorf("%s: a scan of 21 messages reported %d read after %d", p13, read, last)
		}
		last = read
	})
	if err != nil || r.Topics != 2 || r.Live != 16 || r.Dead != 5 || len(r.Problems) > 0 {
		s.fail("a scan of 2 topics with 16 live and 5 dead messages reports %+v, %v", r, err)
	}
}

func inspectDurability(s *harness) {
	d, err := punctual.As[storekit.DurabilityReporter](s.store)
	if err != nil {
		s.Skipf("skipped: the case needs a DurabilityReporter")
		return
	}
	switch class := d.Durability(); class {
	case punctual.Fsync, punctual.Replicated, punctual.Volatile:
	default:
		s.fail("the durability class is %q; want fsync, replicated or volatile", class)
	}
}

// wantStats compares the statistics of the topic that want names with want.
func (s *harness) wantStats(want punctual.TopicStats) {
	s.Helper()
	got, err := s.inspector().Stats(s.ctx, want.Topic)
	if err != nil {
		s.fail("Stats of %s: unexpected error: %v", want.Topic, err)
	}
	if d := compare.Stats(got, want); d != "" {
		s.fail("the statistics of %s: %s", want.Topic, d)
	}
}

func inspectStats(s *harness) {
	s.inspector()
	set := s.defaults()
	s.push(order(x, time.Minute))
	s.wantStats(punctual.TopicStats{Topic: orders, Scheduled: 1, NextDue: noon.Add(time.Minute), Settings: set})
	s.push(order("y", time.Second))
	s.wantStats(punctual.TopicStats{Topic: orders, Scheduled: 2, NextDue: noon.Add(time.Second), Settings: set})
	s.advance(time.Second)
	s.wantStats(punctual.TopicStats{Topic: orders, Scheduled: 1, Ready: 1, NextDue: noon.Add(time.Second), Settings: set})
	d := s.one(orders)
	s.wantStats(punctual.TopicStats{Topic: orders, Scheduled: 1, Leased: 1, NextDue: noon.Add(time.Minute), Settings: set})
	s.done(d, punctual.SettleDiscard, 0)
	s.wantStats(punctual.TopicStats{Topic: orders, Scheduled: 1, Dead: 1, NextDue: noon.Add(time.Minute), Settings: set})
	s.outcome(cancel(orders, x), nil, isScheduled)
	s.wantStats(punctual.TopicStats{Topic: orders, Dead: 1, Settings: set})
	s.outcome(requeue(orders, "y", time.Hour), nil, isDead)
	s.wantStats(punctual.TopicStats{Topic: orders, Scheduled: 1, NextDue: noon.Add(time.Hour + time.Second), Settings: set})
	set = s.configure(orders, punctual.SettingsPatch{DeliveryPaused: ptr(true), Lease: ptr(time.Hour)})
	s.wantStats(punctual.TopicStats{Topic: orders, Scheduled: 1, NextDue: noon.Add(time.Hour + time.Second), Settings: set})
}

func inspectAllStats(s *harness) {
	s.inspector()
	for i, topic := range []string{"c", "a", "b"} {
		for range i + 1 {
			s.push(punctual.NewMessage{Topic: topic, Delay: time.Hour})
		}
	}
	all, err := s.inspector().Topics(s.ctx)
	if err != nil || len(all) != 3 {
		s.fail("Topics: %v, %v", all, err)
	}
	for i, want := range []int64{2, 3, 1} {
		topic := string(rune('a' + i))
		if d := compare.Stats(all[i], punctual.TopicStats{Topic: topic, Scheduled: want, NextDue: noon.Add(time.Hour), Settings: s.defaults()}); d != "" {
			s.fail("the statistics of all topics, number %d: %s", i+1, d)
		}
	}
}

// wantForecast compares the counts of a forecast with the wanted ones. q.Step has to be in whole
// milliseconds.
func (s *harness) wantForecast(q punctual.ForecastQuery, counts []int64, overdue, beyond int64) {
	s.Helper()
	f, err := s.inspector().Forecast(s.ctx, q)
	if err != nil {
		s.fail("Forecast: unexpected error: %v", err)
	}
	from := q.From
	if from.IsZero() {
		from = s.now()
	}
	if !f.From.Equal(from.Truncate(time.Millisecond)) || f.Step != q.Step {
		s.fail("a forecast from %v begins %v in steps of %v; want steps of %v", from, f.From, f.Step, q.Step)
	}
	if !slices.Equal(f.Counts, counts) || f.Overdue != overdue || f.Beyond != beyond {
		s.fail("a forecast of %q shows %v, %d overdue, %d beyond; want %v, %d, %d", q.Topic, f.Counts, f.Overdue, f.Beyond, counts, overdue, beyond)
	}
}

func inspectForecast(s *harness) {
	s.inspector()
	minute := punctual.ForecastQuery{Topic: orders, Step: time.Minute, Buckets: 3}
	s.wantForecast(minute, []int64{0, 0, 0}, 0, 0)
	for i, delay := range []time.Duration{
		0, 0, 0, time.Millisecond, time.Minute - time.Millisecond, time.Minute, 2 * time.Minute, 3*time.Minute - time.Millisecond, 3 * time.Minute, 1000 * time.Hour,
	} {
		s.push(order(fmt.Sprint(i), delay))
	}
	s.push(punctual.NewMessage{Topic: mails, ID: x, Delay: 90 * time.Second})
	s.done(s.take(orders, 1)[0], punctual.SettleDiscard, 0)
	s.take(orders, 1)
	s.wantForecast(minute, []int64{2, 1, 2}, 2, 2)
	s.wantForecast(punctual.ForecastQuery{Step: time.Minute, Buckets: 3}, []int64{2, 2, 2}, 2, 2)
	s.wantForecast(punctual.ForecastQuery{Topic: "never-heard-of", Step: time.Hour, Buckets: 1}, []int64{0}, 0, 0)
	s.advance(time.Minute)
	s.wantForecast(punctual.ForecastQuery{Topic: orders, Step: time.Millisecond, Buckets: 1}, []int64{0}, 5, 4)
}

// inspectForecastFrom: a bucket that begins before now counts only messages that are due later than
// now.
func inspectForecastFrom(s *harness) {
	s.inspector()
	for i, delay := range []time.Duration{0, time.Millisecond, 20*time.Minute - time.Millisecond, 20 * time.Minute, 79 * time.Minute, 80 * time.Minute} {
		s.push(order(fmt.Sprint(i), delay))
	}
	s.take(orders, 1)
	s.push(order("ready", 0))
	hour := punctual.ForecastQuery{Topic: orders, From: s.now().Add(-40*time.Minute + 999*time.Microsecond), Step: time.Hour, Buckets: 2}
	s.wantForecast(hour, []int64{2, 2}, 2, 1)
	hour.Topic = ""
	s.wantForecast(hour, []int64{2, 2}, 2, 1)
	long := punctual.ForecastQuery{Topic: orders, From: s.now().Add(-3 * time.Hour), Step: time.Hour, Buckets: 2}
	s.wantForecast(long, []int64{0, 0}, 2, 5) // the last bucket ends before now
	long.Buckets = 5
	s.wantForecast(long, []int64{0, 0, 0, 3, 2}, 2, 0)
}

func inspectForecastMalformed(s *harness) {
	in := s.inspector()
	_, err := in.Forecast(s.ctx, punctual.ForecastQuery{From: s.now().Add(time.Hour), Step: time.Minute, Buckets: 1})
	s.wantErr(err, punctual.ErrInvalid, "a forecast from a time ahead")
	for name, q := range map[string]punctual.ForecastQuery{
		"a bad topic":         {Topic: "a b", Step: time.Minute, Buckets: 1},
		"no step":             {Buckets: 1},
		"a step under 1ms":    {Step: time.Millisecond - 1, Buckets: 1},
		"no buckets":          {Step: time.Minute},
		"10001 buckets":       {Step: time.Minute, Buckets: 10_001},
		"a negative of them":  {Step: time.Minute, Buckets: -1},
		"a step of minus one": {Step: -1, Buckets: 1},
	} {
		_, err := in.Forecast(s.ctx, q)
		s.wantErr(err, punctual.ErrInvalid, "a forecast with %s", name)
	}
}

// inspectForecastAll: a forecast whose buckets reach far beyond limits.MaxDue does not overflow.
func inspectForecastAll(s *harness) {
	in := s.inspector()
	s.push(punctual.NewMessage{Topic: orders, ID: "last", Due: limits.MaxDue})
	s.push(order("soon", time.Second))
	f, err := in.Forecast(s.ctx, punctual.ForecastQuery{Step: 1<<63 - 1, Buckets: 10_000})
	if err != nil || len(f.Counts) != 10_000 {
		s.fail("a forecast over all time: %d buckets, %v", len(f.Counts), err)
	}
	var sum int64
	for _, n := range f.Counts {
		sum += n
	}
	if f.Counts[0] != 1 || sum+f.Beyond != 2 {
		s.fail("a forecast over all time counts %d at first, %d in all and %d beyond; want 1 at first of 2", f.Counts[0], sum, f.Beyond)
	}
}

// inspectForecastFine: the step is rounded up to whole milliseconds, and the forecast says the
// rounded one.
func inspectForecastFine(s *harness) {
	in := s.inspector()
	for i := range 4 {
		s.push(order(fmt.Sprint(i), time.Duration(i+1)*time.Millisecond))
	}
	for _, f := range fractions() {
		got, err := in.Forecast(s.ctx, punctual.ForecastQuery{Topic: orders, Step: time.Millisecond + f, Buckets: 2})
		if err != nil || got.Step != 2*time.Millisecond || !slices.Equal(got.Counts, []int64{1, 2}) || got.Beyond != 1 {
			s.fail("a forecast in steps of 1 ms + %v: %+v, %v; want steps of 2ms with 1 and 2, and 1 beyond", f, got, err)
		}
	}
}
