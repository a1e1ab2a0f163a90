package health

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

func TestOlder(t *testing.T) {
	for version, want := range map[string]bool{
		"6.2.0": false, "6.2.14": false, "7.0.15": false, "10.0.0": false, "6.0.20": true, "5.0.14": true, "": true, "unstable": true, "255.255.255": false,
	} {
		if got := Older(version, oldest); got != want {
			t.Errorf("Older(%q) = %v, want %v", version, got, want)
		}
	}
}

// P8: nodes whose clocks differ by more than maxSkew do not make one clock.
func TestSkew(t *testing.T) {
	nodes := func(ahead ...time.Duration) (out []primary) {
		for _, a := range ahead {
			out = append(out, primary{ahead: a})
		}
		return out
	}
	if err := skewOf(nodes(-time.Hour, -time.Hour+time.Second)); err != nil {
		t.Errorf("P8: clocks a second apart: %v", err)
	}
	if err := skewOf(nodes(0, time.Minute, time.Second)); !errors.Is(err, punctual.ErrDurability) {
		t.Errorf("P8: clocks a minute apart: %v; want ErrDurability", err)
	}
}

func TestNodesDown(t *testing.T) {
	got := nodesDown("a 127.0.0.1:1@2 myself,master - 0 0 1 connected 0-5\nb 127.0.0.1:3@4,host slave,fail a 0 0 1 disconnected\nc 127.0.0.1:5@6 master,fail? - 0 0 1 connected\nd 127.0.0.1:7@8 master,nofailover - 0 0 1 connected\n")
	if strings.Join(got, " ") != "127.0.0.1:3 127.0.0.1:5" {
		t.Errorf("nodes down: %q", got)
	}
}
