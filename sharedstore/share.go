package sharedstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/internal/unixsocket"
	"github.com/punctualmq/punctual/server"
)

// Share lets other processes use the store that this process has opened in dir, until stop is
// called. Call stop before you close the store: stop waits at most 5 seconds until the connections
// that others have made are accepted, ends waiting claims, and waits at most 5 seconds more until
// the requests under way are answered. A Store of this package shares its directory without a call
// of Share.
func Share(s *diskstore.Store, dir string, log *slog.Logger) (stop func() error, err error) {
	_, stop, err = share(s, dir, log)
	return stop, err
}

// share is Share, and also returns the server that the other processes call.
func share(s *diskstore.Store, dir string, log *slog.Logger) (h *server.Server, stop func() error, err error) {
	h, err = server.New(s, &server.Options{Logger: log, Limits: server.Limits{Rate: 1e9, Burst: 1e9}})
	if err != nil {
		return nil, nil, fmt.Errorf("share store %s: %w", dir, err)
	}
	path := filepath.Join(dir, SocketName)
	l, err := unixsocket.Listen(path)
	if err != nil {
		return nil, nil, fmt.Errorf("share store %s: %w", dir, err)
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Serve(ctx, &server.ServeOptions{DrainTime: drainTime}, l) }()
	return h, sync.OnceValue(func() error {
		// This process is still the owner of the directory, so the socket at the path is that of
		// this process and not of the next owner.
		err := letNobodyElseIn(path)
		end()
		err = errors.Join(err, <-done)
		if err != nil {
			return fmt.Errorf("stop sharing store %s: %w", dir, err)
		}
		return nil
	}), nil
}

// drainTime is how long the requests of other processes may go on when the owner closes the store.
// Then they are cut off.
const drainTime = 5 * time.Second

// letNobodyElseIn removes the socket, and returns when every connection that was made before has
// been accepted, at the latest after drainTime. Without this wait the end of the server would cut
// off a connection that is not accepted yet, and the process that has sent a request through it
// would not learn whether the request was carried out. If the socket is not there any more, there
// is no wait.
func letNobodyElseIn(path string) error {
	last := path + ".end"
	if err := os.Rename(path, last); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil // somebody has removed the socket, so nobody can connect
		}
		return err
	}
	// Connections are accepted in the order in which they were made. So an answer on a further
	// connection means that all connections made before have been accepted.
	ctx, end := context.WithTimeout(context.Background(), drainTime)
	defer end()
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return unixsocket.Dial(ctx, last) }}
	defer t.CloseIdleConnections()
	err := asked(ctx, &http.Client{Transport: t})
	return errors.Join(err, os.Remove(last))
}

// asked sends a request that changes nothing, and returns when the answer has come.
func asked(ctx context.Context, c *http.Client) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/livez", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := c.Do(r)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}
