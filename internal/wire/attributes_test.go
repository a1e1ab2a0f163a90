package wire

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// An attribute that only a newer server knows is passed over in a delivery. A push with it is refused (TestCompactIsStrict).
func TestDeliveryWithANewerAttribute(t *testing.T) {
	d := punctual.Delivery{Message: punctual.Message{ID: "1", Topic: "a", Remember: time.Minute}}
	data, err := EncodeClaimAnswer(Compact, []punctual.Delivery{d})
	if err != nil {
		t.Fatal(err)
	}
	// The block of a minute is 01 03 e0 d4 03, and its length stands before it.
	at := len(data) - 6
	if !bytes.Equal(data[at:], []byte{5, 1, 3, 0xe0, 0xd4, 3}) {
		t.Fatalf("%x does not end with the attributes", data)
	}
	newer := slices.Concat(data[:at], []byte{8}, data[at+1:], []byte{9, 1, 'x'})
	ds, err := DecodeClaimAnswer(Compact, newer)
	if err != nil || len(ds) != 1 || ds[0].Remember != time.Minute {
		t.Errorf("%x is read as %+v, %v", newer, ds, err)
	}
}
