package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/punctualmq/punctual"
)

// A standby that is promoted may lack the last changes of the primary, also the newest lease
// tokens. A server that got the tables by logical replication has none of the numbers that
// sequences have given. So tokens and the IDs of events begin with a number, the epoch, which grows
// when the server's timeline changes, as at a promotion, and when the server is another one. Then
// no token from before is given again (P4).

// epoch is the number with which tokens begin as long as the server and its timeline are those of
// line.sql.
type epoch struct {
	number   int64
	timeline string
}

// currentEpoch returns d as it is when the epoch of the server's line has begun. A claim would
// notice another line by itself, but the IDs of events come from the epoch that this process knows.
func (db *database) currentEpoch(ctx context.Context, d data) (data, error) {
	if d.epoch.timeline == d.timeline {
		return d, nil
	}
	if err := db.beginEpoch(ctx); err != nil {
		return d, db.explain(err, punctual.ErrIndeterminate)
	}
	return db.readStore(ctx)
}

// beginEpoch begins the epoch of a new timeline in the table store, unless another process has done
// so, and reads it.
func (db *database) beginEpoch(ctx context.Context) error {
	if err := db.sendAlone(ctx, db.step().add("epoch", nil, nil).own("")); err != nil {
		return err
	}
	_, err := db.readStore(ctx)
	return err
}

// isNoToken reports whether a claim got no token, because the server is in another timeline than
// the epoch of this process.
func isNoToken(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == codeNotNull && refused.ColumnName == "token"
}
