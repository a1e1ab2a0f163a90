package remotestore

import "time"

// ForgetAbilities ends the minute for which s keeps what the server's store can do.
func (s *Store) ForgetAbilities() {
	s.abilities.mu.Lock()
	defer s.abilities.mu.Unlock()
	s.abilities.until = time.Now()
}

// ForgetClock makes the last reading of the server's clock so old that the next request with a time
// limit reads the clock again.
func (s *Store) ForgetClock() {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.heard, s.clock.server = s.clock.heard.Add(-estimateFor), s.clock.server.Add(-estimateFor)
}

// SpeakJSON makes s write and read JSON alone, as with a server that does not know the compact
// form.
func (s *Store) SpeakJSON() {
	for _, e := range s.endpoints {
		e.compact.Store(false)
	}
}

// SpeakHTTP1 makes s speak HTTP/1.1, as with a proxy that knows nothing else.
func (s *Store) SpeakHTTP1() {
	for _, e := range s.endpoints {
		e.spoken.Store(&spoken{changes: e.http1, anew: e.http1})
	}
}
