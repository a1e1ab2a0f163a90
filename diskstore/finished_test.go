package diskstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/topics"
	"github.com/punctualmq/punctual/storekit"
)

// A topic with few finished records is listed in whole pages, although in the order of the list
// those of a large topic, one in each millisecond, lie between them.
func TestFinishedOfASmallTopicBesideALargeOne(t *testing.T) {
	const most = storekit.ReadLimit + 100
	clock := storekit.NewManualClock(testStart)
	s := openAt(t, "store", &Options{fs: vfs.NewMem(), Clock: clock, Logger: quiet})
	retention := time.Hour
	for _, topic := range []string{"large", "small"} {
		if _, err := s.Configure(t.Context(), topic, punctual.SettingsPatch{FinishedRetention: &retention}); err != nil {
			t.Fatal(err)
		}
	}
	finishNow := func(topic, id string) {
		t.Helper()
		out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: topic, ID: id}})
		if err != nil || out[0].Err != nil {
			t.Fatal(out, err)
		}
	}
	var ms []punctual.NewMessage
	for i := range most {
		ms = append(ms, punctual.NewMessage{Topic: "large", ID: fmt.Sprint(i), Delay: 2 * time.Hour})
	}
	push(t, s, ms[:most/2]...)
	push(t, s, ms[most/2:]...)
	push(t, s, punctual.NewMessage{Topic: "small", ID: "first", Delay: time.Hour}, punctual.NewMessage{Topic: "small", ID: "second", Delay: time.Hour})
	for i, m := range ms {
		if i == 50 {
			finishNow("small", "first")
		}
		finishNow("large", m.ID)
		clock.Advance(time.Millisecond)
	}
	finishNow("small", "second")

	q := punctual.FinishedQuery{Topic: "small", Limit: 1}
	tv, err := s.snapshotInto(t.Context(), "small", func(*topicView, *topics.Topic) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer tv.close()
	for _, q.Descending = range []bool{false, true} {
		want := []string{"first", "second"}
		if q.Descending {
			want = []string{"second", "first"}
		}
		whole := punctual.FinishedQuery{Topic: "small", Limit: 100, Descending: q.Descending}
		page, others, err := tv.finishedInOrder(t.Context(), &whole, tv.finishedRange(&whole, storekit.FinishedPlace{}))
		if err != nil || len(page.Records) != 1 || page.Next == "" || others < storekit.ReadLimit-1 {
			t.Fatalf("in order a page has %d records and passes %d others, next %q, %v: this test needs more than a page passes", len(page.Records), others, page.Next, err)
		}
		q.After = ""
		for n, id := range want {
			page, err := s.ListFinished(t.Context(), q)
			if err != nil || len(page.Records) != 1 || page.Records[0].ID != id || page.Records[0].Topic != "small" {
				t.Fatalf("page %d, descending %v: %+v, %v; want %s", n+1, q.Descending, page, err, id)
			}
			if q.After = page.Next; (page.Next == "") != (n == 1) {
				t.Errorf("page %d of 2, descending %v, goes on at %q", n+1, q.Descending, page.Next)
			}
		}
		got, err := s.ListFinished(t.Context(), whole)
		if err != nil || len(got.Records) != 2 || got.Next != "" || got.Records[0].ID != want[0] || got.Records[1].ID != want[1] {
			t.Errorf("a page of 100, descending %v: %+v, %v; want %v", q.Descending, got, err, want)
		}
	}
}
