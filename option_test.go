package punctual_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"pgregory.net/rapid"
)

func compose(t *testing.T, opts ...punctual.PushOption) punctual.NewMessage {
	t.Helper()
	m, err := punctual.Compose("t", []byte("body"), opts...)
	if err != nil {
		t.Fatalf("Compose: %v", err)
	}
	return m
}

func TestComposeSetsEveryField(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	m := compose(t, punctual.At(at), punctual.ID("order-1"), punctual.Header("a", "1"),
		punctual.Headers(map[string]string{"b": "2", "c": "3"}), punctual.MaxAttempts(4),
		punctual.Expire(time.Hour), punctual.DropExpired(), punctual.ReplaceIfDue(at), punctual.Remember(time.Minute), punctual.Timeout(time.Second), punctual.Key("c7"))
	for v, f := reflect.ValueOf(m), 0; f < v.NumField(); f++ {
		if name := v.Type().Field(f).Name; v.Field(f).IsZero() && name != "Delay" { // a message has a Due or a Delay
			t.Errorf("no option sets %s", name)
		}
	}
	if m.Topic != "t" || string(m.Body) != "body" || m.ID != "order-1" {
		t.Errorf("topic, body, ID: %q %q %q", m.Topic, m.Body, m.ID)
	}
	if !m.Due.Equal(at) || m.Delay != 0 {
		t.Errorf("due %v, delay %v: want %v", m.Due, m.Delay, at)
	}
	if want := map[string]string{"a": "1", "b": "2", "c": "3"}; !maps.Equal(m.Headers, want) {
		t.Errorf("headers %v: want %v", m.Headers, want)
	}
	if m.MaxAttempts != 4 || m.ExpireAfter != time.Hour || !m.DropExpired {
		t.Errorf("max attempts %d, expiry %v, drop %v", m.MaxAttempts, m.ExpireAfter, m.DropExpired)
	}
	if m.Remember != time.Minute {
		t.Errorf("remembered for %v: want %v", m.Remember, time.Minute)
	}
	if m.IfExists != punctual.IfExistsReplace || !m.IfDue.Equal(at) {
		t.Errorf("if exists %v, if due %v: want IfExistsReplace, %v", m.IfExists, m.IfDue, at)
	}
	if m.Key != "c7" {
		t.Errorf("key %q: want c7", m.Key)
	}
	if m.Timeout != time.Second {
		t.Errorf("timeout %v: want 1 s", m.Timeout)
	}
}

func TestAtLocalIsAnInstant(t *testing.T) {
	m := compose(t, punctual.AtLocal("2026-11-20 09:00", "Europe/Berlin"))
	if want := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC); !m.Due.Equal(want) || m.Delay != 0 {
		t.Errorf("due %v, delay %v: want %v", m.Due, m.Delay, want)
	}
	for _, w := range []punctual.When{
		punctual.AtLocal("2026-11-20 09:00", ""), punctual.AtLocal("tomorrow", "UTC"), punctual.AtLocal("2026-11-20 09:00", "Mars/Olympus"),
	} {
		if _, err := punctual.Compose("t", nil, w); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("Compose: %v, want ErrInvalid", err)
		}
	}
	if _, err := punctual.Compose("t", nil, punctual.AtLocal("2026-11-20 09:00", "UTC"), punctual.In(1)); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("an instant and a delay: %v, want ErrInvalid", err)
	}
}

func TestComposeDefaultsAreNow(t *testing.T) {
	m := compose(t)
	if !m.Due.IsZero() || m.Delay != 0 || m.ID != "" || m.Headers != nil || m.IfExists != punctual.IfExistsKeep {
		t.Errorf("a push without options is %+v", m)
	}
}

func TestComposeLaterOfOneKindCounts(t *testing.T) {
	m := compose(t, punctual.In(time.Hour), punctual.In(time.Minute), punctual.Replace(), punctual.FailIfExists(), punctual.ID("a"), punctual.ID("b"),
		punctual.Header("k", "1"), punctual.Header("k", "2"))
	if !m.Due.IsZero() || m.Delay != time.Minute || m.IfExists != punctual.IfExistsFail || m.ID != "b" || m.Headers["k"] != "2" {
		t.Errorf("got %+v", m)
	}
	for name, last := range map[string]punctual.PushOption{"Replace": punctual.Replace(), "FailIfExists": punctual.FailIfExists(), "ReplaceDead": punctual.ReplaceDead()} {
		if m, err := punctual.Compose("t", nil, punctual.ReplaceIfDue(noon), last); err != nil || !m.IfDue.IsZero() {
			t.Errorf("%s behind ReplaceIfDue: IfDue %v, %v; want it to take the place of the condition", name, m.IfDue, err)
		}
	}
}

// A delay and an instant are not of one kind, so that the later one does not count: Compose refuses
// both together, because it cannot know which of them was meant.
func TestComposeRefusesDelayWithInstant(t *testing.T) {
	at := punctual.At(time.Unix(1, 0))
	for name, opts := range map[string][]punctual.PushOption{
		"In, At":     {punctual.In(time.Minute), at},
		"At, In":     {at, punctual.In(time.Minute)},
		"At, In(0)":  {at, punctual.In(0)},
		"In, At, In": {punctual.In(1), at, punctual.In(1)},
	} {
		_, err := punctual.Compose("t", nil, opts...)
		if !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "In ") || !strings.Contains(err.Error(), "At") {
			t.Errorf("%s: %v: want an ErrInvalid that names both", name, err)
		}
	}
	if m := compose(t, at, punctual.At(time.Unix(2, 0)), punctual.Spread(0)); !m.Due.Equal(time.Unix(2, 0)) {
		t.Errorf("two instants: due %v, want the second", m.Due)
	}
}

func TestHeadersAreCopied(t *testing.T) {
	mine := map[string]string{"a": "1"}
	m := compose(t, punctual.Headers(mine), punctual.Header("b", "2"))
	if len(mine) != 1 {
		t.Errorf("the caller's headers were changed: %v", mine)
	}
	mine["a"] = "changed"
	if m.Headers["a"] != "1" {
		t.Errorf("the message shares the caller's headers")
	}
}

func TestBadOptions(t *testing.T) {
	for name, o := range map[string]punctual.PushOption{
		"zero time":       punctual.At(time.Time{}),
		"empty ID":        punctual.ID(""),
		"negative spread": punctual.Spread(-1),
		"nil":             nil,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := punctual.Compose("t", nil, o); !errors.Is(err, punctual.ErrInvalid) {
				t.Errorf("Compose: %v: want ErrInvalid", err)
			}
			s := &fakeStore{push: func(context.Context, []punctual.NewMessage) ([]punctual.PushResult, error) {
				t.Error("the store was called")
				return nil, nil
			}}
			r, err := punctual.NewQueue(s, nil).Push(t.Context(), "t", nil, o)
			if !errors.Is(err, punctual.ErrInvalid) || !punctual.Definite(err) || !errors.Is(r.Err, punctual.ErrInvalid) {
				t.Errorf("Push: %v, result %+v: want ErrInvalid", err, r)
			}
		})
	}
}

// An option does not mend a value that the store refuses, so that the caller learns of the mistake.
func TestOptionsHideNothingFromTheStore(t *testing.T) {
	for name, opts := range map[string][]punctual.PushOption{
		"negative delay":             {punctual.In(-time.Second)},
		"negative delay with spread": {punctual.In(-time.Second), punctual.Spread(time.Hour)},
		"year 10000":                 {punctual.At(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))},
		"year 10000 with spread":     {punctual.Spread(time.Hour), punctual.At(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))},
		"negative expiry":            {punctual.Expire(-1)},
		"negative attempts":          {punctual.MaxAttempts(-1)},
		"ID with a line break":       {punctual.ID("a\nb")},
	} {
		t.Run(name, func(t *testing.T) {
			m := compose(t, opts...)
			if err := storekit.CheckPush(&m, limits.DefaultMaxBody); !errors.Is(err, punctual.ErrInvalid) {
				t.Errorf("%+v passes the store's check: %v", m, err)
			}
		})
	}
}

func TestSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spread := time.Duration(rapid.Int64Range(0, int64(48*time.Hour)).Draw(t, "spread"))
		wait := time.Duration(rapid.Int64Range(0, int64(48*time.Hour)).Draw(t, "wait"))
		at := time.Unix(rapid.Int64Range(-1e9, 4e9).Draw(t, "at"), 0)
		for _, opts := range [][]punctual.PushOption{{punctual.In(wait), punctual.Spread(spread)}, {punctual.Spread(spread), punctual.In(wait)}} {
			m, err := punctual.Compose("t", nil, opts...)
			if err != nil || m.Delay < wait || m.Delay > wait+max(spread-1, 0) {
				t.Fatalf("delay %v, %v: want [%v, %v)", m.Delay, err, wait, wait+spread)
			}
		}
		m, err := punctual.Compose("t", nil, punctual.Spread(spread), punctual.At(at))
		if moved := m.Due.Sub(at); err != nil || moved < 0 || moved > max(spread-1, 0) {
			t.Fatalf("due %v after At, %v: want [0, %v)", moved, err, spread)
		}
	})
}

// Of 1000 draws from [0,d), each quarter gets about 250. The chance that a quarter gets fewer than
// 100 is less than 1e-30.
func TestSpreadIsEven(t *testing.T) {
	const d = 4 * time.Second
	var quarters [4]int
	for range 1000 {
		m := compose(t, punctual.Spread(d), punctual.In(time.Hour)) // TestSpread also has the other order
		quarters[(m.Delay-time.Hour)/time.Second]++
	}
	for i, n := range quarters {
		if n < 100 {
			t.Errorf("quarter %d of the spread got %d of 1000 messages", i+1, n)
		}
	}
}

func TestSpreadTooLong(t *testing.T) {
	_, err := punctual.Compose("t", nil, punctual.In(math.MaxInt64-5), punctual.Spread(10))
	if !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("delay and spread beyond the longest duration: %v: want ErrInvalid (P9)", err)
	}
}
