package punctual

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Rounding a due time up never makes it early (P2), and by less than a millisecond late.
func TestCeilMillis(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		up, down := FromMillis(CeilMillis(at)), FromMillis(Millis(at))
		if up.Before(at) || up.Sub(at) >= time.Millisecond {
			t.Fatalf("P2: %v was rounded up to %v", at, up)
		}
		if down.After(at) || at.Sub(down) >= time.Millisecond {
			t.Fatalf("P2: %v was rounded down to %v", at, down)
		}
	})
}

func TestCeilDuration(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, -1: 0, -time.Millisecond: -1,
		math.MaxInt64: math.MaxInt64/1_000_000 + 1,
	} {
		if got := CeilDuration(d); got != want {
			t.Errorf("CeilDuration(%v) is %d: want %d", d, got, want)
		}
	}
}

func TestMillisKeepZeroTime(t *testing.T) {
	if got := FromMillis(Millis(time.Time{})); !got.IsZero() {
		t.Errorf("the zero Time became %v", got)
	}
}

func TestDueAt(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 1, time.UTC) // 1 ns after noon
	noon := now.Truncate(time.Second)
	ms := time.Millisecond
	for name, test := range map[string]struct {
		due   time.Time
		delay time.Duration
		want  time.Time
	}{
		"now":         {want: noon.Add(ms)},
		"delay":       {delay: time.Minute, want: noon.Add(time.Minute + ms)},
		"fine delay":  {delay: time.Minute + 1, want: noon.Add(time.Minute + 2*ms)},
		"due":         {due: noon.Add(time.Hour), want: noon.Add(time.Hour)},
		"fine due":    {due: noon.Add(time.Hour + 1), want: noon.Add(time.Hour + ms)},
		"past":        {due: time.Unix(0, 0), want: time.Unix(0, 0)},
		"before 1970": {due: time.Date(1066, 1, 1, 0, 0, 0, 0, time.UTC), want: time.Date(1066, 1, 1, 0, 0, 0, 0, time.UTC)},
		"last":        {due: MaxDue, want: MaxDue},
	} {
		got, err := DueAt(now, test.due, test.delay)
		if err != nil || !got.Equal(test.want) || got.Location() != time.UTC {
			t.Errorf("%s: %v, %v: want %v in UTC", name, got, err, test.want)
		}
	}
}

func TestDueAtOutOfRange(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, due := range map[string]time.Time{
		"1 ns after the last": MaxDue.Add(1),
		"year 10000":          time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC),
		"year 0":              time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
		"1e15 ms":             time.UnixMilli(1e15),
	} {
		if got, err := DueAt(now, due, 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("P9: %s: %v, %v: want ErrInvalid", name, got, err)
		}
	}
	if got, err := DueAt(MaxDue, time.Time{}, 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("P9: a delay past the last due time: %v, %v: want ErrInvalid", got, err)
	}
	if got, err := DueAt(now, time.UnixMilli(1e13), 0); err != nil || got.UnixMilli() != 1e13 {
		t.Errorf("P9: 1e13 ms is in the year 2286: %v, %v", got, err)
	}
}

func TestExpiresAt(t *testing.T) {
	due := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for after, want := range map[time.Duration]time.Time{
		0:               {},
		1:               due.Add(time.Millisecond),
		time.Hour:       due.Add(time.Hour),
		time.Hour + 1e3: due.Add(time.Hour + time.Millisecond),
	} {
		if got := ExpiresAt(due, after); !got.Equal(want) {
			t.Errorf("expiry %v after: %v: want %v", after, got, want)
		}
	}
	if got := ExpiresAt(MaxDue, math.MaxInt64); !got.After(MaxDue) || got.Sub(MaxDue) > time.Millisecond {
		t.Errorf("the last message expires at %v: want just behind MaxDue", got)
	}
}

func TestCheckTopic(t *testing.T) {
	for _, name := range []string{"a", "order.cancel", "A-Z_0:9/x", strings.Repeat("t", MaxTopicBytes)} {
		if err := CheckTopic(name); err != nil {
			t.Errorf("topic %q: %v", name, err)
		}
	}
	for _, name := range []string{"", " ", "a b", "a\n", "ä", "a*", "a\x00", "a,b", strings.Repeat("t", MaxTopicBytes+1)} {
		if err := CheckTopic(name); !errors.Is(err, ErrInvalid) {
			t.Errorf("topic %q: %v: want ErrInvalid", name, err)
		}
	}
}

func TestCheckID(t *testing.T) {
	for _, id := range []string{"a", " ", "~", "order/1 #2", strings.Repeat("i", MaxIDBytes)} {
		if err := CheckID(id); err != nil {
			t.Errorf("ID %q: %v", id, err)
		}
	}
	for _, id := range []string{"", "a\n", "\x7f", "\x1f", "é", "\xff", strings.Repeat("i", MaxIDBytes+1)} {
		if err := CheckID(id); !errors.Is(err, ErrInvalid) {
			t.Errorf("ID %q: %v: want ErrInvalid", id, err)
		}
	}
}

func TestNewMessageCheck(t *testing.T) {
	good := NewMessage{
		Topic: "t", ID: "a", Body: make([]byte, 10), Headers: map[string]string{"k": strings.Repeat("v", MaxHeaderBytes-1)},
		Delay: time.Hour, MaxAttempts: MaxAttemptsLimit, ExpireAfter: time.Hour, OnDuplicate: FailDuplicate,
	}
	if err := good.Check(10); err != nil {
		t.Fatalf("a message at every limit: %v", err)
	}
	for name, test := range map[string]struct {
		change func(m *NewMessage)
		kind   error
	}{
		"topic":             {func(m *NewMessage) { m.Topic = "" }, ErrInvalid},
		"ID":                {func(m *NewMessage) { m.ID = "\n" }, ErrInvalid},
		"body":              {func(m *NewMessage) { m.Body = make([]byte, 11) }, ErrTooLarge},
		"headers":           {func(m *NewMessage) { m.Headers["kk"] = "" }, ErrTooLarge},
		"negative delay":    {func(m *NewMessage) { m.Delay = -1 }, ErrInvalid},
		"due and delay":     {func(m *NewMessage) { m.Due = time.Unix(1, 0) }, ErrInvalid},
		"after MaxDue":      {func(m *NewMessage) { m.Due, m.Delay = MaxDue.Add(1), 0 }, ErrInvalid},
		"negative attempts": {func(m *NewMessage) { m.MaxAttempts = -1 }, ErrInvalid},
		"too many attempts": {func(m *NewMessage) { m.MaxAttempts = MaxAttemptsLimit + 1 }, ErrInvalid},
		"negative expiry":   {func(m *NewMessage) { m.ExpireAfter = -1 }, ErrInvalid},
		"on duplicate":      {func(m *NewMessage) { m.OnDuplicate = FailDuplicate + 1 }, ErrInvalid},
	} {
		bad := good
		bad.Headers = map[string]string{"k": good.Headers["k"]}
		test.change(&bad)
		if err := bad.Check(10); !errors.Is(err, test.kind) {
			t.Errorf("%s: %v: want %v", name, err, test.kind)
		}
	}
}

func TestClaimCheck(t *testing.T) {
	good := []Claim{{Topics: []string{"t"}, Max: 1}, {Topics: []string{"t", "u"}, Max: MaxClaim, Wait: time.Hour, Lease: MinLease}}
	for _, c := range good {
		if err := c.Check(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	one := []string{"t"}
	bad := []Claim{
		{Max: 1},
		{Topics: []string{"t", ""}, Max: 1},
		{Topics: one},
		{Topics: one, Max: MaxClaim + 1},
		{Topics: one, Max: 1, Wait: -1},
		{Topics: one, Max: 1, Lease: MinLease - 1},
		{Topics: one, Max: 1, Lease: MaxLease + 1},
	}
	for _, c := range bad {
		if err := c.Check(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v: want ErrInvalid", c, err)
		}
	}
}

func TestSettlementCheck(t *testing.T) {
	for verb := SettleAck; verb <= SettleExtend; verb++ {
		s := Settlement{Topic: "t", ID: "a", Verb: verb}
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
		s.Delay = UseBackoff
		if err := s.Check(); errors.Is(err, ErrInvalid) == (verb == SettleRetry) {
			t.Errorf("%s with UseBackoff: %v", verb, err)
		}
	}
	bad := []Settlement{
		{ID: "a", Verb: SettleAck},
		{Topic: "t", Verb: SettleAck},
		{Topic: "t", ID: "a"},
		{Topic: "t", ID: "a", Verb: SettleExtend + 1},
		{Topic: "t", ID: "a", Verb: SettleRetry, Delay: -2},
		{Topic: "t", ID: "a", Verb: SettleExtend, Delay: MinLease - 1},
		{Topic: "t", ID: "a", Verb: SettleExtend, Delay: MaxLease + 1},
	}
	for _, s := range bad {
		if err := s.Check(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v: want ErrInvalid", s, err)
		}
	}
}

func TestAmendmentCheck(t *testing.T) {
	for c := ChangeCancel; c <= ChangeRequeue; c++ {
		if err := (&Amendment{Change: c, Topic: "t", ID: "a"}).Check(); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
	bad := []Amendment{
		{Topic: "t", ID: "a"},
		{Change: ChangeRequeue + 1, Topic: "t", ID: "a"},
		{Change: ChangeCancel, ID: "a"},
		{Change: ChangeCancel, Topic: "t"},
		{Change: ChangeReschedule, Topic: "t", ID: "a", Delay: -1},
		{Change: ChangeReschedule, Topic: "t", ID: "a", Due: MaxDue.Add(1)},
		{Change: ChangeRequeue, Topic: "t", ID: "a", Due: time.Unix(1, 0), Delay: 1},
	}
	for _, a := range bad {
		if err := a.Check(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v: want ErrInvalid", a, err)
		}
	}
}

func TestCheckBatch(t *testing.T) {
	if err := CheckBatch(MaxBatch); err != nil {
		t.Errorf("a full batch: %v", err)
	}
	if err := CheckBatch(MaxBatch + 1); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one item more: %v: want ErrTooLarge", err)
	}
}

func TestListQueryCheck(t *testing.T) {
	q, err := ListQuery{Topic: "t", State: StateDead}.CheckList()
	if err != nil || q.Limit != 100 {
		t.Errorf("limit %d, %v: want 100 by default", q.Limit, err)
	}
	bad := []ListQuery{
		{State: StateDead},
		{Topic: "t"},
		{Topic: "t", State: StateDead + 1},
		{Topic: "t", State: StateReady, Limit: -1},
		{Topic: "t", State: StateReady, Limit: 10_001},
	}
	for _, q := range bad {
		if _, err := q.CheckList(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v: want ErrInvalid", q, err)
		}
	}
}

func TestForecastQueryCheck(t *testing.T) {
	for _, q := range []ForecastQuery{{Step: time.Minute, Buckets: 1}, {Topic: "t", Step: time.Millisecond, Buckets: 10_000}} {
		if err := q.Check(); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
	bad := []ForecastQuery{{Topic: " ", Step: 1e9, Buckets: 1}, {Step: 1, Buckets: 1}, {Step: 1e9}, {Step: 1e9, Buckets: 10_001}}
	for _, q := range bad {
		if err := q.Check(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v: want ErrInvalid", q, err)
		}
	}
}
