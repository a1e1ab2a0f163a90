package console

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
)

// finishedPage is a message that is not stored any more, of which the story is kept.
type finishedPage struct {
	*frame
	Told *told
}

// told is the story of a finished message.
type told struct {
	punctual.Finished
	// Late is how long it was ready before its last lease began, End how long that lasted; both have a meaning if it was delivered.
	Late, End time.Duration
	Story     []event
	Axis      *axis
}

// keeper is what keeps finished messages, or nil. That of a remote store says only when it is asked that there is none.
func (c *call) keeper() punctual.FinishedKeeper {
	if c.noStories.Load() {
		return nil
	}
	return c.console.keeper
}

// tell returns the story of a finished message. It is nil when none is kept, or the store keeps none at all.
func (c *call) tell(f *frame, topic, id string) (*told, error) {
	keeper := c.keeper()
	if keeper == nil {
		return nil, nil
	}
	x, err := keeper.Finished(c.r.Context(), topic, id)
	switch {
	case errors.Is(err, punctual.ErrUnsupported):
		c.noStories.Store(true)
		return nil, nil
	case errors.Is(err, punctual.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look at the story of %s of %s: %w", id, topic, err)
	}
	t := &told{Finished: x, Late: x.ReadyFor(), Story: finishedStory(&x)}
	if !x.Delivered.IsZero() {
		t.End = x.At.Sub(x.Delivered)
	}
	t.Axis = axisOf(f, t.Story)
	return t, nil
}

// finishedStory is what happened to a message that has ended, in the order of time.
func finishedStory(f *punctual.Finished) []event {
	all := []event{{At: f.Created, Kind: "pushed"}, {At: f.FirstDue, Kind: "due"}}
	for _, x := range f.Failures {
		all = append(all, event{At: x.At, Kind: "failed", Attempt: x.Attempt, Error: visible(x.Error)})
	}
	if !f.Due.Equal(f.FirstDue) {
		all = append(all, event{At: f.Due, Kind: "again", Attempt: f.Attempt})
	}
	if !f.Delivered.IsZero() {
		all = append(all, event{At: f.Delivered, Kind: "delivered", Attempt: f.Attempt})
	}
	slices.SortStableFunc(all, func(a, b event) int { return a.At.Compare(b.At) })
	// A message that was cancelled ahead of its time was never due.
	end := slices.IndexFunc(all, func(e event) bool { return e.At.After(f.At) })
	if end < 0 {
		end = len(all)
	}
	all = slices.Insert(all, end, event{At: f.At, Kind: string(f.Outcome)})
	withGaps(all, f.At)
	return all
}

// showFinished shows what is kept of a message that is not stored.
func (c *call) showFinished(topic, id string) error {
	p := &finishedPage{frame: c.frame("finished")}
	p.Subject = visible(id)
	var err error
	if p.Now, err = c.now(); err != nil {
		return err
	}
	if p.Told, err = c.tell(p.frame, topic, id); err != nil {
		return err
	}
	switch {
	case p.Told == nil && c.keeper() == nil:
		return fmt.Errorf("look at message %s of %s: %w; this store keeps no finished messages", id, topic, punctual.ErrNotFound)
	case p.Told == nil:
		return fmt.Errorf("look at message %s of %s: %w, and no story of a finished one is kept", id, topic, punctual.ErrNotFound)
	}
	return c.show("finished", p)
}
