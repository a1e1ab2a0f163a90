package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Options{
			Limits:        Limits{Rate: 1, Burst: 2},
			Authenticator: roles{"a": role("a", access.All, "*"), "b": role("b", access.All, "*")},
		})
		const a, b = "Authorization: Bearer a", "Authorization: Bearer b"
		for range 2 {
			r.ask("PUT /v1/topics/t/messages/x", "", a).want(t, 201)
			r.ask("DELETE /v1/topics/t/messages/x", "", b).want(t, 200)
			time.Sleep(time.Second)
		}
		r.ask("GET /v1", "", a).want(t, 200)
		r.ask("GET /v1", "", a).want(t, 200)
		if refused := r.ask("GET /v1", "", a); refused.header.Get("Retry-After") == "" {
			t.Errorf("no Retry-After: %+v", refused)
		} else {
			refused.problem(t, 429, "overloaded")
		}
		r.ask("GET /v1", "", b).want(t, 200) // P14: another client is not affected
		r.ask("GET /livez", "").want(t, 200)
		time.Sleep(time.Second)
		r.ask("GET /v1", "", a).want(t, 200)
	})
}

func TestSizes(t *testing.T) {
	r := newRig(t, &Options{Limits: Limits{MaxBody: 10, MaxRequest: 200, MaxBatch: 2}})
	r.ask("PUT /v1/topics/t/messages/x", strings.Repeat("x", 10)).want(t, 201)
	r.ask("PUT /v1/topics/t/messages/y", strings.Repeat("x", 11)).problem(t, 413, "too_large")
	r.ask("POST /v1/push", `[{"topic":"t","body":"`+strings.Repeat("x", 11)+`"}]`).want(t, 200, `"too_large"`)
	r.ask("POST /v1/push", `[{},{},{}]`).problem(t, 413, "too_large")
	r.ask("POST /v1/push", "{}\n{}\n{}\n", "Content-Type: application/x-ndjson").problem(t, 413, "too_large")
	r.ask("POST /v1/settle", `{"settlements":[{},{},{}]}`).problem(t, 413, "too_large")
	r.ask("POST /v1/amend", `{"amendments":[{},{},{}]}`).problem(t, 413, "too_large")
	r.ask("POST /v1/push", `[]`+strings.Repeat(" ", 200)).problem(t, 413, "too_large")

	tooMuch := newRig(t, &Options{Limits: Limits{MaxMemory: 100}})
	tooMuch.ask("PUT /v1/topics/t/messages/x", strings.Repeat("x", 100)).want(t, 201)
	if a := tooMuch.ask("PUT /v1/topics/t/messages/y", strings.Repeat("x", 101)); a.header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After: %+v", a)
	} else {
		a.problem(t, 503, "overloaded")
	}
	tooMuch.ask("PUT /v1/topics/t/messages/y", strings.Repeat("x", 100)).want(t, 201) // what was held is free again
}

// A few bytes of a request become a whole item in memory. A request with too many items, topics or
// headers is refused while it is read, so that memory follows the bytes.
func TestMemoryFollowsTheBytes(t *testing.T) {
	r := newRig(t, nil)
	const size = 4 << 20
	many := func(before, item, after string) string {
		return before + strings.TrimSuffix(strings.Repeat(item, size/len(item)), ",") + after
	}
	var names bytes.Buffer
	for i := range size / 12 {
		fmt.Fprintf(&names, `"%x":"",`, i)
	}
	field := func(number, text string) string {
		return number + string(binary.AppendUvarint(nil, uint64(len(text)))) + text
	}
	compact := func(field string) string { return strings.Repeat(field, size/len(field)) }
	message := func(fields string) string { return field("\x0a", "\x0a\x01t"+fields) }
	for name, c := range map[string]struct{ line, body, header string }{
		"an array":           {"POST /v1/push", many(`[`, `{},`, `]`), ""},
		"messages":           {"POST /v1/push", many(`{"messages":[`, `{},`, `]}`), ""},
		"lines":              {"POST /v1/push", many("", "{}\n", ""), "Content-Type: application/x-ndjson"},
		"settlements":        {"POST /v1/settle", many(`{"settlements":[`, `{},`, `]}`), ""},
		"amendments":         {"POST /v1/amend", many(`{"amendments":[`, `{},`, `]}`), ""},
		"topics":             {"POST /v1/claim", many(`{"topics":[`, `"",`, `]}`), ""},
		"headers":            {"POST /v1/push", `[{"topic":"t","body":"","headers":{` + strings.TrimSuffix(names.String(), ",") + `}}]`, ""},
		"headers in base64":  {"POST /v1/push", `[{"topic":"t","body":"","headers_base64":{` + strings.TrimSuffix(names.String(), ",") + `}}]`, ""},
		"headers of a bulk":  {"POST /v1/topics/t/bulk", `{"do":"cancel","headers":{` + strings.TrimSuffix(names.String(), ",") + `}}`, ""},
		"days of a schedule": {"PUT /v1/topics/t/schedules/s", many(`{"spec":"@daily","except":[`, `"",`, `]}`), ""},
		"headers in compact": {"POST /v1/push", message(compact(field("\x22", "nnnnnn") + field("\x2a", ""))), "Content-Type: " + wire.TypeCompact},
		"binary in compact":  {"POST /v1/push", message(compact(field("\x32", ""))), "Content-Type: " + wire.TypeCompact},
		"names in compact":   {"POST /v1/push", compact(message(strings.Repeat(field("\x22", ""), 10_000))), "Content-Type: " + wire.TypeCompact},
		"items in compact":   {"POST /v1/push", compact(field("\x0a", "")), "Content-Type: " + wire.TypeCompact},
	} {
		headers := []string{}
		if c.header != "" {
			headers = append(headers, c.header)
		}
		req := r.request(c.line, c.body, headers...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a := ask(r.Server, req)
		runtime.ReadMemStats(&after)
		if a.status != http.StatusRequestEntityTooLarge && a.status != http.StatusBadRequest {
			t.Errorf("%s: status %d: %.300s; want it refused", name, a.status, a.body)
		}
		if times := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(c.body)); times > 10 {
			t.Errorf("P10: %s: %d bytes made the server allocate %.1f times as much; want what reading them takes", name, len(c.body), times)
		} else {
			t.Logf("%s: %.1f times", name, times)
		}
	}
}

func TestLimitsThatCannotBe(t *testing.T) {
	for _, l := range []Limits{{MaxBody: -1}, {Rate: -1}, {MaxWait: -time.Second}, {MaxBatch: limits.MaxBatch + 1}, {MaxClaim: limits.MaxClaim + 1}} {
		if _, err := New(memstore.New(nil), &Options{Limits: l}); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%+v: %v; want ErrInvalid", l, err)
		}
	}
	if _, err := New(memstore.New(nil), &Options{Origins: []string{"console"}}); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("an origin that is none: %v; want ErrInvalid", err)
	}
}

func TestHostsAndOrigins(t *testing.T) {
	r := newRig(t, &Options{Hosts: []string{"punctual.internal"}, Origins: []string{"https://console.example.com"}})
	for host, ok := range map[string]bool{
		"localhost": true, "LOCALHOST.:7878": true, "127.0.0.1:7878": true, "[::1]:7878": true, "::1": true, "192.168.1.7": true,
		"Punctual.Internal:80": true, "evil.example": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false,
		"punctual.internal.evil.example:7878": false, "": false,
	} {
		a := r.ask("GET /v1/clock", "", "Host: "+host)
		if ok && a.status != 200 || !ok && a.status != 403 {
			t.Errorf("host %q: status %d", host, a.status)
		}
	}
	for origin, ok := range map[string]bool{
		"https://console.example.com": true, "http://localhost:7878": true, "https://console.example.com.evil.example": false,
		"http://console.example.com": false, "null": false,
	} {
		a := r.ask("PUT /v1/topics/t/messages/x?if_exists=replace", "x", "Origin: "+origin)
		if ok && a.status >= 400 || !ok && a.status != 403 {
			t.Errorf("origin %q: status %d", origin, a.status)
		}
		if a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("origin %q: CORS headers %v", origin, a.header)
		}
	}
	anywhere := newRig(t, &Options{Hosts: []string{"*"}})
	anywhere.ask("GET /v1", "", "Host: any.example").want(t, 200)
}

// sick is a store whose pushes and clock fail as the test says.
type sick struct {
	*memstore.Store
	fail func(ctx context.Context) error
}

func (s *sick) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	if err := s.fail(ctx); err != nil {
		return nil, err
	}
	return s.Store.Push(ctx, ms)
}

func (s *sick) Now(ctx context.Context) (time.Time, error) {
	if err := s.fail(ctx); err != nil {
		return time.Time{}, err
	}
	return s.Store.Now(ctx)
}

// An error of the store reaches the client with its code, and with a status that tells whether the
// operation certainly did not happen. A store that has failed is told to OnStoreFailed, and /readyz
// shows only the code of an error.
func TestStoreOnABadDay(t *testing.T) {
	for err, status := range map[error]int{
		punctual.ErrNoSpace: 507, punctual.ErrStoreFailed: 503, punctual.ErrCorrupt: 503, punctual.ErrUnreachable: 503, punctual.ErrOverloaded: 503,
		punctual.ErrClosed: 503, punctual.ErrDurability: 503, punctual.ErrIndeterminate: 500, errors.New("odd"): 500,
	} {
		store := &sick{memstore.New(nil), func(context.Context) error { return fmt.Errorf("push: %w", err) }}
		var told error
		r := &rig{t, store.Store, newServer(t, store, &Options{OnStoreFailed: func(err error) { told = err }})}
		a := ask(r.Server, r.request("PUT /v1/topics/t/messages/x", "x"))
		a.problem(t, status, storekit.ErrorCode(err))
		if status == 503 && a.header.Get("Retry-After") == "" {
			t.Errorf("%v: no Retry-After", err)
		}
		ask(r.Server, r.request("POST /v1/push", `[{"topic":"t","body":""}]`)).problem(t, status, storekit.ErrorCode(err))
		failed := errors.Is(err, punctual.ErrStoreFailed) || errors.Is(err, punctual.ErrCorrupt)
		if (told != nil) != failed {
			t.Errorf("%v: OnStoreFailed got %v", err, told)
		}
		ready := ask(r.Server, r.request("GET /readyz", ""))
		if ready.status != 503 || strings.Contains(ready.body, "odd") {
			t.Errorf("%v: /readyz answers %d: %s", err, ready.status, ready.body)
		}
	}
}

// halfExamined is a store whose examination ends with an error after one finding.
type halfExamined struct {
	*memstore.Store
	err error
}

func (s *halfExamined) Examine(context.Context) ([]storekit.Finding, error) {
	return []storekit.Finding{storekit.Good("directory", "/data")}, fmt.Errorf("examine: %w", s.err)
}

// An examination that fails is answered with what it has found. OnStoreFailed is told if the error
// says that the store has failed.
func TestExaminationThatFails(t *testing.T) {
	for err, failed := range map[error]bool{punctual.ErrStoreFailed: true, punctual.ErrCorrupt: true, punctual.ErrUnreachable: false} {
		store := &halfExamined{memstore.New(nil), err}
		var told error
		r := &rig{t, store.Store, newServer(t, store, &Options{OnStoreFailed: func(err error) { told = err }})}
		r.ask("GET /v1/examine", "").want(t, 200, `"name":"directory"`, `"code":"`+storekit.ErrorCode(err)+`"`)
		if (told != nil) != failed || failed && !errors.Is(told, err) {
			t.Errorf("%v: OnStoreFailed got %v", err, told)
		}
	}
}

// A call of the store that takes too long and certainly did nothing is an ErrOverloaded, and the
// client gets that answer in time.
func TestStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &sick{memstore.New(nil), func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		r := &rig{t, store.Store, newServer(t, store, &Options{Limits: Limits{StoreTime: 5 * time.Second}})}
		began := time.Now()
		ask(r.Server, r.request("PUT /v1/topics/t/messages/x", "x")).problem(t, 503, "overloaded")
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("answered after %v", took)
		}
	})
}

func TestReady(t *testing.T) {
	var reasons []string
	r := newRig(t, &Options{Degraded: func() []string { return reasons }})
	r.ask("GET /readyz", "").want(t, 200, `{"status":"ok"}`)
	reasons = []string{"1 % of messages are later than 1s"}
	r.ask("GET /readyz", "").want(t, 200, `"degraded"`, "later than 1s")
}

// A panic is answered with 500 and logged. Tokens and bodies are in no line of the log. An
// Authenticator that fails or returns nobody is answered with 503.
func TestPanicsAndLogs(t *testing.T) {
	var log bytes.Buffer
	broken := true
	var seen []RequestInfo
	r := newRig(t, &Options{
		Logger:    slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		OnRequest: func(_ context.Context, i RequestInfo) { seen = append(seen, i) },
		Authenticator: authenticator(func(req *http.Request) (*access.Principal, error) {
			if broken {
				panic("broken")
			}
			return roles{"sesame": role("a", access.All, "t")}.Authenticate(req)
		}),
	})
	const who = "Authorization: Bearer sesame"
	r.ask("PUT /v1/topics/t/messages/x", "secret body", who).problem(t, 500, "internal")
	if !strings.Contains(log.String(), "panic") || !strings.Contains(log.String(), "cause=broken") {
		t.Errorf("the log does not tell of the panic: %s", log.String())
	}
	broken = false
	r.ask("PUT /v1/topics/t/messages/x", "secret body", who).want(t, 201)
	r.ask("PUT /v1/topics/u/messages/x", "secret body", who).problem(t, 403, "forbidden")
	r.ask("PUT /v1/topics/t/messages/x", "secret body", "Authorization: Bearer sesamee").problem(t, 401, "unauthenticated")
	r.ask("POST /v1/push", `{"messages":[{"secret body`, who).problem(t, 400, "invalid")
	for _, secret := range []string{"sesame", "secret body"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log has %q: %s", secret, log.String())
		}
	}
	if len(seen) != 5 || seen[1].Status != 201 || seen[1].Route != "/v1/topics/{topic}/messages/{id}" || seen[1].Principal != "a" || seen[2].Code != "forbidden" {
		t.Errorf("OnRequest got %+v", seen)
	}
	failing := newRig(t, &Options{Authenticator: authenticator(func(*http.Request) (*access.Principal, error) { return nil, io.ErrUnexpectedEOF })})
	failing.ask("GET /v1", "").problem(t, 503, "overloaded")
	nobody := newRig(t, &Options{Authenticator: authenticator(func(*http.Request) (*access.Principal, error) { return nil, nil })})
	nobody.ask("GET /v1", "").problem(t, 503, "overloaded")
}

type authenticator func(*http.Request) (*access.Principal, error)

func (a authenticator) Authenticate(r *http.Request) (*access.Principal, error) { return a(r) }
