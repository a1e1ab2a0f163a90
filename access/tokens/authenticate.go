package tokens

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
)

var _ access.Authenticator = (*File)(nil)

// Authenticate implements access.Authenticator: it goes by the token in the header Authorization
// or, when the request has none, by the verified certificate of the client. A request whose token
// does not count is refused, also when it comes with a certificate.
func (f *File) Authenticate(r *http.Request) (*access.Principal, error) {
	entries, err := f.Entries()
	if err != nil {
		return nil, fmt.Errorf("nobody is let in now, see the log of the server: %w", punctual.ErrUnauthenticated) // err names the path of the file, which is not for strangers
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
		var subject string
		if subject, err = subjectOf(leaf); err == nil {
			e, err = entries.Certificate(subject, now)
		}
	}
	if err != nil {
		return nil, err
	}
	return e.principal, nil
}

// subjectOf is the distinguished name of a certificate as RFC 2253 writes it, with all its parts in
// their order. A pkix.Name would not do, because it keeps only the last common name, and no longer
// tells several values of one part from several parts.
func subjectOf(c *x509.Certificate) (string, error) {
	var name pkix.RDNSequence
	if rest, err := asn1.Unmarshal(c.RawSubject, &name); err != nil || len(rest) > 0 {
		return "", fmt.Errorf("the certificate's subject is malformed: %w", punctual.ErrUnauthenticated)
	}
	for _, part := range name {
		for _, attribute := range part {
			if _, isText := attribute.Value.(string); !isText {
				return "", fmt.Errorf("the certificate's subject has a value that is no text: %w", punctual.ErrUnauthenticated)
			}
		}
	}
	return name.String(), nil
}

// verified returns the certificate that the client has shown and TLS has verified, or nil.
func verified(r *http.Request) *x509.Certificate {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	return r.TLS.VerifiedChains[0][0]
}
