package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/settings"
)

// Every setting can be changed on the command line, and 'topic show' shows it, with --json in the
// JSON of the HTTP interface. Tests of storetest show that stores keep the settings, and tests of
// internal/settings that the documents have them.
func TestEverySettingIsOnTheCommandLine(t *testing.T) {
	values := map[settings.Kind]string{settings.Duration: "77m", settings.Count: "7", settings.Truth: "true", settings.Backoff: "5s,6s", settings.List: "billing,mail", settings.Events: "acked,dead", settings.Rate: "10/1s"}
	for _, row := range settings.Table {
		r := newRig(t)
		want := punctual.DefaultSettings()
		var p punctual.SettingsPatch
		line := []string{"topic", "set", "t", "--" + row.Flag() + "=" + values[row.Kind()]}
		value := values[row.Kind()]
		switch {
		case row.Pause: // by a command of its own
			line = []string{"topic", "pause", "t", "--" + strings.TrimSuffix(row.Flag(), "-paused")}
			r.run("topic", "set", "t", "--lease", "30s").ok()
		case row.Needs == settings.DividedTopics: // a store in memory has one partition
			line[3], value = "--"+row.Flag()+"="+row.Default(), row.Default()
		case row.Needs == settings.KeyedTopics && !row.Fixed: // they need a topic with keys
			line, want.Keyed = append(line, "--keyed"), true
		}
		if err := row.Parse(&p, value); err != nil {
			t.Fatal(err)
		}
		row.Apply(&want, &p)
		shown, err := jsonLine(settingsJSON{"t", want})
		if err != nil {
			t.Fatal(err)
		}
		r.run(line...).ok()
		r.run("topic", "show", "t", "--json").ok().printsJSON(string(shown))
		if !strings.Contains(string(shown), fmt.Sprintf(`,"%s":%s`, row.Name, row.JSON(&want))) {
			t.Errorf("%s is not in %s", row.Name, shown)
		}
		if !row.Pause {
			r.run("topic", "show", "t").ok().contains(row.Words(), row.Shown(&want))
		}
	}
}

// A bad value of a setting is refused with the text that the server and the console have for it.
func TestBadSettings(t *testing.T) {
	for _, row := range settings.Table {
		for _, text := range []string{"", "sometimes", "0", "-1", "-1s", "1000001", "3x", "99999d", "1s,-1s", "exp:2s..1s"} {
			var p punctual.SettingsPatch
			want := row.Parse(&p, text)
			if want == nil {
				set := punctual.DefaultSettings()
				row.Apply(&set, &p)
				want = row.Check(&set)
			}
			if want != nil && !row.Pause {
				newRig(t).run("topic", "set", "t", "--"+row.Flag()+"="+text).exits(exitUsage, strings.TrimSuffix(want.Error(), ": "+punctual.ErrInvalid.Error())).prints("")
			}
		}
	}
}

// UnmarshalJSON reads what MarshalJSON writes, for the examples in docs/cli-formats.md.
func (s *settingsJSON) UnmarshalJSON(text []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	var p punctual.SettingsPatch
	for name, value := range members {
		row := settings.Find(name)
		switch {
		case name == "topic":
			if err := json.Unmarshal(value, &s.Topic); err != nil {
				return err
			}
		case row == nil:
			return fmt.Errorf("there is no setting %s", name)
		default:
			if err := row.FromJSON(&p, value); err != nil {
				return err
			}
			row.Apply(&s.Settings, &p)
		}
	}
	return nil
}
