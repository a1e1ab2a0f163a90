package console

import (
	"context"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
)

const (
	// newestLooks bounds the calls for the newest messages of a list.
	newestLooks = 20
	// firstWindow is the time that is looked at first, leastWindow the shortest.
	firstWindow, leastWindow = time.Hour, time.Second
)

// newest returns the messages of a list whose times are the latest, the latest first, about n of them. A list begins with the earliest, so
// it looks at windows of time, from now backwards, wider or narrower by what it finds. whole tells that there are no more.
func newest(ctx context.Context, i punctual.Inspector, q punctual.ListQuery, now time.Time, n int) (out []punctual.Info, whole bool, err error) {
	begin, full, width := q.From, time.Time{}, firstWindow // full begins a window in which there are more than fit
	if q.To.IsZero() {
		q.To = now.Add(time.Millisecond)
	}
	for looks := newestLooks; looks > 0 && len(out) < n; looks-- {
		q.From = q.To.Add(-width)
		switch {
		case !full.IsZero() && (looks == 1 || q.From.Before(full)):
			q.From = full
		case full.IsZero() && (looks == 1 || q.From.Before(begin) || width > longestWindow):
			q.From = begin
		}
		q.Limit = n - len(out)
		page, err := i.List(ctx, q)
		if err != nil {
			return nil, false, err
		}
		if span := q.To.Sub(q.From); page.Next != "" && span > leastWindow && looks > 1 {
			full = q.From // what was read is the earliest in it: look at its end alone
			if width = max(span/4, leastWindow); q.From.Equal(begin) {
				width = min(width, longestWindow/4)
			}
			continue
		}
		slices.Reverse(page.Messages)
		out = append(out, page.Messages...)
		if q.From.Equal(begin) {
			return out, page.Next == "", nil
		}
		q.To, width = q.From, width*4
		if q.To.Equal(full) {
			full = time.Time{}
		} else if !full.IsZero() {
			width = max(q.To.Sub(full)/2, leastWindow)
		}
	}
	return out, false, nil
}

// longestWindow is longer than any store has had messages.
const longestWindow = 100 * 365 * 24 * time.Hour
