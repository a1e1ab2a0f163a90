package errkind

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/redis/go-redis/v9"
)

// replyError is an error as Redis sends it.
type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

// P13: the error that is made of each of these refusals by Redis says truly whether anything was
// changed.
func TestErrorTable(t *testing.T) {
	replies := map[string]error{
		"MOVED 3999 127.0.0.1:6381":                                                              punctual.ErrOverloaded,
		"ASK 3999 127.0.0.1:6381":                                                                punctual.ErrOverloaded,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                punctual.ErrOverloaded,
		"CLUSTERDOWN The cluster is down":                                                        punctual.ErrUnreachable,
		"CLUSTERDOWN Hash slot not served":                                                       punctual.ErrUnreachable,
		"LOADING Redis is loading the dataset in memory":                                         punctual.ErrUnreachable,
		"READONLY You can't write against a read only replica.":                                  punctual.ErrUnreachable,
		"READONLY You can't write against a read only replica. script: 5f1c, on @user_script:1.": punctual.ErrUnreachable,
		"ERR Error running script (call to f_5f1c): @user_script:1: -READONLY You can't write against a read only replica.": punctual.ErrUnreachable,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":                                  punctual.ErrUnreachable,
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.":                            punctual.ErrOverloaded,
		"ERR max number of clients reached":                       punctual.ErrOverloaded,
		"OOM command not allowed when used memory > 'maxmemory'.": punctual.ErrNoSpace,
		"ERR Error running script (call to f_5f1c): @user_script:9: @user_script: 9: -OOM command not allowed when used memory > 'maxmemory'.": punctual.ErrNoSpace,
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.":                                     punctual.ErrDurability,
		"MISCONF Errors writing to the AOF file: No space left on device":                                                                      punctual.ErrDurability,
		"NOREPLICAS Not enough good replicas to write.":                                                                                        punctual.ErrDurability,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                                                    punctual.ErrCorrupt,
		"ERR user_script:40: PUNCTUAL_CORRUPT message x cannot be read script: 5f1c, on @user_script:40.":                                      punctual.ErrCorrupt,
		"NOAUTH Authentication required.":                                                                                                      punctual.ErrUnsupported,
		"WRONGPASS invalid username-password pair or user is disabled.":                                                                        punctual.ErrUnsupported,
		"NOPERM this user has no permissions to run the 'evalsha' command":                                                                     punctual.ErrUnsupported,
		"ERR unknown command 'EVALSHA', with args beginning with:":                                                                             punctual.ErrUnsupported,
		"PUNCTUAL_LATE 1800000000000":                                                                                                          ErrLate,
		"PUNCTUAL_OTHER the key belongs to another call":                                                                                       punctual.ErrInvalid,
		"ERR DB index is out of range":                                                                                                         punctual.ErrInvalid,
		"ERR This instance has cluster support disabled":                                                                                       punctual.ErrUnsupported,
		// An error that is not in the table leaves open what has happened.
		"ERR user_script:9: attempt to index a nil value":                         punctual.ErrIndeterminate,
		"ERR Error running script: Script killed by user with SCRIPT KILL...":     punctual.ErrIndeterminate,
		"UNBLOCKED force unblock from blocking operation, instance state changed": punctual.ErrIndeterminate,
	}
	tried := make(map[string]bool) // by prefix
	for text, want := range replies {
		checkClass(t, replyError(text), want)
		tried[classifyReply(text).prefix] = true
	}
	for _, k := range kinds {
		if !tried[k.prefix] {
			t.Errorf("this test shows nothing of %s: there is no such reply", k.prefix)
		}
	}
}

// P13: the error that is made of a failed connection says truly whether anything may have been
// changed.
func TestConnectionErrors(t *testing.T) {
	for want, errs := range map[error][]error{
		punctual.ErrIndeterminate: {io.EOF, io.ErrUnexpectedEOF, os.ErrDeadlineExceeded, &net.OpError{Op: "read", Err: io.EOF}, &net.OpError{Op: "write", Err: io.EOF}, context.DeadlineExceeded},
		punctual.ErrOverloaded:    {redis.ErrPoolTimeout},
		punctual.ErrUnreachable:   {&net.OpError{Op: "dial", Err: io.EOF}},
		punctual.ErrUnsupported:   {tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, &net.OpError{Op: "remote error", Err: errors.New("tls: unknown certificate authority")}},
		punctual.ErrClosed:        {redis.ErrClosed},
		context.Canceled:          {NotSent(context.Canceled)},
	} {
		for _, err := range errs {
			checkClass(t, err, want)
			checkClass(t, fmt.Errorf("wrapped: %w", err), want)
		}
	}
}

func checkClass(t *testing.T, err, want error) {
	t.Helper()
	got := fmt.Errorf("push: %w", Of(err).Wrap(err))
	if !errors.Is(got, want) {
		t.Errorf("P13: %q became %q; want it to be %q", err, got, want)
	}
	if definite := want != punctual.ErrIndeterminate; punctual.Definite(got) != definite {
		t.Errorf("P13: definite is %v for %q; want %v", !definite, got, definite)
	}
}

// P13: a command is tried again because of a kind in the table only if that kind says that nothing
// has happened.
func TestPassingFaultsAreDefinite(t *testing.T) {
	for _, f := range kinds {
		if f.Passing && (f.Err == nil || !punctual.Definite(f.Err)) {
			t.Errorf("P13: %s is tried again although it may have happened", f.prefix)
		}
	}
}
