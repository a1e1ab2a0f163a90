package console

import (
	"context"
	"strings"
	"testing"
)

// A panic in a goroutine of eachInParallel is raised again in the goroutine of its caller, where it
// can be recovered.
func TestParallelPanic(t *testing.T) {
	defer func() {
		cause, _ := recover().(string)
		if !strings.Contains(cause, "broken") || !strings.Contains(cause, "find_test.go") {
			t.Errorf("recovered %q; want the cause and where it was", cause)
		}
	}()
	err := eachInParallel(t.Context(), 3, func(_ context.Context, i int) error {
		if i == 1 {
			panic("broken")
		}
		return nil
	})
	t.Errorf("eachInParallel returns %v; want its caller to panic", err)
}
