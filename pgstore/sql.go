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

// statements are the SQL texts for one schema, by the names of their files. The lists whose names
// end in _back have no file, because loadStatements makes them from others. Neither have those that
// are another file with other lines: four of claim.sql, and push_keyed, push_new_keyed,
// replace_keyed and ack_keyed for topics with keys.
type statements map[string]string

// fragments are the files that stand in others, those first that have others in them. Of these
// clock and named are statements as well.
var fragments = []string{"turns", "info", "insert", "insert_keyed", "waits", "waiting", "keyed_due", "look", "lost", "key_full", "held_place", "clock", "finished_columns", "line", "must_end", "named", "purgeable", "row"}

// loadStatements reads the statements. In the files the schema is "punctual", and a name between
// colons, such as :clock:, stands for the text of another file.
func loadStatements(schema string) statements {
	all := make(statements)
	names, err := fs.Glob(files, "sql/*.sql")
	if err != nil || len(names) == 0 {
		panic(fmt.Sprintf("pgstore: the embedded statements cannot be listed: %v", err))
	}
	for _, file := range names {
		all[strings.TrimSuffix(path.Base(file), ".sql")] = inSchema(mustRead(file, "bounded", "named", "keyed"), schema)
	}
	for name, except := range map[string][]string{
		"claim_bounded": {"free", "named", "keyed"}, "claim_named": {"bounded", "next", "keyed"}, "claim_bounded_named": {"free", "next", "keyed"}, "claim_keyed": {"free", "next", "unkeyed"},
	} {
		all[name] = inSchema(mustRead("sql/claim.sql", except...), schema)
	}
	for _, name := range []string{"push", "push_new", "insert", "replace", "ack"} {
		all[name+"_keyed"] = inSchema(mustRead("sql/"+name+".sql", "free"), schema)
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
// not for the server's log, and without the lines whose comment has one of except as a word.
func mustRead(file string, except ...string) string {
	text, err := files.ReadFile(file)
	if err != nil {
		panic("pgstore: " + err.Error()) // it was embedded by the compiler
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		code, comment, _ := strings.Cut(line, "--")
		in := func(word string) bool { return slices.Contains(except, word) }
		if strings.TrimSpace(code) != "" && !slices.ContainsFunc(strings.Fields(comment), in) {
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
