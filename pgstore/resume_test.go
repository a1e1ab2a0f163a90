package pgstore

import (
	"testing"

	"github.com/punctualmq/punctual/storetest"
)

// P11: the end of a pause wakes claims that wait in other processes, also when notifications do not
// come.
func TestResumeWakesOtherProcesses(t *testing.T) {
	t.Parallel()
	for name, deaf := range map[string]bool{"with notifications": false, "without notifications": true} {
		t.Run(name, func(t *testing.T) {
			o := Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: deaf}
			waiting, other := o, o
			storetest.RunResume(t, openStore(t, newPool(t, shared), &waiting), openStore(t, newPool(t, shared), &other))
		})
	}
}
