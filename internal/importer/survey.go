package importer

import (
	"context"
	"time"
)

// samples is how many messages of each set a survey shows at most.
const samples = 3

// Survey reads the messages of the sources and returns what a run would find to import there. It
// only counts what is in staging, and changes nothing.
func (im *Importer) Survey(ctx context.Context) (*Report, error) {
	r := &Report{Kind: im.opt.Kind, Unit: im.opt.Unit}
	if err := im.from.guessUnit(ctx, r); err != nil {
		return r, err
	}
	sources, err := im.sources(ctx)
	if err != nil {
		return r, err
	}
	now, err := im.from.now(ctx)
	if err != nil {
		return r, err
	}
	for _, s := range sources {
		sr := newSetReport(s)
		r.Sets = append(r.Sets, sr)
		if err := im.from.count(ctx, s, &sr.Found, &sr.Staged); err != nil {
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
	walks := im.from.walks(s)
	err := walks[len(walks)-1](ctx, s, func(_ context.Context, es []*entry) ([]bool, error) {
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
	return im.from.note(ctx, s, r)
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
