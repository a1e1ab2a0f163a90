package answers

import (
	"bytes"
	"hash"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/punctualmq/punctual"
)

// seed is random for each process. A sum is only compared with sums of the same process.
var seed = maphash.MakeSeed()

// sumOf returns a hash of a call's content. It is cheaper than a storekit.Sum.
func sumOf(content func(hash.Hash)) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	content(&h)
	return h.Sum64()
}

// Callers may change their arguments and results unless Options.Unchanged says otherwise, so both
// are copied.

func copyPush(ms []punctual.NewMessage) []punctual.NewMessage {
	out := slices.Clone(ms)
	for i := range out {
		out[i].Body, out[i].Headers = bytes.Clone(out[i].Body), maps.Clone(out[i].Headers)
	}
	return out
}

func copySettle(ss []punctual.Settlement) []punctual.Settlement {
	out := slices.Clone(ss)
	for i := range out {
		if len(out[i].Then) > 0 {
			out[i].Then = copyPush(out[i].Then)
		}
	}
	return out
}

func (s *Store) copyDeliveries(ds []punctual.Delivery) []punctual.Delivery {
	out := slices.Clone(ds)
	if !s.copies {
		return out
	}
	for i := range out {
		d := &out[i]
		d.Body, d.Headers, d.Failures = bytes.Clone(d.Body), maps.Clone(d.Headers), slices.Clone(d.Failures)
	}
	return out
}

func copyItems[T any](s *Store) func([]T) []T {
	return func(items []T) []T {
		if !s.copies {
			return items
		}
		return slices.Clone(items)
	}
}

// The following functions estimate how many bytes of memory an answer takes.

func sizeOfResults(rs []punctual.PushResult) int64 {
	n := int64(0)
	for i := range rs {
		n += resultBytes + int64(len(rs[i].ID)+len(rs[i].Topic)) + sizeOfError(rs[i].Err)
	}
	return n
}

// expectedResults returns the size of the results of a push without errors.
func expectedResults(ms []punctual.NewMessage) int64 {
	n := int64(0)
	for i := range ms {
		n += resultBytes + int64(len(ms[i].Topic)+max(len(ms[i].ID), madeIDBytes))
	}
	return n
}

const (
	resultBytes  = 120
	errorBytes   = 16
	amendedBytes = 40
	madeIDBytes  = 26 // the length of an ID that the store makes
)

func sizeOfErrors(errs []error) int64 {
	n := int64(0)
	for _, err := range errs {
		n += errorBytes + sizeOfError(err)
	}
	return n
}

func sizeOfAmended(as []punctual.Amended) int64 {
	n := int64(0)
	for i := range as {
		n += amendedBytes + sizeOfError(as[i].Err)
	}
	return n
}

// sizeOfError returns the size of an error with a text of usual length.
func sizeOfError(err error) int64 {
	if err == nil {
		return 0
	}
	return 200
}

// SizeOfDeliveries estimates how many bytes of memory deliveries take. It returns 0 only if there
// are none.
func SizeOfDeliveries(ds []punctual.Delivery) int64 {
	n := int64(0)
	for i := range ds {
		d := &ds[i]
		n += 300 + int64(len(d.Topic)+len(d.ID)+len(d.Body))
		for name, value := range d.Headers {
			n += 32 + int64(len(name)+len(value))
		}
		for _, f := range d.Failures {
			n += 48 + int64(len(f.Error))
		}
	}
	return n
}
