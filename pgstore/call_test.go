package pgstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// Every method that takes a context refuses a closed store and an ended context before it checks anything else: the other
// arguments here are zero values, many of which are refused otherwise.
func TestMethodsRefuse(t *testing.T) {
	pool := newPool(t, shared)
	defer pool.Close()
	s := openStore(t, pool, &Options{Schema: emptySchema(t, pool)})
	ended, end := context.WithCancel(t.Context())
	end()
	methods := callMethods(ended, s)
	if len(methods) < 24 {
		t.Errorf("%d methods take a context; there were 24 when this test was written", len(methods))
	}
	delete(methods, "Examine") // of a failed store, too: it asks the server
	for name, err := range methods {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with an ended context: %v; want its error", name, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, err := range callMethods(t.Context(), s) {
		if !errors.Is(err, punctual.ErrClosed) {
			t.Errorf("P13: %s of a closed store: %v; want ErrClosed", name, err)
		}
	}
}

// callMethods calls each method of a store that takes a context, with zero values for the other arguments, and returns their
// errors.
func callMethods(ctx context.Context, s *Store) map[string]error {
	v, errs := reflect.ValueOf(s), make(map[string]error)
	for i := range v.NumMethod() {
		m := v.Method(i)
		if m.Type().NumIn() == 0 || m.Type().In(0) != reflect.TypeFor[context.Context]() {
			continue
		}
		args := []reflect.Value{reflect.ValueOf(ctx)}
		for n := 1; n < m.Type().NumIn(); n++ {
			args = append(args, reflect.Zero(m.Type().In(n)))
		}
		out := m.Call(args)
		errs[v.Type().Method(i).Name], _ = out[len(out)-1].Interface().(error)
	}
	return errs
}

// What call says of a failure: the check's error has the method before it, that of the work the subject, too, and a plain one
// nothing.
func TestCallErrors(t *testing.T) {
	s := &Store{}
	broke := fmt.Errorf("broke: %w", punctual.ErrUnreachable)
	for _, tt := range []struct {
		subject     string
		check, work error
		want        string
	}{
		{subject: "m in t", check: broke, want: "get: " + broke.Error()},
		{subject: "m in t", work: broke, want: "get m in t: " + broke.Error()},
		{work: broke, want: "get: " + broke.Error()},
		{subject: "m in t", work: plain{broke}, want: broke.Error()},
	} {
		worked := false
		got, err := call(t.Context(), s, "get", tt.subject, tt.check, func() (int, error) {
			worked = true
			return 7, tt.work
		})
		if err == nil || err.Error() != tt.want || !errors.Is(err, punctual.ErrUnreachable) || got != 0 || worked != (tt.check == nil) {
			t.Errorf("call %+v = %d, %v, worked %t", tt, got, err, worked)
		}
	}
	if got, err := call(t.Context(), s, "get", "", nil, func() (int, error) { return 7, nil }); got != 7 || err != nil {
		t.Errorf("call = %d, %v; want 7", got, err)
	}
}

// Close returns only when the calls under way have.
func TestCloseWaitsForCalls(t *testing.T) {
	pool := newPool(t, shared)
	defer pool.Close()
	s := openStore(t, pool, &Options{Schema: emptySchema(t, pool)})
	begun, closed, worked := make(chan struct{}), make(chan error, 1), make(chan bool, 1)
	go func() {
		_, _ = call(t.Context(), s, "work", "", nil, func() (struct{}, error) {
			close(begun)
			<-s.closing
			select {
			case <-closed:
				worked <- false
			case <-time.After(100 * time.Millisecond):
				worked <- true
			}
			return struct{}{}, nil
		})
	}()
	<-begun
	go func() { closed <- s.Close(); close(closed) }()
	if !<-worked {
		t.Error("Close returned while a call was under way")
	}
	for err := range closed {
		if err != nil {
			t.Error(err)
		}
	}
}
