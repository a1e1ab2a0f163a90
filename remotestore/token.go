package remotestore

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/punctualmq/punctual"
)

// token is the text by which a store authenticates itself to its servers.
type token struct {
	file string // from which the text is read; empty if the text was given. It does not change.

	mu   sync.Mutex
	text string // guarded by mu
}

// open takes the token from the options, or reads the file that they name.
func (t *token) open(o *Options) error {
	t.file, t.text = o.TokenFile, o.Token
	if t.file == "" {
		return checkToken(t.text)
	}
	if t.text != "" {
		return fmt.Errorf("both a token and a file of a token are given: %w; give one of them", punctual.ErrInvalid)
	}
	_, err := t.reread()
	return err
}

func (t *token) set() bool { return t.file != "" || t.text != "" }

// get returns the token; empty if there is none.
func (t *token) get() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text
}

// reread reads the file again, if there is one, and reports whether the token is another now.
func (t *token) reread() (changed bool, err error) {
	if t.file == "" {
		return false, nil
	}
	data, err := os.ReadFile(t.file)
	if err != nil {
		return false, fmt.Errorf("read the token: %w: %w", punctual.ErrInvalid, err)
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		return false, fmt.Errorf("read the token: file %s is empty: %w", t.file, punctual.ErrInvalid)
	}
	if err := checkToken(text); err != nil {
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	changed = t.text != text
	t.text = text
	return changed, nil
}

// checkToken refuses a token that cannot stand in a header. The error does not contain the token.
func checkToken(text string) error {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return fmt.Errorf("byte %d of the token is not printable ASCII: %w", i+1, punctual.ErrInvalid)
		}
	}
	return nil
}
