package pgstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// A transaction of somebody else may hold a message of a call: a caller's transaction that pushed its ID or changed it, and stays open. Such
// a message must not hold up the others of the call (P14). Settlements pass by what is locked (lock_free.sql). Nothing passes by an ID that
// was stored and not yet committed, so pushes and amendments wait for a bounded time (lock_timeout), which rolls their transaction
// back. The call is then carried out again in halves, until those that are held are by themselves.

const (
	// heldAlone is how long a message waits for a transaction that holds it, where nothing else waits for its answer.
	heldAlone = time.Second
	// heldBeside is how long a settlement does where others of the call are done and wait for their answers.
	heldBeside = 100 * time.Millisecond
	// heldAgain is how long to wait at most before such a settlement is tried again.
	heldAgain = 50 * time.Millisecond

	// heldFirst is how long the pushes or amendments of a call wait together. Transactions that end soon cost them nothing else.
	heldFirst = 200 * time.Millisecond
	// heldHalf is how long a half of them waits.
	heldHalf = 20 * time.Millisecond
	// heldUntil is when a call with several gives up on one that is held, from its begin.
	heldUntil = 600 * time.Millisecond
	// heldSearch is when a call gives up on those beside it, too. It is far behind heldUntil: a slow server delays the search.
	heldSearch = 5 * time.Second
)

// errHeld is the error of what was asked of a message that a transaction of somebody else holds.
var errHeld = fmt.Errorf("another transaction holds the message: end that transaction, or try again: %w", punctual.ErrOverloaded)

// lockTimeout is an error of its own, so that it is told from other kinds of overload.
type lockTimeout struct{ error }

func (l lockTimeout) Unwrap() error { return l.error }

// errLockTimeout is the kind of the error with which the server ends a wait for a lock.
var errLockTimeout error = lockTimeout{punctual.ErrOverloaded}

// besideHeld carries out a part of a call which has several items or one. try does some of the items, waits so long at most for a lock, and
// returns with an error those that it has decided nothing of. Where that is true of the whole part, the error is that of besideHeld.
// refuse is given the error of each other item that was not carried out.
func besideHeld(part []int, several bool, try func(patience time.Duration, group []int) (left []int, err error), refuse func(i int, err error)) error {
	refuseAll := func(groups [][]int, err error) {
		for _, group := range groups {
			for _, i := range group {
				refuse(i, err)
			}
		}
	}
	begun := time.Now()
	patience, until := heldFirst, heldUntil
	if !several {
		patience, until = heldAlone, heldAlone
	}
	for groups := [][]int{part}; len(groups) > 0; {
		var again [][]int
		for at, group := range groups {
			left, err := try(patience, group)
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
				refuseAll(groups[at+1:], notTried(err))
				refuseAll(again, notTried(err))
				return nil
			}
		}
		groups = again
		patience = nextPatience(groups, until-time.Since(begun))
	}
	return nil
}

// halves divides items that were tried together. One alone stays.
func halves(items []int) [][]int {
	if len(items) == 1 {
		return [][]int{items}
	}
	half := len(items) / 2
	return [][]int{items[:half], items[half:]}
}

// nextPatience is how long each of the groups may wait for a lock, with so much time for all of them.
func nextPatience(groups [][]int, left time.Duration) time.Duration {
	if len(groups) == 1 && len(groups[0]) == 1 {
		return max(left, time.Millisecond)
	}
	return min(heldHalf, max(left/time.Duration(len(groups)+1), time.Millisecond))
}

// lockTimeoutOf writes a time as the server reads it, in ms.
func lockTimeoutOf(d time.Duration) string {
	return fmt.Sprintf("%dms", d.Milliseconds())
}
