package console

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/storekit"
)

// topicView is what the pages of a topic share: the counts of the topic, the tabs that lead to
// these pages, and the tabs of its groups.
type topicView struct {
	*frame
	Stats topicRow
	// Parent is the topic that this topic is a companion of, or "".
	Parent string
	// Tabs lead to the pages of the topic, Groups to the topic and to each of its groups. Groups is
	// nil if the topic has no groups.
	Tabs   []choice
	Groups []groupTab
	// companions are the names of the companions that exist: those of this topic, or of Parent if
	// that is set.
	companions []string
	settings   punctual.Settings
}

// groupTab is the tab of a topic or of one of its groups.
type groupTab struct {
	// Name is the name of the group, "" for the topic itself.
	Name, Path string
	// Live and Dead are numbers of messages. Counted is false while the store has not counted them.
	Live, Dead int64
	Counted    bool
	Paused     bool
	// Removed marks a group that the settings no longer name, so that it gets no more copies. Its
	// topic still exists.
	Removed bool
	Chosen  bool
}

// topicView reads what the pages of a topic share. tab is the name of the page's tab, such as
// "messages".
func (c *call) topicView(page, tab string) (*topicView, error) {
	topic := c.path["topic"]
	v := &topicView{frame: c.frame(page)}
	v.Subject = topic
	var err error
	if v.Now, err = c.now(); err != nil {
		return nil, err
	}
	c.renew()
	stats, counts, err := c.console.reader.Stats(c.r.Context(), topic)
	if err != nil {
		return nil, fmt.Errorf("count topic %s: %w", topic, err)
	}
	if !counts.AsOf.IsZero() {
		v.noteCounts(counts.AsOf, counts.Counted, counts.Partial)
	}
	v.Stats, v.settings = rowOf(stats, v.Now), stats.Settings
	family, companion := storekit.Companion(topic)
	if companion != "" {
		v.Parent = family
	}
	if v.companions, err = c.companionsOf(family); err != nil {
		return nil, err
	}
	for _, t := range []string{"messages", "schedules", "finished", "events", "consumers", "settings"} {
		if companion != "" && (t == "schedules" || t == "events") {
			continue
		}
		path := v.TopicPath(topic, t)
		if t == "messages" {
			path = v.TopicPath(topic)
		}
		v.Tabs = append(v.Tabs, choice{Value: path, Text: c.look.language.text("topic.tab." + t), Chosen: t == tab})
	}
	if companion == "" || storekit.IsGroup(companion) {
		err = c.addGroups(v, family)
	}
	return v, err
}

// has reports whether the topic of the page has the companion with this suffix, such as
// storekit.EventSuffix.
func (v *topicView) has(suffix string) bool {
	return slices.Contains(v.companions, v.Stats.Topic+suffix)
}

// ByKey reports whether messages of the topic can be selected by their key.
func (v *topicView) ByKey() bool { return v.settings.Keyed }

// companionsOf returns the names of the companions of a topic that exist. For a store that cannot
// name its topics without counting them, the names come from the counts of all topics.
func (c *call) companionsOf(topic string) ([]string, error) {
	if namer := c.console.namer; namer != nil {
		names, err := namer.TopicNames(c.r.Context(), storekit.NameQuery{Prefix: topic + "@"})
		if !errors.Is(err, punctual.ErrUnsupported) {
			return names, err
		}
	}
	all, err := c.counted()
	var names []string
	for _, t := range all.Topics {
		if strings.HasPrefix(t.Topic, topic+"@") {
			names = append(names, t.Topic)
		}
	}
	return names, err
}

// counted returns the counts of all topics. Where counting takes the store long, they may be as old
// as overview.Reader.Topics says.
func (c *call) counted() (overview.Counts, error) {
	all, err := c.console.reader.Topics(c.r.Context())
	if err != nil {
		return all, fmt.Errorf("count the topics: %w", err)
	}
	return all, nil
}

// addGroups adds the tabs of the topic and of its groups, also of groups that were removed and
// still have a topic. It adds none if there are no groups.
func (c *call) addGroups(v *topicView, topic string) error {
	groups := v.settings.Groups
	if v.Parent != "" {
		s, err := c.console.inspector.Settings(c.r.Context(), topic)
		if err != nil {
			return fmt.Errorf("read the settings of %s: %w", topic, err)
		}
		groups = s.Groups
	}
	names := slices.Clone(groups)
	for _, t := range v.companions {
		if name, ok := strings.CutPrefix(t, punctual.GroupTopic(topic, "")); ok && !slices.Contains(groups, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	all, err := c.counted()
	if err != nil {
		return err
	}
	for _, name := range append([]string{""}, names...) {
		of := topic
		if name != "" {
			of = punctual.GroupTopic(topic, name)
		}
		tab := groupTab{Name: name, Path: v.TopicPath(of), Chosen: of == v.Stats.Topic, Removed: name != "" && !slices.Contains(groups, name)}
		if i := slices.IndexFunc(all.Topics, func(s punctual.TopicStats) bool { return s.Topic == of }); i >= 0 {
			s := all.Topics[i]
			tab.Live, tab.Dead, tab.Paused, tab.Counted = s.Live(), s.Dead, s.Settings.DeliveryPaused, !all.Partial
		}
		v.Groups = append(v.Groups, tab)
	}
	return nil
}

// abilities returns what the store can do. A store that does not tell, or whose server is too old
// to tell, counts as having no abilities.
func (c *call) abilities() (storekit.Abilities, error) {
	if c.console.abilities == nil {
		return storekit.Abilities{}, nil
	}
	can, err := c.console.abilities.Abilities(c.r.Context())
	if errors.Is(err, punctual.ErrUnsupported) {
		return storekit.Abilities{}, nil
	}
	if err != nil {
		return can, fmt.Errorf("ask what the store can do: %w", err)
	}
	return can, nil
}
