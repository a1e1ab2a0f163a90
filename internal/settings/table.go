package settings

import (
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// Table has one row for each field of punctual.Settings, in the order of the fields, which is also
// their order in JSON. Nothing changes it.
var Table = []*Setting{
	{
		Name: "lease", About: "how long a claim may work before the message is ready again, unless the lease is extended",
		kind: &field[time.Duration]{
			of:   func(s *punctual.Settings) *time.Duration { return &s.Lease },
			in:   func(p *punctual.SettingsPatch) **time.Duration { return &p.Lease },
			form: durations, least: limits.MinLease, most: limits.MaxLease,
		},
	},
	{
		Name: "max_attempts", About: "how many deliveries a message gets before it is dead",
		kind: &field[int]{
			of:   func(s *punctual.Settings) *int { return &s.MaxAttempts },
			in:   func(p *punctual.SettingsPatch) **int { return &p.MaxAttempts },
			form: counts, least: 1, most: limits.MaxAttemptsLimit,
		},
	},
	{
		Name: "backoff", About: "how long a message that failed waits before its next attempt",
		kind: &field[punctual.Backoff]{
			of:   func(s *punctual.Settings) *punctual.Backoff { return &s.Backoff },
			in:   func(p *punctual.SettingsPatch) **punctual.Backoff { return &p.Backoff },
			form: backoffs,
		},
	},
	{
		Name: "dead_retention", About: "how long dead messages are kept", Zero: "until purged",
		kind: &field[time.Duration]{
			of:   func(s *punctual.Settings) *time.Duration { return &s.DeadRetention },
			in:   func(p *punctual.SettingsPatch) **time.Duration { return &p.DeadRetention },
			form: durations,
		},
	},
	{
		Name: "dedupe_window", About: "how long the ID of a finished message counts as a duplicate", Zero: "not at all",
		kind: &field[time.Duration]{
			of:   func(s *punctual.Settings) *time.Duration { return &s.DedupeWindow },
			in:   func(p *punctual.SettingsPatch) **time.Duration { return &p.DedupeWindow },
			form: durations,
		},
	},
	{
		Name: "finished_retention", About: "how long the record of a finished message is kept", Zero: "not at all",
		Quiet: true, Needs: FinishedRecords,
		kind: &field[time.Duration]{
			of:   func(s *punctual.Settings) *time.Duration { return &s.FinishedRetention },
			in:   func(p *punctual.SettingsPatch) **time.Duration { return &p.FinishedRetention },
			form: durations, most: limits.MaxFinishedRetention,
		},
	},
	{
		Name: "emit", About: "of which events of its messages the topic tells in its companion events", Quiet: true, Needs: EventMessages,
		kind: &field[punctual.Events]{
			of:   func(s *punctual.Settings) *punctual.Events { return &s.Emit },
			in:   func(p *punctual.SettingsPatch) **punctual.Events { return &p.Emit },
			form: events,
		},
	},
	{
		Name: "emit_keep", About: "how long an event that no reader has taken is kept", Quiet: true, Needs: EventMessages,
		kind: &field[time.Duration]{
			of:   func(s *punctual.Settings) *time.Duration { return &s.EmitKeep },
			in:   func(p *punctual.SettingsPatch) **time.Duration { return &p.EmitKeep },
			form: durations, least: time.Second, most: limits.MaxFinishedRetention,
		},
	},
	{
		Name: "push_paused", About: "whether pushes are refused", Pause: true,
		kind: &field[bool]{
			of:   func(s *punctual.Settings) *bool { return &s.PushPaused },
			in:   func(p *punctual.SettingsPatch) **bool { return &p.PushPaused },
			form: truths,
		},
	},
	{
		Name: "delivery_paused", About: "whether claims find nothing", Pause: true,
		kind: &field[bool]{
			of:   func(s *punctual.Settings) *bool { return &s.DeliveryPaused },
			in:   func(p *punctual.SettingsPatch) **bool { return &p.DeliveryPaused },
			form: truths,
		},
	},
	{
		Name: "partitions", About: "into how many parts the topic is divided", Fixed: true, Needs: DividedTopics,
		kind: &field[int]{
			of:   func(s *punctual.Settings) *int { return &s.Partitions },
			in:   func(p *punctual.SettingsPatch) **int { return &p.Partitions },
			form: counts, least: 1, most: limits.MaxPartitions,
		},
	},
	{
		Name: "groups", About: "which groups get a copy of each message once it is due", Quiet: true,
		kind: &field[[]string]{
			of:   func(s *punctual.Settings) *[]string { return &s.Groups },
			in:   func(p *punctual.SettingsPatch) **[]string { return &p.Groups },
			form: names,
		},
	},
	{
		Name: "late_after", About: "how long a message may be ready before the topic counts as late", Quiet: true,
		kind: &field[time.Duration]{
			of:   func(s *punctual.Settings) *time.Duration { return &s.LateAfter },
			in:   func(p *punctual.SettingsPatch) **time.Duration { return &p.LateAfter },
			form: durations, least: time.Second, most: limits.MaxFinishedRetention,
		},
	},
	{
		Name: "max_leases", About: "how many messages may be leased at once, over all processes", Zero: "no bound", Quiet: true, Needs: BoundedLeases,
		kind: &field[int]{
			of:   func(s *punctual.Settings) *int { return &s.MaxLeases },
			in:   func(p *punctual.SettingsPatch) **int { return &p.MaxLeases },
			form: counts, most: limits.MaxLeases,
		},
	},
	{
		Name: "max_rate", About: "how many leases may begin in a time, over all processes", Quiet: true, Needs: BoundedLeases,
		kind: &field[limits.Rate]{
			of:   func(s *punctual.Settings) *limits.Rate { return &s.MaxRate },
			in:   func(p *punctual.SettingsPatch) **limits.Rate { return &p.MaxRate },
			form: rates,
		},
	},
	{
		Name: "keyed", About: "whether messages may have keys, which take turns", Fixed: true, Quiet: true, Needs: KeyedTopics,
		kind: &field[bool]{
			of:   func(s *punctual.Settings) *bool { return &s.Keyed },
			in:   func(p *punctual.SettingsPatch) **bool { return &p.Keyed },
			form: truths,
		},
	},
	{
		Name: "max_key_leases", About: "how many messages of one key may be leased at once", Zero: "no bound", Quiet: true, Needs: KeyedTopics,
		kind: &field[int]{
			of:   func(s *punctual.Settings) *int { return &s.MaxKeyLeases },
			in:   func(p *punctual.SettingsPatch) **int { return &p.MaxKeyLeases },
			form: counts, most: limits.MaxLeases,
		},
	},
	{
		Name: "max_key_rate", About: "how many leases of one key may begin in a time", Quiet: true, Needs: KeyedTopics,
		kind: &field[limits.Rate]{
			of:   func(s *punctual.Settings) *limits.Rate { return &s.MaxKeyRate },
			in:   func(p *punctual.SettingsPatch) **limits.Rate { return &p.MaxKeyRate },
			form: rates,
		},
	},
	{
		Name: "in_order", About: "whether the messages of a key are delivered one after the other, in order", Quiet: true, Needs: KeyedTopics,
		kind: &field[bool]{
			of:   func(s *punctual.Settings) *bool { return &s.InOrder },
			in:   func(p *punctual.SettingsPatch) **bool { return &p.InOrder },
			form: truths,
		},
	},
}
