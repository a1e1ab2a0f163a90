package takeover

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// samples is how many messages of each set a survey shows.
const samples = 3

// Survey looks at everything that would be imported, and changes nothing.
func (im *Importer) Survey(ctx context.Context) (*Report, error) {
	r := &Report{Kind: im.opt.Kind, Unit: im.opt.Unit}
	if err := im.guessUnit(ctx, r); err != nil {
		return r, err
	}
	sources, err := im.sources(ctx)
	if err != nil {
		return r, err
	}
	now, err := im.now(ctx)
	if err != nil {
		return r, err
	}
	for _, s := range sources {
		sr := newSetReport(s)
		r.Sets = append(r.Sets, sr)
		if err := im.count(ctx, s, &sr.Found, &sr.Staged); err != nil {
			return r, err
		}
	}
	im.opt.Started(r.Add(func(s *SetReport) int64 { return s.Found }))
	for i, s := range sources {
		if err := im.survey(ctx, s, r.Sets[i], now); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (im *Importer) survey(ctx context.Context, s *source, r *SetReport, now time.Time) error {
	err := im.walkSet(ctx, s, func(_ context.Context, es []*entry) ([]bool, error) {
		stay := make([]bool, len(es))
		for i, e := range es {
			stay[i] = true
			s.decode(e)
			if e.problem != nil {
				if err := im.reject(s, r, e, e.problem); err != nil {
					return nil, err
				}
				continue
			}
			im.noteImportable(r, e, now)
		}
		im.progress(int64(len(es)))
		return stay, nil
	})
	if err != nil {
		return err
	}
	return im.note(ctx, s, r)
}

func (im *Importer) noteImportable(r *SetReport, e *entry, now time.Time) {
	m := e.message
	if im.opt.Leave > 0 && m.Due.Before(now.Add(im.opt.Leave)) {
		r.Left++
		return
	}
	r.Importable++
	r.Topics[m.Topic]++
	if m.Due.Before(now) {
		r.Overdue++
	}
	if e.task.lock != "" {
		r.Locks++
	}
	if r.Earliest.IsZero() || m.Due.Before(r.Earliest) {
		r.Earliest = m.Due
	}
	if m.Due.After(r.Latest) {
		r.Latest = m.Due
	}
	if len(r.Samples) < samples {
		r.Samples = append(r.Samples, m)
	}
}

// count asks for the sizes of a set and its staging hash.
func (im *Importer) count(ctx context.Context, s *source, members, staged *int64) (err error) {
	if *members, err = im.client.ZCard(ctx, s.set).Result(); err == nil {
		*staged, err = im.client.HLen(ctx, stagingKey(s.set)).Result()
	}
	if err != nil {
		return fault(err, "count %s", s.set)
	}
	return nil
}

// guessUnit finds out what a plain sorted set's scores count, if that was not said. Dates of the
// years 2001 to 5138 lie between 10^9 and 10^11 in seconds, and between 10^12 and 10^14 in
// milliseconds. When scores of both ranges are there, or of none, there is no guessing.
func (im *Importer) guessUnit(ctx context.Context, r *Report) error {
	if im.opt.Kind != ZSet || im.opt.Unit != 0 {
		return nil
	}
	key := im.opt.Names[0]
	if err := im.expect(ctx, key, "zset"); err != nil {
		return err
	}
	inSeconds, err := im.client.ZCount(ctx, key, "1e9", "(1e11").Result()
	if err != nil {
		return fault(err, "read %s", key)
	}
	inMillis, err := im.client.ZCount(ctx, key, "1e12", "(1e14").Result()
	if err != nil {
		return fault(err, "read %s", key)
	}
	switch {
	case inSeconds > 0 && inMillis > 0:
		return invalidf("%d scores of %s look like seconds and %d like milliseconds: say which is right with --unit, and the others are left where they are", inSeconds, key, inMillis)
	case inSeconds > 0:
		im.opt.Unit = time.Second
	case inMillis > 0:
		im.opt.Unit = time.Millisecond
	default:
		return invalidf("%s has no score that looks like a time in seconds or milliseconds: is it empty, or another database? Or say what they count with --unit", key)
	}
	r.Unit, r.Guessed = im.opt.Unit, true
	return nil
}

// note tells what is beside the set and is not imported.
func (im *Importer) note(ctx context.Context, s *source, r *SetReport) error {
	count := func(what string, n *redis.IntCmd) error {
		if n.Err() != nil {
			return fault(n.Err(), "look beside %s", s.set)
		}
		if n.Val() > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf(what, n.Val()))
		}
		return nil
	}
	c := im.client
	switch {
	case s.kind == BeeDelayQueue && s.part == "order":
		return count("delivered and not acked yet: %d; when no old consumer runs any more, --part order,ack takes those over", c.ZCard(ctx, s.set+beeAck))
	case s.kind == Redisson:
		if c.Type(ctx, s.name).Val() == "list" { // or nothing, or a queue of another kind
			if err := count("in the list of due elements already: %d; the old consumers take those", c.LLen(ctx, s.name)); err != nil {
				return err
			}
		}
		return im.noteOrphans(ctx, s, r)
	case s.kind == Asynq && s.part == "scheduled":
		queue := "asynq:{" + s.name + "}:"
		if err := count("pending already: %d; the old servers run those", c.LLen(ctx, queue+"pending")); err != nil {
			return err
		}
		if err := count("archived: %d; they stay", c.ZCard(ctx, queue+"archived")); err != nil {
			return err
		}
		return count("groups that wait to be run as one task each: %d; they stay", c.SCard(ctx, queue+"groups"))
	}
	return nil
}

// noteOrphans tells of elements in Redisson's list that are not in its set, and so never fall due.
func (im *Importer) noteOrphans(ctx context.Context, s *source, r *SetReport) error {
	listed, err := im.client.LLen(ctx, s.list).Result()
	if err != nil {
		return fault(err, "look beside %s", s.set)
	}
	if n := listed - r.Found; n > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("in %s and without a due time: %d; those never fall due in Redisson, and stay", s.list, n))
	}
	return nil
}
