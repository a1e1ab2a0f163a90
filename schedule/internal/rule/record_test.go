package rule

import (
	"bytes"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual/storekit"
)

var update = flag.Bool("update", false, "write the golden file of a version that is not released yet")

// full has every member of version 1.
func full() *Record {
	return &Record{
		V: 1,
		Definition: Definition{
			Timing: Timing{Spec: "0 9 * * MON-FRI", Zone: "Europe/Berlin", From: 1767225600000, Until: 1924991999000, Except: []string{"12-25", "2026-12-24"}},
			Spread: 300000, Overlap: OverlapReplace, Missed: MissedAll, Grace: 60000, Limit: 1000, MaxDead: 3,
			Text: `{"report":"daily <all> & sundry"}`, Base64: []byte{0xff, 0}, Headers: map[string]string{"tenant": "acme"},
			MaxAttempts: 5, Expire: 3600000, DropExpired: true, Attributes: NewAttributes(storekit.Attributes{Remember: 24 * time.Hour, Timeout: 5 * time.Minute}),
		},
		State: State{
			Created: 1779000000000, Changed: 1779000001000, Revision: 7, Next: Time{At: 1779087600000, Offset: 7200}, Mark: Time{At: 1779001200000, Offset: 7200},
			Earlier: []Earlier{{Timing: Timing{Spec: "@every 90s", Zone: "UTC", From: 1, Until: 2, Except: []string{"01-01"}}, End: 1779000000500}},
			Skip:    []int64{1779087600000}, SkipTo: 1778990000000, Stored: 41, Missed: 2, Skipped: 1,
			Ran: []int64{1778914800000, 1779001200000}, Left: []Left{{1778828400000, WhyOverlap}}, Watch: 1778000000000,
			Paused: &Pause{At: 1779000001000, By: "anna", Note: "until the API is back"},
		},
	}
}

// The golden file of a released version is never written anew: every later program has to read it.
func TestGoldenRecord(t *testing.T) {
	const file = "testdata/v1.json"
	got, err := full().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want = bytes.TrimSpace(want); !bytes.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r, err := Decode(want)
	if err != nil || !reflect.DeepEqual(r, full()) {
		t.Errorf("read as %+v, %v", r, err)
	}
	for name, v := range map[string]reflect.Value{"definition": reflect.ValueOf(full().Definition), "state": reflect.ValueOf(full().State)} {
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("the golden record lacks %s of the %s", v.Type().Field(i).Name, name)
			}
		}
	}
}

// A program refuses a record with a member that it does not know, because it would lose the member
// when it writes the record.
func TestDecodeRefusesWhatItDoesNotKnow(t *testing.T) {
	for body, want := range map[string]string{
		`{"v":2,"spec":"@daily","state":{}}`:             "version 2 and this program reads 1",
		`{"v":1,"spec":"@daily","colour":1,"state":{}}`:  `unknown field "colour"`,
		`{"v":1,"spec":"@daily","state":{"colour":1}}`:   `unknown field "colour"`,
		`{"v":1,"spec":"@daily","state":{}} {"v":1}`:     "this message is no schedule",
		`{"v":1,"spec":"@daily","state":{"stored":"x"}}`: "this message is no schedule",
		``:      "this message is no schedule",
		`hello`: "this message is no schedule",
		`[]`:    "this message is no schedule",
		`{}`:    "version 0",
	} {
		if r, err := Decode([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want an error with %q", body, r, err, want)
		}
	}
}

// An attribute of a newer program stays in a record that this one writes, and a block that cannot
// be read is refused.
func TestAttributesOfANewerProgram(t *testing.T) {
	const known, newer = `"attributes":"AQSAuJkp`, `"attributes":"AQSAuJkpYwEH"`
	r := full()
	r.Attributes = NewAttributes(storekit.Attributes{Remember: 24 * time.Hour})
	stored, err := r.Encode()
	if err != nil || !bytes.Contains(stored, []byte(known+`"`)) {
		t.Fatalf("this test shows nothing: %s, %v", stored, err)
	}
	stored = bytes.Replace(stored, []byte(known+`"`), []byte(newer), 1)
	back, err := Decode(stored)
	if err != nil || back.Attributes.Remember != 24*time.Hour {
		t.Fatalf("read as %+v, %v", back, err)
	}
	if again, err := back.Encode(); err != nil || !bytes.Equal(again, stored) {
		t.Errorf("written as %s, %v; want %s", again, err, stored)
	}
	if _, err := Decode(bytes.Replace(stored, []byte(newer), []byte(known[:len(known)-3]+`"`), 1)); err == nil {
		t.Error("a block that is cut short was read")
	}
}

func TestBodies(t *testing.T) {
	for _, body := range []string{"", "x", `{"a":[1,2]}`, "\xff\x00", strings.Repeat("\x01", 1000), "héllo <b>&", "\u2028"} {
		r := full()
		r.SetBody([]byte(body))
		stored, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decode(stored); err != nil || string(got.Body()) != body {
			t.Errorf("%q came back as %q, %v", body, got.Body(), err)
		}
		if len(stored) > 1200+len(body)*3/2 {
			t.Errorf("a body of %d bytes is stored in %d", len(body), len(stored))
		}
	}
}
