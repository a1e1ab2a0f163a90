package punctual_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// Joined observers are all told of everything, in their order, also where one of them has only some
// functions. The test calls each function that an Observer has, so a new one that is not joined
// fails it.
func TestJoinObservers(t *testing.T) {
	var told []string
	observer := func(name string) *punctual.Observer {
		o := &punctual.Observer{}
		v := reflect.ValueOf(o).Elem()
		for i := range v.NumField() {
			field := v.Type().Field(i)
			v.Field(i).Set(reflect.MakeFunc(field.Type, func(args []reflect.Value) []reflect.Value {
				told = append(told, fmt.Sprint(name, " ", field.Name, " ", len(args)))
				return nil
			}))
		}
		return o
	}
	partly := &punctual.Observer{OnClaim: func(_ context.Context, n int, _ time.Duration) { told = append(told, fmt.Sprint("partly OnClaim ", n)) }}
	joined := reflect.ValueOf(punctual.JoinObservers(observer("a"), nil, partly, observer("b"))).Elem()
	for i := range joined.NumField() {
		told = nil
		call, name := joined.Field(i), joined.Type().Field(i).Name
		if call.IsNil() {
			t.Errorf("%s of joined observers is nil", name)
			continue
		}
		args := []reflect.Value{reflect.ValueOf(t.Context())}
		for n := 1; n < call.Type().NumIn(); n++ {
			args = append(args, reflect.Zero(call.Type().In(n)))
		}
		call.Call(args)
		want := []string{fmt.Sprint("a ", name, " ", len(args)), fmt.Sprint("b ", name, " ", len(args))}
		if name == "OnClaim" {
			want = slices.Insert(want, 1, "partly OnClaim 0")
		}
		if !slices.Equal(told, want) {
			t.Errorf("%s told %q, want %q", name, told, want)
		}
	}
}

// ReadyFor counts from the due time, or from the push when that came later. After a step of the
// store's clock back, the push may lie behind the delivery, and in a finished record so may the due
// time.
func TestReadyFor(t *testing.T) {
	due := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		created, delivered, want time.Duration
	}{{-time.Hour, time.Second, time.Second}, {time.Hour, time.Hour + time.Second, time.Second}, {0, 0, 0}, {2 * time.Hour, time.Minute, time.Minute}, {2 * time.Hour, -time.Minute, 0}} {
		d := punctual.Delivery{Message: punctual.Message{Due: due, Created: due.Add(c.created)}, Delivered: due.Add(c.delivered)}
		if got := d.ReadyFor(); got != c.want {
			t.Errorf("pushed %v and delivered %v behind its due time: ready for %v, want %v", c.created, c.delivered, got, c.want)
		}
	}
}
