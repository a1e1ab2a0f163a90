package wire

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/settings"
	"github.com/punctualmq/punctual/storekit"
)

// SettingsPatch is the body of PATCH /v1/topics/TOPIC/settings, which changes the settings that it
// contains. Its members are the rows of settings.Table, and "if", an object of them
// (punctual.SettingsPatch.If).
type SettingsPatch struct{ patch punctual.SettingsPatch }

const memberIf = "if"

// SettingsPatchOf returns p for a request.
func SettingsPatchOf(p punctual.SettingsPatch) SettingsPatch { return SettingsPatch{p} }

// Patch returns the patch as a punctual.SettingsPatch.
func (p *SettingsPatch) Patch() punctual.SettingsPatch { return p.patch }

// MarshalJSONTo writes the members that are given, in the order of the table.
func (p SettingsPatch) MarshalJSONTo(e *jsontext.Encoder) error {
	var s punctual.Settings
	if err := e.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, row := range settings.Table {
		if !row.Given(&p.patch) {
			continue
		}
		row.Apply(&s, &p.patch)
		if err := e.WriteToken(jsontext.String(row.Name)); err != nil {
			return err
		}
		if err := e.WriteValue(row.JSON(&s)); err != nil {
			return err
		}
	}
	if p.patch.If != nil {
		if err := e.WriteToken(jsontext.String(memberIf)); err != nil {
			return err
		}
		only := *p.patch.If
		only.If = nil
		if err := (SettingsPatch{only}).MarshalJSONTo(e); err != nil {
			return err
		}
	}
	return e.WriteToken(jsontext.EndObject)
}

// UnmarshalJSONFrom reads an object. A member that is null changes nothing.
func (p *SettingsPatch) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	switch kind := d.PeekKind(); kind {
	case jsontext.KindBeginObject, jsontext.KindInvalid:
	case jsontext.KindNull:
		return d.SkipValue()
	default:
		return storekit.Invalidf("%s where an object is expected", given(kind))
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != jsontext.KindEndObject {
		if err := p.readMember(d); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

func (p *SettingsPatch) readMember(d *jsontext.Decoder) error {
	quoted, err := d.ReadValue()
	if err != nil {
		return err
	}
	name, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		return err
	}
	if string(name) == memberIf && d.StackDepth() == 1 {
		var only SettingsPatch
		p.patch.If = &only.patch
		return only.UnmarshalJSONFrom(d)
	}
	row := settings.Find(string(name))
	if row == nil {
		if strict, _ := json.GetOption(d.Options(), json.RejectUnknownMembers); strict {
			return refused(d, quoted, storekit.Invalidf("the name is not known: use %s", settings.Names()))
		}
		return d.SkipValue()
	}
	value, err := d.ReadValue()
	if err != nil {
		return err
	}
	if err := row.FromJSON(&p.patch, value); err != nil {
		return refused(d, value, err)
	}
	return nil
}

// refused returns err as an error about the value that d has just read, with its place.
func refused(d *jsontext.Decoder, value jsontext.Value, err error) error {
	return &json.SemanticError{JSONPointer: d.StackPointer(), ByteOffset: d.InputOffset() - int64(len(value)), Err: err}
}

// Settings are the settings of a topic in an answer. They are written like a patch that contains
// all settings.
type Settings struct{ SettingsPatch }

// SettingsOf returns s for an answer.
func SettingsOf(s punctual.Settings) (out Settings) {
	for _, row := range settings.Table {
		row.Take(&out.patch, &s)
	}
	return out
}

// Settings returns the settings as a punctual.Settings. Settings that were added after the first
// release have their defaults if an older server leaves them out. Any other missing setting is an
// ErrIndeterminate.
func (s *Settings) Settings() (punctual.Settings, error) {
	out := punctual.DefaultSettings()
	for _, row := range settings.Table {
		if !row.Quiet && !row.Given(&s.patch) {
			return punctual.Settings{}, strangeAnswer("there are settings without %s", row.Name)
		}
		row.Apply(&out, &s.patch)
	}
	return out, nil
}
