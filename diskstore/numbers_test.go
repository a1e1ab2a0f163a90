package diskstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/storekit"
)

// TestNumbersAtTheirEdges starts the counters of the database shortly before a place where a
// narrower or signed number would wrap, and takes a store past that place, and also starts counters
// near their last numbers. Messages, leases and acks are still told apart, also after a kill.
func TestNumbersAtTheirEdges(t *testing.T) {
	for _, edge := range []uint64{1 << 8, 1 << 16, 1 << 31, 1 << 32, 1 << 53, 1 << 62} {
		t.Run(fmt.Sprintf("at %d", edge), func(t *testing.T) {
			start := edge - 6
			acrossAnEdge(t, map[string]uint64{"seq": start, "txn": start, "token": start})
		})
	}
	// Lease tokens are left out here, because they are signed.
	t.Run("message and transaction numbers at 2^63", func(t *testing.T) {
		acrossAnEdge(t, map[string]uint64{"seq": 1<<63 - 6, "txn": 1<<63 - 6})
	})
	t.Run("the last blocks", func(t *testing.T) {
		acrossAnEdge(t, map[string]uint64{
			"seq": math.MaxUint64 - 8*database.NumberBlock, "txn": math.MaxUint64 - 100, "token": math.MaxInt64 - 4*memory.TokenBlock,
		})
	})
	for _, last := range []uint32{1<<8 - 2, 1<<16 - 2, 1<<31 - 2, lastTopic - 5} {
		t.Run(fmt.Sprintf("topics from %d", last), func(t *testing.T) {
			acrossAnEdge(t, map[string]uint64{"topic": uint64(last)})
		})
	}
}

// setMeta changes numbers in the database of a closed store.
func setMeta(t *testing.T, fs vfs.FS, dir string, values map[string]uint64) {
	t.Helper()
	db, err := pebble.Open(dir, &pebble.Options{FS: fs, Logger: noLog{}})
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range values {
		value := binary.BigEndian.AppendUint64(nil, v)
		if name == "topic" || name == "version" {
			value = value[4:]
		}
		err = errors.Join(err, db.Set(append([]byte{'M'}, name...), value, pebble.Sync))
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

type noLog struct{}

func (noLog) Infof(string, ...any)  {}
func (noLog) Errorf(string, ...any) {}
func (noLog) Fatalf(string, ...any) {}

// acrossAnEdge sets counters of a new store, uses it, uses it again after a kill, and a third time
// after a close.
func acrossAnEdge(t *testing.T, meta map[string]uint64) {
	mem, clock := vfs.NewCrashableMem(), storekit.NewManualClock(testStart)
	closeStore(t, openAt(t, "store", &Options{fs: mem, Clock: clock}))
	setMeta(t, mem, "store", meta)
	s := openAt(t, "store", &Options{fs: mem, Clock: clock})
	var tokens []int64
	use := func(when string) {
		t.Helper()
		for _, topic := range []string{"a", "b", "c"} {
			for i := range 3 {
				push(t, s, punctual.NewMessage{Topic: topic, ID: fmt.Sprint(when, i), MaxAttempts: 5})
			}
			ds := claim(t, s, topic, 2)
			if len(ds) != 2 {
				t.Fatalf("P1: %s %d of 2 messages of topic %s came", when, len(ds), topic)
			}
			for _, d := range ds {
				if n := len(tokens); n > 0 && d.Token <= tokens[n-1] {
					t.Fatalf("P4: %s a token is %d, after %d", when, d.Token, tokens[n-1])
				}
				tokens = append(tokens, d.Token)
			}
			if err := settle(t, s, ds[0], punctual.SettleAck); err != nil {
				t.Errorf("%s ack: %v", when, err)
			}
			if err := settle(t, s, ds[1], punctual.SettleExtend); err != nil {
				t.Errorf("%s extend: %v", when, err)
			}
			clock.Advance(time.Second)
		}
	}
	use("new")
	s = openAt(t, "store", &Options{fs: afterKill(mem), Clock: clock})
	use("killed")
	mem = s.opt.fs.(*vfs.MemFS)
	closeStore(t, s)
	s = openAt(t, "store", &Options{fs: mem, Clock: clock})
	use("closed")
	if r := mustBeSound(t, s); r.Live != 3*3*2 || r.Topics != 3 {
		t.Errorf("%d messages in %d topics are left of 27, 9 of them acked", r.Live, r.Topics)
	}
}

// lastTopic is the last number that a topic gets which is no companion of events.
const lastTopic = math.MaxUint32 - database.SpareTopics - 1

// TestTopicNumbersRunOut: when only the spare numbers are left (database.SpareTopics), a new topic
// is refused, because those are kept for companions of events, which cannot be refused. Topics that
// exist go on, and such a companion still comes into being.
func TestTopicNumbersRunOut(t *testing.T) {
	mem := vfs.NewCrashableMem()
	closeStore(t, openAt(t, "store", &Options{fs: mem}))
	setMeta(t, mem, "store", map[string]uint64{"topic": lastTopic})
	s := openAt(t, "store", &Options{fs: mem})
	push(t, s, punctual.NewMessage{Topic: "last", ID: "a"})
	for _, when := range []string{"", " after a kill"} {
		rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "new", ID: "a"}, {Topic: "last", ID: "b" + when}})
		if err != nil {
			t.Fatal(err)
		}
		if !errors.Is(rs[0].Err, punctual.ErrNoSpace) || rs[1].Err != nil {
			t.Errorf("pushed to a new topic%s: %v, want ErrNoSpace; to the last one: %v", when, rs[0].Err, rs[1].Err)
		}
		if _, err := s.Configure(t.Context(), "new", punctual.SettingsPatch{}); !errors.Is(err, punctual.ErrNoSpace) {
			t.Errorf("configure of a new topic%s: %v, want ErrNoSpace", when, err)
		}
		// The topic of events still gets a number, because the change of which an event tells has
		// happened.
		if _, err := s.Configure(t.Context(), "last", punctual.SettingsPatch{Emit: ptr(punctual.EventPushed)}); err != nil {
			t.Fatal(err)
		}
		push(t, s, punctual.NewMessage{Topic: "last", ID: "told" + when})
		if st, err := s.Stats(t.Context(), "last@events"); err != nil || st.Live() == 0 {
			t.Errorf("with no number left for a new topic%s a push was not told of: %+v, %v", when, st, err)
		}
		mustBeSound(t, s)
		s = openAt(t, "store", &Options{fs: afterKill(mem)})
	}
}
