package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
)

// inspectCases: is what people are shown true?
func inspectCases() []testCase {
	return []testCase{
		{"get in every state", p13, inspectGet},
		{"get what is not there", p13, inspectGetNothing},
		{"list in order", p13, inspectList},
		{"list page by page", p13, inspectPages},
		{"list between two times", p13, inspectListRange},
		{"list messages of the same time page by page", p13, inspectSameTime},
		{"list while messages go", p13, inspectListMoving},
		{"malformed list", p13, inspectListMalformed},
		{"list of a hundred by default", p13, inspectDefaultLimit},
		{"scan", p13, inspectScan},
		{"durability class", p13, inspectDurability},
		{"statistics", p13, inspectStats},
		{"statistics of every topic", p13, inspectAllStats},
		{"forecast", p13, inspectForecast},
		{"forecast over all time", p13, inspectForecastAll},
		{"malformed forecast", p13, inspectForecastMalformed},
	}
}

// diffInfo says how two views of a message differ, or nothing.
func diffInfo(a, b punctual.Info) string {
	if d := diffMessage(a.Message, b.Message); d != "" {
		return d
	}
	switch {
	case a.State != b.State:
		return fmt.Sprintf("state %s and %s", a.State, b.State)
	case !a.LeaseUntil.Equal(b.LeaseUntil):
		return fmt.Sprintf("lease until %v and %v", a.LeaseUntil, b.LeaseUntil)
	case a.CancelRequested != b.CancelRequested:
		return fmt.Sprintf("cancel requested %v and %v", a.CancelRequested, b.CancelRequested)
	case !a.Died.Equal(b.Died) || a.Reason != b.Reason:
		return fmt.Sprintf("died %v of %q and %v of %q", a.Died, a.Reason, b.Died, b.Reason)
	}
	return diffHistory(a.Failures, b.Failures)
}

func diffMessage(a, b punctual.Message) string {
	switch {
	case a.ID != b.ID || a.Topic != b.Topic:
		return fmt.Sprintf("name %s/%s and %s/%s", a.Topic, a.ID, b.Topic, b.ID)
	case string(a.Body) != string(b.Body):
		return fmt.Sprintf("body %.40q and %.40q", a.Body, b.Body)
	case fmt.Sprint(a.Headers) != fmt.Sprint(b.Headers):
		return fmt.Sprintf("headers %v and %v", a.Headers, b.Headers)
	case !a.Due.Equal(b.Due):
		return fmt.Sprintf("due %v and %v", a.Due, b.Due)
	case a.Attempt != b.Attempt || a.MaxAttempts != b.MaxAttempts:
		return fmt.Sprintf("attempt %d of %d and %d of %d", a.Attempt, a.MaxAttempts, b.Attempt, b.MaxAttempts)
	case !a.Created.Equal(b.Created):
		return fmt.Sprintf("created %v and %v", a.Created, b.Created)
	case !a.Expires.Equal(b.Expires) || a.DropExpired != b.DropExpired:
		return fmt.Sprintf("expires %v (dropped %v) and %v (dropped %v)", a.Expires, a.DropExpired, b.Expires, b.DropExpired)
	}
	return ""
}

func diffHistory(a, b []punctual.Failure) string {
	same := slices.EqualFunc(a, b, func(f, g punctual.Failure) bool {
		return f.Attempt == g.Attempt && f.At.Equal(g.At) && f.Error == g.Error
	})
	if same {
		return ""
	}
	return fmt.Sprintf("history %v and %v", a, b)
}

// sortTime is the time by which List orders a message.
func sortTime(i punctual.Info) time.Time {
	switch i.State {
	case punctual.StateLeased:
		return i.LeaseUntil
	case punctual.StateDead:
		return i.Died
	}
	return i.Due
}

// list reads all pages and checks that each is well-formed.
func (s *subject) list(q punctual.ListQuery) []punctual.Info {
	s.Helper()
	all, err := listAll(s.ctx, s.inspector(), q)
	if err != nil {
		s.fail("%v", err)
	}
	return all
}

// wantList compares the IDs of a list, all pages of it, with the wanted ones in order.
func (s *subject) wantList(q punctual.ListQuery, want ...string) {
	s.Helper()
	var got []string
	for _, i := range s.list(q) {
		got = append(got, i.ID)
	}
	if !slices.Equal(got, want) {
		s.fail("a list of %s messages (limit %d, from %v to %v) shows %v; want %v", q.State, q.Limit, q.From, q.To, got, want)
	}
}

func inspectGet(s *subject) {
	s.inspector()
	s.eachSituation(func(s *subject, at situation, last punctual.Delivery) {
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

func inspectGetNothing(s *subject) {
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

// shelf fills topic orders with n messages in each state; message i of a state has
// the i-th time of it, a second apart.
func (s *subject) shelf(n int) {
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

// shelfIDs are the IDs of a state on the shelf, from and up to.
func shelfIDs(state punctual.State, from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("%s-%02d", state, i))
	}
	return out
}

func states() []punctual.State {
	return []punctual.State{punctual.StateScheduled, punctual.StateReady, punctual.StateLeased, punctual.StateDead}
}

func inspectList(s *subject) {
	s.inspector()
	s.shelf(10)
	for _, state := range states() {
		s.wantList(punctual.ListQuery{Topic: orders, State: state}, shelfIDs(state, 0, 10)...)
		s.wantList(punctual.ListQuery{Topic: mails, State: state})
	}
}

func inspectPages(s *subject) {
	s.inspector()
	s.shelf(10)
	for _, state := range states() {
		for _, limit := range []int{1, 3, 5, 9, 10, 11, 10_000} {
			s.wantList(punctual.ListQuery{Topic: orders, State: state, Limit: limit}, shelfIDs(state, 0, 10)...)
		}
	}
}

func inspectListRange(s *subject) {
	s.inspector()
	s.shelf(10)
	for _, state := range states() {
		all := s.list(punctual.ListQuery{Topic: orders, State: state})
		at := func(i int) time.Time { return sortTime(all[i]) }
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
				s.wantList(q, shelfIDs(state, r.first, r.end)...)
			}
		}
	}
}

func inspectSameTime(s *subject) {
	s.inspector()
	const n = 25
	for i := range n {
		s.push(punctual.NewMessage{Topic: orders, ID: fmt.Sprint(i), Due: noon.Add(time.Hour)})
	}
	for _, limit := range []int{1, 4, 5, 24, 25} {
		seen := make(map[string]bool)
		for _, i := range s.list(punctual.ListQuery{Topic: orders, State: punctual.StateScheduled, Limit: limit}) {
			if seen[i.ID] {
				s.fail("%s is on two pages of %d messages of the same time", i.ID, limit)
			}
			seen[i.ID] = true
		}
		if len(seen) != n {
			s.fail("pages of %d show %d of %d messages of the same time", limit, len(seen), n)
		}
	}
}

// inspectListMoving: messages that stay are shown once although others go meanwhile,
// the one that a page ended with among them.
func inspectListMoving(s *subject) {
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
			s.outcome(cancel(orders, p.Messages[len(p.Messages)-1].ID), punctual.Cancelled, isScheduled)
		}
		q.After = p.Next
	}
	for i := range 20 {
		if id := fmt.Sprintf("%02d", i); seen[id] != 1 {
			s.fail("%s was shown %d times while others went; want once", id, seen[id])
		}
	}
}

func inspectListMalformed(s *subject) {
	in := s.inspector()
	s.push(order(x, 0))
	for name, q := range map[string]punctual.ListQuery{
		"no topic":         {State: punctual.StateReady},
		"a bad topic":      {Topic: "a b", State: punctual.StateReady},
		"no state":         {Topic: orders},
		"an unknown state": {Topic: orders, State: 9},
		"a negative limit": {Topic: orders, State: punctual.StateReady, Limit: -1},
		"a limit of 10001": {Topic: orders, State: punctual.StateReady, Limit: 10_001},
		"a broken cursor":  {Topic: orders, State: punctual.StateReady, After: "\x00 no cursor"},
	} {
		_, err := in.List(s.ctx, q)
		s.wantErr(err, punctual.ErrInvalid, "a list with %s", name)
	}
}

func inspectDefaultLimit(s *subject) {
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

func inspectScan(s *subject) {
	c, ok := s.store.(punctual.Checker)
	if !ok {
		s.Skipf("skipped: the case needs a Checker")
		return
	}
	s.shelf(5)
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

func inspectDurability(s *subject) {
	d, ok := s.store.(punctual.DurabilityReporter)
	if !ok {
		s.Skipf("skipped: the case needs a DurabilityReporter")
		return
	}
	switch class := d.Durability(); class {
	case punctual.Fsync, punctual.Replicated, punctual.Volatile:
	default:
		s.fail("the durability class is %q; want fsync, replicated or volatile", class)
	}
}

// wantStats compares a topic's statistics.
func (s *subject) wantStats(want punctual.TopicStats) {
	s.Helper()
	got, err := s.inspector().Stats(s.ctx, want.Topic)
	if err != nil {
		s.fail("Stats of %s: unexpected error: %v", want.Topic, err)
	}
	if d := diffStats(got, want); d != "" {
		s.fail("the statistics of %s: %s", want.Topic, d)
	}
}

// diffStats says how the first differ from the second, or nothing.
func diffStats(got, want punctual.TopicStats) string {
	switch {
	case got.Topic != want.Topic:
		return fmt.Sprintf("topic %s, not %s", got.Topic, want.Topic)
	case got.Scheduled != want.Scheduled || got.Ready != want.Ready || got.Leased != want.Leased || got.Dead != want.Dead:
		return fmt.Sprintf("%d scheduled, %d ready, %d leased, %d dead; want %d, %d, %d, %d",
			got.Scheduled, got.Ready, got.Leased, got.Dead, want.Scheduled, want.Ready, want.Leased, want.Dead)
	case !got.NextDue.Equal(want.NextDue):
		return fmt.Sprintf("next due %v; want %v", got.NextDue, want.NextDue)
	case !equalSettings(got.Settings, want.Settings):
		return fmt.Sprintf("settings %+v; want %+v", got.Settings, want.Settings)
	}
	return ""
}

func inspectStats(s *subject) {
	s.inspector()
	set := punctual.DefaultSettings()
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
	s.outcome(cancel(orders, x), punctual.Cancelled, isScheduled)
	s.wantStats(punctual.TopicStats{Topic: orders, Dead: 1, Settings: set})
	s.outcome(requeue(orders, "y", time.Hour), punctual.Requeued, isDead)
	s.wantStats(punctual.TopicStats{Topic: orders, Scheduled: 1, NextDue: noon.Add(time.Hour + time.Second), Settings: set})
	set = s.configure(orders, punctual.SettingsPatch{PausedOut: ptr(true), Lease: ptr(time.Hour)})
	s.wantStats(punctual.TopicStats{Topic: orders, Scheduled: 1, NextDue: noon.Add(time.Hour + time.Second), Settings: set})
}

func inspectAllStats(s *subject) {
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
		if d := diffStats(all[i], punctual.TopicStats{Topic: topic, Scheduled: want, NextDue: noon.Add(time.Hour), Settings: punctual.DefaultSettings()}); d != "" {
			s.fail("the statistics of all topics, number %d: %s", i+1, d)
		}
	}
}

// wantForecast compares one forecast.
func (s *subject) wantForecast(q punctual.ForecastQuery, counts []int64, overdue, beyond int64) {
	s.Helper()
	f, err := s.inspector().Forecast(s.ctx, q)
	if err != nil {
		s.fail("Forecast: unexpected error: %v", err)
	}
	if !f.From.Equal(s.now()) || f.Step != q.Step {
		s.fail("a forecast begins %v in steps of %v; want now, %v, and %v", f.From, f.Step, s.now(), q.Step)
	}
	if !slices.Equal(f.Counts, counts) || f.Overdue != overdue || f.Beyond != beyond {
		s.fail("a forecast of %q shows %v, %d overdue, %d beyond; want %v, %d, %d", q.Topic, f.Counts, f.Overdue, f.Beyond, counts, overdue, beyond)
	}
}

func inspectForecast(s *subject) {
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

func inspectForecastMalformed(s *subject) {
	in := s.inspector()
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

// inspectForecastAll: a forecast that reaches beyond all time does not overflow.
func inspectForecastAll(s *subject) {
	in := s.inspector()
	s.push(punctual.NewMessage{Topic: orders, ID: "last", Due: punctual.MaxDue})
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
