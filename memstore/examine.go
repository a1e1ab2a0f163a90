package memstore

import (
	"context"
	"fmt"

	"github.com/punctualmq/punctual"
)

// Examine says that messages are gone with the process; see punctual.Examiner.
func (s *Store) Examine(context.Context) ([]punctual.Finding, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("examine: %w", punctual.ErrClosed)
	}
	return Examine(), nil
}

// Examine says what every store in memory stands on.
func Examine() []punctual.Finding {
	return []punctual.Finding{{
		Name: "durability", Value: string(punctual.Volatile), Severity: punctual.SeverityWarning,
		Remedy: "messages are gone when their process ends: use another store for those that matter",
	}}
}
