package punctual_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
)

// The code in README.md and README.zh-CN.md, kept here and in examples/notify so that it compiles and
// runs. What stands between the marks, and that whole program, has to be in both files, word for word.

// Order is what the messages of the README carry.
type Order struct{ Number string }

func cancelPaid(ctx context.Context, orders *punctual.Topic[Order], order Order) error {
	// README begin
	err := orders.Cancel(ctx, order.Number)
	// nil: it is never delivered. ErrLeased: being worked on, no repetition. ErrNotFound: no longer stored
	// README end
	return err
}

func allowMoreTime(ctx context.Context, orders *punctual.Topic[Order], order Order) (time.Time, error) {
	// README begin
	due, err := orders.Reschedule(ctx, order.Number, punctual.In(2*time.Hour))
	// nil: only the new time counts. ErrLeased or ErrNotFound: nothing was changed
	// README end
	return due, err
}

func TestReadmeCode(t *testing.T) {
	t.Chdir(t.TempDir())
	withOrders(t, func(ctx context.Context, orders *punctual.Topic[Order]) {
		pushed(t, orders, "A-17", 30*time.Minute)
		if _, err := allowMoreTime(ctx, orders, Order{"A-17"}); err != nil {
			t.Errorf("more time: %v", err)
		}
		if err := cancelPaid(ctx, orders, Order{"A-17"}); err != nil {
			t.Errorf("cancel: %v", err)
		}
		if err := cancelPaid(ctx, orders, Order{"A-1"}); !errors.Is(err, punctual.ErrNotFound) {
			t.Errorf("cancel of one that was closed: %v; want ErrNotFound", err)
		}
	})
}

func withOrders(t *testing.T, do func(context.Context, *punctual.Topic[Order])) {
	t.Helper()
	store, err := diskstore.Open("punctual-data", nil)
	if err != nil {
		t.Fatal(err)
	}
	do(t.Context(), punctual.NewTopic[Order](punctual.NewQueue(store, nil), "order.close"))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

func pushed(t *testing.T, orders *punctual.Topic[Order], number string, in time.Duration) {
	t.Helper()
	if _, err := orders.Push(t.Context(), Order{number}, punctual.ID(number), punctual.In(in)); err != nil {
		t.Fatal(err)
	}
}

func TestReadmeShowsThisCode(t *testing.T) {
	snippets := append(readmeSnippets(t, readText(t, "example_readme_test.go")), readText(t, "examples/notify/main.go"))
	for _, page := range []string{"README.md", "README.zh-CN.md"} {
		text := readText(t, page)
		for _, s := range snippets {
			if !strings.Contains(text, s) {
				t.Errorf("%s does not contain this code word for word:\n%s", page, s)
			}
		}
	}
}

// readmeSnippets returns what stands between the marks, moved to the left margin.
func readmeSnippets(t *testing.T, source string) []string {
	t.Helper()
	var snippets []string
	for _, part := range strings.Split(source, "\t// README begin\n")[1:] {
		code, _, found := strings.Cut(part, "\t// README end\n")
		if !found {
			t.Fatal("a mark README begin without its README end")
		}
		snippets = append(snippets, strings.ReplaceAll(strings.TrimPrefix(code, "\t"), "\n\t", "\n"))
	}
	if len(snippets) != 2 {
		t.Fatalf("found %d snippets, want 2", len(snippets))
	}
	return snippets
}

func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
