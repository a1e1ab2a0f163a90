package pgstore

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/*.sql migrations/*.sql
var files embed.FS

// statements are the SQL texts for one schema, by the names of their files. The lists whose
// names end in _back have no file, because loadStatements makes them from others. Neither have
// claim_bounded, claim_named and claim_bounded_named, which are claim.sql with other lines.
type statements map[string]string

// fragments are the files that stand in others. Of these clock and named are statements as well.
var fragments = []string{"clock", "info", "finished_columns", "insert", "line", "must_end", "named", "purgeable", "row"}

// loadStatements reads the statements. In the files the schema is "punctual", and a name between
// colons, such as :clock:, stands for the text of another file.
func loadStatements(schema string) statements {
	all := make(statements)
	names, err := fs.Glob(files, "sql/*.sql")
	if err != nil || len(names) == 0 {
		panic(fmt.Sprintf("pgstore: the embedded statements cannot be listed: %v", err))
	}
	for _, file := range names {
		all[strings.TrimSuffix(path.Base(file), ".sql")] = inSchema(mustRead(file, "bounded", "named"), schema)
	}
	for name, except := range map[string][]string{"claim_bounded": {"free", "named"}, "claim_named": {"bounded", "next"}, "claim_bounded_named": {"free", "next"}} {
		all[name] = inSchema(mustRead("sql/claim.sql", except...), schema)
	}
	for name, text := range all {
		for _, part := range fragments {
			text = strings.ReplaceAll(text, ":"+part+":", all[part])
		}
		all[name] = text
	}
	for _, name := range []string{"list_scheduled", "list_ready", "list_leased", "list_dead", "list_dead_reason", "list_finished"} {
		all[name+"_back"] = backwards(all[name])
	}
	return all
}

// mustRead reads an embedded file without its comments, which are for people who read the file and
// not for the server's log, and without the lines whose comment begins or ends with one of except.
func mustRead(file string, except ...string) string {
	text, err := files.ReadFile(file)
	if err != nil {
		panic("pgstore: " + err.Error()) // it was embedded by the compiler
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		code, comment, _ := strings.Cut(line, "--")
		first, last, _ := strings.Cut(strings.TrimSpace(comment), " ")
		if strings.TrimSpace(code) != "" && !slices.Contains(except, first) && !slices.Contains(except, last) {
			lines = append(lines, strings.TrimRight(code, " \n"))
		}
	}
	return strings.Join(lines, "\n")
}

// backwards returns the statement that reads a list from its end. It relies on the form of these
// statements: the place after which to go on is the only thing compared as a row, and each ORDER BY
// to turn around stands at the beginning of a line and names columns alone.
func backwards(list string) string {
	list = strings.ReplaceAll(list, "m.id) > ($7", "m.id) < ($7")
	lines := strings.Split(list, "\n")
	for i, line := range lines {
		if columns, ok := strings.CutPrefix(line, "ORDER BY "); ok {
			lines[i] = "ORDER BY " + strings.ReplaceAll(columns, ",", " DESC,") + " DESC"
		}
	}
	return strings.Join(lines, "\n")
}

func inSchema(text, schema string) string {
	return strings.ReplaceAll(text, "punctual.", pgx.Identifier{schema}.Sanitize()+".")
}

// text returns a statement. It panics if there is none of that name, because that is a bug.
func (s statements) text(name string) string {
	text, ok := s[name]
	if !ok {
		panic("pgstore: there is no sql/" + name + ".sql")
	}
	return text
}
