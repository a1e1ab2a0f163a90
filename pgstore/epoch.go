package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// A standby that is promoted may lack the last changes of the primary, also the newest lease tokens. So tokens begin with a number, the
// epoch, which grows when the server's timeline changes. Then no token of before the promotion is given out again (P4).

// epoch is the number with which tokens begin while the server has a timeline.
type epoch struct {
	number   int64
	timeline string
}

// beginEpoch takes in that the server's timeline has changed, by this process or another one.
func (s *Store) beginEpoch(ctx context.Context) error {
	if err := s.sendAlone(ctx, s.step().add("epoch", nil, nil).own("")); err != nil {
		return err
	}
	_, err := s.readStore(ctx)
	return err
}

// isNoToken reports whether a claim got no token, because the server is in another timeline than the store.
func isNoToken(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == codeNotNull && refused.ColumnName == "token"
}
