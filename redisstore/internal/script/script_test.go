package script

import (
	"path/filepath"
	"strings"
	"testing"
)

// Every file of lua/ is part of a script, and those that change something begin with what makes a copy harmless.
func TestFiles(t *testing.T) {
	all := []*Script{Push, Claim, Settle, Amend, Get, Finished, List, Stats, Forecast, Layout, Check, Configure, Copy, Spread, Purge, Delete, Store, Forget, Refuse, Registry, Confirm, Rights}
	paths, err := filepath.Glob("lua/*.lua")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		text, err := files.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		used := false
		for _, sc := range all {
			used = used || strings.Contains(sc.Text, string(text))
		}
		if !used {
			t.Errorf("%s is part of no script", path)
		}
	}
	const knowsCopies = "local window = floor(deadline / WINDOW)"
	for _, sc := range all {
		if has := strings.Contains(sc.Text, knowsCopies); has != (sc.Repeat == Recorded) {
			t.Errorf("%s knows copies again: %v; its class says %v", sc.Name, has, sc.Repeat == Recorded)
		}
	}
}

// The command that runs a script has keys and arguments in their places, and a header that tells whether it is a copy.
func TestLine(t *testing.T) {
	h := Header{Floor: 1, Seconds: -1, Number: 7, Deadline: 9}
	first, copied := Line("evalsha", "x", []any{"k"}, []any{h, "caller"}, false), Line("evalsha", "x", []any{"k"}, []any{h, "caller"}, true)
	if len(first) != FirstKey+3 || first[2] != 1 || KeyIn(first, 0) != "k" || first[FirstKey+2] != "caller" {
		t.Errorf("the line is %v", first)
	}
	a, b := first[FirstKey+1].([]byte), copied[FirstKey+1].([]byte)
	if len(a) != 41 || a[40] != 0 || b[40] != flagAgain || string(a[:40]) != string(b[:40]) {
		t.Errorf("the headers are %v and %v; want them to differ in the flag of a copy", a, b)
	}
}
