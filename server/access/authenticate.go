package access

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/server"
)

var _ server.Authenticator = (*File)(nil)

// Authenticate implements server.Authenticator: the token in the header Authorization counts, or, when there is none, the
// verified certificate of the client. A token that does not count is not made good by a certificate.
func (f *File) Authenticate(r *http.Request) (*server.Principal, error) {
	entries, err := f.Entries()
	if err != nil {
		return nil, fmt.Errorf("nobody is let in now, see the log of the server: %w", punctual.ErrUnauthenticated) // the text of err is not for strangers
	}
	now := time.Now()
	var e *Entry
	switch values := r.Header.Values("Authorization"); {
	case len(values) > 1:
		return nil, fmt.Errorf("the header Authorization stands there twice: %w", punctual.ErrUnauthenticated)
	case len(values) == 1:
		scheme, token, ok := strings.Cut(values[0], " ")
		if !ok || !strings.EqualFold(scheme, "Bearer") {
			return nil, fmt.Errorf("the header Authorization is not of the form: Bearer TOKEN: %w", punctual.ErrUnauthenticated)
		}
		e, err = entries.Token(strings.TrimSpace(token), now)
	default:
		leaf := verified(r)
		if leaf == nil {
			return nil, fmt.Errorf("send a token in the header Authorization: Bearer TOKEN: %w", punctual.ErrUnauthenticated)
		}
		if now.After(leaf.NotAfter) {
			return nil, fmt.Errorf("the certificate expired at %s: %w", leaf.NotAfter.UTC().Format(time.RFC3339), punctual.ErrUnauthenticated)
		}
		e, err = entries.Certificate(leaf.Subject.String(), now)
	}
	if err != nil {
		return nil, err
	}
	return e.principal, nil
}

// verified is the certificate that the client has shown and TLS has verified, or nil.
func verified(r *http.Request) *x509.Certificate {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	return r.TLS.VerifiedChains[0][0]
}
