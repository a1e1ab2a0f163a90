package importer

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
)

// fault returns err with a text in front: what could not be done on the source, and what to do
// about that where it is known.
func fault(err error, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	var dial *net.OpError
	var refused *pgconn.PgError
	var dialling *pgconn.ConnectError
	var amqpError *amqp.Error
	var denied *mysql.MySQLError
	switch {
	case errors.As(err, &dialling):
		err = errors.Unwrap(dialling) // whose text does not name host, user and database
		what += ": " + unreachable
	case errors.As(err, &dial) && dial.Op == "dial":
		what += ": " + unreachable
	case errors.As(err, &refused):
		if remedy := remedies[refused.Code]; remedy != "" {
			what += ": " + remedy
		}
	case errors.As(err, &amqpError):
		if remedy := remedies[fmt.Sprint("amqp ", amqpError.Code)]; remedy != "" {
			what += ": " + remedy
		}
	case errors.Is(err, mysql.ErrInvalidConn):
		what += ": the connection to the source broke: run the command again"
	case errors.As(err, &denied):
		if remedy := remedies[strconv.Itoa(int(denied.Number))]; remedy != "" {
			what += ": " + remedy
		}
	default:
		for prefix, remedy := range remedies {
			if redis.HasErrorPrefix(err, prefix) {
				what += ": " + remedy
			}
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

const unreachable = "the source cannot be reached: is its URL right, and the server up?"

// remedies say what to do about the errors of Redis, by the beginnings of their texts, and about
// those of PostgreSQL, MySQL and AMQP, by their codes.
var remedies = map[string]string{
	"NOAUTH":      "the source asks for a password: redis://user:password@host",
	"WRONGPASS":   "the source does not accept this user and password",
	"NOPERM":      "this user lacks a right on the source: docs/importing.md has those that are needed",
	"WRONGTYPE":   "the source has something else under this key",
	"READONLY":    "this is a replica: name its primary",
	"MOVED":       "this is a cluster: use redis+cluster://",
	"OOM":         "the source has reached maxmemory: a staged message needs a little room",
	"LOADING":     "the source is loading its data: try again",
	"BUSY":        "the source is busy with somebody's script: try again",
	"CLUSTERDOWN": "the source's cluster is down: try again",
	"MISCONF":     "the source cannot write to its disk and refuses changes",
	"ERR unknown": "the source lacks a command that is needed",
	"amqp 403":    "this user lacks a right on the source, or its password is wrong: docs/importing.md has the rights that are needed",
	"amqp 404":    "there is no such queue in this vhost",
	"amqp 405":    "the queue belongs to another connection, which alone may use it",
	"amqp 504":    "the connection to the source has ended",
	"amqp 530":    "there is no such vhost, or this user may not use it",
	"25006":       "this is a standby: name its primary",
	"28P01":       "the source does not accept this user and password",
	"28000":       "the source does not accept this user",
	"3D000":       "there is no such database",
	"42501":       "this user lacks a right on the source: docs/importing.md has those that are needed",
	"42703":       "the condition names a column that is not there",
	"23503":       "another table refers to some of these rows: leave those out with --where, or use --mark",
	"23505":       "a row with the same key is there by now",
	"53100":       "the disk of the source is full",
	"1021":        "the disk of the source is full",
	"1044":        "this user lacks a right on the source: docs/importing.md has those that are needed",
	"1045":        "the source does not accept this user and password",
	"1049":        "there is no such database",
	"1054":        "the condition names a column that is not there",
	"1064":        "is the condition right? And FOR UPDATE SKIP LOCKED needs MySQL 8.0 or MariaDB 10.6",
	"1142":        "this user lacks a right on the source: docs/importing.md has those that are needed",
	"1205":        "a program holds a lock on these rows: run the command again",
	"1213":        "another transaction was in the way: run the command again",
	"1290":        "this is a replica: name its primary",
	"1451":        "another table refers to some of these rows: leave those out with --where, or use --mark",
	"1665":        "the server logs statements, which it cannot do for this: set binlog_format to MIXED or ROW",
}
