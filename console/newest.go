package console

import (
	"context"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
)

const (
	// newestLooks bounds the calls for the newest messages of a list.
	newestLooks = 16
	firstWindow = time.Hour
)

// newest returns the messages of a list whose times are the latest, the latest first, about n of them. A list begins with the earliest, so
// it looks at windows of time, from now backwards, wider or narrower by what it finds. whole tells that there are no more.
func newest(ctx context.Context, i punctual.Inspector, q punctual.ListQuery, now time.Time, n int) (out []punctual.Info, whole bool, err error) {
	q.Limit = n
	begin, width := q.From, firstWindow
	if q.To.IsZero() {
		q.To = now.Add(time.Millisecond)
	}
	for looks := newestLooks; looks > 0 && len(out) < n; looks-- {
		q.From = q.To.Add(-width)
		last := looks == 1 || q.From.Before(begin) || width > 100*365*24*time.Hour
		if last {
			q.From = begin
		}
		page, err := i.List(ctx, q)
		if err != nil {
			return nil, false, err
		}
		if page.Next != "" && len(page.Messages) == n && width > time.Second && looks > 1 {
			width = max(width/16, time.Second) // more than fit: those that were read are the earliest of them
			continue
		}
		slices.Reverse(page.Messages)
		out = append(out, page.Messages...)
		if last {
			return out, page.Next == "", nil
		}
		q.To, width = q.From, width*8
	}
	return out, false, nil
}
