package punctual_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// opaque is a wrapper without an Unwrap, so that the other interfaces of the store below are hidden.
type opaque struct{ punctual.Store }

// shown is a wrapper that shows the store below by its Unwrap.
type shown struct{ punctual.Store }

func (s shown) Unwrap() punctual.Store { return s.Store }

// repeater is a wrapper that shows the store below and is a Repeater itself.
type repeater struct{ shown }

func (repeater) Repeats() time.Duration { return time.Minute }

func TestAs(t *testing.T) {
	mem := memstore.New(nil)
	defer mem.Close()
	for name, s := range map[string]punctual.Store{"itself": mem, "shown": shown{mem}, "shown twice": shown{shown{mem}}} {
		if i, err := punctual.As[punctual.Inspector](s); err != nil || i != punctual.Inspector(mem) {
			t.Errorf("%s: %v, %v; want the store in memory", name, i, err)
		}
	}
	if r, err := punctual.As[storekit.Repeater](shown{repeater{shown{mem}}}); err != nil || r != storekit.Repeater(repeater{shown{mem}}) {
		t.Errorf("a Repeater between two wrappers: %v, %v", r, err)
	}
	for name, s := range map[string]punctual.Store{"opaque": opaque{mem}, "opaque below": shown{opaque{mem}}, "nothing below": shown{}} {
		if i, err := punctual.As[punctual.Inspector](s); i != nil || !errors.Is(err, punctual.ErrUnsupported) || !strings.Contains(err.Error(), "cannot be inspected") {
			t.Errorf("%s: %v, %v; want an ErrUnsupported that says what the store cannot do", name, i, err)
		}
	}
	if i, err := punctual.As[punctual.Inspector](nil); i != nil || !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "NewQueue") {
		t.Errorf("nil: %v, %v; want an ErrInvalid that says what to do", i, err)
	}
	if _, err := punctual.As[storekit.Repeater](mem); err == nil || !strings.Contains(err.Error(), "is no storekit.Repeater") {
		t.Errorf("a store that is no Repeater: %v", err)
	}
}
