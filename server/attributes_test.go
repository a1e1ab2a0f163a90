package server

import (
	"net/http"
	"slices"
	"testing"

	attributesrig "github.com/punctualmq/punctual/internal/rigs/attributes"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// TestAttributesAreHandedOn: each attribute is a parameter of a push and a member of a schedule,
// and both are described.
func TestAttributesAreHandedOn(t *testing.T) {
	r := newRig(t, nil)
	full := attributesrig.Full(t)
	query, schedule, members := "?in=1h", `{"spec":"@daily"`, members()
	for _, a := range wire.AttributesToShow(full) {
		query += "&" + a.Name + "=" + a.Value
		schedule += `,"` + a.Name + `":"` + a.Value + `"`
		if !slices.ContainsFunc(attributeParams(), func(p param) bool { return p.name == a.Name }) {
			t.Errorf("attributeParams has no %s", a.Name)
		}
		if members["Attributes."+a.Name] == nil {
			t.Errorf("the schema has no %s", a.Name)
		}
	}
	r.ask("PUT /v1/topics/a/messages/1"+query, "body").want(t, http.StatusCreated)
	m, err := r.store.Get(t.Context(), "a", "1")
	if err != nil {
		t.Fatal(err)
	}
	if got := storekit.AttributesOf(&m.Message); got != full {
		t.Errorf("pushed with %s: %+v, want %+v", query, got, full)
	}
	stored := decode[wire.Schedule](t, r.ask("PUT /v1/topics/a/schedules/b", schedule+"}").want(t, http.StatusCreated))
	if s, err := stored.ScheduleItem.Schedule("a", "b"); err != nil || s.Attributes() != full {
		t.Errorf("%s}: %+v, %v; want %+v", schedule, s, err, full)
	}
}
