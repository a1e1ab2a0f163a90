// Package scaffold is what punctual new writes: a small program that runs at once. The programs are in templates. The documents
// show those of KindGo, KindPython and KindNode word for word.
package scaffold

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed templates
var templates embed.FS

// Module is the path of the module that a program of KindGo imports.
const Module = "github.com/punctualmq/punctual"

// Kind is a kind of program.
type Kind string

// The kinds. KindGo has a store of its own in a directory; the others speak to a server over HTTP and need nothing beside their
// language.
const (
	KindGo     Kind = "go"
	KindGoHTTP Kind = "go-http"
	KindPython Kind = "python"
	KindNode   Kind = "node"
)

// Kinds are all kinds, the default first.
func Kinds() []Kind { return []Kind{KindGo, KindGoHTTP, KindPython, KindNode} }

// Valid reports whether there is such a kind.
func (k Kind) Valid() bool { return slices.Contains(Kinds(), k) }

// NeedsServer reports whether the program speaks to a server, which has to run.
func (k Kind) NeedsServer() bool { return k != KindGo }

// Run is the command that runs the program in dir.
func (k Kind) Run(dir string) string {
	quoted := Quote(dir)
	switch k {
	case KindPython:
		return "python3 " + Quote(filepath.Join(dir, "worker.py"))
	case KindNode:
		return "node " + Quote(filepath.Join(dir, "worker.mjs"))
	}
	return "go run -C " + quoted + " ."
}

// Quote returns a name as it is typed into a shell, in quotes where it needs them.
func Quote(name string) string {
	if plainName.MatchString(name) {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_./-]*$`)

// Source says where a program of KindGo finds the module.
type Source struct {
	// Clone is the directory of a clone, for a replace directive. Empty if Version is set.
	Clone string
	// Version is a published version.
	Version string
}

// ErrNoClone says that no clone was found where Find looks.
var ErrNoClone = errors.New("no clone of " + Module)

// ErrNotEmpty says that the directory of the program holds something, or is no directory.
var ErrNotEmpty = errors.New("is not an empty directory")

// Find looks for a clone of the module: whether it is dir or a directory above, or a directory called punctual in one of these. It
// returns ErrNoClone when there is none.
func Find(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		for _, candidate := range []string{at, filepath.Join(at, "punctual")} {
			if IsClone(candidate) {
				return candidate, nil
			}
		}
		if at == filepath.Dir(at) {
			return "", ErrNoClone
		}
	}
}

// IsClone reports whether dir has a go.mod of the module.
func IsClone(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && moduleLine.FindString(string(text)) != ""
}

var (
	moduleLine  = regexp.MustCompile(`(?m)^module ` + regexp.QuoteMeta(Module) + `$`)
	goLine      = regexp.MustCompile(`(?m)^go \S+$`)
	requireLine = regexp.MustCompile(`(?m)^(?:require )?\s*(\S+\.\S+/\S+ v\S+)(?: // indirect)?$`)
	namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
)

// opening is how the first comment of main.go begins. Write puts the name of the program there.
const opening = "Command notify "

// Write writes a program of the kind into dir, which it makes, and returns the names of the files. dir must be empty or not
// exist: ErrNotEmpty otherwise, before anything is written. If a file cannot be written, Write removes those that it has written
// before, and dir if it has made it.
func Write(dir string, k Kind, from Source) (files []string, err error) {
	made, err := makeEmpty(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			return
		}
		for _, name := range files {
			err = errors.Join(err, os.Remove(filepath.Join(dir, name)))
		}
		if made {
			err = errors.Join(err, os.Remove(dir))
		}
		files = nil
	}()
	contents, err := program(dir, k, from)
	if err != nil {
		return nil, err
	}
	for _, f := range contents {
		if err := writeNew(filepath.Join(dir, f.name), f.text); err != nil {
			return files, fmt.Errorf("write the program: %w", err)
		}
		files = append(files, f.name)
	}
	return files, nil
}

// writeNew writes a file that does not exist yet. If it can write only a part, it removes the file.
func writeNew(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// makeEmpty makes dir unless it is there, and reports whether it did. A dir that holds something, or is a file, is ErrNotEmpty.
func makeEmpty(dir string) (made bool, err error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return false, fmt.Errorf("make the directory: %w", err)
		}
		return true, nil
	case err != nil:
		if info, statErr := os.Stat(dir); statErr == nil && !info.IsDir() {
			return false, ErrNotEmpty
		}
		return false, fmt.Errorf("read the directory: %w", err)
	case len(entries) > 0:
		return false, ErrNotEmpty
	}
	return false, nil
}

type file struct{ name, text string }

// program is the files of a program in dir.
func program(dir string, k Kind, from Source) ([]file, error) {
	full, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(full)
	if !namePattern.MatchString(name) {
		name = "notify"
	}
	switch k {
	case KindPython:
		return []file{{"worker.py", Template("worker.py")}}, nil
	case KindNode:
		return []file{{"worker.mjs", Template("worker.mjs")}}, nil
	case KindGoHTTP:
		main := strings.Replace(Template("worker.go"), "Command NAME ", "Command "+name+" ", 1)
		return []file{{"main.go", main}, {"go.mod", "module example.com/" + name + "\n\ngo 1.22\n"}}, nil
	}
	mod, sum, err := modFiles(full, name, from)
	if err != nil {
		return nil, err
	}
	main := strings.Replace(Template("main.go"), opening, "Command "+name+" ", 1)
	out := []file{{"main.go", main}, {"go.mod", mod}, {".gitignore", "/payments/\n"}}
	if sum != "" {
		out = append(out, file{"go.sum", sum})
	}
	return out, nil
}

// Template is the text of a program, by the name of its template without ".txt", such as worker.py.
func Template(name string) string {
	text, err := templates.ReadFile("templates/" + name + ".txt")
	if err != nil {
		panic("scaffold: no template " + name) // an embedded file
	}
	return string(text)
}

// modFiles are go.mod and go.sum of a program of KindGo in dir. With a clone they name all that the clone needs, so that the
// program is built without a network when the clone was. With a version there is no go.sum: "go mod tidy" makes it.
func modFiles(dir, name string, from Source) (mod, sum string, err error) {
	if from.Clone == "" {
		return fmt.Sprintf("module example.com/%s\n\ngo 1.26\n\nrequire %s %s\n", name, Module, from.Version), "", nil
	}
	text, err := os.ReadFile(filepath.Join(from.Clone, "go.mod"))
	if err != nil {
		return "", "", fmt.Errorf("read the clone: %w", err)
	}
	sums, err := os.ReadFile(filepath.Join(from.Clone, "go.sum"))
	if err != nil {
		return "", "", fmt.Errorf("read the clone: %w", err)
	}
	path, err := relative(dir, from.Clone)
	if err != nil {
		return "", "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "module example.com/%s\n\n%s\n\nrequire %s v0.0.0\n\n// No version is published yet, so this is the clone.\nreplace %s => %s\n\nrequire (\n",
		name, goLine.FindString(string(text)), Module, Module, path)
	for _, m := range requireLine.FindAllStringSubmatch(string(text), -1) {
		fmt.Fprintf(&b, "\t%s // indirect\n", m[1])
	}
	b.WriteString(")\n")
	return b.String(), string(sums), nil
}

// relative is the path from dir to the clone in the form of a replace directive. Symbolic links are followed first, because ".."
// behind one leads elsewhere. It is absolute where no relative path exists.
func relative(dir, clone string) (string, error) {
	clone, err := filepath.Abs(clone)
	if err != nil {
		return "", err
	}
	if clone, err = filepath.EvalSymlinks(clone); err != nil {
		return "", err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	path, err := filepath.Rel(dir, clone)
	if err != nil { // on another drive of Windows
		return clone, nil
	}
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "../") && path != ".." {
		path = "./" + path
	}
	if strings.ContainsAny(path, " \t'\"`") {
		return fmt.Sprintf("%q", path), nil
	}
	return path, nil
}
