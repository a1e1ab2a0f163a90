package server

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// pushOne stores one message, whose body is the body of the request.
func (c *call) pushOne() error {
	m, err := c.message()
	if err != nil {
		return err
	}
	if err := c.takes(&m); err != nil {
		return err
	}
	results, err := storeBatch(c, []punctual.NewMessage{m}, c.server.store.Push)
	if err != nil {
		return err
	}
	r := results[0]
	if r.Err != nil {
		return r.Err
	}
	status := http.StatusOK
	if r.Status == punctual.PushStored {
		status = http.StatusCreated
	}
	return c.json(status, wire.PushResultOf(r))
}

// when returns the parameters in, at, due, at_local and zone.
func (c *call) when() wire.When {
	given := func(name string) wire.Given { return wire.Given(c.param(name)) }
	return wire.When{In: given("in"), At: given("at"), Due: given("due"), AtLocal: given("at_local"), Zone: given("zone")}
}

func (c *call) message() (m punctual.NewMessage, err error) {
	m = punctual.NewMessage{Topic: c.path["topic"], Body: c.body}
	if len(m.Body) == 0 {
		m.Body = nil
	}
	key, err := c.idempotencyKey()
	if err != nil {
		return m, err
	}
	if m.ID, err = c.messageID(key); err != nil {
		return m, err
	}
	if m.Delay, m.Due, err = c.when().Times(); err != nil {
		return m, err
	}
	if m.ExpireAfter, err = c.duration("expire"); err != nil {
		return m, err
	}
	if m.DropExpired, _, err = c.truth("drop_expired"); err != nil {
		return m, err
	}
	if m.MaxAttempts, err = c.number("max_attempts", 0); err != nil {
		return m, err
	}
	if m.IfExists, err = wire.ParseIfExists(c.param("if_exists")); err != nil {
		return m, err
	}
	if m.IfDue, err = wire.ParseIfDue(c.param("if_due")); err != nil {
		return m, err
	}
	var given wire.Attributes
	for _, f := range &wire.AttributeFields {
		*f.Member(&given) = wire.Given(c.param(f.Name))
	}
	a, err := given.Read()
	if err != nil {
		return m, err
	}
	a.SetNew(&m)
	if m.Headers, err = messageHeaders(c.r.Header); err != nil || key == "" {
		return m, err
	}
	return m, once(&m, !c.query.Has("remember"))
}

// messageID returns the ID of the message from the path, the parameter id or the Idempotency-Key,
// or "".
func (c *call) messageID(key string) (string, error) {
	if id, ok := c.path["id"]; ok {
		return id, nil
	}
	id := c.param("id")
	if key != "" && id != "" && id != key {
		return "", storekit.Invalidf("Idempotency-Key: it is the message's ID, so give no other id beside it")
	}
	return cmp.Or(id, key), nil
}

// messageHeaders returns the message's headers, which are the Content-Type and the headers with
// wire.HeaderPrefix of the request. A Content-Type that curl has added by itself is left out.
func messageHeaders(h http.Header) (map[string]string, error) {
	var out map[string]string
	add := func(name string, values []string) error {
		if len(values) != 1 {
			return storekit.Invalidf("header %s is given %d times: a message has each once", name, len(values))
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[name] = values[0]
		return nil
	}
	if values := h.Values("Content-Type"); len(values) > 0 && !(len(values) == 1 && isOfCurl(values[0])) {
		if err := add(wire.ContentTypeHeader, values); err != nil {
			return nil, err
		}
	}
	for name, values := range h {
		own, ok := strings.CutPrefix(name, wire.HeaderPrefix)
		if !ok {
			continue
		}
		own = strings.ToLower(own)
		if own == wire.ContentTypeHeader && out[own] != "" {
			return nil, storekit.Invalidf("both Content-Type and %s%s are given: use one", wire.HeaderPrefix, "Content-Type")
		}
		if err := add(own, values); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// isOfCurl reports whether a Content-Type is the one that curl -d adds by itself, which says
// nothing about the message.
func isOfCurl(contentType string) bool {
	return strings.EqualFold(contentType, "application/x-www-form-urlencoded")
}

// setMessageHeaders describes a message in the headers of an answer whose body is the message's
// body.
func setMessageHeaders(h http.Header, m *punctual.Message) error {
	h.Set(wire.HeaderID, m.ID)
	h.Set(wire.HeaderTopic, m.Topic)
	h.Set(wire.HeaderDue, wire.TimeText(m.Due))
	h.Set(wire.HeaderAttempt, strconv.Itoa(m.Attempt))
	others := make(map[string]string)
	for name, value := range m.Headers {
		key := wire.HeaderPrefix + textproto.CanonicalMIMEHeaderKey(name)
		if _, inUse := h[key]; !inUse && canStand(name, value) {
			h[key] = []string{value}
		} else {
			others[name] = value
		}
	}
	if len(others) == 0 {
		return nil
	}
	data, err := wire.Encode(wire.HeadersOf(others))
	h.Set(wire.HeaderOthers, base64.StdEncoding.EncodeToString(data))
	return err
}

// canStand reports whether a message's header arrives unchanged as an HTTP header. Its name must be
// a token in lower case, and its value printable ASCII without spaces around it.
func canStand(name, value string) bool {
	if name == "" || name != strings.ToLower(name) || value != strings.TrimSpace(value) {
		return false
	}
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			return false
		}
	}
	return true
}

// get answers with a message as JSON, or with its body if the client wants wire.TypeRaw.
func (c *call) get() error {
	if c.server.inspector == nil {
		return errNoInspector
	}
	m, err := storeCall(c, func(ctx context.Context) (punctual.Info, error) {
		return c.server.inspector.Get(ctx, c.path["topic"], c.path["id"])
	})
	if err != nil {
		return err
	}
	if !c.wants(wire.TypeRaw) {
		return c.json(http.StatusOK, wire.MessageOf(&m))
	}
	if err := setMessageHeaders(c.w.Header(), &m.Message); err != nil {
		return err
	}
	return c.write(http.StatusOK, wire.TypeRaw, m.Body)
}

var errKeepsNone = fmt.Errorf("this store keeps no finished messages: %w", punctual.ErrUnsupported)

// finished answers with the record of a finished message.
func (c *call) finished() error {
	if c.server.keeper == nil {
		return errKeepsNone
	}
	answer, err := storeCall(c, func(ctx context.Context) (answer wire.Finished, err error) {
		f, err := c.server.keeper.Finished(ctx, c.path["topic"], c.path["id"])
		if answer = wire.FinishedOf(&f); err != nil || c.server.inspector == nil || !c.principal.Allows(access.Inspect, access.AuditTopic) {
			return answer, err
		}
		e, err := audit.Canceller(ctx, c.server.inspector, &f)
		if e != nil {
			answer.By = e.Who
		}
		return answer, err
	})
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, answer)
}

// finishedStep is how many finished records an answer has at most. During the call finishedHeld
// bytes count for them, because their histories can be long.
const (
	finishedStep = 1000
	finishedHeld = 20 << 20
)

// listFinished answers with one page of a topic's finished records.
func (c *call) listFinished() error {
	if c.server.keeper == nil {
		return errKeepsNone
	}
	q := punctual.FinishedQuery{Topic: c.path["topic"], Outcome: punctual.Outcome(c.param("outcome")), After: c.param("after")}
	var err error
	if q.From, q.To, err = c.span(); err != nil {
		return err
	}
	if q.Limit, err = c.number("limit", 0); err != nil {
		return err
	}
	if q.Descending, _, err = c.truth("descending"); err != nil {
		return err
	}
	if q, err = storekit.CheckFinished(q); err != nil {
		return err
	}
	q.Limit = min(q.Limit, finishedStep)
	if err := c.hold(finishedHeld); err != nil {
		return err
	}
	defer c.drop(finishedHeld)
	page, err := storeCall(c, func(ctx context.Context) (punctual.FinishedPage, error) { return c.server.keeper.ListFinished(ctx, q) })
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, wire.FinishedPageOf(page))
}

// list answers with one page of a topic's messages in a state.
func (c *call) list() error {
	if c.server.inspector == nil {
		return errNoInspector
	}
	q := punctual.ListQuery{Topic: c.path["topic"], Reason: punctual.DeathReason(c.param("reason")), After: c.param("after")}
	var err error
	if q.State, err = punctual.ParseState(c.param("state")); err != nil {
		return err
	}
	if q.From, q.To, err = c.span(); err != nil {
		return err
	}
	if q.Limit, err = c.number("limit", 0); err != nil {
		return err
	}
	if q.Descending, _, err = c.truth("descending"); err != nil {
		return err
	}
	if q.Bare, _, err = c.truth("bare"); err != nil {
		return err
	}
	if q, err = storekit.CheckList(q); err != nil {
		return err
	}
	return c.listPage(q)
}

const (
	// listStep is how many messages of a list are read from the store in one call. During the call
	// listHeld bytes count for them, because their size is not known yet.
	listStep = 32
	listHeld = 16 << 20
	// listBytes ends a page: no further step is read once its messages have so many bytes.
	listBytes = 64 << 20
)

// listPage answers with a page that it reads from the store in steps and writes after each step. If
// a step after the first one cannot be read, the page ends before that step. A client that asks for
// the next page gets the error if it lasts.
func (c *call) listPage(q punctual.ListQuery) error {
	out := &pieces{call: c}
	left, bytes, next := q.Limit, int64(0), ""
	for begun := false; left > 0 && bytes < listBytes; begun = true {
		q.Limit = min(left, listStep)
		page, err := c.listSome(q)
		if err != nil && begun {
			break
		}
		if err != nil {
			return err
		}
		n := sizeOfPage(page)
		if err := c.hold(n); err != nil && begun {
			break
		} else if err != nil {
			return err
		}
		if err := c.writeMessages(out, page.Messages, !begun); err != nil {
			return out.end(err)
		}
		c.drop(n)
		left, bytes, next, q.After = left-len(page.Messages), bytes+n, page.Next, page.Next
		if next == "" || len(page.Messages) < q.Limit {
			break
		}
	}
	return c.endPage(out, next)
}

// listSome reads one step of a list from the store.
func (c *call) listSome(q punctual.ListQuery) (punctual.Page, error) {
	if err := c.hold(listHeld); err != nil {
		return punctual.Page{}, err
	}
	defer c.drop(listHeld)
	return storeCall(c, func(ctx context.Context) (punctual.Page, error) { return c.server.inspector.List(ctx, q) })
}

// sizeOfPage estimates how many bytes of memory a page takes.
func sizeOfPage(p punctual.Page) int64 {
	n := int64(0)
	for i := range p.Messages {
		m := &p.Messages[i]
		n += 500 + int64(len(m.Body))
		for name, value := range m.Headers {
			n += 100 + int64(len(name)+len(value))
		}
		for _, f := range m.Failures {
			n += 100 + int64(len(f.Error))
		}
	}
	return n
}

// writeMessages writes the messages of one step. first is true for the first step of a page.
func (c *call) writeMessages(out *pieces, ms []punctual.Info, first bool) (err error) {
	c.keepsDeadline = false
	before := `{"messages":[`
	for i := range ms {
		if i > 0 || !first {
			before = ","
		}
		data, err := wire.Encode(wire.MessageOf(&ms[i]))
		if err != nil {
			return notEncoded(err)
		}
		if _, err := out.Write(append([]byte(before), data...)); err != nil {
			return err
		}
	}
	if first && len(ms) == 0 {
		_, err = out.Write([]byte(before))
	}
	return err
}

// endPage writes the end of a page, with the position of the next page if there is one.
func (c *call) endPage(out *pieces, next string) error {
	end := []byte("]}\n")
	if next != "" {
		quoted, err := wire.Encode(next)
		if err != nil {
			return out.end(notEncoded(err))
		}
		end = fmt.Appendf(nil, "],\"next\":%s}\n", quoted)
	}
	_, err := out.Write(end)
	return out.end(err)
}

// cancel, reschedule, requeue and deleteMessage change one message.
func (c *call) cancel() error {
	return c.amendOne(punctual.Amendment{Change: punctual.ChangeCancel})
}

func (c *call) reschedule() error {
	if c.when().IsZero() {
		return storekit.Invalidf("a reschedule needs a time: give in, at or at_local")
	}
	return c.amendOne(punctual.Amendment{Change: punctual.ChangeReschedule})
}

func (c *call) requeue() error {
	return c.amendOne(punctual.Amendment{Change: punctual.ChangeRequeue})
}

func (c *call) deleteMessage() error {
	return c.amendOne(punctual.Amendment{Change: punctual.ChangeDelete})
}

func (c *call) amendOne(a punctual.Amendment) (err error) {
	a.Topic, a.ID = c.path["topic"], c.path["id"]
	when := c.when()
	if a.Delay, a.Due, err = when.Times(); err != nil {
		return err
	}
	if a.IfDue, err = wire.ParseIfDue(c.param("if_due")); err != nil {
		return err
	}
	var detail []string
	for _, name := range []string{"in", "at", "due", "at_local", "zone", "if_due"} {
		if text := c.param(name); text != "" {
			detail = append(detail, name+" "+text)
		}
	}
	results, err := c.amend([]punctual.Amendment{a}, strings.Join(detail, ", "))
	if err != nil {
		return err
	}
	if results[0].Err != nil {
		return results[0].Err
	}
	return c.json(http.StatusOK, wire.AmendResultOf(&a, results[0]))
}

// settleOne settles one lease with the verb at the end of the path.
func (c *call) settleOne() error {
	_, verb, _ := strings.Cut(c.route.path, pathMessage+"/")
	token, err := strconv.ParseInt(c.param("token"), 10, 64)
	if err != nil {
		return storekit.Invalidf("parameter \"token\" is %q: give that of the claim", c.param("token"))
	}
	item := wire.SettleItem{
		Topic: c.path["topic"], ID: c.path["id"], Token: token, Verb: verb, When: c.when(), Error: storekit.TrimError(c.param("error")),
	}
	if item.Then, err = c.followUps(); err != nil {
		return err
	}
	settlement, err := item.Settlement()
	if err == nil {
		err = c.takesThen(&settlement)
	}
	if err != nil {
		return err
	}
	storekit.SetAfter(&settlement)
	errs, err := storeBatch(c, []punctual.Settlement{settlement}, c.server.store.Settle)
	if err != nil {
		return err
	}
	c.settled([]punctual.Settlement{settlement}, errs)
	if errs[0] != nil {
		return errs[0]
	}
	return c.json(http.StatusOK, wire.SettleResult{Topic: item.Topic, ID: item.ID})
}
