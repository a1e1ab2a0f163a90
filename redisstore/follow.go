package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/record"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/redisstore/internal/topics"
	"github.com/punctualmq/punctual/storekit"
)

// A settlement and its follow-ups are one script (lua/follow.lua), so all that they touch is in one
// hash slot: that of the partition of the settled message. In this slot are the partitions with the
// same number of all topics of a family: of a topic and its companions. An ID with another home is
// not reached, nor is a topic of another family.
//
// A script that finds the topic of a follow-up missing changes nothing for that settlement. The
// store then makes the topic and sends the settlement again, unless the script refuses the
// settlement: because of another follow-up, or because of this one if an empty topic would refuse
// it, too. So a settlement that this script refuses makes no topic.

// Reaches reports whether a follow-up is within reach of a settlement; see storekit.Reacher. The
// answer comes from what this process knows of the topic, so after a deletion the settlement itself
// may be answered otherwise.
func (s *Store) Reaches(ctx context.Context, topic, id string, m *punctual.NewMessage) (bool, error) {
	return call(ctx, s, "reaches", "from "+topic, cmp.Or(storekit.CheckTopic(topic), storekit.CheckID(id)), func() (bool, error) {
		from, _ := storekit.Companion(topic)
		to, _ := storekit.Companion(m.Topic)
		as := cmp.Or(m.ID, m.Key) // in a topic of several partitions an ID that is made up begins with the key
		if from != to || as == "" || storekit.Stem(as) == storekit.Stem(id) {
			return from == to, nil
		}
		l, err := s.topics.Get(ctx, topic)
		if err != nil {
			return false, err
		}
		return l.Size() == 1 || keys.Home(as, l.Size()) == keys.Home(id, l.Size()), nil
	})
}

// The statuses with which lua/follow.lua refuses a settlement because of a follow-up. A status is
// followUp times the number of the follow-up, from 1, plus one of these or one of those of
// push.lua.
const (
	followUp = 16

	followSpace   = 10
	followTopic   = 11
	followVersion = 12
)

// following is what a call of Settle has to know of its follow-ups. A call without any has nil in
// its place.
type following struct {
	s  *Store
	ss []punctual.Settlement
	// layouts has, by topic, the layouts of the topics of settlements with follow-ups, from which
	// the homes of IDs follow.
	layouts map[string]*topics.Layout
	// read has the topics whose layouts this call has read anew because a follow-up was not in
	// reach.
	read map[string]bool
	// ids has, by settlement, the IDs of the follow-ups; those that the caller left out are made
	// up.
	ids map[int][]string
	key *keyed // nil for a call without a key
	// unknown has, for settlements that are to be sent again, the topic that must be looked up
	// before.
	unknown map[int]string
	// refusals counts, by topic, the rounds in which it was looked up.
	refusals map[string]int
}

// followed describes the follow-ups of a chunk of settlements: topics are those beside the topic of
// the settlements, in the order of KEYS, and n is the number of follow-ups. keyed says that these
// topics have keys, as the topic of the settlements.
type followed struct {
	topics []string
	n      int
	keyed  bool
}

// newFollowing returns what is known of the follow-ups of some settlements, or nil if they have
// none, and the items that are to be sent. Settlements whose follow-ups cannot be reached get their
// error in results, and are not among these items.
func (s *Store) newFollowing(ctx context.Context, ss []punctual.Settlement, items []int, results []error, key *keyed) (*following, []int, error) {
	if !slices.ContainsFunc(items, func(i int) bool { return len(ss[i].Then) > 0 }) {
		return nil, items, nil
	}
	f := &following{
		s: s, ss: ss, key: key, layouts: make(map[string]*topics.Layout), read: make(map[string]bool), ids: make(map[int][]string),
		unknown: make(map[int]string), refusals: make(map[string]int),
	}
	left, err := f.prepareAll(ctx, items, results)
	return f, left, err
}

// prepareAll prepares settlements, and returns those that are to be sent. In a call with a key an
// error of one is the error of all, because otherwise a copy of the call might have other items in
// its scripts, and so other records.
func (f *following) prepareAll(ctx context.Context, items []int, results []error) ([]int, error) {
	left := items[:0]
	for _, i := range items {
		unreachable, err := f.prepare(ctx, i)
		if err != nil && f.key != nil {
			return nil, notSent(err)
		}
		if err != nil {
			err = settleError(&f.ss[i], notSent(err))
		}
		if results[i] = cmp.Or(unreachable, err); results[i] == nil {
			left = append(left, i)
		}
	}
	return left, nil
}

// prepare makes up the IDs of follow-ups that are left out, or returns why one of the follow-ups is
// not in reach. The layout that is known of the topic may be out of date, so it is read anew before
// a follow-up is refused.
func (f *following) prepare(ctx context.Context, i int) (unreachable, err error) {
	x := &f.ss[i]
	if len(x.Then) == 0 {
		return nil, nil
	}
	if err := f.s.health.Refusal(); err != nil {
		return nil, err // a follow-up would be no safer than a pushed message (P1)
	}
	if f.layouts[x.Topic] == nil {
		if f.layouts[x.Topic], err = f.s.topics.Get(ctx, x.Topic); err != nil {
			return nil, err
		}
	}
	ids, unreachable := f.reach(i, f.layouts[x.Topic])
	if unreachable != nil && !f.read[x.Topic] {
		if f.layouts[x.Topic], err = f.s.topics.Load(ctx, x.Topic); err != nil {
			return nil, err
		}
		f.read[x.Topic] = true
		ids, unreachable = f.reach(i, f.layouts[x.Topic])
	}
	f.ids[i] = ids
	return unreachable, nil
}

// reach returns the IDs of a settlement's follow-ups, or why one of these is not in reach.
func (f *following) reach(i int, l *topics.Layout) ([]string, error) {
	x := &f.ss[i]
	family, _ := storekit.Companion(x.Topic)
	home, ids := keys.OfToken(x.Token), make([]string, len(x.Then))
	// If the token is from another partition than that of the message, it was never given for the
	// message, and the script will say so.
	sure := l.Exists() && keys.Home(x.ID, l.Size()) == home
	for n := range x.Then {
		m := &x.Then[n]
		if parent, _ := storekit.Companion(m.Topic); parent != family {
			return nil, storekit.FollowUpError(n, fmt.Errorf("%s is neither %s nor a companion of it, and a store in Redis reaches no other topic: %w",
				m.Topic, family, punctual.ErrUnsupported))
		}
		ids[n] = m.ID
		if m.ID == "" {
			ids[n] = f.drawID(i, n, home, l.Size())
		}
		if l.Size() > 1 {
			var err error
			if ids[n], err = stemmed(m, ids[n]); err != nil {
				return nil, storekit.FollowUpError(n, err)
			}
		}
		if sure && keys.Home(ids[n], l.Size()) != home {
			return nil, storekit.FollowUpError(n, fmt.Errorf("%s is in another partition than %s: begin its ID with %s~ to have both in one: %w",
				ids[n], x.ID, storekit.Stem(x.ID), punctual.ErrUnsupported))
		}
	}
	return ids, nil
}

// drawID makes up IDs until one is at home in a partition. In a call with a key they follow from
// the key, so that each copy makes up the same ones.
func (f *following) drawID(i, n, home, size int) string {
	for try := 0; ; try++ {
		id := ""
		if f.key != nil {
			id = storekit.IDOfKey(fmt.Sprintf("%s then %d %d", f.key.Key, i, n), try)
		} else {
			id = storekit.NewID(f.s.clock.Time())
		}
		if home >= size || keys.Home(id, size) == home { // a home beyond the topic is that of no message
			return id
		}
	}
}

// mostTopics is how many topics the follow-ups of several settlements in one script may have beside
// their own, so that the script has no more than some 300 keys, or 480 in topics with keys.
const mostTopics = 36

// fits reports whether a script may have another settlement.
func (f *following) fits(c *route.Chunk[*followed], i int) bool {
	n, names := len(c.Items)+1+len(f.ss[i].Then), []string(nil)
	if c.Note != nil {
		n += c.Note.n
		names = c.Note.topics
	}
	if n > script.Items {
		return false
	}
	added := 0
	for _, topic := range f.others(i) {
		if !slices.Contains(names, topic) {
			added++
		}
	}
	return len(names)+added <= mostTopics
}

// others are the topics of a settlement's follow-ups beside its own, each once.
func (f *following) others(i int) (names []string) {
	for n := range f.ss[i].Then {
		if topic := f.ss[i].Then[n].Topic; topic != f.ss[i].Topic && !slices.Contains(names, topic) {
			names = append(names, topic)
		}
	}
	return names
}

// add notes the follow-ups of a settlement that was added to a chunk.
func (f *following) add(c *route.Chunk[*followed], i int) {
	if len(f.ss[i].Then) == 0 {
		return
	}
	if c.Note == nil {
		c.Note = &followed{}
	}
	c.Note.n += len(f.ss[i].Then)
	for _, topic := range f.others(i) {
		if !slices.Contains(c.Note.topics, topic) {
			c.Note.topics = append(c.Note.topics, topic)
		}
	}
}

// wave returns the first of some items, those that may be sent side by side. The scripts of
// different topics do not wait for each other, so the wave ends before an item that touches a
// message which an earlier item of another topic touches. An example is a discard in orders with
// the follow-up x in orders@bills, and behind it a discard of x itself. The waves follow from the
// content of the call alone, so that a copy of the call has the same waves.
func (f *following) wave(items []int) []int {
	if f == nil { // each script touches only messages of its own topic, and in events only those that no settlement of the call can name
		return items
	}
	type message struct{ topic, id string }
	by := make(map[message]string) // the topic of the items that touch a message
	for n, i := range items {
		x := &f.ss[i]
		touched := []message{{x.Topic, x.ID}}
		for t := range x.Then {
			touched = append(touched, message{x.Then[t].Topic, f.ids[i][t]})
		}
		for _, m := range touched {
			if topic, ok := by[m]; ok && topic != x.Topic {
				return items[:n]
			}
		}
		for _, m := range touched {
			by[m] = x.Topic
		}
	}
	return items
}

// pack makes the arguments of follow.lua.
func (f *following) pack(c *route.Chunk[*followed]) []any {
	l := f.layouts[c.Partition.Topic]
	args := []any{len(c.Note.topics), l.Version, nil}
	if c.Note.keyed = l.Settings().Keyed; c.Note.keyed {
		args[0] = -len(c.Note.topics)
	}
	values, all := 0, 0
	for _, i := range c.Items {
		if then := f.ss[i].Then; len(then) > 0 {
			values += 2 + 4*len(then)
			for n := range then {
				all += restBytes(&then[n])
			}
		}
	}
	b, rest := record.PackArray(nil, values), make([]byte, 0, all)
	for place, i := range c.Items {
		x := &f.ss[i]
		if len(x.Then) == 0 {
			continue
		}
		b = record.PackNumber(record.PackNumber(b, float64(place)), float64(len(x.Then)))
		for n := range x.Then {
			m := &x.Then[n]
			// The place of the topic among those beside, from 1; 0 for that of the settlement,
			// which is not among them.
			b = record.PackNumber(b, float64(1+slices.Index(c.Note.topics, m.Topic)))
			b = packMessage(b, m, f.ids[i][n], m.ID == "" && f.key == nil)
			begin := len(rest)
			rest = appendRest(rest, m)
			args = append(args, rest[begin:])
		}
	}
	args[2] = b
	return args
}

// partitions are those of the other topics of a chunk's follow-ups, in the order of KEYS.
func (f *following) partitions(c *route.Chunk[*followed]) (out []keys.Partition) {
	for _, topic := range c.Note.topics {
		out = append(out, f.s.names.Partition(topic, c.Partition.Number))
	}
	return out
}

// thenBytes returns what the follow-ups of a settlement count against the limit of a script.
func thenBytes(x *punctual.Settlement) (n int) {
	for i := range x.Then {
		n += restBytes(&x.Then[i])
	}
	return n
}

// refused returns the error of a settlement that was not done because of a follow-up. It returns
// nil if the settlement is to be sent again once a topic has been looked up.
func (f *following) refused(i int, status, due, state int64) error {
	x, n := &f.ss[i], int(status/followUp)-1
	if n >= len(x.Then) {
		return settleError(x, script.BadReply(script.Settle))
	}
	m := &x.Then[n]
	switch status % followUp {
	case followTopic:
		f.unknown[i] = m.Topic
		return nil
	case followVersion:
		f.unknown[i] = x.Topic
		return nil
	case followSpace:
		return storekit.FollowUpError(n, fmt.Errorf("the server has reached maxmemory and stores no follow-up: %w", punctual.ErrNoSpace))
	}
	return storekit.FollowUpError(n, refusedPush(m, f.ids[i][n], status%followUp, due, state))
}

// toLookUp adds to seen what must be looked up before a settlement is sent again: its own topic, if
// that has another version, or all topics of its follow-ups that are not there. others has the
// versions of these topics, which are the present ones also in an answer that is given again.
func (f *following) toLookUp(i int, own mismatch, others, seen map[string]mismatch) {
	if f == nil || f.unknown[i] == "" { // the settlement is left for another reason
		return
	}
	if f.unknown[i] == f.ss[i].Topic {
		seen[f.ss[i].Topic] = own
		return
	}
	for _, topic := range f.others(i) {
		if x := others[topic]; x.seen <= 0 {
			seen[topic] = x
		}
	}
}

// again looks up the topics that partitions did not know, or knew in another version than this
// process, and returns which of the settlements that were left are to be sent again. seen has the
// version that the partition of such a topic had.
func (f *following) again(ctx context.Context, left []int, seen map[string]mismatch, results []error) []int {
	if len(seen) == 0 { // always so where f is nil
		return left
	}
	errs := f.lookUp(ctx, seen)
	items := left[:0]
	for _, i := range left {
		if err := f.failed(i, errs); err != nil {
			results[i] = settleError(&f.ss[i], notSent(err))
			continue
		}
		items = append(items, i)
	}
	clear(f.unknown)
	items, err := f.prepareAll(ctx, items, results)
	if err != nil {
		for _, i := range left {
			if results[i] == nil {
				results[i] = settleError(&f.ss[i], err)
			}
		}
	}
	return items
}

// failed returns why a topic of a settlement that waits for a lookup could not be looked up, or
// nil.
func (f *following) failed(i int, errs map[string]error) error {
	if f.unknown[i] == "" {
		return nil
	}
	all := errs[f.ss[i].Topic]
	for _, topic := range f.others(i) {
		all = cmp.Or(all, errs[topic])
	}
	return all
}

// lookUp looks topics up, and makes those that are not there. It returns the errors of those for
// which that failed.
func (f *following) lookUp(ctx context.Context, seen map[string]mismatch) map[string]error {
	old, refusals := make(map[string]*topics.Layout), make(map[string]int) // for a lookup that Each does not wait for
	for topic := range seen {
		f.refusals[topic]++
		refusals[topic] = f.refusals[topic]
		if old[topic] = f.layouts[topic]; old[topic] == nil {
			old[topic] = f.s.topics.Known(topic)
		}
	}
	layouts, errs := route.Each(ctx, f.s.route, slices.Collect(maps.Keys(seen)), func(topic string) (*topics.Layout, error) {
		if _, err := f.s.renew(ctx, seen[topic], old[topic], true, refusals[topic]); err != nil {
			return nil, err
		}
		if l := f.s.topics.Known(topic); l.Exists() {
			return l, nil
		}
		return f.s.topics.Present(ctx, topic, false)
	})
	for topic, l := range layouts {
		if f.layouts[topic] != nil && errs[topic] == nil {
			f.layouts[topic] = l
		}
	}
	return errs
}

// notSent returns the error of a call, or of one of its settlements, that was not sent because a
// lookup of a topic of its follow-ups failed with err.
func notSent(err error) error {
	return route.Unsent("a topic of its follow-ups could not be looked up", err)
}

// makeEvents makes the companion for the events of p's topic, after a script in partition p had an
// event to add and found no companion there. seen is the version that the script saw. makeEvents
// may wait a little, because somebody may be deleting the companion.
func (s *Store) makeEvents(ctx context.Context, p keys.Partition, seen int64, tries int) error {
	topic := storekit.EventTopic(p.Topic)
	x := mismatch{s.names.Partition(topic, p.Number), seen}
	_, err := s.renew(ctx, x, s.topics.Known(topic), true, tries)
	if err == nil && !s.topics.Known(topic).Exists() {
		_, err = s.topics.Present(ctx, topic, false)
	}
	if err != nil {
		return route.Unsent(topic+", where its events are stored, could not be looked up", err)
	}
	return nil
}
