package record

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// TestBytesOfARecord compares the stored bytes, which programs of other versions read, with texts.
// They contain the time of expiry, which this program writes, but computes when it reads a record.
func TestBytesOfARecord(t *testing.T) {
	const created = 1_700_000_000_000
	at := storekit.FromMillis(created)
	last := storekit.Millis(limits.MaxDue)
	for what, c := range map[string]struct {
		r    Record
		want string
	}{
		"scheduled": {
			Record{Message: lifecycle.Message{Due: created + 1000, FirstDue: created + 1000}, ID: "a", Created: created, Body: []byte("x")},
			"010000000080a0abfef962d0afabfef9620161000078",
		},
		"retried, cancelled under its lease": {
			Record{
				Message: lifecycle.Message{
					Due: created + 3000, FirstDue: created + 1000, ExpireAfter: 5000, DropExpired: true, Remember: 60_000,
					Attempts: 2, MaxAttempts: 9, CancelRequested: true,
				},
				ID: "b", Created: created, Newest: 300, Headers: map[string]string{"k": "v"}, Attributes: storekit.Attributes{Remember: time.Minute}.Block(),
				Failures: []punctual.Failure{{Attempt: 1, At: at, Error: "no"}},
			},
			"013702ac020980a0abfef962f0ceabfef962d0afabfef962e0fdabfef9628827050103e0d403016201016b0176010180a0abfef962026e6f",
		},
		"pushed with a delay": {
			Record{Message: lifecycle.Message{Due: created + 1000, FirstDue: created + 1000, Since: created}, ID: "a", Created: created, Body: []byte("x")},
			"014000000080a0abfef962d0afabfef9620161000078",
		},
		"retried with a delay": {
			Record{Message: lifecycle.Message{Due: created + 2000, FirstDue: created + 1000, Since: created + 1500}, ID: "a", Created: created, Body: []byte("x")},
			"019000000080a0abfef962a0bfabfef962d0afabfef962b8b7abfef9620161000078",
		},
		"due at MaxDue": {
			Record{Message: lifecycle.Message{Due: last, FirstDue: last, ExpireAfter: 5000}, ID: "c", Created: created},
			"010100000080a0abfef962feeffea1fa9d7380f0fea1fa9d73882701630000",
		},
		"dead": {
			Record{
				Message: lifecycle.Message{
					Due: created + 1000, FirstDue: created + 1000, Attempts: 1, Reason: punctual.ReasonDiscarded, Died: created + 2000,
				},
				ID: "d", Created: created, Newest: 301,
			},
			"010801ad020080a0abfef962d0afabfef962a0bfabfef9620964697363617264656401640000",
		},
	} {
		if got := hex.EncodeToString(c.r.Encode()); got != c.want {
			t.Errorf("%s: stored as\n%s, want\n%s", what, got, c.want)
		}
		b, _ := hex.DecodeString(c.want)
		if r, err := Decode(b); err != nil || !reflect.DeepEqual(*r, c.r) {
			t.Errorf("%s: read as %+v, %v; want %+v", what, r, err, c.r)
		}
	}
}

// TestAttributesOfARecord: the tags of a newer program survive a rewrite, and bytes that are no
// block are damage.
func TestAttributesOfARecord(t *testing.T) {
	r := Record{ID: "a", Attributes: []byte{1, 1, 5, 9, 1, 'x'}, Body: []byte("body")}
	b := r.Encode()
	got, err := Decode(b)
	if err != nil || got.Remember != 5 || !bytes.Equal(got.Encode(), b) || got.Public("t").Remember != 5*time.Millisecond || string(got.Body) != "body" {
		t.Errorf("read as %+v, %v", got, err)
	}
	for _, block := range [][]byte{{1, 1}, {1, 1, 0}, {9, 0, 1, 1, 1}} {
		r.Attributes = block
		if got, err := Decode(r.Encode()); !errors.Is(err, punctual.ErrCorrupt) {
			t.Errorf("attributes %x are read as %+v, %v; want ErrCorrupt", block, got, err)
		}
	}
}

// TestDeadNeedsAReason: a message is dead if it has a reason, so a record that says dead and has
// none is damaged.
func TestDeadNeedsAReason(t *testing.T) {
	r := Record{Message: lifecycle.Message{Reason: "x"}, ID: "a"}
	b := r.Encode()
	i := len(b) - len("\x01x\x01a\x00\x00")
	if _, err := Decode(append(b[:i:i], "\x00\x01a\x00\x00"...)); !errors.Is(err, punctual.ErrCorrupt) {
		t.Errorf("a dead message without a reason: %v, want ErrCorrupt", err)
	}
}

// TestUnknownFlags: a flag of a finished record may announce a field, so a record with a flag that
// this program does not know cannot be read.
func TestUnknownFlags(t *testing.T) {
	at := storekit.FromMillis(1)
	finished := EncodeFinished(&punctual.Finished{Outcome: punctual.OutcomeAcked, At: at, Created: at, FirstDue: at, Due: at, KeptUntil: at})
	if _, err := DecodeFinished(finished); err != nil {
		t.Fatal(err)
	}
	for flag := byte(2); flag != 0; flag <<= 1 {
		b := bytes.Clone(finished)
		b[9] |= flag
		if f, err := DecodeFinished(b); !errors.Is(err, punctual.ErrCorrupt) {
			t.Errorf("a finished record with flag %d of another program is read as %+v, %v; want ErrCorrupt", flag, f, err)
		}
	}
}

// TestALeaseIsAddedToItsRecord: a lease brings its attempt, its failures and its end into the
// record, and its token also as Newest, by which the next start decides whether the lease is over.
// A lease without a token changes nothing.
func TestALeaseIsAddedToItsRecord(t *testing.T) {
	ranOut := punctual.Failure{Attempt: 1, Error: storekit.LeaseRanOut}
	r := Record{Message: lifecycle.Message{Attempts: 1}, Newest: 3}
	var none Lease
	if none.AddTo(&r); r.Token != 0 || r.Newest != 3 || r.Attempts != 1 {
		t.Errorf("no lease made of the record %+v", r)
	}
	l := Lease{Token: 7, Attempt: 2, Until: 9, Expired: []punctual.Failure{ranOut}}
	l.AddTo(&r)
	want := Record{Message: lifecycle.Message{Attempts: 2, Token: 7, LeaseUntil: 9}, Newest: 7, Failures: []punctual.Failure{ranOut}}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("a lease made of the record %+v, want %+v", r, want)
	}
}
