// Package heap has priority queues whose items know their place, so that each can be moved and
// taken out.
package heap

import "slices"

// Order is the order of a queue: a slice whose first item comes before all others. Nil is an empty
// queue. A sorted slice is a queue, too.
type Order[T any] struct {
	// Before tells whether a comes before b.
	Before func(a, b T) bool
	// Place is where an item keeps its index in the queue. An item that is taken out has -1 there.
	Place func(x T) *int
}

// Push adds an item.
func (o Order[T]) Push(q *[]T, x T) {
	*q = append(*q, x)
	o.put(*q, len(*q)-1, x)
}

// Fix moves an item of the queue to its place, after what orders it has changed.
func (o Order[T]) Fix(q []T, x T) { o.put(q, *o.Place(x), x) }

// Remove takes an item out of the queue. When the queue fills less than a quarter of a slice with
// room for more than 64 items, Remove gives memory back.
func (o Order[T]) Remove(q *[]T, x T) {
	var none T
	left, last := (*q)[:len(*q)-1], (*q)[len(*q)-1]
	(*q)[len(left)] = none
	if len(left) < cap(left)/4 && cap(left) > 64 {
		left = append(make([]T, 0, 2*len(left)), left...)
	}
	*q = left
	if i := *o.Place(x); i < len(left) {
		o.put(left, i, last)
	}
	*o.Place(x) = -1
}

// Sort makes a queue of items again that are in it, after what orders them has changed.
func (o Order[T]) Sort(q []T) {
	slices.SortFunc(q, func(a, b T) int {
		switch {
		case o.Before(a, b):
			return -1
		case o.Before(b, a):
			return 1
		}
		return 0
	})
	for i, x := range q {
		*o.Place(x) = i
	}
}

// First returns the items of a queue for which in holds, in no particular order. If in holds for an
// item, it must hold for all items that come before that one.
func First[T any](q []T, in func(x T) bool) (found []T) {
	for next := []int{0}; len(next) > 0; {
		i := next[len(next)-1]
		next = next[:len(next)-1]
		if i < len(q) && in(q[i]) {
			found = append(found, q[i])
			next = append(next, 2*i+1, 2*i+2)
		}
	}
	return found
}

// put writes an item to index i, and moves it up or down to where it belongs.
func (o Order[T]) put(q []T, i int, x T) {
	for i > 0 && o.Before(x, q[(i-1)/2]) {
		above := (i - 1) / 2
		q[i] = q[above]
		*o.Place(q[i]) = i
		i = above
	}
	for {
		below := 2*i + 1
		if below+1 < len(q) && o.Before(q[below+1], q[below]) {
			below++
		}
		if below >= len(q) || !o.Before(q[below], x) {
			break
		}
		q[i] = q[below]
		*o.Place(q[i]) = i
		i = below
	}
	q[i] = x
	*o.Place(x) = i
}
