package punctual_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSlowTestsAreRun: make test skips the tests named SLOW in one run and makes up for it in another, in the packages
// SLOWRANDOM, SLOWOTHERS and PLAIN alone. A test of such a name in any other package would never run.
func TestSlowTestsAreRun(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	variable := func(name string) string {
		m := regexp.MustCompile(`(?m)^` + name + ` := (.*)$`).FindSubmatch(makefile)
		if m == nil {
			t.Fatalf("the Makefile has no variable %s", name)
		}
		return string(m[1])
	}
	slow := regexp.MustCompile(strings.ReplaceAll(variable("SLOW"), "$$", "$"))
	folders := strings.Fields(variable("SLOWRANDOM") + " " + variable("SLOWOTHERS") + " " + variable("PLAIN"))
	test := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	found := 0
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
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
			in := "./" + filepath.ToSlash(filepath.Dir(path))
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
