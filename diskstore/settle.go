package diskstore

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	if err := ctxOrUsable(ctx, s); err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	errs, told, done := s.settleInMemory(ss)
	if !done {
		var err error
		if errs, told, err = s.settleStored(ctx, ss); err != nil {
			return nil, fmt.Errorf("settle: %w", err)
		}
	}
	if err := errors.Join(s.logSettled(told), s.logAcks(ctx, told.acked)); err != nil {
		return nil, fmt.Errorf("settle: %w", halfDone(err))
	}
	return errs, nil
}

// settleInMemory does settlements that are all acks or extensions: they change memory and
// the claim log only and need not wait for the sequencer. Otherwise done is false and nothing
// has changed, since the items of a call take effect in their order.
func (s *Store) settleInMemory(ss []punctual.Settlement) (errs []error, told settled, done bool) {
	now := s.clock.ms()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range ss {
		if !s.inMemory(&ss[i]) {
			return nil, told, false
		}
	}
	errs = make([]error, len(ss))
	for i := range ss {
		if errs[i] = ss[i].Check(); errs[i] == nil {
			errs[i] = s.settleOne(&ss[i], now, &told)
		}
	}
	return errs, told, true
}

// inMemory tells whether a settlement does not change what is on disk. Called with mu held.
func (s *Store) inMemory(st *punctual.Settlement) bool {
	if st.Verb == punctual.SettleExtend {
		return true
	}
	t := s.topics[st.Topic]
	return st.Verb == punctual.SettleAck && (t == nil || t.settings.Remember == 0)
}

// settleOne acks or extends. Called with mu held.
func (s *Store) settleOne(st *punctual.Settlement, now int64, told *settled) error {
	e := s.holder(st)
	switch {
	case e == nil:
		return leaseLost(st)
	case st.Verb == punctual.SettleAck:
		told.acked = append(told.acked, s.ack(e))
		return nil
	}
	if err := s.extend(e, st, now); err != nil {
		return err
	}
	told.extended = append(told.extended, e)
	return nil
}

func leaseLost(st *punctual.Settlement) error {
	return fmt.Errorf("%s %s of %s: %w", st.Verb, st.ID, st.Topic, punctual.ErrLeaseLost)
}

// settleStored does settlements in a transaction.
func (s *Store) settleStored(ctx context.Context, ss []punctual.Settlement) (errs []error, told settled, err error) {
	tx, err := s.begin(ctx)
	if err != nil {
		return nil, told, err
	}
	errs = make([]error, len(ss))
	for i := range ss {
		if errs[i], err = tx.settle(&ss[i], &told); err != nil {
			s.abandonTxn(tx)
			return nil, told, err
		}
	}
	return errs, told, s.commit(ctx, tx)
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
	s := tx.s
	s.mu.Lock()
	if s.inMemory(st) {
		defer s.mu.Unlock()
		return s.settleOne(st, tx.ms, told), nil
	}
	e := s.holder(st)
	s.mu.Unlock()
	if e == nil {
		return leaseLost(st), nil
	}
	r, err := tx.current(e)
	if err != nil {
		return nil, err
	}
	due, result := tx.nextDue(e.topic, r, st)
	if result != nil {
		return result, nil
	}
	if !tx.unlink(e, st) {
		return leaseLost(st), nil // acked while we looked
	}
	told.over = append(told.over, e)
	switch {
	case st.Verb == punctual.SettleAck:
		tx.finishMessage(e.topic, e.key, e.id)
	case r.cancel && st.Verb != punctual.SettleDiscard:
		tx.finishMessage(e.topic, e.key, e.id)
		return fmt.Errorf("%s %s of %s: %w", st.Verb, st.ID, st.Topic, punctual.ErrCancelled), nil
	default:
		tx.giveBack(e, r, st, due)
	}
	return nil, nil
}

// nextDue is when a message that is given back is due again.
func (tx *txn) nextDue(t *topic, r *record, st *punctual.Settlement) (int64, error) {
	delay := st.Delay
	switch st.Verb {
	case punctual.SettleRetry:
		if delay == punctual.UseBackoff {
			delay = t.settings.Backoff.Delay(r.attempts)
		}
	case punctual.SettleSnooze:
	default:
		return r.due, nil
	}
	due, err := punctual.DueAt(tx.now, time.Time{}, delay)
	if err != nil {
		return 0, fmt.Errorf("%s %s of %s: %w", st.Verb, st.ID, st.Topic, err)
	}
	return punctual.Millis(due), nil
}

// holder returns the leased entry that a settlement's token is current for, or nil (P4).
// Called with mu held.
func (s *Store) holder(st *punctual.Settlement) *entry {
	e := s.byToken[st.Token]
	if e == nil || e.id != st.ID || e.topic.name != st.Topic {
		return nil
	}
	return e
}

// unlink takes a leased entry out of memory, unless its token is not current any more.
func (tx *txn) unlink(e *entry, st *punctual.Settlement) bool {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	if tx.s.holder(st) != e {
		return false
	}
	tx.s.unlink(e)
	return true
}

// current returns the record of a leased message with what its leases added.
func (tx *txn) current(e *entry) (*record, error) {
	r, err := tx.s.getRecord(keyLive, e.topic, e.key)
	if err != nil {
		return nil, err
	}
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	e.addTo(r)
	r.cancel = e.cancel || r.cancel
	return r, nil
}

// giveBack ends a lease by retry, snooze, release or discard; due is when the next attempt is.
func (tx *txn) giveBack(e *entry, r *record, st *punctual.Settlement, due int64) {
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
	case punctual.SettleSnooze, punctual.SettleRelease:
		r.attempts--
	}
	r.due = due
	tx.takeLive(t, e.key, "")
	tx.putLive(t, e.key.seq, r)
}

// extend moves the end of a lease. It changes memory only; logSettled writes it down.
// Called with mu held.
func (s *Store) extend(e *entry, st *punctual.Settlement, now int64) error {
	if e.cancel {
		return fmt.Errorf("extend %s of %s: %w", st.ID, st.Topic, punctual.ErrCancelled)
	}
	length := st.Delay
	if length == 0 {
		length = e.topic.settings.Lease
	}
	e.next = now + punctual.CeilDuration(length)
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
