package punctual_test

import (
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"go/version"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Tests that hold the documents, and the comments in the code, to the code: what they name exists.

// Every relative link in a document leads to a file that exists, and its anchor to a heading there.
func TestLinksInDocuments(t *testing.T) {
	anchorsOf := make(map[string][]string)
	for _, page := range pages(t) {
		for _, target := range relativeLinks(readText(t, page)) {
			file, anchor, _ := strings.Cut(target, "#")
			if file == "" {
				file = filepath.Base(page)
			}
			file = path.Join(path.Dir(page), file)
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, target)
				continue
			}
			if anchor == "" {
				continue
			}
			if anchorsOf[file] == nil {
				anchorsOf[file] = anchors(readText(t, file))
			}
			if !slices.Contains(anchorsOf[file], anchor) {
				t.Errorf("%s links to %s, but %s has no such heading", page, target, file)
			}
		}
	}
}

// A file of Go, Lua or SQL that a comment names exists. One named without folders is beside, above
// or below the comment's own file; a comment in the root may name a file anywhere.
func TestFilesNamedInComments(t *testing.T) {
	folders := make(map[string][]string) // of each file's name
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "node_modules" {
			return fs.SkipDir
		}
		folder, base := path.Split(filepath.ToSlash(name))
		folders[base] = append(folders[base], "/"+folder)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for name, paragraphs := range proseOfComments(t) {
		own := "/" + path.Dir(name) + "/"
		for _, m := range fileInProse.FindAllStringSubmatch(strings.Join(paragraphs, "\n"), -1) {
			named++
			folder, base := path.Split(m[1])
			if !slices.ContainsFunc(folders[base], func(f string) bool {
				if folder != "" {
					return strings.HasSuffix(f, "/"+folder)
				}
				return strings.HasPrefix(f, own) || strings.HasPrefix(own, f) || own == "/./"
			}) {
				t.Errorf("%s names %s in a comment, which is not there", name, m[1])
			}
		}
	}
	if named < 100 {
		t.Errorf("only %d names of files were found", named)
	}
}

// fileInProse finds the name of a file, with or without folders, that does not belong to an
// address.
var fileInProse = regexp.MustCompile(`(?:^|[\s(])((?:[a-z0-9_]+/)*[a-z0-9_]+\.(?:go|lua|sql))\b`)

// proseOfComments are the paragraphs of the comments in the scripts and in the Go files of the
// modules, except those in testdata, by the file that has them.
func proseOfComments(t *testing.T) map[string][]string {
	t.Helper()
	prose := make(map[string][]string)
	for _, module := range []string{".", "bench", "console/browsertest", "metrics/punctualotel", "packaging", "packaging/cluster"} {
		sources, err := readSources(os.DirFS(module))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sources {
			name := path.Join(module, s.path)
			for _, group := range s.ast.Comments {
				text := exampleOutput.ReplaceAllString(group.Text(), "")
				prose[name] = append(prose[name], commentParagraphs(text)...)
			}
		}
	}
	for _, name := range scripts(t) {
		for _, m := range scriptComment.FindAllString(readText(t, name), -1) {
			text := scriptField.ReplaceAllString(scriptMargin.ReplaceAllString(m, ""), "\n$0")
			prose[name] = append(prose[name], commentParagraphs(text)...)
		}
	}
	return prose
}

// commentParagraphs are the paragraphs and list items of a comment in the form of Go's, each on one
// line.
func commentParagraphs(text string) []string {
	return blockParagraphs(new(comment.Parser).Parse(text).Content)
}

func blockParagraphs(blocks []comment.Block) []string {
	var all []string
	for _, b := range blocks {
		switch b := b.(type) {
		case *comment.Paragraph:
			plain := string(new(comment.Printer).Text(&comment.Doc{Content: []comment.Block{b}}))
			all = append(all, codeQuote.ReplaceAllString(strings.ReplaceAll(plain, "\n", " "), "x"))
		case *comment.List:
			for _, item := range b.Items {
				all = append(all, blockParagraphs(item.Content)...)
			}
		}
	}
	return all
}

// scripts are the files in Lua and SQL, without those for tests (testdata).
func scripts(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && name != "." && (entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".")) {
			return fs.SkipDir
		}
		if ext := path.Ext(name); ext == ".lua" || ext == ".sql" {
			out = append(out, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil || len(out) == 0 {
		t.Fatalf("found %d scripts, error %v", len(out), err)
	}
	return out
}

var (
	exampleOutput = regexp.MustCompile(`(?ims)^(unordered )?output:.*`)
	scriptComment = regexp.MustCompile(`(?m)(?:^[ \t]*--.*\n)+|[ \t]--.*\n(?:[ \t]+--.*\n)*`)
	scriptMargin  = regexp.MustCompile(`(?m)^[ \t]*-- ?`)
	scriptField   = regexp.MustCompile(`(?m)^(KEYS|ARGV|Reply|Result|Locks)\b`)
	codeQuote     = regexp.MustCompile("`[^`]*`")
)

// Every test, file in Go, Lua or SQL, and member of a package or a type of this module that a
// document names in code quotes exists.
func TestNamesInDocuments(t *testing.T) {
	sources, err := ownSources()
	if err != nil {
		t.Fatal(err)
	}
	exists, types := map[string]bool{}, map[string]bool{}
	for _, s := range sources {
		exists[path.Base(s.path)] = true
		noteNames(s.ast, exists, types)
	}
	for _, name := range scripts(t) {
		exists[path.Base(name)] = true
	}
	named := 0
	for _, page := range pages(t) {
		text := linkedCode.ReplaceAllString(readText(t, page), "") // a file of another project
		for _, m := range quotedName.FindAllStringSubmatch(text, -1) {
			named++
			if !exists[path.Base(m[1])] {
				t.Errorf("%s names `%s`, which no longer exists", page, m[1])
			}
		}
		for _, m := range quotedMember.FindAllStringSubmatch(text, -1) {
			if types[m[1]] && !exists[m[1]+"."+m[2]] && (ast.IsExported(m[2]) || !exists[m[1]+"."]) {
				t.Errorf("%s names `%s.%s`, which no longer exists", page, m[1], m[2])
			}
		}
	}
	if named == 0 {
		t.Error("the documents name no test and no file: has their form changed?")
	}
}

var (
	linkedCode = regexp.MustCompile(`\[\x60[^\x60]+\x60\]\(http[^)]*\)`)
	quotedName = regexp.MustCompile(`\x60((?:Test|Example|Fuzz)[A-Za-z0-9_]+|[a-z0-9_/]+\.(?:go|lua|sql))\x60`)
	// quotedMember finds a method or field, with or without its package.
	quotedMember = regexp.MustCompile(`\x60(?:[a-z]+\.)?([A-Za-z]+)\.([A-Za-z]+)(?:\([^\x60]*\))?\x60`)
)

// noteNames notes the file's functions by name and its methods and fields as Type.name in exists,
// and its types in types.
func noteNames(file *ast.File, exists, types map[string]bool) {
	in := file.Name.Name
	types[in], exists[in+"."] = true, true // with a dot alone: a package, whose members have capitals
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			exists[receiver(d)+d.Name.Name] = true
			exists[in+"."+receiver(d)+d.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					exists[in+"."+spec.Name.Name] = true
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						exists[in+"."+name.Name] = true
					}
				}
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		types[spec.Name.Name] = true
		for _, f := range members(spec.Type) {
			for _, name := range f.Names {
				exists[spec.Name.Name+"."+name.Name] = true
			}
		}
		return true
	})
}

func members(t ast.Expr) []*ast.Field {
	switch t := t.(type) {
	case *ast.StructType:
		return t.Fields.List
	case *ast.InterfaceType:
		return t.Methods.List
	}
	return nil
}

// receiver returns "Type." for a method and "" for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	t := f.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "."
		default:
			return ""
		}
	}
}

// Each Chinese page has the same blocks of code, links and names of tests as the English page, and
// its headings and rows of tables follow each other as there.
func TestTranslationsAgree(t *testing.T) {
	pairs := 0
	for _, page := range pages(t) {
		english, isChinese := strings.CutSuffix(page, chineseSuffix)
		if !isChinese {
			continue
		}
		pairs++
		t.Run(page, func(t *testing.T) { samePage(t, english+".md", page) })
	}
	if pairs == 0 {
		t.Error("there is no Chinese page: has the name's form changed?")
	}
}

// The Chinese pages and the console do not use the words that stood for the same thing before
// docs/glossary.md had others.
func TestChineseWords(t *testing.T) {
	glossary := readText(t, "docs/glossary.md")
	instead := map[string]string{
		"推送": "存入", "重新排期": "重新入队", "话题": "主题", "结算": "提交处理结果",
		"工作进程": "worker", "迟延": "延迟", "值守": "后台任务", "伴随主题": "附属主题",
	}
	for _, word := range instead {
		if !strings.Contains(glossary, "| "+word+" |") {
			t.Errorf("docs/glossary.md does not have %s", word)
		}
	}
	files := []string{"console/lang/zh-CN.json"}
	for _, page := range pages(t) {
		if strings.HasSuffix(page, chineseSuffix) {
			files = append(files, page)
		}
	}
	for _, file := range files {
		for n, line := range strings.Split(readText(t, file), "\n") {
			for word, better := range instead {
				if strings.Contains(line, word) {
					t.Errorf("%s, line %d says %s: docs/glossary.md has %s for that", file, n+1, word, better)
				}
			}
		}
	}
}

// chineseSuffix ends the file names of Chinese pages.
const chineseSuffix = ".zh-CN.md"

func samePage(t *testing.T, english, chinese string) {
	compare := func(what string, parts func(string) []string) {
		t.Helper()
		if e, c := parts(readText(t, english)), parts(readText(t, chinese)); !slices.Equal(e, c) {
			t.Errorf("%s differ:\n%s: %q\n%s: %q", what, english, e, chinese, c)
		}
	}
	compare("code blocks", func(s string) []string { return fenced.FindAllString(s, -1) })
	compare("indented blocks", func(s string) []string { return indented.FindAllString(s, -1) })
	compare("links", func(s string) []string {
		var links []string
		for _, l := range allLinks(s) {
			if strings.HasPrefix(l, "#") {
				continue // headings are translated
			}
			links = append(links, sameTarget(path.Base(english), l))
		}
		slices.Sort(links)
		return links
	})
	compare("tests named", func(s string) []string {
		names := quotedName.FindAllString(s, -1)
		slices.Sort(names)
		return names
	})
	compare("rows of tables and headings", func(s string) []string { return rowStart.FindAllString(s, -1) })
}

// sameTarget returns a link in a form that is the same for a page and its translation: as it would
// stand on the English page, and without the anchor, because headings are translated. The link to
// the page in the other language becomes one fixed text.
func sameTarget(english, l string) string {
	l = strings.Replace(l, chineseSuffix, ".md", 1)
	if page, _, found := strings.Cut(l, ".md#"); found && !strings.Contains(l, "://") {
		l = page + ".md"
	}
	if l == english {
		return "the other language"
	}
	return l
}

var (
	fenced   = regexp.MustCompile("(?s)```.*?```")
	indented = regexp.MustCompile(`(?m)^    .*$`)
	rowStart = regexp.MustCompile(`(?m)^(#+ |\|(?: P\d+ )?)`)
	link     = regexp.MustCompile(`\]\(([^)]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

func pages(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules") {
			return fs.SkipDir
		}
		if strings.HasSuffix(name, ".md") {
			out = append(out, filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil || len(out) == 0 {
		t.Fatalf("found %d documents, error %v", len(out), err)
	}
	return out
}

func allLinks(text string) []string {
	var out []string
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

func relativeLinks(text string) []string {
	return slices.DeleteFunc(allLinks(fenced.ReplaceAllString(text, "")), func(l string) bool { return strings.Contains(l, "://") })
}

// anchors returns the anchors of a page's headings, as the usual renderers make them: the second
// heading with the same text has -1 behind its anchor, the third one -2.
func anchors(text string) []string {
	var out []string
	seen := make(map[string]int)
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		anchor := strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		if n := seen[anchor]; n > 0 {
			out = append(out, fmt.Sprintf("%s-%d", anchor, n))
		} else {
			out = append(out, anchor)
		}
		seen[anchor]++
	}
	return out
}

// The reason for each dependency stands in docs/dependencies.md: one line each, none
// for a module that is not used any more.
func TestDependenciesHaveReasons(t *testing.T) {
	sources, err := ownSources()
	if err != nil {
		t.Fatal(err)
	}
	used := usedModules(t, sources, readText(t, "go.mod"))
	explained := explainedModules(readText(t, "docs/dependencies.md"))
	for m := range used {
		if !explained[m] {
			t.Errorf("%s is imported but docs/dependencies.md does not say why: add its line", m)
		}
	}
	for m := range explained {
		if !used[m] {
			t.Errorf("docs/dependencies.md explains %s, which no Go file imports: remove its line, or write the module's path as go.mod does", m)
		}
	}
}

var requireLine = regexp.MustCompile(`(?m)^(?:require\s+|\t)(\S+\.\S+/\S+) v\S+`)

// usedModules returns the modules of go.mod that a Go file of ours imports.
func usedModules(t *testing.T, sources []source, gomod string) map[string]bool {
	t.Helper()
	var required []string
	for _, m := range requireLine.FindAllStringSubmatch(gomod, -1) {
		required = append(required, m[1])
	}
	if len(required) == 0 {
		t.Fatal("go.mod requires nothing: has its form changed?")
	}
	used := map[string]bool{}
	for _, s := range sources {
		for _, spec := range s.ast.Imports {
			if m := moduleOf(strings.Trim(spec.Path.Value, `"`), required); m != "" {
				used[m] = true
			}
		}
	}
	return used
}

// The go line of go.mod asks for no later version of Go than the modules that go.mod requires,
// because whoever imports Punctual must have that version.
func TestGoLineIsTheLowest(t *testing.T) {
	gomod := readText(t, "go.mod")
	ours := goLine.FindStringSubmatch(gomod)
	if ours == nil {
		t.Fatal("go.mod has no go line")
	}
	args := []string{"list", "-m", "-f", "{{.GoVersion}}"}
	for _, m := range requireLine.FindAllStringSubmatch(gomod, -1) {
		args = append(args, m[1])
	}
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Skipf("the modules that go.mod names are not at hand: %v", err)
	}
	highest := "1.21"
	for _, v := range strings.Fields(string(out)) {
		if version.Compare("go"+v, "go"+highest) > 0 {
			highest = v
		}
	}
	if version.Compare("go"+ours[1], "go"+highest) > 0 {
		t.Errorf("go.mod asks for Go %s, and nothing that it requires asks for more than %s", ours[1], highest)
	}
}

var goLine = regexp.MustCompile(`(?m)^go (\S+)$`)

var explainedLine = regexp.MustCompile(`(?m)^\| \x60([^\x60]+)\x60 \|`)

func explainedModules(doc string) map[string]bool {
	explained := map[string]bool{}
	for _, m := range explainedLine.FindAllStringSubmatch(doc, -1) {
		explained[m[1]] = true
	}
	return explained
}

// A function that ARCHITECTURE.md, or the doc.go of diskstore, names together with its file is in
// that file. Those on the way of a message fit a screen.
func TestFunctionsNamedInArchitecture(t *testing.T) {
	checkFunctions(t, "ARCHITECTURE.md", "", "## Follow one message", "\n## ", functionInFile, 8+8)
	checkFunctions(t, "diskstore/doc.go", "diskstore/", "// # The way of a message", "\n// # ", functionInComment, 16)
}

// checkFunctions looks for the functions that the page names with their files, which lie in folder.
// At least fewest of them stand in the part from begin to end.
func checkFunctions(t *testing.T, page, folder, begin, end string, named *regexp.Regexp, fewest int) {
	t.Helper()
	const screen = 50
	text := strings.ReplaceAll(readText(t, page), "\n//     ", " ")
	_, way, found := strings.Cut(text, begin)
	if !found {
		t.Fatalf("%s has no %q any more", page, begin)
	}
	way, _, _ = strings.Cut(way, end)
	lengths := make(map[string]map[string]int) // of the functions, by file
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		name, file := m[1], folder+m[2]
		if lengths[file] == nil {
			lengths[file] = functionLengths(t, file)
		}
		n, ok := lengths[file][name]
		if !ok {
			t.Errorf("%s says that %s is in %s, and it is not", page, name, file)
		}
		if strings.Contains(way, m[0]) && n > screen {
			t.Errorf("%s in %s has %d lines: at most %d fit a screen", name, file, n, screen)
		}
	}
	if n := len(named.FindAllString(way, -1)); n < fewest {
		t.Errorf("on the way of a message %s names %d functions with their files, so this test shows little", page, n)
	}
}

var (
	functionInFile    = regexp.MustCompile(`\x60([A-Za-z]+(?:\.[A-Za-z]+)?)\x60 \(([a-z_/]+\.go)\)`)
	functionInComment = regexp.MustCompile(`([A-Za-z]+\.[A-Za-z]+) \(([a-z_/]+\.go)\)`)
)

// functionLengths returns how many lines each function of a file has. A method is called
// Type.Method, a function by its name and by package.Name.
func functionLengths(t *testing.T, file string) map[string]int {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]int)
	for _, d := range f.Decls {
		d, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		n := set.Position(d.End()).Line - set.Position(d.Pos()).Line + 1
		if d.Recv == nil {
			out[d.Name.Name], out[f.Name.Name+"."+d.Name.Name] = n, n
			continue
		}
		on := d.Recv.List[0].Type
		if p, ok := on.(*ast.StarExpr); ok {
			on = p.X
		}
		switch generic := on.(type) {
		case *ast.IndexExpr:
			on = generic.X
		case *ast.IndexListExpr:
			on = generic.X
		}
		out[on.(*ast.Ident).Name+"."+d.Name.Name] = n
	}
	return out
}

// ARCHITECTURE.md shows the same import table for the packages that exist, and no others.
func TestArchitecturePageShowsTheTable(t *testing.T) {
	sources, err := ownSources()
	if err != nil {
		t.Fatal(err)
	}
	shown := pageRows(readText(t, "ARCHITECTURE.md"))
	exists := map[string]bool{}
	for _, s := range sources {
		if !s.isTest() {
			exists[s.dir()] = true
		}
	}
	for dir, r := range architecture {
		if !exists[dir] {
			t.Errorf("arch_test.go has a row for %s, which does not exist", dir)
		}
		for _, other := range r.ours {
			if !exists[other] {
				t.Errorf("arch_test.go lets %s import %s, which does not exist", dir, other)
			}
		}
	}
	for dir := range exists {
		if !shown[dir] {
			t.Errorf("the table in ARCHITECTURE.md has no row for %s", dir)
		}
	}
	for dir := range shown {
		if !exists[dir] {
			t.Errorf("the table in ARCHITECTURE.md has a row for %s, which does not exist", dir)
		}
	}
}

var (
	pageRow    = regexp.MustCompile(`(?m)^\| \x60([a-z/]+?)(/…)?\x60 \| ([^|]*) \|$`)
	quotedPath = regexp.MustCompile(`\x60([a-z/]+)\x60`)
)

// pageRows returns the packages that the page shows. A row that ends in /… has the packages below a
// folder, each in quotes.
func pageRows(page string) map[string]bool {
	rows := map[string]bool{}
	for _, m := range pageRow.FindAllStringSubmatch(page, -1) {
		dir, below, purpose := m[1], m[2] != "", m[3]
		switch {
		case below:
			for _, q := range quotedPath.FindAllStringSubmatch(purpose, -1) {
				rows[path.Join(dir, q[1])] = true
			}
		case dir == "punctual":
			rows["."] = true
		default:
			rows[dir] = true
		}
	}
	return rows
}

// ARCHITECTURE.md can be read in one go, and the index of decisions leads to each page of them, of
// which there are few.
func TestArchitectureAndDecisionsStaySmall(t *testing.T) {
	const size, pages = 14 << 10, 30
	if n := len(readText(t, "ARCHITECTURE.md")); n > size {
		t.Errorf("ARCHITECTURE.md has %d bytes, %d at most are meant: what one package alone needs belongs to its doc.go", n, size)
	}
	const folder = "docs/decisions/"
	index := relativeLinks(readText(t, folder+"README.md"))
	files, err := filepath.Glob(folder + "0*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d decisions, error %v", len(files), err)
	}
	if len(files) > pages {
		t.Errorf("%d decisions have a page, %d at most are meant: make one a sentence in %sREADME.md", len(files), pages, folder)
	}
	for _, f := range files {
		if !slices.Contains(index, filepath.Base(f)) {
			t.Errorf("%sREADME.md does not lead to %s", folder, f)
		}
	}
}

// A doc comment does not begin with the name of something else, as one does that was forgotten at a
// renaming. A first word in lower case counts as a name, unless it is part of a path or one of a
// few words that may begin a comment.
func TestCommentsBeginWithTheirNames(t *testing.T) {
	sources, err := ownSources()
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]bool{"serve": true, "systemd": true}
	checked := 0
	check := func(s source, doc *ast.CommentGroup, name string) {
		if doc == nil {
			return
		}
		first := strings.TrimRight(firstName.FindString(doc.Text()), " \n,:'()")
		checked++
		if first != "" && first != name && !words[first] {
			t.Errorf("%s: the comment of %s begins with %s", s.fset.Position(doc.Pos()), name, first)
		}
	}
	for _, s := range sources {
		for _, d := range s.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				check(s, d.Doc, d.Name.Name)
			case *ast.GenDecl:
				if len(d.Specs) != 1 {
					continue
				}
				switch spec := d.Specs[0].(type) {
				case *ast.TypeSpec:
					check(s, d.Doc, spec.Name.Name)
				case *ast.ValueSpec:
					if len(spec.Names) == 1 {
						check(s, d.Doc, spec.Names[0].Name)
					}
				}
			}
		}
	}
	if checked < 1000 {
		t.Errorf("only %d comments were checked: has the way to read them changed?", checked)
	}
}

// firstName finds a word at the beginning of a text that starts in lower case and may be a name in
// Go.
var firstName = regexp.MustCompile(`^[a-z][A-Za-z0-9]*\b(?:[^/.\-]|$)`)
