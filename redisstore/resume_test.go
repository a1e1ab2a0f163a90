package redisstore

import (
	"testing"

	"github.com/punctualmq/punctual/storetest"
)

// P11: the end of a pause wakes claims that wait in other processes.
func TestResumeWakesOtherProcesses(t *testing.T) {
	t.Parallel()
	prefix := fresh()
	waiting := openStore(t, connect(t, shared), &Options{Prefix: prefix})
	storetest.RunResume(t, waiting, openStore(t, connect(t, shared), &Options{Prefix: prefix}))
}
