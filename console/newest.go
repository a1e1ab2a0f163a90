package console

import (
	"context"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
)

const (
	// newestCalls bounds the calls of the store in one call of newest.
	newestCalls = 20
	// firstWindow is the length of the first window of time, leastWindow that of the shortest one.
	firstWindow, leastWindow = time.Hour, time.Second
)

// newest returns about n messages of a list whose times are the latest, the latest first. Because a store lists the earliest messages first,
// newest lists windows of time, from now backwards: a narrower one after a window with more messages than fit, a wider one after a window that
// was read whole. whole is true if the list has no other messages.
func newest(ctx context.Context, i punctual.Inspector, q punctual.ListQuery, now time.Time, n int) (out []punctual.Info, whole bool, err error) {
	begin, full, width := q.From, time.Time{}, firstWindow // full is the beginning of a window with more messages than fit, or zero
	if q.To.IsZero() {
		q.To = now.Add(time.Millisecond)
	}
	for calls := newestCalls; calls > 0 && len(out) < n; calls-- {
		q.From = q.To.Add(-width)
		switch {
		case !full.IsZero() && (calls == 1 || q.From.Before(full)):
			q.From = full
		case full.IsZero() && (calls == 1 || q.From.Before(begin) || width > longestWindow):
			q.From = begin
		}
		q.Limit = n - len(out)
		page, err := i.List(ctx, q)
		if err != nil {
			return nil, false, err
		}
		if span := q.To.Sub(q.From); page.Next != "" && span > leastWindow && calls > 1 {
			full = q.From // what was read are the earliest messages of the window: go on with the end of it
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

// longestWindow is longer than any store has had messages, so a longer window is extended to the beginning of the list.
const longestWindow = 100 * 365 * 24 * time.Hour
