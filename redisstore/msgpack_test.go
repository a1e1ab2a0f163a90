package redisstore

import (
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/redis/go-redis/v9"
)

// lengths are those around which the form of a packed string changes.
var lengths = []int{0, 1, 31, 32, 255, 256, 65535, 65536}

// What this program packs the scripts read, and the other way round.
func TestMsgpackOfTheServer(t *testing.T) {
	c := connect(t, shared)
	var want []string
	b := packArray(nil, len(lengths)+2)
	for _, n := range lengths {
		want = append(want, strings.Repeat("x", n))
		b = packString(b, want[len(want)-1])
	}
	b = packNumber(packNumber(b, 253402300799999), -1.5)
	const again = `local v = cmsgpack.unpack(ARGV[1])
		local numbers = {table.remove(v), table.remove(v)}
		return {numbers[2] == 253402300799999 and numbers[1] == -1.5 and 1 or 0, cmsgpack.pack(v), cmsgpack.pack({})}`
	reply, err := redis.NewScript(again).Run(t.Context(), c, nil, b).Slice()
	if err != nil {
		t.Fatal(err)
	}
	if reply[0] != int64(1) {
		t.Error("the numbers came out otherwise")
	}
	d := decoder{b: reply[1].(string)}
	if n := d.unpackArray(); n != uint64(len(want)) {
		t.Fatalf("an array of %d; want %d", n, len(want))
	}
	for _, w := range want {
		if got := d.unpackString(); got != w {
			t.Errorf("a string of %d bytes; want %d", len(got), len(w))
		}
	}
	if d.bad || d.b != "" {
		t.Errorf("bad %v, %d bytes left; want all read", d.bad, len(d.b))
	}
	if d := (decoder{b: reply[2].(string)}); d.unpackArray() != 0 || d.bad || d.b != "" {
		t.Errorf("an empty array is %q; want one that can be read", reply[2])
	}
}

// An answer that is cut off, or something else altogether, is an error.
func TestUnpackClaimedRefusesOther(t *testing.T) {
	m := &punctual.NewMessage{Body: []byte("body")}
	record := appendRest(append([]byte{recordVersion << 4}, make([]byte, 16)...), m)
	var good []byte
	for _, s := range []string{"id", string(record), ""} {
		good = packString(packArray(good, 1), s)
	}
	ds, err := unpackClaimed("orders", 7, string(good))
	if err != nil || len(ds) != 1 || ds[0].ID != "id" || ds[0].Token != 7 || ds[0].Attempt != 1 || string(ds[0].Body) != "body" {
		t.Fatalf("unpackClaimed = %+v, %v; want the message at its first attempt", ds, err)
	}
	for n := range good {
		if ds, err := unpackClaimed("orders", 7, string(good[:n])); err == nil {
			t.Errorf("P13: the first %d of %d bytes gave %+v and no error", n, len(good), ds)
		}
	}
	if _, err := unpackClaimed("orders", 7, "\xc0"+string(good)); err == nil {
		t.Error("P13: something else than arrays gave no error")
	}
}
