package console

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/audit"
)

// finishedPage shows the finished record of a message that is no longer stored.
type finishedPage struct {
	*frame
	Record    *finishedRecord
	Relations *relations
}

// finishedRecord is the record of a finished message, with what a page shows beside it.
type finishedRecord struct {
	punctual.Finished
	// Late is how long the message was ready before its last lease began, End how long after the
	// beginning of that lease it finished. Both are 0 if the record does not have the beginning of
	// that lease (Delivered).
	Late, End time.Duration
	// By is who cancelled the message, if the audit log says so and the reader may read it.
	By      string
	History []happening
	Axis    *axis
}

// keeper returns the store's FinishedKeeper, or nil if the store keeps no finished records. A
// remote store always has the interface. Whether its server keeps records is known only from the
// answer to the first call, which noFinished remembers for this request.
func (c *call) keeper() punctual.FinishedKeeper {
	if c.noFinished.Load() {
		return nil
	}
	return c.console.keeper
}

// finishedRecord reads the finished record of a message. It returns nil if there is no such record,
// or if the store keeps none at all.
func (c *call) finishedRecord(f *frame, topic, id string) (*finishedRecord, error) {
	keeper := c.keeper()
	if keeper == nil {
		return nil, nil
	}
	x, err := keeper.Finished(c.r.Context(), topic, id)
	switch {
	case errors.Is(err, punctual.ErrUnsupported):
		c.noFinished.Store(true)
		return nil, nil
	case errors.Is(err, punctual.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the finished record of %s of %s: %w", id, topic, err)
	}
	t := &finishedRecord{Finished: x, Late: x.ReadyFor(), History: finishedHistory(&x)}
	if !x.Delivered.IsZero() {
		t.End = x.At.Sub(x.Delivered)
	}
	t.Axis = axisOf(f, t.History)
	if c.may(access.Inspect, access.AuditTopic) == nil {
		e, err := audit.Canceller(c.r.Context(), c.inspector, &x)
		if err != nil {
			return nil, err
		}
		if e != nil {
			t.By = visible(e.Who)
		}
	}
	return t, nil
}

// finishedHistory returns the events of a finished message in order of time.
func finishedHistory(f *punctual.Finished) []happening {
	all := []happening{{At: f.Created, Kind: "pushed"}, {At: f.FirstDue, Kind: "due"}}
	for _, x := range f.Failures {
		all = append(all, happening{At: x.At, Kind: "failed", Attempt: x.Attempt, Error: visible(x.Error)})
	}
	if !f.Due.Equal(f.FirstDue) {
		all = append(all, happening{At: f.Due, Kind: "again", Attempt: f.Attempt})
	}
	if !f.Delivered.IsZero() {
		all = append(all, happening{At: f.Delivered, Kind: "delivered", Attempt: f.Attempt})
	}
	slices.SortStableFunc(all, func(a, b happening) int { return a.At.Compare(b.At) })
	// The outcome stands where the message ended, which need not be the end of the list: a message
	// that was cancelled before it was due has its due time after its outcome.
	end := slices.IndexFunc(all, func(e happening) bool { return e.At.After(f.At) })
	if end < 0 {
		end = len(all)
	}
	all = slices.Insert(all, end, happening{At: f.At, Kind: string(f.Outcome)})
	withGaps(all, f.At)
	return all
}

// showFinished shows the finished record of a message that is not stored. If there is no record, it
// returns an ErrNotFound.
func (c *call) showFinished(topic, id string) error {
	p := &finishedPage{frame: c.frame("finished")}
	p.Subject = visible(id)
	var err error
	if p.Now, err = c.now(); err != nil {
		return err
	}
	if p.Record, err = c.finishedRecord(p.frame, topic, id); err != nil {
		return err
	}
	switch {
	case p.Record == nil && c.keeper() == nil:
		return fmt.Errorf("look at message %s of %s: %w; this store keeps no finished messages", id, topic, punctual.ErrNotFound)
	case p.Record == nil:
		return fmt.Errorf("look at message %s of %s: %w, and there is no finished record of it", id, topic, punctual.ErrNotFound)
	}
	if p.Relations, err = c.relationsOf(p.frame, topic, id, nil, p.Record.Created); err != nil {
		return err
	}
	p.Still = c.get("followed") != ""
	return c.show("finished", p)
}
