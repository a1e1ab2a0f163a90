package seedrig_test

import (
	"fmt"
	"testing"

	seedrig "github.com/punctualmq/punctual/internal/rigs/seed"
)

// listener is a test that keeps the last line of its log.
type listener struct {
	testing.TB
	name, log string
}

func (l *listener) Name() string                    { return l.name }
func (l *listener) Logf(format string, args ...any) { l.log = fmt.Sprintf(format, args...) }

func TestTheLogRepeatsTheTest(t *testing.T) {
	t.Setenv(seedrig.Variable, "18446744073709551615")
	l := &listener{TB: t, name: "TestSome/case 1.5/x"}
	if seed := seedrig.Of(l); seed != 1<<64-1 {
		t.Errorf("the seed is %d; want that of the environment", seed)
	}
	want := `repeat with: PUNCTUAL_TORTURE_SEED=18446744073709551615 go test ./internal/rigs/seed -run '^TestSome$/^case 1\.5$/^x$'`
	if l.log != want {
		t.Errorf("the log is\n%s\nwant\n%s", l.log, want)
	}
}

func TestEachRunHasItsSeed(t *testing.T) {
	t.Setenv(seedrig.Variable, "")
	if a, b := seedrig.Of(t), seedrig.Of(t); a == b {
		t.Errorf("two runs have the seed %d", a)
	}
}
