package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	kedav1alpha1 "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	chartloader "helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

const chart = "../helm/punctual"

// values has sets of values for the chart, by what they ask for, with the kinds of the objects that
// the chart then renders.
var values = map[string]struct {
	given map[string]any
	kinds []string
}{
	"a directory": {map[string]any{"exposeWithoutTLSAndTokens": true}, []string{"Service", "StatefulSet"}},
	"a directory, with tokens and a class of storage": {map[string]any{
		"tlsSecret": "tls", "tokensSecret": "tokens", "persistence": map[string]any{"size": "1Gi", "storageClass": "fast"},
		"env": map[string]any{"PUNCTUAL_LATENESS_SLO": "1s@99"},
	}, []string{"Service", "StatefulSet"}},
	"a store of its own": {map[string]any{
		"tlsSecret": "tls", "tokensSecret": "tokens", "store": "redis://redis:6379", "replicas": 3,
	}, []string{"Deployment", "Service"}},
	"a store named by a Secret": {map[string]any{
		"exposeWithoutTLSAndTokens": true, "storeSecret": "store", "replicas": 2,
	}, []string{"Deployment", "Service"}},
}

// decode reads the objects of a file and returns their kinds, sorted. An object with a field that
// its kind does not have, or with a value of another type, is an error.
func decode(text string) ([]string, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, kedav1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	var kinds []string
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		o, _, err := strict.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, document)
		}
		kinds = append(kinds, o.GetObjectKind().GroupVersionKind().Kind)
	}
	slices.Sort(kinds)
	return kinds, nil
}

func TestManifests(t *testing.T) {
	for name, want := range map[string][]string{
		"server.yaml": {"Service", "StatefulSet"},
		"worker.yaml": {"Deployment", "ScaledObject", "TriggerAuthentication"},
	} {
		text, err := os.ReadFile(filepath.Join("..", "kubernetes", name))
		if err != nil {
			t.Fatal(err)
		}
		if kinds, err := decode(string(text)); err != nil || !slices.Equal(kinds, want) {
			t.Errorf("%s has %v, %v; want %v", name, kinds, err, want)
		}
	}
}

// The check by decode refuses misspelled fields and values of another type, which a cluster would
// refuse or ignore without an error.
func TestUnknownFieldIsRefused(t *testing.T) {
	text, err := os.ReadFile("../kubernetes/worker.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, mistake := range [][2]string{
		{"terminationGracePeriodSeconds: 30", "terminationGraceSeconds: 30"},
		{"maxReplicaCount: 20", "maxReplicas: 20"},
		{"pollingInterval: 5", "pollingInterval: 5s"},
	} {
		wrong := strings.Replace(string(text), mistake[0], mistake[1], 1)
		if wrong == string(text) {
			t.Fatalf("the manifest has no %q any more", mistake[0])
		}
		if _, err := decode(wrong); err == nil {
			t.Errorf("the manifest passes with %q", mistake[1])
		}
	}
}

func TestChart(t *testing.T) {
	for name, c := range values {
		t.Run(name, func(t *testing.T) {
			result := lint.RunAll(chart, c.given, "default")
			for _, m := range result.Messages {
				if m.Severity >= support.WarningSev {
					t.Errorf("lint: %v", m)
				}
			}
			text, err := render(c.given)
			if err != nil {
				t.Fatal(err)
			}
			if kinds, err := decode(text); err != nil || !slices.Equal(kinds, c.kinds) {
				t.Errorf("rendered as %v, %v; want %v:\n%s", kinds, err, c.kinds, text)
			}
		})
	}
	for name, given := range map[string]map[string]any{
		"set tlsSecret and tokensSecret":    {},
		"a directory belongs to one server": {"exposeWithoutTLSAndTokens": true, "replicas": 2},
	} {
		if _, err := render(given); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("with %v: %v; want a refusal with %q", given, err, name)
		}
	}
}

// render renders the chart as helm template does.
func render(given map[string]any) (string, error) {
	c, err := chartloader.Load(chart)
	if err != nil {
		return "", err
	}
	v, err := util.ToRenderValues(c, given, common.ReleaseOptions{Name: "punctual", Namespace: "default"}, common.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, v)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for name, file := range files {
		if filepath.Ext(name) == ".yaml" && strings.TrimSpace(file) != "" {
			text.WriteString("---\n" + file + "\n")
		}
	}
	return text.String(), nil
}

func TestCompose(t *testing.T) {
	dir, err := filepath.Abs("../docker")
	if err != nil {
		t.Fatal(err)
	}
	load := func(text []byte) (*types.Project, error) {
		return loader.LoadWithContext(t.Context(), types.ConfigDetails{
			WorkingDir: dir, ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(dir, "compose.yaml"), Content: text}},
		}, func(o *loader.Options) { o.SetProjectName("punctual", true) })
	}
	text, err := os.ReadFile(filepath.Join(dir, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := load(text)
	if err != nil {
		t.Fatal(err)
	}
	server, err := p.GetService("punctual")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(server.Build.Context, server.Build.Dockerfile)
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the file to build by: %v", err)
	}
	if _, ok := server.DependsOn["redis"]; !ok {
		t.Errorf("the server does not wait for Redis: %+v", server.DependsOn)
	}
	for _, mistake := range []string{"stop_grace: 45s", "depends: [redis]"} {
		if _, err := load([]byte(strings.Replace(string(text), "stop_grace_period: 45s", mistake, 1))); err == nil {
			t.Errorf("the file passes with %q", mistake)
		}
	}
}
