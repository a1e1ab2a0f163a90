package packaging

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v4"

	"github.com/punctualmq/punctual/internal/slo"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/metrics/punctualprom"
	"github.com/punctualmq/punctual/storekit"
)

// recorder is a prometheus.Registerer that notes the metrics that are registered, with their
// labels, whether they have series or not.
type recorder struct {
	t       *testing.T
	metrics map[string][]string
}

var describes = regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([^}]*)\}`)

func (r *recorder) Register(c prometheus.Collector) error {
	_, histogram := c.(*prometheus.HistogramVec)
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	for d := range descs {
		m := describes.FindStringSubmatch(d.String())
		if m == nil {
			r.t.Fatalf("a description of another form: %s", d)
		}
		var names []string
		if m[2] != "" {
			names = strings.Split(m[2], ",")
		}
		if !histogram {
			r.metrics[m[1]] = names
			continue
		}
		r.metrics[m[1]+"_bucket"] = append(slices.Clone(names), "le")
		r.metrics[m[1]+"_count"], r.metrics[m[1]+"_sum"] = names, names
	}
	return nil
}

func (r *recorder) MustRegister(...prometheus.Collector) { r.t.Fatal("not used") }
func (r *recorder) Unregister(prometheus.Collector) bool { return false }

// metrics returns the names of the metrics that Punctual itself defines, each with the names of its
// labels.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	r := &recorder{t, make(map[string][]string)}
	m, err := punctualprom.New(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New(nil)
	defer store.Close()
	if err := m.AddStore(store); err != nil {
		t.Fatal(err)
	}
	if err := r.Register(slo.New(slo.Objective{Limit: time.Second, Percent: 99})); err != nil {
		t.Fatal(err)
	}
	if len(r.metrics) < 20 {
		t.Fatalf("only %d metrics were found", len(r.metrics))
	}
	return r.metrics
}

// values has the values of those labels that can have only a few.
var values = map[string][]string{
	"state":  {"scheduled", "ready", "leased", "dead"},
	"side":   {"push", "delivery"},
	"reason": {"lease_lost", "cancelled"},
	"window": {"5m", "1h", "6h"},
	"result": append([]string{"stored", "duplicate", "replaced", "done", "internal", "missed", "skipped"}, codes()...),
}

func codes() (all []string) {
	for _, k := range storekit.ErrorKinds() {
		all = append(all, k.Code)
	}
	return all
}

// checkQuery parses a query as Prometheus does. Its metrics must be known, with the labels and
// values that it names.
func checkQuery(t *testing.T, where, query string, known map[string][]string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v in %s", where, err, query)
		return
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		s, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		names, ok := known[s.Name]
		if !ok {
			t.Errorf("%s: there is no metric %s", where, s.Name)
		}
		for _, m := range s.LabelMatchers {
			checkMatcher(t, where, s.Name, m, names)
		}
		return nil
	})
}

func checkMatcher(t *testing.T, where, metric string, m *labels.Matcher, names []string) {
	t.Helper()
	if m.Name == "__name__" || m.Name == "instance" {
		return
	}
	if !slices.Contains(names, m.Name) {
		t.Errorf("%s: %s has no label %s", where, metric, m.Name)
	}
	if values[m.Name] == nil {
		return
	}
	for value := range strings.SplitSeq(m.Value, "|") {
		if !slices.Contains(values[m.Name], value) {
			t.Errorf("%s: %s of %s is never %q", where, m.Name, metric, value)
		}
	}
}

func TestChecksOfQueries(t *testing.T) {
	known := metrics(t)
	for query, sound := range map[string]bool{
		`punctual_store_up == 0`: true,
		`rate(punctual_delivery_lateness_seconds_bucket{topic="x"}[5m])`: true,
		`punctual_no_such_metric`:                                          false,
		`rate(punctual_delivery_lateness_seconds{topic="x"}[5m])`:          false,
		`punctual_messages{queue="x"}`:                                     false,
		`punctual_messages{state="died"}`:                                  false,
		`punctual_pushes_total{result=~"no_space|no_room"}`:                false,
		`rate(punctual_store_up[5m]`:                                       false,
		`sum by (le) (rate(punctual_handler_duration_seconds_bucket[5m]))`: true,
	} {
		quiet := &testing.T{}
		checkQuery(quiet, "", query, known)
		if quiet.Failed() == sound {
			t.Errorf("%s: sound is %v, want %v", query, !quiet.Failed(), sound)
		}
	}
}

func TestAlerts(t *testing.T) {
	known := metrics(t)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	load(t, "prometheus/rules.yaml", &file)
	guide, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			rules++
			checkQuery(t, r.Alert, r.Expr, known)
			if _, err := time.ParseDuration(r.For); err != nil {
				t.Errorf("%s: for %q: %v", r.Alert, r.For, err)
			}
			if s := r.Labels["severity"]; s != "page" && s != "ticket" {
				t.Errorf("%s: severity %q", r.Alert, s)
			}
			for name, text := range r.Annotations {
				if err := checkTemplate(text); err != nil {
					t.Errorf("%s: %s: %v", r.Alert, name, err)
				}
			}
			if r.Annotations["summary"] == "" {
				t.Errorf("%s has no summary", r.Alert)
			}
			if !strings.Contains(string(guide), "`"+r.Alert+"`") {
				t.Errorf("docs/operating.md does not say what to do about %s", r.Alert)
			}
		}
	}
	if rules == 0 {
		t.Error("there are no rules: has the file's form changed?")
	}
	var scrape struct {
		RuleFiles     []string         `yaml:"rule_files"`
		ScrapeConfigs []map[string]any `yaml:"scrape_configs"`
	}
	load(t, "prometheus/prometheus.yaml", &scrape)
	for _, name := range scrape.RuleFiles {
		if _, err := os.Stat(filepath.Join("prometheus", name)); err != nil {
			t.Error(err)
		}
	}
}

// checkTemplate expands the text of an annotation as Prometheus does, with $labels and $value of
// the variables that Prometheus defines.
func checkTemplate(text string) error {
	show := func(v any) string { return fmt.Sprint(v) }
	functions := template.FuncMap{"humanize": show, "humanize1024": show, "humanizeDuration": show, "humanizePercentage": show}
	x, err := template.New("").Funcs(functions).Option("missingkey=error").Parse("{{$labels := .Labels}}{{$value := .Value}}" + text)
	if err != nil {
		return err
	}
	labels := map[string]string{"topic": "t", "result": "r", "operation": "o", "code": "c"}
	return x.Execute(io.Discard, map[string]any{"Labels": labels, "Value": 1.5})
}

// load reads YAML into a value. A key for which the value has no field is an error.
func load(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Load(text, into, yaml.WithKnownFields()); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func TestBoard(t *testing.T) {
	known := metrics(t)
	text, err := os.ReadFile("grafana/punctual.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Templating struct {
			List []struct {
				Name  string
				Query any
			}
		}
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$instance", ".*", "$topic", ".*")
	used := make(map[string]bool)
	taken := make(map[[2]int]string)
	for _, p := range board.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			checkQuery(t, p.Title, variables.Replace(target.Expr), known)
			for name := range known {
				if strings.Contains(target.Expr, name) {
					used[name] = true
				}
			}
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies on %s or beyond the edge", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	for _, must := range []string{
		"punctual_delivery_lateness_seconds_bucket", "punctual_pending_messages", "punctual_oldest_ready_seconds", "punctual_store_free_bytes",
		"punctual_settlements_total", "punctual_leases_lost_total", "punctual_lateness_slo_burn_rate",
	} {
		if !used[must] {
			t.Errorf("the board does not show %s", must)
		}
	}
	for _, v := range board.Templating.List {
		if q, ok := v.Query.(map[string]any); ok {
			metric, _, _ := strings.Cut(strings.TrimPrefix(q["query"].(string), "label_values("), ",")
			if known[metric] == nil && metric != "punctual_store_up" {
				t.Errorf("variable %s is of %s, which does not exist", v.Name, metric)
			}
		}
	}
}

// punctualBinary builds the command punctual and returns the path of the binary.
func punctualBinary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "punctual")
	build := exec.Command("go", "build", "-o", path, "./cmd/punctual")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the command: %v\n%s", err, out)
	}
	return path
}

// printsConfig runs "serve --print-config" and returns its output. The command refuses flags and
// keys that do not exist, and variables whose names are nearly those of known ones. It says for
// each value where the value comes from.
func printsConfig(t *testing.T, punctual string, args, env []string) string {
	t.Helper()
	c := exec.Command(punctual, append([]string{"serve", "--print-config"}, args...)...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("serve --print-config %q %q: %v\n%s", args, env, err, out)
	}
	return string(out)
}

func TestConfiguration(t *testing.T) {
	command := punctualBinary(t)
	out := printsConfig(t, command, []string{"--config", "systemd/punctual.yaml"}, nil)
	for _, want := range []string{"store: disk:/var/lib/punctual", "lateness-slo: 1s@99", "log-format: json", "- 127.0.0.1:7878"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// The keys in lines that are commented out must exist, too.
	text, err := os.ReadFile("systemd/punctual.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(all, regexp.MustCompile(`(?m)^# ([a-z-]+: )`).ReplaceAll(text, []byte("$1")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := printsConfig(t, command, []string{"--config", all}, nil); !strings.Contains(out, "tokens: /etc/punctual/tokens.json") {
		t.Errorf("the lines that are commented out do not count:\n%s", out)
	}

	var compose struct {
		Services map[string]struct {
			Command     []string
			Environment map[string]string
			Build       struct{ Context, Dockerfile string }
		}
		Volumes map[string]any
	}
	raw, err := os.ReadFile("docker/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Load(raw, &compose); err != nil {
		t.Fatal(err)
	}
	s := compose.Services["punctual"]
	if s.Build.Context != "../.." || s.Build.Dockerfile != "packaging/docker/Dockerfile" || len(s.Command) != 1 || s.Command[0] != "serve" {
		t.Errorf("the service: %+v", s)
	}
	var env []string
	for name, value := range s.Environment {
		env = append(env, name+"="+value)
	}
	out = printsConfig(t, command, nil, env)
	for name := range s.Environment {
		if !strings.Contains(out, "# from: "+name+"\n") {
			t.Errorf("the variable %s is not one of serve:\n%s", name, out)
		}
	}
}

// TestUnitBoundsMemory: the unit bounds the memory of the server, and has Go's runtime collect
// garbage before that bound is reached.
func TestUnitBoundsMemory(t *testing.T) {
	text, err := os.ReadFile("systemd/punctual.service")
	if err != nil {
		t.Fatal(err)
	}
	var most, soft int64
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "MemoryMax=%dG", &most); err == nil {
			most <<= 30
		}
		if _, err := fmt.Sscanf(line, "Environment=GOMEMLIMIT=%dMiB", &soft); err == nil {
			soft <<= 20
		}
	}
	if most < 1<<30 || soft < 512<<20 || soft > most*4/5 {
		t.Errorf("MemoryMax is %d and GOMEMLIMIT %d bytes: want both, and a fifth between them", most, soft)
	}
}

func TestUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("NOT TESTED: the units of systemd; there is no systemd-analyze here")
	}
	// The unit names a binary that is not installed here, so the test verifies it with another one
	// in its place.
	dir := t.TempDir()
	for _, name := range []string{"punctual.service", "punctual.socket"} {
		text, err := os.ReadFile(filepath.Join("systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		text = []byte(strings.ReplaceAll(string(text), "/usr/local/bin/punctual", "/bin/true"))
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(analyze, "verify", "--man=no", filepath.Join(dir, "punctual.service"), filepath.Join(dir, "punctual.socket")).CombinedOutput()
	if err != nil || strings.Contains(string(out), dir) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// TestDockerfile: the files of the repository that the Dockerfile names exist, it builds with the
// Go of go.mod, and the image is made from scratch and runs as a user that is not root.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("docker/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	stages := strings.Split(string(text), "\nFROM ")
	last := stages[len(stages)-1]
	if !strings.HasPrefix(last, "scratch\n") || !regexp.MustCompile(`(?m)^USER [1-9]\d*:[1-9]\d*$`).MatchString(last) {
		t.Errorf("the image is not made from scratch with a user of its own:\n%s", last)
	}
	for _, name := range []string{"go.mod", "go.sum", "cmd/punctual"} {
		if !strings.Contains(stages[0]+stages[1], name) {
			t.Errorf("the Dockerfile does not use %s", name)
		}
		if _, err := os.Stat(filepath.Join("..", name)); err != nil {
			t.Error(err)
		}
	}
	want := regexp.MustCompile(`(?m)^go (\d+\.\d+)`)
	gomod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if v := want.FindStringSubmatch(string(gomod)); v == nil || !strings.Contains(string(text), "FROM golang:"+v[1]+" ") {
		t.Errorf("the Dockerfile builds with another Go than go.mod asks for: %v", v)
	}
}
