package cli

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/event"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
)

// onDisk runs a command line with the kinds of stores that users have, and with input on standard
// input.
func onDisk(t *testing.T, input string, args ...string) result {
	t.Helper()
	var out, errs buffer
	code := newApp(Streams{In: strings.NewReader(input), Out: &out, Err: &errs, Getenv: func(string) string { return "" }}).run(t.Context(), args)
	return result{t, args, code, out.String(), errs.String()}
}

// house makes a store with the topic jobs, which has a dead message, one that failed once, a
// scheduled one that is due at base, and a ready one.
func house(t *testing.T, dir string) (base time.Time) {
	t.Helper()
	s, err := diskstore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx := t.Context()
	lease, most := 2*time.Second, 3
	if _, err := s.Configure(ctx, "jobs", punctual.SettingsPatch{Lease: &lease, MaxAttempts: &most}); err != nil {
		t.Fatal(err)
	}
	base = time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	settled := func(verb punctual.Verb, delay time.Duration) {
		t.Helper()
		ds, err := s.Claim(ctx, punctual.Claim{Topics: []string{"jobs"}, Max: 1, Wait: 10 * time.Second})
		if err != nil || len(ds) != 1 {
			t.Fatalf("%v, %v", ds, err)
		}
		errs, err := s.Settle(ctx, []punctual.Settlement{{Topic: "jobs", ID: ds[0].ID, Token: ds[0].Token, Verb: verb, Delay: delay, Error: "no such customer"}})
		if err != nil || errs[0] != nil {
			t.Fatal(errs, err)
		}
	}
	pushed := func(m punctual.NewMessage) {
		t.Helper()
		m.Topic = "jobs"
		if rs, err := s.Push(ctx, []punctual.NewMessage{m}); err != nil || rs[0].Err != nil {
			t.Fatal(rs, err)
		}
	}
	pushed(punctual.NewMessage{ID: "dead"})
	settled(punctual.SettleDiscard, 0)
	pushed(punctual.NewMessage{ID: "tried", MaxAttempts: 5})
	settled(punctual.SettleRetry, 2*time.Hour)
	pushed(punctual.NewMessage{ID: "ahead", Body: []byte{0xff, 0}, Headers: map[string]string{"k": "v"}, Due: base, ExpireAfter: time.Minute, DropExpired: true, Remember: time.Hour})
	pushed(punctual.NewMessage{ID: "ready", Body: []byte("now")})
	return base
}

// A copy by way of Redis has the messages and settings of the original. It can be made again, and
// then changes nothing.
func TestCopy(t *testing.T) {
	server := redisrig.Start(t)
	dir, back := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "back")
	base := house(t, dir)
	redis := "redis://" + server.Addr
	onDisk(t, "", "copy", dir, redis, "--json").ok().printsJSON(
		`{"topic":"jobs","dry_run":true,"from":3,"from_dead":1,"stored":0,"kept":0,"histories":0,"to":0,"notes":["1 dead messages are not copied: see --dead"]}`)
	onDisk(t, "", "stats", "--store", redis).exits(exitError, "no store in this Redis") // nothing was made
	onDisk(t, "", "copy", dir, redis, "--yes").exits(exitUsage, "requeue them", "--dead leave")
	onDisk(t, "", "copy", dir, redis, "--yes", "--dead", "leave").exits(exitUsage, "not paused", "--pause")
	onDisk(t, "", "copy", dir, redis, "--yes", "--dead", "leave", "--pause", "--json").ok().printsJSON(
		`{"topic":"jobs","dry_run":false,"from":3,"from_dead":1,"stored":3,"kept":0,"histories":1,"to":3,"notes":["1 dead messages are not copied: see --dead","1 messages came without the history of their failed attempts"]}`)
	onDisk(t, "", "copy", dir, redis, "--yes", "--dead", "leave", "--json").ok().printsJSON(
		`{"topic":"jobs","dry_run":false,"from":3,"from_dead":1,"stored":0,"kept":3,"histories":0,"to":3,"notes":["1 dead messages are not copied: see --dead"]}`)
	onDisk(t, "", "copy", redis, back, "--yes", "--pause").ok()
	s, err := diskstore.Open(back, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	get := func(id string) punctual.Info {
		t.Helper()
		m, err := s.Get(t.Context(), "jobs", id)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := get("ahead"); string(m.Body) != "\xff\x00" || m.Headers["k"] != "v" || !m.Due.Equal(base) || !m.Expires.Equal(base.Add(time.Minute)) || !m.DropExpired || m.Remember != time.Hour || m.State != punctual.StateScheduled {
		t.Errorf("%+v", m)
	}
	if m := get("ready"); m.State != punctual.StateReady || string(m.Body) != "now" {
		t.Errorf("%+v", m)
	}
	if m := get("tried"); m.State != punctual.StateScheduled || m.MaxAttempts != 4 || m.Attempt != 0 {
		t.Errorf("of 5 attempts 4 are left: %+v", m)
	}
	if m, err := s.Get(t.Context(), "jobs", "dead"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("the dead message was copied: %+v, %v", m, err)
	}
	if st, err := s.Settings(t.Context(), "jobs"); err != nil || st.Lease != 2*time.Second || st.MaxAttempts != 3 || st.PushPaused || st.DeliveryPaused {
		t.Errorf("%+v, %v", st, err)
	}
}

// An error behind the first change of TO is not definite: the settings of a topic were copied, and
// the next topic takes no pushes.
func TestCopyThatIsCutShortIsNotDefinite(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	for _, topic := range []string{"a", "b"} {
		onDisk(t, "", "push", topic, "x", "--id", "1", "--in", "1h", "--store", from).ok()
	}
	onDisk(t, "", "topic", "set", "b", "--lease", "1m", "--store", to).ok()
	onDisk(t, "", "topic", "pause", "b", "--push", "--store", to).ok()
	onDisk(t, "", "copy", from, to, "--yes", "--pause", "--json").exits(exitError, "topic b: settings: the topic is paused in TO", "messages copied before that: 1; repeat the command").failsWith("paused", false)
}

// A companion is copied, although pushes to it cannot be paused.
func TestCopyOfCompanions(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	onDisk(t, "", "push", "orders@notes", "call back", "--id", "a", "--in", "1h", "--store", from).ok()
	onDisk(t, "", "copy", from, to, "--yes").exits(exitUsage, "not paused", "--pause")
	onDisk(t, "", "copy", from, to, "--yes", "--pause").ok().contains("orders@notes")
	onDisk(t, "", "get", "a", "--topic", "orders@notes", "--store", to).ok().contains("call back")
	onDisk(t, "", "copy", from, to, "--yes").ok() // again, without --pause
}

// A copy carries each event that nobody has read to TO once, though TO has events of its own with
// the same numbers, tells of nothing that FROM has told of, and made again it changes nothing.
// Afterwards TO tells of events, and none takes the place of a copied one.
func TestCopyOfEvents(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	counted := func(store string, f func(s *diskstore.Store)) (events map[string]int, ids map[string]bool) {
		t.Helper()
		s, err := diskstore.Open(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		f(s)
		events, ids = make(map[string]int), make(map[string]bool)
		for m, err := range punctual.NewQueue(s, nil).List(t.Context(), punctual.ListQuery{Topic: "jobs@events", State: punctual.StateReady}) {
			if err != nil {
				t.Fatal(err)
			}
			e, err := event.Parse(m.Body)
			if err != nil {
				t.Fatal(err)
			}
			events[e.Event.String()+" "+e.ID]++
			ids[m.ID] = true
		}
		return events, ids
	}
	push := func(prefix string) func(s *diskstore.Store) {
		return func(s *diskstore.Store) {
			emit := punctual.EventPushed | punctual.EventCancelled
			if _, err := s.Configure(t.Context(), "jobs", punctual.SettingsPatch{Emit: &emit}); err != nil {
				t.Fatal(err)
			}
			for i := range 50 {
				m := punctual.NewMessage{Topic: "jobs", ID: fmt.Sprint(prefix, i), Delay: time.Hour}
				if rs, err := s.Push(t.Context(), []punctual.NewMessage{m}); err != nil || rs[0].Err != nil {
					t.Fatal(rs, err)
				}
				if i%2 == 0 {
					continue
				}
				if as, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "jobs", ID: m.ID}}); err != nil || as[0].Err != nil {
					t.Fatal(as, err)
				}
			}
		}
	}
	want, fromIDs := counted(from, push("a"))
	theirs, toIDs := counted(to, push("b"))
	same := 0
	for id := range toIDs {
		if fromIDs[id] {
			same++
		}
	}
	if len(want) != 75 || len(theirs) != 75 || same == 0 {
		t.Fatalf("%d and %d events, %d IDs in both: the case needs 75 and events with the same ID", len(want), len(theirs), same)
	}
	maps.Copy(want, theirs)
	for i := range 2 {
		onDisk(t, "", "copy", from, to, "--yes", "--pause").ok()
		if got, _ := counted(to, func(*diskstore.Store) {}); !maps.Equal(got, want) {
			t.Fatalf("copy %d: TO has %d events, want each of %d once: %v", i+1, len(got), len(want), got)
		}
	}
	for i := range 60 {
		want[fmt.Sprint("pushed c", i)] = 1
	}
	got, _ := counted(to, func(s *diskstore.Store) {
		for i := range 60 {
			m := punctual.NewMessage{Topic: "jobs", ID: fmt.Sprint("c", i), Delay: time.Hour}
			if rs, err := s.Push(t.Context(), []punctual.NewMessage{m}); err != nil || rs[0].Err != nil {
				t.Fatal(rs, err)
			}
		}
	})
	if !maps.Equal(got, want) {
		t.Errorf("after 60 pushes TO has %d events, want %d: %v", len(got), len(want), got)
	}
}

// A message that has used up its attempts and was not claimed since, so that it is not dead yet,
// has one attempt in TO.
func TestCopyOfUsedUpAttempts(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	s, err := diskstore.Open(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "jobs", ID: "a", MaxAttempts: 1}, {Topic: "jobs", ID: "b", MaxAttempts: 3}}); err != nil {
		t.Fatal(err)
	}
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"jobs"}, Max: 2, Lease: 10 * time.Millisecond, Wait: 10 * time.Second}) // due within a millisecond
	if err != nil || len(ds) != 2 {
		t.Fatal(ds, err)
	}
	for {
		m, err := s.Get(t.Context(), "jobs", "a")
		if err != nil || m.Attempt != 1 {
			t.Fatalf("%+v, %v; want a message with its only attempt used up", m, err)
		}
		if m.State == punctual.StateReady {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	onDisk(t, "", "copy", from, to, "--yes", "--pause").ok()
	onDisk(t, "", "get", "a", "--topic", "jobs", "--json", "--store", to).ok().contains(`"max_attempts":1`)
	onDisk(t, "", "get", "b", "--topic", "jobs", "--json", "--store", to).ok().contains(`"max_attempts":2`)
}

// A copy is refused while somebody holds a lease, and when stores, flags or topics are wrong.
func TestCopyRefuses(t *testing.T) {
	dir, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	house(t, dir)
	s, err := diskstore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"jobs"}, Max: 1, Lease: time.Hour, Wait: 10 * time.Second}); err != nil || len(ds) != 1 {
		t.Fatal(ds, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	onDisk(t, "", "copy", dir, to, "--yes", "--dead", "leave", "--pause").exits(exitUnwished, "being worked on", "wait")
	for _, args := range [][]string{
		{dir, dir}, {dir, "mem:"}, {dir, to, "--yes", "--dry-run"}, {dir, to, "--dead", "no"}, {dir, to, "--topic", "a b"}, {dir, to, "--store", dir},
	} {
		onDisk(t, "", append([]string{"copy"}, args...)...).exits(exitUsage)
	}
	onDisk(t, "", "copy", dir, to, "--topic", "none").exits(exitUnwished, "no topic none")
	onDisk(t, "", "copy", filepath.Join(dir, "none"), to).exits(exitError, "no store at")
}

// The lines that list --json prints can be pushed; the line of a dead message is refused.
func TestListIsReadByPush(t *testing.T) {
	dir, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	base := house(t, dir)
	lines := onDisk(t, "", "list", "jobs", "--json", "--limit", "0", "--store", dir).ok().out
	onDisk(t, lines, "push", "--ndjson", "--store", to).exits(exitError, `the message is dead`, "1 of 4 lines")
	m := decode(t, onDisk(t, "", "get", "ahead", "--json", "--store", to).ok().out).(map[string]any)
	if m["body_base64"] != "/wA=" || m["due"] != stamp(base) || m["expires"] != stamp(base.Add(time.Minute)) || m["drop_expired"] != true || m["remember"] != "1h" {
		t.Errorf("%v", m)
	}
}
