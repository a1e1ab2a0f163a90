package overview

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
)

// drawing names a picture: by which steps, and in which time zone.
type drawing struct {
	step Step
	zone *time.Location
}

// addPictures adds what falls due by the minute, hour and day. Until the first count of a picture
// has ended, the pictures after it are not begun, because in a store of many messages they take far
// longer, and people want the minutes first.
func (r *Reader) addPictures(ctx context.Context, out *Overview, c topicCounts, zone *time.Location) {
	for n, p := range []*Picture{&out.Minutes, &out.Hours, &out.Days} {
		if found, ok := c.surveyed.picture(Minute+Step(n), zone, out.AsOf); ok {
			*p = found
			continue
		}
		d := drawing{Minute + Step(n), stepZone(Minute+Step(n), c.now, zone)}
		k := r.pictureFor(d)
		a := k.await(ctx, k.begin(r, r.picturePolicy(d.step), func(ctx context.Context) (Picture, error) { return r.draw(ctx, d, c) }))
		*p = a.value.in(zone)
		p.Err = a.err
		if a.read.IsZero() && a.err == nil {
			return
		}
	}
}

// stepZone returns the time zone in which a picture for zone is kept, so that people in many zones
// share a picture: UTC for minutes, which begin at the same time everywhere, and for hours in zones
// that are whole hours from UTC, else zone.
func stepZone(s Step, now time.Time, zone *time.Location) *time.Location {
	steps, _ := s.picture()
	whole := func(t time.Time) bool {
		_, offset := t.In(zone).Zone()
		return offset%3600 == 0
	}
	if s == Minute || s == Hour && whole(now) && whole(now.Add(time.Duration(steps+1)*time.Hour)) {
		return time.UTC
	}
	return zone
}

// in returns the picture with the edges of its steps in a time zone.
func (p Picture) in(zone *time.Location) Picture {
	if p.All == nil || p.All.Zone == zone {
		return p
	}
	p.All, p.Topics = p.All.in(zone), slices.Clone(p.Topics)
	for n, a := range p.Topics {
		p.Topics[n] = a.in(zone)
	}
	return p
}

// pictureFor returns the place where a picture is kept; see place.
func (r *Reader) pictureFor(d drawing) *cached[Picture] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return place(r.pictures, d, mostPictures)
}

// draw counts ahead for one picture: for all topics together, and for each of the largest.
func (r *Reader) draw(ctx context.Context, d drawing, c topicCounts) (Picture, error) {
	steps, _ := d.step.picture()
	q := AheadQuery{Step: d.step, Steps: steps, Zone: d.zone}
	now, err := r.store.Now(ctx)
	if err != nil {
		return Picture{}, fmt.Errorf("read the store's clock: %w", err)
	}
	var out Picture
	for _, t := range largest(c.topics, r.o.Drawn) {
		q.Topic = t.Topic
		one, err := r.forecast(ctx, q, now)
		if err != nil {
			return Picture{}, err
		}
		out.Topics = append(out.Topics, one)
	}
	live := 0
	for _, t := range c.topics {
		if t.Live() > 0 {
			live++
		}
	}
	if live > 0 && live == len(out.Topics) {
		out.All = sumOf(out.Topics) // a store that reads each message need not read it twice
	} else if out.All, err = r.forecastAll(ctx, q, now, c.hidden); err != nil {
		return Picture{}, err
	}
	return out, r.examinePicture(ctx, &out, c.topics, r.forecast)
}

// forecastAll counts ahead for all topics together, without those that are hidden.
func (r *Reader) forecastAll(ctx context.Context, q AheadQuery, now time.Time, hidden []punctual.TopicStats) (*Ahead, error) {
	q.Topic = ""
	all, err := r.forecast(ctx, q, now)
	if err != nil {
		return nil, err
	}
	for _, t := range hidden {
		q.Topic = t.Topic
		one, err := r.forecast(ctx, q, now)
		if err != nil {
			return nil, err
		}
		all.take(one)
	}
	return all, nil
}

// picture returns how many steps a picture has, and how old it may become: the older, the longer
// its steps are.
func (s Step) picture() (steps int, most time.Duration) {
	switch s {
	case Minute:
		return 60, 2 * time.Minute
	case Hour:
		return 48, time.Hour
	}
	return 90, 6 * time.Hour
}

// largest returns the n topics with most messages that are not dead, the largest first.
func largest(topics []punctual.TopicStats, n int) []punctual.TopicStats {
	var out []punctual.TopicStats
	for _, t := range topics {
		if t.Live() == 0 || len(out) == n && t.Live() <= out[n-1].Live() {
			continue
		}
		at, _ := slices.BinarySearchFunc(out, t.Live(), func(o punctual.TopicStats, live int64) int {
			if o.Live() >= live {
				return -1
			}
			return 1
		})
		out = slices.Insert(out, at, t)
		out = out[:min(len(out), n)]
	}
	return out
}

// picturePolicy gives a picture a minute to be counted, and uses it for share times as long as that
// took. Unless the store is a surveyor, it is used no longer than Step.picture says, or than four
// times as long as it took if that is longer.
func (r *Reader) picturePolicy(s Step) policy {
	_, most := s.picture()
	if r.surveyor != nil {
		most = math.MaxInt64
	}
	return policy{timeout: time.Minute, fresh: freshFor(most, share)}
}
