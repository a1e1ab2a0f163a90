package diskstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Settle finishes messages, gives them back, gives up on them, or extends their leases; see
// punctual.Store. When Settle returns, extensions, and acks that have no follow-ups and of which
// nothing is kept or told, survive the end of the process. All other settlements survive a power
// cut, too, by an fsync that all waiting calls share. A settlement and its follow-ups are one
// transaction. Settlements that write more than 8 MiB in all are made in several steps. If a later
// step certainly did not happen, its items and those after it alone have that error.
func (s *Store) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	if err := s.admit(ctx, storekit.CheckBatch(len(ss))); err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	if err := s.state.Enter(); err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	defer s.state.Leave()
	logged := s.writer.Logging() // calls that see what changes now wait for logged, because until then the claim log does not have it
	done, ok := s.index.Settle(ss, s.clock.ms)
	if !ok {
		logged()
		return s.settleStored(ctx, ss)
	}
	acks, err := s.logChanges(done.Acked, done.Extended)
	logged()
	if len(done.Acked) > 0 {
		err = errors.Join(err, s.ensureAcks(ctx, done.Undeleted, acks))
	}
	if err == nil && done.Refused {
		err = s.writer.WaitDurable(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("settle: %w", errkind.HalfDone(err))
	}
	return done.Errs, nil
}

// logChanges writes acks and extensions to the claim log. The error acks is that of the acks, which
// can be made to survive the end of the process in another way; see ensureAcks.
func (s *Store) logChanges(acked, extended []record.Lease) (acks, err error) {
	if len(extended) > 0 {
		err = s.claims.AppendLeases(extended)
	}
	if len(acked) > 0 {
		if acks = s.claims.AppendAcked(acked); acks != nil {
			s.writer.AcksRefused()
		}
	}
	return acks, err
}

// settleStored carries out settlements of which at least one needs a transaction, in as many
// transactions as they need.
func (s *Store) settleStored(ctx context.Context, ss []punctual.Settlement) (errs []error, err error) {
	errs = make([]error, len(ss))
	looks, err := s.lookUpFollowUps(ss)
	if err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	defer looks.close()
	next := 0
	for next < len(ss) && err == nil {
		var told settled
		if looks != nil {
			looks.noSpace = s.owned.CheckSpace(looks.bytes, s.db.Unwritten)
			looks.bytes = 0 // counted
		}
		var acks, extensions error
		next, err = s.writer.Some(ctx, next, len(ss), func(tx *writer.Tx, i int) (err error) {
			errs[i], err = s.settleOne(tx, i, &ss[i], &told, looks)
			if err != nil || i == len(ss)-1 || tx.Full() {
				// This is the last item of the transaction. Acks and extensions have happened in
				// memory, whatever becomes of the transaction. They are logged here, because no
				// other transaction can act on them before this one gives the write lock back.
				acks, extensions = s.logChanges(told.acked, told.extended)
			}
			return err
		})
		if err == nil {
			s.logOver(told.over)
		} else if len(told.acked)+len(told.extended) > 0 {
			err = errkind.HalfDone(err) // because acks or extensions have happened in memory, even if the transaction certainly has not
		}
		if len(told.acked) > 0 {
			extensions = errors.Join(extensions, s.ensureAcks(context.WithoutCancel(ctx), told.left, acks))
		}
		if extensions != nil && err == nil {
			err = errkind.HalfDone(extensions)
		}
	}
	if err != nil && !restAlone(next, err) {
		return nil, fmt.Errorf("settle: %w", err)
	}
	for i := next; i < len(ss); i++ {
		errs[i] = storekit.SettleError(&ss[i], err)
	}
	return errs, nil
}

// settled is what the claim log is to have of the settlements that are made within one transaction.
type settled struct {
	acked, extended []record.Lease
	over            []record.Lease // the leases that the transaction ended
	left            int            // how many acked messages of all topics are still on disk
}

// settleOne carries out one settlement, the n-th of its call, in memory or in the transaction.
// result is the answer to its caller; err is one of reading the database.
func (s *Store) settleOne(tx *writer.Tx, n int, st *punctual.Settlement, told *settled, looks *followUpLooks) (result, err error) {
	if done, ok := s.index.Settle([]punctual.Settlement{*st}, func() int64 { return tx.Ms }); ok {
		told.acked, told.extended = append(told.acked, done.Acked...), append(told.extended, done.Extended...)
		told.left = done.Undeleted
		return done.Errs[0], nil
	}
	if result = cmp.Or(storekit.CheckSettlement(st, s.opt.MaxBody), storekit.CheckNoKeys(st)); result != nil {
		return result, nil
	}
	for done := false; !done; { // again when the decision does not hold any more, which is rare
		if done, result, err = s.settleStep(tx, n, st, told, looks); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// settleStep decides on a settlement and on its follow-ups, and carries them out. The message
// leaves memory after its record was read and everything is decided, because the decision may also
// be to change nothing. done is false, and no message has changed, when the decision does not hold
// any more, because the lease has ended or a message on which the decision depends was acked
// meanwhile.
func (s *Store) settleStep(tx *writer.Tx, n int, st *punctual.Settlement, told *settled, looks *followUpLooks) (done bool, result, err error) {
	h, ok := s.index.Holder(st)
	if !ok {
		return true, storekit.SettleError(st, punctual.ErrLeaseLost), nil
	}
	set := tx.Existing(st.Topic).Settings()
	r := &record.Record{ID: h.ID} // is enough for an ack of which neither the message nor the topic keeps or tells anything
	h.Lease.AddTo(r)
	if st.Verb != punctual.SettleAck || h.Remembers || writer.KeepsRecords(set, punctual.EventAcked) {
		if r, err = tx.ReadHeld(h); err != nil {
			return false, nil, err
		}
	}
	to, result := lifecycle.Settle(&r.Message, st, set, tx.Now)
	if to.To == lifecycle.Stay {
		return true, result, nil
	}
	var follow followUps
	if result == nil && len(st.Then) > 0 {
		if follow, result, err = decideFollowUps(tx, st, n, r.Behind(to, set, tx.Ms), looks); result != nil || err != nil {
			return true, result, err
		}
	}
	d, replaced, ok := follow.detach(tx, h)
	if !ok {
		return false, nil, nil
	}
	told.over = append(told.over, record.Lease{At: d.Lease.At, Token: d.Lease.Token})
	tx.Apply(d, r, to)
	return true, result, follow.store(tx, replaced)
}

// logOver writes to the claim log which leases are over. Without that, the next Open would still
// see from the records of the messages that the leases are over, but it would have to read these
// records.
func (s *Store) logOver(over []record.Lease) {
	if len(over) == 0 {
		return
	}
	if err := s.claims.AppendEnded(over); err != nil {
		s.log.Warn("the claim log does not take what is settled; the next start takes longer", "error", err)
	}
}
