package storekit

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
)

// Sum is a hash of all that makes a call the one that it is, but for its Request. A [Repeater] keeps it with the
// answer, to tell a copy of the call from another call with the same key. It is the same in all processes.
type Sum [8]byte

func sumOf(content func(hash.Hash)) (s Sum) {
	h := sha256.New()
	content(h)
	copy(s[:], h.Sum(nil))
	return s
}

// SumOfPush is the sum of a Push.
func SumOfPush(ms []punctual.NewMessage) Sum { return sumOf(func(h hash.Hash) { HashPush(h, ms) }) }

// HashPush hashes what the sum of a Push is made of.
func HashPush(to hash.Hash, ms []punctual.NewMessage) {
	h := newSummer(to, "push", len(ms))
	for i := range ms {
		m := &ms[i]
		h.text(m.Topic)
		h.text(m.ID)
		h.bytes(m.Body)
		h.number(int64(len(m.Headers)))
		if len(m.Headers) > 0 { // most have none, and to sort them allocates
			for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
				h.text(name)
				h.text(m.Headers[name])
			}
		}
		h.at(m.Due)
		h.number(int64(m.Delay))
		h.number(int64(m.MaxAttempts))
		h.number(int64(m.ExpireAfter))
		h.truth(m.DropExpired)
		h.bytes(NewAttributes(m).Block())
		h.number(int64(m.IfExists))
	}
	_ = h.Flush()
}

// SumOfClaim is the sum of a Claim.
func SumOfClaim(c punctual.Claim) Sum { return sumOf(func(h hash.Hash) { HashClaim(h, c) }) }

// HashClaim hashes what the sum of a Claim is made of.
func HashClaim(to hash.Hash, c punctual.Claim) {
	h := newSummer(to, "claim", len(c.Topics))
	for _, t := range c.Topics {
		h.text(t)
	}
	h.number(int64(c.Max))
	h.number(int64(c.PerTopic))
	h.number(int64(c.Wait))
	h.number(int64(c.Lease))
	_ = h.Flush()
}

// SumOfSettle is the sum of a Settle.
func SumOfSettle(ss []punctual.Settlement) Sum { return sumOf(func(h hash.Hash) { HashSettle(h, ss) }) }

// HashSettle hashes what the sum of a Settle is made of.
func HashSettle(to hash.Hash, ss []punctual.Settlement) {
	h := newSummer(to, "settle", len(ss))
	for i := range ss {
		s := &ss[i]
		h.text(s.Topic)
		h.text(s.ID)
		h.number(s.Token)
		h.number(int64(s.Verb))
		h.number(int64(s.Delay))
		h.text(s.Error)
	}
	_ = h.Flush()
}

// SumOfAmend is the sum of an Amend.
func SumOfAmend(as []punctual.Amendment) Sum { return sumOf(func(h hash.Hash) { HashAmend(h, as) }) }

// HashAmend hashes what the sum of an Amend is made of.
func HashAmend(to hash.Hash, as []punctual.Amendment) {
	h := newSummer(to, "amend", len(as))
	for i := range as {
		a := &as[i]
		h.number(int64(a.Change))
		h.text(a.Topic)
		h.text(a.ID)
		h.at(a.Due)
		h.number(int64(a.Delay))
	}
	_ = h.Flush()
}

// summer writes each field with its length or in a fixed size, so that no two calls are written alike.
// It gathers fields, which are short.
type summer struct{ *bufio.Writer }

func newSummer(to hash.Hash, call string, items int) summer {
	h := summer{bufio.NewWriterSize(to, 512)}
	h.text(call)
	h.number(int64(items))
	return h
}

// The hash never fails, and so does no write.

func (h summer) number(n int64) {
	_, _ = h.Write(binary.LittleEndian.AppendUint64(h.AvailableBuffer(), uint64(n)))
}

func (h summer) truth(b bool) {
	if b {
		h.number(1)
	} else {
		h.number(0)
	}
}

func (h summer) text(s string) {
	h.number(int64(len(s)))
	_, _ = h.WriteString(s)
}

func (h summer) bytes(b []byte) {
	h.number(int64(len(b)))
	_, _ = h.Write(b)
}

// at writes an instant, whatever its zone.
func (h summer) at(t time.Time) {
	h.number(t.Unix())
	h.number(int64(t.Nanosecond()))
}
