package punctual_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The code in README.md and README.zh-CN.md is that of examples/notify, word for word, so that it
// compiles and is tested.
func TestReadmeShowsThisCode(t *testing.T) {
	for _, page := range []string{"README.md", "README.zh-CN.md"} {
		text := readText(t, page)
		const file = "examples/notify/main.go"
		if code := "```go\n" + readText(t, file) + "```\n"; !strings.Contains(text, code) {
			t.Errorf("%s does not contain %s word for word:\n%s", page, file, code)
		}
		if n := strings.Count(text, "```go\n"); n != 1 {
			t.Errorf("%s has %d blocks of Go, of which one is tested", page, n)
		}
		if n := strings.Count(text, "\n"); n > 120 {
			t.Errorf("%s has %d lines, 120 are allowed", page, n)
		}
	}
}

// The lateness that both README pages name is that of docs/performance.md.
func TestReadmeFigures(t *testing.T) {
	measured := readText(t, "docs/performance.md")
	for load, forms := range map[string][2]string{
		"20,000/s": {"began at most %s ms after", "在到期后 %s 毫秒内开始"}, "100,000/s": {"a second it was %s ms", "条时是 %s 毫秒"},
	} {
		m := regexp.MustCompile(`(?m)^\| lateness at ` + load + `, p99 \| [^|]* \| ([0-9.,]+) ms \|`).FindStringSubmatch(measured)
		if m == nil {
			t.Fatalf("docs/performance.md does not tell the lateness at %s in the form that this test knows", load)
		}
		for n, page := range []string{"README.md", "README.zh-CN.md"} {
			if want := fmt.Sprintf(forms[n], m[1]); !strings.Contains(readText(t, page), want) {
				t.Errorf("%s does not say %q, which docs/performance.md has measured", page, want)
			}
		}
	}
}

// Both README pages begin with a clone, the demo, the tests and the installation, in this order,
// and say how a program that is there adds the library. The targets of make that they name exist,
// and the version of Go that they name is that of the module.
func TestReadmeBegins(t *testing.T) {
	makefile := readText(t, "Makefile")
	_, rest, _ := strings.Cut(readText(t, "go.mod"), "\ngo ")
	version, _, _ := strings.Cut(rest, "\n")
	version = strings.TrimSuffix(version, ".0")
	for _, page := range []string{"README.md", "README.zh-CN.md"} {
		text := readText(t, page)
		last := 0
		for _, command := range []string{"$ git clone https://github.com/punctualmq/punctual", "$ make -C punctual demo", "$ make -C punctual test", "$ go install -C punctual ./cmd/punctual"} {
			at := strings.Index(text, command)
			if at < last {
				t.Errorf("%s does not have %q, or not in this order", page, command)
			}
			last = max(last, at)
			if target, ok := strings.CutPrefix(command, "$ make -C punctual "); ok && !strings.Contains(makefile, "\n"+target+": ") {
				t.Errorf("the Makefile has no target %s", target)
			}
		}
		if version == "" || !strings.Contains(text, "Go "+version) {
			t.Errorf("%s does not name Go %s, which go.mod asks for", page, version)
		}
		if add := "go mod edit -require github.com/punctualmq/punctual@v0.0.0 -replace github.com/punctualmq/punctual=../punctual"; !strings.Contains(text, add) {
			t.Errorf("%s does not have %q", page, add)
		}
		if strings.Contains(text, "@latest") {
			t.Errorf("%s installs a version that is not published", page)
		}
	}
}

func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
