package redisstore

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// LogClient sends what the client says by itself, such as that it could not connect, to l at level
// debug. Without it that goes to standard error. The errors of calls say the same.
//
// It is for the main of a program: go-redis has one logger for the whole process.
func LogClient(l *slog.Logger) { redis.SetLogger(clientLog{l}) }

type clientLog struct{ to *slog.Logger }

func (c clientLog) Printf(ctx context.Context, format string, v ...any) {
	c.to.DebugContext(ctx, "redis client: "+fmt.Sprintf(format, v...))
}
