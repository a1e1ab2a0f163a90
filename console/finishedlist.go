package console

import (
	"errors"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// finishedListPage shows the finished records of a topic, the one that is kept longest first.
// Unless the retention was changed, that is the record of the message that finished last.
type finishedListPage struct {
	*topicView
	// Able is true if the store keeps finished records. Keep is for how long the topic keeps a
	// record that is written now; 0 means that it keeps none.
	Able bool
	Keep time.Duration
	Rows []punctual.Finished
	// Outcomes are the choices of the filter by how a message ended. Window is true also if one of
	// them is chosen.
	Outcomes []choice
	listPart
	// Stopped is true if the list goes on although the page is not full, because the store has read
	// many records that are not to be shown.
	Stopped bool
}

// finishedParts is how many pages of the store's list the console reads at most for one page. It
// reads several because the pages of a filtered list may be empty.
const finishedParts = 5

func (c *call) showFinishedList() error {
	v, err := c.topicView("finished-list", "finished")
	if err != nil {
		return err
	}
	p := &finishedListPage{topicView: v, Able: c.keeper() != nil, Keep: v.settings.FinishedRetention}
	if p.Able {
		err = c.listFinished(p)
	}
	if errors.Is(err, punctual.ErrUnsupported) {
		c.noFinished.Store(true)
		p.Able, err = false, nil
	}
	if err != nil {
		return err
	}
	return c.show("finished-list", p)
}

// listFinished reads the records of one page, as the fields of the form say.
func (c *call) listFinished(p *finishedListPage) (err error) {
	q := punctual.FinishedQuery{Topic: p.Stats.Topic, Outcome: punctual.Outcome(c.get("outcome")), Descending: true, After: c.get("after")}
	if p.listPart, q.From, q.To, err = c.listPart(p.frame); err != nil {
		return err
	}
	for _, o := range storekit.Outcomes() {
		p.Outcomes = append(p.Outcomes, choice{Value: string(o), Text: c.look.language.text("event." + string(o)), Chosen: o == q.Outcome})
	}
	p.Window = p.Window || q.Outcome != ""
	for range finishedParts {
		q.Limit = pageRows - len(p.Rows)
		page, err := c.keeper().ListFinished(c.r.Context(), q)
		if err != nil {
			return fmt.Errorf("list the finished messages of %s: %w", q.Topic, err)
		}
		p.Rows, q.After = append(p.Rows, page.Records...), page.Next
		if page.Next == "" || len(p.Rows) == pageRows {
			break
		}
	}
	if q.After != "" {
		p.Next, p.Stopped = c.withQuery("after", q.After), len(p.Rows) < pageRows
	}
	return nil
}
