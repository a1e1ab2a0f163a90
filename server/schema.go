package server

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/settings"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// This file has the schemas of values in the OpenAPI description.

// count is the schema of a whole number from least to most.
func count(least, most int64) object {
	schema := object{"type": "integer", "format": "int64", "minimum": least}
	if most <= math.MaxInt32 {
		schema["format"] = "int32"
	}
	if most < math.MaxInt32 {
		schema["maximum"] = most
	}
	return schema
}

// words is the schema of text that is one of a few words.
func words[T ~string](ws ...T) object { return object{"type": "string", "enum": ws} }

// named is the schema of a word that is the String of one of the values from first to last.
func named[T interface {
	~uint8
	fmt.Stringer
}](first, last T) object {
	var names []string
	for v := first; v <= last; v++ {
		names = append(names, v.String())
	}
	return words(names...)
}

// name is the schema of a name in a request: of a topic, a message (its ID) or a schedule.
func name(most int) object { return object{"type": "string", "minLength": 1, "maxLength": most} }

// instant and length are the schemas of a time and of a length of time.
func instant() object { return object{"type": "string", "format": "date-time"} }

func length() object { return object{"type": "string", "examples": []string{"30s", "2h30m", "2d"}} }

// attribute is the schema of an attribute of messages.
func attribute(f wire.AttributeField) object {
	if f.Length() {
		return length()
	}
	return object{"type": "string", "minLength": 1}
}

// tokenOfLease is the schema of the token of a lease, which is no number because many languages
// round large ones.
func tokenOfLease() object { return object{"type": "string", "pattern": "^-?[0-9]+$"} }

// rawBytes is the schema of bytes as they are.
func rawBytes(text string) object {
	return object{"type": "string", "format": "binary", "description": text}
}

// described is the schema of a parameter.
func (p *param) described() object {
	switch {
	case p.schema != nil:
		return p.schema
	case len(p.values) == 2 && p.values[0] == "true":
		return object{"type": "boolean"}
	case p.values != nil:
		return words(p.values...)
	}
	return object{"type": "string"}
}

// members returns what the Go types of bodies do not say: which words or which form a text has, and
// the bounds of numbers, lists and names. A key is the name of the type that has the member, a dot,
// and the member's name in JSON. Numbers that are not here are counts from 0.
func members() map[string]object {
	states := named(punctual.StateScheduled, punctual.StateDead)
	topic, id := name(limits.MaxTopicBytes), name(limits.MaxIDBytes)
	items := object{"maxItems": limits.MaxBatch}
	of := map[string]object{
		"PushRequest.messages":      items,
		"PushItem.topic":            topic,
		"PushItem.id":               id,
		"PushItem.max_attempts":     count(0, limits.MaxAttemptsLimit),
		"PushItem.expire":           length(),
		"PushItem.if_exists":        words(ifExistsWords...),
		"PushItem.if_due":           instant(),
		"When.in":                   length(),
		"When.due":                  instant(),
		"When.at":                   instant(),
		"When.at_local":             {"examples": []string{"2026-11-20 09:00"}},
		"When.zone":                 {"examples": []string{"Europe/Berlin"}},
		"PushResult.result":         named(punctual.PushStored, punctual.PushReplaced),
		"PushResult.existing":       states,
		"ClaimRequest.topics":       {"minItems": 1, "maxItems": limits.MaxClaimTopics},
		"ClaimRequest.max":          count(1, limits.MaxClaim),
		"ClaimRequest.ids":          {"minItems": 1, "maxItems": limits.MaxClaim},
		"ClaimRequest.per_topic":    count(0, math.MaxInt32),
		"Delivery.token":            tokenOfLease(),
		"Delivery.attempt":          count(1, math.MaxInt64),
		"SettleRequest.settlements": items,
		"SettleItem.topic":          topic,
		"SettleItem.id":             id,
		"SettleItem.token":          tokenOfLease(),
		"SettleItem.verb":           named(punctual.SettleAck, punctual.SettleExtend),
		"SettleItem.then":           {"maxItems": limits.MaxThen},
		"SettleBody.then":           {"maxItems": limits.MaxThen},
		"AmendRequest.amendments":   items,
		"AmendItem.change":          named(punctual.ChangeCancel, punctual.ChangeDelete),
		"AmendItem.topic":           topic,
		"AmendItem.id":              id,
		"AmendItem.if_due":          instant(),
		"AmendResult.outcome":       words(wire.Outcomes()...),
		"Message.state":             states,
		"Message.reason":            words(reasons...),
		"Finished.outcome":          words(wire.OutcomeWords()...),
		"Finding.severity":          named(storekit.SeverityGood, storekit.SeverityBad),
		"Abilities.follow":          named(storekit.ReachNone, storekit.ReachAny),
		"Info.durability":           words(punctual.Fsync, punctual.Replicated, punctual.Volatile),
		"Health.status":             words("ok", "degraded"),
		"Problem.status":            count(400, 599),
		"Problem.code":              words(wire.Codes()...),
	}
	for _, f := range &wire.AttributeFields {
		of["Attributes."+f.Name] = attribute(f)
	}
	maps.Copy(of, scheduleMembers())
	return of
}

// schemaSet is the schemas of named types.
type schemaSet struct {
	named   map[string]any
	members map[string]object
}

func newSchemaSet() schemaSet { return schemaSet{named: map[string]any{}, members: members()} }

// lines is the schema of NDJSON with a value of a type on each line. OpenAPI 3.1 has no word for
// the item of a stream, so contentSchema has the schema of one line.
func (s schemaSet) lines(item reflect.Type, text string) object {
	return object{
		"type": "string", "description": "NDJSON: lines of JSON that end with a line feed. " + text,
		"contentMediaType": wire.TypeNDJSON, "contentSchema": s.ref(item),
	}
}

// addSettings adds the settings of a topic to properties, and returns their names.
func addSettings(properties object) (names []string) {
	for _, row := range settings.Table {
		schema := object{"type": "string"}
		switch row.Kind() {
		case settings.Duration:
			schema = length()
		case settings.Count:
			schema = count(row.Range())
		case settings.Truth:
			schema = object{"type": "boolean"}
		case settings.List:
			schema = object{"type": "array", "items": object{"type": "string"}}
		}
		schema["description"] = row.Sentence()
		properties[row.Name] = schema
		names = append(names, row.Name)
	}
	return names
}

// of is the schema of a type, or the reference to it.
func (s schemaSet) of(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[wire.Time]():
		return instant()
	case reflect.TypeFor[wire.Duration]():
		return length()
	case reflect.TypeFor[wire.Text]():
		return object{"type": "string", "description": "The message's body when it is UTF-8. In a request any other JSON value but null may stand here, too; its text is the body then."}
	case reflect.TypeFor[[]byte]():
		return object{"type": "string", "format": "byte", "contentEncoding": "base64"}
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
	case reflect.Int, reflect.Int64:
		return count(0, math.MaxInt64)
	}
	return object{"type": "string"}
}

func (s schemaSet) ref(t reflect.Type) object {
	if _, known := s.named[t.Name()]; !known {
		s.named[t.Name()] = object{} // a type may hold itself
		properties, required := object{}, []string{}
		s.addFields(t, properties, &required)
		s.named[t.Name()] = object{"type": "object", "properties": properties, "required": required}
	}
	return object{"$ref": "#/components/schemas/" + t.Name()}
}

func (s schemaSet) addFields(t reflect.Type, properties object, required *[]string) {
	switch t {
	case reflect.TypeFor[wire.Settings]():
		*required = append(*required, addSettings(properties)...)
		return
	case reflect.TypeFor[wire.SettingsPatch]():
		only := object{}
		addSettings(only)
		addSettings(properties)
		properties["if"] = object{"type": "object", "properties": only, "description": "Only while these settings have these values; otherwise nothing is changed, and the answer is 409."}
		return
	}
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
		if schema["$ref"] == nil {
			maps.Copy(schema, s.members[t.Name()+"."+name])
		}
		properties[name] = schema
		if !strings.Contains(rest, "omit") {
			*required = append(*required, name)
		}
	}
}
