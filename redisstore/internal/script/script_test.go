package script

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var all = []*Script{
	Push, Claim, Settle, Amend, Get, Finished, ListFinished, List, Stats, Forecast, Layout, Check, Configure, Copy, Spread, Purge, Delete, Store, Step, Forget, Refuse, Registry, Confirm, Rights,
}

// Every file of lua/ is part of a script. The Recorded scripts, and no others, have the part of
// lua/call.lua that recognizes a copy.
func TestFiles(t *testing.T) {
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
	const knowsCopies = "local window = floor((deadline + shift) / WINDOW)"
	for _, sc := range all {
		if has := strings.Contains(sc.Text, knowsCopies); has != (sc.Repeat == Recorded) {
			t.Errorf("%s knows copies again: %v; its class says %v", sc.Name, has, sc.Repeat == Recorded)
		}
	}
}

// The files of a script share one scope. None of their local variables and functions has the name
// of another one of the script, which later lines could mean.
func TestNamesOfLocals(t *testing.T) {
	local := regexp.MustCompile(`(?m)^local (?:function )?([\w, ]+)`)
	for _, sc := range all {
		seen := make(map[string]bool)
		for _, m := range local.FindAllStringSubmatch(sc.Text, -1) {
			for name := range strings.SplitSeq(m[1], ",") {
				name = strings.TrimSpace(name)
				if seen[name] && name != "_" {
					t.Errorf("%s has two locals with the name %s", sc.Name, name)
				}
				seen[name] = true
			}
		}
	}
}

// A script awaits replicas exactly if the files that it does not share with most scripts write,
// unless what they write may get lost for the reason given in mayGetLost. The shared files do not
// count, because what they write for any script, such as the clock, promises nothing.
func TestAwaitsReplicas(t *testing.T) {
	mayGetLost := map[*Script]string{
		Claim:   "the message is delivered once more",
		Settle:  "the message is delivered once more",
		Forget:  "a record of a claim, which is no promise",
		Refuse:  "copies of calls are refused by the deadline, too",
		Step:    "the partition makes the step again",
		Confirm: "it is what the waiting for replicas is done with",
	}
	conditions := map[*Script]map[string][]any{ // what its Lua must have, with arguments that make it write nothing
		Registry: {"if ARGV[5] == 'list' then return": {0, 0, "", "", "list", "", 0, 0}},
		Store:    {"if begins then": {0, 0, "", "", "", "1", "0", ""}, "elseif got[2] and (ARGV[7] == '1' or stepped == 1) then": {0, 0, "", "", "", "1", "0", ""}},
	}
	write := regexp.MustCompile(`call\('(ZADD|ZREM|ZREMRANGEBYRANK|HSET|HDEL|UNLINK|PERSIST|PEXPIRE)'`)
	for _, sc := range all {
		own := sc.Text
		for _, shared := range []string{"start", "call", "kept", "settings", "finished_records", "prelude", "keyed"} {
			text, err := files.ReadFile("lua/" + shared + ".lua")
			if err != nil {
				t.Fatal(err)
			}
			own = strings.ReplaceAll(own, string(text), "")
		}
		writes := write.MatchString(own)
		args := []any{0, 0, "", "", "x", "1", "1", ""}
		if got, want := sc.AwaitsReplicas(args), writes && mayGetLost[sc] == ""; got != want {
			t.Errorf("%s awaits replicas: %t; its Lua writes: %t, and may that get lost? %q", sc.Name, got, writes, mayGetLost[sc])
		}
		for guard, args := range conditions[sc] {
			if !strings.Contains(own, guard) || sc.AwaitsReplicas(args) {
				t.Errorf("%s awaits replicas when called with %q: %t; its Lua has %q: %t", sc.Name, args, sc.AwaitsReplicas(args), guard, strings.Contains(own, guard))
			}
		}
	}
	for _, args := range [][]any{{0, 0, "", "", "epoch", "1", "", ""}, {0, 0, "", "", "", "1", "1", ""}, {0, 0, "", "", "", "1", "", "1"}} {
		if !Store.AwaitsReplicas(args) {
			t.Errorf("store does not await replicas when called with %q, which writes", args)
		}
	}
}

// The command that runs a script has its keys and arguments in their places, and a header with a
// flag in each copy but the first.
func TestLine(t *testing.T) {
	h := Header{LowerBound: 1, Seconds: -1, Number: 7, Deadline: 9}
	first, copied := Line("evalsha", "x", []any{"k"}, []any{h, "caller"}, false), Line("evalsha", "x", []any{"k"}, []any{h, "caller"}, true)
	if len(first) != FirstKey+3 || first[2] != 1 || KeyIn(first, 0) != "k" || first[FirstKey+2] != "caller" {
		t.Errorf("the line is %v", first)
	}
	a, b := first[FirstKey+1].([]byte), copied[FirstKey+1].([]byte)
	if len(a) != 49 || a[48] != 0 || b[48] != flagAgain || string(a[:48]) != string(b[:48]) {
		t.Errorf("the headers are %v and %v; want them to differ in the flag of a copy", a, b)
	}
}
