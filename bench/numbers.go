package main

import (
	"fmt"
	"math"
	"strconv"
)

// This file writes the numbers of tables and charts.

// digits writes v with three significant digits, but with at most three decimals, and with commas
// between thousands.
func digits(v float64) string {
	if v == 0 {
		return "0"
	}
	after := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	s := strconv.FormatFloat(v, 'f', min(after, 3), 64)
	if after > 0 {
		return s
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-2)
	return commas(int64(math.Round(math.Round(v/unit) * unit)))
}

func commas(n int64) string {
	if n < 0 {
		return "-" + commas(-n)
	}
	if n < 1000 {
		return strconv.FormatInt(n, 10)
	}
	return commas(n/1000) + fmt.Sprintf(",%03d", n%1000)
}

// short writes a number in few characters, for axes, labels and headings: 1.5 M, 20 k, 0.25.
func short(v float64) string {
	trim := func(v float64) string { return strconv.FormatFloat(math.Round(v*1000)/1000, 'g', 4, 64) }
	switch {
	case math.Abs(v) >= 1e6:
		return trim(v/1e6) + " M"
	case math.Abs(v) >= 1e3:
		return trim(v/1e3) + " k"
	}
	return trim(v)
}

// figure writes a value over its rounds: the median, and the least and the greatest if f writes
// these two differently.
func (s spread) figure(f func(float64) string) string {
	if f(s.min) == f(s.max) {
		return f(s.median)
	}
	return f(s.median) + " (" + f(s.min) + " to " + f(s.max) + ")"
}

// times returns the spread multiplied by f, for example to write it in another unit.
func (s spread) times(f float64) spread {
	return spread{s.median * f, s.min * f, s.max * f, s.rounds}
}

func percent(v float64) string { return strconv.Itoa(int(math.Round(v*100))) + " %" }

func ratio(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
