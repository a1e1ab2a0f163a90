package diskstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/punctualmq/punctual"
)

// Settle finishes, gives back, gives up or extends leases; see punctual.Store. Acks and
// extensions outlive the process when it returns, everything else a power cut too, with an fsync
// shared by all who wait.
func (s *Store) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	if err := punctual.CheckBatch(len(ss)); err != nil {
		return nil, err
	}
	if err := s.enter(); err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	defer s.calls.Done()
	tx, err := s.begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	errs := make([]error, len(ss))
	var told settled
	for i := range ss {
		if errs[i], err = tx.settle(&ss[i], &told); err != nil {
			s.abandonTxn(tx)
			return nil, fmt.Errorf("settle: %w", err)
		}
	}
	if err := s.commit(ctx, tx); err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	if err := errors.Join(s.logSettled(told), s.logAcks(ctx, told.acked)); err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	return errs, nil
}

// settled is what a call of Settle has to tell the claim log.
type settled struct {
	acked    []acked
	over     []*entry // leases that the transaction ended
	extended []*entry
}

// settle does one settlement, in memory or in the transaction. result is what its holder is
// told; err is one of reading the database.
func (tx *txn) settle(st *punctual.Settlement, told *settled) (result, err error) {
	if result = st.Check(); result != nil {
		return result, nil
	}
	e := tx.holder(st)
	switch {
	case e == nil:
		return fmt.Errorf("%s %s of %s: %w", st.Verb, st.ID, st.Topic, punctual.ErrLeaseLost), nil
	case st.Verb == punctual.SettleExtend:
		told.extended = append(told.extended, e)
		return tx.extend(e, st), nil
	case st.Verb == punctual.SettleAck && e.topic.settings.Remember == 0:
		told.acked = append(told.acked, tx.ack(e))
		return nil, nil
	}
	told.over = append(told.over, e)
	return tx.settleStored(e, st)
}

// settleStored does a settlement that changes what is stored beyond removing it.
func (tx *txn) settleStored(e *entry, st *punctual.Settlement) (result, err error) {
	r, err := tx.current(e)
	if err != nil {
		return nil, err
	}
	tx.unlink(e)
	switch {
	case st.Verb == punctual.SettleAck:
		tx.finishMessage(e.topic, e.key, e.id)
	case e.cancel && st.Verb != punctual.SettleDiscard:
		tx.finishMessage(e.topic, e.key, e.id)
		return fmt.Errorf("%s %s of %s: %w", st.Verb, st.ID, st.Topic, punctual.ErrCancelled), nil
	default:
		tx.giveBack(e, r, st)
	}
	return nil, nil
}

// holder returns the leased entry that a settlement's token is current for, or nil (P4).
func (tx *txn) holder(st *punctual.Settlement) *entry {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	e := tx.s.byToken[st.Token]
	if e == nil || e.id != st.ID || e.topic.name != st.Topic {
		return nil
	}
	return e
}

func (tx *txn) unlink(e *entry) {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	tx.s.unlink(e)
}

// current returns the record of a leased message with what its leases added.
func (tx *txn) current(e *entry) (*record, error) {
	r, err := tx.s.getRecord(keyLive, e.topic, e.key)
	if err != nil {
		return nil, err
	}
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	r.attempts, r.token = e.attempt, e.token
	for _, f := range e.lapses {
		r.failures = punctual.AddFailure(r.failures, f)
	}
	e.cancel = e.cancel || r.cancel
	return r, nil
}

// giveBack ends a lease by retry, snooze, release or discard.
func (tx *txn) giveBack(e *entry, r *record, st *punctual.Settlement) {
	t := e.topic
	if st.Verb == punctual.SettleRetry || st.Verb == punctual.SettleDiscard {
		r.failures = punctual.AddFailure(r.failures, punctual.Failure{
			Attempt: r.attempts, At: punctual.FromMillis(tx.ms), Error: punctual.TrimError(st.Error),
		})
	}
	switch st.Verb {
	case punctual.SettleDiscard:
		tx.die(t, e.key, r, punctual.ReasonDiscarded)
		return
	case punctual.SettleRetry:
		if r.attempts >= maxAttempts(r, t.settings) {
			tx.die(t, e.key, r, punctual.ReasonAttemptsUsedUp)
			return
		}
		delay := st.Delay
		if delay == punctual.UseBackoff {
			delay = t.settings.Backoff.Delay(r.attempts)
		}
		r.due = tx.after(delay)
	case punctual.SettleSnooze:
		r.attempts--
		r.due = tx.after(st.Delay)
	case punctual.SettleRelease:
		r.attempts--
	}
	tx.takeLive(t, e.key, "")
	tx.putLive(t, e.key.seq, r)
}

// extend moves the end of a lease. It changes memory only; logSettled writes it down.
func (tx *txn) extend(e *entry, st *punctual.Settlement) error {
	s := tx.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.cancel {
		return fmt.Errorf("extend %s of %s: %w", st.ID, st.Topic, punctual.ErrCancelled)
	}
	length := st.Delay
	if length == 0 {
		length = e.topic.settings.Lease
	}
	e.next = tx.ms + punctual.CeilDuration(length)
	e.renewed++
	e.topic.leases.add(e, len(e.topic.leased))
	s.wake(e.topic, e.next)
	return nil
}

// logSettled writes to the claim log which leases are over, so that the log need not be
// compared with the database at the next start, and which last longer.
func (s *Store) logSettled(told settled) error {
	if len(told.over) > 0 {
		if err := s.logClaims(settledPayload(told.over)); err != nil {
			s.log.Warn("the claim log does not take what is settled; the next start takes longer", "error", err)
		}
	}
	if len(told.extended) == 0 {
		return nil
	}
	leases := make([]lease, 0, len(told.extended))
	s.mu.Lock()
	for _, e := range told.extended {
		if e.state == leased {
			leases = append(leases, e.lease())
		}
	}
	s.mu.Unlock()
	return s.logClaims(leasePayload(leases))
}
