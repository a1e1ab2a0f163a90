package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// This file answers requests with many items. An item that is invalid or not allowed gets its own
// error, and the other items go to the store in one call.

// batch has the items of a request that go to the store, with their places in the request, and the
// results of all items. places and results are nil if without has found that all items go to the
// store.
type batch[In, Out any] struct {
	items   []In
	places  []int
	results []Out
}

func newBatch[In, Out any](n int) *batch[In, Out] {
	return &batch[In, Out]{items: make([]In, 0, n), places: make([]int, 0, n), results: make([]Out, n)}
}

func (b *batch[In, Out]) add(place int, item In) {
	b.items = append(b.items, item)
	b.places = append(b.places, place)
}

// without returns a batch of the items that are not refused. The refused ones have their results
// already, which result makes of their errors.
func without[In, Out any](items []In, refused []error, result func(*In, error) Out) *batch[In, Out] {
	if !slices.ContainsFunc(refused, func(err error) bool { return err != nil }) {
		return &batch[In, Out]{items: items}
	}
	b := newBatch[In, Out](len(items))
	for i, err := range refused {
		if err != nil {
			b.results[i] = result(&items[i], err)
			continue
		}
		b.add(i, items[i])
	}
	return b
}

// all adds the store's results to those of the refused items, and returns the results of the
// request in its order.
func (b *batch[In, Out]) all(results []Out) []Out {
	if b.results == nil {
		return results
	}
	for i, r := range results {
		b.results[b.places[i]] = r
	}
	return b.results
}

// form returns the form in which the client wants the answer.
func (c *call) form() wire.Form {
	if c.wants(wire.TypeCompact) {
		return wire.Compact
	}
	return wire.JSON
}

// isCompact reports whether the body of the request is in the compact form.
func (c *call) isCompact() bool { return wire.FormOf(c.r.Header.Get("Content-Type")) == wire.Compact }

// pushMany stores messages of several topics.
func (c *call) pushMany() error {
	ms, refused, err := c.pushMessages()
	if err != nil {
		return err
	}
	b := without(ms, refused, func(m *punctual.NewMessage, err error) punctual.PushResult {
		return punctual.PushResult{ID: m.ID, Topic: m.Topic, Err: err}
	})
	results, err := storeBatch(c, b.items, c.server.store.Push)
	if err != nil {
		return err
	}
	results = b.all(results)
	if c.isLines() {
		lines, err := wire.EncodePushLines(results)
		if err != nil {
			return notEncoded(err)
		}
		return c.write(http.StatusOK, wire.TypeNDJSON, lines)
	}
	data, err := wire.EncodePushAnswer(c.form(), results)
	return c.encoded(data, err)
}

// encoded answers with data in the form that the client wants, or fails if err says that data could
// not be encoded.
func (c *call) encoded(data []byte, err error) error {
	if err != nil {
		return notEncoded(err)
	}
	f := c.form()
	if f == wire.JSON {
		data = append(data, '\n')
	}
	return c.write(http.StatusOK, f.String(), data)
}

// pushMessages reads the messages of the request. refused has, for each message, why it cannot be
// pushed, or nil. With an Idempotency-Key once prepares each message, and a message without an ID
// gets one from the key.
func (c *call) pushMessages() (ms []punctual.NewMessage, refused []error, err error) {
	key, err := c.idempotencyKey()
	if err != nil {
		return nil, nil, err
	}
	if ms, refused, err = c.readMessages(); err != nil || key == "" {
		return ms, refused, err
	}
	for i := range ms {
		if refused[i] != nil {
			continue
		}
		if ms[i].ID == "" {
			ms[i].ID = storekit.IDOfKey(key, i)
		}
		refused[i] = once(&ms[i], true)
	}
	return ms, refused, nil
}

// readMessages reads the messages of the request as pushMessages does, but ignores the
// Idempotency-Key. Of a message in JSON that is refused it keeps only topic and ID.
func (c *call) readMessages() (ms []punctual.NewMessage, refused []error, err error) {
	if c.isCompact() {
		if ms, err = wire.DecodeCompactPush(c.body, c.server.limits.MaxBatch, c.holdItems); err != nil {
			return nil, nil, err
		}
		refused = make([]error, len(ms))
		for i := range ms {
			if refused[i] = c.allows(access.Push, ms[i].Topic); refused[i] == nil {
				refused[i] = c.takes(&ms[i])
			}
		}
		return ms, refused, nil
	}
	add := func(item *wire.PushItem, malformed error) error {
		m := punctual.NewMessage{Topic: string(item.Topic), ID: string(item.ID)}
		if m.Topic == "" {
			m.Topic = c.param("topic")
		}
		err := malformed
		if err == nil { // checked before the settings of the topic are read, so that a client without the right learns nothing about the topic
			err = c.allows(access.Push, m.Topic)
		}
		size := wire.ItemBytes(1)
		if err == nil {
			size = item.Size()
			topic := m.Topic
			m, err = item.Message()
			m.Topic = topic
		}
		if err == nil {
			err = c.takes(&m)
		}
		if err != nil {
			m = punctual.NewMessage{Topic: m.Topic, ID: m.ID}
		}
		ms, refused = append(ms, m), append(refused, err)
		return c.holdItems(size)
	}
	if c.isLines() {
		err = c.pushLines(add)
	} else {
		err = wire.DecodePush(c.body, c.server.limits.MaxBatch, func(item *wire.PushItem) error { return add(item, nil) })
	}
	if err != nil {
		return nil, nil, err
	}
	c.dropBody()
	return ms, refused, nil
}

// pushLines calls add with each line of the request and the error for which the line could not be
// read, or nil.
func (c *call) pushLines(add func(*wire.PushItem, error) error) error {
	n := 0
	for number, line := range wire.Lines(c.body) {
		if n++; n > c.server.limits.MaxBatch {
			return fmt.Errorf("more than %d lines in one request: send fewer: %w", c.server.limits.MaxBatch, punctual.ErrTooLarge)
		}
		var item wire.PushItem
		err := wire.DecodeRequest(line, &item)
		if err != nil {
			err = fmt.Errorf("line %d: %w", number, err)
		}
		if err := add(&item, err); err != nil {
			return err
		}
	}
	return nil
}

// takes returns an error if the message is beyond the limits of the server: its body is too large,
// its copies for the groups of the topic would be, or its topic would be one too many.
func (c *call) takes(m *punctual.NewMessage) error {
	if int64(len(m.Body)) > c.server.limits.MaxBody {
		return fmt.Errorf("body has %d bytes: at most %d are allowed: %w", len(m.Body), c.server.limits.MaxBody, punctual.ErrTooLarge)
	}
	if err := c.mayMake(m.Topic); err != nil {
		return err
	}
	return c.copiesFit(m)
}

// copiesFit is punctual.CheckCopies with the settings of the store.
func (c *call) copiesFit(m *punctual.NewMessage) error {
	if c.server.inspector == nil {
		return nil
	}
	return punctual.CheckCopies(m, func() (punctual.Settings, error) {
		return storeCall(c, func(ctx context.Context) (punctual.Settings, error) {
			return c.server.inspector.Settings(ctx, m.Topic)
		})
	})
}

// allows checks the client's right to do a to a topic. A name that no topic can have is an
// ErrInvalid.
func (c *call) allows(a access.Action, topic string) error {
	if err := storekit.CheckTopic(topic); err != nil {
		return err
	}
	return c.principal.Check(a, topic)
}

func (c *call) isLines() bool {
	mediaType, _, _ := strings.Cut(c.r.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(mediaType), wire.TypeNDJSON)
}

// settleMany settles leases in several topics.
func (c *call) settleMany() error {
	ss, refused, err := c.settlements()
	if err != nil {
		return err
	}
	b := without(ss, refused, func(_ *punctual.Settlement, err error) error { return err })
	errs, err := storeBatch(c, b.items, c.server.store.Settle)
	if err != nil {
		return err
	}
	c.settled(b.items, errs)
	data, err := wire.EncodeSettleAnswer(c.form(), ss, b.all(errs))
	return c.encoded(data, err)
}

// settled notes in the windows of streams and in the tracker of consumers what became of
// settlements. An extension without a length is noted a second time with the topic's lease, which
// settled reads because the store does not return when the new lease ends.
func (c *call) settled(ss []punctual.Settlement, errs []error) {
	now := time.Now()
	note := func(x *punctual.Settlement, err error) {
		c.server.windows.settled(x, err, now)
		c.server.tracker.Settled(x, err)
	}
	for i, err := range errs {
		note(&ss[i], err)
	}
	leases := c.topicLeases(ss, errs)
	if len(leases) == 0 {
		return
	}
	for i, err := range errs {
		if lease := leases[ss[i].Topic]; lease != 0 && hasTopicLease(&ss[i], err) {
			x := ss[i]
			x.Delay = lease
			note(&x, err)
		}
	}
}

// hasTopicLease reports whether a settlement has given its message a new lease as long as the
// setting of the topic says.
func hasTopicLease(x *punctual.Settlement, err error) bool {
	return x.Verb == punctual.SettleExtend && x.Delay == 0 && err == nil
}

// leaseTime bounds how long the answer to an extension waits for the settings of topics (P14).
const leaseTime = time.Second

// topicLeases returns the Lease of each topic in which a settlement hasTopicLease. It is 0 for a
// topic whose settings the store does not return within leaseTime.
func (c *call) topicLeases(ss []punctual.Settlement, errs []error) (of map[string]time.Duration) {
	for i, err := range errs {
		if hasTopicLease(&ss[i], err) {
			if of == nil {
				of = make(map[string]time.Duration)
			}
			of[ss[i].Topic] = 0
		}
	}
	if of == nil || c.server.inspector == nil {
		return of
	}
	ctx, end := context.WithTimeout(c.r.Context(), leaseTime)
	defer end()
	for topic := range of {
		set, err := c.server.inspector.Settings(ctx, topic)
		if err != nil {
			break // the extensions are made, so the request does not fail
		}
		of[topic] = set.Lease
	}
	return of
}

// settlements reads the settlements of the request. refused has, for each of them, why it cannot be
// carried out, or nil.
func (c *call) settlements() (ss []punctual.Settlement, refused []error, err error) {
	if c.isCompact() {
		if ss, err = wire.DecodeCompactSettle(c.body, c.server.limits.MaxBatch, c.holdItems); err != nil {
			return nil, nil, err
		}
		refused = make([]error, len(ss))
		for i := range ss {
			refused[i] = c.allows(access.Work, ss[i].Topic)
		}
		return ss, refused, nil
	}
	own, given, err := c.truth("after_header")
	if err != nil {
		return nil, nil, err
	}
	err = wire.DecodeSettle(c.body, c.server.limits.MaxBatch, func(item *wire.SettleItem) error {
		settlement, err := c.settlement(item)
		size := item.Size()
		if err != nil {
			settlement, size = punctual.Settlement{Topic: item.Topic, ID: item.ID}, wire.ItemBytes(1)+int64(len(item.Topic)+len(item.ID))
		} else if own || !given {
			storekit.SetAfter(&settlement)
		}
		ss, refused = append(ss, settlement), append(refused, err)
		return c.holdItems(size)
	})
	if err != nil {
		return nil, nil, err
	}
	c.dropBody()
	return ss, refused, nil
}

// settlement returns an item as a settlement, or why the client may not have it carried out. The
// rights to the message and to the topics of the follow-ups are checked before the content is read.
func (c *call) settlement(item *wire.SettleItem) (x punctual.Settlement, err error) {
	if err := c.allows(access.Work, item.Topic); err != nil {
		return x, err
	}
	if err := c.mayFollow(item.Then); err != nil {
		return x, err
	}
	if x, err = item.Settlement(); err != nil {
		return x, err
	}
	return x, c.takesThen(&x)
}

// amendMany cancels, reschedules, requeues and deletes messages of several topics.
func (c *call) amendMany() error {
	var items []wire.AmendItem
	err := wire.DecodeAmend(c.body, c.server.limits.MaxBatch, func(item *wire.AmendItem) error {
		items = append(items, *item)
		return c.holdItems(wire.ItemBytes(1) + int64(len(item.Topic)+len(item.ID)))
	})
	if err != nil {
		return err
	}
	c.dropBody()
	b := newBatch[punctual.Amendment, wire.AmendResult](len(items))
	for i := range items {
		item := &items[i]
		action := access.Amend
		if item.Change == punctual.ChangeDelete.String() {
			action = access.Admin // the right that a purge needs
		}
		err := c.allows(action, item.Topic)
		var a punctual.Amendment
		if err == nil {
			a, err = item.Amendment()
		}
		if err != nil {
			b.results[i] = wire.AmendResult{ID: item.ID, Topic: item.Topic, Error: wire.ItemProblem(err)}
			continue
		}
		b.add(i, a)
	}
	results, err := c.amend(b.items, "")
	if err != nil {
		return err
	}
	for i, r := range results {
		b.results[b.places[i]] = wire.AmendResultOf(&b.items[i], r)
	}
	return c.json(http.StatusOK, wire.AmendAnswer{Results: b.results})
}
