package storekit

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// The bytes of a block are in the formats of stores, so they never change.
func TestAttributesHaveOneForm(t *testing.T) {
	for _, c := range []struct {
		attributes Attributes
		block      string
		back       Attributes
	}{
		{Attributes{}, "", Attributes{}},
		{Attributes{Remember: 24 * time.Hour}, "010480b89929", Attributes{Remember: 24 * time.Hour}},
		{Attributes{Timeout: time.Minute}, "0203e0d403", Attributes{Timeout: time.Minute}},
		{Attributes{Remember: 1, Timeout: 1}, "010101020101", Attributes{Remember: time.Millisecond, Timeout: time.Millisecond}},
		{Attributes{Remember: 1}, "010101", Attributes{Remember: time.Millisecond}},
		{Attributes{Remember: limits.MaxFinishedRetention}, "01058090dee675", Attributes{Remember: limits.MaxFinishedRetention}},
	} {
		block := c.attributes.Block()
		if got := fmt.Sprintf("%x", block); got != c.block {
			t.Errorf("block of %+v is %s, want %s", c.attributes, got, c.block)
		}
		back, err := ReadAttributes(block)
		if err != nil || back != c.back {
			t.Errorf("block %x is read as %+v, %v; want %+v", block, back, err, c.back)
		}
	}
}

// What a newer program has stored is passed over, and the known attributes are still read.
func TestAttributesOfANewerProgram(t *testing.T) {
	block := append(Attributes{Remember: time.Hour}.Block(), 9, 3, 'x', 'y', 'z')
	if a, err := ReadAttributes(block); err != nil || a.Remember != time.Hour {
		t.Errorf("read as %+v, %v", a, err)
	}
	if a, err := ReadAttributes([]byte{200, 1, 0}); err != nil || a != (Attributes{}) {
		t.Errorf("an unknown tag alone is read as %+v, %v", a, err)
	}
}

func TestDamagedAttributes(t *testing.T) {
	whole := append(Attributes{Remember: 24 * time.Hour}.Block(), 9, 1, 'x')
	for n := 1; n < len(whole); n++ {
		if n == len(whole)-3 { // the block of the first attribute alone
			continue
		}
		if a, err := ReadAttributes(whole[:n]); err == nil {
			t.Errorf("the first %d bytes of %x are read as %+v", n, whole, a)
		}
	}
	for _, block := range [][]byte{
		{1, 1, 0},          // not remembered at all is no attribute
		{1, 2, 1, 1},       // more bytes than the number
		{1, 1, 1, 1, 1, 1}, // a tag twice
		{2, 0, 1, 1, 1},    // tags descend
		{0, 0},             // no such tag
		{1, 1, 0x80},       // a number that does not end
		{1, 9, 255, 255, 255, 255, 255, 255, 255, 255, 127}, // longer than a duration
		bytes.Repeat([]byte{255}, 12),
	} {
		if a, err := ReadAttributes(block); err == nil {
			t.Errorf("%x is read as %+v", block, a)
		}
	}
}

func TestMessagesWithoutAttributesAllocateNothing(t *testing.T) {
	m := punctual.NewMessage{Topic: "orders", ID: "1"}
	if n := testing.AllocsPerRun(100, func() {
		if NewAttributes(&m).Block() != nil {
			t.Fatal("a block of nothing")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzReadAttributes(f *testing.F) {
	f.Add([]byte{})
	f.Add(Attributes{Remember: 24 * time.Hour}.Block())
	f.Fuzz(func(t *testing.T, block []byte) {
		a, err := ReadAttributes(block)
		if err != nil {
			return
		}
		if again, err := ReadAttributes(a.Block()); err != nil || again != a {
			t.Fatalf("%x is read as %+v, and that as %+v, %v", block, a, again, err)
		}
	})
}
