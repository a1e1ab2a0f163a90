// Package calls has a store that records its calls, and checks with it that a store which wraps
// another one hands every call on. The methods are those that punctual.Store has, found by
// reflection, so that a new one is checked as soon as Store in this package has it.
package calls

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// Call is one call that a Store got.
type Call struct {
	Method string
	// Args are those of the call without its context.
	Args []any
}

// Store records its calls and answers each at once with a result for each item. It stores nothing.
// All methods are safe for concurrent use.
type Store struct {
	// Errs are the errors of the methods that fail.
	Errs map[string]error
	// Panic, if not nil, is what every call panics with.
	Panic any

	mu   sync.Mutex
	made []Call // guarded by mu
}

// Made returns the calls of one method, in the order in which they came.
func (s *Store) Made(method string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var of []Call
	for _, c := range s.made {
		if c.Method == method {
			of = append(of, c)
		}
	}
	return of
}

// answer records a call and returns r, unless the store is to fail or to panic.
func answer[R any](s *Store, method string, r R, args ...any) (R, error) {
	s.mu.Lock()
	s.made = append(s.made, Call{method, args})
	s.mu.Unlock()
	if s.Panic != nil {
		panic(s.Panic)
	}
	if err := s.Errs[method]; err != nil {
		var none R
		return none, err
	}
	return r, nil
}

// Push implements punctual.Store.
func (s *Store) Push(_ context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	rs := make([]punctual.PushResult, len(ms))
	for i, m := range ms {
		rs[i] = punctual.PushResult{Topic: m.Topic, ID: m.ID, Status: punctual.PushStored, Due: noon}
	}
	return answer(s, "Push", rs, ms)
}

// Claim implements punctual.Store. It returns one delivery of the first topic.
func (s *Store) Claim(_ context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	d := punctual.Delivery{Message: punctual.Message{Topic: c.Topics[0], ID: "claimed", Due: noon}, Token: 7, Delivered: noon, LeaseUntil: noon.Add(time.Hour)}
	return answer(s, "Claim", []punctual.Delivery{d}, c)
}

// Settle implements punctual.Store. Each item has the result ErrLeaseLost.
func (s *Store) Settle(_ context.Context, ss []punctual.Settlement) ([]error, error) {
	errs := make([]error, len(ss))
	for i := range errs {
		errs[i] = punctual.ErrLeaseLost
	}
	return answer(s, "Settle", errs, ss)
}

// Amend implements punctual.Store. Each item has the result ErrNotFound.
func (s *Store) Amend(_ context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	rs := make([]punctual.Amended, len(as))
	for i := range rs {
		rs[i].Err = punctual.ErrNotFound
	}
	return answer(s, "Amend", rs, as)
}

// noon is the clock of a Store, which stands still.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// Now implements punctual.Store.
func (s *Store) Now(context.Context) (time.Time, error) { return answer(s, "Now", noon) }

// Close implements punctual.Store.
func (s *Store) Close() error {
	_, err := answer(s, "Close", struct{}{})
	return err
}

// Method is a method of punctual.Store with arguments to call it with.
type Method struct {
	Name string
	// Args are the arguments without the context. Each field that a caller may set is set.
	Args []any
}

// Methods returns every method of punctual.Store, in the order of their names.
func Methods() []Method {
	contract := reflect.TypeFor[punctual.Store]()
	ms := make([]Method, contract.NumMethod())
	for i := range ms {
		ms[i].Name = contract.Method(i).Name
		f := contract.Method(i).Type
		for n := range f.NumIn() {
			if in := f.In(n); in != reflect.TypeFor[context.Context]() {
				ms[i].Args = append(ms[i].Args, sample(in).Interface())
			}
		}
	}
	return ms
}

// Call calls the method of s. The error is the last result of the method, and results are those
// before.
func (m Method) Call(ctx context.Context, s punctual.Store) (results []any, err error) {
	f := reflect.ValueOf(s).MethodByName(m.Name)
	var in []reflect.Value
	if f.Type().NumIn() > len(m.Args) {
		in = append(in, reflect.ValueOf(ctx))
	}
	for _, a := range m.Args {
		in = append(in, reflect.ValueOf(a))
	}
	out := f.Call(in)
	for _, v := range out[:len(out)-1] {
		results = append(results, v.Interface())
	}
	err, _ = out[len(out)-1].Interface().(error)
	return results, err
}

// sample returns a value of the type in which nothing is zero, so that a wrapper which drops a part
// of a call is noticed.
func sample(t reflect.Type) reflect.Value {
	v := reflect.New(t).Elem()
	switch {
	case t == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(noon))
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			v.Field(i).Set(sample(t.Field(i).Type))
		}
	case t.Kind() == reflect.Slice:
		v.Set(reflect.Append(v, sample(t.Elem())))
	case t.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(t))
		v.SetMapIndex(sample(t.Key()), sample(t.Elem()))
	case t.Kind() == reflect.String:
		v.SetString("x")
	case t.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(1)
	case v.CanUint():
		v.SetUint(1)
	default:
		panic("calls: there is no sample of a " + t.String() + " yet")
	}
	return v
}

// PassOn calls every method of wrappers that wrap makes over a Store. It fails the test unless the
// Store below gets the call once with the same arguments, and the caller the results of the Store,
// or its error.
func PassOn(t *testing.T, wrap func(below punctual.Store) punctual.Store) {
	t.Helper()
	for _, m := range Methods() {
		for _, failure := range []error{nil, errors.New("the store below failed")} {
			below := &Store{Errs: map[string]error{m.Name: failure}}
			results, err := m.Call(t.Context(), wrap(below))
			made := below.Made(m.Name)
			if len(made) != 1 || !reflect.DeepEqual(made[0].Args, m.Args) {
				t.Errorf("%s: the store below got the calls %+v; want one with the arguments %+v", m.Name, made, m.Args)
			}
			if !errors.Is(err, failure) {
				t.Errorf("%s: got error %v; want that of the store below: %v", m.Name, err, failure)
			}
			if want, _ := m.Call(t.Context(), below); failure == nil && !reflect.DeepEqual(results, want) {
				t.Errorf("%s: got %+v; want what the store below answered: %+v", m.Name, results, want)
			}
		}
	}
}

// EachWithContext calls each method of a store that takes a context, with ctx and zero values for
// the other arguments, and returns the errors by the names of the methods.
func EachWithContext(ctx context.Context, s punctual.Store) map[string]error {
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
