package pgstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// Another transaction may hold a message of a call: for instance, an application has pushed its ID
// or changed it in a transaction of its own, and leaves that open. Such a message must not hold up
// the other messages of the call (P14). There are two ways to that end.
//
// Calls of Settle without follow-ups skip locked rows (lock_free.sql) and so learn at once which
// messages are held. The other items are done by then, and their answers wait for nothing but the
// held ones, so settling.settleAny tries those again for a short time only.
//
// Pushes, amendments and settlements with follow-ups wait for locks. A push has to: an ID that
// another transaction has stored and not committed is seen by nobody, and only an insert that runs
// into the ID waits. The wait is bounded (lock_timeout), and its end rolls back everything that the
// transaction did, without a word on which message is held. So besideHeld repeats the items in
// halves until the held ones are by themselves, which takes longer.

const (
	// heldAlone is how long the only item of a call waits for the transaction that holds its
	// message. Settlements without follow-ups wait as long if the call has no items beside those
	// that wait, and so does a change of settings that has to remove a message before. The
	// statements that store events, and a transaction that makes a topic for a caller's
	// transaction, wait for each lock as long.
	heldAlone = time.Second

	// heldBeside is how long a settlement without follow-ups waits, if the call has items beside
	// those that wait.
	heldBeside = 100 * time.Millisecond
	// heldAgain is the longest pause before such a settlement is tried again.
	heldAgain = 50 * time.Millisecond

	// heldFirst is the first lock timeout in besideHeld, when all items of a part are tried
	// together, if the call has several items. Transactions that end within it cost no halving.
	heldFirst = 200 * time.Millisecond
	// heldHalf is the longest lock timeout of a half, as long as more than a single item is left.
	heldHalf = 20 * time.Millisecond
	// heldUntil is when besideHeld gives up an item that is known to be held, if the call has
	// others. The time counts from the beginning of besideHeld.
	heldUntil = 600 * time.Millisecond
	// heldSearch is when besideHeld gives up the items of a half together, although some of them
	// may be free. It is far longer than heldUntil, because a slow server delays the halving.
	heldSearch = 5 * time.Second
)

// errHeld is the error of an item whose message is held by another transaction.
var errHeld = fmt.Errorf("another transaction holds the message: end that transaction, or try again: %w", punctual.ErrOverloaded)

// lockTimeout distinguishes the error of a lock timeout from other kinds of overload.
type lockTimeout struct{ error }

func (l lockTimeout) Unwrap() error { return l.error }

// errLockTimeout is the kind of error with which the server ends a wait for a lock.
var errLockTimeout error = lockTimeout{punctual.ErrOverloaded}

// besideHeld carries out a part of a call whose items wait for locks; several says that the call
// has more than one item. try carries out a group of items, waits for the lock of each message no
// longer than lockWait, and returns beside an error the items that have no answer yet. If these are
// the whole part when besideHeld gives up, it returns the error; else it gives each of them its
// error by refuse.
func besideHeld(part []int, several bool, try func(lockWait time.Duration, group []int) (left []int, err error), refuse func(i int, err error)) error {
	refuseAll := func(groups [][]int, err error) {
		for _, group := range groups {
			for _, i := range group {
				refuse(i, err)
			}
		}
	}
	begun := time.Now()
	lockWait, until := heldFirst, heldUntil
	if !several {
		lockWait, until = heldAlone, heldAlone
	}
	for groups := [][]int{part}; len(groups) > 0; {
		var again [][]int
		for at, group := range groups {
			left, err := try(lockWait, group)
			limit := until
			if len(left) > 1 {
				limit = heldSearch
			}
			waits := errors.Is(err, errLockTimeout)
			switch {
			case err == nil:
			case waits && time.Since(begun) < limit:
				again = append(again, halves(left)...)
			case waits && len(left) == len(part):
				return errHeld
			case waits:
				refuseAll([][]int{left}, errHeld)
			case len(left) == len(part):
				return err
			default:
				refuseAll([][]int{left}, err)
				refuseAll(groups[at+1:], notDone(err))
				refuseAll(again, notDone(err))
				return nil
			}
		}
		groups = again
		lockWait = nextLockWait(groups, until-time.Since(begun))
	}
	return nil
}

// halves divides items that were tried together into two groups. A single item stays one group.
func halves(items []int) [][]int {
	if len(items) == 1 {
		return [][]int{items}
	}
	half := len(items) / 2
	return [][]int{items[:half], items[half:]}
}

// nextLockWait returns the lock timeout for each of the groups, when left is the time for all of
// them.
func nextLockWait(groups [][]int, left time.Duration) time.Duration {
	if len(groups) == 1 && len(groups[0]) == 1 {
		return max(left, time.Millisecond)
	}
	return min(heldHalf, max(left/time.Duration(len(groups)+1), time.Millisecond))
}

// lockTimeoutOf writes a lock timeout in the notation of the server.
func lockTimeoutOf(d time.Duration) string {
	return fmt.Sprintf("%dms", d.Milliseconds())
}
