package console

import "context"

// deed is a change that somebody asks for, as the audit log names it.
type deed struct {
	// verb is a word of the project: "cancel", "reschedule", "requeue", "push", "configure", "purge", "delete topic".
	verb string
	// topic, and the message's ID if it is about one.
	topic, id string
	// detail is what else matters: the new due time, the settings that changed. It never has bodies.
	detail string
}

// carryOut makes a change and has it recorded: do returns how many messages it changed.
func (c *call) carryOut(d deed, do func(ctx context.Context) (int64, error)) (int64, error) {
	return do(c.r.Context())
}
