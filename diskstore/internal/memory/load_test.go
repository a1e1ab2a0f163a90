package memory

import (
	"slices"
	"testing"

	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// disk is what a topic has on disk, in order.
type disk []record.Stored

// read returns what a load of at most n messages reads.
func (d disk) read(l Load, n int) (read []record.Stored, next record.Position) {
	for _, s := range d {
		switch {
		case !l.From.Less(s.At):
		case s.At.Ms > l.Until || len(read) == n:
			return read, s.At
		default:
			read = append(read, s)
		}
	}
	return read, record.MaxPosition
}

// TestCutDuringALoad: what leaves the window while a load reads is still delivered, and so is what
// was read.
func TestCutDuringALoad(t *testing.T) {
	x := New(16*MessageBytes, func(string, int64) {})
	x.StartTokens(1, 1000)
	o, other := x.AddTopic("o", 1, settings(false)), x.AddTopic("other", 2, settings(false))
	var stored disk
	for i := range uint64(8) {
		stored = append(stored, record.Stored{At: record.Position{Ms: int64(i) + 1, Seq: i + 1}})
	}
	o.Stored(stored[0].At, true)
	load := func(n int, meanwhile func()) {
		l, ok := o.BeginLoad(100)
		if !ok {
			t.Fatal("there is nothing to load")
		}
		read, next := stored.read(l, n)
		meanwhile()
		x.Merge(l, read, next, 0, 0)
	}
	load(4, func() {})
	load(4, func() {
		for i := range uint64(16) { // messages of another topic, until there is no room
			at := record.Position{Ms: 1_000_000, Seq: 100 + i}
			x.Publish(x.Expect([]Added{{Topic: other, At: at}}, 999_999), 999_999)
		}
		if o.evicted == 0 {
			t.Fatal("nothing was cut during the load")
		}
	})
	var got []uint64
	for len(got) < 8 {
		result := x.Reserve("o", 100, 1)
		for _, c := range result.Reserved {
			got = append(got, c.Last.At.Seq)
			o.Detach(c.Last.At)
			stored = slices.DeleteFunc(stored, func(s record.Stored) bool { return s.At == c.Last.At })
		}
		if result.Load != nil {
			load(4, func() {})
		} else if len(result.Reserved) == 0 {
			break
		}
	}
	if !slices.Equal(got, []uint64{1, 2, 3, 4, 5, 6, 7, 8}) {
		t.Errorf("P1 no loss, P12 order: messages %v were delivered, want all eight in order", got)
	}
	if err := x.Verify(); err != nil {
		t.Error(err)
	}
}
