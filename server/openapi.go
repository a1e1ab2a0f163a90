package server

import (
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// The OpenAPI description is generated from the table of routes and the types of the bodies, so
// that it cannot name other paths, parameters of paths and queries, or members than they have.

type object = map[string]any

// openAPI returns the OpenAPI 3.1 description of the routes as JSON.
func openAPI(routes []*route, version string) ([]byte, error) {
	if version == "" {
		version = "0"
	}
	schemas := newSchemaSet()
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
			"schemas":         schemas.named,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
			"headers":         object{"RetryAfter": object{"description": "After how many seconds to try again.", "schema": count(1, math.MaxInt32)}},
		},
	})
}

func operation(rt *route, schemas schemaSet, problem object) object {
	op := object{"operationId": rt.id, "summary": rt.summary, "responses": responses(rt, schemas, problem)}
	description := rt.detail
	if rt.action != 0 {
		description = strings.TrimSpace(fmt.Sprintf("Needs the action %s. %s", rt.action, rt.detail))
	}
	if description != "" {
		op["description"] = description
	}
	if rt.public {
		op["security"] = []object{{}}
	}
	var parameters []object
	for _, p := range rt.params {
		parameters = append(parameters, object{"name": p.name, "in": string(p.in), "required": p.required, "description": p.text, "schema": p.described()})
	}
	if rt.method != http.MethodGet && rt.action&(access.Push|access.Work|access.Amend) != 0 {
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
				"name": wire.HeaderCopy, "in": "header", "required": false, "schema": count(1, math.MaxInt32),
				"description": "How many times a request with a key has been sent, with this one. The first is quicker when it says so.",
			})
	}
	if parameters != nil {
		op["parameters"] = parameters
	}
	if content := requestContent(rt, schemas); content != nil {
		op["requestBody"] = object{"required": rt.body != bodyMessage && !rt.mayHaveNoBody, "content": content}
	}
	return op
}

func requestContent(rt *route, schemas schemaSet) object {
	content := object{}
	switch rt.body {
	case bodyNone:
		return nil
	case bodyMessage:
		return object{"*/*": object{"schema": rawBytes("The bytes of the message, whatever they are.")}}
	case bodyLines:
		content[wire.TypeNDJSON] = object{"schema": schemas.lines(reflect.TypeFor[wire.PushItem](), "Each line is a message.")}
	}
	inJSON := object{"schema": schemas.of(reflect.TypeOf(rt.request))}
	if !reflect.ValueOf(rt.request).IsZero() {
		inJSON["example"] = rt.request
	}
	content[wire.TypeJSON] = inJSON
	if rt.compact {
		content[compactForm.mediaType] = object{"schema": compactForm.schema}
	}
	return content
}

// answerContent returns the schemas of the answers of a route that are not errors, by their media
// types.
func answerContent(rt *route, schemas schemaSet) object {
	content := object{}
	if rt.answer != nil {
		content[wire.TypeJSON] = object{"schema": schemas.of(reflect.TypeOf(rt.answer))}
	}
	for _, f := range rt.forms {
		schema := f.schema
		if f.line != nil {
			schema = schemas.lines(reflect.TypeOf(f.line), f.text)
		}
		content[f.mediaType] = object{"schema": schema}
	}
	return content
}

func responses(rt *route, schemas schemaSet, problem object) object {
	out := object{}
	for _, status := range rt.statuses {
		answer := object{"description": http.StatusText(status)}
		if status != http.StatusNoContent {
			answer["content"] = answerContent(rt, schemas)
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
	for _, k := range storekit.ErrorKinds() {
		if slices.Contains(codes, k.Code) {
			out = append(out, k.Code+": "+k.Meaning)
		}
	}
	return strings.Join(out, " ")
}
