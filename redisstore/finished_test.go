package redisstore

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/redisstore/internal/topics"
	"github.com/punctualmq/punctual/storekit"
)

// keepFinished sets for how long orders keeps finished records; 0 keeps none any more.
func keepFinished(t testing.TB, s *Store, d time.Duration) {
	t.Helper()
	if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{FinishedRetention: &d}); err != nil {
		t.Fatal(err)
	}
}

// wantFinished fails the test unless orders has a finished record of the ID with that outcome and
// attempt.
func wantFinished(t *testing.T, s *Store, id string, how punctual.Outcome, attempt int) punctual.Finished {
	t.Helper()
	f, err := s.Finished(t.Context(), "orders", id)
	if err != nil || f.Outcome != how || f.Attempt != attempt {
		t.Errorf("the finished record of %s: %+v, %v; want %s, attempt %d", id, f, err, how, attempt)
	}
	return f
}

// cancelAll cancels messages of orders in one call.
func cancelAll(t testing.TB, s *Store, ids ...string) {
	t.Helper()
	var as []punctual.Amendment
	for _, id := range ids {
		as = append(as, punctual.Amendment{Change: punctual.ChangeCancel, Topic: "orders", ID: id})
	}
	out, err := s.Amend(t.Context(), as)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range out {
		if o.Err != nil {
			t.Fatalf("cancel of %s: %v", ids[i], o.Err)
		}
	}
}

// acks returns acks of all deliveries.
func acks(ds []punctual.Delivery) (ss []punctual.Settlement) {
	for _, d := range ds {
		ss = append(ss, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck})
	}
	return ss
}

// settled carries out settlements, and fails the test unless all are done.
func settled(t testing.TB, s *Store, ss []punctual.Settlement) {
	t.Helper()
	errs, err := s.Settle(t.Context(), ss)
	if err = errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
}

// A topic that keeps no finished records has no keys for them, and a program that never met a topic
// with such records does not send their keys.
func TestFinishedRecordsCostNothing(t *testing.T) {
	server := redisrig.Start(t)
	s := openStore(t, connect(t, server), nil)
	other := openStore(t, connect(t, server), nil)
	finish := func(id string) {
		t.Helper()
		push(t, other, punctual.NewMessage{ID: id, Due: time.Unix(1, 0)})
		ack(t, other, claimOne(t, other, 0))
	}
	numbers := func() int {
		got, err := other.client.HMGet(t.Context(), s.names.Partition("orders", 0).Keys()[6], topics.FinishedField).Result()
		if err != nil {
			t.Fatal(err)
		}
		return len(got) - strings.Count(fmt.Sprint(got), "<nil>")
	}
	recordKeys := s.names.Partition("orders", 0).Finished()
	finish("before")
	if numbers() != 0 || do(t, server, "EXISTS", recordKeys[0], recordKeys[1]) != "0" {
		t.Errorf("a topic that keeps no finished records has something for them")
	}
	if _, err := other.Finished(t.Context(), "orders", "before"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("a finished record of a topic that keeps none: %v; want ErrNotFound", err)
	}
	// The other process learns of the setting from a script, once.
	keepFinished(t, s, time.Hour)
	n, _ := scripted(t, server)
	finish("kept")
	first, _ := scripted(t, server)
	finish("too")
	second, _ := scripted(t, server)
	if first-n <= second-first {
		t.Errorf("the first message after the setting took %d scripts, the next one %d; want one more for the first, which has to learn of it", first-n, second-first)
	}
	wantFinished(t, other, "kept", punctual.OutcomeAcked, 1)
	wantFinished(t, s, "too", punctual.OutcomeAcked, 1)
	wantSound(t, s)
}

// P10: finished records are deleted when they are past their retention: in a busy topic as fast as
// new ones come, and also in a topic that nobody changes but consumers claim from. When a topic
// keeps none any more, nothing is left in the end.
func TestFinishedRecordsAreSwept(t *testing.T) {
	for _, batch := range []int{1, script.Items} {
		server := redisrig.Start(t)
		clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
		s := openStore(t, connect(t, server), &Options{clock: clock})
		keepFinished(t, s, time.Millisecond)
		for round := range 8 {
			var ms []punctual.NewMessage
			for i := range batch {
				ms = append(ms, punctual.NewMessage{Topic: "orders", ID: fmt.Sprint(round, "-", i)})
			}
			push(t, s, ms...)
			clock.Advance(10 * time.Millisecond)
			ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: batch})
			if err != nil || len(ds) != batch {
				t.Fatalf("claimed %d, %v; want %d", len(ds), err, batch)
			}
			settled(t, s, acks(ds))
		}
		recordKeys := s.names.Partition("orders", 0).Finished()
		left, err := strconv.Atoi(do(t, server, "HLEN", recordKeys[0]))
		if err != nil || left == 0 || left > 2*batch {
			t.Errorf("P10: batches of %d: %d finished records are there, %v; want those of the last rounds", batch, left, err)
		}
		keepFinished(t, s, 0)
		clock.Advance(time.Minute)
		for sweeps := 0; do(t, server, "EXISTS", recordKeys[0], recordKeys[1]) != "0"; sweeps++ {
			if sweeps == 40 {
				t.Fatalf("P10: batches of %d: after %d sweeps there are finished records", batch, sweeps)
			}
			clock.Advance(time.Millisecond)
			if ds, err := s.Claim(t.Context(), orders(0)); err != nil || len(ds) > 0 {
				t.Fatalf("claimed %v, %v; want nothing", ds, err)
			}
		}
		if got := do(t, server, "HEXISTS", s.names.Partition("orders", 0).Keys()[6], topics.FinishedField); got != "0" {
			t.Errorf("batches of %d: %s is there, though nothing is kept any more", batch, topics.FinishedField)
		}
		wantSound(t, s)
	}
}

// A later finished record of an ID stays when an earlier one is past its retention, whichever IDs
// finished with it, and leaves nothing behind.
func TestFinishedRecordsOfIDsThatComeAgain(t *testing.T) {
	server := redisrig.Start(t)
	clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
	s := openStore(t, connect(t, server), &Options{clock: clock})
	finish := func(keep time.Duration, ids ...string) {
		t.Helper()
		keepFinished(t, s, keep)
		for _, id := range ids {
			push(t, s, punctual.NewMessage{ID: id, Delay: time.Hour})
		}
		cancelAll(t, s, ids...)
		clock.Advance(time.Second)
		wantSound(t, s)
	}
	finish(time.Minute, "a", "b", "c")
	finish(2*time.Minute, "a", "b")
	finish(3*time.Minute, "a")
	finish(4*time.Minute, "a", "b", "c")
	finish(time.Minute, "b")
	finish(10*time.Second, "x")
	for _, want := range []string{"a b c x", "a b c", "a c", "a c", "a c", ""} {
		var kept []string
		for _, id := range []string{"a", "b", "c", "x"} {
			if _, err := s.Finished(t.Context(), "orders", id); err == nil {
				kept = append(kept, id)
			}
		}
		if got := strings.Join(kept, " "); got != want {
			t.Errorf("at %v the finished records of %q are kept; want %q", clock.Now(), got, want)
		}
		clock.Advance(50 * time.Second)
		push(t, s, punctual.NewMessage{ID: "sweep", Delay: time.Hour, IfExists: punctual.IfExistsReplace})
		cancelAll(t, s, "sweep")
		wantSound(t, s)
	}
}

// A finished record says when its message was created. Where only long bodies say so, they are read
// in several scripts before any of the messages ends.
func TestFinishedRecordsOfLongMessages(t *testing.T) {
	server := redisrig.Start(t)
	clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
	s := openStore(t, connect(t, server), &Options{clock: clock})
	created := clock.Now()
	body := make([]byte, 600<<10)
	var waiting []string
	for i := range 4 {
		waiting = append(waiting, fmt.Sprint("waiting-", i))
		push(t, s, punctual.NewMessage{ID: waiting[i], Body: body, Delay: time.Hour}, punctual.NewMessage{ID: fmt.Sprint("leased-", i), Body: body})
	}
	push(t, s, punctual.NewMessage{ID: "moved", Body: body, Delay: time.Hour})
	if out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeReschedule, Topic: "orders", ID: "moved", Delay: time.Minute}}); err != nil || out[0].Err != nil {
		t.Fatal(out, err)
	}
	clock.Advance(time.Second)
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 100})
	if err != nil || len(ds) != 4 {
		t.Fatalf("claimed %d, %v; want 4", len(ds), err)
	}
	clock.Advance(time.Second)
	keepFinished(t, s, time.Hour)
	n, _ := scripted(t, server)
	settled(t, s, acks(ds))
	cancelAll(t, s, append(slices.Clone(waiting), "moved")...)
	if n2, _ := scripted(t, server); n2-n < 6 {
		t.Errorf("9 messages of 600 KiB ended in %d scripts; want each to read at most 1 MiB", n2-n)
	}
	for _, id := range waiting {
		if f := wantFinished(t, s, id, punctual.OutcomeCancelled, 0); !f.Created.Equal(created) || !f.Due.Equal(created.Add(time.Hour)) || !f.At.Equal(clock.Now()) {
			t.Errorf("the finished record of %s: %+v", id, f)
		}
	}
	if f := wantFinished(t, s, "moved", punctual.OutcomeCancelled, 0); !f.Created.Equal(created) || !f.Due.Equal(created.Add(time.Minute)) || !f.FirstDue.Equal(f.Due) {
		t.Errorf("the finished record of one that was rescheduled: %+v", f)
	}
	for _, d := range ds {
		if f := wantFinished(t, s, d.ID, punctual.OutcomeAcked, 1); !f.Created.Equal(created) || !f.Delivered.Equal(d.Delivered) {
			t.Errorf("the finished record of %s: %+v; want it delivered at %v", d.ID, f, d.Delivered)
		}
	}
	wantSound(t, s)
	if left := do(t, server, "EXISTS", s.names.Partition("orders", 0).Keys()[4]); left != "0" {
		t.Error("messages are left")
	}
}

// A finished record says when a compact lease began, however long the lease was given for. It also
// says so of other leases, although tokens were ahead of the clock and the topic kept no finished
// records yet.
func TestFinishedRecordsSayWhenLeasesBegan(t *testing.T) {
	for _, general := range []func() bool{nil, always} {
		s, clock := openStill(t, Options{general: general})
		clock.Advance(time.Millisecond) // a claim in a ms in which claims sweep makes no compact lease
		var ds []punctual.Delivery
		for i := range 40 {
			push(t, s, punctual.NewMessage{ID: fmt.Sprint(i)})
			got, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Lease: time.Duration(1+i%4) * time.Minute})
			if err != nil || len(got) != 1 {
				t.Fatalf("claimed %v, %v", got, err)
			}
			if compact := do(t, shared, "HLEN", s.names.Partition("orders", 0).Keys()[5]) == "0"; i == 0 && compact != (general == nil) {
				t.Fatalf("this test shows nothing: the first lease has no state: %v", compact)
			}
			ds = append(ds, got...)
		}
		keepFinished(t, s, time.Hour)
		clock.Advance(time.Second)
		settled(t, s, []punctual.Settlement{{Topic: "orders", ID: ds[1].ID, Token: ds[1].Token, Verb: punctual.SettleExtend, Delay: time.Hour}})
		settled(t, s, acks(ds))
		for _, d := range ds {
			if f := wantFinished(t, s, d.ID, punctual.OutcomeAcked, 1); !f.Delivered.Equal(d.Delivered) {
				t.Errorf("the finished record of %s: its lease began at %v; want %v", d.ID, f.Delivered, d.Delivered)
			}
		}
		wantSound(t, s)
	}
}

// inner returns how many commands a server has carried out for a call, without the scripts
// themselves.
func inner(t *testing.T, server *redisrig.Server, call func()) (n int) {
	t.Helper()
	count := func() (sum int) {
		for _, m := range regexp.MustCompile(`cmdstat_([a-z|]+):calls=([0-9]+)`).FindAllStringSubmatch(do(t, server, "INFO", "commandstats"), -1) {
			if calls, err := strconv.Atoi(m[2]); err == nil && m[1] != "info" && !strings.HasPrefix(m[1], "eval") {
				sum += calls
			}
		}
		return sum
	}
	before := count()
	call()
	return count() - before
}

// The fast path of an ack writes the same finished records as the general one, and deletes as many
// that are past their retention.
func TestFinishedOfFastAcks(t *testing.T) {
	server := redisrig.Start(t)
	told, calls := make(map[bool][]punctual.Finished), make(map[bool]int)
	for _, general := range []bool{false, true} {
		clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
		s := openStore(t, connect(t, server), &Options{Prefix: fresh(), clock: clock, general: func() bool { return general }})
		keep := time.Hour
		if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{FinishedRetention: &keep, DedupeWindow: &keep}); err != nil {
			t.Fatal(err)
		}
		round := func(name string) (ids []string) {
			t.Helper()
			var ms []punctual.NewMessage
			for i := range 70 { // two members of u are full, and one is not
				ids = append(ids, name+strings.Repeat("x", i%3)+strconv.Itoa(i))
				ms = append(ms, punctual.NewMessage{Topic: "orders", ID: ids[i], Due: clock.Now().Add(time.Duration(i) * time.Millisecond)})
			}
			ms[0].Due = time.Unix(-1, 0) // before 1970
			push(t, s, ms...)
			clock.Advance(101 * time.Millisecond)
			var held []punctual.Delivery
			for i := range 2 { // leases of two lengths
				ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 35, Lease: time.Duration(1+i) * time.Minute})
				if err != nil || len(ds) != 35 {
					t.Fatalf("claimed %d, %v; want 35", len(ds), err)
				}
				held = append(held, ds...)
				clock.Advance(2 * time.Second)
			}
			calls[general] = inner(t, server, func() { settled(t, s, acks(held)) })
			return ids
		}
		for _, id := range round("a") {
			f := wantFinished(t, s, id, punctual.OutcomeAcked, 1)
			told[general] = append(told[general], f)
			if !f.KeptUntil.Equal(f.At.Add(keep)) || !f.At.Equal(clock.Now()) {
				t.Errorf("the finished record of %s: %+v; want it to end now and to be kept for an hour", id, f)
			}
		}
		wantSound(t, s)
		clock.Advance(keep)
		round("b")
		recordKeys := s.names.Partition("orders", 0).Finished()
		if n := do(t, server, "HLEN", recordKeys[0]); n != "70" {
			t.Errorf("P10: %s finished records are there, 70 of which are to be kept still", n)
		}
		wantSound(t, s)
	}
	if calls[false] >= calls[true] {
		t.Fatalf("this test shows nothing: the fast path has called %d commands, the general one %d", calls[false], calls[true])
	}
	if !reflect.DeepEqual(told[false], told[true]) {
		t.Errorf("acks by the fast path leave\n%v\nothers\n%v", told[false], told[true])
	}
}

// What must never be is found, too, where finished records are kept.
func TestCheckOfFinished(t *testing.T) {
	server := redisrig.Start(t)
	s := openStore(t, connect(t, server), nil)
	keepFinished(t, s, time.Hour)
	for _, id := range []string{"a", "b", "c"} {
		push(t, s, punctual.NewMessage{ID: id, Delay: time.Hour})
		cancelAll(t, s, id)
	}
	wantSound(t, s)
	recordKeys := s.names.Partition("orders", 0).Finished()
	do(t, server, "HSET", recordKeys[0], "a", "nonsense")
	do(t, server, "ZREM", recordKeys[1], "\x01b")
	do(t, server, "ZADD", recordKeys[1], "1", "\x09ab")
	r, err := s.Check(t.Context(), nil)
	slices.Sort(r.Problems)
	if err != nil || len(r.Problems) != 3 {
		t.Fatalf("Check = %q, %v; want three problems", r.Problems, err)
	}
	for i, want := range []string{"a member of", "message a in punctual:{orders#0}:h has a finished record that cannot be read", "message b in punctual:{orders#0}:h has a finished record that would never be deleted"} {
		if !strings.Contains(r.Problems[i], want) {
			t.Errorf("a problem is %q; want %q", r.Problems[i], want)
		}
	}
	if _, err := s.Finished(t.Context(), "orders", "a"); !errors.Is(err, punctual.ErrCorrupt) {
		t.Errorf("P13: a damaged finished record: %v; want ErrCorrupt", err)
	}
}

// A finished record is found in the partition of its ID, also by a process that knows another
// number of partitions, and it is deleted with its topic.
func TestFinishedRecordsOfPartitions(t *testing.T) {
	server := redisrig.Start(t)
	s := openStore(t, connect(t, server), &Options{Partitions: 8})
	other := openStore(t, connect(t, server), nil)
	finish := func(ids ...string) {
		t.Helper()
		keepFinished(t, s, time.Hour)
		for _, id := range ids {
			push(t, s, punctual.NewMessage{ID: id, Delay: time.Hour})
		}
		cancelAll(t, s, ids...)
	}
	finish("a", "b", "c", "d")
	wantFinished(t, other, "d", punctual.OutcomeCancelled, 0)
	if n, err := s.DeleteTopic(t.Context(), "orders"); err != nil || n != 0 {
		t.Fatalf("DeleteTopic = %d, %v; want 0", n, err)
	}
	for n := range 8 {
		if recordKeys := s.names.Partition("orders", n).Finished(); do(t, server, "EXISTS", recordKeys[0], recordKeys[1]) != "0" {
			t.Errorf("the finished records of partition %d are there although the topic is gone", n)
		}
	}
	three := 3
	if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{Partitions: &three}); err != nil {
		t.Fatal(err)
	}
	finish("a", "b", "c", "d")
	for _, id := range []string{"a", "b", "c", "d"} {
		wantFinished(t, other, id, punctual.OutcomeCancelled, 0)
	}
	wantSound(t, other)
}

// memoryOf returns how much of the server's memory some keys take.
func memoryOf(t *testing.T, server *redisrig.Server, keys ...string) (bytes float64) {
	t.Helper()
	for _, key := range keys {
		n, err := strconv.ParseFloat(do(t, server, "MEMORY", "USAGE", key, "SAMPLES", "0"), 64)
		if err != nil {
			t.Fatal(err)
		}
		bytes += n
	}
	return bytes
}

// P10: a finished record is small. It takes two strings of 32 bytes, what Redis needs for a field
// of a hash, and a share of a member of a set.
func TestBytesOfFinished(t *testing.T) {
	server := redisrig.Start(t, "--appendonly", "no", "--save", "")
	for batch, most := range map[int]float64{1: 300, script.Items: 160} {
		s := openStore(t, connect(t, server), &Options{Prefix: fresh()})
		keep, n := time.Hour, 5*batch+1000
		if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{FinishedRetention: &keep, DedupeWindow: &keep}); err != nil {
			t.Fatal(err)
		}
		for done := 0; done < n; done += batch {
			ms := make([]punctual.NewMessage, batch)
			for i := range ms {
				ms[i] = punctual.NewMessage{Topic: "orders", Due: time.Unix(1, 0)} // its ID has 26 bytes
			}
			push(t, s, ms...)
			ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: batch})
			if err != nil || len(ds) != batch {
				t.Fatalf("claimed %d, %v", len(ds), err)
			}
			settled(t, s, acks(ds))
		}
		p := s.names.Partition("orders", 0)
		perRecord, id := memoryOf(t, server, p.Finished()...)/float64(n), memoryOf(t, server, p.Keys()[3])/float64(n)
		t.Logf("batches of %d: %.0f bytes for a finished record, %.0f for a remembered ID", batch, perRecord, id)
		if perRecord < 60 || perRecord > most {
			t.Errorf("P10: batches of %d: a finished record takes %.0f bytes of the server; want at most %.0f", batch, perRecord, most)
		}
	}
}

// An ack reads all that its finished record will have. So acks of messages with long histories take
// more scripts than others, and each settlement of a call has its own answer all the same.
func TestAcksOfLongHistories(t *testing.T) {
	server := redisrig.Start(t)
	clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
	s := openStore(t, connect(t, server), &Options{Prefix: fresh(), clock: clock})
	keepFinished(t, s, time.Hour)
	const n, failures = 60, 16 // as many as are kept
	var ms []punctual.NewMessage
	for i := range n {
		ms = append(ms, punctual.NewMessage{Topic: "orders", ID: strconv.Itoa(i), MaxAttempts: 100})
	}
	push(t, s, ms...)
	claim := func() []punctual.Delivery {
		t.Helper()
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: n})
		if err != nil || len(ds) != n {
			t.Fatalf("claimed %d, %v; want %d", len(ds), err, n)
		}
		return ds
	}
	for range failures {
		ss := acks(claim())
		for i := range ss {
			ss[i].Verb, ss[i].Delay, ss[i].Error = punctual.SettleRetry, time.Millisecond, strings.Repeat("x", limits.MaxErrorBytes)
		}
		settled(t, s, ss)
		clock.Advance(time.Second)
	}
	ss := acks(claim())
	lost, given := 25, 40 // among the acks are one with a token that was never given, and one message that is given back
	ss[lost].Token++
	ss[given].Verb = punctual.SettleRelease
	before, _ := scripted(t, server)
	errs, err := s.Settle(t.Context(), ss)
	if err != nil {
		t.Fatal(err)
	}
	if after, _ := scripted(t, server); after-before < 5 { // with all that is acked at once it is 3
		t.Errorf("%d scripts acked %d messages whose histories are %d KiB each; want more", after-before, n, failures)
	}
	for i, err := range errs {
		switch {
		case i == lost:
			if !errors.Is(err, punctual.ErrLeaseLost) {
				t.Errorf("with another token: %v; want ErrLeaseLost", err)
			}
		case err != nil:
			t.Errorf("settlement %d: %v", i, err)
		case i != given:
			wantFinished(t, s, ss[i].ID, punctual.OutcomeAcked, failures+1)
		}
	}
	if st, err := s.Stats(t.Context(), "orders"); err != nil || st.Leased != 1 || st.Ready != 1 || st.Scheduled != 0 {
		t.Errorf("%+v, %v; want one leased and one ready", st, err)
	}
	wantSound(t, s)
	clock.Advance(time.Hour)
	push(t, s, punctual.NewMessage{Topic: "orders", ID: "last"}) // each change deletes some finished records
	recordKeys := s.names.Partition("orders", 0).Finished()
	left := do(t, server, "HLEN", recordKeys[0])
	for left != "0" {
		push(t, s, punctual.NewMessage{Topic: "orders", ID: "last", IfExists: punctual.IfExistsReplace})
		now := do(t, server, "HLEN", recordKeys[0])
		if now == left {
			t.Fatalf("P10: %s finished records are never deleted", left)
		}
		left = now
	}
	wantSound(t, s)
}
