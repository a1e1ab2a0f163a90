package importer

import (
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"
)

// fault returns err with a text in front: what could not be done on the source, and what to do
// about that where it is known.
func fault(err error, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if c := remedy(err); c != "" {
		what += ": " + c
	}
	return fmt.Errorf("%s: %w", what, err)
}

// remedies says what to do about the errors of Redis, by the beginnings of their texts.
func remedies() map[string]string {
	return map[string]string{
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
	}
}

func remedy(err error) string {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return "the source cannot be reached: is its URL right, and the server up?"
	}
	for prefix, text := range remedies() {
		if redis.HasErrorPrefix(err, prefix) {
			return text
		}
	}
	return ""
}
