package cli

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/storekit"
)

// TestClock: a store whose clock was ten years ahead opens again after punctual clock. While the store is open, the command is refused.
func TestClock(t *testing.T) {
	r, dir := newRig(t), filepath.Join(t.TempDir(), "store")
	r.run("clock", dir).exits(exitUnwished, "no such directory")
	r.run("clock").exits(exitUsage)
	s, err := diskstore.Open(dir, &diskstore.Options{Clock: storekit.NewManualClock(time.Now().AddDate(10, 0, 0))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "o", ID: "a"}}); err != nil {
		t.Fatal(err)
	}
	r.run("clock", dir).exits(exitError, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := diskstore.Open(dir, nil); err == nil {
		t.Fatal("a store ten years ahead opened")
	}
	r.run("clock", dir).ok().contains("is now")
	r.run("clock", dir, "--json").ok().contains(`"reset":false`)
	if s, err = diskstore.Open(dir, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
