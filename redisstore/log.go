package redisstore

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// LogClient has go-redis log to l, at level debug. Clients log by themselves, for example that they
// could not connect; without LogClient these lines go to standard error. The errors of calls say
// the same.
//
// LogClient is for the main of a program, because go-redis has one logger for the whole process.
func LogClient(l *slog.Logger) { redis.SetLogger(clientLog{l}) }

type clientLog struct{ to *slog.Logger }

func (c clientLog) Printf(ctx context.Context, format string, v ...any) {
	c.to.DebugContext(ctx, "redis client: "+fmt.Sprintf(format, v...))
}
