package wire

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// The samples have values with few fields set, and values with nearly all that the compact form can
// carry.

func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func samplePush() []punctual.NewMessage {
	return []punctual.NewMessage{
		{Topic: "a"},
		{Topic: "a", ID: `x"\y`, Body: []byte("body"), Delay: time.Minute},
		{
			Topic: "b/c", ID: "2", Body: []byte{0xff, 0}, Headers: map[string]string{"h": "v", "i": ""}, Due: at(1795353600250),
			MaxAttempts: 3, ExpireAfter: 36 * time.Hour, DropExpired: true, IfExists: punctual.IfExistsReplaceDead, Remember: 24 * time.Hour, Timeout: 90 * time.Second,
		},
		{Topic: "b/c", Headers: map[string]string{"\xff": "v", "n": "\xfe"}, Due: at(-5)},
	}
}

func samplePushResults() []punctual.PushResult {
	return []punctual.PushResult{
		{ID: "1", Topic: "a", Due: at(1795353600250), Status: punctual.PushStored},
		{ID: "2", Topic: "a", Due: at(0), Status: punctual.PushDuplicate, Existing: punctual.StateLeased},
		{ID: "3", Topic: "b", Status: punctual.PushDuplicate},
		{ID: "4", Topic: "b", Existing: punctual.StateDead, Err: fmt.Errorf("4 in b: %w", punctual.ErrDuplicate)},
		{Err: fmt.Errorf("the disk: %w", punctual.ErrIndeterminate)},
	}
}

func sampleDeliveries() []punctual.Delivery {
	return []punctual.Delivery{
		{
			Message: punctual.Message{ID: "1", Topic: "a", Due: at(1000), FirstDue: at(1000), Attempt: 1, Created: at(500)},
			Token:   1, Delivered: at(1001), LeaseUntil: at(31001),
		},
		{
			Message: punctual.Message{
				ID: `x"\y`, Topic: "a", Body: []byte("body"), Headers: map[string]string{"h": "v", "i": ""}, Due: at(2000), FirstDue: at(1000),
				Attempt: 2, MaxAttempts: 5, Created: at(-5), Expires: limits.MaxDue, DropExpired: true, Remember: 1500 * time.Millisecond, Timeout: 90 * time.Second,
			},
			Token: -9007199254740993, Delivered: at(2001), LeaseUntil: at(253402300800000),
			Failures: []punctual.Failure{{Attempt: 1, At: at(1500), Error: "no answer"}},
		},
		{
			Message: punctual.Message{ID: "3", Topic: "b", Body: []byte{0xff}, Headers: map[string]string{"\xff": "v"}, Due: at(2000), FirstDue: at(2000), Attempt: 1, Created: at(7)},
			Token:   1 << 62, Delivered: at(2001), LeaseUntil: at(3000),
		},
	}
}

func sampleSettlements() []punctual.Settlement {
	return []punctual.Settlement{
		{Topic: "a", ID: "1", Token: 1, Verb: punctual.SettleAck},
		{Topic: "a", ID: `x"\y`, Token: -9007199254740993, Verb: punctual.SettleRetry, Delay: punctual.UseBackoff, Error: "no answer"},
		{Topic: "b", ID: "3", Token: 1 << 62, Verb: punctual.SettleRetry},
		{Topic: "b", ID: "4", Verb: punctual.SettleExtend, Delay: 90 * time.Second},
	}
}

func sampleErrors() []error {
	return []error{nil, fmt.Errorf("lease of x: %w", punctual.ErrLeaseLost), nil, fmt.Errorf("the disk: %w", punctual.ErrIndeterminate)}
}

// arrives compares what was sent with what arrived. Errors are equal if they have the same code and
// text and are both definite or both not.
func arrives(t *testing.T, what string, sent, arrived any) {
	t.Helper()
	if e, ok := sent.(error); ok {
		a, _ := arrived.(error)
		if a == nil || e.Error() != a.Error() || storekit.ErrorCode(e) != storekit.ErrorCode(a) || punctual.Definite(e) != punctual.Definite(a) {
			t.Errorf("%s: %v arrives as %v", what, e, a)
		}
		return
	}
	if !reflect.DeepEqual(sent, arrived) {
		t.Errorf("%s: sent\n%#v, arrived\n%#v", what, sent, arrived)
	}
}

// A request with something that the compact form cannot carry is refused in that form. It is never
// sent without that part.
func TestCompactFormRefusesWhatItCannotCarry(t *testing.T) {
	for name, ss := range map[string][]punctual.Settlement{
		"follow-ups": {{Topic: "a", ID: "1", Verb: punctual.SettleAck}, {Topic: "a", ID: "2", Verb: punctual.SettleAck, Then: samplePush()[:1]}},
		"a due time": {{Topic: "a", ID: "1", Verb: punctual.SettleSnooze, Due: at(1)}},
	} {
		if _, err := EncodeSettle(Compact, ss); !SettleNeedsJSON(ss) || !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("a settlement with %s: needs JSON %v, %v; want ErrInvalid", name, SettleNeedsJSON(ss), err)
		}
		if _, err := EncodeSettle(JSON, ss); err != nil {
			t.Errorf("a settlement with %s in JSON: %v", name, err)
		}
	}
	ms := []punctual.NewMessage{{Topic: "a"}, {Topic: "a", ID: "1", IfExists: punctual.IfExistsReplace, IfDue: at(1)}}
	if _, err := EncodePush(Compact, ms); !PushNeedsJSON(ms) || !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("a push with a condition: needs JSON %v, %v; want ErrInvalid", PushNeedsJSON(ms), err)
	}
	if PushNeedsJSON(samplePush()) || SettleNeedsJSON(sampleSettlements()) {
		t.Error("what the compact form carries is sent as JSON")
	}
}

// TestForms: requests and answers arrive unchanged in either form.
func TestForms(t *testing.T) {
	for _, f := range []Form{JSON, Compact} {
		data, err := EncodePush(f, samplePush())
		if err != nil {
			t.Fatal(err)
		}
		var ms []punctual.NewMessage
		if f == Compact {
			ms, err = DecodeCompactPush(data, 4, unbounded)
		} else {
			var r PushRequest
			err = DecodeRequest(data, &r)
			ms = make([]punctual.NewMessage, len(r.Messages))
			for i := range ms {
				var e error
				ms[i], e = r.Messages[i].Message()
				err = errors.Join(err, e)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		arrives(t, f.String()+" push", samplePush(), ms)

		data, err = EncodePushAnswer(f, samplePushResults())
		if err != nil {
			t.Fatal(err)
		}
		rs, err := DecodePushAnswer(f, data)
		if err != nil || len(rs) != len(samplePushResults()) {
			t.Fatal(rs, err)
		}
		for i, sent := range samplePushResults() {
			if sent.Err != nil {
				arrives(t, f.String()+" push answer", sent.Err, rs[i].Err)
				sent.Err, rs[i].Err = nil, nil
			}
			arrives(t, f.String()+" push answer", sent, rs[i])
		}

		data, err = EncodeClaimAnswer(f, sampleDeliveries())
		if err != nil {
			t.Fatal(err)
		}
		ds, err := DecodeClaimAnswer(f, data)
		if err != nil {
			t.Fatal(err)
		}
		arrives(t, f.String()+" claim", sampleDeliveries(), ds)

		data, err = EncodeSettle(f, sampleSettlements())
		if err != nil {
			t.Fatal(err)
		}
		var ss []punctual.Settlement
		if f == Compact {
			ss, err = DecodeCompactSettle(data, 4, unbounded)
		} else {
			var r SettleRequest
			err = DecodeRequest(data, &r)
			ss = make([]punctual.Settlement, len(r.Settlements))
			for i := range ss {
				var e error
				ss[i], e = r.Settlements[i].Settlement()
				err = errors.Join(err, e)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		arrives(t, f.String()+" settle", sampleSettlements(), ss)

		data, err = EncodeSettleAnswer(f, sampleSettlements(), sampleErrors())
		if err != nil {
			t.Fatal(err)
		}
		errs, err := DecodeSettleAnswer(f, data)
		if err != nil || len(errs) != 4 || errs[0] != nil || errs[2] != nil {
			t.Fatal(errs, err)
		}
		arrives(t, f.String()+" settle answer", sampleErrors()[1], errs[1])
		arrives(t, f.String()+" settle answer", sampleErrors()[3], errs[3])
	}
}

// TestWrittenJSON: answers written without reflection have the same bytes as the types encoded with
// Encode.
func TestWrittenJSON(t *testing.T) {
	want := func(what string, v any, got []byte, err error) {
		t.Helper()
		data, encoding := Encode(v)
		if err != nil || encoding != nil || string(got) != string(data) {
			t.Errorf("%s: %v, %v\n%s, want\n%s", what, err, encoding, got, data)
		}
	}
	for _, n := range []int{0, 1, 100} {
		rs, ds, ss, errs := samplePushResults()[:min(n, 5)], sampleDeliveries()[:min(n, 3)], sampleSettlements()[:min(n, 4)], sampleErrors()[:min(n, 4)]
		push := PushAnswer{Results: []PushResult{}}
		for _, r := range rs {
			push.Results = append(push.Results, PushResultOf(r))
		}
		got, err := EncodePushAnswer(JSON, rs)
		want("push answer", push, got, err)
		claim := ClaimAnswer{Messages: []Delivery{}}
		for i := range ds {
			claim.Messages = append(claim.Messages, DeliveryOf(&ds[i]))
		}
		got, err = EncodeClaimAnswer(JSON, ds)
		want("claim answer", claim, got, err)
		settle := SettleAnswer{Results: []SettleResult{}}
		for i, s := range ss {
			settle.Results = append(settle.Results, SettleResult{Topic: s.Topic, ID: s.ID, Error: ItemProblem(errs[i])})
		}
		got, err = EncodeSettleAnswer(JSON, ss, errs)
		want("settle answer", settle, got, err)
	}
	lines, err := EncodePushLines(samplePushResults())
	if err != nil || strings.Count(string(lines), "\n") != 5 || !strings.HasPrefix(string(lines), `{"id":"1","topic":"a","due":"`) {
		t.Errorf("lines: %s, %v", lines, err)
	}
}

// TestCompactBytes: the bytes of a version never change.
func TestCompactBytes(t *testing.T) {
	push, _ := EncodePush(Compact, samplePush()[:3])
	answer, _ := EncodePushAnswer(Compact, samplePushResults()[:4])
	claim, _ := EncodeClaimAnswer(Compact, sampleDeliveries()[:1])
	settle, _ := EncodeSettle(Compact, sampleSettlements())
	settled, _ := EncodeSettleAnswer(Compact, sampleSettlements(), sampleErrors())
	for _, c := range []struct {
		what, want string
		got        []byte
	}{
		{"push", "030103010001611204626f64790478225c7980b09dc2df01ef0702ff0003622f6301320201680176016900fae06903a2010000038080dacfedbb1d030b010480b89929020390bf05", push},
		{"push answer", "03020407010001610131fae06903a201000006020301320000000000000000030200016201330a000401349903096475706c69636174651c3420696e20623a20494420697320616c726561647920696e2075736501", answer},
		{"claim answer", "0303010101310200e803000000000000f401000000000000e9030000000000001979000000000000010161", claim},
		{"settle", "03040401013102010161040478225c79818080808080802002096e6f20616e73776572030133808080808080808080010201620002013400068088aca3cf02", settle},
		{"settle answer", "030504020199030a6c656173655f6c6f7374166c65617365206f6620783a206c65617365206c6f73740103f4030d696e64657465726d696e61746526746865206469736b3a206d6179206f72206d6179206e6f7420686176652068617070656e656400", settled},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s is written as\n%s, want\n%s", c.what, got, c.want)
		}
	}
}

// TestCompactIsStrict: bytes that are missing, added or unknown are an error.
func TestCompactIsStrict(t *testing.T) {
	push, _ := EncodePush(Compact, samplePush())
	answer, _ := EncodePushAnswer(Compact, samplePushResults())
	claim, _ := EncodeClaimAnswer(Compact, sampleDeliveries())
	settle, _ := EncodeSettle(Compact, sampleSettlements())
	settled, _ := EncodeSettleAnswer(Compact, sampleSettlements(), sampleErrors())
	for _, c := range []struct {
		what   string
		whole  []byte
		decode func([]byte) error
		kind   error
	}{
		{"push", push, func(b []byte) error { _, err := DecodeCompactPush(b, 9, unbounded); return err }, punctual.ErrInvalid},
		{"push answer", answer, func(b []byte) error { _, err := DecodePushAnswer(Compact, b); return err }, punctual.ErrIndeterminate},
		{"claim answer", claim, func(b []byte) error { _, err := DecodeClaimAnswer(Compact, b); return err }, punctual.ErrIndeterminate},
		{"settle", settle, func(b []byte) error { _, err := DecodeCompactSettle(b, 9, unbounded); return err }, punctual.ErrInvalid},
		{"settle answer", settled, func(b []byte) error { _, err := DecodeSettleAnswer(Compact, b); return err }, punctual.ErrIndeterminate},
	} {
		if err := c.decode(c.whole); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		refused := func(how string, data []byte) {
			t.Helper()
			if err := c.decode(data); !errors.Is(err, c.kind) {
				t.Errorf("%s %s: %v, want %v", c.what, how, err, c.kind)
			}
		}
		for n := range c.whole {
			refused(fmt.Sprintf("cut at byte %d", n), c.whole[:n])
		}
		refused("with a byte behind", append(c.whole[:len(c.whole):len(c.whole)], 0))
		for at, b := range map[int]byte{0: CompactVersion + 1, 1: 99} { // version, kind
			changed := append([]byte(nil), c.whole...)
			changed[at] = b
			refused(fmt.Sprintf("with byte %d changed", at), changed)
		}
		long := append([]byte{c.whole[0], c.whole[1], c.whole[2] | 0x80, 0}, c.whole[3:]...)
		refused("with a number longer than needed", long)
		refused("of 2^64 items", []byte{c.whole[0], c.whole[1], 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
		refused("of 2^62 items", []byte{c.whole[0], c.whole[1], 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40})
	}
	if _, err := DecodeCompactPush(push, 3, unbounded); !errors.Is(err, punctual.ErrTooLarge) {
		t.Errorf("4 messages where 3 are allowed: %v", err)
	}
	if _, err := DecodeCompactSettle(settle, 3, unbounded); !errors.Is(err, punctual.ErrTooLarge) {
		t.Errorf("4 settlements where 3 are allowed: %v", err)
	}
	for what, data := range map[string][]byte{
		"flags that are not known":   {CompactVersion, kindPush, 1, 0x81, 0x08, 0, 1, 'a'},
		"no topic":                   {CompactVersion, kindPush, 1, 0, 0},
		"an attribute not known":     {CompactVersion, kindPush, 1, 0x81, 0x04, 0, 1, 'a', 3, 9, 1, 'x'},
		"no attributes":              {CompactVersion, kindPush, 1, 0x81, 0x04, 0, 1, 'a', 0},
		"attributes cut short":       {CompactVersion, kindPush, 1, 0x81, 0x04, 0, 1, 'a', 2, 1, 1},
		"a header twice":             {CompactVersion, kindPush, 1, 5, 0, 1, 'a', 2, 1, 'h', 0, 1, 'h', 0},
		"an IfExists not known":      {CompactVersion, kindPush, 1, 0x81, 0x02, 0, 1, 'a', 4},
		"a time that is none":        append([]byte{CompactVersion, kindPush, 1, 9, 0, 1, 'a'}, 0x00, 0x28, 0xd3, 0xed, 0x7c, 0xc7, 0xff, 0xff),
		"a delay beyond 2^63":        {CompactVersion, kindPush, 1, 17, 0, 1, 'a', 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"a text beyond the end":      {CompactVersion, kindPush, 1, 1, 9, 1, 'a'},
		"more headers than there is": {CompactVersion, kindPush, 1, 5, 0, 1, 'a', 100, 1, 'h', 0},
	} {
		if _, err := DecodeCompactPush(data, 9, unbounded); !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "at byte") {
			t.Errorf("%s: %v, want an ErrInvalid with its place", what, err)
		}
	}
}

// TestCompactNoise: an answer with a random byte is refused, or read as messages that are hardly
// longer than the answer.
func TestCompactNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	claim, _ := EncodeClaimAnswer(Compact, sampleDeliveries())
	for range 20_000 {
		b := append([]byte(nil), claim...)
		b[rng.IntN(len(b))] = byte(rng.Uint32())
		if ds, err := DecodeClaimAnswer(Compact, b); err == nil {
			if again, err := EncodeClaimAnswer(Compact, ds); err != nil || len(again) > len(b)+8*len(ds) {
				t.Fatalf("%x is read as %v, %v", b, ds, err)
			}
		}
	}
}

// unbounded takes any number of bytes.
func unbounded(int64) error { return nil }
