package compact

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// TestGenerated: the generated code says what server/punctual.proto says. "make proto" renews it.
func TestGenerated(t *testing.T) {
	text, err := os.ReadFile("../../../server/punctual.proto")
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`//[^\n]*`).ReplaceAllString(string(text), "")
	_, want, found := strings.Cut(want, "internal/wire/compact\";")
	if !found || !strings.Contains(want, "message PushRequest {") {
		t.Fatal("this test shows nothing: server/punctual.proto is not understood")
	}
	got := map[string]bool{}
	file := File_punctual_proto
	for i := range file.Messages().Len() {
		got[messageText(file.Messages().Get(i))] = true
	}
	for i := range file.Enums().Len() {
		got[enumText(file.Enums().Get(i))] = true
	}
	for block := range strings.SplitSeq(want, "}") {
		block = strings.Join(strings.Fields(block), " ")
		if block != "" && !got[block] {
			t.Errorf("run make proto: the generated code does not have: %s }", block)
		}
		delete(got, block)
	}
	for block := range got {
		t.Errorf("run make proto: server/punctual.proto does not have: %s }", block)
	}
}

func messageText(m protoreflect.MessageDescriptor) string {
	var b strings.Builder
	fmt.Fprintf(&b, "message %s {", m.Name())
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		kind := f.Kind().String()
		switch {
		case f.Message() != nil:
			kind = string(f.Message().Name())
		case f.Enum() != nil:
			kind = string(f.Enum().Name())
		}
		label := ""
		switch {
		case f.IsList():
			label = "repeated "
		case f.HasOptionalKeyword():
			label = "optional "
		}
		fmt.Fprintf(&b, " %s%s %s = %d;", label, kind, f.Name(), f.Number())
	}
	return b.String()
}

func enumText(e protoreflect.EnumDescriptor) string {
	var b strings.Builder
	fmt.Fprintf(&b, "enum %s {", e.Name())
	for i := range e.Values().Len() {
		fmt.Fprintf(&b, " %s = %d;", e.Values().Get(i).Name(), e.Values().Get(i).Number())
	}
	return b.String()
}
