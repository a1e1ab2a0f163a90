#!/usr/bin/env bash
# robfig/cron 3.0.1, with which asynq 0.26 reads its periodic tasks, loses times on Lord Howe Island,
# where clocks go forward by half an hour. "0 9 * * *" asked on the day before the change leaves out
# nine o'clock on the day of the change; asked that morning, it has it. "15,45 0 */2 * *" asked across
# the change leaves out 00:15 two days later, and keeps 00:45. So which times come depends on when the
# program was asked, and a scheduler that sleeps until the next one misses those. Europe, where clocks
# change by an hour, is not concerned.
#
# Needs Go. Run on 2026-11-29 with Go 1.26 and robfig/cron 3.0.1; what was seen stands at the end.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >go.mod <<'MOD'
module lordhowe

go 1.22

require github.com/robfig/cron/v3 v3.0.1
MOD
cat >main.go <<'GO'
package main

import (
	"fmt"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"
)

func main() {
	zone, err := time.LoadLocation("Australia/Lord_Howe")
	if err != nil {
		panic(err)
	}
	for _, c := range []struct{ spec, from string }{
		{"15,45 0 */2 * *", "2025-10-04T21:48:00+10:30"}, {"15,45 0 */2 * *", "2025-10-05T12:00:00+11:00"}, {"0 9 * * *", "2027-10-02T12:00:00+10:30"}, {"0 9 * * *", "2027-10-03T08:00:00+11:00"},
	} {
		at, err := time.Parse(time.RFC3339, c.from)
		if err != nil {
			panic(err)
		}
		s, err := cron.ParseStandard(c.spec)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s from %s:", c.spec, c.from)
		at = at.In(zone)
		for i := 0; i < 3; i++ {
			at = s.Next(at)
			fmt.Printf(" %s", at.Format("2006-01-02T15:04"))
		}
		fmt.Println()
	}
}
GO
seen=$(GOFLAGS=-mod=mod go run .)
printf '%s\n' "$seen"
diff <(printf '%s\n' "$seen") - <<'TEXT'
15,45 0 */2 * * from 2025-10-04T21:48:00+10:30: 2025-10-05T00:15 2025-10-05T00:45 2025-10-07T00:45
15,45 0 */2 * * from 2025-10-05T12:00:00+11:00: 2025-10-07T00:15 2025-10-07T00:45 2025-10-09T00:15
0 9 * * * from 2027-10-02T12:00:00+10:30: 2027-10-04T09:00 2027-10-05T09:00 2027-10-06T09:00
0 9 * * * from 2027-10-03T08:00:00+11:00: 2027-10-03T09:00 2027-10-04T09:00 2027-10-05T09:00
TEXT
