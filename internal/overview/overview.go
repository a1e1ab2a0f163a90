// Package overview tells what a person wants to know of a store at first glance. That is what there is, what falls due
// when, and what needs attention. The pages of the console and "punctual top" show it.
package overview

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

// AuditTopic is where the console keeps who changed what. An overview leaves it out.
const AuditTopic = "punctual.audit"

// Options of a Reader. The zero value of each field is its default.
type Options struct {
	// Zone is whose days and hours are counted. Default UTC.
	Zone *time.Location
	// Drawn is how many topics each picture shows apart from the others, at most 8. Default 5.
	Drawn int
	// Herd is how many messages due within one minute are many. Default 10,000.
	Herd int64
	// Timeout bounds one look for the counts. Default 30 s.
	Timeout time.Duration
	// Patience is how long Read waits for what a store takes long to count. It then shows what there was before.
	// Default 50 ms.
	Patience time.Duration
	// Hurry has Read wait no longer for the first counts than for the others. Until they are there, Overview.Counting
	// is true.
	Hurry bool
	// Logger is told of a store that panics. Default: nobody.
	Logger *slog.Logger
	// Meter, if not nil, is handed on by each Overview.
	Meter *Meter
}

// Overview is what a store held at one instant. Whoever gets one only reads it: others have the same.
type Overview struct {
	// AsOf is the store's clock at the look that counted the topics.
	AsOf time.Time
	// Took is how long that look took.
	Took time.Duration
	// Err says why there is nothing newer; everything else is then as of AsOf.
	Err error
	// Counting tells that the messages are being counted, and nothing else is known.
	Counting bool
	// Partial tells that they are being counted, and that of the topics only the ready messages are known, up to
	// punctual.HeadReady.
	Partial bool
	// Counted is the store's clock at the count of what is scheduled, leased and dead. It is before AsOf in a large
	// store that is a punctual.Surveyor, and zero before the first count.
	Counted time.Time
	// Inspected is false for a store that is not a punctual.Inspector: it has no counts, pictures and topics.
	Inspected bool
	// Topics are sorted by name.
	Topics []punctual.TopicStats
	Totals Totals
	// Oldest is the message that has been ready for longest, in a topic whose delivery is not paused; nil when there is none.
	Oldest *Oldest
	// Minutes, Hours and Days are the next 60 minutes, 48 hours and 90 days.
	Minutes, Hours, Days Picture
	// Attention is what somebody should look at, the worst first.
	Attention []Finding
	// Meter is the one of the Options: what passed this process, and how late. It is nil when there is none.
	Meter *Meter
}

// Totals are the messages of all topics by state.
type Totals struct{ Scheduled, Ready, Leased, Dead int64 }

// Oldest is the message that has been ready for longest.
type Oldest struct {
	Topic string
	Due   time.Time
	Late  time.Duration
}

// Picture is what falls due in some steps ahead.
type Picture struct {
	// All counts all topics. It is nil while they are being counted for the first time.
	All *Ahead
	// Topics are those that have most scheduled messages, most first. They share the edges of All.
	Topics []*Ahead
	// Err says why there is nothing newer.
	Err error

	found []Finding // what is unusual in it
}

// Reader looks into one store for everybody who asks. Its methods are safe for concurrent use: a hundred callers cost one look.
type Reader struct {
	store     punctual.Store
	inspector punctual.Inspector // nil when the store is none
	surveyor  punctual.Surveyor  // nil when the store is none
	o         Options

	ctx    context.Context // ended by Close
	cancel context.CancelFunc

	counts cached[topicCounts]
	heads  cached[punctual.Heads] // of a surveyor
	doctor cached[[]punctual.Finding]

	mu     sync.Mutex
	closed bool                           // guarded by mu
	asked  map[AheadQuery]*cached[*Ahead] // guarded by mu: at most mostAsked
	// pictures are guarded by mu: at most mostPictures.
	pictures map[drawing]*cached[Picture]
	costs    []time.Duration // guarded by mu: how long the last counts of the topics took, at most mostCosts
	looks    sync.WaitGroup  // grows only under mu while not closed

	turn chan struct{} // has room for the forecasts that are made at the same time
}

// topicCounts is what one quick look brings.
type topicCounts struct {
	now    time.Time
	topics []punctual.TopicStats
	hidden []punctual.TopicStats
	// lacking tells that the store turned out not to be a punctual.Inspector, as one behind a server may.
	lacking bool
	// surveyed is what the same look found to be due when; nil when the store is no surveyor.
	surveyed *surveyed
}

const (
	// leastAge is how long an answer is used at least.
	leastAge = time.Second
	// countShare and share bound how often the store is looked into. An answer is used for so many times as long as
	// its look took: countShare for the counts, share for the pictures. So an open page costs the store less than
	// half a percent of its time, unless answers would become too old.
	countShare, share = 500, 1500
	// mostCountAge is how old counts become for that.
	mostCountAge = 5 * time.Minute
	// mostCosts is how many counts tell whether counting is costly.
	mostCosts = 3
	// costly is how long a count of the topics takes that is not made for each page.
	costly = 100 * time.Millisecond
	// newEnough is how old counts are that somebody who opens a page is shown.
	newEnough = 10 * time.Second
	// mostPictures bounds the pictures that are kept, three for each time zone.
	mostPictures = 24
	// mostAsked bounds the counts ahead that are kept for pages of one topic.
	mostAsked = 256
	// longAgo is how old what was read is when nobody wants to see it any more.
	longAgo = time.Minute
	// examineEach is how often a store is asked what it stands on.
	examineEach = 30 * time.Second
)

var errClosed = fmt.Errorf("look into the store: the reader is closed: %w", punctual.ErrClosed)

// ErrCounting is the error of a count ahead that the store has not finished. It is there soon.
var ErrCounting = errors.New("the messages are being counted")

// New returns a Reader of a store, which stays the caller's. Close it before the store.
func New(store punctual.Store, o *Options) (*Reader, error) {
	if store == nil {
		return nil, fmt.Errorf("overview: no store: give one: %w", punctual.ErrInvalid)
	}
	r := &Reader{store: store, asked: make(map[AheadQuery]*cached[*Ahead]), pictures: make(map[drawing]*cached[Picture]), turn: make(chan struct{}, 2)}
	if o != nil {
		r.o = *o
	}
	if r.o.Zone == nil {
		r.o.Zone = time.UTC
	}
	if r.o.Logger == nil {
		r.o.Logger = slog.New(slog.DiscardHandler)
	}
	setDefault(&r.o.Drawn, 5)
	setDefault(&r.o.Herd, 10_000)
	setDefault(&r.o.Timeout, 30*time.Second)
	setDefault(&r.o.Patience, 50*time.Millisecond)
	r.o.Drawn = min(r.o.Drawn, 8)
	r.inspector, _ = punctual.As[punctual.Inspector](store)
	r.surveyor, _ = punctual.As[punctual.Surveyor](store)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Close ends the looks that are under way and waits for them. What was read stays readable.
func (r *Reader) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.looks.Wait()
	return nil
}

// start runs f in a goroutine that Close waits for; it returns false after Close.
func (r *Reader) start(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.looks.Go(f)
	return true
}

// Expire has the next Read look again: its caller has just changed the store, and wants to see that.
func (r *Reader) Expire() {
	r.Recount()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.pictures {
		c.expire(0)
	}
	for _, c := range r.asked {
		c.expire(0)
	}
}

// Recount has the next Read count the topics again: something small has changed. A survey that is costly rests for
// ten times as long as the one before took.
func (r *Reader) Recount() {
	r.heads.expire(0)
	if r.surveyor != nil && r.isCostly() {
		r.counts.expire(10)
		return
	}
	r.counts.expire(0)
}

// Renew has the next Read count the topics again when that was long ago. It is for somebody who opens a page.
// A page that is open all day does without.
func (r *Reader) Renew() {
	if c := r.counts.await(r.ctx, nil); time.Since(c.read) > max(newEnough, 10*c.took) {
		r.Recount()
	}
}

// Read returns the overview, which is at most a second old while the store answers quickly. It fails only while the store
// could never be read; later Overview.Err says what fails. What is slow to count comes with a later call.
func (r *Reader) Read(ctx context.Context) (*Overview, error) { return r.ReadIn(ctx, r.o.Zone) }

// ReadIn is Read with pictures of the hours and days of a time zone.
func (r *Reader) ReadIn(ctx context.Context, zone *time.Location) (*Overview, error) {
	patient, cancel := context.WithTimeout(ctx, r.o.Patience)
	defer cancel()
	out, counts, err := r.glance(ctx, patient)
	if err != nil || out.Counting {
		return out, err
	}
	examining := r.examine()
	if len(out.Topics) > 0 && !out.Partial {
		r.addPictures(patient, out, counts, zone)
	}
	out.Attention = attention(out, r.examined(patient, examining))
	return out, nil
}

// Glance is Read without pictures and findings, for who wants to know only what is ready and for how long.
func (r *Reader) Glance(ctx context.Context) (*Overview, error) {
	patient, cancel := context.WithTimeout(ctx, r.o.Patience)
	defer cancel()
	out, _, err := r.glance(ctx, patient)
	return out, err
}

// glance is what the quick looks tell.
func (r *Reader) glance(ctx, patient context.Context) (*Overview, topicCounts, error) {
	heads := r.beginHeads()
	c, err := r.quick(ctx, patient)
	if err != nil {
		return nil, topicCounts{}, err
	}
	h := r.heads.await(patient, heads)
	if c.read.IsZero() && h.read.IsZero() {
		return &Overview{Counting: true, Inspected: true, Meter: r.o.Meter}, topicCounts{}, nil
	}
	out := &Overview{
		AsOf: c.value.now, Counted: c.value.now, Took: c.took, Err: c.err, Inspected: r.inspector != nil && !c.value.lacking, Topics: c.value.topics,
		Partial: c.read.IsZero(), Meter: r.o.Meter,
	}
	out.addHeads(h)
	out.add()
	return out, c.value, nil
}

// addPictures adds what falls due. Until a picture was counted for the first time, those of more distant times are
// not begun. In a store of many messages those take far longer, and people look at the first one.
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

// drawing is which picture is meant.
type drawing struct {
	step Step
	zone *time.Location
}

// stepZone is a time zone with the same steps as another one, so that people in many zones share a picture. Minutes
// are the same everywhere, and hours in all zones that are whole hours apart.
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

// in is the picture with its edges in a time zone.
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

// pictureFor is the place of a picture. When there are too many the one that nobody has asked for longest goes.
func (r *Reader) pictureFor(d drawing) *cached[Picture] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return place(r.pictures, d, mostPictures)
}

// place is the place of an answer among at most so many. The one that nobody has asked for longest makes room.
func place[K comparable, T any](all map[K]*cached[T], key K, most int) *cached[T] {
	if c := all[key]; c != nil {
		return c
	}
	if len(all) >= most {
		var oldest K
		var since time.Time
		for k, c := range all {
			if used := c.lastUsed(); since.IsZero() || used.Before(since) {
				oldest, since = k, used
			}
		}
		delete(all, oldest)
	}
	c := &cached[T]{used: time.Now()}
	all[key] = c
	return c
}

// Topics counts the messages of the topics. Where that takes the store long, it is an answer that others have got, too, which
// may be some minutes old. Of a surveyor it is at first what the heads tell.
func (r *Reader) Topics(ctx context.Context) (Counts, error) {
	if !r.isCostly() {
		c, err := r.count(ctx)
		if err == nil && (r.inspector == nil || c.lacking) {
			err = fmt.Errorf("count the topics: the store cannot be inspected: %w", punctual.ErrUnsupported)
		}
		return Counts{AsOf: c.now, Counted: c.now, Topics: c.topics}, err
	}
	running := r.beginCount()
	if r.surveyor != nil {
		return r.surveyedTopics(ctx, running)
	}
	c := r.counts.await(ctx, nil)
	if !r.isUsable(c) {
		c = r.counts.await(ctx, running)
	}
	switch {
	case c.err != nil:
		return Counts{}, c.err
	case c.read.IsZero():
		return Counts{}, context.Cause(ctx)
	}
	return Counts{AsOf: c.value.now, Counted: c.value.now, Topics: slices.Clone(c.value.topics)}, nil
}

// Counts are the topics, as of an instant of the store's clock.
type Counts struct {
	AsOf time.Time
	// Counted and Partial are as those of an Overview.
	Counted time.Time
	Partial bool
	// Topics are sorted by name.
	Topics []punctual.TopicStats
}

// countsFor is how long counts are used.
func (r *Reader) countsFor(took time.Duration) time.Duration {
	if r.surveyor != nil {
		return max(leastAge, surveyShare*took)
	}
	return freshFor(mostCountAge, countShare)(took)
}

// isUsable tells whether somebody still wants to see the counts. They are too old when nobody has looked for long.
func (r *Reader) isUsable(a answer[topicCounts]) bool {
	return a.err != nil || time.Since(a.read) <= max(longAgo, 2*r.countsFor(a.took))
}

// beginCount has the topics counted, unless that was done of late.
func (r *Reader) beginCount() <-chan struct{} {
	return r.counts.begin(r, policy{timeout: r.o.Timeout, fresh: r.countsFor}, r.count)
}

// isCostly tells whether the last counts all took the store long. One that was slow by chance is not taken for that. A
// surveyor's are costly until it is known how long they take.
func (r *Reader) isCostly() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.surveyor != nil {
		return len(r.costs) == 0 || slices.Min(r.costs) >= costly
	}
	return len(r.costs) == mostCosts && slices.Min(r.costs) >= costly
}

// noteCost notes how long a count of the topics took.
func (r *Reader) noteCost(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.costs = append(r.costs, took)
	r.costs = r.costs[max(0, len(r.costs)-mostCosts):]
}

// quick is the answer of the quick look. It waits for the first one, and for one after a long time in which nobody
// looked. Callers in a hurry do not: they get an empty one. Nobody waits for a store that failed last.
func (r *Reader) quick(ctx, patient context.Context) (answer[topicCounts], error) {
	running := r.beginCount()
	if r.surveyor != nil && r.isCostly() {
		if c := r.counts.await(ctx, nil); !c.read.IsZero() && r.isUsable(c) {
			return c, nil // a survey takes longer than anybody waits
		}
	}
	c := r.counts.await(patient, running)
	if !r.isUsable(c) {
		if r.o.Hurry && ctx.Err() == nil {
			return answer[topicCounts]{}, nil
		}
		c = r.counts.await(ctx, running)
	}
	switch {
	case !c.read.IsZero():
		return c, nil
	case c.err != nil:
		return c, fmt.Errorf("overview: %w", c.err)
	}
	return c, fmt.Errorf("overview: %w", context.Cause(ctx))
}

// add adds up the topics.
func (o *Overview) add() {
	for _, t := range o.Topics {
		o.Totals.Scheduled += t.Scheduled
		o.Totals.Ready += t.Ready
		o.Totals.Leased += t.Leased
		o.Totals.Dead += t.Dead
		if late, ok := lateness(t, o.AsOf); ok && !t.Settings.DeliveryPaused && (o.Oldest == nil || late > o.Oldest.Late) {
			o.Oldest = &Oldest{Topic: t.Topic, Due: t.NextDue, Late: late}
		}
	}
}

// lateness is for how long the first message of a topic has been ready.
func lateness(t punctual.TopicStats, now time.Time) (time.Duration, bool) {
	return max(0, now.Sub(t.NextDue)), t.Ready > 0 && !t.NextDue.IsZero()
}

// count is the quick look: the clock and the counts of the topics.
func (r *Reader) count(ctx context.Context) (topicCounts, error) {
	began := time.Now()
	now, err := r.store.Now(ctx)
	if err != nil {
		return topicCounts{}, fmt.Errorf("read the store's clock: %w", err)
	}
	out := topicCounts{now: now}
	if r.inspector == nil {
		return out, nil
	}
	if r.surveyor != nil {
		out, err = r.survey(ctx, now)
		r.noteCost(time.Since(began))
		return out, err
	}
	all, err := r.inspector.Topics(ctx)
	if errors.Is(err, punctual.ErrUnsupported) {
		out.lacking = true
		return out, nil
	}
	if err != nil {
		return topicCounts{}, fmt.Errorf("count the messages of the topics: %w", err)
	}
	r.noteCost(time.Since(began))
	out.keep(all)
	return out, nil
}

// keep takes the topics over, those that are hidden apart from the others.
func (c *topicCounts) keep(all []punctual.TopicStats) {
	for _, t := range all {
		if t.Topic == AuditTopic {
			c.hidden = append(c.hidden, t)
		} else {
			c.topics = append(c.topics, t)
		}
	}
}

// draw counts ahead for one picture: all topics, and the largest each.
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
		one, err := r.look(ctx, q, now)
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
	} else if out.All, err = r.lookAtAll(ctx, q, now, c.hidden); err != nil {
		return Picture{}, err
	}
	return out, r.examinePicture(ctx, &out, c.topics, r.look)
}

// lookAtAll counts ahead for all topics but those hidden.
func (r *Reader) lookAtAll(ctx context.Context, q AheadQuery, now time.Time, hidden []punctual.TopicStats) (*Ahead, error) {
	q.Topic = ""
	all, err := r.look(ctx, q, now)
	if err != nil {
		return nil, err
	}
	for _, t := range hidden {
		q.Topic = t.Topic
		one, err := r.look(ctx, q, now)
		if err != nil {
			return nil, err
		}
		all.take(one)
	}
	return all, nil
}

// picture is how many steps a picture has, and how old it may become. It may be the older the longer its steps are.
func (s Step) picture() (steps int, most time.Duration) {
	switch s {
	case Minute:
		return 60, 2 * time.Minute
	case Hour:
		return 48, time.Hour
	}
	return 90, 6 * time.Hour
}

// look counts ahead when it is its turn: a store of many messages is not asked for all pictures at once.
func (r *Reader) look(ctx context.Context, q AheadQuery, now time.Time) (*Ahead, error) {
	a, _, err := r.timedLook(ctx, q, now)
	return a, err
}

// timedLook is look, and tells how long it took from its turn on.
func (r *Reader) timedLook(ctx context.Context, q AheadQuery, now time.Time) (a *Ahead, took time.Duration, err error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
		began := time.Now()
		a, err = Look(ctx, r.inspector, q, now)
		return a, time.Since(began), err
	case <-ctx.Done():
		return nil, 0, fmt.Errorf("count what is due by %s: %w", q.Step, context.Cause(ctx))
	}
}

// largest are the n topics with most messages that are not dead, most first.
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

// Ahead counts ahead as q says, for a page of one topic for instance. Like Read it shares its answers, which are
// at most mostAsked. It fails with ErrCounting while the first one takes the store long.
func (r *Reader) Ahead(ctx context.Context, q AheadQuery) (*Ahead, error) {
	if r.inspector == nil {
		return nil, fmt.Errorf("count ahead: the store cannot be inspected: %w", punctual.ErrUnsupported)
	}
	if q.Zone == nil {
		q.Zone = r.o.Zone
	}
	patient, cancel := context.WithTimeout(ctx, r.o.Patience)
	defer cancel()
	if r.surveyor != nil {
		if a, err := r.surveyedAhead(patient, q); a != nil || err != nil {
			return a, err
		}
	}
	c := r.askedFor(q)
	a := c.await(patient, c.begin(r, r.picturePolicy(q.Step), func(ctx context.Context) (*Ahead, error) {
		now, err := r.store.Now(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the store's clock: %w", err)
		}
		return r.look(ctx, q, now)
	}))
	switch {
	case a.err != nil:
		return a.value, a.err
	case a.value == nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case a.value == nil:
		return nil, ErrCounting
	}
	return a.value, nil
}

// AheadOf counts ahead for the rows of a table, as q says but for each of the topics. It waits for all together as Read does, and lacks what is
// not counted by then. All rows share what a picture may cost, so the more there are, the longer each is used.
func (r *Reader) AheadOf(ctx context.Context, q AheadQuery, topics []string) map[string]*Ahead {
	out := make(map[string]*Ahead, len(topics))
	if r.inspector == nil {
		return out
	}
	patient, cancel := context.WithTimeout(ctx, r.o.Patience)
	defer cancel()
	var c answer[topicCounts]
	if r.surveyor != nil {
		if c = r.counts.await(patient, nil); c.read.IsZero() {
			c = r.counts.await(patient, r.beginCount())
		}
		if c.read.IsZero() {
			return out // the survey that is being made has most of them
		}
	}
	var once sync.Once
	var now time.Time
	var failed error
	clock := func(ctx context.Context) (time.Time, error) {
		once.Do(func() { now, failed = r.store.Now(ctx) })
		return now, failed
	}
	fresh := freshFor(math.MaxInt64, share*time.Duration(len(topics)))
	waiting := make(map[string]*cached[*Ahead])
	running := make(map[string]<-chan struct{})
	for _, topic := range topics {
		q := q
		q.Topic, q.row = topic, true
		if a, ok := c.value.surveyed.ahead(q, c.value.now.Add(time.Since(c.read))); ok {
			out[topic] = a
			continue
		}
		waiting[topic] = r.askedFor(q)
		var own time.Duration // without the wait for others
		p := policy{timeout: time.Minute, fresh: func(time.Duration) time.Duration { return fresh(own) }}
		running[topic] = waiting[topic].begin(r, p, func(ctx context.Context) (a *Ahead, err error) {
			now, err := clock(ctx)
			if err != nil {
				return nil, fmt.Errorf("read the store's clock: %w", err)
			}
			a, own, err = r.timedLook(ctx, q, now)
			return a, err
		})
	}
	for topic, k := range waiting {
		if a := k.await(patient, running[topic]); a.value != nil {
			out[topic] = a.value
		}
	}
	return out
}

// askedFor is the place of an answer. When there are too many the one that nobody has asked for longest goes.
func (r *Reader) askedFor(q AheadQuery) *cached[*Ahead] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return place(r.asked, q, mostAsked)
}

func (c *cached[T]) lastUsed() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// picturePolicy has a picture counted at leisure.
func (r *Reader) picturePolicy(s Step) policy {
	_, most := s.picture()
	if r.surveyor != nil {
		most = math.MaxInt64
	}
	return policy{timeout: time.Minute, fresh: freshFor(most, share)}
}

// freshFor is how long answers are used that may become so old.
func freshFor(most, share time.Duration) func(time.Duration) time.Duration {
	return func(took time.Duration) time.Duration {
		return max(leastAge, min(share*took, most), 4*took)
	}
}
