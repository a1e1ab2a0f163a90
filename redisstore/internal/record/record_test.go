package record

import (
	"encoding/binary"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// pushed is the record that the script of push makes of a message.
func pushed(m *punctual.NewMessage, created, due int64) string {
	b := []byte{formatVersion<<4 | Flags(m)}
	return string(AppendRest(AppendDouble(AppendDouble(b, float64(created)), float64(due)), m))
}

// stateOf is a state as the scripts write it.
func stateOf(flags, reason byte, attempt uint32, due int64, more ...byte) string {
	b := binary.LittleEndian.AppendUint32([]byte{1, flags, reason, 0}, attempt)
	b = AppendDouble(AppendDouble(b, 256), float64(due))
	return string(append(binary.LittleEndian.AppendUint32(b, 3), more...))
}

// What is written is read again, and is as long as was said.
func TestRecordIsReadAgain(t *testing.T) {
	for name, m := range map[string]punctual.NewMessage{
		"nothing":    {},
		"everything": {Body: []byte("body"), Headers: map[string]string{"b": "2", "a": ""}, MaxAttempts: 7, ExpireAfter: time.Minute, DropExpired: true},
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
			ID: "x", Topic: "orders", Body: m.Body, Headers: m.Headers, MaxAttempts: m.MaxAttempts, DropExpired: m.DropExpired,
			Created: storekit.FromMillis(1000), Due: storekit.FromMillis(2000), FirstDue: storekit.FromMillis(2000),
		}
		if m.ExpireAfter > 0 {
			want.Expires = want.Due.Add(m.ExpireAfter)
		}
		if !reflect.DeepEqual(in, want) {
			t.Errorf("%s: %+v, want %+v", name, in, want)
		}
	}
}

// A state tells what has changed.
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

// P13: a record that is cut off, or of another version, is damage.
func TestDamage(t *testing.T) {
	message, state := pushed(&punctual.NewMessage{Headers: map[string]string{"name": "value"}}, 1, 2), stateOf(0, 0, 1, 2)
	for n := range len(message) {
		if _, err := Read("x", message[:n], ""); !errors.Is(err, punctual.ErrCorrupt) {
			t.Errorf("P13: the first %d bytes of a message: %v; want ErrCorrupt", n, err)
		}
	}
	for n := 1; n < len(state); n++ {
		if _, err := Read("x", message, state[:n]); !errors.Is(err, punctual.ErrCorrupt) {
			t.Errorf("P13: the first %d bytes of a state: %v; want ErrCorrupt", n, err)
		}
	}
	if _, err := Read("x", "\x20"+message[1:], ""); !errors.Is(err, punctual.ErrCorrupt) {
		t.Errorf("P13: a message of version 2: %v; want ErrCorrupt", err)
	}
	if _, err := Read("x", message, stateOf(0, 9, 1, 2)); !errors.Is(err, punctual.ErrCorrupt) {
		t.Errorf("P13: a reason that there is not: %v; want ErrCorrupt", err)
	}
}
