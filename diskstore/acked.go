package diskstore

import "context"

// An ack needs no fsync of its own, because an ack that a power cut takes means only one more
// delivery. Settle reports an ack once it is in the claim log, which survives the process. The
// message stays on disk, and memory has it as acked. Maintenance deletes the message with thousands
// of others in one transaction, unless a transaction encounters the message first and deletes it.
// The acked frames of a segment of the claim log are needed until those deletions are durable. An
// ack that stores something, such as a finished record or a follow-up, is a transaction instead
// (memory.Index.Settle).

const (
	ackedKick = 2048   // with so many acked messages on disk, maintenance deletes them at once
	ackedMax  = 64_000 // with more acked messages on disk than this, an ack waits for their deletion
)

// ensureAcks makes sure that acks survive the process. failed is why the claim log could not take
// them, or nil; if it is set, their messages are deleted from disk at once. Other calls that see
// such acks earlier do the same before they answer (writer.AcksRefused). ensureAcks also bounds how
// many acked messages wait on disk for their deletion; left is how many there are.
func (s *Store) ensureAcks(ctx context.Context, left int, failed error) error {
	if failed != nil {
		s.log.Warn("the claim log takes no acks; deleting the messages at once", "dir", s.dir, "error", failed)
		return s.writer.Barrier(ctx)
	}
	switch {
	case left > ackedMax:
		return s.writer.DeleteAcked(ctx)
	case left >= ackedKick:
		s.kickMaintenance()
	}
	return nil
}
