package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/memstore"
)

// description is the part of /openapi.json that the tests read.
type description struct {
	OpenAPI    string                                      `json:"openapi"`
	Paths      map[string]map[string]describedOperation    `json:"paths"`
	Components struct{ Schemas map[string]map[string]any } `json:"components"`
}

type describedOperation struct {
	OperationID string                      `json:"operationId"`
	Description string                      `json:"description"`
	Parameters  []struct{ Name, In string } `json:"parameters"`
	RequestBody struct {
		Content map[string]struct {
			Schema  map[string]any
			Example any
		}
	} `json:"requestBody"`
	Responses map[string]struct {
		Content map[string]struct{ Schema map[string]any }
	} `json:"responses"`
}

func describe(t *testing.T, text []byte) (d description) {
	t.Helper()
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// The description has each route with its parameters in path and query and with the action that it
// needs, and it has no other routes.
func TestOpenAPI(t *testing.T) {
	r := newRig(t, nil)
	d := describe(t, []byte(r.ask("GET /openapi.json", "").want(t, 200).body))
	if d.OpenAPI != "3.1.0" {
		t.Errorf("version %q", d.OpenAPI)
	}
	ids := map[string]bool{}
	for _, rt := range routes() {
		op, ok := d.Paths[rt.path][strings.ToLower(rt.method)]
		if !ok {
			t.Errorf("%s %s is not described", rt.method, rt.path)
			continue
		}
		delete(d.Paths[rt.path], strings.ToLower(rt.method))
		if op.OperationID == "" || ids[op.OperationID] {
			t.Errorf("%s %s has the operation %q, which another one has", rt.method, rt.path, op.OperationID)
		}
		ids[op.OperationID] = true
		if rt.action&access.All != 0 && !strings.Contains(op.Description, "Needs the action "+rt.action.String()) {
			t.Errorf("%s does not say what it needs: %s", rt.id, op.Description)
		}
		var got []string
		for _, p := range op.Parameters {
			if p.In != "header" {
				got = append(got, p.In+" "+p.Name)
			}
		}
		var want []string
		for _, p := range rt.params {
			want = append(want, string(p.in)+" "+p.name)
		}
		same(t, got, want)
		for _, segment := range strings.Split(rt.path, "/") {
			if name, isParam := strings.CutPrefix(segment, "{"); isParam && !rt.takes(inPath, strings.TrimSuffix(name, "}")) {
				t.Errorf("%s has %s in its path and not among its parameters", rt.id, segment)
			}
		}
	}
	for path, operations := range d.Paths {
		if len(operations) > 0 {
			t.Errorf("%s describes %v, which does not exist", path, slices.Collect(maps.Keys(operations)))
		}
	}
}

// Every number in the description has its format and its least value, no text has those of numbers,
// and the schema of each parameter and body has a type or refers to another schema. members() names
// only members that bodies have.
func TestDescribedTypes(t *testing.T) {
	s := newServer(t, memstore.New(nil), nil)
	var all map[string]any
	if err := json.Unmarshal(s.openAPI, &all); err != nil {
		t.Fatal(err)
	}
	numbers, lists, streams := 0, 0, 0
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case []any:
			for i, x := range v {
				walk(fmt.Sprintf("%s/%d", at, i), x)
			}
		case map[string]any:
			switch v["type"] {
			case "integer":
				numbers++
				if format := v["format"]; format != "int32" && format != "int64" || v["minimum"] == nil {
					t.Errorf("%s has a number without its size or its least value: %v", at, v)
				}
			case "string":
				if format, _ := v["format"].(string); strings.HasPrefix(format, "int") || v["minimum"] != nil {
					t.Errorf("%s has a text with what is said of numbers: %v", at, v)
				}
				if v["enum"] != nil {
					lists++
				}
				if v["contentSchema"] != nil {
					streams++
				}
			case nil:
				if strings.HasSuffix(at, "/schema") && v["$ref"] == nil {
					t.Errorf("%s has no type: %v", at, v)
				}
			}
			for name, x := range v {
				walk(at+"/"+name, x)
			}
		}
	}
	walk("", all)
	if numbers < 50 || lists < 15 || streams < 5 {
		t.Errorf("%d numbers, %d lists of words and %d streams were found: has the form of the description changed?", numbers, lists, streams)
	}
	of := map[string]reflect.Type{}
	var collect func(t reflect.Type)
	collect = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || of[t.Name()] != nil {
			return
		}
		of[t.Name()] = t
		for f := range t.Fields() {
			collect(f.Type)
		}
	}
	for _, rt := range routes() {
		for _, v := range []any{rt.request, rt.answer} {
			if v != nil {
				collect(reflect.TypeOf(v))
			}
		}
	}
	for member := range members() {
		typeName, name, _ := strings.Cut(member, ".")
		found := false
		if typ := of[typeName]; typ != nil {
			for f := range typ.Fields() {
				tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				found = found || tag == name
			}
		}
		if !found {
			t.Errorf("something is said of %s, which no body has", member)
		}
	}
}

// The server reads every verb, change, if_exists and state that the description has, and refuses a
// word that the description does not have.
func TestDescribedWordsAreRead(t *testing.T) {
	enum := func(member string) []string { return members()[member]["enum"].([]string) }
	for _, c := range []struct {
		member string
		parse  func(string) error
	}{
		{"SettleItem.verb", func(w string) error { _, err := wire.ParseVerb(w); return err }},
		{"AmendItem.change", func(w string) error { _, err := wire.ParseChange(w); return err }},
		{"PushItem.if_exists", func(w string) error { _, err := wire.ParseIfExists(w); return err }},
		{"Message.state", func(w string) error { _, err := punctual.ParseState(w); return err }},
	} {
		for _, word := range enum(c.member) {
			if err := c.parse(word); err != nil || word == "" {
				t.Errorf("%s: the word %q is described and not read: %v", c.member, word, err)
			}
		}
		if c.parse("other") == nil {
			t.Errorf("%s: a word that is not described is read", c.member)
		}
	}
}

// Every parameter of a query, but those that take any text, refuses a value that it cannot have,
// and the error says which parameter it is.
func TestEveryParameterIsRead(t *testing.T) {
	free := []string{"after", "error", "id", "topic", "prefix", "suffix", "note", "mark", "key"} // these take any text
	// Some parameters are read only beside another one.
	beside := map[string]string{"at_local": "&zone=UTC", "zone": "&at_local=2026-11-20+09:00", "reschedule if_due": "&in=1h"}
	tried := 0
	for _, rt := range routes() {
		for _, p := range rt.params {
			if p.in != inQuery || slices.Contains(free, p.name) {
				continue
			}
			tried++
			t.Run(rt.id+" "+p.name, func(t *testing.T) {
				r := newRig(t, nil)
				target := targetOf(rt, p.name, "@") + beside[p.name] + beside[rt.id+" "+p.name]
				problem := r.ask(rt.method+" "+target, bodyOf(rt), "Accept: application/x-ndjson").problem(t, http.StatusBadRequest, "invalid")
				if about := regexp.MustCompile(`^("at_local": )?(parameter )?"?` + p.name + `"?[: ]`); !about.MatchString(problem.Detail) || !strings.Contains(problem.Detail, `"@"`) {
					t.Errorf("refused for another reason: %s", problem.Detail)
				}
			})
		}
	}
	if tried < 60 {
		t.Errorf("%d parameters were tried", tried)
	}
}

// Every example of a request is one that the description allows and that the server reads.
func TestExamplesOfRequests(t *testing.T) {
	r := newRig(t, nil)
	d := describe(t, []byte(r.ask("GET /openapi.json", "").want(t, 200).body))
	examples := 0
	for _, rt := range routes() {
		content := d.Paths[rt.path][strings.ToLower(rt.method)].RequestBody.Content[wire.TypeJSON]
		if content.Example == nil {
			continue
		}
		examples++
		if complaint := d.complain(content.Schema, content.Example); complaint != "" {
			t.Errorf("%s: %v: %s", rt.id, content.Example, complaint)
		}
		body, err := json.Marshal(content.Example)
		if err != nil {
			t.Fatal(err)
		}
		if err := wire.DecodeRequest(body, reflect.New(reflect.TypeOf(rt.request)).Interface()); err != nil {
			t.Errorf("%s: %s: %v", rt.id, body, err)
		}
		target := "/v1/topics/order.close/messages/A-17/" + rt.id + "?token=17"
		if rt.perItem {
			target = rt.path
		}
		if a := r.ask(rt.method+" "+target, string(body)); strings.Contains(a.body, `"invalid"`) {
			t.Errorf("%s: %s is answered with %s", rt.id, body, a.body)
		}
	}
	if examples < 6 {
		t.Errorf("%d examples were found: has the form of the description changed?", examples)
	}
}

// descriptions keeps the descriptions that were read before, by their texts. Nobody changes them.
var descriptions sync.Map

// description returns the description of the server. It is kept, because to read it anew for each
// request would take a good part of the time of the tests.
func (r *rig) description() description {
	text := string(r.openAPI)
	known, ok := descriptions.Load(text)
	if !ok {
		known, _ = descriptions.LoadOrStore(text, describe(r.T, r.openAPI))
	}
	return known.(description)
}

// conforms fails unless the answer is one that the description allows. rig.ask calls it for each
// request.
func (r *rig) conforms(req *http.Request, a answer) {
	r.Helper()
	d := r.description()
	c := &call{server: r.Server, r: req}
	if c.findRoute() != nil {
		return // what there is no route for has no description
	}
	op := d.Paths[c.route.path][strings.ToLower(c.route.method)]
	mediaType := a.header.Get("Content-Type")
	if a.status >= 400 {
		var p wire.Problem
		if err := wire.DecodeRequest([]byte(a.body), &p); err != nil || mediaType != wire.ProblemType {
			r.Fatalf("%s is answered with %d, %s: %.300s: %v", c.route.id, a.status, mediaType, a.body, err)
		}
		anywhere := []string{"invalid", "too_large", "unauthenticated", "forbidden", "unsupported", "overloaded", "closed", "internal", "indeterminate", "store_failed"}
		if !slices.Contains(anywhere, p.Code) && !slices.Contains(c.route.errors, p.Code) {
			r.Errorf("%s is answered with the code %q, which its description does not have", c.route.id, p.Code)
		}
		return
	}
	response, ok := op.Responses[fmt.Sprint(a.status)]
	if !ok {
		r.Fatalf("%s is answered with %d, which its description does not have", c.route.id, a.status)
	}
	if a.body != "" {
		name, _, _ := strings.Cut(mediaType, ";")
		if _, ok := response.Content[name]; !ok {
			r.Errorf("%s is answered with %q, which its description does not have", c.route.id, mediaType)
		}
	}
	if item, ok := response.Content[wire.TypeNDJSON].Schema["contentSchema"].(map[string]any); ok && mediaType == wire.TypeNDJSON {
		for number, line := range wire.Lines([]byte(a.body)) {
			var v any
			if err := json.Unmarshal(line, &v); err != nil {
				r.Fatal(err)
			}
			if complaint := d.complain(item, v); complaint != "" {
				r.Errorf("%s: line %d, %.500s: %s", c.route.id, number, line, complaint)
			}
		}
	}
	if mediaType != wire.TypeJSON || c.route.answer == nil || req.Method == http.MethodHead {
		return
	}
	var v any
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		r.Fatal(err)
	}
	if complaint := d.complain(response.Content[wire.TypeJSON].Schema, v); complaint != "" {
		r.Errorf("%s is answered with %.500s: %s", c.route.id, a.body, complaint)
	}
}

// complain says what of v the schema does not allow, or "".
func (d *description) complain(schema map[string]any, v any) string {
	if ref, ok := schema["$ref"].(string); ok {
		return d.complain(d.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")], v)
	}
	kind := schema["type"]
	switch v := v.(type) {
	case string:
		if kind != "string" {
			return fmt.Sprintf("%q where the schema has %v", v, kind)
		}
		if words, ok := schema["enum"].([]any); ok && !slices.Contains(words, any(v)) {
			return fmt.Sprintf("%q is none of %v", v, words)
		}
		if pattern, ok := schema["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(v) {
			return fmt.Sprintf("%q does not match %s", v, pattern)
		}
	case bool:
		if kind != "boolean" {
			return fmt.Sprintf("%v where the schema has %v", v, kind)
		}
	case float64:
		if kind != "integer" || v != float64(int64(v)) {
			return fmt.Sprintf("%v where the schema has %v", v, kind)
		}
		if least, ok := schema["minimum"].(float64); ok && v < least {
			return fmt.Sprintf("%v is below %v", v, least)
		}
		if most, ok := schema["maximum"].(float64); ok && v > most {
			return fmt.Sprintf("%v is above %v", v, most)
		}
	case []any:
		items, ok := schema["items"].(map[string]any)
		if !ok || kind != "array" {
			return fmt.Sprintf("an array where the schema has %v", kind)
		}
		for _, item := range v {
			if complaint := d.complain(items, item); complaint != "" {
				return complaint
			}
		}
	case map[string]any:
		return d.complainOfObject(schema, v)
	default:
		return fmt.Sprintf("%v where the schema has %v", v, kind)
	}
	return ""
}

func (d *description) complainOfObject(schema, v map[string]any) string {
	if schema["type"] != "object" {
		return fmt.Sprintf("an object where the schema has %v", schema["type"])
	}
	if values, ok := schema["additionalProperties"].(map[string]any); ok {
		for name, value := range v {
			if complaint := d.complain(values, value); complaint != "" {
				return name + ": " + complaint
			}
		}
		return ""
	}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, ok := v[name.(string)]; !ok {
			return fmt.Sprintf("%v is missing", name)
		}
	}
	for name, value := range v {
		property, ok := properties[name].(map[string]any)
		if !ok {
			return name + " is not in the schema"
		}
		if complaint := d.complain(property, value); complaint != "" {
			return name + ": " + complaint
		}
	}
	return ""
}

// TestConformity: complain, by which conforms judges the JSON answers that are no errors, finds
// what a schema does not allow.
func TestConformity(t *testing.T) {
	d := description{}
	d.Components.Schemas = map[string]map[string]any{"A": {
		"type": "object", "required": []any{"a"},
		"properties": map[string]any{
			"a": map[string]any{"type": "string"}, "n": map[string]any{"type": "integer", "minimum": 1.0, "maximum": 3.0},
			"w": map[string]any{"type": "string", "enum": []any{"on", "off"}}, "p": map[string]any{"type": "string", "pattern": "^[0-9]+$"},
			"b": map[string]any{"type": "array", "items": map[string]any{"type": "integer"}},
		},
	}}
	ref := map[string]any{"$ref": "#/components/schemas/A"}
	for text, wrong := range map[string]bool{
		`{"a":"x"}`: false, `{"a":"x","b":[1,2]}`: false, `{}`: true, `{"a":1}`: true, `{"a":"x","c":1}`: true, `{"a":"x","b":[1.5]}`: true,
		`{"a":"x","b":1}`: true, `{"a":"x","n":1}`: false, `{"a":"x","n":0}`: true, `{"a":"x","n":4}`: true,
		`{"a":"x","w":"on"}`: false, `{"a":"x","w":"On"}`: true, `{"a":"x","p":"12"}`: false, `{"a":"x","p":"1x"}`: true, `[]`: true, `null`: true, `{"a":true}`: true,
	} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if complaint := d.complain(ref, v); (complaint != "") != wrong {
			t.Errorf("%s: %q", text, complaint)
		}
	}
}
