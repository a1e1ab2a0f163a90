package cli

import (
	"context"
	"errors"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore"
)

// redisSchemes are the kinds of stores in Redis. Help shows the first three; the others are
// the same with TLS.
func redisSchemes() []scheme {
	return []scheme{
		{"redis", "redis://HOST", openRedis("redis:"), examineRedis("redis:"), openRedis("redis:")},
		{"redis+sentinel", "redis+sentinel://HOST,HOST/PRIMARY", openRedis("redis+sentinel:"), examineRedis("redis+sentinel:"), openRedis("redis+sentinel:")},
		{"redis+cluster", "redis+cluster://HOST,HOST", openRedis("redis+cluster:"), examineRedis("redis+cluster:"), openRedis("redis+cluster:")},
		{"rediss", "", openRedis("rediss:"), examineRedis("rediss:"), openRedis("rediss:")},
		{"rediss+sentinel", "", openRedis("rediss+sentinel:"), examineRedis("rediss+sentinel:"), openRedis("rediss+sentinel:")},
		{"rediss+cluster", "", openRedis("rediss+cluster:"), examineRedis("rediss+cluster:"), openRedis("rediss+cluster:")},
	}
}

// openRedis returns a function that opens the store of a URL of which the command line has cut off the scheme.
func openRedis(scheme string) func(context.Context, place) (punctual.Store, error) {
	return func(ctx context.Context, p place) (punctual.Store, error) {
		s, err := redisstore.OpenURL(ctx, scheme+p.where, &redisstore.Options{Logger: p.log, MustExist: !p.create})
		switch {
		case errors.Is(err, punctual.ErrNotFound):
			return nil, &failure{
				code: codeNoStore, exit: exitError, definite: true,
				text: "no store in this Redis, or not with this prefix: push something first or name another with --store",
			}
		case err != nil:
			return nil, err // not s: a nil *Store in an interface is not nil
		}
		return s, nil
	}
}

func examineRedis(scheme string) func(context.Context, place) ([]punctual.Finding, error) {
	return func(ctx context.Context, p place) ([]punctual.Finding, error) {
		return redisstore.ExamineURL(ctx, scheme+p.where, &redisstore.Options{Logger: p.log})
	}
}
