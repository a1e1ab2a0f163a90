package console

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/storekit"
)

// Both languages have the same keys, a text has the same arguments, such as {0}, in both languages,
// and the source has every key or may make it of parts.
func TestLanguagesAgree(t *testing.T) {
	languages, err := readLanguages()
	if err != nil {
		t.Fatal(err)
	}
	english := languages[0]
	for _, l := range languages[1:] {
		for key, text := range english.texts {
			if l.texts[key] == "" {
				t.Errorf("%s lacks %s", l.code, key)
			}
			if want, got := argumentsOf(text), argumentsOf(l.texts[key]); !slices.Equal(want, got) {
				t.Errorf("%s: %s has the arguments %v, and %v in English", l.code, key, got, want)
			}
		}
		for key := range l.texts {
			if english.texts[key] == "" {
				t.Errorf("%s has %s, which English lacks", l.code, key)
			}
		}
	}
	source := sourceText(t)
	for key := range english.texts {
		if !strings.Contains(source, `"`+key+`"`) && !madeOfParts(source, key) {
			t.Errorf("nothing uses %s", key)
		}
	}
}

// argumentsOf returns the arguments of a text, sorted, each once.
func argumentsOf(text string) []string {
	all := regexp.MustCompile(`\{[0-9]+\}`).FindAllString(text, -1)
	slices.Sort(all)
	return slices.Compact(all)
}

// madeOfParts reports whether the source may make a key of parts: it has the beginning of the key
// as a string, or the key has one of the ends that templates add.
func madeOfParts(source, key string) bool {
	for i := strings.LastIndexByte(key, '.'); i > 0; i = strings.LastIndexByte(key[:i], '.') {
		if strings.Contains(source, `"`+key[:i+1]+`"`) {
			return true
		}
	}
	return strings.HasSuffix(key, ".title") || strings.HasSuffix(key, ".meaning") || strings.HasSuffix(key, ".empty")
}

func sourceText(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range []string{"*.go", "templates/*.html"} {
		names, err := fs.Glob(os.DirFS("."), pattern)
		if err != nil || len(names) == 0 {
			t.Fatal(err, names)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
	}
	return all.String()
}

// missingText is what a key without a text looks like on a page.
var missingText = regexp.MustCompile(`\[[a-z]+\.[a-z0-9_. ]+\]`)

// Each page has a text for every key that it uses, in each language. So do all errors and findings,
// except for findings of the store, which are shown in its own words.
func TestEveryTextIsThere(t *testing.T) {
	r := newRig(t, nil)
	r.fill()
	empty := newRig(t, nil)
	for _, code := range []string{"en", "zh-CN"} {
		for _, path := range pagePaths() {
			join := "?"
			if strings.Contains(path, "?") {
				join = "&"
			}
			for _, over := range []*rig{r, empty} {
				text := over.get(path + join + "lang=" + code).text
				for _, key := range missingText.FindAllString(text, -1) {
					t.Errorf("%s in %s shows %s", path, code, key)
				}
				if !strings.Contains(text, `<html lang="`+code+`"`) {
					t.Errorf("%s is not in %s", path, code)
				}
			}
		}
	}
	languages, err := readLanguages()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range languages {
		for _, k := range storekit.ErrorKinds() {
			if l.texts["error."+k.Code] == "" || l.texts["remedy."+k.Code] == "" {
				t.Errorf("%s has no text for the error %s", l.code, k.Code)
			}
		}
		for _, k := range overview.Kinds() {
			if k != overview.KindStore && l.texts["finding."+string(k)] == "" || l.texts["kind."+string(k)] == "" {
				t.Errorf("%s has no text for the finding %s", l.code, k)
			}
		}
	}
}

func TestLanguageOfTheBrowser(t *testing.T) {
	r := newRig(t, nil)
	for header, want := range map[string]string{"": "en", "de, zh;q=0.5": "zh-CN", "zh-TW": "zh-CN", "en-GB,zh": "en", "fr": "en"} {
		req := requestTo("/topics")
		req.Header.Set("Accept-Language", header)
		if a := r.do(req); !strings.Contains(a.text, `<html lang="`+want+`"`) {
			t.Errorf("Accept-Language %q is not answered in %s", header, want)
		}
	}
}

func TestNumbersInTexts(t *testing.T) {
	l := &language{texts: map[string]string{"n": "{0} message¦{0} messages"}}
	for n, want := range map[int64]string{0: "0 messages", 1: "1 message", 2: "2 messages", 1234567: "1,234,567 messages"} {
		if got := l.text("n", n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	if got := overview.Grouped(-1234); got != "-1,234" {
		t.Errorf("overview.Grouped(-1234) is %q", got)
	}
}
