package calls

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/punctualmq/punctual"
)

// TestMethods: every method of punctual.Store is there and is called once, and the arguments of
// Claim, for one, have a topic, a number of messages and a wait.
func TestMethods(t *testing.T) {
	var names []string
	for _, m := range Methods() {
		names = append(names, m.Name)
		if m.Name == "Claim" {
			if c := m.Args[0].(punctual.Claim); len(c.Topics) != 1 || c.Topics[0] == "" || c.Max == 0 || c.Wait == 0 {
				t.Errorf("the arguments of Claim are %+v; want each field set", c)
			}
		}
		failure := errors.New("no")
		s := &Store{Errs: map[string]error{m.Name: failure}}
		if _, err := m.Call(context.Background(), s); err != failure || len(s.Made(m.Name)) != 1 {
			t.Errorf("%s: got error %v and %d calls; want %v and one call", m.Name, err, len(s.Made(m.Name)), failure)
		}
	}
	for _, want := range []string{"Push", "Claim", "Settle", "Amend", "Now", "Close"} {
		if !slices.Contains(names, want) {
			t.Errorf("the methods are %v; want %s among them", names, want)
		}
	}
}

func TestStorePassesCallsOn(t *testing.T) {
	PassOn(t, func(below punctual.Store) punctual.Store { return below })
}
