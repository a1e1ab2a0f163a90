package route

import (
	"fmt"
	"testing"

	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/script"
)

// P10: what is kept of calls without an answer follows the callers and the last minutes, however
// long no server answers.
func TestUnansweredCallsAreBounded(t *testing.T) {
	const callers, partitions = 8, 3
	var u unansweredCalls
	var names keys.Names
	now := int64(1_800_000_000_000)
	for i := range int64(5000) {
		p := names.Partition(fmt.Sprint("topic ", i%partitions), 0)
		if i%2 == 0 {
			p = names.Partition(fmt.Sprint("called once ", i), 0)
		}
		u.add(p, []string{p.Tag + "beside"}, unanswered{fmt.Sprint("me:", i%callers), i, now + CallTime, 0}, now)
		now += 100 // so that more than 8 minutes pass in all
	}
	kept := 0
	for _, calls := range u.of {
		kept += len(calls)
	}
	// Every 200 ms a call goes to a partition that gets no other call, and each of these calls may
	// be kept for two windows.
	if most := 3*callers*partitions + int(2*script.RecordWindow/200); kept == 0 || kept > most {
		t.Errorf("P10: %d calls are kept; want at most %d", kept, most)
	}
	if len(u.beside) != len(u.of) {
		t.Errorf("P10: %d partitions are kept that calls in %d partitions change beside their own", len(u.beside), len(u.of))
	}
	p := names.Partition("topic 1", 0)
	last := u.to(p)
	u.refused(p, last)
	if left := u.to(p); len(last) == 0 || len(left) > 0 {
		t.Errorf("of %v there are left %v", last, left)
	}
	if homes := u.changing(keys.Partition{Tag: p.Tag + "beside"}); len(homes) > 0 {
		t.Errorf("partitions %v are to refuse calls that they refuse already", homes)
	}
}

// Of the calls of a caller with deadlines in one window the latest number and the latest deadline
// are kept, because the record that refuses that number refuses the earlier ones, too.
func TestUnansweredCallsOfACaller(t *testing.T) {
	var u unansweredCalls
	var names keys.Names
	p := names.Partition("orders", 0)
	window := int64(script.RecordWindow) * 1000
	for _, c := range []unanswered{{"me:0", 1, window + 9, 0}, {"me:1", 1, window, 0}, {"me:0", 3, window + 5, 0}, {"me:0", 4, window + script.RecordWindow, 0}} {
		u.add(p, nil, c, window)
	}
	want := []unanswered{{"me:1", 1, window, 0}, {"me:0", 3, window + 9, 0}, {"me:0", 4, window + script.RecordWindow, 0}}
	if got := u.to(p); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("kept are %v; want %v", got, want)
	}
	// What was added while others were being refused stays.
	u.refused(p, want[:1])
	u.add(p, nil, unanswered{"me:1", 6, window, 0}, window)
	u.refused(p, want)
	if got := u.to(p); len(got) != 1 || got[0].number != 6 {
		t.Errorf("kept are %v; want call 6", got)
	}
}
