package database

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/batchrepr"
	"pgregory.net/rapid"
)

// writesOf returns the keys of a batch, and what is written to each, in the order of the batch.
func writesOf(t *rapid.T, repr []byte) (keys []string, to map[string][]string) {
	to = make(map[string][]string)
	r := batchrepr.Reader(repr[batchrepr.HeaderLen:])
	for {
		kind, key, value, ok, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return keys, to
		}
		keys = append(keys, string(key))
		to[string(key)] = append(to[string(key)], fmt.Sprintf("%v %s", kind, value))
	}
}

// TestWritesInOrder puts random writes in order: their keys ascend, and each key gets the same
// writes in the same order as before.
func TestWritesInOrder(t *testing.T) {
	db := newDB(t)
	db.orderFrom = 2
	rapid.Check(t, func(t *rapid.T) {
		tx := db.Begin(0)
		defer func() { must(tx.b.Close()) }()
		// Keys of the same letters, some of which are shorter than what is compared as numbers, and
		// some of which differ behind it.
		key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 255}), 1, 3)
		for i := range rapid.IntRange(db.orderFrom, 60).Draw(t, "writes") {
			k := key.Draw(t, "key")
			if rapid.Bool().Draw(t, "long") {
				k = append(bytes.Repeat([]byte{'k'}, 16), k...)
			}
			if rapid.Bool().Draw(t, "delete") {
				tx.set(k, nil)
			} else {
				tx.set(k, fmt.Append(nil, i))
			}
		}
		before, want := writesOf(t, tx.b.Repr())
		count := tx.b.Count()
		tx.putInOrder()
		after, got := writesOf(t, tx.b.Repr())
		if len(after) != len(before) || tx.b.Count() != count {
			t.Fatalf("of %d writes %d are left, and the batch counts %d", len(before), len(after), tx.b.Count())
		}
		for i := 1; i < len(after); i++ {
			if after[i] < after[i-1] {
				t.Fatalf("key %q comes behind %q", after[i], after[i-1])
			}
		}
		for k := range want {
			if fmt.Sprint(got[k]) != fmt.Sprint(want[k]) {
				t.Fatalf("key %q gets %v, want %v", k, got[k], want[k])
			}
		}
	})
}

// TestRangesKeepTheirPlace: a transaction that deletes a range of keys and writes one of them
// afterwards leaves that key, however many writes it has.
func TestRangesKeepTheirPlace(t *testing.T) {
	db := newDB(t)
	db.orderFrom = 2
	tx := db.Begin(0)
	for i := range db.orderFrom {
		tx.set(fmt.Appendf(nil, "key %d before", i), []byte("old"))
	}
	tx.deleteRange([]byte("key"))
	tx.set([]byte("key after"), []byte("new"))
	mustApply(t, tx)
	for key, want := range map[string]string{"key 0 before": "", "key after": "new"} {
		if v, err := db.get([]byte(key)); err != nil || string(v) != want {
			t.Errorf("%q has %q, want %q (%v)", key, v, want, err)
		}
	}
}
