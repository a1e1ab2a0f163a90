// Package compare reads what a store says of its messages, and finds in what two such answers
// differ.
package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// List reads all pages of a list. It returns an error when a page cannot be read or is not
// well-formed: too large, out of order, with messages of another state, topic or reason, or with a
// cursor that leads to the same page again.
func List(ctx context.Context, in punctual.Inspector, q punctual.ListQuery) ([]punctual.Info, error) {
	var all []punctual.Info
	limit := q.Limit
	if limit == 0 {
		limit = 100
	}
	for {
		p, err := in.List(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("a list of %s messages of %s: unexpected error: %w", q.State, q.Topic, err)
		}
		if len(p.Messages) > limit {
			return nil, fmt.Errorf("a page of at most %d messages has %d", limit, len(p.Messages))
		}
		for _, i := range p.Messages {
			if q.Reason != "" && i.Reason != q.Reason {
				return nil, fmt.Errorf("a list of those dead as %s shows %s, which is dead as %s", q.Reason, i.ID, i.Reason)
			}
			if i.Topic != q.Topic || i.State != q.State {
				return nil, fmt.Errorf("a list of %s messages of %s shows %s/%s, which is %s", q.State, q.Topic, i.Topic, i.ID, i.State)
			}
			if n := len(all); n > 0 && SortTime(i) != SortTime(all[n-1]) && SortTime(i).Before(SortTime(all[n-1])) != q.Descending {
				return nil, fmt.Errorf("a list of %s messages shows %s of %v behind %s of %v", q.State, i.ID, SortTime(i), all[n-1].ID, SortTime(all[n-1]))
			}
			all = append(all, i)
		}
		if p.Next == "" {
			return all, nil
		}
		if p.Next == q.After {
			return nil, fmt.Errorf("a list of %s messages comes to no end: cursor %q leads to itself", q.State, p.Next)
		}
		q.After = p.Next
	}
}

// Info returns a text that says how two views of a message differ, or "" when they do not.
func Info(a, b punctual.Info) string {
	if d := Message(a.Message, b.Message); d != "" {
		return d
	}
	switch {
	case a.State != b.State:
		return fmt.Sprintf("state %s and %s", a.State, b.State)
	case !a.LeaseUntil.Equal(b.LeaseUntil):
		return fmt.Sprintf("lease until %v and %v", a.LeaseUntil, b.LeaseUntil)
	case a.CancelRequested != b.CancelRequested:
		return fmt.Sprintf("cancel requested %v and %v", a.CancelRequested, b.CancelRequested)
	case !a.Died.Equal(b.Died) || a.Reason != b.Reason:
		return fmt.Sprintf("died %v of %q and %v of %q", a.Died, a.Reason, b.Died, b.Reason)
	}
	return History(a.Failures, b.Failures)
}

// Message returns a text that says how two messages differ, or "" when they do not.
func Message(a, b punctual.Message) string {
	switch {
	case a.ID != b.ID || a.Topic != b.Topic:
		return fmt.Sprintf("name %s/%s and %s/%s", a.Topic, a.ID, b.Topic, b.ID)
	case string(a.Body) != string(b.Body):
		return fmt.Sprintf("body %.40q and %.40q", a.Body, b.Body)
	case fmt.Sprint(a.Headers) != fmt.Sprint(b.Headers):
		return fmt.Sprintf("headers %v and %v", a.Headers, b.Headers)
	case !a.Due.Equal(b.Due) || !a.FirstDue.Equal(b.FirstDue):
		return fmt.Sprintf("due %v (first %v) and %v (first %v)", a.Due, a.FirstDue, b.Due, b.FirstDue)
	case a.Attempt != b.Attempt || a.MaxAttempts != b.MaxAttempts:
		return fmt.Sprintf("attempt %d of %d and %d of %d", a.Attempt, a.MaxAttempts, b.Attempt, b.MaxAttempts)
	case !a.Created.Equal(b.Created):
		return fmt.Sprintf("created %v and %v", a.Created, b.Created)
	case !a.Expires.Equal(b.Expires) || a.DropExpired != b.DropExpired:
		return fmt.Sprintf("expires %v (dropped %v) and %v (dropped %v)", a.Expires, a.DropExpired, b.Expires, b.DropExpired)
	case storekit.AttributesOf(&a) != storekit.AttributesOf(&b):
		return fmt.Sprintf("attributes %+v and %+v", storekit.AttributesOf(&a), storekit.AttributesOf(&b))
	}
	return ""
}

// History returns a text that says how two histories of failures differ, or "" when they do not.
func History(a, b []punctual.Failure) string {
	same := slices.EqualFunc(a, b, func(f, g punctual.Failure) bool {
		return f.Attempt == g.Attempt && f.At.Equal(g.At) && f.Error == g.Error
	})
	if same {
		return ""
	}
	return fmt.Sprintf("history %v and %v", a, b)
}

// SortTime returns the time by which Inspector.List orders a message.
func SortTime(i punctual.Info) time.Time {
	switch i.State {
	case punctual.StateLeased:
		return i.LeaseUntil
	case punctual.StateDead:
		return i.Died
	}
	return i.Due
}

// Stats returns a text that says how got differs from want, or "" when they are equal.
func Stats(got, want punctual.TopicStats) string {
	switch {
	case got.Topic != want.Topic:
		return fmt.Sprintf("topic %s, not %s", got.Topic, want.Topic)
	case got.Scheduled != want.Scheduled || got.Ready != want.Ready || got.Leased != want.Leased || got.Dead != want.Dead:
		return fmt.Sprintf("%d scheduled, %d ready, %d leased, %d dead; want %d, %d, %d, %d",
			got.Scheduled, got.Ready, got.Leased, got.Dead, want.Scheduled, want.Ready, want.Leased, want.Dead)
	case !got.NextDue.Equal(want.NextDue):
		return fmt.Sprintf("next due %v; want %v", got.NextDue, want.NextDue)
	case !EqualSettings(got.Settings, want.Settings):
		return fmt.Sprintf("settings %+v; want %+v", got.Settings, want.Settings)
	}
	return ""
}

// Keeper returns a store's FinishedKeeper, or an ErrUnsupported when the store keeps no finished
// records.
func Keeper(ctx context.Context, s punctual.Store) (punctual.FinishedKeeper, error) {
	k, err := punctual.As[punctual.FinishedKeeper](s)
	if err != nil {
		return nil, err
	}
	// A wrapper has the methods whatever the store below it can do, and returns ErrUnsupported if
	// that keeps no records.
	if _, err = k.Finished(ctx, "never-heard-of", "x"); errors.Is(err, punctual.ErrUnsupported) {
		return nil, err
	}
	return k, nil
}

// FinishedList reads all pages of a list of finished records, from q.After on. It returns an error
// that names the query of a page that cannot be read or is malformed. A page is malformed if it is
// too large or out of order, has a record that q does not select, or has an ID or a cursor that
// came before. No message of the topic may finish meanwhile, because it could bring its ID a second
// time.
func FinishedList(ctx context.Context, k punctual.FinishedKeeper, q punctual.FinishedQuery) (all []punctual.Finished, err error) {
	limit := cmp.Or(q.Limit, 100)
	seen, cursors := make(map[string]bool), make(map[string]bool)
	for {
		p, err := k.ListFinished(ctx, q)
		if err != nil {
			return all, fmt.Errorf("ListFinished of %+v: unexpected error: %w", q, err)
		}
		if len(p.Records) > limit {
			return all, fmt.Errorf("ListFinished of %+v: a page has %d records; want %d at most", q, len(p.Records), limit)
		}
		for _, f := range p.Records {
			switch {
			case f.Topic != q.Topic:
				return all, fmt.Errorf("ListFinished of %+v: it shows %s/%s", q, f.Topic, f.ID)
			case seen[f.ID]:
				return all, fmt.Errorf("ListFinished of %+v: it shows %s twice", q, f.ID)
			case f.At.Before(q.From) || !q.To.IsZero() && !f.At.Before(q.To) || q.Outcome != "" && f.Outcome != q.Outcome:
				return all, fmt.Errorf("ListFinished of %+v: it shows %s, %s at %v", q, f.ID, f.Outcome, f.At)
			}
			if len(all) > 0 && (finishedOrder(all[len(all)-1], f) >= 0) != q.Descending {
				return all, fmt.Errorf("ListFinished of %+v: %s, kept until %v, comes behind %s, kept until %v", q, f.ID, f.KeptUntil, all[len(all)-1].ID, all[len(all)-1].KeptUntil)
			}
			seen[f.ID] = true
			all = append(all, f)
		}
		if p.Next == "" {
			return all, nil
		}
		if cursors[p.Next] {
			return all, fmt.Errorf("ListFinished of %+v: it comes to %q for the second time", q, p.Next)
		}
		cursors[p.Next], q.After = true, p.Next
	}
}

func finishedOrder(a, b punctual.Finished) int {
	return cmp.Or(a.KeptUntil.Compare(b.KeptUntil), strings.Compare(a.ID, b.ID))
}

// Finished returns a text that says how a finished record differs from the wanted one, or "" when
// it does not. If lost is set, got.Delivered may be zero instead of the wanted time.
func Finished(got, want punctual.Finished, lost bool) string {
	switch {
	case got.ID != want.ID || got.Topic != want.Topic:
		return fmt.Sprintf("it is of %s/%s; want %s/%s", got.Topic, got.ID, want.Topic, want.ID)
	case got.Outcome != want.Outcome || !got.At.Equal(want.At):
		return fmt.Sprintf("%s at %v; want %s at %v", got.Outcome, got.At, want.Outcome, want.At)
	case !got.Created.Equal(want.Created) || !got.Due.Equal(want.Due) || !got.FirstDue.Equal(want.FirstDue):
		return fmt.Sprintf("created %v, due %v, first due %v; want %v, %v, %v", got.Created, got.Due, got.FirstDue, want.Created, want.Due, want.FirstDue)
	case got.Attempt != want.Attempt:
		return fmt.Sprintf("attempt %d; want %d", got.Attempt, want.Attempt)
	case !got.Delivered.Equal(want.Delivered) && !(lost && got.Delivered.IsZero()):
		return fmt.Sprintf("delivered %v; want %v", got.Delivered, want.Delivered)
	case !got.KeptUntil.Equal(want.KeptUntil):
		return fmt.Sprintf("kept until %v; want %v", got.KeptUntil, want.KeptUntil)
	}
	return History(got.Failures, want.Failures)
}

// EqualSettings reports whether all fields are equal, by reflection, so that fields which are added
// later count as well. For Delays and Groups nil is equal to an empty list.
func EqualSettings(a, b punctual.Settings) bool {
	if len(a.Backoff.Delays) == 0 && len(b.Backoff.Delays) == 0 {
		a.Backoff.Delays, b.Backoff.Delays = nil, nil
	}
	if len(a.Groups) == 0 && len(b.Groups) == 0 {
		a.Groups, b.Groups = nil, nil
	}
	return reflect.DeepEqual(a, b)
}
