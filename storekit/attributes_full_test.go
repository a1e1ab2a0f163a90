package storekit_test

import (
	"testing"

	"github.com/punctualmq/punctual"
	attributesrig "github.com/punctualmq/punctual/internal/rigs/attributes"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// TestAttributesAreHandedOn: each attribute gets into messages, schedules and blocks, and out of
// them.
func TestAttributesAreHandedOn(t *testing.T) {
	full := attributesrig.Full(t)
	var fresh punctual.NewMessage
	var stored punctual.Message
	var s schedule.Schedule
	full.SetNew(&fresh)
	full.Set(&stored)
	s.SetAttributes(full)
	read, err := storekit.ReadAttributes(full.Block())
	if err != nil {
		t.Fatal(err)
	}
	for where, got := range map[string]storekit.Attributes{
		"a new message": storekit.NewAttributes(&fresh), "a message": storekit.AttributesOf(&stored), "a schedule": s.Attributes(),
		"a block": read, "whole milliseconds": full.Whole(),
	} {
		if got != full {
			t.Errorf("%s has %+v, want %+v", where, got, full)
		}
	}
}
