package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/schedule"
)

const scheduleSyncHelp = `Sync makes the schedules of a store those that a file declares. The file is YAML, or JSON:

  topic: reports              # for the schedules that name none
  topics: [sync]              # more topics where undeclared schedules are looked for
  schedules:
    - name: daily
      spec: 0 9 * * MON-FRI
      zone: Europe/Berlin
      body: {report: daily}
    - {topic: sync, name: often, spec: "@every 90s", overlap: allow}

The other members of a schedule are those of the HTTP interface: from, until, except, spread,
overlap, missed, grace, limit, max_dead, headers, max_attempts, expire, drop_expired,
%s.
What the file leaves out has its default. An expression that begins with * needs quotes.

--prune says what becomes of schedules of the same topics that are no longer declared: keep leaves
them, pause pauses them until they are declared again, delete removes them. The whole file is
checked before anything is changed, and the same file again changes nothing.`

// syncedBy is the name under which sync pauses a schedule that is no longer declared.
const syncedBy = "punctual schedule sync"

func newScheduleSync(a *app) *cobra.Command {
	prune, dialect, dry := "keep", "", false
	cmd := &cobra.Command{
		Use:   "sync FILE|-",
		Short: "Make the schedules those that a file declares",
		Long:  fmt.Sprintf(scheduleSyncHelp, strings.Join(wire.AttributeNames(), ", ")),
		Example: `  punctual schedule sync schedules.yaml --dry-run
  punctual schedule sync schedules.yaml --prune pause
  punctual schedule sync - --prune delete < schedules.yaml`,
	}
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		if !slices.Contains([]string{"keep", "pause", "delete"}, prune) {
			return usagef("--prune %q: use keep, pause or delete", prune)
		}
		text, err := a.readFile(args[0])
		if err != nil {
			return err
		}
		d, err := readDeclared(text, a.now(), func(name, spec string) (string, error) { return a.translated(name, spec, dialect) })
		if err != nil {
			return usagef("%s: %v", args[0], err)
		}
		return a.withSchedules(ctx, !dry, func(q *punctual.Queue) error { return a.sync(ctx, q, d, prune, dry) })
	})
	cmd.Flags().StringVar(&prune, "prune", "keep", "what becomes of schedules that are no longer declared: `keep|pause|delete`")
	dialectFlag(cmd.Flags(), &dialect)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would be done, and do nothing")
	return cmd
}

// readFile reads a file that an argument names, or standard input.
func (a *app) readFile(name string) ([]byte, error) {
	if name == "-" {
		text, err := io.ReadAll(a.in)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return text, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, usagef("%v", err)
	}
	return text, nil
}

// declared is what a file declares.
type declared struct {
	schedules []schedule.Schedule
	topics    []string // where schedules are looked for that are not declared; sorted
}

// declaredItem is one schedule of a file.
type declaredItem struct {
	Topic wire.Given `json:"topic,omitzero"`
	Name  wire.Given `json:"name,omitzero"`
	wire.ScheduleItem
}

// readDeclared reads a file, and checks each of its schedules. What it would not read is an error
// (a second document, a key that comes twice, a value of the wrong type), because --prune delete
// removes the schedules that the file seems not to declare.
func readDeclared(text []byte, now time.Time, translate func(name, spec string) (string, error)) (d declared, err error) {
	keys, err := readYAML(text)
	switch {
	case err != nil && unquoted.Match(text):
		return d, fmt.Errorf("%w; an expression that begins with * or @ needs quotes: spec: \"*/5 * * * *\"", err)
	case err != nil:
		return d, err
	case len(keys) == 0:
		return d, errors.New("it is empty: declare schedules, or write 'schedules: []'")
	}
	var topic string
	var items []yaml.Node
	for name, value := range keys {
		into, known := map[string]any{"topic": &topic, "topics": &d.topics, "schedules": &items}[name]
		if !known {
			return d, fmt.Errorf("line %d: unknown key %q: use topic, topics and schedules", value.Line, name)
		}
		if name != "schedules" {
			asWritten(&value)
		}
		if err := value.Decode(into); err != nil {
			return d, fmt.Errorf("%s: %w", name, inYAML(err))
		}
	}
	if _, given := keys["topic"]; given && topic == "" || slices.Contains(d.topics, "") {
		return d, errors.New("a topic is empty: write it like topic: reports")
	}
	if items == nil {
		return d, errors.New("there is no list of schedules: write 'schedules:' and a list, or 'schedules: []'")
	}
	if topic != "" {
		d.topics = append(d.topics, topic)
	}
	lines := make(map[[2]string]int)
	for i := range items {
		line := items[i].Line
		s, err := readDeclaredItem(&items[i], topic)
		if err == nil {
			s.Spec, err = translate(s.Name, s.Spec)
		}
		if err == nil {
			_, err = s.Preview(now, 0)
		}
		if err != nil {
			return d, fmt.Errorf("line %d: %s", line, strings.TrimSuffix(err.Error(), ": "+punctual.ErrInvalid.Error()))
		}
		name := [2]string{s.Topic, s.Name}
		if first := lines[name]; first != 0 {
			return d, fmt.Errorf("line %d: %s in %s stands on line %d already", line, s.Name, s.Topic, first)
		}
		lines[name] = line
		d.topics = append(d.topics, s.Topic)
		d.schedules = append(d.schedules, s)
	}
	slices.Sort(d.topics)
	d.topics = slices.Compact(d.topics)
	return d, nil
}

// unquoted finds expressions that YAML reads as an alias, or not at all.
var unquoted = regexp.MustCompile(`spec:\s*[*@]`)

func readDeclaredItem(item *yaml.Node, topic string) (s schedule.Schedule, err error) {
	var value any
	var d declaredItem
	asWritten(item)
	if err := item.Decode(&value); err != nil {
		return s, inYAML(err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return s, err
	}
	if err := wire.DecodeRequest(text, &d); err != nil {
		return s, err
	}
	return d.Schedule(cmp.Or(string(d.Topic), topic), string(d.Name))
}

// asWritten makes each value of a schedule the text that stands there, unless it is a whole number
// or a boolean as JSON writes them, because YAML would make a time of 2026-12-24. The value of
// body, and what an alias stands for, stay what YAML makes of them.
func asWritten(n *yaml.Node) {
	switch tag := n.ShortTag(); {
	case n.Kind == yaml.MappingNode:
		for i := 1; i < len(n.Content); i += 2 {
			if n.Content[i-1].Value != "body" {
				asWritten(n.Content[i])
			}
		}
	case n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			asWritten(item)
		}
	case n.Kind == yaml.ScalarNode && (tag != "!!int" && tag != "!!bool" || !json.Valid([]byte(n.Value))):
		n.Tag = "!!str"
	}
}

// sync makes the schedules of the store those that a file declares, or with dry only prints what it
// would do.
func (a *app) sync(ctx context.Context, q *punctual.Queue, d declared, prune string, dry bool) error {
	there := make(map[[2]string]schedule.Info)
	for _, topic := range d.topics {
		for s, err := range schedule.List(ctx, q, schedule.Query{Topic: topic}) {
			if err != nil {
				return err
			}
			there[[2]string{s.Topic, s.Name}] = s
		}
	}
	for i := range d.schedules {
		s := &d.schedules[i]
		name := [2]string{s.Topic, s.Name}
		old, known := there[name]
		delete(there, name)
		if err := a.syncOne(ctx, q, s, &old, known, dry); err != nil {
			return err
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(there), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		old := there[name]
		if err := a.prune(ctx, q, &old, prune, dry); err != nil {
			return err
		}
	}
	return nil
}

// syncOne puts one schedule, and resumes it if an earlier sync has paused it.
func (a *app) syncOne(ctx context.Context, q *punctual.Queue, s *schedule.Schedule, old *schedule.Info, known, dry bool) error {
	result := "new"
	switch {
	case known && s.Same(old.Schedule):
		result = "unchanged"
	case known:
		result = "changed"
	}
	resume := known && old.Paused != nil && old.Paused.By == syncedBy
	if resume {
		result = "resumed"
	}
	if !dry {
		status, err := schedule.Put(ctx, q, *s)
		if err != nil {
			return err
		}
		if resume {
			err = schedule.Resume(ctx, q, s.Topic, s.Name, false)
		} else {
			result = putWord(status)
		}
		if err != nil {
			return err
		}
	}
	p, err := s.Preview(a.now(), 0)
	if err != nil {
		return err
	}
	a.warn(s.Name, p.Warnings)
	return a.printScheduleResult(s.Topic, s.Name, result, p.Words)
}

// prune does what --prune asks for with a schedule that is no longer declared.
func (a *app) prune(ctx context.Context, q *punctual.Queue, s *schedule.Info, prune string, dry bool) error {
	result, do := "kept", func() error { return nil }
	switch {
	case prune == "pause" && s.Paused == nil:
		result, do = "paused", func() error { return schedule.Pause(ctx, q, s.Topic, s.Name, syncedBy, "no longer declared") }
	case prune == "delete":
		result, do = "removed", func() error { return schedule.Delete(ctx, q, s.Topic, s.Name) }
	}
	if !dry {
		if err := do(); err != nil && !errors.Is(err, punctual.ErrNotFound) {
			return err
		}
	}
	return a.printScheduleResult(s.Topic, s.Name, result, "")
}
