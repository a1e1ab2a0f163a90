package limits

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MaxRateN and MaxRatePer are the greatest Rate.N and the longest Rate.Per. The shortest Per is a
// millisecond.
const (
	MaxRateN   = 1_000_000
	MaxRatePer = 366 * 24 * time.Hour
)

// Rate bounds how many leases begin in a time: N in each Per, evenly. The zero Rate is no bound.
//
// Between two leases there is Per / N, rounded up to a microsecond. Up to Burst of them may begin
// at once after so much time without one, so in no time of the length Per do more than N + Burst -
// 1 begin. A Burst of 0 is a tenth of N, at least 1.
//
// The rule is the generic cell rate algorithm (ITU-T I.371).
type Rate struct {
	N     int
	Per   time.Duration
	Burst int
}

// PerSecond is the rate of n leases a second.
func PerSecond(n int) Rate { return Rate{N: n, Per: time.Second} }

// Interval is the time between two leases, in microseconds: 0 for the zero Rate.
func (r Rate) Interval() int64 {
	n := max(int64(r.N), 1)
	return (r.Per.Microseconds() + n - 1) / n
}

// AtOnce is how many leases may begin at once.
func (r Rate) AtOnce() int64 {
	if r.Burst > 0 {
		return int64(r.Burst)
	}
	return max(1, int64(r.N)/10)
}

// noRate is the text of the zero Rate.
const noRate = "none"

// String writes a rate as ParseRate reads it: "10/1s", "1000/1m,burst=5" or "none".
func (r Rate) String() string {
	if r == (Rate{}) {
		return noRate
	}
	text := strconv.Itoa(r.N) + "/" + r.Per.String()
	if r.Burst != 0 {
		text += ",burst=" + strconv.Itoa(r.Burst)
	}
	return text
}

// ParseRate reads what String writes. The 1 of 1s may be left out.
func ParseRate(text string) (Rate, error) {
	if text == noRate {
		return Rate{}, nil
	}
	wrong := func(why error) (Rate, error) {
		return Rate{}, fmt.Errorf("rate %q is not understood (%w): write it like 10/1s, 1000/1m,burst=5 or none", text, why)
	}
	n, rest, found := strings.Cut(text, "/")
	per, burst, bursts := strings.Cut(rest, ",burst=")
	if !found {
		return wrong(errors.New("it has no /"))
	}
	if per != "" && (per[0] < '0' || per[0] > '9') {
		per = "1" + per
	}
	var r Rate
	var err error
	if r.N, err = strconv.Atoi(n); err != nil {
		return wrong(err)
	}
	if r.Per, err = time.ParseDuration(per); err != nil {
		return wrong(err)
	}
	if bursts {
		if r.Burst, err = strconv.Atoi(burst); err != nil {
			return wrong(err)
		}
	}
	if r == (Rate{}) {
		return wrong(errors.New("it lets nothing begin in no time"))
	}
	return r, nil
}

// Problem says what is wrong with a rate, and returns "" when nothing is.
func (r Rate) Problem() string {
	switch {
	case r == (Rate{}):
		return ""
	case r.N < 1 || r.N > MaxRateN:
		return fmt.Sprintf("%s begins %d leases: use 1 to %d, or none", r, r.N, MaxRateN)
	case r.Per < time.Millisecond || r.Per > MaxRatePer:
		return fmt.Sprintf("%s counts in %v: use 1ms to %v", r, r.Per, MaxRatePer)
	case r.Per.Microseconds() < int64(r.N):
		return fmt.Sprintf("%s is more than one in a microsecond: use a longer time", r)
	case r.Burst < 0 || r.Burst > r.N:
		return fmt.Sprintf("%s has a burst of %d: use 0 (a tenth of %d) to %d", r, r.Burst, r.N, r.N)
	}
	return ""
}
