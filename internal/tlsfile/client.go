package tlsfile

import (
	"crypto/tls"
	"errors"
	"fmt"
)

// Client returns a configuration for the client of a server. ca, if not empty, names a PEM file of the authorities that vouch for
// the server, in place of the machine's. cert and key, both or none, name the client's own certificate and its key. The
// files are read once. Errors name the part of a URL that gave the file: ca, cert or key.
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
