package console

import (
	"fmt"

	"github.com/punctualmq/punctual"
)

// topicsPage is the table of topics.
type topicsPage struct {
	*frame
	Topics []punctual.TopicStats
}

func (c *call) showTopics() error {
	inspector, err := c.inspector()
	if err != nil {
		return err
	}
	p := &topicsPage{frame: c.frame("topics")}
	if p.Now, err = c.now(); err != nil {
		return err
	}
	all, err := inspector.Topics(c.r.Context())
	if err != nil {
		return fmt.Errorf("count the topics: %w", err)
	}
	for _, s := range all {
		if c.may(ActionInspect, s.Topic) == nil {
			p.Topics = append(p.Topics, s)
		}
	}
	return c.show("topics", p)
}
