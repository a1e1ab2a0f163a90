package answers_test

import (
	"reflect"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/answers"
	"github.com/punctualmq/punctual/internal/rigs/calls"
)

func TestStorePassesCallsOn(t *testing.T) {
	calls.PassOn(t, func(below punctual.Store) punctual.Store { return answers.New(below, nil) })
}

// keyless has the reason for each method that ignores the key of a request.
var keyless = map[string]string{
	"Now":   "reading the clock twice changes nothing",
	"Close": "it takes no context, and a second one is allowed",
}

// TestEveryMethodKnowsItsKey: a call with the same key is carried out once, whatever the method.
func TestEveryMethodKnowsItsKey(t *testing.T) {
	for _, m := range calls.Methods() {
		if keyless[m.Name] != "" {
			continue
		}
		below := &calls.Store{}
		s := answers.New(below, nil)
		first, err := m.Call(request("key-of-"+m.Name), s)
		if err != nil || len(first) == 0 {
			t.Fatalf("%s: %v, %v", m.Name, first, err)
		}
		again, err := m.Call(request("key-of-"+m.Name), s)
		if err != nil || !reflect.DeepEqual(again, first) {
			t.Errorf("%s sent again: got %+v, %v; want the answer of the first call: %+v", m.Name, again, err, first)
		}
		if made := below.Made(m.Name); len(made) != 1 {
			t.Errorf("%s sent again was carried out %d times; want once", m.Name, len(made))
		}
	}
}
