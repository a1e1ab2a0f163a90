package packaging

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v4"
)

// object has those fields of an object of Kubernetes that the tests read.
type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		Replicas int
		Template struct {
			Spec struct {
				TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
				Containers                    []struct {
					Args         []string
					Env          []struct{ Name, Value string }
					VolumeMounts []struct{ Name string } `yaml:"volumeMounts"`
				}
				Volumes []struct{ Name string }
			}
		}
		VolumeClaimTemplates []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
		Triggers             []struct{ Metadata map[string]string }
	}
}

// objects reads the objects of a file of several documents, by their kinds.
func objects(t *testing.T, name, text string) map[string]object {
	t.Helper()
	out := make(map[string]object)
	for part := range strings.SplitSeq(text, "\n---\n") {
		var o object
		if err := yaml.Load([]byte(part), &o); err != nil {
			t.Fatalf("%s: %v in\n%s", name, err, part)
		}
		if o.APIVersion == "" || o.Kind == "" || o.Metadata.Name == "" {
			t.Errorf("%s: an object without a version, kind or name:\n%s", name, part)
		}
		out[o.Kind] = o
	}
	return out
}

// serves fails the test unless the one container of an object runs serve with variables that serve
// knows, mounts all volumes of the object and no others, and has enough time to end.
func serves(t *testing.T, command string, o object) {
	t.Helper()
	pod := o.Spec.Template.Spec
	if len(pod.Containers) != 1 || strings.Join(pod.Containers[0].Args, " ") != "serve" {
		t.Fatalf("the containers: %+v", pod.Containers)
	}
	var env []string
	for _, e := range pod.Containers[0].Env {
		env = append(env, e.Name+"="+e.Value)
	}
	out := printsConfig(t, command, nil, env)
	for _, e := range pod.Containers[0].Env {
		if strings.HasPrefix(e.Name, "PUNCTUAL_") && e.Value != "" && !strings.Contains(out, "# from: "+e.Name+"\n") {
			t.Errorf("the variable %s is not one of serve:\n%s", e.Name, out)
		}
	}
	there := make(map[string]bool)
	for _, v := range pod.Volumes {
		there[v.Name] = true
	}
	for _, v := range o.Spec.VolumeClaimTemplates {
		there[v.Metadata.Name] = true
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		if !there[m.Name] {
			t.Errorf("volume %s is mounted and is not there", m.Name)
		}
		delete(there, m.Name)
	}
	if len(there) > 0 {
		t.Errorf("volumes that nobody mounts: %v", there)
	}
	if pod.TerminationGracePeriodSeconds < 45 {
		t.Errorf("the pod has %d s to end, and the server drains for up to 40", pod.TerminationGracePeriodSeconds)
	}
}

func TestKubernetes(t *testing.T) {
	text, err := os.ReadFile("kubernetes/server.yaml")
	if err != nil {
		t.Fatal(err)
	}
	server := objects(t, "server.yaml", string(text))
	serves(t, punctualBinary(t), server["StatefulSet"])
	if n := server["StatefulSet"].Spec.Replicas; n != 1 {
		t.Errorf("a directory has %d servers", n)
	}
	text, err = os.ReadFile("kubernetes/worker.yaml")
	if err != nil {
		t.Fatal(err)
	}
	worker := objects(t, "worker.yaml", string(text))
	triggers := worker["ScaledObject"].Spec.Triggers
	if len(triggers) != 1 || triggers[0].Metadata["valueLocation"] != "ready" || !strings.HasPrefix(triggers[0].Metadata["url"], "https://"+server["Service"].Metadata.Name+":7878/v1/topics/") {
		t.Errorf("KEDA is triggered by %+v", triggers)
	}
}

// The chart is rendered with text/template and the functions of Helm that its template uses.
// packaging/cluster renders it with Helm itself.
func TestChart(t *testing.T) {
	command := punctualBinary(t)
	for _, c := range []struct {
		values, kind, refused string
	}{
		{"exposeWithoutTLSAndTokens: true", "StatefulSet", ""},
		{"{tlsSecret: a, tokensSecret: b, env: {PUNCTUAL_LATENESS_SLO: 1s@99}}", "StatefulSet", ""},
		{"{tlsSecret: a, tokensSecret: b, storeSecret: c, replicas: 3}", "Deployment", ""},
		{"{tlsSecret: a, tokensSecret: b, store: 'redis://redis:6379', replicas: 3}", "Deployment", ""},
		{"{}", "", "set tlsSecret and tokensSecret"},
		{"{exposeWithoutTLSAndTokens: true, replicas: 2}", "", "a directory belongs to one server"},
	} {
		text, err := rendered(t, c.values)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("with %s: %v, want that it says %q", c.values, err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Fatalf("with %s: %v", c.values, err)
		}
		o, ok := objects(t, "the chart", text)[c.kind]
		if !ok {
			t.Fatalf("with %s there is no %s:\n%s", c.values, c.kind, text)
		}
		serves(t, command, o)
	}
}

// The chart takes the values that docs/containers.md installs it with.
func TestChartOfTheDocuments(t *testing.T) {
	page, err := os.ReadFile("../docs/containers.md")
	if err != nil {
		t.Fatal(err)
	}
	installs := 0
	for line := range strings.Lines(string(page)) {
		command, found := strings.CutPrefix(strings.TrimSpace(line), "helm install punctual packaging/helm/punctual")
		if !found {
			continue
		}
		installs++
		var values []string
		for _, set := range strings.Split(command, "--set ")[1:] {
			name, value, _ := strings.Cut(strings.TrimSpace(set), "=")
			values = append(values, name+": "+value)
		}
		if _, err := rendered(t, "{"+strings.Join(values, ", ")+"}"); err != nil {
			t.Errorf("%s: %v", strings.TrimSpace(line), err)
		}
	}
	if installs == 0 {
		t.Error("the page installs no chart")
	}
}

// rendered returns the template of the chart, rendered with the values of the chart and those
// given, which take precedence.
func rendered(t *testing.T, given string) (string, error) {
	t.Helper()
	values := make(map[string]any)
	text, err := os.ReadFile("helm/punctual/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, y := range []string{string(text), given} {
		if err := yaml.Load([]byte(y), &values); err != nil {
			t.Fatal(err)
		}
	}
	source, err := os.ReadFile(filepath.Join("helm", "punctual", "templates", "server.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := template.New("server.yaml").Option("missingkey=error").Funcs(template.FuncMap{
		"ternary": func(yes, no any, is bool) any {
			if is {
				return yes
			}
			return no
		},
		"fail":  func(text string) (string, error) { return "", errors.New(text) },
		"int":   func(v any) int { return v.(int) },
		"quote": func(v any) string { return fmt.Sprintf("%q", v) },
		"default": func(d, v string) string {
			if v == "" {
				return d
			}
			return v
		},
		"toYaml": func(v any) (string, error) {
			out, err := yaml.Dump(v)
			return strings.TrimSuffix(string(out), "\n"), err
		},
		"nindent": func(n int, text string) string {
			pad := "\n" + strings.Repeat(" ", n)
			return pad + strings.ReplaceAll(text, "\n", pad)
		},
	}).Parse(string(source))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = tmpl.Execute(&out, map[string]any{
		"Values": values, "Release": map[string]any{"Name": "punctual"}, "Chart": map[string]any{"AppVersion": "latest"},
	})
	return strings.TrimSpace(out.String()), err
}
