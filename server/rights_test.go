package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/internal/rigs/rights"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/server"
)

var update = flag.Bool("update", false, "write the golden files")

// request is one way to send a route what it takes. TOPIC stands for the topic.
type request struct{ name, query, body, contentType string }

// requests are the ways to use routes that need a query or a body, by the route's operationId.
// Other routes are sent nothing.
func requests(t *testing.T) map[string][]request {
	compact := func(data []byte, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	settle := []request{{query: "?token=1"}}
	// Follow-ups go to the topic of the message, and to one that no grant names by itself.
	then := func(topic string) string { return `"then":[{"topic":"` + topic + `","id":"n","body":""}]` }
	follow := []request{
		settle[0],
		{name: "then there", query: "?token=1", body: "{" + then("TOPIC") + "}"},
		{name: "then elsewhere", query: "?token=1", body: "{" + then(rights.Theirs) + "}"},
	}
	return map[string][]request{
		"list": {{query: "?state=dead"}}, "purge": {{query: "?state=live"}}, "reschedule": {{query: "?in=1s"}}, "configure": {{body: "{}"}},
		"bulk":        {{name: "cancel", body: `{"do":"cancel"}`}, {name: "dry run", body: `{"do":"shift","by":"1h","dry_run":true}`}, {name: "delete", body: `{"do":"delete","state":"dead"}`}},
		"putSchedule": {{body: `{"spec":"@hourly"}`}}, "backfillSchedule": {{query: "?from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z"}},
		"forecast": {{name: "all topics"}, {query: "?topic=TOPIC"}},
		"ack":      follow, "retry": settle, "snooze": follow, "discard": follow, "release": settle, "extend": settle,
		"pushMany": {
			{name: "JSON", body: `[{"topic":"TOPIC","id":"n","body":""}]`},
			{name: "lines", body: `{"topic":"TOPIC","id":"n","body":""}`, contentType: wire.TypeNDJSON},
			{name: "compact", body: compact(wire.EncodePush(wire.Compact, []punctual.NewMessage{{Topic: "TOPIC", ID: "n"}})), contentType: wire.TypeCompact},
			{name: "companion", body: `[{"topic":"TOPIC@events","id":"n","body":""}]`},
			{name: "malformed item", body: `[{"topic":"TOPIC","id":"n","body":"","in":"soon"}]`},
		},
		"claim": {{body: `{"topics":["TOPIC"],"max":1}`}, {name: "with another topic", body: `{"topics":["TOPIC","` + rights.Theirs + `"],"max":1}`}},
		"settleMany": {
			{name: "JSON", body: `{"settlements":[{"topic":"TOPIC","id":"m","token":"1","verb":"ack"}]}`},
			{
				name: "compact", contentType: wire.TypeCompact,
				body: compact(wire.EncodeSettle(wire.Compact, []punctual.Settlement{{Topic: "TOPIC", ID: "m", Token: 1, Verb: punctual.SettleAck}})),
			},
			{name: "then there", body: `{"settlements":[{"topic":"TOPIC","id":"m","token":"1","verb":"ack",` + then("TOPIC") + `}]}`},
			{name: "then elsewhere", body: `{"settlements":[{"topic":"TOPIC","id":"m","token":"1","verb":"ack",` + then(rights.Theirs) + `}]}`},
		},
		"amendMany": {
			{name: "cancel", body: `{"amendments":[{"change":"cancel","topic":"TOPIC","id":"m"}]}`},
			{name: "delete", body: `{"amendments":[{"change":"delete","topic":"TOPIC","id":"m"}]}`},
			{name: "both", body: `{"amendments":[{"change":"cancel","topic":"TOPIC","id":"m"},{"change":"delete","topic":"TOPIC","id":"m"}]}`},
		},
	}
}

// shop is a server over a store in memory that each request finds in the same state.
type shop struct {
	*testing.T
	store    *memstore.Store
	server   *server.Server
	recorded int // changes that went through Options.Record
}

func newShop(t *testing.T, o server.Options) *shop {
	s := &shop{T: t, store: memstore.New(nil)}
	o.Record = func(ctx context.Context, _ audit.Change, do func(context.Context) (int64, error)) (int64, error) {
		s.recorded++
		return do(ctx)
	}
	o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "metrics") })
	var err error
	if s.server, err = server.New(s.store, &o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.server.Close()
		if err := s.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// fill empties the store, and then stores one message that is due later and one schedule in each
// topic, and a message in a companion, which has no schedules.
func (s *shop) fill() {
	s.Helper()
	all, err := s.store.Topics(s.Context())
	for _, topic := range all {
		if _, e := s.store.DeleteTopic(s.Context(), topic.Topic); e != nil && !errors.Is(e, punctual.ErrNotFound) { // a companion goes with its topic
			err = e
		}
	}
	for _, topic := range []string{rights.Mine, rights.Theirs, rights.Audit, rights.Mine + "@events"} {
		if rs, e := s.store.Push(s.Context(), []punctual.NewMessage{{Topic: topic, ID: "m", Delay: time.Hour}}); e != nil || rs[0].Err != nil {
			err = fmt.Errorf("%w, %v", e, rs)
		}
		if topic == rights.Mine+"@events" {
			continue
		}
		daily := schedule.Schedule{Topic: topic, Name: "m", Spec: "@daily"}
		if _, e := schedule.Put(s.Context(), punctual.NewQueue(s.store, nil), daily); e != nil {
			err = e
		}
	}
	if err != nil {
		s.Fatal(err)
	}
}

// content is each topic of the store and the first page of its messages in each state.
func (s *shop) content() (all []any) {
	s.Helper()
	topics, err := s.store.Topics(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	for _, topic := range topics {
		all = append(all, topic)
		for state := punctual.StateScheduled; state <= punctual.StateDead; state++ {
			page, err := s.store.List(s.Context(), punctual.ListQuery{Topic: topic.Topic, State: state})
			if err != nil {
				s.Fatal(err)
			}
			all = append(all, page)
		}
	}
	return all
}

// ask sends a request and returns the answer in words: its status, the codes of its errors, which
// of Mine, Theirs and Audit a list of topics shows, and whether the store was changed and the
// change recorded. After a change it fills the store again.
func (s *shop) ask(method, target string, q request, h rights.Holder) string {
	s.Helper()
	before, recorded := s.content(), s.recorded
	r := httptest.NewRequestWithContext(s.Context(), method, target, strings.NewReader(q.body))
	r.Host = "localhost"
	if h.Token != "" {
		r.Header.Set("Authorization", "Bearer "+h.Token)
	}
	if q.contentType != "" {
		r.Header.Set("Content-Type", q.contentType)
	}
	w := httptest.NewRecorder()
	s.server.ServeHTTP(w, r)
	text, err := io.ReadAll(w.Body)
	if err != nil {
		s.Fatal(err)
	}
	words := []string{fmt.Sprint(w.Code)}
	words = append(words, codes(string(text))...)
	if strings.HasPrefix(string(text), `{"topics":[`) {
		for _, topic := range []string{rights.Mine, rights.Theirs, rights.Audit} {
			if strings.Contains(string(text), topic) {
				words = append(words, "shows "+topic)
			}
		}
	}
	changed := !reflect.DeepEqual(s.content(), before)
	if changed {
		words = append(words, "changed")
		s.fill()
	}
	if s.recorded > recorded {
		words = append(words, "recorded")
	}
	if changed && w.Code >= 400 {
		s.Errorf("%s %s of %q changed the store though it was answered with %d", method, target, h.Name, w.Code)
	}
	return strings.Join(words, " ")
}

// codes are the error codes that an answer holds, in their order.
func codes(text string) (out []string) {
	for {
		_, rest, found := strings.Cut(text, `"code":"`)
		if !found {
			return out
		}
		code, rest, _ := strings.Cut(rest, `"`)
		out, text = append(out, code), rest
	}
}

// Every route answers each holder of rights as testdata/rights.txt says. A difference is a change
// of rights. A new route needs new lines in the file, which -update writes.
func TestRights(t *testing.T) {
	tokens, holders := rights.Holders(t)
	s := newShop(t, server.Options{Authenticator: tokens})
	s.fill()
	table := rights.NewTable(holders)
	ways := requests(t)
	for _, rt := range described(t) {
		all := ways[rt.id]
		if all == nil {
			all = []request{{}}
		}
		for _, whole := range all {
			q := whole
			topics := []string{""}
			if strings.Contains(rt.path+q.query+q.body, "TOPIC") {
				topics = []string{rights.Mine, rights.Theirs, rights.Audit}
			}
			for _, topic := range topics {
				put := strings.NewReplacer("TOPIC", topic)
				q := request{whole.name, put.Replace(whole.query), put.Replace(whole.body), whole.contentType}
				if q.contentType == wire.TypeCompact { // one item, with its length before it, and before each text
					item := []byte(strings.NewReplacer("\x05TOPIC", string(rune(len(topic)))+topic).Replace(whole.body))
					item[1] = byte(len(item) - 2)
					q.body = string(item)
				}
				target := strings.NewReplacer("{id}", "m", "{name}", "m").Replace(put.Replace(rt.path)) + q.query
				table.Add(strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s %s", rt.id, q.name, topic, rt.method, target)), " "), func(h rights.Holder) string {
					return s.ask(rt.method, target, q, h)
				})
			}
		}
	}
	table.Compare(t, "testdata/rights.txt", *update)
}

// On every route that names a topic, those who may do something to the topic may do it to its
// companion events, and nobody else may.
func TestRightsOfCompanions(t *testing.T) {
	tokens, holders := rights.Holders(t)
	s := newShop(t, server.Options{Authenticator: tokens})
	s.fill()
	ways := requests(t)
	asked, allowed := 0, 0
	for _, rt := range described(t) {
		all := ways[rt.id]
		if all == nil {
			all = []request{{}}
		}
		for _, q := range all {
			if !strings.Contains(rt.path+q.query+q.body, "TOPIC") || q.contentType == wire.TypeCompact || strings.Contains(q.body, "@") {
				continue
			}
			for _, h := range holders {
				forbidden := make(map[bool]bool)
				for _, companion := range []bool{false, true} {
					topic, inPath := rights.Mine, rights.Mine
					if companion {
						topic, inPath = rights.Mine+"@events", rights.Mine+"%40events"
					}
					target := strings.NewReplacer("TOPIC", inPath, "{id}", "m").Replace(rt.path) + strings.ReplaceAll(q.query, "TOPIC", topic)
					q := request{body: strings.ReplaceAll(q.body, "TOPIC", topic), contentType: q.contentType}
					a := s.ask(rt.method, target, q, h)
					forbidden[companion] = strings.Contains(a, "forbidden") || strings.Contains(a, "unauthenticated")
					asked++
					if !forbidden[companion] {
						allowed++
					}
				}
				if forbidden[false] != forbidden[true] {
					t.Errorf("%s %s by %s is forbidden for the topic: %v, and for its companion: %v", rt.method, rt.path, h.Name, forbidden[false], forbidden[true])
				}
			}
		}
	}
	if asked < 1000 || allowed < 200 {
		t.Errorf("%d requests, of which %d were allowed: the test shows nothing", asked, allowed)
	}
}

// operation is a route as the OpenAPI description has it.
type operation struct{ id, method, path string }

// described returns every route of the interface.
func described(t *testing.T) (out []operation) {
	t.Helper()
	open := newShop(t, server.Options{})
	r := httptest.NewRequest(http.MethodGet, wire.PathOpenAPI, nil)
	r.Host = "localhost"
	w := httptest.NewRecorder()
	open.server.ServeHTTP(w, r)
	var description struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &description); err != nil || len(description.Paths) == 0 {
		t.Fatalf("%v: %.300s", err, w.Body)
	}
	for _, path := range slices.Sorted(maps.Keys(description.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(description.Paths[path])) {
			out = append(out, operation{description.Paths[path][method].OperationID, strings.ToUpper(method), strings.ReplaceAll(path, "{topic}", "TOPIC")})
		}
	}
	return out
}
