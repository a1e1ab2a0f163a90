package console

import (
	"embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/punctualmq/punctual/internal/overview"
)

//go:embed lang/*.json
var languageFiles embed.FS

// language is a catalogue: the texts of all pages in one language.
type language struct {
	// code is the value of HTML's attribute lang: "en", "zh-CN".
	code string
	// name is what the language calls itself.
	name  string
	texts map[string]string
}

// readLanguages returns the languages. The first one is for readers whose browser asks for none of
// them.
func readLanguages() ([]*language, error) {
	all := []*language{{code: "en", name: "English"}, {code: "zh-CN", name: "简体中文"}}
	for _, l := range all {
		data, err := languageFiles.ReadFile("lang/" + l.code + ".json")
		if err != nil {
			return nil, fmt.Errorf("read language %s: %w", l.code, err)
		}
		if err := json.Unmarshal(data, &l.texts); err != nil {
			return nil, fmt.Errorf("read language %s: %w", l.code, err)
		}
	}
	return all, nil
}

// text returns the text for a key, with {0}, {1} and so on replaced by the arguments. Where the
// catalogue has two texts with ¦ between them, the first is for a first argument of 1, the second
// for all others. An unknown key is returned in brackets, so that a test finds it.
func (l *language) text(key string, args ...any) string {
	text, ok := l.texts[key]
	if !ok {
		return "[" + key + "]"
	}
	if one, many, ok := strings.Cut(text, "¦"); ok {
		text = many
		if len(args) > 0 && fmt.Sprint(args[0]) == "1" {
			text = one
		}
	}
	for i, a := range args {
		text = strings.ReplaceAll(text, "{"+strconv.Itoa(i)+"}", shown(a))
	}
	return text
}

// shown writes an argument of a text: int and int64 with separators between their thousands,
// everything else as fmt.Sprint does.
func shown(a any) string {
	switch a := a.(type) {
	case int:
		return overview.Grouped(int64(a))
	case int64:
		return overview.Grouped(a)
	}
	return fmt.Sprint(a)
}
