package record

import (
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// pushed is the record that the script of push makes of a message.
func pushed(m *punctual.NewMessage, created, due int64) string {
	b := []byte{formatVersion<<4 + Flags(m)}
	return string(AppendRest(AppendDouble(AppendDouble(b, float64(created)), float64(due)), m))
}

// stateOf is a state of version 1 as the scripts write it, with the token 256, at most 3 attempts
// and no failures.
func stateOf(flags, reason byte, attempt uint32, due int64, more ...byte) string {
	b := binary.LittleEndian.AppendUint32([]byte{1, flags, reason, 0}, attempt)
	b = AppendDouble(AppendDouble(b, 256), float64(due))
	return string(append(binary.LittleEndian.AppendUint32(b, 3), more...))
}

// Read reads what AppendRest has written, which is as long as RestBytes says.
func TestRecordIsReadAgain(t *testing.T) {
	for name, m := range map[string]punctual.NewMessage{
		"nothing":            {},
		"everything":         {Body: []byte("body"), Headers: map[string]string{"b": "2", "a": ""}, MaxAttempts: 7, ExpireAfter: time.Minute, DropExpired: true, Remember: 1500 * time.Microsecond},
		"remember":           {Body: []byte("body"), Remember: limits.MaxFinishedRetention},
		"the longest expiry": {ExpireAfter: math.MaxInt64},
	} {
		if rest := AppendRest(nil, &m); len(rest) != RestBytes(&m) {
			t.Errorf("%s: %d bytes, want %d", name, len(rest), RestBytes(&m))
		}
		got, err := Read("x", pushed(&m, 1000, 2000), "")
		if err != nil {
			t.Fatal(err)
		}
		in := got.In("orders", "x")
		want := punctual.Message{
			ID: "x", Topic: "orders", Body: m.Body, Headers: m.Headers, MaxAttempts: m.MaxAttempts, DropExpired: m.DropExpired, Remember: storekit.WholeMillis(m.Remember),
			Created: storekit.FromMillis(1000), Due: storekit.FromMillis(2000), FirstDue: storekit.FromMillis(2000),
		}
		if m.ExpireAfter > 0 {
			want.Expires = storekit.ExpiresAt(want.Due, m.ExpireAfter)
		}
		if !reflect.DeepEqual(in, want) {
			t.Errorf("%s: %+v, want %+v", name, in, want)
		}
	}
}

// A state says what has changed since the push.
func TestStateIsAdded(t *testing.T) {
	message := pushed(&punctual.NewMessage{}, 1000, 2000)
	m, err := Read("x", message, stateOf(flagCancel|flagFirst, 2, 4, 5000, AppendDouble(nil, 3000)...))
	if err != nil || !m.Cancel || m.Attempt != 4 || m.Due != 5000 || m.FirstDue != 3000 || m.Reason != punctual.ReasonAttemptsUsedUp {
		t.Errorf("read %+v, %v", m, err)
	}
	if n := ReasonNumber(punctual.ReasonAttemptsUsedUp); n != 2 {
		t.Errorf("its reason has number %d, want 2", n)
	}
}

// A state with times is read like one without.
func TestStateWithTimes(t *testing.T) {
	message := pushed(&punctual.NewMessage{}, 1000, 2000)
	state := stateOf(flagFirst, 0, 4, 5000, AppendDouble(AppendDouble(AppendDouble(nil, 1000), 4500), 3000)...)
	m, err := Read("x", message, "\x02"+state[1:])
	if err != nil || m.Attempt != 4 || m.Due != 5000 || m.FirstDue != 3000 {
		t.Errorf("read %+v, %v", m, err)
	}
}

// A state with times and remember is read like one without. A state of a version that there is not
// is damage.
func TestStateWithRemember(t *testing.T) {
	message := pushed(&punctual.NewMessage{Remember: time.Hour}, 1000, 2000)
	state := stateOf(flagFirst|flagExpires, 0, 4, 5000, AppendDouble(AppendDouble(AppendDouble(AppendDouble(AppendDouble(nil, 1000), 4500), 3.6e6), 3000), 60)...)
	m, err := Read("x", message, "\x03"+state[1:])
	if err != nil || m.Attempt != 4 || m.Due != 5000 || m.FirstDue != 3000 || m.In("t", "x").Remember != time.Hour {
		t.Errorf("read %+v, %v", m, err)
	}
	for _, version := range []string{"\x00", "\x04"} {
		if _, err := Read("x", message, version+state[1:]); !errors.Is(err, punctual.ErrCorrupt) {
			t.Errorf("a state of version %q: %v, want damage", version, err)
		}
	}
}

// A finished record is read with and without its optional parts. A record that is cut off, too
// long, of another version or with an unknown outcome is damage (P13).
func TestFinished(t *testing.T) {
	ms := func(b []byte, n int64, bytes int) []byte {
		return append(b, binary.LittleEndian.AppendUint64(nil, uint64(n))[:bytes]...)
	}
	head := func(kind byte) []byte {
		return ms(ms(ms(ms([]byte{kind}, 9000, 6), 1000, 5), 1000, 6), -5000, 7)
	}
	short := string(head(1<<5 | 1))
	f, err := ReadFinished("orders", "x", short)
	want := punctual.Finished{
		ID: "x", Topic: "orders", Outcome: punctual.OutcomeCancelled, At: storekit.FromMillis(9000), KeptUntil: storekit.FromMillis(10000),
		Created: storekit.FromMillis(1000), FirstDue: storekit.FromMillis(-5000), Due: storekit.FromMillis(-5000),
	}
	if err != nil || !reflect.DeepEqual(f, want) {
		t.Errorf("read %+v, %v; want %+v", f, err, want)
	}
	b := ms(ms(head(1<<5|finishedDelivered|finishedMoved|finishedAttempts), 500, 5), -6000, 7)
	b = append(binary.LittleEndian.AppendUint32(b, 3), 1)
	b = append(AppendDouble(binary.LittleEndian.AppendUint32(b, 2), 7000), 2, 0, 'n', 'o')
	f, err = ReadFinished("orders", "x", string(b))
	want.Outcome, want.FirstDue, want.Attempt = punctual.OutcomeAcked, storekit.FromMillis(-6000), 3
	want.Delivered = storekit.FromMillis(8500)
	want.Failures = []punctual.Failure{{Attempt: 2, At: storekit.FromMillis(7000), Error: "no"}}
	if err != nil || !reflect.DeepEqual(f, want) {
		t.Errorf("read %+v, %v; want %+v", f, err, want)
	}
	bad := []string{short + "x", string(head(2 << 5)), string(head(1<<5 | 3)), ""}
	for n := range b {
		bad = append(bad, string(b[:n]))
	}
	for _, raw := range bad {
		if _, err := ReadFinished("orders", "x", raw); !errors.Is(err, punctual.ErrCorrupt) {
			t.Errorf("P13: %d bytes: %v; want ErrCorrupt", len(raw), err)
		}
	}
}

// P13: a message that is cut off before its body is damage, and so are a state that is cut off, a
// message of a version that there is not and a state with an unknown reason.
func TestDamage(t *testing.T) {
	headers := map[string]string{"name": "value"}
	message, state := pushed(&punctual.NewMessage{Headers: headers}, 1, 2), stateOf(0, 0, 1, 2)
	for _, whole := range []string{message, pushed(&punctual.NewMessage{Headers: headers, Remember: time.Hour}, 1, 2)} { // versions 1 and 2
		if _, err := Read("x", whole, ""); err != nil {
			t.Fatal(err)
		}
		for n := range len(whole) {
			if _, err := Read("x", whole[:n], ""); !errors.Is(err, punctual.ErrCorrupt) {
				t.Errorf("P13: the first %d bytes of a message of version %d: %v; want ErrCorrupt", n, whole[0]>>4, err)
			}
		}
	}
	for n := 1; n < len(state); n++ {
		if _, err := Read("x", message, state[:n]); !errors.Is(err, punctual.ErrCorrupt) {
			t.Errorf("P13: the first %d bytes of a state: %v; want ErrCorrupt", n, err)
		}
	}
	for _, version := range []string{"\x00", "\x30"} { // but for the version these are messages of version 1
		if _, err := Read("x", version+message[1:], ""); !errors.Is(err, punctual.ErrCorrupt) {
			t.Errorf("P13: a message of version %d: %v; want ErrCorrupt", version[0]>>4, err)
		}
	}
	if _, err := Read("x", message, stateOf(0, 9, 1, 2)); !errors.Is(err, punctual.ErrCorrupt) {
		t.Errorf("P13: a reason that there is not: %v; want ErrCorrupt", err)
	}
}

// A message from before there were blocks of attributes has remember at its old place alone, and is
// still read. Bytes that are no block, where the flags say that there is one, are damage.
func TestMessageWithoutABlock(t *testing.T) {
	b := []byte{(formatVersion + 1) << 4}
	head := binary.LittleEndian.AppendUint32(AppendDouble(AppendDouble(b, 1000), 2000), 3)
	old := string(AppendDouble(head, 3.6e6)) + "\x00body"
	m, err := Read("x", old, "")
	if out := m.In("t", "x"); err != nil || out.Remember != time.Hour || string(out.Body) != "body" {
		t.Errorf("read %+v, %v", out, err)
	}
	for _, block := range []string{"\x02\x01\x01", "\x03\x01\x01\x00", "\x04\x01\x01"} {
		damaged := string([]byte{formatVersion<<4 + flagAttributes}) + string(head[1:]) + block + "\x00body"
		if _, err := Read("x", damaged, ""); !errors.Is(err, punctual.ErrCorrupt) {
			t.Errorf("attributes %x: %v, want damage", block, err)
		}
	}
}
