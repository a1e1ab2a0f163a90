package punctual_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// sentinels returns the names of the package-level errors of errors.go, in order.
func sentinels(t *testing.T) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, s := range g.Specs {
			for _, n := range s.(*ast.ValueSpec).Names {
				if strings.HasPrefix(n.Name, "Err") {
					names = append(names, n.Name)
				}
			}
		}
	}
	return names
}

// listed returns the names of the sentinels in the literal that ErrorKinds returns.
func listed(t *testing.T) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "storekit/errorkinds.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(f, func(n ast.Node) bool {
		fn, ok := n.(*ast.FuncDecl)
		if ok && fn.Name.Name != "ErrorKinds" {
			return false
		}
		if lit, ok := n.(*ast.CompositeLit); ok && len(lit.Elts) == 4 {
			names = append(names, lit.Elts[0].(*ast.SelectorExpr).Sel.Name)
		}
		return true
	})
	return names
}

func TestErrorKindsAreComplete(t *testing.T) {
	want, got := sentinels(t), listed(t)
	if len(want) < 10 {
		t.Fatalf("only %d sentinels found in errors.go: the test does not read it any more", len(want))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("ErrorKinds lists\n%v, errors.go declares\n%v: each must be listed exactly once", got, want)
	}
}

func TestErrorKindsAreDistinct(t *testing.T) {
	codes := map[string]bool{"canceled": true, "deadline": true, "internal": true, "": true}
	for _, k := range storekit.ErrorKinds() {
		if k.Definite != punctual.Definite(k.Err) {
			t.Errorf("%s is definite: %v, but Definite says the opposite", k.Code, k.Definite)
		}
		if codes[k.Code] {
			t.Errorf("code %q is used twice or reserved", k.Code)
		}
		codes[k.Code] = true
		if strings.Trim(k.Code, "abcdefghijklmnopqrstuvwxyz_") != "" {
			t.Errorf("code %q is not lower case with underscores", k.Code)
		}
		if !strings.HasSuffix(k.Meaning, ".") {
			t.Errorf("%s: the meaning %q is not a sentence", k.Code, k.Meaning)
		}
	}
}

func TestErrorCodeAndDefinite(t *testing.T) {
	for _, k := range storekit.ErrorKinds() {
		wrapped := fmt.Errorf("push: %w", fmt.Errorf("a detail: %w", k.Err))
		if got := storekit.ErrorCode(wrapped); got != k.Code {
			t.Errorf("ErrorCode(%v) is %q: want %q", wrapped, got, k.Code)
		}
		if got := punctual.Definite(wrapped); got != (k.Err != punctual.ErrIndeterminate) {
			t.Errorf("P13: Definite(%v) is %v", wrapped, got)
		}
		both := fmt.Errorf("%w: %w", wrapped, punctual.ErrIndeterminate)
		if punctual.Definite(both) || storekit.ErrorCode(both) != "indeterminate" {
			t.Errorf("P13: %v passes as definite, code %q", both, storekit.ErrorCode(both))
		}
	}
	for _, test := range []struct {
		err      error
		code     string
		definite bool
	}{
		{context.Canceled, "canceled", true},
		{fmt.Errorf("claim: %w", context.DeadlineExceeded), "deadline", true},
		{fmt.Errorf("%w: %w", punctual.ErrIndeterminate, context.DeadlineExceeded), "indeterminate", false},
		{errors.New("who knows"), "internal", false},
		{nil, "", false},
	} {
		if got := storekit.ErrorCode(test.err); got != test.code {
			t.Errorf("ErrorCode(%v) is %q: want %q", test.err, got, test.code)
		}
		if got := punctual.Definite(test.err); got != test.definite {
			t.Errorf("P13: Definite(%v) is %v", test.err, got)
		}
	}
}

// docs/errors.md has the vocabulary as a table, with a row for each kind.
func TestErrorsDocument(t *testing.T) {
	doc, err := os.ReadFile("docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := errorTable(t); !strings.Contains(string(doc), want) {
		t.Errorf("docs/errors.md does not hold this table, which follows from ErrorKinds:\n%s", want)
	}
}

func errorTable(t *testing.T) string {
	names := listed(t)
	var b strings.Builder
	b.WriteString("| error | code | did not happen | meaning |\n|---|---|---|---|\n")
	for i, k := range storekit.ErrorKinds() {
		definite := "certainly"
		if !k.Definite {
			definite = "not known"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", names[i], k.Code, definite, k.Meaning)
	}
	return b.String()
}
