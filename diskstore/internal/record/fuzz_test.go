package record

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

func someRecords() []*Record {
	at := storekit.FromMillis(1_700_000_000_000)
	return []*Record{
		{Message: lifecycle.Message{Due: 1}, ID: "a", Body: []byte("x")},
		{
			Message: lifecycle.Message{
				Due: storekit.Millis(limits.MaxDue), ExpireAfter: 6, DropExpired: true, Remember: 1 << 30,
				Attempts: 3, MaxAttempts: 9, CancelRequested: true,
			},
			ID: "b", Newest: 1 << 40, Created: -5, Attributes: storekit.Attributes{Remember: (1 << 30) * time.Millisecond}.Block(), Headers: map[string]string{"k": "v", "": ""},
			Failures: []punctual.Failure{{Attempt: 1, At: at, Error: "no"}, {Attempt: 2, At: at, Error: ""}}, Body: []byte{},
		},
		{Message: lifecycle.Message{Died: 12, Reason: punctual.ReasonDiscarded}, ID: "c", Body: bytes.Repeat([]byte{0xff}, 300)},
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for _, r := range someRecords() {
		b := r.Encode()
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Add([]byte{Version, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}) // 2^64-1 headers
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(b)
		if err != nil {
			if !errors.Is(err, punctual.ErrCorrupt) {
				t.Errorf("error without its kind: %v", err)
			}
			return
		}
		if len(r.Failures)+len(r.Headers)+len(r.Body)+len(r.ID) > len(b) {
			t.Errorf("%d bytes became %d failures, %d headers, %d bytes", len(b), len(r.Failures), len(r.Headers), len(r.Body)+len(r.ID))
		}
		again, err := Decode(r.Encode())
		if err != nil {
			t.Fatalf("what was decoded does not survive: %v", err)
		}
		if !reflect.DeepEqual(normal(r), normal(again)) {
			t.Errorf("round trip: %+v became %+v", r, again)
		}
	})
}

func FuzzDecodeFinished(f *testing.F) {
	at := storekit.FromMillis(1_700_000_000_000)
	for _, x := range []*punctual.Finished{
		{Outcome: punctual.OutcomeCancelled, At: at, Created: at, FirstDue: at, Due: at, KeptUntil: at},
		{
			Outcome: punctual.OutcomeAcked, At: at, Created: at, FirstDue: at, Due: at, KeptUntil: at, Delivered: at, Attempt: 3,
			Failures: []punctual.Failure{{Attempt: 1, At: at, Error: "no"}, {Attempt: 2, At: at, Error: ""}},
		},
	} {
		b := EncodeFinished(x)
		if back, err := DecodeFinished(b); err != nil || !reflect.DeepEqual(&back, x) {
			f.Fatalf("%+v became %+v, %v", x, back, err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := DecodeFinished(b)
		if err != nil {
			if !errors.Is(err, punctual.ErrCorrupt) {
				t.Errorf("error without its kind: %v", err)
			}
			return
		}
		if len(x.Failures)+len(x.Outcome) > len(b) {
			t.Errorf("%d bytes became %d failures, an outcome of %d", len(b), len(x.Failures), len(x.Outcome))
		}
		again, err := DecodeFinished(EncodeFinished(&x))
		if err != nil || !reflect.DeepEqual(again, x) {
			t.Errorf("round trip: %+v became %+v, %v", x, again, err)
		}
	})
}

// normal returns a copy of a record without differences that have no meaning: an ExpireAfter of 0
// or less is not stored, and headers and bodies that are nil are as good as empty ones.
func normal(r *Record) Record {
	n := *r
	if n.ExpireAfter <= 0 {
		n.ExpireAfter = 0
	}
	if len(n.Headers) == 0 {
		n.Headers = nil
	}
	n.Body = append([]byte{}, n.Body...)
	return n
}
