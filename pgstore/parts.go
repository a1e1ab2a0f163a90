package pgstore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// A call with many items is carried out in parts, in order, each in one transaction where that is
// possible. No two items of a part name the same message, so they may take effect together.

const (
	// partItems is how many messages the items of a part name before no further item is added to
	// the part.
	partItems = 1000
	// partBytes bounds the bodies of a part, unless it has one item.
	partBytes = 2 << 20
)

// parts divides the items with these indices; nameOf returns the message of an item, and size how
// many bytes of bodies it has. more, if not nil, returns further messages that an item names: those
// of its follow-ups.
func parts(indices []int, nameOf func(i int) messageName, size func(i int) int, more func(i int) []messageName) [][]int {
	var all [][]int
	var seen map[messageName]bool
	bytes := 0
	for _, i := range indices {
		n := nameOf(i)
		var others []messageName
		if more != nil {
			others = more(i)
		}
		bytes += size(i)
		last := len(all) - 1
		if last < 0 || len(seen) >= partItems || bytes > partBytes || seen[n] || slices.ContainsFunc(others, func(n messageName) bool { return seen[n] }) {
			all = append(all, nil)
			seen = make(map[messageName]bool)
			last, bytes = last+1, size(i)
		}
		seen[n] = true
		for _, n := range others {
			seen[n] = true
		}
		all[last] = append(all[last], i)
	}
	return all
}

// inParts carries out the parts of a call. The error of the first part is that of the call, if it
// is the only part or the error is definite. Otherwise, and when a later part fails, inParts calls
// refuse for each item of that part and of the parts after it, with the error of the item.
func inParts(all [][]int, carryOut func(part []int) error, refuse func(i int, err error)) error {
	for n, part := range all {
		err := carryOut(part)
		if err == nil {
			continue
		}
		if n == 0 && (len(all) == 1 || punctual.Definite(err)) {
			return err
		}
		for _, i := range part {
			refuse(i, err)
		}
		for _, later := range all[n+1:] {
			for _, i := range later {
				refuse(i, notDone(err))
			}
		}
		return nil
	}
	return nil
}

// notDone returns the error of items that are given up because other items of the call have failed
// with err. They were never tried, or what they had done was rolled back.
func notDone(err error) error {
	kind := punctual.ErrOverloaded
	for _, k := range storekit.ErrorKinds() {
		if k.Definite && errors.Is(err, k.Err) {
			kind = k.Err
			break
		}
	}
	return fmt.Errorf("not done, because another part of the call failed: %w (%v)", kind, err)
}
