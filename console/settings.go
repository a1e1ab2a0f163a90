package console

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/internal/settings"
	"github.com/punctualmq/punctual/storekit"
)

// settingsPage has the settings of a topic, its groups, and the forms that remove messages.
type settingsPage struct {
	*topicView
	Fields []settingField
	// NoFinished is true if the store keeps no finished records.
	NoFinished bool
	// MayGroup is true if the topic can have groups: the store has follow-ups, and the topic is no
	// companion.
	MayGroup bool
	States   []stateTab
}

// settingField is one setting in the form of a topic.
type settingField struct {
	// Name is the name of the form's field, and a part of the keys of its texts. Value is written
	// as people write it, such as 30s. Was is the value that the field had when the page was made
	// for the first time.
	Name, Value, Was string
	// Wrong says what is wrong with Value in a form that was refused, "" if nothing is.
	Wrong string
	// Fixed settings are shown and cannot be changed.
	Fixed bool
	// Boxes are the possible values of a setting that is a set of names; nil for any other setting.
	Boxes []choice
}

func (c *call) showSettings() error {
	v, err := c.topicView("settings", "settings")
	if err != nil {
		return err
	}
	can, err := c.abilities()
	if err != nil {
		return err
	}
	p := &settingsPage{topicView: v, Fields: c.settingFields(v.Stats.Topic, v.settings, can), NoFinished: c.keeper() == nil}
	p.MayGroup = v.Parent == "" && can.Follow != storekit.ReachNone
	p.States = c.stateTabs(v.frame, v.Stats.TopicStats, punctual.StateNone)
	return c.show("settings", p)
}

// settingFields returns the fields of the settings form. It leaves out the pauses, which have
// buttons, and the groups, which have forms of their own. It also leaves out settings that the
// store cannot have, or that a companion takes from its topic. After a form that was refused, the
// fields that differ in it keep what was typed.
func (c *call) settingFields(topic string, s punctual.Settings, can storekit.Abilities) (fields []settingField) {
	for _, row := range settings.Table {
		var same punctual.SettingsPatch
		row.Take(&same, &s)
		if row.Pause || row.Name == "groups" || !c.canHave(row, &s, can) || storekit.CheckCompanionPatch(topic, &same) != nil {
			continue
		}
		f := settingField{Name: row.Name, Value: row.Text(&s), Was: row.Text(&s), Fixed: row.Fixed}
		if text, changed := c.typedSetting(row); changed && c.problem != nil {
			f.Value, f.Was, f.Wrong = text, c.get("was_"+row.Name), problemOfSetting(row, s, text)
		}
		if row.Kind() == settings.Events {
			f.Boxes = c.choices("happened.", strings.Split(event.All.String(), ","), strings.Split(f.Value, ",")...)
		}
		fields = append(fields, f)
	}
	return fields
}

// problemOfSetting returns what is wrong with a text as the value of a setting in s, or "".
func problemOfSetting(row *settings.Setting, s punctual.Settings, text string) string {
	var p punctual.SettingsPatch
	err := row.Parse(&p, text)
	if err == nil {
		row.Apply(&s, &p)
		err = row.Check(&s)
	}
	if err != nil {
		return visible(err.Error())
	}
	return ""
}

// canHave reports whether the store can do what a setting needs, such as keeping finished records,
// and whether the topic has keys if the setting is about them. s are the settings of the topic.
func (c *call) canHave(row *settings.Setting, s *punctual.Settings, can storekit.Abilities) bool {
	switch row.Needs {
	case settings.FinishedRecords:
		return c.keeper() != nil
	case settings.EventMessages:
		return can.Emit
	case settings.BoundedLeases:
		return can.BoundsLeases
	case settings.KeyedTopics:
		return can.Keys && (row.Fixed || s.Keyed)
	}
	return true
}

// configureTopic changes those settings of the form that differ from what the page showed.
func (c *call) configureTopic() error {
	topic := c.path["topic"]
	var p punctual.SettingsPatch
	changed, err := c.readSettings(&p)
	if err != nil {
		return err
	}
	if len(changed) == 0 {
		return c.redirect(c.frame("").TopicPath(topic, "settings"), notice{Key: "notice.unchanged", Args: []string{topic}})
	}
	return c.configure(topic, p, strings.Join(changed, ", "), c.frame("").TopicPath(topic, "settings"), notice{Key: "notice.configured", Args: []string{topic}})
}

// configure changes the settings of a topic, enters the change into the audit log, and redirects to
// the path to with the notice.
func (c *call) configure(topic string, p punctual.SettingsPatch, detail, to string, n notice) (err error) {
	_, err = c.record(audit.Change{Verb: "configure", Topic: topic, Detail: detail}, func(ctx context.Context) (int64, error) {
		if _, err := c.inspector.Configure(ctx, topic, p); err != nil {
			return 0, err
		}
		return 1, nil
	})
	if err != nil {
		return fmt.Errorf("change the settings of %s: %w", topic, err)
	}
	return c.redirect(to, n)
}

// readSettings fills the patch with the fields that differ from what the page showed, and returns
// them as name=value. So a setting that somebody has changed elsewhere since the page was made is
// not set back. A field that was emptied is refused, so that it is not taken for 0.
func (c *call) readSettings(p *punctual.SettingsPatch) (changed []string, err error) {
	for _, row := range settings.Table {
		text, differs := c.typedSetting(row)
		if !differs {
			continue
		}
		if err := row.Parse(p, text); err != nil {
			return nil, err
		}
		changed = append(changed, row.Name+"="+text)
	}
	return changed, nil
}

// typedSetting returns what the form has for a setting. differs is true if the form may change the
// setting, and has another value than the page showed.
func (c *call) typedSetting(row *settings.Setting) (text string, differs bool) {
	text, sent := c.get(row.Name), c.form.Has(row.Name)
	if row.Kind() == settings.Events { // it has boxes, of which a browser sends only those that are ticked
		sent = sent || c.form.Has("was_"+row.Name)
		text = eventsText(c.form[row.Name])
	}
	return text, sent && !row.Pause && !row.Fixed && text != c.get("was_"+row.Name)
}

// eventsText writes the events of a form's ticked boxes as the text of the setting, such as
// "acked,dead" or "none". It returns names that are no events unchanged, so that they are refused
// later.
func eventsText(ticked []string) string {
	if len(ticked) == 0 {
		return "none"
	}
	text := strings.Join(ticked, ",")
	if events, err := punctual.ParseEvents(text); err == nil {
		return events.String()
	}
	return text
}

// changeGroups adds a group to a topic, or removes one, as the form says.
func (c *call) changeGroups() error {
	topic, name := c.path["topic"], c.get("group")
	s, err := c.inspector.Settings(c.r.Context(), topic)
	if err != nil {
		return fmt.Errorf("read the settings of %s: %w", topic, err)
	}
	at := slices.Index(s.Groups, name)
	groups, key := slices.Clone(s.Groups), "notice.group."+c.get("do")
	switch do := c.get("do"); {
	case do == "add" && at >= 0, do == "remove" && at < 0:
		return c.redirect(c.frame("").TopicPath(topic, "settings"), notice{Key: "notice.unchanged", Args: []string{topic}})
	case do == "add":
		groups = append(groups, name)
	case do == "remove":
		groups = slices.Delete(groups, at, at+1)
	default:
		return fmt.Errorf("change %q of a group: use add or remove: %w", do, punctual.ErrInvalid)
	}
	to := c.frame("").TopicPath(topic, "settings") + "#groups"
	return c.configure(topic, punctual.SettingsPatch{Groups: &groups, If: &punctual.SettingsPatch{Groups: &s.Groups}}, c.get("do")+" group "+name, to, notice{Key: key, Args: []string{name}})
}

// stateTabs returns the tabs of the states of a topic. The tab of the state chosen is marked;
// punctual.StateNone marks none.
func (c *call) stateTabs(f *frame, stats punctual.TopicStats, chosen punctual.State) (tabs []stateTab) {
	for _, s := range []punctual.State{punctual.StateScheduled, punctual.StateReady, punctual.StateLeased, punctual.StateDead} {
		q := url.Values{"state": {s.String()}}
		tabs = append(tabs, stateTab{State: s.String(), Count: countOf(stats, s), Path: f.TopicPath(stats.Topic) + "?" + q.Encode(), Chosen: s == chosen})
	}
	return tabs
}
