package punctual_test

import (
	"go/ast"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// Whoever uses a queue has to hold the root in mind, so it has few names. What a store may be
// beside a store, bounds, schedules, bulks and events are packages of their own.
func TestRootIsSmall(t *testing.T) {
	const mostNames, mostInAll = 150, 418 // in all: with exported fields and methods
	sources, err := ownSources()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]int{} // how many fields and methods each has
	for _, s := range sources {
		if s.dir() != "." || s.isTest() {
			continue
		}
		for _, d := range s.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				of := d.Name.Name
				if d.Recv != nil {
					of = strings.TrimSuffix(receiver(d), ".")
				}
				if d.Recv == nil && d.Name.IsExported() {
					names[of] += 0
				} else if d.Name.IsExported() && ast.IsExported(of) {
					names[of]++
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.ValueSpec:
						for _, n := range spec.Names {
							if n.IsExported() {
								names[n.Name] += 0
							}
						}
					case *ast.TypeSpec:
						if spec.Name.IsExported() {
							names[spec.Name.Name] += exportedIn(spec.Type)
						}
					}
				}
			}
		}
	}
	all := len(names)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		t.Logf("%-24s %d", name, names[name])
		all += names[name]
	}
	t.Logf("%d names, %d with fields and methods", len(names), all)
	if len(names) < 50 || names["Message"] < 10 {
		t.Fatal("this test shows nothing: it has not found the names")
	}
	if len(names) > mostNames || all > mostInAll {
		t.Errorf("the root has %d exported names, and %d with fields and methods; at most %d and %d", len(names), all, mostNames, mostInAll)
	}
}

// exportedIn counts the exported fields of a struct, embedded ones included, and the exported
// methods of an interface.
func exportedIn(x ast.Expr) (n int) {
	var fields *ast.FieldList
	switch of := x.(type) {
	case *ast.StructType:
		fields = of.Fields
	case *ast.InterfaceType:
		fields = of.Methods
	default:
		return 0
	}
	for _, f := range fields.List {
		if len(f.Names) == 0 {
			n++
		}
		for _, name := range f.Names {
			if name.IsExported() {
				n++
			}
		}
	}
	return n
}

var budgetRow = regexp.MustCompile(`(?m)^\| \x60([a-z/]+)\x60 \| ([\d,]+) \|$`)

// Each package has as many shipped lines as CONTRIBUTING.md grants it at most, so that growth is
// noticed and has a reason. A line counts if a token other than a comment is on it. Files that a
// program generates are counted apart, because nobody maintains them by hand. "make size" prints
// the lines.
func TestSize(t *testing.T) {
	sources, err := ownSources()
	if err != nil {
		t.Fatal(err)
	}
	shipped, tests, generated := map[string]int{}, map[string]int{}, 0
	for _, s := range sources {
		dir := budgetOf(s.dir())
		if s.isGenerated() {
			generated += lines(s.text)
		} else if s.isTest() {
			tests[dir] += lines(s.text)
		} else {
			shipped[dir] += lines(s.text)
		}
	}
	budgets := map[string]int{}
	for _, m := range budgetRow.FindAllStringSubmatch(readText(t, "CONTRIBUTING.md"), -1) {
		budgets[m[1]], _ = strconv.Atoi(strings.ReplaceAll(m[2], ",", ""))
	}
	all, aside, inTests := 0, 0, 0
	for _, dir := range slices.Sorted(maps.Keys(shipped)) {
		t.Logf("%-24s %6d  budget %6d  tests %6d", dir, shipped[dir], budgets[dir], tests[dir])
		inTests += tests[dir]
		if notShipped(dir) {
			aside += shipped[dir]
			continue
		}
		all += shipped[dir]
		if shipped[dir] > budgets[dir] {
			t.Errorf("%s has %d shipped lines, and CONTRIBUTING.md grants it %d: make it smaller, or say in the commit why it grows", dir, shipped[dir], budgets[dir])
		}
	}
	t.Logf("%d shipped lines; beside them %d generated, %d of the suite and rigs, and %d of tests", all, generated, aside, inTests)
	for dir := range budgets {
		if shipped[dir] == 0 {
			t.Errorf("CONTRIBUTING.md grants lines to %s, which does not exist", dir)
		}
	}
}

// budgetOf returns the package that a folder counts towards: the one that it is internal to.
func budgetOf(dir string) string {
	if before, _, found := strings.Cut(dir, "/internal/"); found {
		dir = before
	}
	if rest, found := strings.CutPrefix(dir, "internal/"); found {
		first, _, _ := strings.Cut(rest, "/")
		return path.Join("internal", first)
	}
	if dir == "." {
		return "punctual"
	}
	first, _, _ := strings.Cut(dir, "/")
	return first
}

// notShipped tells that the lines of a package reach no user's program: those of the suite for
// stores, of rigs and of examples.
func notShipped(dir string) bool {
	return slices.Contains([]string{"storetest", "internal/rigs", "examples"}, dir)
}

// lines counts the lines on which a token other than a comment is.
func lines(text []byte) int {
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	n, last := 0, 0
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return n
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue // not in the text
		}
		first := file.Line(pos)
		end := first + strings.Count(literal, "\n") // a string may have several lines
		n += end - max(first, last+1) + 1
		last = end
	}
}

func TestLinesAreCounted(t *testing.T) {
	text := "package a\n\n// c\nvar x = `1\n2\n` // c\n/* c\nc */ func f() {\n}\n"
	if n := lines([]byte(text)); n != 6 {
		t.Errorf("%d lines, want 6", n)
	}
	for dir, want := range map[string]string{".": "punctual", "cmd/punctual/internal/cli/top": "cmd", "internal/wire": "internal/wire", "diskstore/internal/record": "diskstore", "access/tokens": "access"} {
		if got := budgetOf(dir); got != want {
			t.Errorf("%s counts towards %s, want %s", dir, got, want)
		}
	}
}

// A type of pgstore has at most 45 methods, because Store had 138, each of which could reach every
// field.
func TestPgstoreIsMadeOfParts(t *testing.T) {
	const most = 45
	sources, err := ownSources()
	if err != nil {
		t.Fatal(err)
	}
	methods := map[string]int{}
	for _, s := range sources {
		if path.Dir(s.path) != "pgstore" || strings.HasSuffix(s.path, "_test.go") {
			continue
		}
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				of := f.Recv.List[0].Type
				if star, ok := of.(*ast.StarExpr); ok {
					of = star.X
				}
				methods[of.(*ast.Ident).Name]++
			}
		}
	}
	if methods["Store"] == 0 {
		t.Fatal("this test shows nothing: it has seen no method of Store")
	}
	for name, n := range methods {
		if n > most {
			t.Errorf("%s has %d methods, more than %d: divide it", name, n, most)
		}
	}
}

// A line of prose in a comment has at most 100 columns, a tab counted as four, so that two files
// fit side by side. Drawings, code and the output of examples may be wider.
func TestCommentsAreNarrow(t *testing.T) {
	sources, err := ownSources()
	if err != nil {
		t.Fatal(err)
	}
	sources = slices.Clone(sources) // other tests read the same slice
	for _, files := range []string{"pgstore/sql/*.sql", "pgstore/migrations/*.sql", "redisstore/internal/script/lua/*.lua"} {
		names, err := filepath.Glob(files)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v, %v", files, names, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, source{path: name, text: text})
		}
	}
	seen := 0
	for _, s := range sources {
		for line := range strings.Lines(string(s.text)) {
			text := strings.TrimLeft(line, "\t ")
			if !strings.HasPrefix(text, "--") && !strings.HasPrefix(text, "// ") || strings.HasPrefix(text, "//  ") || strings.HasPrefix(path.Base(s.path), "example_") {
				continue
			}
			seen++
			line = strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    ")
			if n := utf8.RuneCountInString(line); n > 100 {
				t.Errorf("%s: a comment of %d columns: %s", s.path, n, strings.TrimSpace(line))
			}
		}
	}
	if seen < 1000 {
		t.Errorf("this test shows nothing: it has seen %d lines of comments", seen)
	}
}
