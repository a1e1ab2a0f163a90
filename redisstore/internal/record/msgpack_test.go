package record

import (
	"fmt"
	"os"
	"strings"
	"testing"

	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
)

var shared *redisrig.Server

func TestMain(m *testing.M) { os.Exit(redisrig.Run(m, &shared, func() error { return nil })) }

// lengths are the lengths at which the form of a packed string changes, and 0 and 1.
var lengths = []int{0, 1, 31, 32, 255, 256, 65535, 65536}

// The server's Lua reads what this program packs.
func TestMsgpackOfTheServer(t *testing.T) {
	want := "1"
	b := PackArray(nil, len(lengths)+2)
	for _, n := range lengths {
		want += fmt.Sprint(" ", n)
		b = PackString(b, strings.Repeat("x", n))
	}
	b = PackNumber(PackNumber(b, 253402300799999), -1.5)
	const read = `local v = cmsgpack.unpack(ARGV[1])
		local small, large = table.remove(v), table.remove(v)
		local out = {large == 253402300799999 and small == -1.5 and 1 or 0}
		for _, text in ipairs(v) do out[#out + 1] = text == string.rep('x', #text) and #text or 'other' end
		return table.concat(out, ' ')`
	if got, err := shared.Do("EVAL", read, "0", string(b)); err != nil || got != want {
		t.Errorf("%q came out, %v; want %q", got, err, want)
	}
}
