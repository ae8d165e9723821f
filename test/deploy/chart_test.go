package deploy_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/strvals"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

// scaledObject is KEDA's, as far as the chart uses it. Its own types need a hundred modules.
type scaledObject struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		ScaleTargetRef struct {
			Name string `json:"name"`
		} `json:"scaleTargetRef"`
		MinReplicaCount *int32 `json:"minReplicaCount"`
		MaxReplicaCount *int32 `json:"maxReplicaCount"`
		CooldownPeriod  *int32 `json:"cooldownPeriod"`
		Triggers        []struct {
			Type     string            `json:"type"`
			Metadata map[string]string `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

// kinds are the types that the chart's objects must fit exactly, by apiVersion and kind.
var kinds = map[string]func() any{
	"apps/v1 Deployment":                      func() any { return &apps.Deployment{} },
	"v1 ConfigMap":                            func() any { return &core.ConfigMap{} },
	"v1 Pod":                                  func() any { return &core.Pod{} },
	"v1 Service":                              func() any { return &core.Service{} },
	"v1 ServiceAccount":                       func() any { return &core.ServiceAccount{} },
	"policy/v1 PodDisruptionBudget":           func() any { return &policy.PodDisruptionBudget{} },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return &networking.NetworkPolicy{} },
	"monitoring.coreos.com/v1 ServiceMonitor": func() any { return &monitoring.ServiceMonitor{} },
	"keda.sh/v1alpha1 ScaledObject":           func() any { return &scaledObject{} },
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load("../../deploy/helm/agentd")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

// render returns the chart's objects by kind and name, decoded without unknown fields.
func render(t *testing.T, values string) (map[string]any, error) {
	t.Helper()
	var given map[string]any
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	c := load(t)
	all, err := util.ToRenderValues(c, given, common.ReleaseOptions{Name: "desk", Namespace: "agents", IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	objects := map[string]any{}
	for name, text := range files {
		if path.Ext(name) != ".yaml" {
			continue
		}
		decode(t, name, text, objects)
	}
	return objects, nil
}

func decode(t *testing.T, name, text string, objects map[string]any) {
	t.Helper()
	documents := kubeyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var kind meta.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		if kind.Kind == "" {
			if len(bytes.TrimSpace(document)) > 0 && !bytes.HasPrefix(bytes.TrimSpace(document), []byte("#")) {
				t.Errorf("%s renders something that is not an object:\n%s", name, document)
			}
			continue
		}
		make, ok := kinds[kind.APIVersion+" "+kind.Kind]
		if !ok {
			t.Fatalf("%s renders a %s %s, which this test does not know", name, kind.APIVersion, kind.Kind)
		}
		object := make()
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			t.Errorf("%s is not a %s: %v\n%s", name, kind.Kind, err, document)
		}
		objects[kind.Kind] = object
	}
}

// everything turns all of the chart on.
const everything = `
image: {repository: registry.example/agentd, digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", pullSecrets: [pull]}
config:
  files:
    agentd.yaml: "contracts: [contracts]\n"
    contracts/hotels.yaml: "uri: '#/hotels'\n"
nats: {url: "tls://nats.nats:4222", existingSecret: agentd-nats, credsKey: worker.creds, tlsSecret: nats-ca}
redis: {existingSecret: agentd-redis}
secretEnv: [{env: OPENAI_API_KEY, name: models, key: openai}]
env: {AGENTD_ROOT: acme}
worker: {provision: true, graceSeconds: 60, extraArgs: ["--verbose"]}
telemetry: {endpoint: "http://collector:4318", captureContent: true}
podAnnotations: {a: b}
podLabels: {team: travel}
nodeSelector: {disk: ssd}
tolerations: [{key: spot, operator: Exists}]
affinity: {nodeAffinity: {}}
priorityClassName: high
networkPolicy: {enabled: true, scrapeFrom: {matchLabels: {name: monitoring}}}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
keda: {enabled: true, agents: [travel.desk], root: acme}
`

func TestChart_RendersObjectsOfTheKubernetesAPI(t *testing.T) {
	for name, c := range map[string]struct {
		values string
		want   []string
	}{
		"defaults": {"{}", []string{"ConfigMap", "Deployment", "Pod", "PodDisruptionBudget", "Service", "ServiceAccount"}},
		"everything": {everything, []string{
			"ConfigMap", "Deployment", "NetworkPolicy", "Pod", "PodDisruptionBudget", "ScaledObject", "Service", "ServiceAccount", "ServiceMonitor",
		}},
		"existing config": {"config: {existingConfigMap: mine}\npodDisruptionBudget: {enabled: false}", []string{"Deployment", "Pod", "Service", "ServiceAccount"}},
		"URL in a secret": {"nats: {existingSecret: s, urlKey: url}", []string{"ConfigMap", "Deployment", "Pod", "PodDisruptionBudget", "Service", "ServiceAccount"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := render(t, c.values)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for kind := range objects {
				got = append(got, kind)
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestChart_RefusesValuesThatCannotWork(t *testing.T) {
	for name, c := range map[string]struct{ values, says string }{
		"unknown key":                 {"replica: 3", "replica"},
		"password in the URL":         {"nats: {url: 'nats://user:pw@nats:4222'}", "url"},
		"scaling of nothing":          {"keda: {enabled: true}", "agents"},
		"short digest":                {"image: {digest: 'sha256:12'}", "digest"},
		"key without secret":          {"nats: {urlKey: url}", "nats.existingSecret"},
		"a budget no drain gets past": {"podDisruptionBudget: {maxUnavailable: 0}", "maxUnavailable"},
		"no whole number":             {"replicas: many", "replicas"},
	} {
		if _, err := render(t, c.values); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestChart_RunsWorkersAsTheyAreMeantToRun(t *testing.T) {
	objects, err := render(t, everything)
	if err != nil {
		t.Fatal(err)
	}
	deployment := objects["Deployment"].(*apps.Deployment)
	pod := deployment.Spec.Template.Spec
	container := pod.Containers[0]
	if deployment.Spec.Replicas != nil {
		t.Error("the chart sets the replicas that KEDA scales")
	}
	if !*pod.SecurityContext.RunAsNonRoot || !*container.SecurityContext.ReadOnlyRootFilesystem || *container.SecurityContext.AllowPrivilegeEscalation {
		t.Error("the container may do more than it needs")
	}
	if grace := *pod.TerminationGracePeriodSeconds; grace <= 60 {
		t.Errorf("Kubernetes kills after %d s what finishes its steps for 60 s", grace)
	}
	for name, probe := range map[string]*core.Probe{"/livez": container.LivenessProbe, "/readyz": container.ReadinessProbe} {
		if probe.HTTPGet.Path != name {
			t.Errorf("a probe asks %s, want %s", probe.HTTPGet.Path, name)
		}
	}
	if want := "registry.example/agentd@sha256:"; !strings.HasPrefix(container.Image, want) {
		t.Errorf("the image is %s, want %s…", container.Image, want)
	}
	env := map[string]string{}
	for _, e := range container.Env {
		env[e.Name] = e.Value
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			env[e.Name] = "secret " + e.ValueFrom.SecretKeyRef.Name + "/" + e.ValueFrom.SecretKeyRef.Key
		}
	}
	want := map[string]string{
		"NATS_URL": "tls://nats.nats:4222", "NATS_CREDS": "/etc/agentd-nats/user.creds", "REDIS_URL": "secret agentd-redis/url",
		"OPENAI_API_KEY": "secret models/openai", "AGENTD_ROOT": "acme", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
	}
	for name, value := range want {
		if env[name] != value {
			t.Errorf("%s is %q, want %q", name, env[name], value)
		}
	}
	doctor := objects["Pod"].(*core.Pod).Spec
	memory := container.Env[0]
	if from := memory.ValueFrom; memory.Name != "GOMEMLIMIT" || from == nil || from.ResourceFieldRef == nil || from.ResourceFieldRef.Resource != "limits.memory" {
		t.Errorf("the first variable of workers is %+v, want the limit of their memory", memory)
	}
	if diff := cmp.Diff(container.Env[1:], doctor.Containers[0].Env); diff != "" {
		t.Errorf("helm test asks another system than the workers work for (-workers +doctor)\n%s", diff)
	}
	if diff := cmp.Diff(pod.Volumes, doctor.Volumes); diff != "" {
		t.Errorf("helm test reads another configuration (-workers +doctor)\n%s", diff)
	}
	mounted := objects["ConfigMap"].(*core.ConfigMap)
	for _, item := range pod.Volumes[0].ConfigMap.Items {
		if mounted.Data[item.Key] == "" {
			t.Errorf("%s is missing for the file %s", item.Key, item.Path)
		}
	}
	if n := len(pod.Volumes[0].ConfigMap.Items); n != 2 {
		t.Errorf("%d files are mounted, want 2", n)
	}
}

// Where the memory is not limited, the garbage collector is not either.
func TestChart_LimitsTheHeapWhereThePodIsLimited(t *testing.T) {
	for values, limited := range map[string]bool{"{}": true, "resources: {limits: {memory: null}}": false, "resources: {limits: null}": false, "resources: null": false} {
		objects, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		env := objects["Deployment"].(*apps.Deployment).Spec.Template.Spec.Containers[0].Env
		if got := slices.ContainsFunc(env, func(e core.EnvVar) bool { return e.Name == "GOMEMLIMIT" }); got != limited {
			t.Errorf("%s: the heap is limited: %t, want %t", values, got, limited)
		}
	}
}

func TestChart_ScalesByTheConsumersThatWorkersRead(t *testing.T) {
	subjects, err := wire.NewSubjects("acme")
	if err != nil {
		t.Fatal(err)
	}
	for _, partitions := range []int{1, 4} {
		layout, err := streams.NewLayout(partitions)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := render(t, fmt.Sprintf("keda: {enabled: true, agents: [travel.desk], root: acme, partitions: %d}", partitions))
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		for _, ref := range layout.Consumers(streams.AgentConsumers("travel.desk")...) {
			want = append(want, fmt.Sprintf("%s/%s", streams.Name(subjects, ref.Zone), ref.Name))
		}
		for _, trigger := range objects["ScaledObject"].(*scaledObject).Spec.Triggers {
			got = append(got, trigger.Metadata["stream"]+"/"+trigger.Metadata["consumer"])
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d partitions (-want +got)\n%s", partitions, diff)
		}
	}
}

// The values of docs/kubernetes.md, with the command that installs them there.
func TestDocs_TheValuesOfThePageRender(t *testing.T) {
	page, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(language string) string {
		m := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```$").FindSubmatch(page)
		if m == nil {
			t.Fatalf("docs/kubernetes.md has no %s", language)
		}
		return string(m[1])
	}
	values := strings.ReplaceAll(block("yaml"), "sha256:…", "sha256:"+strings.Repeat("0", 64))
	install := block("sh")
	var given map[string]any
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	files := regexp.MustCompile(`--set-file (\S+)=(\S+)`).FindAllStringSubmatch(install, -1)
	secrets := regexp.MustCompile(`create secret generic (\S+)`).FindAllStringSubmatch(install, -1)
	if len(files) == 0 || len(secrets) == 0 {
		t.Fatalf("the page gives %d files and makes %d secrets", len(files), len(secrets))
	}
	for _, m := range files {
		path := strings.ReplaceAll(m[1], `\\`, `\`) // what the shell makes of it
		if err := strvals.ParseInto(path+"=agents: []", given); err != nil {
			t.Fatal(err)
		}
	}
	given["image"].(map[string]any)["digest"] = "sha256:" + strings.Repeat("0", 64)
	whole, err := yaml.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := render(t, string(whole))
	if err != nil {
		t.Fatal(err)
	}
	deployment := objects["Deployment"].(*apps.Deployment).Spec.Template.Spec
	for _, secret := range secrets {
		if text := fmt.Sprintf("%+v", deployment); !strings.Contains(text, secret[1]) {
			t.Errorf("no pod uses the secret %s that the page makes", secret[1])
		}
	}
	if config := objects["ConfigMap"].(*core.ConfigMap).Data; config["agentd.yaml"] != "agents: []" {
		t.Errorf("the configuration is %q", config)
	}
}
