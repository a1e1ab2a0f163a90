package cron

import (
	"maps"
	"sync"
	"time"
)

// Zones loads zones and keeps them, because time.LoadLocation reads a file at each call. The zero
// Zones is empty. It is safe for concurrent use.
type Zones struct {
	mu     sync.Mutex
	loaded map[string]*time.Location // by name; guarded by mu
}

// ZonesOf returns Zones that have these already, by name, whatever the database of this machine
// says of the names.
func ZonesOf(known map[string]*time.Location) *Zones { return &Zones{loaded: maps.Clone(known)} }

// Load returns the zone that LoadZone returns for the name, and loads it only the first time. An
// error is not kept.
func (z *Zones) Load(name string) (*time.Location, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if loc := z.loaded[name]; loc != nil {
		return loc, nil
	}
	loc, err := LoadZone(name)
	if err != nil {
		return nil, err
	}
	if z.loaded == nil {
		z.loaded = make(map[string]*time.Location)
	}
	z.loaded[name] = loc
	return loc, nil
}
