package storekit

import (
	"bytes"
	"fmt"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/settings"
	"github.com/punctualmq/punctual/limits"
)

// CanSet are the things that not every store can do and that a setting may need.
type CanSet struct {
	// Partitions is the most partitions of a topic in the store, 1 if it cannot divide topics.
	// ApplySettings does not know whether the topic exists, so a store that can divide topics has
	// to refuse other partitions for a topic that exists.
	Partitions int
	// KeepsFinished tells that the store is a punctual.FinishedKeeper.
	KeepsFinished bool
	// Emits is Abilities.Emit.
	Emits bool
	// BoundsLeases is Abilities.BoundsLeases, and Keys is Abilities.Keys.
	BoundsLeases, Keys bool
}

// AllAbilities returns the abilities of a store that can do everything. With them ApplySettings
// checks settings before it is known which store they are for.
func AllAbilities() CanSet {
	return CanSet{Partitions: limits.MaxPartitions, KeepsFinished: true, Emits: true, BoundsLeases: true, Keys: true}
}

// ApplySettings returns s with the patch p applied. A value that is not allowed is an ErrInvalid
// that names the setting and says which values are. A setting that a store with the abilities can
// cannot have is an ErrUnsupported. If s has another setting than p.If says it is an ErrChanged.
func ApplySettings(s punctual.Settings, p punctual.SettingsPatch, can CanSet) (punctual.Settings, error) {
	was := s
	for _, row := range settings.Table {
		row.Apply(&s, &p)
	}
	if err := checkSettings(&s); err != nil {
		return s, err
	}
	for _, row := range settings.Table {
		if lack := can.lack(row, &s); lack != "" {
			return s, Errorf(punctual.ErrUnsupported, "%s %s: %s", row.Words(), row.Text(&s), lack)
		}
	}
	if p.If == nil {
		return s, nil
	}
	is := was
	for _, row := range settings.Table {
		if row.Apply(&is, p.If); !bytes.Equal(row.JSON(&is), row.JSON(&was)) {
			return s, Errorf(punctual.ErrChanged, "%s is %s by now", row.Words(), row.Text(&was))
		}
	}
	return s, nil
}

// lack returns why a store with these abilities cannot have the setting as it is in s, or "".
func (a CanSet) lack(row *settings.Setting, s *punctual.Settings) string {
	switch {
	case row.Needs == settings.DividedTopics && s.Partitions > a.Partitions:
		return fmt.Sprintf("this store divides a topic into at most %d", a.Partitions)
	case row.Needs == settings.FinishedRecords && !a.KeepsFinished && !row.IsDefault(s):
		return "this store keeps no finished messages"
	case row.Needs == settings.EventMessages && !a.Emits && !row.IsDefault(s):
		return "this store tells of no events"
	case row.Needs == settings.BoundedLeases && !a.BoundsLeases && !row.IsDefault(s):
		return "this store cannot bound how many messages are leased"
	case row.Needs == settings.KeyedTopics && !a.Keys && !row.IsDefault(s):
		return "this store has no messages with keys"
	}
	return ""
}

func checkSettings(s *punctual.Settings) error {
	for _, row := range settings.Table {
		if err := row.Check(s); err != nil {
			return err
		}
	}
	return nil
}
