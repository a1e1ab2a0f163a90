// Package seedrig gives random tests a seed that repeats them.
package seedrig

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Variable names the variable of the environment that gives a test its seed.
const Variable = "PUNCTUAL_TORTURE_SEED"

// Of returns the seed of a test, which is a new one unless the environment gives one. It logs the
// command that repeats the test, which the test's output shows when it fails. A test makes its
// generators of the seed, one for each goroutine:
//
//	seed := seedrig.Of(t)
//	r := rand.New(rand.NewPCG(seed, uint64(number)))
//
// The seed repeats the random choices of a run, not what the scheduler makes of them.
func Of(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(Variable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s=%q: use a number", Variable, text)
		}
	}
	t.Logf("repeat with: %s=%d go test %s -run '%s'", Variable, seed, directory(), pattern(t.Name()))
	return seed
}

// pattern matches one test alone. Its parts are split at each slash by go test.
func pattern(name string) string {
	return "^" + strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^") + "$"
}

// directory is the directory of the package under test, in which a test binary runs, seen from that
// of its module.
func directory() string {
	from, err := os.Getwd()
	for root := from; err == nil; root = filepath.Dir(root) {
		if _, missing := os.Stat(filepath.Join(root, "go.mod")); missing == nil {
			inside, _ := filepath.Rel(root, from) // both are absolute
			return "./" + filepath.ToSlash(inside)
		}
		if root == filepath.Dir(root) {
			break
		}
	}
	return "."
}
