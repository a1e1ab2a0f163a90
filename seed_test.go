package punctual_test

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestRandomTestsHaveASeed fails for each random number in tests, and in the suite in storetest, that comes from no seed or from the time,
// because a random test that fails once and cannot be repeated helps nobody.
func TestRandomTestsHaveASeed(t *testing.T) {
	sources, err := ownSources()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, s := range sources {
		if !s.isTest() && !strings.HasPrefix(s.dir()+"/", "storetest/") {
			continue
		}
		if randomName(s.ast) != "" {
			seen++
		}
		for _, complaint := range unseeded(s) {
			t.Error(complaint)
		}
	}
	if seen < 20 {
		t.Errorf("%d files of tests use random numbers: this test has lost sight of them", seen)
	}
}

// seeded are the names of math/rand/v2 that draw nothing without a seed.
var seeded = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "PCG", "ChaCha8", "Zipf"}

// randomName is the name under which a file imports math/rand/v2 or math/rand, or "".
func randomName(f *ast.File) string {
	for _, spec := range f.Imports {
		if p := strings.Trim(spec.Path.Value, `"`); p != "math/rand/v2" && p != "math/rand" {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return "rand"
	}
	return ""
}

// unseeded returns a sentence for each place of a file that draws random numbers which no seed repeats: by the functions of the package,
// or by a generator that begins with the time.
func unseeded(s source) []string {
	name := randomName(s.ast)
	if name == "" {
		return nil
	}
	const remedy = "make a generator, rand.New(rand.NewPCG(seedrig.Of(t), 0)), whose seed the test then logs with the command that repeats it"
	if name == "." || name == "_" {
		return []string{s.path + ": import math/rand/v2 by its name"}
	}
	var complaints []string
	ast.Inspect(s.ast, func(n ast.Node) bool {
		x, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if of, ok := x.X.(*ast.Ident); ok && of.Name == name && !slices.Contains(seeded, x.Sel.Name) {
			complaints = append(complaints, fmt.Sprintf("%s: %s.%s has no seed: %s", s.line(x.Pos()), name, x.Sel.Name, remedy))
		}
		return true
	})
	ast.Inspect(s.ast, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if f, ok := c.Fun.(*ast.SelectorExpr); !ok || f.Sel.Name != "NewPCG" && f.Sel.Name != "NewChaCha8" {
			return true
		}
		for _, argument := range c.Args {
			ast.Inspect(argument, func(n ast.Node) bool {
				if x, ok := n.(*ast.SelectorExpr); ok && x.Sel.Name == "Now" {
					complaints = append(complaints, fmt.Sprintf("%s: a seed of the time is not repeated: %s", s.line(x.Pos()), remedy))
				}
				return true
			})
		}
		return true
	})
	return complaints
}

func TestSeedCheck(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"a seed":                    {`import "math/rand/v2"; var r = rand.New(rand.NewPCG(1, 2)).IntN(3)`, ""},
		"a function of the package": {`import "math/rand/v2"; var n = rand.IntN(3)`, "a_test.go:2: rand.IntN has no seed"},
		"under another name":        {`import dice "math/rand/v2"; var n = dice.Perm(3)`, "dice.Perm has no seed"},
		"a function as a value":     {`import "math/rand/v2"; var f = rand.Uint64`, "rand.Uint64 has no seed"},
		"a random seed":             {`import "math/rand/v2"; var r = rand.New(rand.NewPCG(rand.Uint64(), 0))`, "rand.Uint64 has no seed"},
		"the old package":           {`import "math/rand"; var n = rand.Intn(3)`, "rand.Intn has no seed"},
		"the time as a seed":        {`import ("math/rand/v2"; "time"); var r = rand.NewPCG(uint64(time.Now().UnixNano()), 0)`, "a seed of the time"},
		"without a name":            {`import . "math/rand/v2"; var n = IntN(3)`, "by its name"},
		"keys and names":            {`import "crypto/rand"; var n = rand.Text()`, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			sources, err := readSources(fstest.MapFS{"a_test.go": {Data: []byte("package a\n" + c.text)}})
			if err != nil {
				t.Fatal(err)
			}
			got := unseeded(sources[0])
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
				t.Errorf("complaints %q; want one with %q, or none if that is empty", got, c.want)
			}
		})
	}
}
