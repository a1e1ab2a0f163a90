package punctual

import "time"

// Limits that every store enforces before it stores anything.
const (
	// MaxTopicBytes and MaxIDBytes bound names.
	MaxTopicBytes = 128
	MaxIDBytes    = 128
	// DefaultMaxBody is the body size that stores accept unless configured otherwise.
	DefaultMaxBody = 1 << 20
	// MaxHeaderBytes bounds the sum of all header names and values.
	MaxHeaderBytes = 16 << 10
	// MaxErrorBytes bounds the text of one Failure.
	MaxErrorBytes = 1 << 10
	// MaxClaim bounds Claim.Max.
	MaxClaim = 10_000
	// MaxClaimTopics bounds the names in Claim.Topics. A worker of more topics makes several claims.
	MaxClaimTopics = 1000
	// MaxBatch bounds the items of one Push, Settle or Amend.
	MaxBatch = 10_000
	// MaxAttemptsLimit bounds MaxAttempts.
	MaxAttemptsLimit = 1_000_000
	// MaxPartitions bounds the partitions of a topic.
	MaxPartitions = 256
	// MinLease and MaxLease bound the length of a lease.
	MinLease = 10 * time.Millisecond
	MaxLease = 24 * time.Hour
	// MaxFinishedRetention bounds Settings.FinishedRetention and NewMessage.Remember: a year, and a day for leap years.
	MaxFinishedRetention = 366 * 24 * time.Hour
)

// MaxDue is the last due time (P9). Anything beyond is an error.
var MaxDue = time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)
