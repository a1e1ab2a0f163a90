package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// maxProblems bounds CheckReport.Problems, because damage may concern every message. Further
// problems are left out.
const maxProblems = 100

// Check reads all messages and finished records of all topics; see storekit.Checker. It may run
// while the store is in use, because each script checks its messages at one instant.
func (s *Store) Check(ctx context.Context, progress func(read int64)) (storekit.CheckReport, error) {
	if progress == nil {
		progress = func(int64) {}
	}
	c := checker{s: s, progress: progress}
	_, err := call(ctx, s, "check", "", nil, func() (struct{}, error) { return struct{}{}, c.run(ctx) })
	return c.report, err // beside an error stands what was read before
}

// checker collects the report of one Check.
type checker struct {
	s        *Store
	report   storekit.CheckReport
	read     int64
	progress func(read int64)
}

// run checks all topics, one after the other.
func (c *checker) run(ctx context.Context) error {
	topics, err := c.s.topics.All(ctx)
	if err != nil {
		return err
	}
	for _, topic := range topics {
		if err := c.topic(ctx, topic); err != nil {
			return storekit.Plain(fmt.Errorf("check of %s: %w", topic, err))
		}
	}
	return nil
}

func (c *checker) topic(ctx context.Context, topic string) error {
	st, err := c.s.stats(ctx, topic)
	if errors.Is(err, punctual.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	c.report.Topics++
	c.report.Live += st.Live()
	c.report.Dead += st.Dead
	if err := c.companion(ctx, topic, st.Settings.Partitions); err != nil {
		return err
	}
	parts, err := c.s.partitions(ctx, topic)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if err := errors.Join(c.scan(ctx, p, "m"), c.scan(ctx, p, "s"), c.scan(ctx, p, "h"), c.scan(ctx, p, "u")); err != nil {
			return err
		}
	}
	return nil
}

// companion checks that a companion of n partitions has a topic that names it, with the same number
// of partitions.
func (c *checker) companion(ctx context.Context, topic string, n int) error {
	parent, name := storekit.Companion(topic)
	if name == "" {
		return nil
	}
	l, err := c.s.topics.Load(ctx, parent)
	if err != nil {
		return err
	}
	problem := ""
	switch {
	case !l.Exists():
		problem = fmt.Sprintf("topic %s is a companion of %s, which is not there", topic, parent)
	case l.Size() != n:
		problem = fmt.Sprintf("topic %s has %d partitions, and %s, of which it is a companion, has %d", topic, n, parent, l.Size())
	case !slices.Contains(l.Companions(parent), topic):
		problem = fmt.Sprintf("topic %s does not name its companion %s, so a deletion would leave that behind", parent, topic)
	default:
		return nil
	}
	// The two topics were read one after the other. Somebody may have deleted the companion in
	// between, or made it anew.
	now, err := c.s.topics.Load(ctx, topic)
	if err == nil && now.Exists() && now.Size() == n {
		c.add(problem)
	}
	return err
}

// add adds a problem to the report, unless the report holds as many as it may.
func (c *checker) add(problem string) {
	if len(c.report.Problems) < maxProblems {
		c.report.Problems = append(c.report.Problems, problem)
	}
}

// scan checks all entries of one of the hashes m, s and h of a partition, or all members of u,
// which has the times at which finished records are past their retention.
func (c *checker) scan(ctx context.Context, p keys.Partition, hash string) error {
	for cursor := "0"; ; {
		a, err := c.s.route.Run(ctx, script.Check, p, nil, hash, cursor)
		if err != nil {
			return err
		}
		cursor = a.Text()
		n := a.Int()
		for len(a.Items) > 0 {
			c.add(a.Text())
		}
		if a.Bad {
			return script.BadReply(script.Check)
		}
		if hash == "m" {
			c.read += n
			c.progress(c.read)
		}
		if cursor == "0" {
			return nil
		}
	}
}
