package wire

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// DecodeRequest refuses malformed, incomplete and unknown JSON with an ErrInvalid that says what is
// wrong and at which byte.
func TestDecodeRequestRefuses(t *testing.T) {
	for text, want := range map[string]string{
		``:                                                 "there is nothing",
		`{"messages":[{"topic":"a"`:                        "not complete",
		`{"messages":[{"topic":"a"}]} {}`:                  "after top-level value",
		`{"messages":[{"dealy":"1s"}]}`:                    `the name is not known: use topic, id, body, body_base64, headers, headers_base64, in, due, at, at_local, zone, max_attempts`,
		`{"messages":[{"Topic":"a"}]}`:                     "not known",
		`{"messages":[{"topic":1}]}`:                       "a number where a string is expected",
		`{"messages":{}}`:                                  "an object where an array",
		`{"messages":[[]]}`:                                "an array",
		`[]`:                                               "an object",
		`{"messages":[{"id":"a","id":"b"}]}`:               "given twice",
		"{\"messages\":[{\"topic\":\"\xff\"}]}":            "UTF-8",
		`{"messages":[{"topic":"\ud800"}]}`:                "surrogate",
		`{"messages":[{"max_attempts":1.5}]}`:              "max_attempts",
		`{"messages":[{"max_attempts":1e309}]}`:            "max_attempts",
		`{"messages":[{"max_attempts":NaN}]}`:              "invalid character",
		`{"messages":[{"body_base64":"a"}]}`:               "body_base64",
		`{"messages":[{"body":{"a":1,"a":2}}]}`:            "given twice",
		`{"messages":[{"body":` + strings.Repeat("[", 1e6): "depth",
	} {
		var r PushRequest
		err := DecodeRequest([]byte(text), &r)
		if !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "byte ") {
			t.Errorf("%.60s: %v; want ErrInvalid with %q and the byte", text, err, want)
		}
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("%.60s: the error has %d bytes", text, len(err.Error()))
		}
	}
}

func TestDecodeRequestNamesTheFormOfDurations(t *testing.T) {
	var p SettingsPatch
	if err := DecodeRequest([]byte(`{"lease":30}`), &p); err == nil || !strings.Contains(err.Error(), "a number where a string is expected") {
		t.Errorf("%v; want it to ask for a string", err)
	}
}

// Settings and patches are written with these members in this order, in every release.
func TestSettingsAreWrittenAsEver(t *testing.T) {
	set := punctual.DefaultSettings()
	set.Backoff, set.PushPaused, set.FinishedRetention = punctual.Backoff{Delays: []time.Duration{1500, time.Hour}}, true, 36*time.Hour
	all, err := Encode(SettingsOf(set))
	if err != nil {
		t.Fatal(err)
	}
	const first = `{"lease":"30s","max_attempts":10,"backoff":"1.5µs,1h","dead_retention":"0s","dedupe_window":"0s","finished_retention":"1d12h",`
	if text := string(all); !strings.HasPrefix(text, first) || !strings.Contains(text, `"push_paused":true,"delivery_paused":false,`) || !strings.Contains(text, `"partitions":1`) {
		t.Errorf("settings are written as %s", all)
	}
	patch, err := Encode(SettingsPatchOf(punctual.SettingsPatch{Partitions: &set.MaxAttempts, Lease: &set.FinishedRetention, PushPaused: &set.PushPaused}))
	if want := `{"lease":"1d12h","push_paused":true,"partitions":10}`; err != nil || string(patch) != want {
		t.Errorf("a change is written as %s, %v; want %s", patch, err, want)
	}
}

// The error for a setting that cannot be read names the setting and its place, and the error for an
// unknown one lists those that there are. A name may be written with escapes, and null is no
// change.
func TestMalformedSettings(t *testing.T) {
	for body, want := range map[string]string{
		`{"lease":"5"}`:                    `JSON at "/lease", byte 9: lease: duration "5" is not understood`,
		` {"backoff" : "" }`:               `JSON at "/backoff", byte 14: backoff is empty: use delays like`,
		`{"max_attempts":1.5}`:             `JSON at "/max_attempts", byte 16: max attempts "1.5" is not a whole number: use 1 to 1000000`,
		`{"push_paused":"yes"}`:            `JSON at "/push_paused", byte 15: push paused: a string where true or false is expected`,
		`{"lease":"1s","a":{}}`:            `JSON at "/a", byte 14: the name is not known: use lease, max_attempts, backoff, `,
		`{"Lease":"1s"}`:                   `JSON at "/Lease", byte 1: the name is not known`,
		`{"lease":"1s","\u006cease":"2s"}`: "the name is given twice",
		`{"lease":{}}`:                     "an object where a string is expected",
		`[]`:                               "an array where an object is expected",
		`{"lease":"1s"`:                    "the value is not complete",
	} {
		var p SettingsPatch
		if err := DecodeRequest([]byte(body), &p); !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", body, err, want)
		}
	}
	var p SettingsPatch
	if err := DecodeRequest([]byte(`{"\u006cease":"2s","backoff":null}`), &p); err != nil || *p.Patch().Lease != 2*time.Second || p.Patch().Backoff != nil {
		t.Errorf("%+v, %v; want a lease of 2 s and nothing else", p, err)
	}
}

// Settings of an older server may lack those that came after the first release, and no others. A
// newer one may have more.
func TestSettingsOfOtherServers(t *testing.T) {
	const first = `{"lease":"1s","max_attempts":3,"backoff":"1s","dead_retention":"0s","dedupe_window":"1s","push_paused":true,"delivery_paused":false,"partitions":2}`
	for body, good := range map[string]bool{
		first: true, strings.Replace(first, "{", `{"colour":{"a":[1]},`, 1): true, strings.Replace(first, `"lease":"1s",`, "", 1): false, "{}": false,
		strings.Replace(first, `"backoff":"1s"`, `"backoff":null`, 1): false,
	} {
		var s Settings
		err := DecodeAnswer([]byte(body), &s)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		got, err := s.Settings()
		want := punctual.DefaultSettings() // of those that came later
		want.Lease, want.MaxAttempts, want.Backoff = time.Second, 3, punctual.Backoff{Delays: []time.Duration{time.Second}}
		want.DedupeWindow, want.PushPaused, want.Partitions = time.Second, true, 2
		if good && (err != nil || !reflect.DeepEqual(got, want)) || !good && !errors.Is(err, punctual.ErrIndeterminate) {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
}

func TestDecodeAnswerPassesOverNewMembers(t *testing.T) {
	var c Clock
	if err := DecodeAnswer([]byte(`{"now":"2026-11-20T10:00:00.000Z","later":{"a":[1]}}`), &c); err != nil || c.Now.IsZero() {
		t.Errorf("clock %v, %v; want the time", c, err)
	}
}

// The error of a malformed item names the malformed member.
func TestMalformedItems(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                                                                "\"body\" is missing",
		`{"body":null}`:                                                     "\"body\" is missing",
		`{"body":"a","body_base64":"YQ=="}`:                                 "both given",
		`{"body":"a","in":"5"}`:                                             `"in": duration "5"`,
		`{"body":"a","in":"-5s"}`:                                           "negative",
		`{"body":"a","in":"106752d"}`:                                       "too long",
		`{"body":"a","due":"tomorrow"}`:                                     `"due": time "tomorrow"`,
		`{"body":"a","due":"10000-01-01T00:00:00Z"}`:                        "after the last",
		`{"body":"a","due":"2016-12-31T23:59:60Z"}`:                         "not understood",
		`{"body":"a","due":"0001-01-01T00:00:00Z"}`:                         "zero time",
		`{"body":"a","in":"1s","due":"2026-11-20T10:00:00Z"}`:               "both given",
		`{"body":"a","at_local":"2026-11-20 09:00"}`:                        "needs a zone",
		`{"body":"a","zone":"Europe/Berlin"}`:                               `"zone" goes with "at_local"`,
		`{"body":"a","at_local":"2026-11-20 09:00","zone":"Mars"}`:          `"at_local": zone "Mars"`,
		`{"body":"a","at_local":"nine","zone":"UTC"}`:                       `"at_local": time "nine"`,
		`{"body":"a","at_local":"2026-11-20 09:00","zone":"UTC","in":"1s"}`: `"at_local" is given with "in"`,
		`{"body":"a","if_due":"soon","if_exists":"replace"}`:                `"if_due": time "soon"`,
		`{"body":"a","if_due":"0001-01-01T00:00:00Z"}`:                      `"if_due" is the zero time`,
		`{"body":"a","expire":"x"}`:                                         `"expire": duration`,
		`{"body":"a","if_exists":"overwrite"}`:                              "use keep, replace",
		`{"body":"a","headers_base64":{"?":""}}`:                            "not standard base64",
		`{"body":"a","headers_base64":{"YQ==":"?"}}`:                        "not standard base64",
		`{"body":"a","headers":{"a":""},"headers_base64":{"YQ==":""}}`:      "given twice",
	} {
		var p PushItem
		if err := DecodeRequest([]byte(text), &p); err != nil {
			t.Errorf("%s: %v; want it to be JSON", text, err)
			continue
		}
		if _, err := p.Message(); !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want ErrInvalid with %q", text, err, want)
		}
	}
}

// A malformed follow-up is an error of its settlement, which names its number and its member.
func TestMalformedSettlements(t *testing.T) {
	for text, want := range map[string]string{
		`{"verb":"ack","then":[{"topic":"a","body":""},{"topic":"a"}]}`: "follow-up 2: \"body\" is missing",
		`{"verb":"ack","then":[{"topic":"a","body":"","in":"5"}]}`:      `follow-up 1: "in": duration "5"`,
		`{"verb":"snooze","in":"1s","at":"2026-11-20T10:00:00Z"}`:       "both given",
		`{"verb":"snooze","at":"0001-01-01T00:00:00Z"}`:                 "zero time",
		`{"verb":"snooze","at_local":"2026-11-20 09:00","zone":""}`:     "",
		`{"verb":"later"}`: `"verb" "later"`,
	} {
		var s SettleItem
		err := DecodeRequest([]byte(text), &s)
		if err == nil {
			_, err = s.Settlement()
		}
		if !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want ErrInvalid with %q", text, err, want)
		}
	}
	many := `{"settlements":[{"verb":"ack","then":[` + strings.Repeat(`{},`, limits.MaxThen) + `{}]}]}`
	var r SettleRequest
	if err := DecodeRequest([]byte(many), &r); !errors.Is(err, punctual.ErrTooLarge) || !strings.Contains(err.Error(), "follow-ups of a settlement") {
		t.Errorf("%d follow-ups: %v; want ErrTooLarge", limits.MaxThen+1, err)
	}
}

// A body takes at most a third more in a request than it has bytes, and 24 bytes beside that,
// whatever its bytes are.
func TestBodiesToPushStayShort(t *testing.T) {
	for _, text := range []string{"", "hello", "\"", `{"order":"A-17"}`, strings.Repeat("\x00", 1000), strings.Repeat("\n", 1000), "é\xff", strings.Repeat(`\"`, 1000)} {
		item, err := PushItemOf(&punctual.NewMessage{Topic: "a", Body: []byte(text)})
		if err != nil {
			t.Fatal(err)
		}
		data, err := Encode(item.Body)
		if err != nil || len(data) > len(text)*4/3+24 {
			t.Errorf("%.20q of %d bytes takes %d in a request, %v", text, len(text), len(data), err)
		}
		if m, err := item.Message(); err != nil || string(m.Body) != text {
			t.Errorf("%.20q arrives as %.20q, %v", text, m.Body, err)
		}
	}
}

func TestBodiesOfRequests(t *testing.T) {
	for text, want := range map[string]string{
		`{"body":""}`:                   "",
		`{"body":"a\u00e9\n"}`:          "aé\n",
		`{"body": {"order" : "A-17"} }`: `{"order" : "A-17"}`,
		`{"body":[1, 2]}`:               "[1, 2]",
		`{"body":17}`:                   "17",
		`{"body":false}`:                "false",
		`{"body_base64":"/w=="}`:        "\xff",
		`{"body_base64":""}`:            "",
	} {
		var p PushItem
		if err := DecodeRequest([]byte(text), &p); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if m, err := p.Message(); err != nil || string(m.Body) != want || want == "" && m.Body != nil {
			t.Errorf("%s: body %q, %v; want %q", text, m.Body, err, want)
		}
	}
}

// A message to push arrives as it was sent.
func TestMessagesSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := punctual.NewMessage{
			Topic: text.Draw(t, "topic"), ID: text.Draw(t, "id"), Body: body(t), Headers: headers(t),
			MaxAttempts: rapid.Int().Draw(t, "attempts"), ExpireAfter: length.Draw(t, "expire"), DropExpired: rapid.Bool().Draw(t, "drop"),
			IfExists: punctual.IfExists(rapid.IntRange(0, 3).Draw(t, "if exists")), Remember: length.Draw(t, "remember"), Timeout: length.Draw(t, "timeout"),
		}
		if rapid.Bool().Draw(t, "at a time") {
			m.Due = instant.Draw(t, "due")
		} else {
			m.Delay = length.Draw(t, "delay")
		}
		if rapid.Bool().Draw(t, "on a condition") {
			m.IfDue = instant.Draw(t, "if due")
		}
		item, err := PushItemOf(&m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := travel(t, item).Message()
		same(t, got, m, err)
	})
}

func TestDeliveriesAndInfosSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := punctual.Message{
			Topic: text.Draw(t, "topic"), ID: text.Draw(t, "id"), Body: body(t), Headers: headers(t),
			Due: stamp.Draw(t, "due"), FirstDue: stamp.Draw(t, "first due"), Attempt: rapid.Int().Draw(t, "attempt"),
			MaxAttempts: rapid.Int().Draw(t, "attempts"), Created: stamp.Draw(t, "created"), DropExpired: rapid.Bool().Draw(t, "drop"), Remember: length.Draw(t, "remember"), Timeout: length.Draw(t, "timeout"),
			Expires: rapid.SampledFrom([]time.Time{{}, limits.MaxDue, limits.MaxDue.Add(time.Millisecond), limits.MaxDue.Add(limits.MaxLease), time.UnixMilli(1).UTC()}).Draw(t, "expires"),
		}
		var fs []punctual.Failure
		for range rapid.IntRange(0, 2).Draw(t, "failures") {
			fs = append(fs, punctual.Failure{Attempt: rapid.Int().Draw(t, "of"), At: stamp.Draw(t, "at"), Error: text.Draw(t, "error")})
		}
		d := punctual.Delivery{Message: m, Token: rapid.Int64().Draw(t, "token"), Delivered: stamp.Draw(t, "delivered"), LeaseUntil: stamp.Draw(t, "until"), Failures: fs}
		delivery := travel(t, DeliveryOf(&d))
		gotDelivery, err := delivery.Delivery()
		same(t, gotDelivery, d, err)

		i := punctual.Info{
			Message: m, State: punctual.State(rapid.IntRange(1, 4).Draw(t, "state")), LeaseUntil: d.LeaseUntil,
			CancelRequested: rapid.Bool().Draw(t, "cancelled"), Died: d.Delivered, Failures: fs,
			Reason: rapid.SampledFrom([]punctual.DeathReason{"", punctual.ReasonExpired}).Draw(t, "reason"),
		}
		page := travel(t, PageOf(punctual.Page{Messages: []punctual.Info{i}, Next: "x"}))
		gotPage, err := page.Page()
		same(t, gotPage, punctual.Page{Messages: []punctual.Info{i}, Next: "x"}, err)
	})
}

func TestSettlementsAndAmendmentsSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := punctual.Settlement{
			Topic: text.Draw(t, "topic"), ID: text.Draw(t, "id"), Token: rapid.Int64().Draw(t, "token"),
			Verb: punctual.Verb(rapid.IntRange(1, 6).Draw(t, "verb")), Delay: length.Draw(t, "delay"), Error: text.Draw(t, "error"),
		}
		switch {
		case s.Verb == punctual.SettleRetry && rapid.Bool().Draw(t, "backoff"):
			s.Delay = punctual.UseBackoff
		case rapid.Bool().Draw(t, "at a time"):
			s.Delay, s.Due = 0, instant.Draw(t, "due")
		}
		for i := range rapid.IntRange(0, 2).Draw(t, "follow-ups") {
			s.Then = append(s.Then, punctual.NewMessage{Topic: s.Topic, ID: fmt.Sprint(i), Body: body(t), Headers: headers(t), Delay: length.Draw(t, "delay of it")})
		}
		settle, err := SettleItemOf(&s)
		if err != nil {
			t.Fatal(err)
		}
		settle = *travel(t, settle)
		gotS, err := settle.Settlement()
		same(t, gotS, s, err)

		a := punctual.Amendment{Change: punctual.Change(rapid.IntRange(1, int(punctual.ChangeDelete)).Draw(t, "change")), Topic: s.Topic, ID: s.ID, Due: instant.Draw(t, "due")}
		if rapid.Bool().Draw(t, "on a condition") {
			a.IfDue = instant.Draw(t, "if due")
		}
		amend, err := AmendItemOf(&a)
		if err != nil {
			t.Fatal(err)
		}
		amend = *travel(t, amend)
		gotA, err := amend.Amendment()
		same(t, gotA, a, err)
		for _, r := range []punctual.Amended{{}, {Due: a.Due}} {
			result := travel(t, AmendResultOf(&a, r))
			same(t, result.Amended(), r, nil)
		}
	})
}

func TestClaimsAndSettingsSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := punctual.Claim{Topics: []string{text.Draw(t, "topic")}, Max: rapid.Int().Draw(t, "max"), Wait: length.Draw(t, "wait"), Lease: length.Draw(t, "lease")}
		claim, err := ClaimRequestOf(c)
		if err != nil {
			t.Fatal(err)
		}
		claim = *travel(t, claim)
		same(t, claim.Claim(), c, nil)

		b := punctual.Backoff{Base: length.Draw(t, "base"), Max: length.Draw(t, "max"), Jitter: rapid.Float64().Draw(t, "jitter")}
		if rapid.Bool().Draw(t, "delays") {
			b = punctual.Backoff{Delays: []time.Duration{length.Draw(t, "delay")}}
		}
		s := punctual.TopicStats{
			Topic: c.Topics[0], Ready: rapid.Int64().Draw(t, "ready"), NextDue: stamp.Draw(t, "next"),
			Settings: punctual.Settings{Lease: c.Lease, MaxAttempts: c.Max, Backoff: b, DedupeWindow: c.Wait, FinishedRetention: c.Lease, Emit: punctual.EventDead, EmitKeep: c.Wait, PushPaused: true, Partitions: 3},
		}
		topic := travel(t, TopicOf(s))
		gotS, err := topic.Stats()
		same(t, gotS, s, err)

		yes := true
		p := punctual.SettingsPatch{Lease: &c.Lease, Backoff: &b, FinishedRetention: &c.Wait, DeliveryPaused: &yes}
		patch := travel(t, SettingsPatchOf(p))
		same(t, patch.Patch(), p, nil)

		record := punctual.Finished{
			ID: text.Draw(t, "ID"), Topic: c.Topics[0], Outcome: punctual.OutcomeAcked, At: s.NextDue, Due: s.NextDue, FirstDue: s.NextDue,
			Created: s.NextDue, Attempt: 3, Failures: []punctual.Failure{{Attempt: 2, At: s.NextDue, Error: c.Topics[0]}}, KeptUntil: s.NextDue,
		}
		if rapid.Bool().Draw(t, "delivered") {
			record.Delivered = s.NextDue
		}
		finished := travel(t, FinishedOf(&record))
		gotF, err := finished.Finished()
		same(t, gotF, record, err)

		one := storekit.Consumer{
			User: text.Draw(t, "user"), Address: "::1", Name: c.Topics[0], Waiting: 2, Leases: c.Max, NextEnd: s.NextDue, Claimed: s.Ready, Settled: 5, LastSeen: s.NextDue,
		}
		who := storekit.Consumers{All: []storekit.Consumer{one, {User: "b", LastSeen: s.NextDue}}, Since: s.NextDue}
		if rapid.Bool().Draw(t, "others") {
			who.Others = one
		}
		consumers := travel(t, ConsumersOf(who))
		gotC, err := consumers.All()
		same(t, gotC, who, err)

		f := punctual.Forecast{From: s.NextDue, Step: c.Wait, Counts: []int64{1, s.Ready}, Overdue: 7, Beyond: math.MaxInt64}
		forecast := travel(t, ForecastOf("a", f))
		same(t, forecast.Forecast(), f, nil)
	})
}

func TestWhatCannotStandInJSONIsRefused(t *testing.T) {
	const bad = "\xff"
	_, topic := PushItemOf(&punctual.NewMessage{Topic: bad})
	_, id := SettleItemOf(&punctual.Settlement{Topic: "a", ID: bad})
	_, errorText := SettleItemOf(&punctual.Settlement{Topic: "a", ID: "b", Error: bad})
	_, amended := AmendItemOf(&punctual.Amendment{Topic: bad})
	_, claimed := ClaimRequestOf(punctual.Claim{Topics: []string{"a", bad}})
	_, exists := PushItemOf(&punctual.NewMessage{IfExists: 77})
	_, followUp := SettleItemOf(&punctual.Settlement{Topic: "a", ID: "b", Then: []punctual.NewMessage{{Topic: bad}}})
	for i, err := range []error{topic, id, errorText, amended, claimed, exists, followUp} {
		if !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("case %d: %v; want ErrInvalid", i, err)
		}
	}
}

// Every error of package punctual arrives as itself, and its status keeps the rule of definite
// errors.
func TestProblems(t *testing.T) {
	for _, k := range storekit.ErrorKinds() {
		p := ProblemOf(fmt.Errorf("push of A-17: %w", k.Err))
		if p.Code != k.Code || p.Definite != k.Definite || p.Remedy == "" || p.Title != k.Meaning {
			t.Errorf("%s: %+v; want its code, %v, a remedy and its meaning", k.Code, p, k.Definite)
		}
		safe := p.Status < 500 || p.Status == http.StatusServiceUnavailable || p.Status == http.StatusInsufficientStorage
		if safe != k.Definite {
			t.Errorf("P13: %s has status %d and definite %v", k.Code, p.Status, k.Definite)
		}
		data, err := Encode(p)
		if err != nil {
			t.Fatal(err)
		}
		var back Problem
		if err := DecodeAnswer(data, &back); err != nil {
			t.Fatal(err)
		}
		if err := back.Err(); !errors.Is(err, k.Err) || storekit.ErrorCode(err) != k.Code || punctual.Definite(err) != k.Definite || err.Error() != p.Detail {
			t.Errorf("%s arrives as %v", k.Code, err)
		}
	}
	for err, want := range map[error]error{
		context.Canceled: punctual.ErrOverloaded, context.DeadlineExceeded: punctual.ErrOverloaded, errors.New("odd"): punctual.ErrIndeterminate,
	} {
		if got := ProblemOf(err).Err(); !errors.Is(got, want) || punctual.Definite(got) != punctual.Definite(err) {
			t.Errorf("%v arrives as %v; want %v", err, got, want)
		}
	}
	if err := (&Problem{Code: "newer", Definite: true}).Err(); !errors.Is(err, punctual.ErrUnsupported) {
		t.Errorf("a definite code that is not known arrives as %v; want ErrUnsupported", err)
	}
	if len(kinds) != len(storekit.ErrorKinds())+3 {
		t.Errorf("%d rows for %d kinds, canceled, deadline and internal", len(kinds), len(storekit.ErrorKinds()))
	}
}

func TestStrangeAnswersAreIndeterminate(t *testing.T) {
	_, state := (&Message{State: "lost"}).Info()
	_, bodies := (&Delivery{}).Delivery()
	for _, err := range []error{
		state, bodies, (&PushResult{}).PushResult().Err, (&PushResult{Result: "stored", Existing: "odd"}).PushResult().Err, (&AmendResult{}).Amended().Err,
	} {
		if !errors.Is(err, punctual.ErrIndeterminate) {
			t.Errorf("%v; want ErrIndeterminate", err)
		}
	}
}

func TestPaths(t *testing.T) {
	for want, got := range map[string]string{
		"/v1/topics/a%2Fb/purge":                    TopicPath("a/b", "purge"),
		"/v1/topics/%2E%2E/messages/%2E":            MessagePath("..", "."),
		"/v1/topics/a.b/messages/x%20%3F%23%25/ack": MessagePath("a.b", "x ?#%", "ack"),
		"/v1/topics/...a":                           TopicPath("...a"),
		"/v1/topics/orders%40events/messages/a%40b": MessagePath("orders@events", "a@b"),
	} {
		if got != want {
			t.Errorf("path %s, want %s", got, want)
		}
	}
	if s, err := SplitPath("/v1/topics/orders@events/claim"); err != nil || s[2] != "orders@events" {
		t.Errorf("a path with a plain @ is read as %q, %v", s, err)
	}
	for _, path := range []string{"", "v1", "//", "/v1//topics", "/v1/", "/v1/./topics", "/v1/topics/../push", "/v1/topics/%zz", "/v1/%", "/v1/topics/%FF", "/v1/topics/a%c3"} {
		if s, err := SplitPath(path); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("path %q is read as %q", path, s)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		topic, id := rapid.StringN(1, -1, -1).Draw(t, "topic"), rapid.StringN(1, -1, -1).Draw(t, "id")
		path := MessagePath(topic, id, "ack")
		got, err := SplitPath(path)
		same(t, got, []string{"v1", "topics", topic, "messages", id, "ack"}, err)
	})
}

func TestRequestKeys(t *testing.T) {
	for key, ok := range map[string]bool{"a": true, strings.Repeat("k", MaxRequestKey): true, "": false, "a b": false, "\n": false, "é": false, strings.Repeat("k", MaxRequestKey+1): false} {
		if err := CheckRequestKey(key); (err == nil) != ok || err != nil && !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("key %q: %v", key, err)
		}
	}
}

func TestLines(t *testing.T) {
	var got []string
	for n, line := range Lines([]byte("a\n\n \r\n b \r\nc")) {
		got = append(got, fmt.Sprint(n, string(line)))
	}
	if want := []string{"1a", "4b", "5c"}; !reflect.DeepEqual(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
}

var (
	text = rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "order.close", "\u2028<&>\"\\\x00"}))
	// length is a duration that a request can ask for, instant a due time, stamp a time that stores
	// return.
	length  = rapid.Map(rapid.Int64Min(0), func(n int64) time.Duration { return time.Duration(n) })
	instant = rapid.Map(rapid.Int64Range(-62135596800+1, limits.MaxDue.Unix()-1), func(s int64) time.Time { return time.Unix(s, s&0xfffff).UTC() })
	stamp   = rapid.Map(rapid.Int64Range(-62135596800000+1, limits.MaxDue.UnixMilli()), func(ms int64) time.Time { return time.UnixMilli(ms).UTC() })
)

func body(t *rapid.T) []byte {
	b := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
	if rapid.Bool().Draw(t, "text") {
		b = []byte(text.Draw(t, "body as text"))
	}
	if len(b) == 0 {
		return nil
	}
	return b
}

func headers(t *rapid.T) map[string]string {
	h := rapid.MapOfN(text, text, 0, 2).Draw(t, "headers")
	if rapid.Bool().Draw(t, "bytes in headers") {
		h["\xff"+text.Draw(t, "name")] = "\xfe"
	}
	if len(h) == 0 {
		return nil
	}
	return h
}

// travel sends v over the wire: a server's strict decoder reads it.
func travel[T any](t *rapid.T, v T) *T {
	data, err := Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	out := new(T)
	if err := DecodeRequest(data, out); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return out
}

func same(t *rapid.T, got, want any, err error) {
	t.Helper()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v, %v\nwant %+v", got, err, want)
	}
}
