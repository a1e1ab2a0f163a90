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

// Sum is a hash of the content of a call, which is all its arguments except its Request. A
// [Repeater] keeps it with the answer, so that it recognizes another call that comes with the same
// key. A call has the same Sum in all processes.
type Sum [8]byte

func sumOf(content func(hash.Hash)) (s Sum) {
	h := sha256.New()
	content(h)
	copy(s[:], h.Sum(nil))
	return s
}

// SumOfPush returns the Sum of a Push.
func SumOfPush(ms []punctual.NewMessage) Sum { return sumOf(func(h hash.Hash) { HashPush(h, ms) }) }

// HashPush writes the content of a Push to the hash to, for a store that compares calls by another
// hash than Sum.
func HashPush(to hash.Hash, ms []punctual.NewMessage) {
	h := newSummer(to, "push", len(ms))
	for i := range ms {
		h.push(&ms[i])
	}
	_ = h.Flush()
}

// SumOfClaim returns the Sum of a Claim.
func SumOfClaim(c punctual.Claim) Sum { return sumOf(func(h hash.Hash) { HashClaim(h, c) }) }

// HashClaim writes the content of a Claim to the hash to.
func HashClaim(to hash.Hash, c punctual.Claim) {
	h := newSummer(to, "claim", len(c.Topics))
	for _, t := range c.Topics {
		h.text(t)
	}
	h.number(int64(c.Max))
	h.number(int64(c.PerTopic))
	h.number(int64(c.Wait))
	h.number(int64(c.Lease))
	for _, id := range c.IDs {
		h.text(id)
	}
	_ = h.Flush()
}

// SumOfSettle returns the Sum of a Settle.
func SumOfSettle(ss []punctual.Settlement) Sum { return sumOf(func(h hash.Hash) { HashSettle(h, ss) }) }

// HashSettle writes the content of a Settle to the hash to.
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
		// What follows is written only where it is set, because most settlements have none of it.
		// The words before it keep the bytes of two calls apart.
		if !s.Due.IsZero() {
			h.text("due")
			h.at(s.Due)
		}
		if len(s.Then) > 0 {
			h.text("then")
			h.number(int64(len(s.Then)))
			for j := range s.Then {
				h.push(&s.Then[j])
			}
		}
	}
	_ = h.Flush()
}

// SumOfAmend returns the Sum of an Amend.
func SumOfAmend(as []punctual.Amendment) Sum { return sumOf(func(h hash.Hash) { HashAmend(h, as) }) }

// HashAmend writes the content of an Amend to the hash to.
func HashAmend(to hash.Hash, as []punctual.Amendment) {
	h := newSummer(to, "amend", len(as))
	for i := range as {
		a := &as[i]
		h.number(int64(a.Change))
		h.text(a.Topic)
		h.text(a.ID)
		h.at(a.Due)
		h.number(int64(a.Delay))
		h.ifDue(a.IfDue)
	}
	_ = h.Flush()
}

// summer writes the fields of a call to a hash, each with its length or in a fixed size, so that
// neighbouring fields do not run together. Its buffer joins the fields, most of which are short,
// into longer writes.
type summer struct{ *bufio.Writer }

func newSummer(to hash.Hash, call string, items int) summer {
	h := summer{bufio.NewWriterSize(to, 512)}
	h.text(call)
	h.number(int64(items))
	return h
}

// push writes a message that is to be pushed.
func (h summer) push(m *punctual.NewMessage) {
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
	h.ifDue(m.IfDue)
}

// ifDue writes the condition of a push or an amendment, if there is one.
func (h summer) ifDue(at time.Time) {
	if !at.IsZero() {
		h.text("if due")
		h.at(at)
	}
}

// A hash never returns an error, so the methods drop the errors of their writes.

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

// at writes an instant; its time zone makes no difference.
func (h summer) at(t time.Time) {
	h.number(t.Unix())
	h.number(int64(t.Nanosecond()))
}
