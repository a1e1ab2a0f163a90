package cli

import "testing"

func TestTopNeedsATerminal(t *testing.T) {
	r := newRig(t)
	r.run("top").exits(exitUsage, "top needs a terminal", "stats --json")
	r.run("top", "--json").exits(exitUsage, "terminal")
	r.run("top", "x").exits(exitUsage)
}
