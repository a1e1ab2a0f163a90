package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

//go:generate env PUNCTUAL_UPDATE_CLIENTS=1 go test . -count=1 -run ^TestClientsAreCurrent$

// The types and errors of the clients in other languages are those of the OpenAPI description and
// of the vocabulary of errors. "go generate ./server" has
// the test write them.
func TestClientsAreCurrent(t *testing.T) {
	var d apiDescription
	if err := json.Unmarshal([]byte(newRig(t, nil).ask("GET /openapi.json", "").want(t, 200).body), &d); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"python/punctual/_wire.py": d.python(),
		"typescript/src/wire.ts":   d.typescript(),
	} {
		name = filepath.Join("../clients", name)
		if os.Getenv("PUNCTUAL_UPDATE_CLIENTS") != "" {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if kept, err := os.ReadFile(name); err != nil || string(kept) != text {
			t.Errorf("%s is not what the description says (%v): run go generate ./server", name, err)
		}
	}
}

// apiDescription is the part of the OpenAPI description that becomes types of the clients.
type apiDescription struct {
	Components struct {
		Schemas map[string]*clientSchema `json:"schemas"`
	} `json:"components"`
}

type clientSchema struct {
	Ref         string                   `json:"$ref"`
	Type        string                   `json:"type"`
	Enum        []string                 `json:"enum"`
	Description string                   `json:"description"`
	Format      string                   `json:"format"`
	Items       *clientSchema            `json:"items"`
	Properties  map[string]*clientSchema `json:"properties"`
	Additional  *clientSchema            `json:"additionalProperties"`
	Required    []string                 `json:"required"`
}

// named returns the schemas that have members, in the order of their names.
func (d *apiDescription) named(yield func(string, *clientSchema) bool) {
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		if s := d.Components.Schemas[name]; len(s.Properties) > 0 && !yield(name, s) {
			return
		}
	}
}

// errorNames yields each code of a problem that has an error of its own, and the name of its class.
func errorNames(yield func(code, class string) bool) {
	for _, k := range storekit.ErrorKinds() {
		class := ""
		for word := range strings.SplitSeq(k.Code, "_") {
			class += strings.ToUpper(word[:1]) + word[1:]
		}
		if !yield(k.Code, class+"Error") {
			return
		}
	}
}

func quoted(text string) string { return fmt.Sprintf("%q", text) }

func (s *clientSchema) ofPython() string {
	switch {
	case s.Ref != "":
		return quoted(s.Ref[strings.LastIndex(s.Ref, "/")+1:])
	case len(s.Enum) > 0:
		values := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			values[i] = quoted(v)
		}
		return "Literal[" + strings.Join(values, ", ") + "]"
	case s.Type == "array":
		return "List[" + s.Items.ofPython() + "]"
	case s.Type == "object" && s.Additional != nil:
		return "Dict[str, " + s.Additional.ofPython() + "]"
	}
	if name, ok := map[string]string{"string": "str", "integer": "int", "number": "float", "boolean": "bool"}[s.Type]; ok {
		return name
	}
	return "Any"
}

func (s *clientSchema) ofTypeScript() string {
	switch {
	case s.Ref != "":
		return s.Ref[strings.LastIndex(s.Ref, "/")+1:]
	case len(s.Enum) > 0:
		values := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			values[i] = "'" + v + "'"
		}
		return strings.Join(values, " | ")
	case s.Type == "array":
		return "Array<" + s.Items.ofTypeScript() + ">"
	case s.Type == "object" && s.Additional != nil:
		return "Record<string, " + s.Additional.ofTypeScript() + ">"
	}
	if name, ok := map[string]string{"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}[s.Type]; ok {
		return name
	}
	return "unknown"
}

const generatedBy = "Generated from /openapi.json by \"go generate ./server\". DO NOT EDIT."

func (d *apiDescription) python() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# %s", generatedBy)
	p("\"\"\"The bodies of requests and answers, and the errors.\"\"\"")
	p("from typing import Any, Dict, List, Literal, Type, TypedDict\n")
	p("from ._errors import PunctualError")
	for name, s := range d.named {
		p("\n")
		// The functional form, because members such as "in" and "from" are keywords of Python.
		p("%s = TypedDict(\n    %q,\n    {", name, name)
		for _, member := range slices.Sorted(maps.Keys(s.Properties)) {
			p("        %q: %s,", member, s.Properties[member].ofPython())
		}
		p("    },\n    total=False,\n)")
	}
	for code, class := range errorNames {
		kind := problemOf(code)
		p("\n\nclass %s(PunctualError):", class)
		p("    \"\"\"%s\"\"\"\n", kind.Title)
		p("    code = %q\n    definite = %s\n    remedy = %q", code, map[bool]string{true: "True", false: "False"}[kind.Definite], kind.Remedy)
	}
	p("\n\n__all__ = [")
	for _, class := range errorNames {
		p("    %q,", class)
	}
	p("]")
	p("\nERRORS: Dict[str, Type[PunctualError]] = {")
	for code, class := range errorNames {
		p("    %q: %s,", code, class)
	}
	p("}")
	return b.String()
}

// problemOf returns what a server answers for an error of this code alone.
func problemOf(code string) *wire.Problem {
	for _, k := range storekit.ErrorKinds() {
		if k.Code == code {
			return wire.ProblemOf(k.Err)
		}
	}
	return nil
}

func (d *apiDescription) typescript() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("// %s", generatedBy)
	p("// The bodies of requests and answers, and the kinds of errors.")
	for name, s := range d.named {
		p("\nexport interface %s {", name)
		for _, member := range slices.Sorted(maps.Keys(s.Properties)) {
			m := s.Properties[member]
			if m.Description != "" {
				p("  /** %s */", m.Description)
			}
			optional := "?"
			if slices.Contains(s.Required, member) {
				optional = ""
			}
			p("  %s%s: %s", member, optional, m.ofTypeScript())
		}
		p("}")
	}
	p("\n/** What each code of an error means, whether an operation with it certainly did not happen, and what to do. */")
	p("export const errorKinds = {")
	for code := range errorNames {
		kind := problemOf(code)
		p("  %s: { definite: %t, meaning: %q, remedy: %q },", code, kind.Definite, kind.Title, kind.Remedy)
	}
	p("} as const\n\n/** The codes of errors. canceled, deadline and internal are a server's own. */")
	p("export type ErrorCode = keyof typeof errorKinds | 'canceled' | 'deadline' | 'internal'")
	return b.String()
}
