package punctual_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
)

// The code in README.md and README.zh-CN.md, kept here so that it compiles and runs. What
// stands between the marks has to be in both files, word for word.

// Order is what the messages of the README carry.
type Order struct{ Number string }

type orderHandler = func(context.Context, Order, *punctual.Delivery) error

func closeUnpaidOrders(ctx context.Context, order Order, closeUnpaid orderHandler) error {
	// README begin
	store, err := diskstore.Open("punctual-data", nil)
	if err != nil {
		return err
	}
	defer store.Close()
	orders := punctual.NewTopic[Order](punctual.NewQueue(store, nil), "order.close")
	worker := punctual.NewWorker(store, nil)
	worker.Handle(orders.Name(), orders.Handler(closeUnpaid))
	if _, err := orders.Push(ctx, order, punctual.ID(order.Number), punctual.In(30*time.Minute)); err != nil {
		return err
	}
	return worker.Run(ctx)
	// README end
}

func cancelPaid(ctx context.Context, orders *punctual.Topic[Order], order Order) (punctual.Outcome, error) {
	// README begin
	outcome, err := orders.Cancel(ctx, order.Number)
	// outcome.Status is Cancelled, TooLate (being worked on, no repetition) or NotFound
	// README end
	return outcome, err
}

func allowMoreTime(ctx context.Context, orders *punctual.Topic[Order], order Order) (punctual.Outcome, error) {
	// README begin
	outcome, err := orders.Reschedule(ctx, order.Number, punctual.In(2*time.Hour))
	// outcome.Status is Rescheduled (only the new time counts), TooLate or NotFound
	// README end
	return outcome, err
}

// The orders of an earlier run are closed while new ones are taken; a paid one is not.
func TestReadmeCode(t *testing.T) {
	t.Chdir(t.TempDir())
	withOrders(t, func(ctx context.Context, orders *punctual.Topic[Order]) {
		pushed(t, orders, "A-1", 0)
	})

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var closed []string
	err := closeUnpaidOrders(ctx, Order{"A-17"}, func(_ context.Context, o Order, _ *punctual.Delivery) error {
		closed = append(closed, o.Number)
		stop()
		return nil
	})
	if err != nil || strings.Join(closed, " ") != "A-1" {
		t.Fatalf("closed %q, error %v; want A-1 alone, which was due", closed, err)
	}

	withOrders(t, func(ctx context.Context, orders *punctual.Topic[Order]) {
		wantOutcome(t, punctual.Rescheduled)(allowMoreTime(ctx, orders, Order{"A-17"}))
		wantOutcome(t, punctual.Cancelled)(cancelPaid(ctx, orders, Order{"A-17"}))
		wantOutcome(t, punctual.NotFound)(cancelPaid(ctx, orders, Order{"A-1"}))
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

func wantOutcome(t *testing.T, want punctual.OutcomeStatus) func(punctual.Outcome, error) {
	return func(got punctual.Outcome, err error) {
		t.Helper()
		if err != nil || got.Status != want {
			t.Errorf("outcome %q, error %v; want %q", got.Status, err, want)
		}
	}
}

func TestReadmeShowsThisCode(t *testing.T) {
	snippets := readmeSnippets(t, readText(t, "example_readme_test.go"))
	for _, page := range []string{"README.md", "README.zh-CN.md"} {
		text := readText(t, page)
		for _, s := range snippets {
			if !strings.Contains(text, s) {
				t.Errorf("%s does not contain this code of example_readme_test.go word for word:\n%s", page, s)
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
	if len(snippets) != 3 {
		t.Fatalf("found %d snippets, want 3", len(snippets))
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
