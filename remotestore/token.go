package remotestore

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/punctualmq/punctual"
)

// token is what a store shows to its servers.
type token struct {
	file string

	mu   sync.Mutex
	text string // guarded by mu
}

func (t *token) open(o *Options) error {
	t.file, t.text = o.TokenFile, o.Token
	if t.file == "" {
		return checkToken(t.text)
	}
	if t.text != "" {
		return fmt.Errorf("a token and the file of one are given: %w; use one", punctual.ErrInvalid)
	}
	_, err := t.reread()
	return err
}

func (t *token) set() bool { return t.file != "" || t.text != "" }

// get is the token, or "".
func (t *token) get() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text
}

// reread reads the file again and tells whether it holds another token.
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

// checkToken refuses what cannot stand in a header, without repeating it.
func checkToken(text string) error {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return fmt.Errorf("byte %d of the token is not printable ASCII: %w", i+1, punctual.ErrInvalid)
		}
	}
	return nil
}
