package config

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v4"

	"agentd/internal/contracts"
	"agentd/internal/strict"
	"agentd/sdk"
)

// form is a schema with the definitions that it refers to, of which the first that says something counts.
type form []*strict.Node

func (f form) get(name string) *strict.Node {
	for _, n := range f {
		if n.Get(name).Present() {
			return n.Get(name)
		}
	}
	return f[0].Get(name)
}

// key is a key of agentd.yaml, at a path such as agents[].model.name or models.NAME.protocol.
type key struct {
	path     string
	form     form
	required bool // where what it is in is there
}

// fallback is the default as a page shows it.
func (k key) fallback() string {
	d := k.form.get("default")
	if d.Mapping() {
		return string(d.JSON())
	}
	return d.Text()
}

// planRole is where a model of planning stands.
var planRole = regexp.MustCompile(`\.plan\.(planner|router|synthesizer)$`)

// schemaKeys are the keys that the schema describes, in its order. Those of a model that stands in for another, or that plans, are those of
// a model, and are listed once.
func schemaKeys() []key {
	root := (&strict.Reader{}).Parse("agentd.schema.json", Schema())
	var list []key
	var walk func(path string, n *strict.Node, required bool)
	walk = func(path string, n *strict.Node, required bool) {
		f := form{n}
		for n.Get("$ref").Present() {
			n = root.At(strings.ReplaceAll(n.Get("$ref").Text(), "/", "."))
			f = append(f, n)
		}
		if path != "" && !strings.HasSuffix(path, "[]") && !strings.HasSuffix(path, ".NAME") {
			list = append(list, key{path, f, required})
		}
		if strings.HasSuffix(path, ".fallback[]") || planRole.MatchString(path) {
			return
		}
		for _, member := range f.get("properties").Items() {
			walk(strings.TrimPrefix(path+"."+member.Name, "."), member, slices.Contains(f.get("required").Texts(), member.Name))
		}
		if items := f.get("items"); items.Mapping() {
			walk(path+"[]", items, false)
		}
		if members := f.get("additionalProperties"); members.Mapping() {
			walk(path+".NAME", members, false)
		}
	}
	walk("", root, false)
	return list
}

// A schema, a loader and a test that each know other keys would be found here: testdata/full has every key of the schema,
// and the configuration is another one when any of them is taken away.
func TestLoad_EveryKeyCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/full")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "agentd.yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	load := func() (*Config, error) {
		data, err := yaml.Marshal(&document)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return Load(path)
	}
	want, err := load()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var visit func(path string, n *yaml.Node)
	visit = func(path string, n *yaml.Node) {
		for i := 0; n.Kind == yaml.SequenceNode && i < len(n.Content); i++ {
			visit(path+"[]", n.Content[i])
		}
		for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
			at := strings.TrimPrefix(path+"."+n.Content[i].Value, ".")
			if slices.Contains([]string{"models", "encryption.keys", "decision_keys", "mcp.servers", "agents[].tools.undo"}, path) {
				at = path + ".NAME"
			}
			all := n.Content
			n.Content = slices.Concat(all[:i], all[i+2:])
			got, err := load()
			implied := strings.HasSuffix(at, ".on_expiry") // by whether there is somebody to escalate to
			if err == nil && !implied && cmp.Equal(want, got, cmpopts.IgnoreTypes(strict.Position{}), withoutPlaces) {
				t.Errorf("without %s it is the same configuration", at)
			}
			n.Content = all
			if seen[at] = true; !strings.Contains(at, "contract.") { // what is below is a JSON Schema
				visit(at, all[i+1])
			}
		}
	}
	visit("", document.Content[0])
	for _, k := range schemaKeys() {
		if !seen[k.path] {
			t.Errorf("testdata/full has no %s", k.path)
		}
	}
}

// These are the digests that runs are stored with: they stay what they are, however the file is read.
func TestLoad_DigestsOfSpecs(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"testdata/full shop.desk":               "b4210676a20afd4d494287e2a4439e3e68093895d99b183af3eb21a811891208",
		"testdata/full planner":                 "9804711243a77761727e19790326c1fca79ea186b284f35ad7e2fee1ac80088f",
		"testdata/desk travel.desk":             "9d1f5245866914d264a15692fe0a67fc379880853f53977a81d5c81568fd739b",
		"testdata/desk weather":                 "eb8d7bb71842a92d2bf99c2971f454f9755209f6fe017ea16d3821edc2b53ade",
		"testdata/desk plain":                   "f16323f419aa911ea61ae5b0ccf082c73caa121eb045e4ce58784052f7df3a38",
		"../../examples/traveldesk travel.desk": "f7cf9d4855394ffe8b12d24afd5f71b5d8582454fbf4ed74a15e5090956b3012",
	}
	got := map[string]string{}
	for _, dir := range []string{"testdata/full", "testdata/desk", "../../examples/traveldesk"} {
		for _, spec := range mustLoad(t, dir+"/agentd.yaml").Agents {
			digest, _, err := contracts.SpecDigest(spec)
			if err != nil {
				t.Fatal(err)
			}
			got[dir+" "+spec.Name] = digest
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The terms of a rule are those of a policy.
func TestSchema_TermsAreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	of := map[string]map[string]string{"agents[].permissions.": {}, "agents[].permissions.rules[].terms.": {}}
	for _, k := range schemaKeys() {
		for prefix, terms := range of {
			name, ok := strings.CutPrefix(k.path, prefix)
			if ok && !slices.Contains([]string{"deny", "require"}, name) && !strings.HasPrefix(name, "rules") {
				terms[name] = string(k.form[0].JSON())
			}
		}
	}
	if diff := cmp.Diff(of["agents[].permissions."], of["agents[].permissions.rules[].terms."]); diff != "" || len(of["agents[].permissions."]) < 11 {
		t.Errorf("-policy +rule:\n%s", diff)
	}
}

// The defaults that the schema tells are those of the program.
func TestSchema_Defaults(t *testing.T) {
	t.Parallel()
	d := Default()
	text := func(x time.Duration) string { return strings.TrimSuffix(strings.TrimSuffix(x.String(), "0s"), "0m") }
	days := func(x time.Duration) string { return fmt.Sprintf("%dd", x/(24*time.Hour)) }
	want := map[string]string{
		"nats.root": d.NATS.Root, "nats.answers_age": days(d.NATS.AnswersAge),
		"redis.replicas": fmt.Sprint(d.Redis.Replicas), "redis.replica_timeout": d.Redis.ReplicaTimeout.String(),
		"data": d.Data, "slots": fmt.Sprint(d.Slots), "log.level": d.Log.Level, "log.format": d.Log.Format,
		"reconcile.interval": text(d.Reconcile.Interval), "reconcile.older_than": text(d.Reconcile.OlderThan),
		"retention.history": days(d.Retention.History), "retention.calls": fmt.Sprintf("%dm", d.Retention.Calls/time.Minute), "retention.hot": fmt.Sprint(int(d.Retention.Hot)), "mcp.file": defaultMCPFile, "agents[].model.provider": defaultProvider,
		"mcp.servers.NAME.timeout":                    text(sdk.DefaultToolTimeout),
		"agents[].tools.services[].timeout":           text(sdk.DefaultCallTimeout),
		"agents[].tools.services[].retry.backoff":     text(sdk.DefaultBackoff),
		"agents[].tools.services[].retry.max_backoff": text(sdk.DefaultMaxBackoff),
		"agents[].permissions.domain":                 sdk.HumanDomain,
		"agents[].permissions.expires":                text(sdk.DefaultPermissionTimeout),
		"agents[].stop.loop.window":                   fmt.Sprint(sdk.MaxLoopWindow),
		"agents[].memory.results":                     fmt.Sprintf(`{"*":%d}`, sdk.DefaultResult),
		"agents[].no_tool_call.reminders":             fmt.Sprint(sdk.DefaultReminders),
		"agents[].answers.require[].retries":          fmt.Sprint(sdk.DefaultRequirementRetries),
		"agents[].limits.interactions":                fmt.Sprint(sdk.DefaultInteractions),
		"agents[].limits.deadline":                    days(sdk.DefaultRunDeadline),
		"agents[].limits.model_timeout":               text(sdk.DefaultModelTimeout),
		"agents[].limits.question_timeout":            days(sdk.DefaultQuestionTimeout),
	}
	got := map[string]string{}
	for _, k := range schemaKeys() {
		if _, ok := want[k.path]; ok {
			got[k.path] = k.fallback()
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-program +schema:\n%s", diff)
	}
}

// quoted is texts as a page shows them.
func quoted(texts ...string) string {
	var all []string
	for _, text := range texts {
		all = append(all, "`"+text+"`")
	}
	return strings.Join(all, ", ")
}

// docs/agentd_yaml.md is the schema, written for people.
func TestSchema_IsDocumented(t *testing.T) {
	t.Parallel()
	const page = "../../docs/agentd_yaml.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin = "<!-- the keys, from internal/config/agentd.schema.json -->\n"
	head, shown, ok := strings.Cut(string(text), begin)
	if !ok {
		t.Fatalf("%s has no line %s", page, begin)
	}
	var b strings.Builder
	b.WriteString("\n| key | value | default | |\n| --- | --- | --- | --- |\n")
	for _, k := range schemaKeys() {
		value := k.form.get("type").Text()
		if types := k.form.get("type").Texts(); len(types) > 0 {
			value = strings.Join(types, " or ")
		}
		value = strings.NewReplacer("array", "list", "object", "mapping", "string", "text").Replace(value)
		if choices := quoted(k.form.get("enum").Texts()...); choices != "" {
			value = choices
		}
		if choices := quoted(k.form.get("items").Get("enum").Texts()...); choices != "" {
			value += " of " + choices
		}
		fallback := quoted(k.form.get("default").Texts()...)
		if text := k.fallback(); text != "" {
			fallback = quoted(text)
		}
		if k.required {
			fallback = strings.TrimPrefix(fallback+", required", ", ")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.path, value, fallback, k.form.get("description").Text())
		if !k.form.get("description").Present() {
			t.Errorf("%s has no description", k.path)
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(head+begin+b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(shown, "\n"), strings.Split(b.String(), "\n")); diff != "" {
		t.Errorf("%s (-page +schema; -update writes it):\n%s", page, diff)
	}
}

// docs/cli.md says for each setting its environment variable, in one row.
func TestSettings_AreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	var described []string
	for _, k := range schemaKeys() {
		described = append(described, k.path)
	}
	for name, variable := range variables {
		row := regexp.MustCompile("(?m)^\\|.*`" + variable + "`.*\\|.*`" + regexp.QuoteMeta(name) + "`.*\\|.*$")
		if !row.Match(page) {
			t.Errorf("docs/cli.md has no row of %s and %s", variable, name)
		}
		generic := regexp.MustCompile(`^models\.[a-z]+\.`).ReplaceAllString(name, "models.NAME.")
		if !slices.Contains(described, generic) {
			t.Errorf("the schema has no %s", name)
		}
	}
}
