package storekit

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

func TestCheckTopic(t *testing.T) {
	for _, name := range []string{
		"a", "order.cancel", "A-Z_0:9/x", strings.Repeat("t", limits.MaxTopicBytes),
		"a@b", "a/b:c@g.mail-2_X", strings.Repeat("t", limits.MaxTopicBytes) + "@" + strings.Repeat("c", limits.MaxCompanionBytes),
	} {
		if err := CheckTopic(name); err != nil {
			t.Errorf("topic %q: %v", name, err)
		}
	}
	for _, name := range []string{
		"", " ", "a b", "a\n", "ä", "a*", "a\x00", "a,b", strings.Repeat("t", limits.MaxTopicBytes+1),
		"@", "@a", "a@", "a@b@c", "a@b/c", "a@b:c", "a@b c", "a@" + strings.Repeat("c", limits.MaxCompanionBytes+1), strings.Repeat("t", limits.MaxTopicBytes+1) + "@b",
	} {
		if err := CheckTopic(name); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("topic %q: %v: want ErrInvalid", name, err)
		}
	}
}

func TestCheckID(t *testing.T) {
	for _, id := range []string{"a", " ", "~", "order/1 #2", strings.Repeat("i", limits.MaxIDBytes)} {
		if err := CheckID(id); err != nil {
			t.Errorf("ID %q: %v", id, err)
		}
	}
	for _, id := range []string{"", "a\n", "\x7f", "\x1f", "é", "\xff", strings.Repeat("i", limits.MaxIDBytes+1)} {
		if err := CheckID(id); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("ID %q: %v: want ErrInvalid", id, err)
		}
	}
}

func TestNewMessageCheck(t *testing.T) {
	good := punctual.NewMessage{
		Topic: "t", ID: "a", Body: make([]byte, 10), Headers: map[string]string{"k": strings.Repeat("v", limits.MaxHeaderBytes-1)},
		Delay: time.Hour, MaxAttempts: limits.MaxAttemptsLimit, ExpireAfter: time.Hour, IfExists: punctual.IfExistsFail,
	}
	if err := CheckPush(&good, 10); err != nil {
		t.Fatalf("a message at every limit: %v", err)
	}
	for name, test := range map[string]struct {
		change func(m *punctual.NewMessage)
		kind   error
	}{
		"topic":              {func(m *punctual.NewMessage) { m.Topic = "" }, punctual.ErrInvalid},
		"ID":                 {func(m *punctual.NewMessage) { m.ID = "\n" }, punctual.ErrInvalid},
		"body":               {func(m *punctual.NewMessage) { m.Body = make([]byte, 11) }, punctual.ErrTooLarge},
		"headers":            {func(m *punctual.NewMessage) { m.Headers["kk"] = "" }, punctual.ErrTooLarge},
		"negative delay":     {func(m *punctual.NewMessage) { m.Delay = -1 }, punctual.ErrInvalid},
		"due and delay":      {func(m *punctual.NewMessage) { m.Due = time.Unix(1, 0) }, punctual.ErrInvalid},
		"after MaxDue":       {func(m *punctual.NewMessage) { m.Due, m.Delay = limits.MaxDue.Add(1), 0 }, punctual.ErrInvalid},
		"negative attempts":  {func(m *punctual.NewMessage) { m.MaxAttempts = -1 }, punctual.ErrInvalid},
		"too many attempts":  {func(m *punctual.NewMessage) { m.MaxAttempts = limits.MaxAttemptsLimit + 1 }, punctual.ErrInvalid},
		"negative expiry":    {func(m *punctual.NewMessage) { m.ExpireAfter = -1 }, punctual.ErrInvalid},
		"if due, no replace": {func(m *punctual.NewMessage) { m.IfDue = time.Unix(1, 0) }, punctual.ErrInvalid},
		"if exists":          {func(m *punctual.NewMessage) { m.IfExists = punctual.IfExistsReplaceDead + 1 }, punctual.ErrInvalid},
	} {
		bad := good
		bad.Headers = map[string]string{"k": good.Headers["k"]}
		test.change(&bad)
		if err := CheckPush(&bad, 10); !errors.Is(err, test.kind) {
			t.Errorf("%s: %v: want %v", name, err, test.kind)
		}
	}
}

func TestClaimCheck(t *testing.T) {
	good := []punctual.Claim{{Topics: []string{"t"}, Max: 1}, {Topics: []string{"t"}, IDs: []string{"a", "a"}}, {Topics: []string{"t", "u"}, Max: limits.MaxClaim, Wait: time.Hour, Lease: limits.MinLease}}
	for _, c := range good {
		if err := CheckClaim(&c); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	one := []string{"t"}
	bad := []punctual.Claim{
		{Max: 1},
		{Topics: []string{"t", ""}, Max: 1},
		{Topics: slices.Repeat([]string{"t"}, limits.MaxClaimTopics+1), Max: 1},
		{Topics: one},
		{Topics: one, Max: limits.MaxClaim + 1},
		{Topics: one, Max: 1, Wait: -1},
		{Topics: one, Max: 1, Lease: limits.MinLease - 1},
		{Topics: one, Max: 1, Lease: limits.MaxLease + 1},
		{Topics: one, IDs: []string{}},
		{Topics: one, IDs: []string{""}},
		{Topics: one, IDs: slices.Repeat([]string{"a"}, limits.MaxClaim+1)},
		{Topics: one, IDs: []string{"a"}, Max: -1},
		{Topics: one, IDs: []string{"a"}, Max: limits.MaxClaim + 1},
		{Topics: one, IDs: []string{"a"}, PerTopic: 1},
		{Topics: one, IDs: []string{"a"}, Wait: 1},
		{Topics: one, IDs: []string{"a"}, Lease: 1},
		{Topics: []string{"t", "t"}, IDs: []string{"a"}},
	}
	for _, c := range bad {
		if err := CheckClaim(&c); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%+v: %v: want ErrInvalid", c, err)
		}
	}
}

func TestSettlementCheck(t *testing.T) {
	for verb := punctual.SettleAck; verb <= punctual.SettleExtend; verb++ {
		s := punctual.Settlement{Topic: "t", ID: "a", Verb: verb}
		if err := CheckSettlement(&s, limits.DefaultMaxBody); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
		s.Delay = punctual.UseBackoff
		if err := CheckSettlement(&s, limits.DefaultMaxBody); errors.Is(err, punctual.ErrInvalid) == (verb == punctual.SettleRetry) {
			t.Errorf("%s with UseBackoff: %v", verb, err)
		}
	}
	bad := []punctual.Settlement{
		{ID: "a", Verb: punctual.SettleAck},
		{Topic: "t", Verb: punctual.SettleAck},
		{Topic: "t", ID: "a"},
		{Topic: "t", ID: "a", Verb: punctual.SettleExtend + 1},
		{Topic: "t", ID: "a", Verb: punctual.SettleRetry, Delay: -2},
		{Topic: "t", ID: "a", Verb: punctual.SettleExtend, Delay: limits.MinLease - 1},
		{Topic: "t", ID: "a", Verb: punctual.SettleExtend, Delay: limits.MaxLease + 1},
		{Topic: "t", ID: "a", Verb: punctual.SettleAck, Delay: 1},
		{Topic: "t", ID: "a", Verb: punctual.SettleDiscard, Delay: time.Hour},
		{Topic: "t", ID: "a", Verb: punctual.SettleRelease, Delay: time.Hour},
	}
	for _, s := range bad {
		if err := CheckSettlement(&s, limits.DefaultMaxBody); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%+v: %v: want ErrInvalid", s, err)
		}
	}
}

func TestAmendmentCheck(t *testing.T) {
	for c := punctual.ChangeCancel; c <= punctual.ChangeDelete; c++ {
		if err := CheckAmendment(&punctual.Amendment{Change: c, Topic: "t", ID: "a"}); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
	bad := []punctual.Amendment{
		{Topic: "t", ID: "a"},
		{Change: punctual.ChangeDelete + 1, Topic: "t", ID: "a"},
		{Change: punctual.ChangeCancel, ID: "a"},
		{Change: punctual.ChangeCancel, Topic: "t"},
		{Change: punctual.ChangeReschedule, Topic: "t", ID: "a", Delay: -1},
		{Change: punctual.ChangeReschedule, Topic: "t", ID: "a", Due: limits.MaxDue.Add(1)},
		{Change: punctual.ChangeRequeue, Topic: "t", ID: "a", Due: time.Unix(1, 0), Delay: 1},
		{Change: punctual.ChangeCancel, Topic: "t", ID: "a", Delay: 1},
		{Change: punctual.ChangeCancel, Topic: "t", ID: "a", Due: time.Unix(1, 0)},
		{Change: punctual.ChangeDelete, Topic: "t", ID: "a", Delay: time.Hour},
	}
	for _, a := range bad {
		if err := CheckAmendment(&a); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%+v: %v: want ErrInvalid", a, err)
		}
	}
}

func TestCheckBatch(t *testing.T) {
	if err := CheckBatch(limits.MaxBatch); err != nil {
		t.Errorf("a full batch: %v", err)
	}
	if err := CheckBatch(limits.MaxBatch + 1); !errors.Is(err, punctual.ErrTooLarge) {
		t.Errorf("one item more: %v: want ErrTooLarge", err)
	}
}

func TestListQueryCheck(t *testing.T) {
	q, err := CheckList(punctual.ListQuery{Topic: "t", State: punctual.StateDead})
	if err != nil || q.Limit != 100 {
		t.Errorf("limit %d, %v: want 100 by default", q.Limit, err)
	}
	bad := []punctual.ListQuery{
		{State: punctual.StateDead},
		{Topic: "t"},
		{Topic: "t", State: punctual.StateDead + 1},
		{Topic: "t", State: punctual.StateReady, Limit: -1},
		{Topic: "t", State: punctual.StateReady, Limit: 10_001},
	}
	for _, q := range bad {
		if _, err := CheckList(q); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%+v: %v: want ErrInvalid", q, err)
		}
	}
}

func TestForecastQueryCheck(t *testing.T) {
	for _, q := range []punctual.ForecastQuery{{Step: time.Minute, Buckets: 1}, {Topic: "t", Step: time.Millisecond, Buckets: 10_000}} {
		if err := CheckForecast(q); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
	bad := []punctual.ForecastQuery{{Topic: " ", Step: 1e9, Buckets: 1}, {Step: 1, Buckets: 1}, {Step: 1e9}, {Step: 1e9, Buckets: 10_001}}
	for _, q := range bad {
		if err := CheckForecast(q); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%+v: %v: want ErrInvalid", q, err)
		}
	}
}
