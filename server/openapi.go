package server

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
)

// The description of the interface is made from the table of routes and the types of the bodies. So it cannot say
// anything else than they do.

type object = map[string]any

// openAPI is the OpenAPI 3.1 description of the routes.
func openAPI(routes []*route, version string) ([]byte, error) {
	if version == "" {
		version = "0"
	}
	schemas := schemaSet{}
	problem := schemas.ref(reflect.TypeFor[wire.Problem]())
	paths := object{}
	for _, rt := range routes {
		item, ok := paths[rt.path].(object)
		if !ok {
			item = object{}
			paths[rt.path] = item
		}
		item[strings.ToLower(rt.method)] = operation(rt, schemas, problem)
	}
	return wire.Encode(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Punctual", "version": version,
			"description": "Delivers messages at the time asked for. An error is a problem (RFC 9457): its member definite tells whether the operation " +
				"certainly did not happen, as its status does: 4xx, 503 and 507 did not, another 5xx may have. " +
				"429 and 503 come with Retry-After. Members of answers may be added; clients ignore those that they do not know.",
			"license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"servers":  []object{{"url": "/"}},
		"security": []object{{}, {"token": []string{}}},
		"paths":    paths,
		"components": object{
			"schemas":         schemas,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
			"headers":         object{"RetryAfter": object{"description": "After how many seconds to try again.", "schema": object{"type": "integer"}}},
		},
	})
}

func operation(rt *route, schemas schemaSet, problem object) object {
	op := object{"operationId": rt.id, "summary": rt.summary, "responses": responses(rt, schemas, problem)}
	description := rt.detail
	if rt.action&ActionAll != 0 {
		description = strings.TrimSpace(fmt.Sprintf("Needs the action %s. %s", rt.action, rt.detail))
	}
	if description != "" {
		op["description"] = description
	}
	if rt.action == actionPublic {
		op["security"] = []object{{}}
	}
	var parameters []object
	for _, p := range rt.params {
		schema := object{"type": "string"}
		if p.values != nil {
			schema["enum"] = p.values
		}
		parameters = append(parameters, object{"name": p.name, "in": string(p.in), "required": p.required, "description": p.text, "schema": schema})
	}
	if rt.method != http.MethodGet && rt.action&(ActionPush|ActionWork|ActionAmend) != 0 {
		parameters = append(parameters,
			object{
				"name": wire.HeaderRequest, "in": "header", "required": false, "schema": object{"type": "string", "maxLength": wire.MaxRequestKey},
				"description": "Names the request: sent again with the same content, it is carried out once and answered the same.",
			},
			object{
				"name": wire.HeaderNotAfter, "in": "header", "required": false, "schema": object{"type": "string", "format": "date-time"},
				"description": "When a request with a key must not be carried out any more, by the store's clock.",
			},
			object{
				"name": wire.HeaderCopy, "in": "header", "required": false, "schema": object{"type": "integer", "minimum": 1},
				"description": "How many times a request with a key has been sent, with this one. The first is quicker when it says so.",
			})
	}
	if parameters != nil {
		op["parameters"] = parameters
	}
	if content := requestContent(rt, schemas); content != nil {
		op["requestBody"] = object{"required": rt.body != bodyMessage, "content": content}
	}
	return op
}

func requestContent(rt *route, schemas schemaSet) object {
	switch rt.body {
	case bodyMessage:
		return object{"*/*": object{"schema": object{}}}
	case bodyJSON:
		return object{wire.TypeJSON: object{"schema": schemas.of(reflect.TypeOf(rt.request))}}
	case bodyLines:
		return object{
			wire.TypeJSON:   object{"schema": schemas.of(reflect.TypeOf(rt.request))},
			wire.TypeNDJSON: object{"schema": object{"type": "string"}},
		}
	}
	return nil
}

func responses(rt *route, schemas schemaSet, problem object) object {
	out := object{}
	for _, status := range rt.statuses {
		answer := object{"description": http.StatusText(status)}
		if rt.answer != nil && status != http.StatusNoContent {
			answer["content"] = object{wire.TypeJSON: object{"schema": schemas.of(reflect.TypeOf(rt.answer))}}
		}
		out[fmt.Sprint(status)] = answer
	}
	byStatus := map[int][]string{}
	for _, code := range append(slices.Clone(rt.errors), "invalid", "unauthenticated", "forbidden", "overloaded", "indeterminate") {
		status := wire.StatusOf(code)
		byStatus[status] = append(byStatus[status], code)
	}
	for status, codes := range byStatus {
		out[fmt.Sprint(status)] = object{
			"description": meanings(codes),
			"content":     object{wire.ProblemType: object{"schema": problem}},
		}
	}
	out["default"] = object{"description": "Any other problem.", "content": object{wire.ProblemType: object{"schema": problem}}}
	if busy, ok := out["503"].(object); ok {
		busy["headers"] = object{"Retry-After": object{"$ref": "#/components/headers/RetryAfter"}}
	}
	return out
}

func meanings(codes []string) string {
	var out []string
	for _, k := range punctual.ErrorKinds() {
		if slices.Contains(codes, k.Code) {
			out = append(out, k.Code+": "+k.Meaning)
		}
	}
	return strings.Join(out, " ")
}

// schemaSet is the schemas of named types.
type schemaSet map[string]any

// of is the schema of a type, or the reference to it.
func (s schemaSet) of(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[wire.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[wire.Duration]():
		return object{"type": "string", "examples": []string{"30s", "2h30m", "2d"}}
	case reflect.TypeFor[wire.Text]():
		return object{"type": "string"}
	case reflect.TypeFor[[]byte]():
		return object{"type": "string", "contentEncoding": "base64"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.Struct:
		return s.ref(t)
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int:
		return object{"type": "integer"}
	case reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	}
	return object{"type": "string"}
}

func (s schemaSet) ref(t reflect.Type) object {
	if _, known := s[t.Name()]; !known {
		s[t.Name()] = object{} // a type may hold itself
		properties, required := object{}, []string{}
		s.addFields(t, properties, &required)
		s[t.Name()] = object{"type": "object", "properties": properties, "required": required}
	}
	return object{"$ref": "#/components/schemas/" + t.Name()}
}

func (s schemaSet) addFields(t reflect.Type, properties object, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, hasTag := f.Tag.Lookup("json")
		if f.Anonymous && !hasTag {
			s.addFields(f.Type, properties, required)
			continue
		}
		name, rest, _ := strings.Cut(tag, ",")
		schema := s.of(f.Type)
		if strings.Contains(rest, "string") {
			schema = object{"type": "string"}
		}
		properties[name] = schema
		if !strings.Contains(rest, "omit") {
			*required = append(*required, name)
		}
	}
}
