package pgstore

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// sqlTokens matches the tokens of an SQL text: strings, words and numbers, operators, and single
// other characters.
var sqlTokens = regexp.MustCompile(`'(?:[^']|'')*'|"[^"]*"|[\w$.]+|::|[<>=!|&#~+\-*/%^]+|\S`)

// PostgreSQL reads the operators in sqlBits, and ||, from left to right with one precedence, unlike
// Go and C. The others in sqlSums bind tighter.
var (
	sqlBits = map[string]bool{"<<": true, ">>": true, "|": true, "&": true, "#": true}
	sqlSums = map[string]bool{"+": true, "-": true, "*": true, "/": true, "%": true, "||": true}
	// sqlEnds matches the tokens with which another expression begins.
	sqlEnds = regexp.MustCompile(`(?i)^([,;=<>]|<=|>=|<>|AND|OR|NOT|SELECT|FROM|WHERE|WHEN|THEN|ELSE|END|CASE|AS|ON|SET|BY|IS|IN|BETWEEN|VALUES|USING)$`)
)

// mixedOperators returns the first two different operators that stand beside each other without
// parentheses, if one of them is an operator of bits. It returns "" when there are none.
func mixedOperators(text string) string {
	levels := []string{""} // the last operator in each pair of parentheses that is open
	for _, token := range sqlTokens.FindAllString(text, -1) {
		top := &levels[len(levels)-1]
		switch {
		case token == "(" || token == "[":
			levels = append(levels, "")
		case token == ")" || token == "]":
			levels = levels[:len(levels)-1]
		case sqlEnds.MatchString(token):
			*top = ""
		case sqlBits[token] || sqlSums[token]:
			if *top != "" && *top != token && (sqlBits[token] || sqlBits[*top]) {
				return *top + " beside " + token
			}
			*top = token
		}
	}
	return ""
}

// P4: to PostgreSQL `epoch << 52 | number << 12` means `((epoch << 52) | number) << 12`, which once
// shifted the epoch out of each token. No statement mixes such operators without parentheses.
func TestOperatorsHaveParentheses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"SELECT a << 52 | b":                          true,
		"SELECT (a << 52) | b << 12":                  true,
		"SELECT 1 << 2 + 3":                           true,
		"SELECT a & b # c":                            true,
		"SELECT f(a >> 1 & 1)":                        true,
		"SELECT (a << 52) | (b << 12) | c":            false,
		"SELECT a >> 52 > b AND (a >> 12) & 3 > b":    false,
		"SELECT a >> 52, b & 1, 'x' || c || '<< | &'": false,
		"SELECT CASE WHEN a & 1 = 0 THEN b << 1 END":  false,
	} {
		if got := mixedOperators(text); (got != "") != want {
			t.Errorf("%s: mixed %q, want %v", text, got, want)
		}
	}
	seen := 0
	for _, pattern := range []string{"sql/*.sql", "migrations/*.sql"} {
		names, err := fs.Glob(files, pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text := mustRead(name)
			seen += strings.Count(text, "<<")
			if mixed := mixedOperators(text); mixed != "" {
				t.Errorf("%s: %s without parentheses: PostgreSQL reads them from left to right", name, mixed)
			}
		}
	}
	if seen == 0 {
		t.Error("this test shows nothing: no statement shifts bits")
	}
}

// Changes that skip locked messages lock theirs by lock_free.sql, and those that wait by lock.sql.
// The two statements read the same, because they differ in SKIP LOCKED alone.
func TestLocksReadTheSame(t *testing.T) {
	t.Parallel()
	all := loadStatements("s")
	lock, free := all.text("lock"), all.text("lock_free")
	if strings.Contains(strings.ReplaceAll(lock, "::", ""), ":") {
		t.Errorf("a part of lock.sql is not included: %s", lock)
	}
	if strings.Replace(free, " SKIP LOCKED", "", 1) != lock || lock == free {
		t.Errorf("lock_free.sql is %s; want lock.sql with SKIP LOCKED, which is %s", free, lock)
	}
}
