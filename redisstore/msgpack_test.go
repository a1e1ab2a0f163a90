package redisstore

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// lengths are those around which the form of a packed string changes.
var lengths = []int{0, 1, 31, 32, 255, 256, 65535, 65536}

// What this program packs the scripts read.
func TestMsgpackOfTheServer(t *testing.T) {
	c := connect(t, shared)
	var want []string
	b := packArray(nil, len(lengths)+2)
	for _, n := range lengths {
		want = append(want, strings.Repeat("x", n))
		b = packString(b, want[len(want)-1])
	}
	b = packNumber(packNumber(b, 253402300799999), -1.5)
	const lengthsOf = `local v, out = cmsgpack.unpack(ARGV[1]), {}
		local numbers = {table.remove(v), table.remove(v)}
		for i, text in ipairs(v) do out[i] = text end
		return {numbers[2] == 253402300799999 and numbers[1] == -1.5 and 1 or 0, out}`
	reply, err := redis.NewScript(lengthsOf).Run(t.Context(), c, nil, b).Slice()
	if err != nil {
		t.Fatal(err)
	}
	if reply[0] != int64(1) {
		t.Error("the numbers came out otherwise")
	}
	r := reader{items: reply[1:]}
	if got := r.list(); r.bad || !slices.Equal(got, want) {
		t.Errorf("%d strings came out, bad %v; want those that were packed", len(got), r.bad)
	}
}

// An answer that is something else is noticed.
func TestListRefusesOther(t *testing.T) {
	for _, items := range [][]any{nil, {"text"}, {[]any{"text", int64(1)}}, {[]any{nil}}} {
		r := reader{items: items}
		if got := r.list(); !r.bad {
			t.Errorf("P13: %v was read as %v", items, got)
		}
	}
}
