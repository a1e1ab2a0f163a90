package ledger

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// seenClaims is a store in memory that records the topics of its claims.
type seenClaims struct {
	*memstore.Store
	mu   sync.Mutex
	seen [][]string // guarded by mu
}

func (s *seenClaims) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	s.mu.Lock()
	s.seen = append(s.seen, slices.Clone(c.Topics))
	s.mu.Unlock()
	return s.Store.Claim(ctx, c)
}

// ClaimTopics bounds the claims of the worker as well as the plain ones. The time is virtual.
func TestClaimTopicsBoundsAllClaims(t *testing.T) {
	for most, want := range map[int][]string{0: {"work0", "work1", "work2"}, 1: {"work0"}, 2: {"work0", "work1"}} {
		synctest.Test(t, func(t *testing.T) {
			s := &seenClaims{Store: memstore.New(nil)}
			defer s.Close()
			ctx, end := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer end()
			w := &Workload{Store: s, Process: 1, Seed: 1, Pause: 2 * time.Millisecond, Worker: true, ClaimTopics: most, Emit: func(Line) {}}
			w.Run(ctx)
			var worked []string
			for _, topics := range s.seen {
				if most > 0 && len(topics) > most {
					t.Errorf("with ClaimTopics %d a claim names %q", most, topics)
				}
				for _, topic := range topics {
					if topic[0] == 'w' && !slices.Contains(worked, topic) {
						worked = append(worked, topic)
					}
				}
			}
			if slices.Sort(worked); !slices.Equal(worked, want) {
				t.Errorf("with ClaimTopics %d the worker claims from %q; want %q", most, worked, want)
			}
		})
	}
}

// A whole patch leaves no setting out but those that are fixed, so that it makes any settings out
// of any others. The ledger relies on that.
func TestWholePatch(t *testing.T) {
	patch := reflect.ValueOf(wholePatch(punctual.DefaultSettings()))
	for i := range patch.NumField() {
		name := patch.Type().Field(i).Name
		if set := !patch.Field(i).IsNil(); set != (name != "Partitions" && name != "Keyed" && name != "If") {
			t.Errorf("wholePatch sets %s: %v", name, set)
		}
	}
}
