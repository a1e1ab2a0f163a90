package wire

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/punctualmq/punctual"
	attributesrig "github.com/punctualmq/punctual/internal/rigs/attributes"
	"github.com/punctualmq/punctual/internal/wire/compact"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// An attribute that only a newer server knows is passed over in a delivery. A push with it is
// refused (TestCompactIsStrict).
func TestDeliveryWithANewerAttribute(t *testing.T) {
	d := punctual.Delivery{Message: punctual.Message{ID: "1", Topic: "a", Remember: time.Minute}}
	data, err := EncodeClaimAnswer(Compact, []punctual.Delivery{d})
	if err != nil {
		t.Fatal(err)
	}
	var answer compact.ClaimAnswer
	if err := proto.Unmarshal(data, &answer); err != nil {
		t.Fatal(err)
	}
	answer.Messages[0].Attributes.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	newer, err := proto.Marshal(&answer)
	if err != nil || len(newer) <= len(data) {
		t.Fatalf("%x has no further attribute, %v", newer, err)
	}
	ds, err := DecodeClaimAnswer(Compact, newer)
	if err != nil || len(ds) != 1 || ds[0].Remember != time.Minute {
		t.Errorf("%x is read as %+v, %v", newer, ds, err)
	}
}

// TestAttributesAreHandedOn: each attribute is a member of messages and schedules, survives both
// forms, and is shown to people.
func TestAttributesAreHandedOn(t *testing.T) {
	full := attributesrig.Full(t)
	if got, err := attributesOf(full).Read(); err != nil || got != full {
		t.Errorf("members: %+v, %v; want %+v", got, err, full)
	}
	if shown := AttributesToShow(full); len(shown) != reflect.TypeFor[storekit.Attributes]().NumField() {
		t.Errorf("shown: %v, of %+v", shown, full)
	}
	s := schedule.Schedule{Spec: "@daily"}
	s.SetAttributes(full)
	item := ScheduleItemOf(&s)
	if back, err := item.Schedule("a", "b"); err != nil || back.Attributes() != full {
		t.Errorf("a schedule: %+v, %v; want %+v", back, err, full)
	}
	d := punctual.Delivery{Message: punctual.Message{ID: "1", Topic: "a"}}
	full.Set(&d.Message)
	m := punctual.NewMessage{Topic: "a"}
	full.SetNew(&m)
	for _, form := range []Form{JSON, Compact} {
		data, err := EncodeClaimAnswer(form, []punctual.Delivery{d})
		if err != nil {
			t.Fatal(err)
		}
		if ds, err := DecodeClaimAnswer(form, data); err != nil || len(ds) != 1 || storekit.AttributesOf(&ds[0].Message) != full {
			t.Errorf("a delivery, form %v: %+v, %v; want %+v", form, ds, err, full)
		}
	}
	data, err := EncodePush(JSON, []punctual.NewMessage{m})
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range AttributesToShow(full) {
		if want := `"` + shown.Name + `":"` + shown.Value + `"`; !strings.Contains(string(data), want) {
			t.Errorf("a push in JSON has no %s: %s", want, data)
		}
	}
}
