package diskstore

import "context"

// An ack needs no fsync of its own: to lose one in a power cut means one more delivery. It is reported once it is in
// the claim log, which outlives the process. The message stays on disk, remembered as acked. Maintenance deletes it
// with thousands of others in one transaction, unless a transaction meets it first and deletes it. The acked frames
// of a segment of the claim log are needed until those deletions are durable.

const (
	ackedKick = 2048   // how many acked messages make maintenance delete them at once
	ackedMax  = 64_000 // beyond that acks wait for the deletion
)

// ensureAcks makes acks outlive the process that the claim log has not taken, for which failed is the reason: the messages are
// deleted. It also sees to it that few acked messages stay on disk.
// left is how many acked messages are still on disk.
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
