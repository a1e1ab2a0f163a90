// Package overview reads what a person wants to know about a store at first glance: how many messages there are, what
// falls due when, and what needs attention. The pages of the console and "punctual top" show it. Many people may have such a
// page open, so a Reader reads the store once for all of them, and less often the longer the store takes.
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
	"github.com/punctualmq/punctual/access"
)

// Options of a Reader. The zero value of each field is its default.
type Options struct {
	// Zone is the time zone in which days and hours begin. Default UTC.
	Zone *time.Location
	// Drawn is how many topics, the largest ones, each picture counts one by one, at most 8. Default 5.
	Drawn int
	// Burst is from how many messages due within one minute on there is a finding about them. Default 10,000.
	Burst int64
	// Timeout bounds one reading of the counts. Default 30 s.
	Timeout time.Duration
	// Patience is how long Read waits for a store that takes long to count. When it is over, Read returns what was counted
	// before. Default 50 ms.
	Patience time.Duration
	// Hurry makes Read wait for the first counts no longer than Patience. Without it Read waits for the first counts until its
	// context ends. Until they are there, Overview.Counting is true.
	Hurry bool
	// Logger gets the stack of a store that panics. Default: no log.
	Logger *slog.Logger
	// Meter, if not nil, is the Meter of each Overview, for pages that show what passed this process.
	Meter *Meter
}

// Overview is what a store held at one instant. Several callers may have the same Overview, so nobody may change it.
type Overview struct {
	// AsOf is the store's clock when the topics were counted.
	AsOf time.Time
	// Took is how long the counting took.
	Took time.Duration
	// Err is why the last reading failed; everything else is then of the last one that succeeded, as of AsOf.
	Err error
	// Counting is true while the messages are being counted for the first time; nothing else is known then.
	Counting bool
	// Partial is true while the first count is not finished, but the store has told the next due times of the topics. Of each
	// topic only the ready messages are known then, up to punctual.MaxReadyCount.
	Partial bool
	// Counted is the store's clock when scheduled, leased and dead messages were counted. A store that is a
	// punctual.Surveyor counts them less often than what is ready, so Counted may be before AsOf. It is zero before the
	// first count.
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
	// Attention is what somebody should see to, the worst first.
	Attention []Finding
	// Meter is that of the Options, with what passed this process and how late; nil when there is none.
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

// Picture counts what falls due in each of the next minutes, hours or days.
type Picture struct {
	// All counts all topics. It is nil while they are being counted for the first time.
	All *Ahead
	// Topics are the largest topics one by one, the largest first. Their steps are those of All.
	Topics []*Ahead
	// Err is why the last count failed; All and Topics are then of the last one that succeeded.
	Err error

	found []Finding // what is unusual in the picture
}

// Reader reads one store for everybody who asks. Callers share its answers, so a hundred open pages cost the store as much as
// one. Its methods are safe for concurrent use.
type Reader struct {
	store     punctual.Store
	inspector punctual.Inspector // nil when the store is none
	surveyor  punctual.Surveyor  // nil when the store is none
	o         Options

	ctx    context.Context // ended by Close
	cancel context.CancelFunc

	counts cached[topicCounts]
	heads  cached[punctual.NextDueTimes] // of a surveyor
	doctor cached[[]punctual.Finding]

	mu     sync.Mutex
	closed bool                           // guarded by mu
	asked  map[AheadQuery]*cached[*Ahead] // guarded by mu: at most mostAsked
	// pictures are guarded by mu: at most mostPictures.
	pictures map[drawing]*cached[Picture]
	costs    []time.Duration // guarded by mu: how long the last counts of the topics took, at most mostCosts
	looks    sync.WaitGroup  // grows only under mu while not closed

	turn chan struct{} // holds a value for each count ahead that is under way, at most two
}

// topicCounts is what count reads in one go.
type topicCounts struct {
	now    time.Time
	topics []punctual.TopicStats
	hidden []punctual.TopicStats
	// lacking is true when the store turned out not to be a punctual.Inspector, which may be so for a store behind a server.
	lacking bool
	// surveyed is what a survey found to be due when; nil when the store is no surveyor.
	surveyed *surveyed
}

const (
	// leastAge is how long an answer is used at least before the store is read again.
	leastAge = time.Second
	// countShare and share bound how often the store is read. An answer that took 1 ms is used for 500 ms if it is one of
	// counts (countShare), and for 1.5 s if it is a picture (share). So an open page costs the store less than half a percent
	// of its time, unless answers would become too old.
	countShare, share = 500, 1500
	// mostCountAge is how long counts are used at most, however long counting takes.
	mostCountAge = 5 * time.Minute
	// mostCosts is how many of the last counts decide whether counting is costly.
	mostCosts = 3
	// costly is from which duration on a count of the topics is not made for each page that asks.
	costly = 100 * time.Millisecond
	// newEnough is how old counts may be for somebody who opens a page.
	newEnough = 10 * time.Second
	// mostPictures bounds the pictures that are kept, three for each time zone.
	mostPictures = 24
	// mostAsked bounds the counts ahead that are kept for pages of one topic.
	mostAsked = 256
	// longAgo is the age from which on an old answer is not shown while a new one is read.
	longAgo = time.Minute
	// examineEach is how often a store's Examiner is asked about its disk or servers.
	examineEach = 30 * time.Second
)

var errClosed = fmt.Errorf("look into the store: the reader is closed: %w", punctual.ErrClosed)

// ErrCounting is the error of a count ahead that the store has not finished. A later call returns the count.
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
	setDefault(&r.o.Burst, 10_000)
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

// Close ends the readings that are under way and waits for them. Answers that were read before can still be had.
func (r *Reader) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.looks.Wait()
	return nil
}

// start runs f in a goroutine that Close waits for. It returns false, and does nothing, after Close.
func (r *Reader) start(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.looks.Go(f)
	return true
}

// Expire makes the next Read read everything anew. A caller that has just changed the store calls it, so that the change is
// seen.
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

// Recount makes the next Read count the topics anew, because something small has changed. A costly survey is not made anew
// before ten times as long as the last one took has passed.
func (r *Reader) Recount() {
	r.heads.expire(0)
	if r.surveyor != nil && r.isCostly() {
		r.counts.expire(10)
		return
	}
	r.counts.expire(0)
}

// Renew makes the next Read count the topics anew if the last count is older than ten seconds and ten times as long as it
// took. It is for somebody who opens a page; a page that refreshes itself all day does not call it.
func (r *Reader) Renew() {
	if c := r.counts.await(r.ctx, nil); time.Since(c.read) > max(newEnough, 10*c.took) {
		r.Recount()
	}
}

// Read returns the overview, which is at most a second old while the store answers quickly. It fails only until the store
// could be read once; later failures are in Overview.Err, beside what was read before. Counts that take longer than
// Options.Patience are in the overview of a later call.
func (r *Reader) Read(ctx context.Context) (*Overview, error) { return r.ReadIn(ctx, r.o.Zone) }

// ReadIn is Read with hours and days that begin as they do in a time zone.
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

// Glance is Read without pictures and findings, for callers that want to know only what is ready and for how long.
func (r *Reader) Glance(ctx context.Context) (*Overview, error) {
	patient, cancel := context.WithTimeout(ctx, r.o.Patience)
	defer cancel()
	out, _, err := r.glance(ctx, patient)
	return out, err
}

// glance returns an overview of what is counted at least every few seconds: the topics, and the next due times of a surveyor.
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

// addPictures adds what falls due by the minute, hour and day. Until a picture was counted for the first time, the pictures
// after it are not begun, because in a store of many messages they take far longer, and people want the minutes first.
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

// drawing names a picture: by which steps, and in which time zone.
type drawing struct {
	step Step
	zone *time.Location
}

// stepZone returns the time zone in which a picture for zone is kept, so that people in many zones share a picture: UTC for
// minutes, which begin at the same time everywhere, and for hours in zones that are whole hours from UTC, else zone.
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

// place returns the answer that is kept under a key, or a new one. When there are most of them already, the answer that was
// not used for longest makes room.
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

// Topics counts the messages of the topics. Where counting takes the store long, callers share an answer that may be some
// minutes old. Before the first survey of a store that is a punctual.Surveyor, only what is ready is known (Counts.Partial).
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

// countsFor returns how long counts are used that took so long.
func (r *Reader) countsFor(took time.Duration) time.Duration {
	if r.surveyor != nil {
		return max(leastAge, surveyShare*took)
	}
	return freshFor(mostCountAge, countShare)(took)
}

// isUsable reports whether counts may be shown while new ones are read. They may not when they are too old, because nobody
// asked for a long time.
func (r *Reader) isUsable(a answer[topicCounts]) bool {
	return a.err != nil || time.Since(a.read) <= max(longAgo, 2*r.countsFor(a.took))
}

// beginCount begins to count the topics, unless the last counts are still fresh. It returns what cached.begin returns.
func (r *Reader) beginCount() <-chan struct{} {
	return r.counts.begin(r, policy{timeout: r.o.Timeout, fresh: r.countsFor}, r.count)
}

// isCostly reports whether the last counts all took the store long, so that a single slow count changes nothing. The counts
// of a surveyor are costly until it is known how long they take.
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

// quick returns the counts of the topics. It waits until patient ends, and then returns older counts. Where there are none,
// or they are too old to be shown, it waits until ctx ends; with Options.Hurry it returns an empty answer instead.
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

// lateness returns for how long the first ready message of a topic has been ready; ok is false when none is.
func lateness(t punctual.TopicStats, now time.Time) (late time.Duration, ok bool) {
	return max(0, now.Sub(t.NextDue)), t.Ready > 0 && !t.NextDue.IsZero()
}

// count reads the store's clock and counts the topics, with a survey if the store is a surveyor.
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

// keep sorts the topics into those that are shown and those that are hidden.
func (c *topicCounts) keep(all []punctual.TopicStats) {
	for _, t := range all {
		if t.Topic == access.AuditTopic {
			c.hidden = append(c.hidden, t)
		} else {
			c.topics = append(c.topics, t)
		}
	}
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

// lookAtAll counts ahead for all topics together, without those that are hidden.
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

// picture returns how many steps a picture has, and how old it may become: the older, the longer its steps are.
func (s Step) picture() (steps int, most time.Duration) {
	switch s {
	case Minute:
		return 60, 2 * time.Minute
	case Hour:
		return 48, time.Hour
	}
	return 90, 6 * time.Hour
}

// look counts ahead. At most two counts run at a time, so that a store of many messages is not asked for all pictures at once.
func (r *Reader) look(ctx context.Context, q AheadQuery, now time.Time) (*Ahead, error) {
	a, _, err := r.timedLook(ctx, q, now)
	return a, err
}

// timedLook is look, and returns how long the store took, without the time that look waited for other counts.
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

// Ahead counts ahead as q says, for a page of one topic for instance. Callers share its answers, of which at most mostAsked
// are kept. It fails with ErrCounting when the first answer takes the store longer than Options.Patience.
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

// AheadOf counts ahead for the rows of a table: as q says, but for each of the topics. It waits for all of them together no
// longer than Options.Patience, and returns without the topics that are not counted by then. All rows together may cost what
// one picture may, so each answer is used the longer, the more topics there are.
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

// askedFor returns the place where the answer to q is kept; see place.
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

// picturePolicy gives a picture a minute to be counted, and uses it for share times as long as that took.
func (r *Reader) picturePolicy(s Step) policy {
	_, most := s.picture()
	if r.surveyor != nil {
		most = math.MaxInt64
	}
	return policy{timeout: time.Minute, fresh: freshFor(most, share)}
}

// freshFor returns a policy.fresh: an answer is used for share times as long as it took and at most for most, but for a second
// and four times as long as it took in any case.
func freshFor(most, share time.Duration) func(time.Duration) time.Duration {
	return func(took time.Duration) time.Duration {
		return max(leastAge, min(share*took, most), 4*took)
	}
}
