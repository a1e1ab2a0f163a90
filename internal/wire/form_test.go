package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire/compact"
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
		{Topic: "b/c", Headers: map[string]string{"\xff": "v", "n": "\xfe"}, Due: at(-5), IfExists: punctual.IfExistsReplace, IfDue: at(0)},
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
		{Topic: "b", ID: "5", Verb: punctual.SettleRetry, Due: at(0)},
	}
}

func sampleErrors() []error {
	return []error{nil, fmt.Errorf("lease of x: %w", punctual.ErrLeaseLost), nil, fmt.Errorf("the disk: %w", punctual.ErrIndeterminate), nil}
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
	} {
		if _, err := EncodeSettle(Compact, ss); !SettleNeedsJSON(ss) || !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("a settlement with %s: needs JSON %v, %v; want ErrInvalid", name, SettleNeedsJSON(ss), err)
		}
		if _, err := EncodeSettle(JSON, ss); err != nil {
			t.Errorf("a settlement with %s in JSON: %v", name, err)
		}
	}
	if SettleNeedsJSON(sampleSettlements()) {
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
			ss, err = DecodeCompactSettle(data, 5, unbounded)
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
		if err != nil || len(errs) != 5 || errs[0] != nil || errs[2] != nil {
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
		rs, ds, ss, errs := samplePushResults()[:min(n, 5)], sampleDeliveries()[:min(n, 3)], sampleSettlements()[:min(n, 5)], sampleErrors()[:min(n, 5)]
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

// TestCompactBytes: the bytes of a version never change, so that older programs read them.
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
		{"push", "0a030a01610a160a0161120478225c791a04626f64794080b09dc2df010a3d0a03622f631201321a02ff002201682201692a01762a0038fac1a79ba0344803508080dacfedbb1d58016003720f088080bc8ac9d213108088aca3cf02", push},
		{"push answer", "0a0f0a016112013118fac1a79ba03420010a0c0a01611201321800200228030a080a016212013320020a380a01621201342804322e08990312096475706c69636174651a1c3420696e20623a20494420697320616c726561647920696e207573652001", answer},
		{"claim answer", "0a1a0a0161120131380140e80748e80750f40358e9076099f2016801", claim},
		{"settle", "0a0a0a0161120131180120010a210a0161120478225c7918ffffffffffffffefff0120023a096e6f20616e737765720a140a016212013318808080808080808040200228000a0f0a01621201342006288088aca3cf020a0a0a016212013520023000", settle},
		{"settle answer", "0a000a2b0a29089903120a6c656173655f6c6f73741a166c65617365206f6620783a206c65617365206c6f737420010a000a3c0a3a08f403120d696e64657465726d696e6174651a26746865206469736b3a206d6179206f72206d6179206e6f7420686176652068617070656e65640a00", settled},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s is written as\n%s, want\n%s", c.what, got, c.want)
		}
	}
}

// compactBodies are the samples in the compact form, how each is read, and the kind of error for
// one that is malformed.
func compactBodies(t *testing.T) []compactBody {
	push, err1 := EncodePush(Compact, samplePush())
	answer, err2 := EncodePushAnswer(Compact, samplePushResults())
	claim, err3 := EncodeClaimAnswer(Compact, sampleDeliveries())
	settle, err4 := EncodeSettle(Compact, sampleSettlements())
	settled, err5 := EncodeSettleAnswer(Compact, sampleSettlements(), sampleErrors())
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	return []compactBody{
		{"push", push, new(compact.PushRequest), punctual.ErrInvalid, func(b []byte) (any, error) { return DecodeCompactPush(b, 9, unbounded) }},
		{"push answer", answer, new(compact.PushAnswer), punctual.ErrIndeterminate, func(b []byte) (any, error) { return DecodePushAnswer(Compact, b) }},
		{"claim answer", claim, new(compact.ClaimAnswer), punctual.ErrIndeterminate, func(b []byte) (any, error) { return DecodeClaimAnswer(Compact, b) }},
		{"settle", settle, new(compact.SettleRequest), punctual.ErrInvalid, func(b []byte) (any, error) { return DecodeCompactSettle(b, 9, unbounded) }},
		{"settle answer", settled, new(compact.SettleAnswer), punctual.ErrIndeterminate, func(b []byte) (any, error) { return DecodeSettleAnswer(Compact, b) }},
	}
}

type compactBody struct {
	what    string
	whole   []byte
	message proto.Message
	kind    error
	decode  func([]byte) (any, error)
}

// TestCompactIsProtobuf: other programs read the bodies with what they generate from
// server/punctual.proto, and what they write is read here.
func TestCompactIsProtobuf(t *testing.T) {
	for _, c := range compactBodies(t) {
		sent, err := c.decode(c.whole)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if err := proto.Unmarshal(c.whole, c.message); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		var unknown func(protoreflect.Message)
		unknown = func(m protoreflect.Message) {
			if len(m.GetUnknown()) > 0 {
				t.Errorf("%s: %s has no field for %x", c.what, m.Descriptor().Name(), m.GetUnknown())
			}
			m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
				switch {
				case f.IsList() && f.Message() != nil:
					for i := range v.List().Len() {
						unknown(v.List().Get(i).Message())
					}
				case f.Message() != nil:
					unknown(v.Message())
				}
				return true
			})
		}
		unknown(c.message.ProtoReflect())
		theirs, err := proto.MarshalOptions{Deterministic: true}.Marshal(c.message)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if read, err := c.decode(theirs); err != nil || fmt.Sprint(read) != fmt.Sprint(sent) {
			t.Errorf("%s: written by others it is read as\n%v, %v; want\n%v", c.what, read, err, sent)
		}
	}
}

// TestCompactIsStrict: what is cut short, or unknown in a request, is an error.
func TestCompactIsStrict(t *testing.T) {
	for _, c := range compactBodies(t) {
		ends := map[int]bool{0: true} // where an item ends a shorter body does
		for at := 0; at < len(c.whole); ends[at] = true {
			_, _, n := protowire.ConsumeField(c.whole[at:])
			at += n
		}
		refused := func(how string, data []byte) {
			t.Helper()
			if _, err := c.decode(data); !errors.Is(err, c.kind) {
				t.Errorf("%s %s: %v, want %v", c.what, how, err, c.kind)
			}
		}
		for n := range c.whole {
			if !ends[n] {
				refused(fmt.Sprintf("cut at byte %d", n), c.whole[:n])
			}
		}
		refused("with a byte behind", append(c.whole[:len(c.whole):len(c.whole)], 0))
		refused("with a field behind", append(c.whole[:len(c.whole):len(c.whole)], 2<<3, 1))
		refused("with a group", append(c.whole[:len(c.whole):len(c.whole)], 1<<3|3, 1<<3|4))
		refused("with an item of 2^62 bytes", []byte{1<<3 | 2, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40})
		refused("of version 3", []byte{3, 1, 1, 1, 0, 1, 'a'})
	}
	if _, err := DecodeCompactPush(compactBodies(t)[0].whole, 3, unbounded); !errors.Is(err, punctual.ErrTooLarge) {
		t.Errorf("4 messages where 3 are allowed: %v", err)
	}
	if _, err := DecodeCompactSettle(compactBodies(t)[3].whole, 3, unbounded); !errors.Is(err, punctual.ErrTooLarge) {
		t.Errorf("5 settlements where 3 are allowed: %v", err)
	}
	zero := time.Time{}.UnixMilli()
	strange := &compact.NewMessage{}
	strange.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	strangeAttributes := &compact.Attributes{}
	strangeAttributes.ProtoReflect().SetUnknown(strange.ProtoReflect().GetUnknown())
	strangeHeader := &compact.Header{}
	strangeHeader.ProtoReflect().SetUnknown(strange.ProtoReflect().GetUnknown())
	for what, m := range map[string]*compact.NewMessage{
		"a field not known":               {Topic: "a"},
		"an attribute not known":          {Topic: "a", Attributes: strangeAttributes},
		"a part of a header not known":    {Topic: "a", BinaryHeaders: []*compact.Header{strangeHeader}},
		"a header twice":                  {Topic: "a", HeaderNames: []string{"h", "h"}, HeaderValues: []string{"", ""}},
		"a header twice, once with bytes": {Topic: "a", HeaderNames: []string{"h"}, HeaderValues: []string{""}, BinaryHeaders: []*compact.Header{{Name: []byte("h")}}},
		"a header without a value":        {Topic: "a", HeaderNames: []string{"h"}},
		"an IfExists not known":           {Topic: "a", IfExists: 4},
		"a negative IfExists":             {Topic: "a", IfExists: -1},
		"a time that is none":             {Topic: "a", DueMs: &zero},
		"a condition that is none":        {Topic: "a", IfDueMs: &zero},
		"an IfExists beyond a byte":       {Topic: "a", IfExists: 256 + 1},
	} {
		if what == "a field not known" {
			m.ProtoReflect().SetUnknown(strange.ProtoReflect().GetUnknown())
		}
		data, err := proto.Marshal(&compact.PushRequest{Messages: []*compact.NewMessage{{Topic: "a"}, m}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeCompactPush(data, 9, unbounded); !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "item 2") {
			t.Errorf("%s: %v, want an ErrInvalid with its place", what, err)
		}
	}
}

// TestCompactBoundsParts: an item with more parts than any has is refused before it is decoded,
// because an empty header takes two bytes of the request and a hundred as a value.
func TestCompactBoundsParts(t *testing.T) {
	m := &compact.NewMessage{Topic: "a", BinaryHeaders: slices.Repeat([]*compact.Header{{}}, maxParts+1)}
	data, err := proto.Marshal(&compact.PushRequest{Messages: []*compact.NewMessage{m}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = DecodeCompactPush(data, 9, unbounded); !errors.Is(err, punctual.ErrTooLarge) {
		t.Errorf("%v; want ErrTooLarge", err)
	}
	if n := testing.AllocsPerRun(1, func() { _, _ = DecodeCompactPush(data, 9, unbounded) }); n > 100 {
		t.Errorf("%d bytes make the decoder allocate %v times", len(data), n)
	}
}

// TestCompactKeepsNoRequest: what is read shares no memory with the bytes that it was read from,
// but for the bodies of pushes, because a program that keeps one ID would keep a whole request.
func TestCompactKeepsNoRequest(t *testing.T) {
	for _, c := range compactBodies(t) {
		data := slices.Clone(c.whole)
		got, err1 := c.decode(data)
		want, err2 := c.decode(c.whole)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		clear(data)
		if ms, ok := got.([]punctual.NewMessage); ok {
			for i := range ms {
				if ms[i].Body != nil && !bytes.Equal(ms[i].Body, make([]byte, len(ms[i].Body))) {
					t.Error("the body of a push was copied")
				}
				ms[i].Body = want.([]punctual.NewMessage)[i].Body
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: it changes with the bytes that it was read from:\n%v; want\n%v", c.what, got, want)
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
