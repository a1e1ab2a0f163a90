package record

import (
	"os"
	"strings"
	"testing"

	"github.com/punctualmq/punctual/internal/redistest"
	"github.com/redis/go-redis/v9"
)

var shared *redistest.Server

func TestMain(m *testing.M) { os.Exit(redistest.Run(m, &shared, func() error { return nil })) }

// lengths are those around which the form of a packed string changes.
var lengths = []int{0, 1, 31, 32, 255, 256, 65535, 65536}

// What this program packs the scripts read.
func TestMsgpackOfTheServer(t *testing.T) {
	c := redis.NewClient(&redis.Options{Addr: shared.Addr})
	defer c.Close()
	var want []string
	b := PackArray(nil, len(lengths)+2)
	for _, n := range lengths {
		want = append(want, strings.Repeat("x", n))
		b = PackString(b, want[len(want)-1])
	}
	b = PackNumber(PackNumber(b, 253402300799999), -1.5)
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
	got, ok := reply[1].([]any)
	if !ok || len(got) != len(want) {
		t.Fatalf("%v came out; want %d strings", reply[1], len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("a string of %d bytes came out otherwise", len(want[i]))
		}
	}
}
