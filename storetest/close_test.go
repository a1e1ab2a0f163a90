package storetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/internal/mutants"
)

// stuck is a store whose Close does not return until release is closed.
type stuck struct {
	*memstore.Store
	release chan struct{}
}

func (s *stuck) Close() error {
	<-s.release
	return s.Store.Close()
}

// A Close that does not return fails each case of group close, and the case ends.
func TestStuckCloseIsReported(t *testing.T) {
	for _, c := range closeCases() {
		release := make(chan struct{})
		got := mutants.Record(c.name, func(r *mutants.Recorder) {
			runCase(r, c, opener{waitLimit: 100 * time.Millisecond, open: func(clock storekit.Clock) punctual.Store {
				return &stuck{memstore.New(&memstore.Options{Clock: clock}), release}
			}})
		})
		close(release)
		if len(got) != 1 || !strings.Contains(got[0], "Close has not returned") {
			t.Errorf("%s: reported %q; want that Close has not returned", c.name, got)
		}
	}
}

// openReads is a store that answers Topics as ever after Close.
type openReads struct{ *memstore.Store }

func (openReads) Topics(context.Context) ([]punctual.TopicStats, error) { return nil, nil }

// A read that succeeds although it began after Close had returned fails the case of the readers.
func TestReadsAfterCloseAreReported(t *testing.T) {
	got := mutants.Record(t.Name(), func(r *mutants.Recorder) {
		runCase(r, testCase{t.Name(), p13, closeUnderReaders}, opener{open: func(clock storekit.Clock) punctual.Store {
			return openReads{memstore.New(&memstore.Options{Clock: clock})}
		}})
	})
	if len(got) != 1 || !strings.Contains(got[0], "began after Close had returned") {
		t.Errorf("reported %q; want a call that succeeded after Close", got)
	}
}
