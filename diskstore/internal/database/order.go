package database

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// The engine searches its buffer for the place of each write. Most of what a search costs is memory
// that no cache of the processor has. Writes in the order of their keys take nearly the same way
// one after the other, and find the memory of the way in the caches. So a large transaction puts
// its writes in order before it hands them to the engine, and a call looks its IDs up in order,
// too. docs/decisions/0108-speed-on-disk.md has what that is worth.

const (
	// manyWrites is how many writes a transaction has at least to be put in order. Of fewer writes
	// hardly two are near each other, so their order costs more than it saves. A push and a
	// deletion have two writes each, a reschedule has four.
	manyWrites = 400
	// orderKept is for how many writes putInOrder keeps its memory until the next transaction.
	orderKept = 1 << 15
)

// ordered is a key among those that are put in order. Keys are compared many times, so their first
// 16 bytes are compared as two numbers first.
type ordered struct {
	first, second uint64
	at            int // index of the key among all
}

func newOrdered(key []byte, at int) ordered {
	if len(key) < 16 { // zeros take the place of missing bytes
		var long [16]byte
		copy(long[:], key)
		key = long[:]
	}
	return ordered{binary.BigEndian.Uint64(key), binary.BigEndian.Uint64(key[8:]), at}
}

// order sorts keys. rest compares two keys whose first 16 bytes are equal. Equal keys stay in the
// order of their indices.
func order(all []ordered, rest func(i, j int) int) {
	slices.SortFunc(all, func(a, b ordered) int {
		switch {
		case a.first != b.first:
			return cmp.Compare(a.first, b.first)
		case a.second != b.second:
			return cmp.Compare(a.second, b.second)
		}
		return cmp.Or(rest(a.at, b.at), cmp.Compare(a.at, b.at))
	})
}

// inOrder returns the asks that have a topic, in the order of their topics and IDs.
func inOrder(asks []Ask) []ordered {
	all := make([]ordered, 0, len(asks))
	var key []byte
	for i, a := range asks {
		if a.Topic != nil {
			key = append(binary.BigEndian.AppendUint32(key[:0], a.Topic.num), a.ID...)
			all = append(all, newOrdered(key, i))
		}
	}
	order(all, func(i, j int) int { return cmp.Compare(asks[i].ID, asks[j].ID) })
	return all
}

// entry is a write of a batch.
type entry struct {
	kind       pebble.InternalKeyKind
	key, value []byte
}

// putInOrder puts the writes of the batch in the order of their keys. Several writes of one key
// stay in the order in which they were made, because the last one counts. A batch that deletes
// ranges of keys stays as it is: whether a range deletes a write depends on which of the two comes
// first.
func (tx *Tx) putInOrder() {
	if int(tx.b.Count()) < tx.db.orderFrom || tx.ranges > 0 {
		return
	}
	db := tx.db
	entries, all := db.entries[:0], db.ordered[:0]
	for r := tx.b.Reader(); ; {
		kind, key, value, ok, err := r.Next()
		must(err)
		if !ok {
			break
		}
		all = append(all, newOrdered(key, len(entries)))
		entries = append(entries, entry{kind, key, value})
	}
	order(all, func(i, j int) int { return bytes.Compare(entries[i].key, entries[j].key) })
	b := db.kv.NewBatchWithSize(tx.b.Len())
	for _, o := range all {
		switch e := entries[o.at]; e.kind {
		case pebble.InternalKeyKindSet:
			must(b.Set(e.key, e.value, nil))
		case pebble.InternalKeyKindDelete:
			must(b.Delete(e.key, nil))
		case pebble.InternalKeyKindSingleDelete:
			must(b.SingleDelete(e.key, nil))
		default:
			panic(fmt.Sprintf("a transaction has a write of the kind %v, which putInOrder does not know", e.kind))
		}
	}
	clear(entries) // because they refer to the old batch
	if cap(entries) <= orderKept {
		db.entries, db.ordered = entries, all
	}
	must(tx.b.Close())
	tx.b = b
}
