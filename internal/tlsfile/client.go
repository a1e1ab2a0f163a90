package tlsfile

import (
	"crypto/tls"
	"errors"
	"fmt"
)

// Client returns a configuration for the client of a server, for TLS 1.2 or newer. ca, if not
// empty, names a PEM file of the authorities that the client trusts instead of those of the
// machine. cert and key name the client's own certificate and its key; both are given or none. The
// files are read once. Errors name the parameter of a URL that named the file: ca, cert or key.
func Client(ca, cert, key string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		var err error
		if c.RootCAs, err = authorities(ca); err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
	}
	switch {
	case cert == "" && key == "":
		return c, nil
	case cert == "" || key == "":
		return nil, errors.New("cert and key go together: one is missing")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("cert and key: %w", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}
