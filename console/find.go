package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
)

const (
	// findParallel is how many topics are asked for an ID at once, findTopics how many at most.
	findParallel, findTopics = 16, 2000
	// scanStep is how many messages a look through a list looks at, scanPage how many in one call of the store.
	scanStep, scanPage = 10_000, 500
	// scanTime bounds such a look besides.
	scanTime = 3 * time.Second
)

// findPage finds messages by ID or by header.
type findPage struct {
	*frame
	ID, Topic, State, Name, Value string
	Topics                        []string
	States                        []choice
	Found                         []messageRow
	// Told are the finished messages with the ID of which the story is kept; NoStories tells that the store keeps none.
	Told      []*told
	NoStories bool
	// Asked tells that there was a search, of Looked topics or messages.
	Asked, ByHeader bool
	Looked          int
	// Skipped is how many topics were not looked at.
	Skipped int
	// Next is where the search goes on; Last is the time of the last message that it looked at.
	Next string
	Last time.Time
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
	for _, s := range []string{"scheduled", "ready", "leased", "dead"} {
		p.States = append(p.States, choice{Value: s, Text: c.look.language.text("state." + s), Chosen: s == p.State})
	}
	switch {
	case p.ID != "":
		if err := c.findID(p); err != nil {
			return err
		}
		if topic := p.onlyTopic(); topic != "" && p.Topic == "" && p.Skipped == 0 && c.get("stay") == "" {
			c.begun = true
			http.Redirect(c.w, c.r, p.MessagePath(topic, p.ID), http.StatusSeeOther)
			return nil
		}
	case p.Topic != "" && p.Name != "":
		if err := c.findHeader(p); err != nil {
			return err
		}
	}
	return c.show("find", p)
}

// onlyTopic is the only topic in which something was found, or "".
func (p *findPage) onlyTopic() string {
	var topics []string
	for _, m := range p.Found {
		topics = append(topics, m.Topic)
	}
	for _, f := range p.Told {
		topics = append(topics, f.Topic)
	}
	slices.Sort(topics)
	if topics = slices.Compact(topics); len(topics) != 1 {
		return ""
	}
	return topics[0]
}

// findID asks the topics for a message with the ID, several at once.
func (c *call) findID(p *findPage) error {
	inspector, err := c.inspector()
	if err != nil {
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
	found, stories := make([]*punctual.Info, len(topics)), make([]*told, len(topics))
	err = eachInParallel(c.r.Context(), len(topics), func(ctx context.Context, i int) (err error) {
		if stories[i], err = c.tell(p.frame, topics[i], p.ID); err != nil {
			return err
		}
		m, err := inspector.Get(ctx, topics[i], p.ID)
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
	p.NoStories = c.keeper() == nil
	p.Told = slices.DeleteFunc(stories, func(t *told) bool { return t == nil })
	return nil
}

// eachInParallel calls do for 0 to n-1, findParallel at once, and returns the first error, which ends the others.
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
		panic(fmt.Sprintf("%v\n%s", p.cause, p.stack)) // here ServeHTTP recovers it
	}
	return err
}

// panicked is a panic on its way to the goroutine of the request.
type panicked struct {
	cause any
	stack []byte
}

func (panicked) Error() string { return "the store panicked" }

// findHeader looks at messages of one topic and state, a bounded number of them, for those with a header.
func (c *call) findHeader(p *findPage) error {
	inspector, err := c.inspector()
	if err != nil {
		return err
	}
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
	p.Asked, p.ByHeader = true, true
	settings, err := inspector.Settings(c.r.Context(), p.Topic)
	if err != nil {
		return fmt.Errorf("read the settings of %s: %w", p.Topic, err)
	}
	q := punctual.ListQuery{Topic: p.Topic, State: state, After: c.get("after")}
	found, err := c.scan(c.r.Context(), inspector, q, func(m *punctual.Info) bool { return hasHeader(m.Headers, p.Name, p.Value) })
	if err != nil {
		return fmt.Errorf("look through %s: %w", p.Topic, err)
	}
	p.Looked, p.Last = found.looked, found.last
	for i := range found.found {
		p.Found = append(p.Found, c.row(&found.found[i], p.Now, settings))
	}
	if found.next != "" {
		p.Next = c.withQuery("after", found.next)
	}
	return nil
}

// mayShowHeader refuses a search that would tell what is hidden.
func (c *call) mayShowHeader(name string) error {
	if shown, _ := c.headers(map[string]string{name: ""}); len(shown) == 0 {
		return fmt.Errorf("header %q is hidden by the console's configuration: %w", name, punctual.ErrForbidden)
	}
	return nil
}

// hasHeader tells whether there is a header of the name, in any case, whose value contains the text.
func hasHeader(all map[string]string, name, text string) bool {
	for key := range maps.Keys(all) {
		if strings.EqualFold(key, name) && strings.Contains(all[key], text) {
			return true
		}
	}
	return false
}
