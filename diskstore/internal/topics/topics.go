// Package topics has the registry of a store's topics. A Topic joins the topic in memory, the topic
// on disk, and the settings.
package topics

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/storekit"
)

// Topic is one topic of a store.
type Topic struct {
	Name   string
	Memory *memory.Topic
	Disk   *database.Topic // guarded by the write lock

	number   int64                             // topics that this process has added later have greater numbers
	settings atomic.Pointer[punctual.Settings] // never changed, but replaced
}

// Settings returns the current settings. The caller must not change them.
func (t *Topic) Settings() *punctual.Settings { return t.settings.Load() }

// Configure replaces the settings at now, in Unix ms, here and in memory. The caller holds the
// write lock, and writes the settings to disk itself.
func (t *Topic) Configure(s punctual.Settings, now int64) {
	s = Copy(s)
	t.settings.Store(&s)
	t.Memory.Configure(&s, now)
}

// Copy returns a copy of s that shares no memory with s.
func Copy(s punctual.Settings) punctual.Settings {
	s.Partitions = max(s.Partitions, 1) // older versions did not write Partitions
	return s.Clone()
}

// Registry has the topics of a store by name. Its methods are safe for concurrent use. Add and
// Remove are called with the write lock held, unless the store is being opened and nobody else uses
// it yet.
type Registry struct {
	index *memory.Index
	// Arrivals are told of each companion that is added.
	Arrivals *storekit.Arrivals

	mu     sync.RWMutex
	byName map[string]*Topic // guarded by mu
	// companions are the companions of each topic that has some, by the topic's name, so that
	// whoever deletes a topic need not look at all others. Guarded by mu.
	companions map[string][]*Topic
	added      int64 // guarded by mu: how many topics were added
}

// New returns a registry without topics. Topics that are added to the registry are added to index,
// too.
func New(index *memory.Index) *Registry {
	return &Registry{
		index: index, Arrivals: storekit.NewArrivals(), byName: make(map[string]*Topic), companions: make(map[string][]*Topic),
	}
}

// Get returns the topic of a name, nil if there is none.
func (r *Registry) Get(name string) *Topic {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byName[name]
}

// Add adds a topic of the database. It has no messages in memory yet.
func (r *Registry) Add(disk *database.Topic, s punctual.Settings) *Topic {
	s = Copy(s)
	t := &Topic{Name: disk.Name(), Disk: disk, Memory: r.index.AddTopic(disk.Name(), disk.Num(), &s)}
	t.settings.Store(&s)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.added++
	t.number = r.added
	r.byName[t.Name] = t
	if parent, companion := storekit.Companion(t.Name); companion != "" {
		r.companions[parent] = append(r.companions[parent], t)
		r.Arrivals.Tell()
	}
	return t
}

// Remove removes a topic from the registry and from memory, with all its messages. finished is how
// many of them were acked and still on disk.
func (r *Registry) Remove(t *Topic) (finished int) {
	finished = t.Memory.Drop()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byName, t.Name)
	if parent, companion := storekit.Companion(t.Name); companion != "" {
		left := slices.DeleteFunc(r.companions[parent], func(c *Topic) bool { return c == t })
		if r.companions[parent] = left; len(left) == 0 {
			delete(r.companions, parent)
		}
	}
	return finished
}

// Family returns the topic of a name and its companions. It is empty if there is no such topic.
func (r *Registry) Family(name string) []*Topic {
	r.mu.RLock()
	defer r.mu.RUnlock()
	t := r.byName[name]
	if t == nil {
		return nil
	}
	return append([]*Topic{t}, r.companions[name]...)
}

// Names returns the names of the topics that q selects, sorted.
func (r *Registry) Names(q storekit.NameQuery) []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := []string{}
	for name := range r.byName {
		if strings.HasPrefix(name, q.Prefix) && strings.HasSuffix(name, q.Suffix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// NewCompanions returns the names of the companions that were added since a mark, sorted, and the
// mark for the next call.
func (r *Registry) NewCompanions(a storekit.Arrival) storekit.Companions {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c := storekit.Companions{Names: []string{}, Mark: a.Mark(r.added)}
	if a.First || a.Same && a.Since == r.added {
		return c
	}
	for _, of := range r.companions {
		for _, t := range of {
			if !a.Same || t.number > a.Since {
				c.Names = append(c.Names, t.Name)
			}
		}
	}
	slices.Sort(c.Names)
	return c
}

// All returns the topics, in no order.
func (r *Registry) All() []*Topic {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Collect(maps.Values(r.byName))
}
