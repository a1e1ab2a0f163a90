// Package limits has the bounds that every store enforces before it stores anything.
package limits

import "time"

// Limits that every store enforces before it stores anything.
const (
	// MaxTopicBytes and MaxIDBytes are the greatest lengths of a topic's name and of an ID, in
	// bytes.
	MaxTopicBytes = 128
	MaxIDBytes    = 128
	// MaxKeyBytes is the greatest length of a message's key (punctual.NewMessage.Key), in bytes.
	MaxKeyBytes = 128
	// DefaultMaxBody is the greatest length of a body that a store accepts unless it is configured
	// otherwise: 1 MiB.
	DefaultMaxBody = 1 << 20
	// MaxHeaderBytes is the greatest length of all header names and values of a message together,
	// in bytes: 16 KiB.
	MaxHeaderBytes = 16 << 10
	// MaxErrorBytes is the greatest length of Failure.Error, in bytes: 1 KiB.
	MaxErrorBytes = 1 << 10
	// MaxClaim is the most messages that one claim may ask for (Claim.Max).
	MaxClaim = 10_000
	// MaxCompanionBytes is the greatest length of a companion's name behind the "@", in bytes. So
	// the whole name of a companion topic is at most MaxTopicBytes + 1 + MaxCompanionBytes long.
	MaxCompanionBytes = 64
	// MaxThen is the most follow-ups of one settlement (Settlement.Then), and MaxThenBytes the most
	// bytes that their topics, IDs, bodies and headers have together: 8 MiB.
	MaxThen      = 64
	MaxThenBytes = 8 << 20
	// MaxClaimTopics is the most topics that one claim may name. A worker of more topics makes
	// several claims.
	MaxClaimTopics = 1000
	// MaxBatch is the most items of one Push, Settle or Amend.
	MaxBatch = 10_000
	// MaxAttemptsLimit is the greatest value of Settings.MaxAttempts and NewMessage.MaxAttempts.
	MaxAttemptsLimit = 1_000_000
	// MaxGroups is the most groups of a topic (Settings.Groups), and MaxGroupBytes the greatest
	// length of the name of one, in bytes: that of a companion's name less the "g." in front.
	MaxGroups     = 32
	MaxGroupBytes = MaxCompanionBytes - 2
	// MaxPartitions is the most partitions of a topic.
	MaxPartitions = 256
	// MaxLeases is the greatest Settings.MaxLeases and MaxKeyLeases.
	MaxLeases = 1_000_000
	// MinLease and MaxLease are the shortest and the longest lease.
	MinLease = 10 * time.Millisecond
	MaxLease = 24 * time.Hour
	// MaxFinishedRetention is the longest Settings.FinishedRetention and NewMessage.Remember: a
	// leap year. It also bounds Settings.EmitKeep and Settings.LateAfter.
	MaxFinishedRetention = 366 * 24 * time.Hour
	// MaxTimeout is the longest NewMessage.Timeout.
	MaxTimeout = 30 * 24 * time.Hour
)

// MaxDue is the last time at which a message can be due (P9); a later due time is ErrInvalid.
var MaxDue = time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)
