package punctual_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
)

// Tests of the form of the code: what each package may import, and what its files may contain. They
// read the .go files themselves. A test that asked "go list" would pass from the test cache after a
// forbidden import had come in, because the cache does not see what a child process reads.

const modulePath = "github.com/punctualmq/punctual"

// rule is one row of the import table; the same table stands in ARCHITECTURE.md.
type rule struct {
	// ours are the packages of this module that the package may import; "." is the root.
	ours []string
	// outside are the modules beside the standard library.
	outside []string
}

// architecture says what each package may import. Imports lead one way: towards the root, which
// knows no store and no network. Each package has a row, and each row a package (checkPackages,
// TestArchitecturePageShowsTheTable).
var architecture = map[string]rule{
	".":                      {ours: []string{"limits", "internal/batch", "internal/cron"}},
	"limits":                 {},
	"event":                  {ours: []string{"."}},
	"schedule":               {ours: []string{"limits", ".", "storekit", "internal/cron", "schedule/internal/rule"}},
	"schedule/internal/rule": {ours: []string{"storekit", "internal/cron"}},
	"bulk":                   {ours: []string{".", "storekit"}},
	"reconcile":              {ours: []string{"limits", ".", "storekit"}},
	"worker":                 {ours: []string{"event", "limits", ".", "schedule", "storekit", "internal/batch", "internal/cron", "internal/duties"}},
	"duty":                   {ours: []string{"limits", ".", "schedule", "storekit", "internal/duties", "worker"}},
	"internal/duties":        {ours: []string{"limits", ".", "schedule", "storekit", "internal/batch", "internal/stalled"}},
	"storekit":               {ours: []string{"event", "limits", ".", "internal/settings"}, outside: []string{"github.com/oklog/ulid/v2"}},
	"storekit/lifecycle":     {ours: []string{"event", "limits", ".", "storekit"}},
	"memstore":               {ours: []string{"event", "limits", ".", "storekit", "storekit/lifecycle", "internal/heap"}},
	"diskstore": {
		ours: []string{
			"event", "limits",
			".", "storekit", "storekit/lifecycle", "diskstore/internal/claimlog", "diskstore/internal/database", "diskstore/internal/directory", "diskstore/internal/errkind",
			"diskstore/internal/examine", "diskstore/internal/failstop", "diskstore/internal/memory", "diskstore/internal/record",
			"diskstore/internal/topics", "diskstore/internal/writer", "internal/archive", "internal/heap",
		},
		outside: []string{"github.com/cockroachdb/pebble/v2"},
	},
	"redisstore":                     {ours: []string{"limits", ".", "storekit", "internal/tlsfile", "redisstore/internal/clock", "redisstore/internal/errkind", "redisstore/internal/health", "redisstore/internal/keys", "redisstore/internal/notify", "redisstore/internal/record", "redisstore/internal/route", "redisstore/internal/script", "redisstore/internal/topics", "redisstore/internal/wait"}, outside: []string{"github.com/redis/go-redis/v9"}},
	"redisstore/internal/clock":      {ours: []string{"storekit"}},
	"redisstore/internal/errkind":    {ours: []string{"."}, outside: []string{"github.com/redis/go-redis/v9"}},
	"redisstore/internal/health":     {ours: []string{".", "storekit", "redisstore/internal/clock", "redisstore/internal/errkind", "redisstore/internal/keys", "redisstore/internal/route", "redisstore/internal/script"}, outside: []string{"github.com/redis/go-redis/v9"}},
	"redisstore/internal/keys":       {ours: []string{"limits", ".", "storekit"}},
	"redisstore/internal/notify":     {ours: []string{"redisstore/internal/wait"}, outside: []string{"github.com/redis/go-redis/v9"}},
	"redisstore/internal/record":     {ours: []string{".", "storekit"}},
	"redisstore/internal/route":      {ours: []string{".", "redisstore/internal/clock", "redisstore/internal/errkind", "redisstore/internal/keys", "redisstore/internal/script", "redisstore/internal/wait"}, outside: []string{"github.com/redis/go-redis/v9"}},
	"redisstore/internal/script":     {ours: []string{".", "redisstore/internal/record"}},
	"redisstore/internal/topics":     {ours: []string{"limits", ".", "storekit", "redisstore/internal/clock", "redisstore/internal/errkind", "redisstore/internal/keys", "redisstore/internal/route", "redisstore/internal/script"}},
	"redisstore/internal/wait":       {ours: []string{".", "internal/heap"}},
	"pgstore":                        {ours: []string{"event", "limits", ".", "storekit", "storekit/lifecycle"}, outside: []string{"github.com/jackc/pgx/v5"}},
	"storetest":                      {ours: []string{"event", "limits", ".", "bulk", "storekit", "storetest/compare", "storetest/promise"}},
	"storetest/duties":               {ours: []string{"event", "limits", ".", "schedule", "bulk", "duty", "storekit", "internal/rigs/family", "storetest", "storetest/ledger", "storetest/promise", "worker"}},
	"storetest/compare":              {ours: []string{".", "storekit"}},
	"storetest/internal/mutants":     {ours: []string{"limits", ".", "storekit", "memstore", "storetest/promise"}},
	"storetest/ledger":               {ours: []string{"event", "limits", ".", "schedule", "storekit", "internal/rigs/seed", "storetest/compare", "storetest/promise", "worker"}},
	"storetest/promise":              {},
	"storetest/races":                {ours: []string{"storekit", "limits", ".", "storetest", "storetest/compare", "storetest/promise", "worker"}},
	"storetest/random":               {ours: []string{"event", "limits", ".", "storekit", "memstore", "storetest", "storetest/compare", "storetest/promise"}, outside: []string{"pgregory.net/rapid"}},
	"storetest/transitions":          {ours: []string{"event", ".", "storekit", "memstore"}},
	"punctualtest":                   {ours: []string{".", "schedule", "storekit", "memstore", "worker"}},
	"cmd/punctual/internal/cli/demo": {ours: []string{".", "schedule", "storekit", "worker", "cmd/punctual/internal/cli/term", "internal/notation"}, outside: []string{"github.com/jedib0t/go-pretty/v6"}},
	"cmd/punctual/internal/cli/term": {outside: []string{"github.com/jedib0t/go-pretty/v6", "golang.org/x/term"}},
	"cmd/punctual/internal/cli/top":  {ours: []string{".", "storekit", "cmd/punctual/internal/cli/term", "cmd/punctual/internal/cli/view", "internal/notation", "internal/overview", "internal/wire"}, outside: []string{"charm.land/bubbletea/v2", "github.com/jedib0t/go-pretty/v6"}},
	"cmd/punctual/internal/cli/view": {ours: []string{"storekit", ".", "internal/wire"}, outside: []string{"github.com/jedib0t/go-pretty/v6"}},
	"cmd/punctual/internal/cli": {
		ours: []string{
			"event", "limits",
			".", "schedule", "bulk", "storekit", "worker", "duty", "memstore", "diskstore", "redisstore", "pgstore", "cmd/punctual/internal/cli/demo", "cmd/punctual/internal/cli/term", "cmd/punctual/internal/cli/top", "cmd/punctual/internal/cli/view", "internal/cron", "internal/crontab", "internal/importer", "internal/notation", "internal/settings", "internal/stalled", "remotestore",
			"server", "access", "access/tokens", "audit", "sharedstore",
			"metrics/punctualprom", "internal/overview", "internal/slo", "internal/tlsfile", "internal/wire", "console",
		},
		outside: []string{
			"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/jedib0t/go-pretty/v6",
			"github.com/prometheus/client_golang", "go.yaml.in/yaml/v4", "github.com/coreos/go-systemd/v22",
		},
	},
	"metrics/punctualprom":     {ours: []string{"storekit", ".", "metrics/internal/reading"}, outside: []string{"github.com/prometheus/client_golang"}},
	"metrics/internal/reading": {ours: []string{"storekit", ".", "schedule", "internal/stalled"}},
	"internal/overview":        {ours: []string{"storekit", ".", "schedule", "bulk", "access", "internal/stalled"}},
	"internal/stalled":         {ours: []string{"storekit", ".", "schedule"}},
	"internal/consumers":       {ours: []string{"storekit", ".", "internal/heap"}},
	"internal/slo":             {ours: []string{".", "internal/notation"}, outside: []string{"github.com/prometheus/client_golang"}},
	"internal/tlsfile":         {ours: []string{".", "internal/refresh"}},
	"internal/refresh":         {},
	"access":                   {ours: []string{".", "storekit"}},
	"audit":                    {ours: []string{".", "access", "storekit"}},
	"access/tokens":            {ours: []string{".", "access", "storekit", "internal/refresh"}, outside: []string{"github.com/go-json-experiment/json"}},
	"internal/rigs/rights":     {ours: []string{"access", "access/tokens"}},
	"internal/httproute":       {},
	"internal/batch":           {},
	"internal/cron":            {},
	"internal/crontab":         {ours: []string{"internal/cron"}},
	"internal/heap":            {},
	"internal/archive":         {ours: []string{"storekit", "."}},
	"internal/notation":        {ours: []string{"limits", "."}},
	"internal/settings":        {ours: []string{"event", "limits", ".", "internal/notation"}},
	"server": {
		ours:    []string{"limits", ".", "schedule", "bulk", "access", "audit", "storekit", "internal/answers", "internal/batch", "internal/consumers", "internal/httproute", "internal/settings", "internal/stalled", "internal/wire"},
		outside: []string{"golang.org/x/time"},
	},
	"console": {ours: []string{"event", ".", "schedule", "bulk", "access", "audit", "storekit", "internal/consumers", "internal/cron", "internal/httproute", "internal/notation", "internal/overview", "internal/settings", "internal/wire"}},
	"internal/wire": {
		ours:    []string{"limits", ".", "schedule", "bulk", "storekit", "internal/cron", "internal/notation", "internal/settings", "internal/wire/compact"},
		outside: []string{"github.com/go-json-experiment/json", "google.golang.org/protobuf"},
	},
	"internal/wire/compact": {outside: []string{"google.golang.org/protobuf", "github.com/planetscale/vtprotobuf"}},
	"internal/importer":     {ours: []string{"limits", ".", "schedule", "storekit", "redisstore", "internal/cron", "internal/notation", "internal/wire"}, outside: []string{"github.com/redis/go-redis/v9", "github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql", "github.com/rabbitmq/amqp091-go", "google.golang.org/protobuf"}},
	"compat/beedelayqueue":  {ours: []string{"limits", ".", "storekit", "redisstore"}, outside: []string{"github.com/redis/go-redis/v9"}},
	"examples/notify":       {ours: []string{".", "worker", "diskstore"}},
	"cmd/punctual":          {ours: []string{"cmd/punctual/internal/cli"}},

	"internal/rigs/attributes": {ours: []string{"storekit"}},
	"internal/rigs/calls":      {ours: []string{"."}},
	"internal/rigs/hung":       {ours: []string{"."}},
	"internal/rigs/family":     {ours: []string{".", "storekit"}},
	"internal/rigs/clock":      {},
	"internal/rigs/net":        {},
	"internal/rigs/process":    {},
	"internal/rigs/seed":       {},
	"internal/rigs/redis":      {ours: []string{"internal/rigs/process", "internal/rigs/clock", "internal/rigs/net"}},
	"internal/rigs/rabbit":     {ours: []string{"internal/rigs/process"}, outside: []string{"github.com/rabbitmq/amqp091-go"}},
	"internal/rigs/mysql":      {ours: []string{"internal/rigs/process"}, outside: []string{"github.com/go-sql-driver/mysql"}},
	"internal/rigs/postgres":   {ours: []string{"internal/rigs/process", "internal/rigs/clock"}},

	"internal/answers":    {ours: []string{".", "storekit"}},
	"internal/unixsocket": {ours: []string{"."}},
	"sharedstore":         {ours: []string{"storekit", ".", "diskstore", "internal/archive", "internal/unixsocket", "remotestore", "server"}},
	"remotestore":         {ours: []string{"event", "limits", ".", "storekit", "internal/archive", "internal/unixsocket", "internal/wire"}},

	"diskstore/internal/claimlog": {
		ours:    []string{"limits", ".", "storekit", "diskstore/internal/errkind", "diskstore/internal/failstop", "diskstore/internal/record"},
		outside: []string{"github.com/cockroachdb/pebble/v2"},
	},
	"diskstore/internal/database": {
		ours:    []string{".", "storekit", "diskstore/internal/errkind", "diskstore/internal/failstop", "diskstore/internal/record"},
		outside: []string{"github.com/cockroachdb/pebble/v2"},
	},
	"diskstore/internal/directory": {
		ours:    []string{".", "diskstore/internal/errkind", "diskstore/internal/failstop"},
		outside: []string{"github.com/cockroachdb/pebble/v2"},
	},
	"diskstore/internal/errkind": {ours: []string{"."}, outside: []string{"github.com/cockroachdb/pebble/v2"}},
	"diskstore/internal/examine": {
		ours: []string{
			".", "storekit", "diskstore/internal/claimlog", "diskstore/internal/database", "diskstore/internal/directory",
			"diskstore/internal/errkind", "diskstore/internal/failstop",
		},
		outside: []string{"github.com/cockroachdb/pebble/v2"},
	},
	"diskstore/internal/failstop": {ours: []string{".", "diskstore/internal/errkind"}, outside: []string{"github.com/cockroachdb/pebble/v2"}},
	"diskstore/internal/memory":   {ours: []string{".", "storekit", "storekit/lifecycle", "diskstore/internal/record", "internal/heap"}},
	"diskstore/internal/record":   {ours: []string{".", "storekit", "storekit/lifecycle", "diskstore/internal/errkind"}},
	"diskstore/internal/topics":   {ours: []string{".", "storekit", "diskstore/internal/database", "diskstore/internal/memory"}},
	"diskstore/internal/writer": {
		ours: []string{
			"event",
			".", "storekit", "storekit/lifecycle", "diskstore/internal/database", "diskstore/internal/errkind", "diskstore/internal/failstop",
			"diskstore/internal/memory", "diskstore/internal/record", "diskstore/internal/topics",
		},
		outside: []string{"github.com/cockroachdb/pebble/v2"},
	},
}

// testModules may be imported by every package's tests, beside what its row names. Of ours
// a test may import anything; the compiler refuses cycles.
var testModules = []string{"pgregory.net/rapid", "go.uber.org/goleak", "github.com/creack/pty"}

// drawers are names that no package may have, because they say nothing of what is inside.
var drawers = []string{"util", "utils", "common", "base", "helper", "helpers", "misc"}

func TestArchitecture(t *testing.T) {
	sources, err := ownSources()
	if err != nil {
		t.Fatal(err)
	}
	if len(sources) == 0 {
		t.Fatal("no Go files found")
	}
	for _, complaint := range slices.Concat(checkSources(sources, architecture), checkUse(sources, architecture), checkEmbedding(sources)) {
		t.Error(complaint)
	}
}

// source is one parsed Go file.
type source struct {
	path string // slash-separated, from the root of the module
	text []byte
	ast  *ast.File
	fset *token.FileSet
}

func (s source) dir() string  { return path.Dir(s.path) }
func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// isGenerated says that a program writes the file, so nobody maintains it by hand.
func (s source) isGenerated() bool { return strings.HasSuffix(s.path, ".pb.go") }

func (s source) line(p token.Pos) string {
	return fmt.Sprintf("%s:%d", s.path, s.fset.Position(p).Line)
}

// ownSources are the Go files of this module. They are parsed once for all tests, which only read
// them.
var ownSources = sync.OnceValues(func() ([]source, error) { return readSources(os.DirFS(".")) })

// readSources parses the Go files of the module rooted in fsys: not those of modules inside
// it, nor folders that the go command ignores.
func readSources(fsys fs.FS) ([]source, error) {
	var sources []source
	fset := token.NewFileSet()
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && ignoredDir(fsys, name) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		sources = append(sources, source{path: name, text: text, ast: file, fset: fset})
		return nil
	})
	return sources, err
}

func ignoredDir(fsys fs.FS, name string) bool {
	base := path.Base(name)
	if base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return true
	}
	_, err := fs.Stat(fsys, path.Join(name, "go.mod"))
	return err == nil
}

// checkSources returns a sentence for each rule broken: first by the files, in their order, and
// then by the packages.
func checkSources(sources []source, table map[string]rule) []string {
	var complaints []string
	for _, s := range sources {
		complaints = append(complaints, checkImports(s, table)...)
		if !s.isTest() && !s.isGenerated() {
			complaints = append(complaints, checkForm(s)...)
		}
	}
	return append(complaints, checkPackages(sources, table)...)
}

// checkImports holds one file to the import table.
func checkImports(s source, table map[string]rule) []string {
	allowed, inTable := table[s.dir()]
	if !inTable {
		return nil // checkPackages complains about the package, once
	}
	var complaints []string
	for _, spec := range s.ast.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			target = spec.Path.Value
		}
		if problem := importProblem(s, target, allowed); problem != "" {
			complaints = append(complaints, s.line(spec.Pos())+": "+problem)
		}
	}
	return complaints
}

func importProblem(s source, target string, allowed rule) string {
	if target == "C" {
		return `import "C" is not allowed: the command is one static binary, built without cgo`
	}
	if target == modulePath || strings.HasPrefix(target, modulePath+"/") {
		ours := path.Clean(strings.TrimPrefix(strings.TrimPrefix(target, modulePath), "/"))
		if s.isTest() || slices.Contains(allowed.ours, ours) {
			return ""
		}
		return fmt.Sprintf("package %s must not import %s: turn the dependency round or move the code; "+
			"if the arrow is right, change the table in arch_test.go and ARCHITECTURE.md", s.dir(), ours)
	}
	if first, _, _ := strings.Cut(target, "/"); !strings.Contains(first, ".") {
		return "" // standard library
	}
	modules := allowed.outside
	if s.isTest() {
		modules = slices.Concat(modules, testModules)
	}
	if moduleOf(target, modules) != "" {
		return ""
	}
	return fmt.Sprintf("package %s must not import %s: use the standard library; "+
		"if the dependency is worth it, give its reason in docs/dependencies.md and add it to the table in arch_test.go", s.dir(), target)
}

// checkUse returns a sentence for each module that a row allows and no file of its
// package imports.
func checkUse(sources []source, table map[string]rule) []string {
	unused := map[string][]string{}
	for _, s := range sources {
		if _, seen := unused[s.dir()]; !seen {
			unused[s.dir()] = slices.Clone(table[s.dir()].outside)
		}
		for _, spec := range s.ast.Imports {
			used := moduleOf(strings.Trim(spec.Path.Value, `"`), unused[s.dir()])
			unused[s.dir()] = slices.DeleteFunc(unused[s.dir()], func(m string) bool { return m == used })
		}
	}
	var complaints []string
	for _, dir := range slices.Sorted(maps.Keys(unused)) {
		for _, m := range unused[dir] {
			complaints = append(complaints, fmt.Sprintf("package %s may import %s but does not: take it out of the table in arch_test.go and ARCHITECTURE.md", dir, m))
		}
	}
	return complaints
}

// moduleOf returns the module of the list that the import path lies in, or "".
func moduleOf(target string, modules []string) string {
	for _, m := range modules {
		if target == m || strings.HasPrefix(target, m+"/") {
			return m
		}
	}
	return ""
}

// checkForm returns a sentence for each func init and each TODO of a file, which only tests may
// have.
func checkForm(s source) []string {
	var complaints []string
	for _, decl := range s.ast.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			complaints = append(complaints, s.line(f.Pos())+": func init hides what happens when: call it from where it is needed")
		}
	}
	for i, line := range bytes.Split(s.text, []byte("\n")) {
		if bytes.Contains(line, []byte("TODO")) {
			complaints = append(complaints, fmt.Sprintf("%s:%d: do it now, or write an issue and say in the comment what is so today", s.path, i+1))
		}
	}
	return complaints
}

// checkEmbedding returns a sentence for each struct outside tests that embeds a store: an interface
// of stores, another interface that embeds one, or a type of another package that is a store
// itself. A wrapper that embeds the store below it would hand on a method that Store gets later,
// without the panic recovery, the key or the count that are its purpose. The stores of package
// mutants may, because each is memstore with one bug, for tests of the suite alone.
func checkEmbedding(sources []source) []string {
	ts := typesOf(sources)
	ofStores := ts.storeInterfaces()
	var complaints []string
	for _, s := range sources {
		if s.isTest() || s.dir() == "storetest/internal/mutants" {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			form, ok := n.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range form.Fields.List {
				name := ts.nameOf(s, field.Type)
				_, isStore := ofStores[name]
				if _, typed := ts.specs[name]; typed && ts.in[name].dir() != s.dir() {
					isStore = isStore || len(ts.missing(name, ofStores["Store"])) == 0
				}
				if isStore && len(field.Names) == 0 {
					complaints = append(complaints, fmt.Sprintf("%s: a struct embeds %s: make it a named field and write the methods, "+
						"so that a method that comes later does not pass the wrapper unseen", s.line(field.Pos()), name))
				}
			}
			return true
		})
	}
	return complaints
}

// checkPackages returns a sentence for each package that has no row in the table, a name that says
// nothing, or no package comment.
func checkPackages(sources []source, table map[string]rule) []string {
	type pkg struct{ name, comment string }
	packages := map[string]*pkg{}
	for _, s := range sources {
		if s.isTest() {
			continue
		}
		p := packages[s.dir()]
		if p == nil {
			p = &pkg{name: s.ast.Name.Name}
			packages[s.dir()] = p
		}
		if s.ast.Doc != nil {
			p.comment = s.ast.Doc.Text()
		}
	}
	var complaints []string
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		p := packages[dir]
		if _, ok := table[dir]; !ok {
			complaints = append(complaints, fmt.Sprintf("package %s is not in the import table: "+
				"decide what it may import and add its row in arch_test.go and ARCHITECTURE.md", dir))
		}
		if slices.Contains(drawers, p.name) || slices.Contains(drawers, path.Base(dir)) {
			complaints = append(complaints, fmt.Sprintf("package %s: name it for what is inside", dir))
		}
		if want := commentStart(p.name); !strings.HasPrefix(p.comment, want) {
			complaints = append(complaints, fmt.Sprintf("package %s has no package comment: say what it is for, beginning with %q", dir, want))
		}
	}
	return complaints
}

func commentStart(pkg string) string {
	if pkg == "main" {
		return "Command "
	}
	return "Package " + pkg + " "
}

// The checks of checkSources on made-up modules: each must be able to fail, and must let the right
// thing pass.
func TestArchitectureChecks(t *testing.T) {
	table := map[string]rule{
		".":     {outside: []string{"example.org/id/v2"}},
		"store": {ours: []string{"."}},
		"cmd/x": {ours: []string{"store"}},
	}
	const (
		root  = "// Package root is the root.\npackage root\n"
		store = "// Package store stores.\npackage store\n"
	)
	cases := map[string]struct {
		files map[string]string
		want  string // part of the only complaint; empty for none
	}{
		"a sound module": {files: map[string]string{
			"root.go":        root + `import ("fmt"; "example.org/id/v2"; _ "example.org/id/v2/sub")`,
			"root_test.go":   "package root_test\n" + `import (_ "` + modulePath + `/store"; _ "pgregory.net/rapid")` + "\nfunc init() {} // TODO",
			"store/store.go": store + `import _ "` + modulePath + `"`,
			"cmd/x/main.go":  "// Command x runs.\npackage main\n" + `import _ "` + modulePath + `/store"`,
		}},
		"an arrow the wrong way": {
			files: map[string]string{"root.go": root + `import _ "` + modulePath + `/store"`},
			want:  "root.go:3: package . must not import store",
		},
		"an arrow past a layer": {
			files: map[string]string{"cmd/x/main.go": "// Command x runs.\npackage main\n" + `import _ "` + modulePath + `"`},
			want:  "package cmd/x must not import .",
		},
		"a module from outside": {
			files: map[string]string{"store/store.go": store + `import _ "example.org/id/v2"`},
			want:  "package store must not import example.org/id/v2: use the standard library",
		},
		"a module whose name only begins alike": {
			files: map[string]string{"root.go": root + `import _ "example.org/id/v2extra"`},
			want:  "must not import example.org/id/v2extra",
		},
		"a module from outside in a test": {
			files: map[string]string{"root_test.go": "package root\n" + `import _ "example.org/assert"`},
			want:  "must not import example.org/assert",
		},
		"a test library in the code": {
			files: map[string]string{"root.go": root + `import _ "pgregory.net/rapid"`},
			want:  "must not import pgregory.net/rapid",
		},
		"cgo": {
			files: map[string]string{"root.go": root + `import "C"`},
			want:  `import "C" is not allowed`,
		},
		"a package without a row": {
			files: map[string]string{"new/new.go": "// Package new is new.\npackage new\n"},
			want:  "package new is not in the import table",
		},
		"a drawer": {
			files: map[string]string{"store/store.go": "// Package util is a drawer.\npackage util\n"},
			want:  "package store: name it for what is inside",
		},
		"an init": {
			files: map[string]string{"root.go": root + "func init() {}"},
			want:  "root.go:3: func init hides",
		},
		"a method called init": {
			files: map[string]string{"root.go": root + "type t int\nfunc (t) init() {}"},
		},
		"something left to do": {
			files: map[string]string{"root.go": root + "// TODO: the rest\n"},
			want:  "root.go:3: do it now",
		},
		"no package comment": {
			files: map[string]string{"root.go": "package root\n"},
			want:  `no package comment: say what it is for, beginning with "Package root "`,
		},
		"a package comment in one of two files": {
			files: map[string]string{"a.go": root, "b.go": "package root\n"},
		},
		"folders that the go command ignores": {files: map[string]string{
			"testdata/x.go":    "package util\n",
			"_old/x.go":        "package util\n",
			".hidden/x.go":     "package util\n",
			"bench/go.mod":     "module bench\n",
			"bench/x.go":       "package util\n",
			"bench/deep/in.go": "package util\n",
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for file, text := range c.files {
				fsys[file] = &fstest.MapFile{Data: []byte(text)}
			}
			sources, err := readSources(fsys)
			if err != nil {
				t.Fatal(err)
			}
			got := checkSources(sources, table)
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("complaints about a sound module: %q", got)
			case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)):
				t.Errorf("complaints %q, want one containing %q", got, c.want)
			}
		})
	}
}

func TestArchitectureNoticesUnusedModules(t *testing.T) {
	table := map[string]rule{
		".":     {outside: []string{"example.org/id/v2", "example.org/old"}},
		"later": {outside: []string{"example.org/later"}}, // there is no such package yet
	}
	sources, err := readSources(fstest.MapFS{
		"root.go": {Data: []byte("// Package root is the root.\npackage root\n" + `import _ "example.org/id/v2/sub"`)},
		"more.go": {Data: []byte("package root\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := checkUse(sources, table)
	if len(got) != 1 || !strings.Contains(got[0], "package . may import example.org/old but does not") {
		t.Errorf("complaints %q, want one about example.org/old", got)
	}
}

// TestRandomTestsHaveASeed fails for each random number in tests, and in the suite in storetest,
// that comes from no seed or from the time, because a random test that fails once and cannot be
// repeated helps nobody.
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

// unseeded returns a sentence for each place of a file that draws random numbers which no seed
// repeats: by the functions of the package, or by a generator that begins with the time.
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
