package punctual_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// makeVariable is what the Makefile defines by that name.
func makeVariable(t *testing.T, name string) string {
	t.Helper()
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + name + ` := (.*)$`).FindSubmatch(makefile)
	if m == nil {
		t.Fatalf("the Makefile has no variable %s", name)
	}
	return string(m[1])
}

// TestSlowTestsAreRun: one run of make test skips the tests named SLOW. Another run has them, but only in the packages
// SLOWRANDOM, SLOWOTHERS, PLAIN and SEQUENTIAL. A test of such a name in any other package would never run.
func TestSlowTestsAreRun(t *testing.T) {
	slow := regexp.MustCompile(strings.ReplaceAll(makeVariable(t, "SLOW"), "$$", "$"))
	var folders []string
	for _, name := range []string{"SLOWRANDOM", "SLOWOTHERS", "PLAIN", "SEQUENTIAL"} {
		folders = append(folders, strings.Fields(makeVariable(t, name))...)
	}
	test := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	found := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == "bench" || path == "tools") { // modules of their own
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range test.FindAllSubmatch(text, -1) {
			if !slow.Match(m[1]) {
				continue
			}
			found++
			in := "."
			if dir := filepath.ToSlash(filepath.Dir(path)); dir != "." {
				in = "./" + dir
			}
			if !slices.Contains(folders, in) {
				t.Errorf("%s: make test never runs %s: name it otherwise, or add the package to SLOWOTHERS in the Makefile", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Error("no test has a name that SLOW matches")
	}
}

// TestSequentialPackagesStartNoGoroutine: make test runs the packages SEQUENTIAL without the race detector, which would
// see nothing there.
func TestSequentialPackagesStartNoGoroutine(t *testing.T) {
	for _, folder := range strings.Fields(makeVariable(t, "SEQUENTIAL")) {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("SEQUENTIAL names %s: %d Go files, %v", folder, len(files), err)
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				call, isCall := n.(*ast.CallExpr)
				selected, isSelected := (*ast.SelectorExpr)(nil), false
				if isCall {
					selected, isSelected = call.Fun.(*ast.SelectorExpr)
				}
				if _, starts := n.(*ast.GoStmt); starts || isSelected && (selected.Sel.Name == "Go" || selected.Sel.Name == "Parallel") {
					t.Errorf("%s starts a goroutine: take %s out of SEQUENTIAL in the Makefile, so that the race detector sees it", file, folder)
				}
				return true
			})
		}
	}
}
