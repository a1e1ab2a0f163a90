package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// relations are what a message came from and what it led to.
type relations struct {
	// Follows is the message whose settlement has stored this one, Schedule the schedule whose
	// occurrence this message is. Each is nil if there is none, or if the header that names it is
	// hidden.
	Follows, Schedule *relative
	// AskPath is the path on which the page searches for the messages that this one led to, "" once
	// it has searched.
	AskPath string
	// Followed are those messages, found among Looked messages that were read in Topics topics. Cut
	// is true if there may be more.
	Followed       []messageRow
	Looked, Topics int
	Cut            bool
}

// relative is another message or a schedule. Path is "" if the reader may not inspect its topic.
type relative struct{ Topic, ID, Path string }

const (
	// followTopics is how many topics a search for the follow-ups of a message reads at most,
	// followPage how many messages it reads at most of each state of a topic.
	followTopics, followPage = 200, 500
)

// relationsOf returns what a message came from, by its headers. With the field "followed" in the
// query it also searches for the messages that it led to, among those whose time in the list of
// their state is not before since.
func (c *call) relationsOf(f *frame, topic, id string, headers map[string]string, since time.Time) (*relations, error) {
	r := &relations{AskPath: c.withQuery("followed", "1")}
	shown := func(name string) string {
		if c.mayShowHeader(name) != nil {
			return ""
		}
		return headers[name]
	}
	if t, i, ok := storekit.ParseAfter(shown(storekit.AfterHeader)); ok {
		r.Follows = &relative{Topic: t, ID: i}
		if c.may(access.Inspect, t) == nil {
			r.Follows.Path = f.MessagePath(t, i)
		}
	}
	if name := shown(schedule.HeaderSchedule); name != "" {
		family, _ := storekit.Companion(topic)
		r.Schedule = &relative{Topic: family, ID: visible(name)}
		if c.may(access.Inspect, family) == nil {
			r.Schedule.Path = f.SchedulePath(family, name)
		}
	}
	if c.get("followed") == "" || c.mayShowHeader(storekit.AfterHeader) != nil {
		return r, nil
	}
	r.AskPath = ""
	return r, c.lookForFollowers(f, r, topic, id, since)
}

// lookForFollowers finds the messages whose header storekit.AfterHeader names the message. No store
// searches for a header, so lookForFollowers reads a bounded number of messages of each topic, and
// stops when scanFor is over.
func (c *call) lookForFollowers(f *frame, r *relations, topic, id string, since time.Time) error {
	all, err := c.counted()
	if err != nil {
		return err
	}
	var topics []string
	for _, t := range all.Topics {
		if t.Topic != access.AuditTopic && !isInternal(t) && c.may(access.Inspect, t.Topic) == nil {
			topics = append(topics, t.Topic)
		}
	}
	if len(topics) > followTopics {
		topics, r.Cut = topics[:followTopics], true
	}
	r.Topics = len(topics)
	ctx, cancel := context.WithTimeout(c.r.Context(), c.console.scanFor)
	defer cancel()
	var mu sync.Mutex // guards r
	err = eachInParallel(ctx, len(topics), func(ctx context.Context, i int) error {
		for _, state := range []punctual.State{punctual.StateScheduled, punctual.StateReady, punctual.StateLeased, punctual.StateDead} {
			page, err := c.inspector.List(ctx, punctual.ListQuery{Topic: topics[i], State: state, From: since, Limit: followPage, Bare: true})
			if err != nil {
				return err
			}
			mu.Lock()
			r.Looked += len(page.Messages)
			r.Cut = r.Cut || page.Next != ""
			for k := range page.Messages {
				m := &page.Messages[k]
				if t, before, ok := storekit.ParseAfter(m.Headers[storekit.AfterHeader]); ok && t == topic && before == id {
					r.Followed = append(r.Followed, c.row(m, f.Now, punctual.DefaultSettings()))
				}
			}
			mu.Unlock()
		}
		return nil
	})
	if err != nil && c.r.Context().Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		r.Cut, err = true, nil
	}
	if err != nil {
		return fmt.Errorf("look for the follow-ups of %s: %w", id, err)
	}
	slices.SortFunc(r.Followed, func(a, b messageRow) int { return a.Time.Compare(b.Time) })
	return nil
}
