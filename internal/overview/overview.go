// Package overview reads what a person wants to know about a store at first glance: how many
// messages there are, what falls due when, and what needs attention. The pages of the console and
// "punctual top" show it. Many people may have such a page open, so a Reader reads the store once
// for all of them, and less often the longer the store takes.
//
// What a Reader reads stands in counts.go (the messages of each topic), pictures.go and ahead.go
// (what falls due when) and survey.go (both in one pass, for stores that have to read every
// message). How answers are shared and how long they are used stands in cached.go, what needs
// attention in attention.go and burst.go. A Meter (meter.go) reads no store: it counts what passes
// a process.
package overview

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/bulk"
	"github.com/punctualmq/punctual/internal/stalled"
	"github.com/punctualmq/punctual/storekit"
)

// Options of a Reader. The zero value of each field is its default.
type Options struct {
	// Zone is the time zone in which days and hours begin. Default UTC.
	Zone *time.Location
	// Drawn is how many topics, the largest ones, each picture counts one by one, at most 8.
	// Default 5.
	Drawn int
	// Burst is how many messages have to be due within one minute, and far more than on average
	// (burstRatio), for a finding about them. Days that are too far ahead to be counted by the
	// minute have such a finding for as many messages within one day. Default 10,000.
	Burst int64
	// Timeout bounds one reading of the counts, or of a surveyor's next due times. Default 30 s.
	Timeout time.Duration
	// Patience is how long Read waits for a store that takes long to count. When it is over, Read
	// returns what was counted before, if there is something and it is not too old. Default 50 ms.
	Patience time.Duration
	// Hurry makes Read wait no longer than Patience also when it has nothing to return: for the
	// first counts, and for new counts when the old ones are too old to be shown, because nobody
	// has asked for long. Until they are there, Overview.Counting or Overview.Partial is true.
	// Without Hurry Read waits for such counts until its context ends.
	Hurry bool
	// Logger gets the stack of a store that panics. Default: no log.
	Logger *slog.Logger
	// Meter, if not nil, is the Meter of each Overview, for pages that show what passed this
	// process.
	Meter *Meter
}

// Overview is what a Reader knows about a store. Several callers share its topics and pictures, so
// nobody may change them.
type Overview struct {
	// AsOf is the store's clock when the ready messages were counted.
	AsOf time.Time
	// Took is how long the last count took, also when it failed.
	Took time.Duration
	// Err is why the last reading of the topics failed; the topics are then as of AsOf.
	Err error
	// Counting is true when nothing is known, because the messages are being counted for the first
	// time, or anew because the last counts are too old to be shown.
	Counting bool
	// Partial is true while there are no counts that may be shown, but the store has told the next
	// due times of the topics. Of each topic only the settings and the ready messages are known
	// then, the latter up to storekit.MaxReadyCount.
	Partial bool
	// Counted is the store's clock when scheduled, leased and dead messages were counted. A store
	// that is a storekit.Surveyor counts them less often than what is ready, so Counted may be
	// before AsOf. It is zero before the first count.
	Counted time.Time
	// Inspected is false for a store that is not a punctual.Inspector: it has no counts, pictures
	// and topics.
	Inspected bool
	// Topics are sorted by name.
	Topics []punctual.TopicStats
	Totals Totals
	// Oldest is the message that has been ready for longest, in a topic whose delivery is not
	// paused; nil when there is none. Events, and the messages that say how far a bulk change is,
	// do not count.
	Oldest *Oldest
	// Minutes, Hours and Days are the next 60 minutes, 48 hours and 90 days.
	Minutes, Hours, Days Picture
	// Attention is what somebody should see to, the worst first.
	Attention []Finding
	// Meter is that of the Options, with what passed this process and how late; nil when there is
	// none.
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
	// All counts all topics. It is nil when there are none, and until there is a count of them that
	// may be shown.
	All *Ahead
	// Topics are the largest topics one by one, the largest first. Their steps are those of All.
	Topics []*Ahead
	// Err is why the last count failed; All and Topics are then of the last one that succeeded.
	Err error

	found []Finding // what is unusual in the picture
}

// Reader reads one store for everybody who asks. Callers share the answers that take the store
// long, so a hundred open pages cost it about as much as one. The methods of a Reader are safe for
// concurrent use.
type Reader struct {
	store     punctual.Store
	inspector punctual.Inspector // nil when the store is none
	surveyor  storekit.Surveyor  // nil when the store is none
	o         Options

	ctx    context.Context // ended by Close
	cancel context.CancelFunc

	counts  cached[topicCounts]
	nextDue cached[storekit.NextDueTimes] // read only if the store is a storekit.Surveyor
	doctor  cached[[]storekit.Finding]
	stalled cached[[]stalled.Schedule]
	watch   *stalled.Watch // used by the reading of stalled

	mu     sync.Mutex
	closed bool                           // guarded by mu
	asked  map[AheadQuery]*cached[*Ahead] // guarded by mu: at most mostAsked
	// pictures are guarded by mu: at most mostPictures.
	pictures map[drawing]*cached[Picture]
	costs    []time.Duration // guarded by mu: how long the last counts of the topics took, at most mostCosts
	readings sync.WaitGroup  // grows only under mu while not closed

	turn chan struct{} // holds a value for each count ahead that is under way, at most two
}

const (
	// leastAge is how long an answer is used at least before the store is read again, unless
	// somebody calls Expire or Recount.
	leastAge = time.Second
	// countShare and share bound how often the store is read. An answer that took 10 ms is used for
	// 5 s if it is one of counts (countShare), and for 15 s if it is a picture (share). So an open
	// page costs the store less than half a percent of its time, unless answers would become too
	// old.
	countShare, share = 500, 1500
	// mostCountAge is how long counts are used at most, unless counting takes more than a quarter
	// of it. The counts of a surveyor may be used for longer (surveyShare).
	mostCountAge = 5 * time.Minute
	// mostCosts is how many of the last counts decide whether counting is costly.
	mostCosts = 3
	// costly is from which duration on a count of the topics is not made for each page that asks.
	costly = 100 * time.Millisecond
	// newEnough is how old counts may be for somebody who opens a page, unless counting takes long
	// (Renew).
	newEnough = 10 * time.Second
	// mostPictures bounds the pictures that are kept, at most three for each time zone.
	mostPictures = 24
	// mostAsked bounds the counts ahead that are kept beside the pictures: for the week, for pages
	// of one topic and for the rows of tables.
	mostAsked = 256
	// longAgo is the age up to which old counts are shown in any case while new ones are read
	// (isUsable).
	longAgo = time.Minute
	// examineEach is how long the answer of a store's storekit.Examiner about its disk or servers
	// is used at least, unless it failed.
	examineEach = 30 * time.Second
	// stalledEach is how long the list of schedules that do not come is used at least. Package
	// stalled bounds the reading of that list.
	stalledEach = 10 * time.Second
)

var errClosed = fmt.Errorf("read the store: the reader is closed: %w", punctual.ErrClosed)

// ErrCounting is the error of a count ahead that the store has not finished. A later call returns
// the count.
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
	r.watch = stalled.New(store)
	r.inspector, _ = punctual.As[punctual.Inspector](store)
	r.surveyor, _ = punctual.As[storekit.Surveyor](store)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Close ends the readings that are under way and waits for them. Answers that were read before can
// still be had.
func (r *Reader) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.readings.Wait()
	return nil
}

// start runs f in a goroutine that Close waits for. It returns false, and does nothing, after
// Close.
func (r *Reader) start(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.readings.Go(f)
	return true
}

// Expire makes the next Read count the topics, as Recount does, and all pictures anew. A caller
// that has just changed the store calls it, so that the change is seen soon.
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

// Recount makes the next Read count the topics anew, because something small has changed. A count
// that is under way goes on, but only the callers that wait for it get its answer. A costly survey
// is not made anew before ten times as long as the last one took has passed.
func (r *Reader) Recount() {
	r.nextDue.expire(0)
	if r.surveyor != nil && r.isCostly() {
		r.counts.expire(10)
		return
	}
	r.counts.expire(0)
}

// Renew makes the next Read count the topics anew if the last count is older than ten seconds and
// ten times as long as it took. It is for somebody who opens a page; a page that refreshes itself
// all day does not call it.
func (r *Reader) Renew() {
	if c := r.counts.await(r.ctx, nil); time.Since(c.read) > max(newEnough, 10*c.took) {
		r.Recount()
	}
}

// Read returns the overview. The counts of a store that makes them in 2 ms are at most a second
// old. Read fails only until the store could be read once; later failures are in Overview.Err,
// beside what was read before. Once there are counts that may be shown, new ones that take longer
// than Options.Patience are in the overview of a later call.
func (r *Reader) Read(ctx context.Context) (*Overview, error) { return r.ReadIn(ctx, r.o.Zone) }

// ReadIn is Read with hours and days that begin as they do in a time zone.
func (r *Reader) ReadIn(ctx context.Context, zone *time.Location) (*Overview, error) {
	patient, cancel := context.WithTimeout(ctx, r.o.Patience)
	defer cancel()
	out, counts, err := r.glance(ctx, patient)
	if err != nil || out.Counting {
		return out, err
	}
	examining, looking := r.examine(), r.lookAtSchedules(out.Topics)
	if len(out.Topics) > 0 && !out.Partial {
		r.addPictures(patient, out, counts, zone)
	}
	found := append(r.examined(patient, examining), schedulesOf(r.stalled.await(patient, looking).value, out.AsOf)...)
	out.Attention = attention(out, found)
	return out, nil
}

// Glance is Read without pictures and findings, for callers that want to know only what is ready
// and for how long.
func (r *Reader) Glance(ctx context.Context) (*Overview, error) {
	patient, cancel := context.WithTimeout(ctx, r.o.Patience)
	defer cancel()
	out, _, err := r.glance(ctx, patient)
	return out, err
}

// glance returns an overview without pictures and findings: of the topics, and of the next due
// times of a surveyor.
func (r *Reader) glance(ctx, patient context.Context) (*Overview, topicCounts, error) {
	running := r.beginNextDue()
	c, err := r.quick(ctx, patient)
	if err != nil {
		return nil, topicCounts{}, err
	}
	h := r.nextDue.await(patient, running)
	if c.read.IsZero() && h.read.IsZero() {
		return &Overview{Counting: true, Inspected: true, Meter: r.o.Meter}, topicCounts{}, nil
	}
	out := &Overview{
		AsOf: c.value.now, Counted: c.value.now, Took: c.took, Err: c.err, Inspected: r.inspector != nil && !c.value.lacking, Topics: c.value.topics,
		Partial: c.read.IsZero(), Meter: r.o.Meter,
	}
	out.addNextDue(h)
	out.add()
	return out, c.value, nil
}

// add adds up the topics.
func (o *Overview) add() {
	for _, t := range o.Topics {
		o.Totals.Scheduled += t.Scheduled
		o.Totals.Ready += t.Ready
		o.Totals.Leased += t.Leased
		o.Totals.Dead += t.Dead
		if late, ok := lateness(t, o.AsOf); ok && !t.Settings.DeliveryPaused && !strings.HasSuffix(t.Topic, storekit.EventSuffix) && (o.Oldest == nil || late > o.Oldest.Late) {
			o.Oldest = &Oldest{Topic: t.Topic, Due: t.NextDue, Late: late}
		}
	}
}

// lateness returns for how long the first ready message of a topic has been ready; ok is false when
// none is, and for the messages that say how far a bulk change is, because nobody claims them.
func lateness(t punctual.TopicStats, now time.Time) (late time.Duration, ok bool) {
	return max(0, now.Sub(t.NextDue)), t.Ready > 0 && !t.NextDue.IsZero() && !strings.HasSuffix(t.Topic, bulk.Suffix)
}
