package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
)

const (
	// findParallel is how many calls eachInParallel makes at once, for instance how many topics
	// findID asks at the same time. findTopics is how many topics findID asks at most.
	findParallel, findTopics = 16, 2000
	// scanStep is after how many messages a search through a list stops and offers to go on;
	// scanPage is how many messages it reads in one call of the store.
	scanStep, scanPage = 10_000, 500
	// scanTime is after how long such a search stops, however few messages it has read.
	scanTime = 3 * time.Second
)

// findPage finds messages by ID or by header.
type findPage struct {
	*frame
	ID, Topic, State, Name, Value string
	Topics                        []string
	States                        []choice
	Found                         []messageRow
	// Finished are the finished records of messages with the ID. NoFinished is true if the store
	// keeps no finished records.
	Finished   []*finishedRecord
	NoFinished bool
	// Asked is true if there was a search, ByHeader if it was one for a header. Looked is how many
	// topics were asked for the ID, or how many messages were read for the header.
	Asked, ByHeader bool
	listPart
	// Skipped is how many topics beyond findTopics were not asked.
	Skipped int
}

func (c *call) showFind() error {
	p := &findPage{
		frame: c.frame("find"), ID: c.get("id"), Topic: c.get("topic"), State: cmp.Or(c.get("state"), "scheduled"), Name: c.get("name"), Value: c.get("value"),
	}
	topics, err := c.visibleTopics(p.frame)
	if err != nil {
		return err
	}
	for _, t := range topics {
		p.Topics = append(p.Topics, t.Topic)
	}
	p.States = c.stateChoices(p.State)
	switch {
	case p.ID != "":
		if err := c.findID(p); err != nil {
			return err
		}
		if topic := p.onlyTopic(); topic != "" && p.Topic == "" && p.Skipped == 0 && c.get("stay") == "" {
			return c.redirect(p.MessagePath(topic, p.ID), notice{})
		}
	case p.Topic != "" && p.Name != "":
		if err := c.findHeader(p); err != nil {
			return err
		}
	}
	return c.show("find", p)
}

// onlyTopic returns the topic of the messages and records that were found if all of them are in one
// topic, and "" otherwise.
func (p *findPage) onlyTopic() string {
	var topics []string
	for _, m := range p.Found {
		topics = append(topics, m.Topic)
	}
	for _, f := range p.Finished {
		topics = append(topics, f.Topic)
	}
	slices.Sort(topics)
	if topics = slices.Compact(topics); len(topics) != 1 {
		return ""
	}
	return topics[0]
}

// findID asks the topics for a message and for a finished record with the ID, several topics at
// once.
func (c *call) findID(p *findPage) (err error) {
	if p.Now, err = c.now(); err != nil {
		return err
	}
	p.Asked = true
	topics := p.Topics
	if p.Topic != "" {
		if err := c.may(access.Inspect, p.Topic); err != nil {
			return err
		}
		topics = []string{p.Topic}
	}
	if p.Skipped = len(topics) - findTopics; p.Skipped > 0 {
		topics = topics[:findTopics]
	}
	p.Skipped = max(0, p.Skipped)
	p.Looked = len(topics)
	found, records := make([]*punctual.Info, len(topics)), make([]*finishedRecord, len(topics))
	err = eachInParallel(c.r.Context(), len(topics), func(ctx context.Context, i int) (err error) {
		if records[i], err = c.finishedRecord(p.frame, topics[i], p.ID); err != nil {
			return err
		}
		m, err := c.inspector.Get(ctx, topics[i], p.ID)
		if errors.Is(err, punctual.ErrNotFound) {
			return nil
		}
		found[i] = &m
		return err
	})
	if err != nil {
		return fmt.Errorf("look for ID %s: %w", p.ID, err)
	}
	for _, m := range found {
		if m != nil {
			p.Found = append(p.Found, c.row(m, p.Now, punctual.DefaultSettings()))
		}
	}
	p.NoFinished = c.keeper() == nil
	p.Finished = slices.DeleteFunc(records, func(t *finishedRecord) bool { return t == nil })
	return nil
}

// eachInParallel calls do for 0 to n-1, at most findParallel at once, and waits for all calls. It
// returns the first error, which cancels the context of the other calls and ends the making of
// further ones. A panic in do is raised again in the caller's goroutine.
func eachInParallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var at sync.WaitGroup
	slots := make(chan struct{}, findParallel)
	for i := range n {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		at.Go(func() {
			defer func() { <-slots }()
			defer func() {
				if cause := recover(); cause != nil {
					cancel(panicked{cause, debug.Stack()})
				}
			}()
			if err := do(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	at.Wait()
	err := context.Cause(ctx)
	if p := (panicked{}); errors.As(err, &p) {
		panic(fmt.Sprintf("%v\n%s", p.cause, p.stack)) // in this goroutine ServeHTTP recovers it
	}
	return err
}

// panicked carries a panic from a goroutine of eachInParallel to the goroutine of the request.
type panicked struct {
	cause any
	stack []byte
}

func (panicked) Error() string { return "the store panicked" }

// findHeader searches the messages of one topic and state for a header. It reads a bounded number
// of them, and sets p.Next if there are more.
func (c *call) findHeader(p *findPage) error {
	if err := c.may(access.Inspect, p.Topic); err != nil {
		return err
	}
	if err := c.mayShowHeader(p.Name); err != nil {
		return err
	}
	state, err := punctual.ParseState(p.State)
	if err != nil {
		return err
	}
	if p.Now, err = c.now(); err != nil {
		return err
	}
	p.Asked, p.ByHeader = true, true
	settings, err := c.inspector.Settings(c.r.Context(), p.Topic)
	if err != nil {
		return fmt.Errorf("read the settings of %s: %w", p.Topic, err)
	}
	var found []punctual.Info
	p.listPart, found, err = c.read(p.frame, punctual.ListQuery{Topic: p.Topic, State: state}, func(m *punctual.Info) bool {
		_, ok := headerWith(m.Headers, p.Name, p.Value)
		return ok
	})
	if err != nil {
		return err
	}
	for i := range found {
		row := c.row(&found[i], p.Now, settings)
		value, _ := headerWith(found[i].Headers, p.Name, p.Value)
		row.Header = visible(value)
		p.Found = append(p.Found, row)
	}
	return nil
}

// mayShowHeader returns an ErrForbidden for a header that is hidden. A search by such a header has
// to be refused, too, because the messages found would reveal its value.
func (c *call) mayShowHeader(name string) error {
	if shown, _ := c.headers(map[string]string{name: ""}); len(shown) == 0 {
		return fmt.Errorf("header %q is hidden by the console's configuration: %w", name, punctual.ErrForbidden)
	}
	return nil
}

// headerWith returns the value of a header of this name that contains text. Upper and lower case of
// the name count as the same. Of several such headers it takes the one whose name sorts first, so
// that a page shows the same value each time.
func headerWith(all map[string]string, name, text string) (value string, ok bool) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if strings.EqualFold(key, name) && strings.Contains(all[key], text) {
			return all[key], true
		}
	}
	return "", false
}
