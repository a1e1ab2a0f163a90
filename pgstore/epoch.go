package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// A standby that is promoted may lack the last changes of the primary, also the newest lease tokens. So tokens begin with a number, the
// epoch, which grows when the server's timeline changes, as at a promotion. Then no token from before the promotion is given again (P4).

// epoch is the number with which tokens begin as long as the server is in the timeline.
type epoch struct {
	number   int64
	timeline string
}

// beginEpoch begins the epoch of a new timeline in the table store, unless another process has done so, and reads it.
func (s *Store) beginEpoch(ctx context.Context) error {
	if err := s.sendAlone(ctx, s.step().add("epoch", nil, nil).own("")); err != nil {
		return err
	}
	_, err := s.readStore(ctx)
	return err
}

// isNoToken reports whether a claim got no token, because the server is in another timeline than the epoch of this process.
func isNoToken(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == codeNotNull && refused.ColumnName == "token"
}
