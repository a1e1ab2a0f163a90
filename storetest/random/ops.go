package random

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
	"github.com/punctualmq/punctual/storetest/compare"
	"github.com/punctualmq/punctual/storetest/promise"
)

// The operations of a random history. Each draws its arguments, performs them on both
// stores and compares the answers.

// delays draws from few values, so that many messages are due at the same time.
func delays() *rapid.Generator[time.Duration] {
	return rapid.SampledFrom([]time.Duration{
		0, 0, 0, time.Millisecond, 1500 * time.Microsecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, time.Hour,
	})
}

func (c *comparison) topic(t *rapid.T) string { return rapid.SampledFrom(c.topics).Draw(t, "topic") }

// id draws from a small space. IDs that stores make are random, so a history with them
// could not be repeated.
func (c *comparison) id(t *rapid.T) string {
	return rapid.SampledFrom(randomIDs()).Draw(t, "id")
}

func randomIDs() []string { return []string{"0", "1", "2", "3", "4"} }

func (c *comparison) when(t *rapid.T) (due time.Time, delay time.Duration) {
	delay = delays().Draw(t, "delay")
	if rapid.IntRange(0, 3).Draw(t, "as due time") > 0 {
		return time.Time{}, delay
	}
	return c.told.Add(delay - time.Duration(rapid.IntRange(0, 1).Draw(t, "past"))*time.Minute), 0
}

func (c *comparison) newMessage(t *rapid.T) punctual.NewMessage {
	m := punctual.NewMessage{
		Topic:       c.topic(t),
		ID:          c.id(t),
		Body:        rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "body"),
		MaxAttempts: rapid.SampledFrom([]int{0, 1, 2, 3}).Draw(t, "max attempts"),
		IfExists:    punctual.IfExists(rapid.IntRange(0, 3).Draw(t, "if exists")),
	}
	m.Due, m.Delay = c.when(t)
	if m.IfExists == punctual.IfExistsReplace || rapid.IntRange(0, 31).Draw(t, "condition that may not be") == 31 {
		m.IfDue = c.ifDue(t, m.Topic, m.ID)
	}
	if rapid.IntRange(0, 2).Draw(t, "expires") == 2 {
		m.ExpireAfter = rapid.SampledFrom([]time.Duration{time.Millisecond, 100 * time.Millisecond, 20 * time.Second, time.Hour}).Draw(t, "expire after")
		m.DropExpired = rapid.Bool().Draw(t, "drop expired")
	}
	if rapid.IntRange(0, 3).Draw(t, "remembers") == 3 {
		m.Remember = c.kept(rapid.SampledFrom([]time.Duration{time.Microsecond, 10 * time.Second, time.Hour}).Draw(t, "remember"))
	}
	if rapid.IntRange(0, 3).Draw(t, "headers") == 3 {
		m.Headers = map[string]string{"k": rapid.StringN(0, 3, 9).Draw(t, "header")}
	}
	if rapid.IntRange(0, 15).Draw(t, "malformed") == 15 {
		m.MaxAttempts = -1
	}
	return m
}

// kept returns for how long something is kept: for so long that it stays, if the clock may step
// back. Otherwise what was past its retention by the time before a step would be there again unless
// a sweep has removed it, and each store chooses when it sweeps.
func (c *comparison) kept(length time.Duration) time.Duration {
	if c.steps && length > 0 {
		return 1000 * time.Hour
	}
	return length
}

// ifDue draws the IfDue of a change. In half of the draws it is zero. Else it is the due time of
// the message in the model, or the time of the store's clock, often moved back by a microsecond,
// which rounding up undoes, or by a millisecond, which it does not undo.
func (c *comparison) ifDue(t *rapid.T, topic, id string) time.Time {
	at := c.told
	switch info, err := c.model.Get(c.ctx, topic, id); rapid.IntRange(0, 5).Draw(t, "condition") {
	case 0:
	case 1, 2:
		if err == nil {
			at = info.Due
		}
	default:
		return time.Time{}
	}
	return at.Add(-rapid.SampledFrom([]time.Duration{0, 0, time.Microsecond, time.Millisecond}).Draw(t, "before"))
}

func (c *comparison) push(t *rapid.T) {
	ms := rapid.SliceOfN(rapid.Custom(c.newMessage), 1, 4).Draw(t, "messages")
	c.sync()
	got, err := c.store.Push(c.ctx, ms)
	c.call(promise.P7, "push", err, len(got), len(ms))
	want, err := c.model.Push(c.ctx, ms)
	c.call(promise.P7, "push to the model", err, len(want), len(ms))
	for i, w := range want {
		g := got[i]
		c.Logf("push %s: %q %v", showMessage(&ms[i]), g.Status, g.Err)
		c.sameCode(promise.P7, fmt.Sprintf("push of %s/%s", ms[i].Topic, ms[i].ID), g.Err, w.Err)
		if w.Err == nil && (g.ID != w.ID || g.Topic != w.Topic || g.Status != w.Status || g.Existing != w.Existing || !g.Due.Equal(w.Due)) {
			c.broken(promise.P7, "push of %s/%s: got %q (existing %q), due %v; want %q (existing %q), due %v",
				ms[i].Topic, ms[i].ID, g.Status, g.Existing, g.Due, w.Status, w.Existing, w.Due)
		}
	}
}

// showMessage returns a new message as one line of the log.
func showMessage(m *punctual.NewMessage) string {
	text := fmt.Sprintf("%s/%s delay %v due %v, if exists %d", m.Topic, m.ID, m.Delay, m.Due, m.IfExists)
	if !m.IfDue.IsZero() {
		text += fmt.Sprintf(" and due %v", m.IfDue)
	}
	return text
}

// call checks that a call returned no error, and a result for each of its items.
func (c *comparison) call(promise, what string, err error, got, want int) {
	c.Helper()
	if err != nil || got != want {
		c.broken(promise, "%s: %d results of %d, error %v", what, got, want, err)
	}
}

// sameCode compares two errors by their kind.
func (c *comparison) sameCode(promise, what string, got, want error) {
	c.Helper()
	if g, w := storekit.ErrorCode(got), storekit.ErrorCode(want); g != w {
		c.broken(promise, "%s: got error %q (%v); want %q (%v)", what, g, got, w, want)
	}
}

func (c *comparison) claim(t *rapid.T) {
	q := punctual.Claim{
		Topics:   rapid.Permutation(c.topics).Draw(t, "topics")[:rapid.IntRange(1, len(c.topics)).Draw(t, "of them")],
		Max:      rapid.IntRange(1, 5).Draw(t, "max"),
		PerTopic: rapid.IntRange(0, 3).Draw(t, "per topic"),
		Lease:    leaseLength(t),
	}
	c.sync()
	ds, err := c.store.Claim(c.ctx, q)
	c.Logf("claim up to %d, %d of each, from %v: %v, %v", q.Max, q.PerTopic, q.Topics, ids(ds), err)
	if err != nil || len(ds) > q.Max {
		c.broken(promise.P3, "claim of at most %d from %v: got %d, error %v", q.Max, q.Topics, len(ds), err)
	}
	if !slices.IsSortedFunc(ds, func(a, b punctual.Delivery) int {
		return slices.Index(q.Topics, a.Topic) - slices.Index(q.Topics, b.Topic)
	}) {
		c.broken(promise.P12, "a claim from %v returned %v out of the topics' order", q.Topics, ids(ds))
	}
	c.followClaim(q, ds)
}

func leaseLength(t *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{0, 10 * time.Millisecond, time.Second, time.Hour}).Draw(t, "lease")
}

// claimByID claims messages by ID. Here the contract leaves nothing open, so the model claims the
// same.
func (c *comparison) claimByID(t *rapid.T) {
	q := punctual.Claim{
		Topics: []string{c.topic(t)},
		Max:    rapid.IntRange(0, 3).Draw(t, "max"),
		IDs:    rapid.SliceOfN(rapid.SampledFrom(randomIDs()), 1, 6).Draw(t, "ids"),
		Lease:  leaseLength(t),
	}
	c.sync()
	ds, err := c.store.Claim(c.ctx, q)
	c.Logf("claim up to %d of %v from %s: %v, %v", q.Max, q.IDs, q.Topics[0], ids(ds), err)
	breaks := promise.P12
	for _, d := range ds {
		if may := c.promiseOf(d.Topic, d.ID); may != promise.P12 {
			breaks = may
		}
	}
	want, modelErr := c.model.Claim(c.ctx, q)
	if err != nil || modelErr != nil || !slices.Equal(ids(ds), ids(want)) {
		c.broken(breaks, "a claim of %v from %s, at most %d, got %v, error %v; want %v (%v)", q.IDs, q.Topics[0], q.Max, ids(ds), err, ids(want), modelErr)
	}
	for i, d := range ds {
		c.took(d, want[i])
	}
}

// followClaim lets the model claim what the store chose, topic by topic. Where the claim went on to
// another topic, or had room for more, although PerTopic allowed more of this topic, the topic must
// have no further message that is due.
func (c *comparison) followClaim(q punctual.Claim, ds []punctual.Delivery) {
	left := ds
	for _, topic := range q.Topics {
		n := 0
		for n < len(left) && left[n].Topic == topic {
			n++
		}
		c.followTopic(topic, left[:n], q.Lease)
		left = left[n:]
		limit := cmp.Or(q.PerTopic, q.Max)
		if n > limit {
			c.broken(promise.P14, "a claim of at most %d of each topic returned %d of %s", limit, n, topic)
		}
		bounded := c.settings(topic).MaxLeases > 0
		if bounded && c.followEnded(topic) > 0 {
			continue // what a claim ends may keep its place until it is ended, which may be later
		}
		if n < limit && (len(left) > 0 || len(ds) < q.Max) {
			more, err := c.model.Claim(c.ctx, punctual.Claim{Topics: []string{topic}, Max: 1})
			if err != nil || len(more) > 0 {
				c.broken(promise.P1, "a claim from %v for up to %d returned only %v; %v in %s was due as well (%v)", q.Topics, q.Max, ids(ds), ids(more), topic, err)
			}
			continue
		}
		c.followEnded(topic)
	}
	if len(left) > 0 {
		c.broken(promise.P3, "a claim from %v returned %s/%s", q.Topics, left[0].Topic, left[0].ID)
	}
}

func (c *comparison) followTopic(topic string, ds []punctual.Delivery, length time.Duration) {
	for _, d := range ds {
		broken := c.promiseOf(topic, d.ID)
		want, err := c.encounter(topic, d.ID, length)
		if err != nil || len(want) == 0 {
			c.broken(broken, "a claim returned %s/%s, which it may not: %v", topic, d.ID, err)
		}
		c.took(d, want[0])
	}
}

// encounter has a claim of the model encounter a message. It returns the message if the claim has
// leased it, and nothing if the claim has ended it.
func (c *comparison) encounter(topic, id string, length time.Duration) ([]punctual.Delivery, error) {
	if err := c.model.Encounter(topic, id); err != nil {
		return nil, err
	}
	return c.model.Claim(c.ctx, punctual.Claim{Topics: []string{topic}, IDs: []string{id}, Lease: length})
}

// took compares a delivery with that of the model, and keeps its lease.
func (c *comparison) took(d, want punctual.Delivery) {
	c.sameDelivery(d, want)
	for _, l := range c.leases {
		if l.topic == d.Topic && l.id == d.ID && d.Token <= l.token {
			c.broken(promise.P4, "%s/%s was delivered with token %d, not above that of an earlier delivery, %d", d.Topic, d.ID, d.Token, l.token)
		}
	}
	c.leases = append(c.leases, lease{d.Topic, d.ID, d.Token, want.Token})
}

// promiseOf returns the promise that the delivery of a message breaks if no claim may return the
// message.
func (c *comparison) promiseOf(topic, id string) string {
	info, err := c.model.Get(c.ctx, topic, id)
	switch {
	case err != nil, info.CancelRequested && info.State != punctual.StateLeased:
		return promise.P5
	case info.State == punctual.StateDead, c.mustEnd(info):
		return promise.P6
	case info.State == punctual.StateLeased:
		return promise.P3
	case info.State == punctual.StateScheduled:
		return promise.P2
	}
	return promise.P12
}

// mustEnd reports whether the next claim that meets a ready message must end it.
func (c *comparison) mustEnd(i punctual.Info) bool {
	limit := i.MaxAttempts
	if limit == 0 {
		limit = c.settings(i.Topic).MaxAttempts
	}
	return i.CancelRequested || i.Attempt >= limit || !i.Expires.IsZero() && !c.told.Before(i.Expires)
}

// settings returns the settings of a topic in the model.
func (c *comparison) settings(topic string) punctual.Settings {
	set, err := c.model.Settings(c.ctx, topic)
	if err != nil {
		c.Fatalf("settings of the model: %v", err)
	}
	return set
}

// followEnded ends in the model the messages that the store's claim has ended, and returns how many
// it may have ended. The contract leaves open how many a claim ends beside its deliveries.
func (c *comparison) followEnded(topic string) (n int) {
	if c.settings(topic).DeliveryPaused {
		return 0
	}
	ready, err := compare.List(c.ctx, c.model, punctual.ListQuery{Topic: topic, State: punctual.StateReady})
	if err != nil {
		c.Fatalf("list of the model: %v", err)
	}
	if bound := c.settings(topic).MaxLeases; bound > 0 { // the claim may have ended them before it came to the bound
		c.boundModel(topic, 1000)
		defer c.boundModel(topic, bound)
	}
	for _, i := range ready {
		if m, err := c.model.Get(c.ctx, topic, i.ID); err != nil || m.State != punctual.StateReady || !c.mustEnd(i) {
			continue // it is to be delivered, or was ended before another one
		}
		n++
		now, err := c.inspector.Get(c.ctx, topic, i.ID)
		if err == nil && now.State == punctual.StateReady {
			continue
		}
		if err != nil && !errors.Is(err, punctual.ErrNotFound) {
			c.broken(promise.P13, "Get of %s/%s: unexpected error: %v", topic, i.ID, err)
		}
		if ds, err := c.encounter(topic, i.ID, 0); err != nil || len(ds) > 0 {
			c.broken(promise.P6, "%s/%s was ended by a claim, which it may not: %v", topic, i.ID, err)
		}
	}
	return n
}

func (c *comparison) boundModel(topic string, leases int) {
	if _, err := c.model.Configure(c.ctx, topic, punctual.SettingsPatch{MaxLeases: &leases}); err != nil {
		c.Fatalf("bound of the model: %v", err)
	}
}

func (c *comparison) sameDelivery(got, want punctual.Delivery) {
	c.Helper()
	if d := compare.Message(got.Message, want.Message); d != "" {
		c.broken(promise.P1, "%s/%s was delivered with %s in the model", got.Topic, got.ID, d)
	}
	if !got.Delivered.Equal(want.Delivered) || !got.LeaseUntil.Equal(want.LeaseUntil) {
		c.broken(promise.P3, "%s/%s was delivered at %v until %v; want %v until %v", got.Topic, got.ID, got.Delivered, got.LeaseUntil, want.Delivered, want.LeaseUntil)
	}
	if d := compare.History(got.Failures, want.Failures); d != "" {
		c.broken(promise.P6, "%s/%s was delivered with %s in the model", got.Topic, got.ID, d)
	}
}

// settlement draws a settlement of one of the eight newest leases, now and then with a wrong token.
// It returns the settlement with the token of the store and with that of the model.
func (c *comparison) settlement(t *rapid.T) (got, want punctual.Settlement) {
	back := rapid.IntRange(1, min(len(c.leases), 8)).Draw(t, "lease back")
	l := c.leases[len(c.leases)-back]
	v := rapid.SampledFrom(storetest.Verbs()).Draw(t, "verb")
	got = punctual.Settlement{Topic: l.topic, ID: l.id, Token: l.token, Verb: v}
	switch v {
	case punctual.SettleRetry:
		got.Delay = rapid.OneOf(delays(), rapid.Just(punctual.UseBackoff)).Draw(t, "delay")
		got.Error = rapid.SampledFrom([]string{"", "no route", "timeout"}).Draw(t, "error")
	case punctual.SettleSnooze:
		got.Delay = delays().Draw(t, "delay")
	case punctual.SettleExtend:
		got.Delay = rapid.SampledFrom([]time.Duration{0, 10 * time.Millisecond, 10 * time.Second, time.Hour}).Draw(t, "length")
	case punctual.SettleDiscard:
		got.Error = "poison"
	}
	if (v == punctual.SettleRetry || v == punctual.SettleSnooze) && rapid.IntRange(0, 2).Draw(t, "to an instant") == 2 {
		got.Delay, got.Due = 0, c.told.Add(delays().Draw(t, "instant")-time.Duration(rapid.IntRange(0, 1).Draw(t, "past"))*time.Minute)
	}
	got.Then = c.followUps(t, &got)
	if rapid.IntRange(0, 9).Draw(t, "wrong token") == 9 {
		got.Token++
	}
	want = got
	want.Token = c.modelToken(got)
	return got, want
}

// followUps draws follow-ups of a settlement, only such as the store reaches. A verb that may have
// none gets some now and then.
func (c *comparison) followUps(t *rapid.T, x *punctual.Settlement) (then []punctual.NewMessage) {
	may := x.Verb == punctual.SettleAck || x.Verb == punctual.SettleSnooze || x.Verb == punctual.SettleDiscard
	if c.can.Follow == storekit.ReachNone || !may && rapid.IntRange(0, 31).Draw(t, "follow-ups that may not be") < 31 {
		return nil
	}
	for range max(0, rapid.IntRange(-2, 3).Draw(t, "follow-ups")) {
		m := c.newMessage(t)
		if c.can.Follow == storekit.ReachFamily {
			m.Topic, m.ID = rapid.SampledFrom(c.family(x.Topic)).Draw(t, "relative"), storekit.Stem(x.ID)+rapid.SampledFrom([]string{"", "~f"}).Draw(t, "rest of ID")
		} else if rapid.IntRange(0, 3).Draw(t, "itself") == 3 {
			m.Topic, m.ID = x.Topic, x.ID
		}
		if !m.IfDue.IsZero() {
			m.IfDue = c.ifDue(t, m.Topic, m.ID)
		}
		then = append(then, m)
	}
	return then
}

// family returns those topics of the history that a store with storekit.ReachFamily reaches from a
// topic.
func (c *comparison) family(topic string) (out []string) {
	parent, _ := storekit.Companion(topic)
	for _, other := range c.topics {
		if p, _ := storekit.Companion(other); p == parent {
			out = append(out, other)
		}
	}
	return out
}

// modelToken returns the model's token of the lease that the settlement names, or -1, which no
// lease has.
func (c *comparison) modelToken(s punctual.Settlement) int64 {
	for _, l := range c.leases {
		if l.topic == s.Topic && l.id == s.ID && l.token == s.Token {
			return l.model
		}
	}
	return -1
}

func (c *comparison) settle(t *rapid.T) {
	if len(c.leases) == 0 {
		t.Skip()
	}
	var mine, model []punctual.Settlement
	for range rapid.IntRange(1, 3).Draw(t, "leases") {
		g, w := c.settlement(t)
		mine, model = append(mine, g), append(model, w)
	}
	c.sync()
	got, err := c.store.Settle(c.ctx, mine)
	c.call(promise.P4, "settle", err, len(got), len(mine))
	want, err := c.model.Settle(c.ctx, model)
	c.call(promise.P4, "settle of the model", err, len(want), len(mine))
	for i, s := range mine {
		c.Logf("%s of %s/%s token %d delay %v due %v: %v", s.Verb, s.Topic, s.ID, s.Token, s.Delay, s.Due, got[i])
		for j := range s.Then {
			c.Logf("    with follow-up %d: %s", j+1, showMessage(&s.Then[j]))
		}
		broken := promise.P4
		if errors.Is(want[i], punctual.ErrCancelled) {
			broken = promise.P5
		} else if len(s.Then) > 0 {
			broken = promise.P13
		}
		c.sameCode(broken, fmt.Sprintf("%s of %s/%s with token %d", s.Verb, s.Topic, s.ID, s.Token), got[i], want[i])
	}
}

func (c *comparison) amendment(t *rapid.T) punctual.Amendment {
	a := punctual.Amendment{Change: punctual.Change(rapid.IntRange(1, 4).Draw(t, "change")), Topic: c.topic(t), ID: c.id(t)}
	if n := len(c.leases); n > 0 && rapid.Bool().Draw(t, "of a lease") {
		l := c.leases[n-rapid.IntRange(1, min(n, 4)).Draw(t, "lease back")]
		a.Topic, a.ID = l.topic, l.id
	}
	if storekit.Moves(a.Change) {
		a.Due, a.Delay = c.when(t)
	}
	a.IfDue = c.ifDue(t, a.Topic, a.ID)
	if rapid.IntRange(0, 15).Draw(t, "malformed") == 15 {
		a.Change = 0
	}
	return a
}

func (c *comparison) amend(t *rapid.T) {
	as := rapid.SliceOfN(rapid.Custom(c.amendment), 1, 3).Draw(t, "amendments")
	c.sync()
	got, err := c.store.Amend(c.ctx, as)
	c.call(promise.P5, "amend", err, len(got), len(as))
	want, err := c.model.Amend(c.ctx, as)
	c.call(promise.P5, "amend of the model", err, len(want), len(as))
	for i, a := range as {
		c.Logf("%s of %s/%s delay %v due %v if due %v: %v", a.Change, a.Topic, a.ID, a.Delay, a.Due, a.IfDue, got[i].Err)
		c.sameCode(promise.P5, fmt.Sprintf("%s of %s/%s", a.Change, a.Topic, a.ID), got[i].Err, want[i].Err)
		if !got[i].Due.Equal(want[i].Due) {
			c.broken(promise.P5, "%s of %s/%s: due %v; want %v", a.Change, a.Topic, a.ID, got[i].Due, want[i].Due)
		}
	}
}

// withoutJitter gives a topic a backoff of fixed delays in both stores.
func (c *comparison) withoutJitter(topic string) {
	c.patch(topic, punctual.SettingsPatch{Backoff: &punctual.Backoff{Delays: []time.Duration{time.Second, time.Minute}}})
}

func (c *comparison) patch(topic string, p punctual.SettingsPatch) {
	c.sync()
	got, err := c.inspector.Configure(c.ctx, topic, p)
	want, wantErr := c.model.Configure(c.ctx, topic, p)
	c.sameCode(promise.P13, "Configure of "+topic, err, wantErr)
	want.Partitions = c.partitions
	if err == nil && !compare.EqualSettings(got, want) {
		c.broken(promise.P13, "Configure of %s returned %+v; want %+v", topic, got, want)
	}
}

func (c *comparison) configure(t *rapid.T) {
	var p punctual.SettingsPatch
	length := rapid.SampledFrom([]time.Duration{0, 100 * time.Millisecond, time.Minute})
	which := []int{0, 1, 2, 3, 4, 5, 6, 7}
	if c.keeper != nil {
		which = append(which, 8)
	}
	if c.can.Emit {
		which = append(which, 9, 9)
	}
	if c.can.BoundsLeases && c.partitions == 1 {
		which = append(which, 10)
	}
	switch rapid.SampledFrom(which).Draw(t, "setting") {
	case 0:
		p.Lease = ptr(rapid.SampledFrom([]time.Duration{10 * time.Millisecond, time.Minute, 0}).Draw(t, "lease"))
	case 1:
		p.MaxAttempts = ptr(rapid.IntRange(1, 4).Draw(t, "max attempts"))
	case 2:
		p.Backoff = &punctual.Backoff{Delays: rapid.SliceOfN(delays(), 1, 3).Draw(t, "backoff")}
	case 3:
		p.DeadRetention = ptr(c.kept(length.Draw(t, "dead retention")))
	case 4:
		p.DedupeWindow = ptr(c.kept(length.Draw(t, "dedupe window")))
	case 5:
		p.PushPaused = ptr(rapid.Bool().Draw(t, "push paused"))
	case 6:
		p.DeliveryPaused = ptr(rapid.Bool().Draw(t, "delivery paused"))
	case 7: // the end of both pauses
		p.PushPaused, p.DeliveryPaused = ptr(false), ptr(false)
	case 8:
		p.FinishedRetention = ptr(c.kept(length.Draw(t, "finished retention")))
	case 9: // events are kept for so long that none is swept, because each store chooses when it sweeps
		p.Emit, p.EmitKeep = ptr(punctual.Events(rapid.IntRange(0, int(event.All)).Draw(t, "events"))), ptr(limits.MaxFinishedRetention)
	case 10: // no rate, because a directory does not know after a restart when the last lease began
		p.MaxLeases = ptr(rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "max leases"))
	}
	topic := c.topic(t)
	c.Logf("configure %s: %s", topic, showPatch(p))
	c.patch(topic, p)
}

func (c *comparison) purge(t *rapid.T) {
	if rapid.IntRange(0, 2).Draw(t, "really") < 2 {
		return // most purges are left out, because otherwise few messages would live long
	}
	q := punctual.PurgeQuery{Topic: c.topic(t), State: punctual.State(rapid.IntRange(0, 4).Draw(t, "state"))}
	if rapid.Bool().Draw(t, "from") {
		q.From = c.told.Add(-delays().Draw(t, "from before now"))
	}
	if rapid.Bool().Draw(t, "to") {
		q.To = c.told.Add(delays().Draw(t, "to after now"))
	}
	c.sync()
	got, err := c.inspector.Purge(c.ctx, q)
	want, wantErr := c.model.Purge(c.ctx, q)
	c.Logf("purge of %q in %s from %v to %v: %d, %v", q.State, q.Topic, q.From, q.To, got, err)
	c.sameCode(promise.P13, "Purge of "+q.Topic, err, wantErr)
	if got != want {
		c.broken(promise.P13, "Purge of %q in %s from %v to %v removed %d; want %d", q.State, q.Topic, q.From, q.To, got, want)
	}
}

func (c *comparison) deleteTopic(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "really") < 4 {
		return
	}
	topic := c.topic(t)
	c.sync()
	got, err := c.inspector.DeleteTopic(c.ctx, topic)
	want, wantErr := c.model.DeleteTopic(c.ctx, topic)
	c.Logf("delete topic %s: %d, %v", topic, got, err)
	c.sameCode(promise.P13, "DeleteTopic of "+topic, err, wantErr)
	if got != want {
		c.broken(promise.P13, "DeleteTopic of %s removed %d messages; want %d", topic, got, want)
	}
	for _, other := range c.topics {
		if parent, _ := storekit.Companion(other); other == topic || parent == topic {
			c.withoutJitter(other)
		}
	}
}

// look compares a message, its finished record and a forecast.
func (c *comparison) look(t *rapid.T) {
	topic, id := c.topic(t), c.id(t)
	q := punctual.ForecastQuery{Step: rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Hour}).Draw(t, "step"), Buckets: 20}
	if rapid.Bool().Draw(t, "one topic") {
		q.Topic = topic
	}
	c.sync()
	if rapid.Bool().Draw(t, "from the past") {
		now, err := c.model.Now(c.ctx)
		if err != nil {
			t.Fatalf("the model's clock: %v", err)
		}
		q.From = now.Add(-time.Duration(rapid.Int64Range(0, 30*q.Step.Milliseconds()).Draw(t, "before now")) * time.Millisecond)
	}
	got, err := c.inspector.Get(c.ctx, topic, id)
	want, wantErr := c.model.Get(c.ctx, topic, id)
	c.sameCode(promise.P13, fmt.Sprintf("Get of %s/%s", topic, id), err, wantErr)
	if d := compare.Info(got, want); err == nil && d != "" {
		c.broken(promise.P13, "%s/%s in the store and in the model: %s", topic, id, d)
	}
	c.sameRecord(topic, id)
	f, err := c.inspector.Forecast(c.ctx, q)
	w, wantErr := c.model.Forecast(c.ctx, q)
	c.sameCode(promise.P13, "Forecast", err, wantErr)
	if !f.From.Equal(w.From) || f.Step != w.Step || !slices.Equal(f.Counts, w.Counts) || f.Overdue != w.Overdue || f.Beyond != w.Beyond {
		c.broken(promise.P13, "the forecast of %q in steps of %v is %+v; want %+v", q.Topic, q.Step, f, w)
	}
}

// lookAtFinished compares the lists of finished records for a random query.
func (c *comparison) lookAtFinished(t *rapid.T) {
	fq := punctual.FinishedQuery{Topic: c.topic(t), Limit: rapid.IntRange(1, 3).Draw(t, "finished records of a page"), Descending: rapid.Bool().Draw(t, "newest first")}
	fq.Outcome = rapid.SampledFrom(append(storekit.Outcomes(), "", "")).Draw(t, "outcome")
	if rapid.Bool().Draw(t, "finished lately") {
		fq.From = c.told.Add(-delays().Draw(t, "finished before now"))
		if rapid.Bool().Draw(t, "up to now") {
			fq.To = c.told
		}
	}
	c.sync()
	c.sameFinished(fq)
}

// sameRecord compares the finished record of an ID. If the store can be reopened, its record may
// have no Delivered, because a store that was opened anew may have lost when the lease began.
func (c *comparison) sameRecord(topic, id string) {
	if c.keeper == nil {
		return
	}
	got, err := c.keeper.Finished(c.ctx, topic, id)
	want, wantErr := c.model.Finished(c.ctx, topic, id)
	c.sameCode(promise.P13, fmt.Sprintf("Finished of %s/%s", topic, id), err, wantErr)
	if d := compare.Finished(got, want, c.opener.reopen != nil); err == nil && d != "" {
		c.broken(promise.P13, "the finished record of %s/%s: %s", topic, id, d)
	}
}

// sameFinished compares the pages of a list of finished records.
func (c *comparison) sameFinished(q punctual.FinishedQuery) {
	if c.keeper == nil {
		return
	}
	got, err := compare.FinishedList(c.ctx, c.keeper, q)
	if err != nil {
		c.broken(promise.P13, "%v", err)
	}
	want, err := compare.FinishedList(c.ctx, c.model, q)
	if err != nil {
		c.Fatalf("list of the model: %v", err)
	}
	if len(got) != len(want) {
		c.broken(promise.P13, "a list of finished records, %+v, shows %d; want %d", q, len(got), len(want))
	}
	for i := range want {
		if d := compare.Finished(got[i], want[i], c.opener.reopen != nil); d != "" {
			c.broken(promise.P13, "record %d of a list of finished records, %+v: %s", i, q, d)
		}
	}
}

// compareStats compares the counts of every topic.
func (c *comparison) compareStats() {
	c.sync()
	got, err := c.inspector.Topics(c.ctx)
	want, wantErr := c.model.Topics(c.ctx)
	c.sameCode(promise.P13, "Topics", err, wantErr)
	if len(got) != len(want) {
		c.broken(promise.P13, "there are %d topics; want %d", len(got), len(want))
	}
	for i := range want {
		want[i].Settings.Partitions = c.partitions
		if d := compare.Stats(got[i], want[i]); d != "" {
			c.broken(promise.P13, "the statistics of %s: %s", want[i].Topic, d)
		}
	}
}

// compareAll compares every message in every state, the finished records and the events, and runs
// the store's own scan.
func (c *comparison) compareAll() {
	c.sync()
	for _, topic := range c.topics {
		for _, id := range randomIDs() {
			c.sameRecord(topic, id)
		}
		for n, how := range []punctual.Outcome{"", punctual.OutcomeAcked, punctual.OutcomeCancelled} {
			c.sameFinished(punctual.FinishedQuery{Topic: topic, Outcome: how, Limit: 1, Descending: (n+len(c.leases))%2 == 1})
		}
		for _, state := range storetest.States() {
			q := punctual.ListQuery{Topic: topic, State: state, Limit: 2, Descending: len(c.leases)%2 == 1} // so that both directions come up
			got, err := compare.List(c.ctx, c.inspector, q)
			if err != nil {
				c.broken(promise.P13, "%v", err)
			}
			want, err := compare.List(c.ctx, c.model, q)
			if err != nil {
				c.Fatalf("list of the model: %v", err)
			}
			c.sameMessages(topic, state, got, want)
		}
	}
	for _, topic := range c.topics {
		if _, companion := storekit.Companion(topic); companion == "" && c.can.Emit {
			c.sameEvents(topic)
		}
	}
	c.checkSound()
}

// sameEvents compares the events of a topic in both stores. The order and the IDs of events are not
// compared, because IDs are made from the counter of tokens, which differs.
func (c *comparison) sameEvents(topic string) {
	told := func(in punctual.Inspector) map[event.Event]int {
		list, err := compare.List(c.ctx, in, punctual.ListQuery{Topic: storekit.EventTopic(topic), State: punctual.StateReady})
		if err != nil {
			c.broken(promise.P13, "%v", err)
		}
		count := make(map[event.Event]int)
		for _, i := range list {
			e, err := event.Parse(i.Body)
			if err != nil {
				c.broken(promise.P13, "%s/%s is no event: %v", i.Topic, i.ID, err)
			}
			if c.opener.reopen != nil {
				e.Delivered = time.Time{} // may be lost
			}
			count[e]++
		}
		return count
	}
	got, want := told(c.inspector), told(c.model)
	for e, n := range want {
		if got[e] != n {
			c.broken(promise.P13, "%s tells of %+v %d times; want %d", topic, e, got[e], n)
		}
	}
	for e, n := range got {
		if want[e] == 0 {
			c.broken(promise.P13, "%s tells of %+v %d times; want none", topic, e, n)
		}
	}
}

// sameMessages compares two lists without their order. compare.List has checked that each is in the
// order of time.
func (c *comparison) sameMessages(topic string, state punctual.State, got, want []punctual.Info) {
	if len(got) != len(want) {
		c.broken(promise.P1, "%s holds %d %s messages; want %d", topic, len(got), state, len(want))
	}
	byID := func(a, b punctual.Info) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(got, byID)
	slices.SortFunc(want, byID)
	for i := range want {
		if d := compare.Info(got[i], want[i]); d != "" {
			c.broken(promise.P1, "%s/%s, %s, in the store and in the model: %s", topic, want[i].ID, state, d)
		}
	}
}

func (c *comparison) checkSound() {
	ch, err := punctual.As[storekit.Checker](c.store)
	if err != nil {
		return
	}
	r, err := ch.Check(c.ctx, nil)
	if err != nil || len(r.Problems) > 0 {
		c.broken(promise.P1, "the store's own scan: %q, %v", r.Problems, err)
	}
}

// showPatch returns a patch as one line of the log.
func showPatch(p punctual.SettingsPatch) string {
	text, err := json.Marshal(p)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func ids(ds []punctual.Delivery) []string {
	out := make([]string, len(ds))
	for i, d := range ds {
		out[i] = d.ID
	}
	return out
}

func ptr[V any](v V) *V { return &v }
