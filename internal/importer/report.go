package importer

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// Report has what a survey found or what a run did. As JSON it is what "punctual import --json"
// prints.
type Report struct {
	Kind Kind `json:"kind"`
	// DryRun is whether this is the report of a survey.
	DryRun bool `json:"dry_run"`
	// Unit is what the scores, or a due column of numbers, count, "s" or "ms", as far as that is
	// known; Guessed is whether that was guessed from them (ZSet, Postgres).
	Unit    string       `json:"unit,omitempty"`
	Guessed bool         `json:"unit_guessed,omitzero"`
	Sets    []*SetReport `json:"sets"`
	// Remembered has the topics whose duplicate window (punctual.Settings.DedupeWindow) was made
	// longer.
	Remembered []Remembered `json:"remembered,omitempty"`
	// Unfinished is how many messages are still in staging because a push or the putting back
	// failed, or because they should go back and a new task or row has their place, or the source
	// is RabbitMQ. The next run goes on with them.
	Unfinished int64 `json:"unfinished"`
}

// Remembered is a topic whose duplicate window was made longer, from Was to Now.
type Remembered struct {
	Topic string `json:"topic"`
	Was   string `json:"was"`
	Now   string `json:"now"`
}

// SetReport is the part of a Report about one sorted set or table, or one part of it.
type SetReport struct {
	Name string `json:"name"`
	Part string `json:"part,omitempty"`
	Key  string `json:"key"`
	// Topic is empty when the messages' types decide; see Topics.
	Topic string `json:"topic,omitempty"`
	// Found is how many members there were at the beginning, Staged how many earlier runs had
	// left in staging.
	Found  int64 `json:"found"`
	Staged int64 `json:"staged"`
	// Rejected counts, by reason, the messages that cannot be imported and were left in the other
	// system or in staging.
	Rejected map[Reason]int64 `json:"rejected"`
	// Left is how many messages were left to the consumers of the other system because they are due
	// or nearly due.
	Left int64 `json:"left"`
	// Renamed has, by their IDs here, the own IDs of messages that cannot keep those.
	Renamed map[string]string `json:"renamed,omitempty"`
	// Changed says what messages have in the other system and not here, and how many have it.
	Changed map[string]int64 `json:"changed,omitempty"`

	Surveyed `json:"survey,omitzero"`
	Moved    `json:"moved,omitzero"`

	Samples []punctual.NewMessage `json:"-"` // the first messages that Survey found
}

// Surveyed is what Survey found to import. Of the messages that can be imported Overdue were due
// already. Topics counts them by topic. Notes has what else people should know before they import.
type Surveyed struct {
	Importable int64            `json:"importable"`
	Overdue    int64            `json:"overdue"`
	FirstDue   wire.Time        `json:"first_due,omitzero"`
	LastDue    wire.Time        `json:"last_due,omitzero"`
	Topics     map[string]int64 `json:"topics"`
	Notes      []string         `json:"notes,omitempty"`
}

// Moved is what Move did with the messages of a set.
type Moved struct {
	// Stored is how many this run stored, Duplicates how many it found stored already, perhaps by a
	// push of its own whose answer was lost.
	Stored     int64 `json:"stored"`
	Duplicates int64 `json:"duplicates"`
	// Gone is how many messages somebody else took after this run had read them and before it could
	// take them.
	Gone int64 `json:"gone"`
	// Held is how many messages the last reading left because somebody works on them or has changed
	// them, or because their place in staging is taken.
	Held int64 `json:"held,omitzero"`
	// Returned counts the messages that were put back, because they could not be stored or because
	// of ReturnUncertain. Dropped counts those that were removed because of DropUncertain.
	Returned int64 `json:"returned"`
	Dropped  int64 `json:"dropped"`
	// Remaining is how many members there were at the end, StillStaged how many in staging.
	Remaining   int64 `json:"remaining"`
	StillStaged int64 `json:"still_staged"`

	ran bool // so that the Moved of a run is not zero, and its zeros are printed
}

func (im *Importer) newReport() *Report {
	return &Report{Kind: im.opt.Kind, Unit: unitWord(im.opt.Unit), Sets: []*SetReport{}}
}

// unitWord is the word for a unit of scores: "s", "ms", or "" for none.
func unitWord(unit time.Duration) string {
	return map[time.Duration]string{time.Second: "s", time.Millisecond: "ms"}[unit]
}

// guess sets the unit by how many of the due times that stand in from are plausible in each one.
func (r *Report) guess(o *Options, from string, inSeconds, inMillis int64) error {
	switch {
	case inSeconds > 0 && inMillis > 0:
		return storekit.Invalidf("%d due times in %s look like seconds and %d like milliseconds: say which is right with --unit, and the others are left where they are", inSeconds, from, inMillis)
	case inSeconds > 0:
		o.Unit = time.Second
	case inMillis > 0:
		o.Unit = time.Millisecond
	default:
		return storekit.Invalidf("%s has no due time that looks like seconds or milliseconds: is it empty, or another database? Or say what they count with --unit", from)
	}
	r.Unit, r.Guessed = unitWord(o.Unit), true
	return nil
}

// Rejects returns how many messages cannot be imported and were left in the other system or in
// staging.
func (r *Report) Rejects() int64 {
	var n int64
	for _, s := range r.Sets {
		for _, m := range s.Rejected {
			n += m
		}
	}
	return n
}

// rename notes the own ID of a message that has another one here.
func (r *SetReport) rename(e *entry) {
	if e.own == "" || e.message.ID == e.own {
		return
	}
	if r.Renamed == nil {
		r.Renamed = map[string]string{}
	}
	r.Renamed[e.message.ID] = e.own
}

// change notes what the message has in the other system and not here.
func (r *SetReport) change(e *entry) {
	for _, what := range e.changes {
		if r.Changed == nil {
			r.Changed = map[string]int64{}
		}
		r.Changed[what]++
	}
}

// Changed returns how often a message has another ID than it had, or not what it had.
func (r *Report) Changed() int64 {
	return r.Add(func(s *SetReport) int64 {
		n := int64(len(s.Renamed))
		for _, changed := range s.Changed {
			n += changed
		}
		return n
	})
}

// Add returns the sum over all sets of a count of theirs: of Found, for example.
func (r *Report) Add(what func(*SetReport) int64) int64 {
	var n int64
	for _, s := range r.Sets {
		n += what(s)
	}
	return n
}

func newSetReport(s *source) *SetReport {
	return &SetReport{Name: s.name, Part: s.part, Key: s.set, Topic: s.topic, Rejected: map[Reason]int64{}}
}

// reject counts a message that is not imported, and calls Options.Rejected. A second call for the
// same message does nothing.
func (im *Importer) reject(s *source, r *SetReport, e *entry, p *problem) error {
	key := s.identity(e)
	if im.seen[key] {
		return nil
	}
	im.seen[key] = true
	r.Rejected[p.reason]++
	return im.opt.Rejected(Reject{Set: s.set, Member: e.member, Score: e.score, Reason: p.reason, Text: p.text})
}

// identity returns a short name of an entry, made from its set, its score and its member.
func (s *source) identity(e *entry) string {
	sum := sha256.Sum256([]byte(s.set + "\x00" + formatScore(e.score) + "\x00" + e.member))
	return string(sum[:16])
}

// samples is how many messages of each set a survey shows at most.
const samples = 3

// Survey reads the messages of the sources and returns what a run would find to import there. It
// only counts what is in staging, and changes nothing.
func (im *Importer) Survey(ctx context.Context) (*Report, error) {
	r := im.newReport()
	r.DryRun = true
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
		sr.Topics = map[string]int64{}
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
			s.decode(e, now)
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
	r.rename(e)
	r.Topics[m.Topic]++
	if m.Due.Before(now) {
		r.Overdue++
	}
	r.change(e)
	if r.Importable == 1 || m.Due.Before(time.Time(r.FirstDue)) {
		r.FirstDue = wire.Time(m.Due)
	}
	if m.Due.After(time.Time(r.LastDue)) {
		r.LastDue = wire.Time(m.Due)
	}
	if len(r.Samples) < samples {
		r.Samples = append(r.Samples, m)
	}
}
