package sharedstore_test

import (
	"testing"

	"github.com/punctualmq/punctual/storetest/duties"
)

// TestSlowDuties has the cases of copies for groups and of forwarded follow-ups in a process that
// does not own the directory.
func TestSlowDuties(t *testing.T) {
	t.Parallel()
	duties.Run(t, new(pairs).open)
}

// TestSlowSchedules has the cases of schedules in a process that does not own the directory.
func TestSlowSchedules(t *testing.T) {
	t.Parallel()
	duties.RunSchedules(t, new(pairs).open)
}

// TestFirstUse: what makes a companion is not late the first time, when the owner of the directory
// stores and another process does the duties, and when another process stores.
func TestFirstUse(t *testing.T) {
	t.Parallel()
	for name, ownerStores := range map[string]bool{"the owner stores": true, "another process stores": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			owner := openAs(t, dir, nil)
			other := openAs(t, dir, nil)
			if ownerStores {
				duties.RunFirst(t, other, owner)
			} else {
				duties.RunFirst(t, owner, other)
			}
		})
	}
}
