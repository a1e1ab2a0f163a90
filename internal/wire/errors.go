package wire

import (
	"encoding/base64"
	"fmt"
)

// inField puts the name of a member or parameter in front of its error. It returns nil for nil.
func inField(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%q: %w", field, err)
}

func encodeBase64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func decodeBase64(s string) (string, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	return string(b), err
}
