package punctual_test

import (
	"errors"
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	"unicode"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// storeTable says for every store outside tests, and every interface that a store may have beside
// Store, what punctual.As finds:
//
//	own     the store has the methods itself
//	shown   it is a wrapper with an Unwrap, so what the store below is counts
//	hidden  it is a wrapper without an Unwrap, and no more than a Store for this interface
//	-       it is no wrapper, and does not have it
//
// TestStoresAndTheirInterfaces reads the interfaces and the stores from the source. So whoever adds
// an interface has to decide for each wrapper, and whoever adds a wrapper for each interface. In
// sharedstore.Store the consumers come from the server of the process that owns the directory.
const storeTable = `
                        Inspector storekit.Checker storekit.Examiner FinishedKeeper storekit.Backuper storekit.DurabilityReporter storekit.SpaceReporter storekit.ConsumerReporter storekit.Surveyor storekit.AbilityReporter storekit.TopicNamer storekit.Repeater storekit.Reacher storekit.ClockKeeper

memstore.Store          own       own     own      own            -        own                -             -                -        own             own        -              -  own
diskstore.Store         own       own     own      own            own      own                own           -                -        own             own        -              -  own
redisstore.Store        own       own     own      own            -        own                -             -                -        own             own        own            own  own
pgstore.Store           own       own     own      own            -        own                -             -                own      own             own        -              -  own
remotestore.Store       own       own     own      own            own      own                own           own              -        own             own        own            -  own
sharedstore.Store       own       own     own      own            own      own                own           own              -        own             own        -              -  own

server.storeCalls       hidden    hidden  hidden   hidden         hidden   hidden             hidden        hidden           hidden   hidden          hidden     hidden         hidden  hidden
internal/answers.Store  hidden    hidden  hidden   hidden         hidden   hidden             hidden        hidden           hidden   hidden          hidden     own            hidden  hidden
cmd/punctual/internal/cli.named shown shown shown shown          shown    shown              shown         shown            shown    shown           shown      shown          shown  shown

internal/rigs/hung.Store  hidden  hidden  hidden   hidden         hidden   hidden             hidden        hidden           hidden   hidden          hidden     hidden         hidden  hidden
internal/rigs/family.Store shown  shown  shown    shown          shown    shown              shown         shown            shown    own             shown      shown           own  shown
internal/rigs/calls.Store -       -       -        -              -        -                  -             -                -        -               -          -              -  -
storetest/races.raceStore hidden    hidden  hidden   hidden         hidden   hidden             hidden        hidden           hidden   hidden          hidden     hidden         hidden  hidden
storetest/ledger.Recorder own       shown   shown    shown          shown    shown              shown         shown            shown    shown           shown      shown          shown  shown
storetest/duties.lossy     shown    shown   shown    shown          shown    shown              shown         shown            shown    shown           shown      shown           shown  shown
storetest/duties.standing  shown    shown   shown    shown          shown    shown              shown         shown            shown    shown           shown      shown           shown  shown
storetest/duties.stopping  shown    shown   shown    shown          shown    shown              shown         shown            shown    shown           shown      shown           shown  shown
`

// notOfStores are the exported interfaces of the root and of storekit that a user implements and no
// store has. Any other exported interface there that has an exported method and no type parameter
// counts as one of stores.
var notOfStores = []string{"Handler", "Codec", "storekit.Clock"}

func TestStoresAndTheirInterfaces(t *testing.T) {
	sources, err := ownSources()
	if err != nil {
		t.Fatal(err)
	}
	for _, complaint := range checkStores(sources, storeTable) {
		t.Error(complaint)
	}
}

// CONTRIBUTING.md names all optional interfaces of stores in its section for those who write a
// store.
func TestContributingNamesInterfaces(t *testing.T) {
	_, section, _ := strings.Cut(readText(t, "CONTRIBUTING.md"), "## Add a store")
	section, _, _ = strings.Cut(section, "\n## ")
	columns, _ := readTable(storeTable)
	if len(columns) < 12 {
		t.Fatalf("storeTable has %d interfaces, so this test shows little", len(columns))
	}
	for _, name := range columns {
		if !strings.Contains(section, "`"+name+"`") {
			t.Errorf("CONTRIBUTING.md, Add a store, does not name the interface %s", name)
		}
	}
}

// checkStores compares the table with the stores and interfaces in the source. For each wrapper it
// asks for a test that hands every method of Store on.
func checkStores(sources []source, table string) []string {
	ts := typesOf(sources)
	ofStores := ts.storeInterfaces()
	columns, rows := readTable(table)
	var complaints []string
	complain := func(format string, args ...any) {
		complaints = append(complaints, fmt.Sprintf(format, args...))
	}
	for _, name := range slices.Sorted(maps.Keys(ofStores)) {
		if ts.exported(name) && name != "Store" && !slices.Contains(columns, name) {
			complain("interface %s has no column in storeTable: decide for each store whether it has it, and for each wrapper whether it shows it "+
				"(or list it in notOfStores)", name)
		}
	}
	for _, column := range columns {
		if _, ok := ofStores[column]; !ok {
			complain("column %s of storeTable is no interface of stores any more", column)
		}
	}
	var found []string
	for _, name := range slices.Sorted(maps.Keys(ts.specs)) {
		if ts.isInterface(name) || len(ts.missing(name, ofStores["Store"])) > 0 {
			continue
		}
		found = append(found, name)
		wraps := ts.wraps(name, ofStores)
		if test := passTest(name); wraps && !ts.tests[test] {
			complain("wrapper %s has no test %s that calls calls.PassOn: write it, so that no call gets lost in it", name, test)
		}
		row, ok := rows[name]
		if !ok {
			complain("store %s has no row in storeTable: decide what it shows", name)
			continue
		}
		if len(row) != len(columns) {
			complain("the row of %s in storeTable has %d cells, and there are %d columns", name, len(row), len(columns))
			continue
		}
		for i, column := range columns {
			methods, known := ofStores[column]
			if got := ts.place(name, methods, wraps); known && got != row[i] {
				complain("%s and %s: the source says %q, storeTable %q", name, column, got, row[i])
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		if !slices.Contains(found, name) {
			complain("row %s of storeTable is no store any more", name)
		}
	}
	return complaints
}

// readTable returns the columns of a table and its rows by the name of the store.
func readTable(table string) (columns []string, rows map[string][]string) {
	rows = make(map[string][]string)
	for line := range strings.Lines(table) {
		switch cells := strings.Fields(line); {
		case len(cells) == 0:
		case columns == nil:
			columns = cells
		default:
			rows[cells[0]] = cells[1:]
		}
	}
	return columns, rows
}

// passTest names the test of a wrapper: "server.TestStoreCallsPassesCallsOn" for server.storeCalls.
func passTest(name string) string {
	dir, short, _ := strings.Cut(path.Base(name), ".")
	first, rest := short[:1], short[1:]
	return path.Join(path.Dir(name), dir) + ".Test" + strings.ToUpper(first) + rest + "PassesCallsOn"
}

// types are the declared types of the module. A type is named by its folder and its own name,
// "server.storeCalls"; those of the root have no folder, and so "Store" is punctual.Store.
type types struct {
	specs   map[string]*ast.TypeSpec
	in      map[string]source
	methods map[string][]string // of a type that is no interface, without those of what it embeds
	tests   map[string]bool     // the tests that call calls.PassOn, by folder and name
}

func typesOf(sources []source) types {
	ts := types{make(map[string]*ast.TypeSpec), make(map[string]source), make(map[string][]string), make(map[string]bool)}
	for _, s := range sources {
		for _, decl := range s.ast.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				switch {
				case s.isTest() && d.Recv == nil && callsPassOn(d):
					ts.tests[nameIn(s, d.Name.Name)] = true
				case !s.isTest() && d.Recv != nil:
					name := ts.nameOf(s, d.Recv.List[0].Type)
					ts.methods[name] = append(ts.methods[name], d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok && !s.isTest() {
						ts.specs[nameIn(s, spec.Name.Name)], ts.in[nameIn(s, spec.Name.Name)] = spec, s
					}
				}
			}
		}
	}
	return ts
}

func callsPassOn(d *ast.FuncDecl) (found bool) {
	ast.Inspect(d, func(n ast.Node) bool {
		if f, ok := n.(*ast.SelectorExpr); ok && f.Sel.Name == "PassOn" {
			found = true
		}
		return !found
	})
	return found
}

// nameIn is the name of a type or test that the package of the file declares.
func nameIn(s source, name string) string {
	if s.dir() == "." {
		return name
	}
	return s.dir() + "." + name
}

// nameOf is the name of a type as the file writes it, also of a pointer to it, or "" when it is not
// of this module.
func (ts types) nameOf(s source, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return ts.nameOf(s, e.X)
	case *ast.IndexExpr: // with a type argument
		return ts.nameOf(s, e.X)
	case *ast.IndexListExpr:
		return ts.nameOf(s, e.X)
	case *ast.Ident:
		return nameIn(s, e.Name)
	case *ast.SelectorExpr:
		of, ok := e.X.(*ast.Ident)
		if !ok {
			return ""
		}
		for _, spec := range s.ast.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			inside, ours := strings.CutPrefix(target, modulePath)
			local := path.Base(target)
			if spec.Name != nil {
				local = spec.Name.Name
			}
			if err != nil || !ours || local != of.Name {
				continue
			}
			if inside == "" {
				return e.Sel.Name
			}
			return strings.TrimPrefix(inside, "/") + "." + e.Sel.Name
		}
	}
	return ""
}

// exported reports whether the root or storekit exports the type.
func (ts types) exported(name string) bool {
	return unicode.IsUpper(rune(ts.specs[name].Name.Name[0])) && (ts.in[name].dir() == "." || ts.in[name].dir() == "storekit")
}

func (ts types) isInterface(name string) bool {
	_, ok := ts.specs[name].Type.(*ast.InterfaceType)
	return ok
}

// storeInterfaces are the interfaces of stores and their methods: the exported ones of the root and
// of storekit, and every other interface or type of the module that is made of one of them.
func (ts types) storeInterfaces() map[string][]string {
	found := make(map[string][]string)
	for name, spec := range ts.specs {
		if ms := ts.methodsOf(name); ts.isInterface(name) && ts.exported(name) && !slices.Contains(notOfStores, name) &&
			slices.ContainsFunc(ms, ast.IsExported) && spec.TypeParams == nil {
			found[name] = ms
		}
	}
	for grown := true; grown; {
		grown = false
		for name, spec := range ts.specs {
			if _, known := found[name]; !known && slices.ContainsFunc(ts.madeOf(ts.in[name], spec.Type), func(part string) bool { _, ok := found[part]; return ok }) {
				found[name], grown = ts.methodsOf(name), true
			}
		}
	}
	return found
}

// madeOf returns the names of the interfaces that an interface embeds. For a type that is declared
// as another type it returns the name of that one.
func (ts types) madeOf(s source, e ast.Expr) []string {
	form, ok := e.(*ast.InterfaceType)
	if !ok {
		return []string{ts.nameOf(s, e)}
	}
	var parts []string
	for _, m := range form.Methods.List {
		if len(m.Names) == 0 {
			parts = append(parts, ts.nameOf(s, m.Type))
		}
	}
	return parts
}

// methodsOf are the methods of an interface, with those of what it embeds.
func (ts types) methodsOf(name string) []string {
	spec := ts.specs[name]
	if spec == nil {
		return nil
	}
	var all []string
	if form, ok := spec.Type.(*ast.InterfaceType); ok {
		for _, m := range form.Methods.List {
			for _, n := range m.Names {
				all = append(all, n.Name)
			}
		}
	}
	for _, part := range ts.madeOf(ts.in[name], spec.Type) {
		if part != name {
			all = append(all, ts.methodsOf(part)...)
		}
	}
	return all
}

// missing returns those of the methods that a type does not have.
func (ts types) missing(name string, methods []string) []string {
	return slices.DeleteFunc(slices.Clone(methods), func(m string) bool { return slices.Contains(ts.methods[name], m) })
}

// wraps reports whether a type is a struct with a field whose type is an interface with all methods
// of Store.
func (ts types) wraps(name string, ofStores map[string][]string) bool {
	form, ok := ts.specs[name].Type.(*ast.StructType)
	return ok && slices.ContainsFunc(form.Fields.List, func(f *ast.Field) bool {
		field := ts.nameOf(ts.in[name], f.Type)
		for _, m := range ofStores["Store"] {
			if !slices.Contains(ofStores[field], m) {
				return false
			}
		}
		return true
	})
}

// place returns the word of storeTable for a store and an interface with these methods.
func (ts types) place(name string, methods []string, wraps bool) string {
	switch {
	case len(ts.missing(name, methods)) == 0:
		return "own"
	case !wraps:
		return "-"
	case slices.Contains(ts.methods[name], "Unwrap"):
		return "shown"
	}
	return "hidden"
}

// The checks of checkStores and checkEmbedding on a made-up module: each must be able to fail, and
// must let the right thing pass.
func TestStoreChecks(t *testing.T) {
	const (
		contract = "// Package punctual is.\npackage punctual\ntype Store interface { Push(); Close() }\ntype Surveyor interface { Survey() }\n" +
			"type Handler interface { Handle() }\ntype Option interface { apply() }\n"
		engine  = "// Package mem is.\npackage mem\ntype Store struct{}\nfunc (*Store) Push() {}\nfunc (*Store) Close() {}\nfunc (*Store) Survey() {}\n"
		imports = "// Package w is.\npackage w\nimport \"" + modulePath + "\"\n"
		wrapper = imports + "type quota struct { store punctual.Store }\nfunc (q quota) Push() {}\nfunc (q quota) Close() {}\n"
		test    = "package w\nfunc TestQuotaPassesCallsOn() { calls.PassOn() }\n"
		table   = "Surveyor\nmem.Store own\nw.quota hidden\n"
	)
	sound := map[string]string{"store.go": contract, "mem/mem.go": engine, "w/w.go": wrapper, "w/w_test.go": test}
	cases := map[string]struct {
		change map[string]string
		table  string
		want   string // part of the only complaint; empty for none
	}{
		"a sound module":               {},
		"an interface without column":  {change: map[string]string{"new.go": "package punctual\ntype Repairer interface { Repair() }\n"}, want: "interface Repairer has no column"},
		"a column without interface":   {table: "Surveyor Repairer\nmem.Store own -\nw.quota hidden hidden\n", want: "column Repairer of storeTable"},
		"a wrapper without row":        {table: "Surveyor\nmem.Store own\n", want: "store w.quota has no row"},
		"a row without store":          {table: table + "w.other hidden\n", want: "row w.other of storeTable"},
		"a row that is short":          {table: "Surveyor\nmem.Store own\nw.quota\n", want: "the row of w.quota in storeTable has 0 cells"},
		"a wrapper without test":       {change: map[string]string{"w/w_test.go": "package w\nfunc TestQuotaPassesCallsOn() {}\n"}, want: "wrapper w.quota has no test w.TestQuotaPassesCallsOn"},
		"a wrapper that shows":         {change: map[string]string{"w/more.go": "package w\nfunc (q quota) Unwrap() {}\n"}, want: `w.quota and Surveyor: the source says "shown", storeTable "hidden"`},
		"a wrapper with its own":       {change: map[string]string{"w/more.go": "package w\nfunc (q quota) Survey() {}\n"}, want: `the source says "own"`},
		"an engine that lost a method": {change: map[string]string{"mem/mem.go": strings.Replace(engine, "Survey()", "Other()", 1)}, want: `mem.Store and Surveyor: the source says "-"`},
		"an embedded store":            {change: map[string]string{"w/more.go": imports + "type bad struct { punctual.Store }\n"}, want: "w/more.go:4: a struct embeds Store"},
		"an embedded interface":        {change: map[string]string{"w/more.go": imports + "type bad struct { x int; punctual.Surveyor }\n"}, want: "a struct embeds Surveyor"},
		"an embedded interface made of one": {
			change: map[string]string{"w/more.go": imports + "type full interface { punctual.Store; Sync() }\ntype bad struct { full }\n"},
			want:   "a struct embeds w.full",
		},
		"an embedded engine":             {change: map[string]string{"w/more.go": "package w\nimport m \"" + modulePath + "/mem\"\nfunc f() { _ = struct { *m.Store }{} }\n"}, want: "a struct embeds mem.Store"},
		"an embedded store in a test":    {change: map[string]string{"w/more_test.go": "package w\nimport \"" + modulePath + "\"\ntype bad struct { punctual.Store }\n"}},
		"an interface of users embedded": {change: map[string]string{"w/more.go": imports + "type good struct { punctual.Handler; punctual.Option }\n"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for _, files := range []map[string]string{sound, c.change} {
				for file, text := range files {
					fsys[file] = &fstest.MapFile{Data: []byte(text)}
				}
			}
			sources, err := readSources(fsys)
			if err != nil {
				t.Fatal(err)
			}
			if c.table == "" {
				c.table = table
			}
			got := append(checkStores(sources, c.table), checkEmbedding(sources)...)
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("complaints about a sound module: %q", got)
			case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)):
				t.Errorf("complaints %q, want one containing %q", got, c.want)
			}
		})
	}
}

// opaque is a wrapper without an Unwrap, so that the other interfaces of the store below are
// hidden.
type opaque struct{ punctual.Store }

// shown is a wrapper that shows the store below by its Unwrap.
type shown struct{ punctual.Store }

func (s shown) Unwrap() punctual.Store { return s.Store }

// repeater is a wrapper that shows the store below and is a Repeater itself.
type repeater struct{ shown }

func (repeater) Repeats() time.Duration { return time.Minute }

func TestAs(t *testing.T) {
	mem := memstore.New(nil)
	defer mem.Close()
	for name, s := range map[string]punctual.Store{"itself": mem, "shown": shown{mem}, "shown twice": shown{shown{mem}}} {
		if i, err := punctual.As[punctual.Inspector](s); err != nil || i != punctual.Inspector(mem) {
			t.Errorf("%s: %v, %v; want the store in memory", name, i, err)
		}
	}
	if r, err := punctual.As[storekit.Repeater](shown{repeater{shown{mem}}}); err != nil || r != storekit.Repeater(repeater{shown{mem}}) {
		t.Errorf("a Repeater between two wrappers: %v, %v", r, err)
	}
	for name, s := range map[string]punctual.Store{"opaque": opaque{mem}, "opaque below": shown{opaque{mem}}, "nothing below": shown{}} {
		if i, err := punctual.As[punctual.Inspector](s); i != nil || !errors.Is(err, punctual.ErrUnsupported) || !strings.Contains(err.Error(), "cannot be inspected") {
			t.Errorf("%s: %v, %v; want an ErrUnsupported that says what the store cannot do", name, i, err)
		}
	}
	if i, err := punctual.As[punctual.Inspector](nil); i != nil || !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "NewQueue") {
		t.Errorf("nil: %v, %v; want an ErrInvalid that says what to do", i, err)
	}
	if _, err := punctual.As[storekit.Repeater](mem); err == nil || !strings.Contains(err.Error(), "is no storekit.Repeater") {
		t.Errorf("a store that is no Repeater: %v", err)
	}
}
