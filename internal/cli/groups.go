package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// What commands say and do about the groups of a topic.

// allGroups, in place of the name of a group, stands for the topic itself and all its groups.
const allGroups = "all"

// checkGroupFlag refuses --group beside a topic that is a companion, and a name that a group cannot
// have.
func checkGroupFlag(topics []string, group string) error {
	for _, topic := range topics {
		if strings.Contains(topic, "@") {
			return usagef("topic %q and --group: name the topic that the group belongs to", topic)
		}
	}
	_, err := storekit.ApplySettings(punctual.DefaultSettings(), punctual.SettingsPatch{Groups: &[]string{group}}, storekit.AllAbilities())
	if err != nil {
		return usagef("--group %q: %v", group, err)
	}
	return nil
}

// checkGroup refuses to consume a topic whose messages are for its groups, and a group that the
// topic does not have.
func (f *consumeFlags) checkGroup(ctx context.Context, s punctual.Store, topics []string) error {
	i, err := punctual.As[punctual.Inspector](s)
	if err != nil {
		return nil // a store without settings has no groups
	}
	for _, topic := range topics {
		parent, companion := storekit.Companion(topic)
		if companion != "" && f.group == "" {
			continue
		}
		set, err := i.Settings(ctx, parent)
		switch {
		case errors.Is(err, punctual.ErrForbidden): // who may consume need not be allowed to inspect
		case ctx.Err() != nil: // the run ends before it begins
			return nil
		case err != nil:
			return err
		case f.group != "" && !slices.Contains(set.Groups, f.group):
			return usagef("topic %q has no group %q, but %s: 'punctual topic set %s --groups' sets them", parent, f.group, groupNames(set.Groups), parent)
		case f.group == "" && len(set.Groups) > 0:
			return usagef("topic %q has the groups %s, and its messages are for them: name one with --group", topic, groupNames(set.Groups))
		}
	}
	return nil
}

func groupNames(groups []string) string {
	if len(groups) == 0 {
		return "none"
	}
	return strings.Join(groups, ", ")
}

// withParents returns the topics and those that they are companions of.
func withParents(topics []string) []string {
	all := slices.Clone(topics)
	for _, topic := range topics {
		if parent, companion := storekit.Companion(topic); companion != "" {
			all = append(all, parent)
		}
	}
	return withoutRepeats(all)
}

// groupTopics returns the topic, and behind it the topics of all groups that it has. If the store
// can name its topics, those of groups that the topic had before are among them.
func groupTopics(ctx context.Context, i punctual.Inspector, s punctual.Store, topic string) ([]string, error) {
	set, err := i.Settings(ctx, topic)
	if err != nil {
		return nil, err
	}
	all := []string{topic}
	for _, group := range set.Groups {
		all = append(all, punctual.GroupTopic(topic, group))
	}
	namer, err := punctual.As[storekit.TopicNamer](s)
	if err != nil {
		return all, nil
	}
	names, err := namer.TopicNames(ctx, storekit.NameQuery{Prefix: punctual.GroupTopic(topic, "")})
	if err != nil {
		return nil, fmt.Errorf("groups of %s: %w", topic, err)
	}
	return withoutRepeats(append(all, names...)), nil
}
