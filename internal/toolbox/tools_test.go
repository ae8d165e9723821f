package toolbox

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"agentd/internal/contracts"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// contractOf is a contract of one version.
func contractOf(contractType, accepts string) sdk.Contract {
	return sdk.Contract{
		URI: "#/" + contractType, Type: contractType, Description: "About " + contractType + ".",
		Versions: map[string]sdk.ContractVersion{"1.0.0": {
			Accepts: json.RawMessage(accepts),
			Emits:   map[string]json.RawMessage{contractType + ".done": json.RawMessage(`{"type": "object", "required": ["ok"]}`)},
		}},
	}
}

func service(contractType, accepts string) sdk.ServiceTool {
	return sdk.ServiceTool{Contract: contractOf(contractType, accepts), Version: "1.0.0"}
}

func inlineOf(name string) sdk.Tool {
	return sdk.Tool{
		Definition: sdk.ToolDefinition{Name: name, Parameters: json.RawMessage(`{"type": "object"}`)},
		Run:        func(context.Context, sdk.ToolCall) (json.RawMessage, error) { return nil, nil },
	}
}

const anyObject = `{"type": "object"}`

func mustTools(t testing.TB, spec sdk.AgentSpec, inline ...sdk.Tool) *Toolbox {
	t.Helper()
	b, err := New(spec, inline)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func tool(t testing.TB, b *Toolbox, name string) *Tool {
	t.Helper()
	found, ok := b.ByName(name)
	if !ok {
		t.Fatalf("no tool %s", name)
	}
	return found
}

func TestTools_OrderKindsAndDefaults(t *testing.T) {
	t.Parallel()
	book := service("airline.book", anyObject)
	book.Priority, book.TimeoutMillis, book.Domains, book.Description = 2, 1500, []string{"eu", "us"}, "Books."
	search := service("airline.search", anyObject)
	search.As, search.Contract.Domain = "find", "airline"
	search.Contract.Versions["2.0.0"] = search.Contract.Versions["1.0.0"]
	inline := inlineOf("fs/read")
	inline.Priority, inline.Timeout = 3, 2*time.Second
	b := mustTools(t, sdk.AgentSpec{
		Services: []sdk.ServiceTool{search, book},
		Builtin:  []string{TaskCompletion, AskQuestion},
		Limits:   sdk.Limits{QuestionTimeoutMillis: 60_000},
	}, inlineOf("plain"), inline)

	type row struct {
		Name, Description string
		Kind              Kind
		Priority, Index   int
		Timeout           time.Duration
		Domains           []string
		Schema            string
	}
	var got []row
	for _, tool := range b.All() {
		r := row{
			Name: tool.Name, Description: tool.Definition.Description, Kind: tool.Kind, Priority: tool.Priority,
			Index: tool.Index, Timeout: tool.Timeout, Domains: tool.Domains,
		}
		if tool.Kind == Service {
			r.Schema = tool.SchemaRef()
		}
		got = append(got, r)
	}
	want := []row{
		{"find", "About airline.search.", Service, 0, -1, 5 * time.Minute, []string{"airline"}, "#/airline.search/1.0.0"},
		{"airline_book", "Books.", Service, 2, -1, 1500 * time.Millisecond, []string{"eu", "us"}, "#/airline.book/1.0.0"},
		{"task_completion", completionDescription, Builtin, 0, -1, time.Minute, nil, ""},
		{"ask_question", contracts.Question().Description, Service, 0, -1, time.Minute, []string{"human.interaction"}, "agentd:/agentd/question/ask/1.0.0"},
		{"plain", "", Inline, 0, 0, time.Minute, nil, ""},
		{Name("fs/read"), "", Inline, 3, 1, 2 * time.Second, nil, ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	for i, d := range b.Definitions() {
		if d.Name != want[i].Name || d.Description != want[i].Description {
			t.Errorf("definition %d: %+v", i, d)
		}
	}
	if versions := tool(t, b, "find").Contract.Versions; len(versions) != 1 {
		t.Errorf("the tool keeps %d versions", len(versions))
	}
}

func TestTools_NamesTranslateBothWays(t *testing.T) {
	t.Parallel()
	b := mustTools(t, sdk.AgentSpec{
		Services: []sdk.ServiceTool{service("weather.forecast", anyObject), service("a-b.c_d", anyObject)},
		Builtin:  []string{AskQuestion},
	})
	for contractType, name := range map[string]string{
		"weather.forecast": "weather_forecast", "a-b.c_d": "a-b_c_d", sdk.TypeQuestion: "ask_question",
	} {
		if got, ok := b.Name(contractType); !ok || got != name {
			t.Errorf("Name(%s) = %q, %v", contractType, got, ok)
		}
		if got := tool(t, b, name); got.Contract.Type != contractType {
			t.Errorf("ByName(%s) is of type %s", name, got.Contract.Type)
		}
	}
	if _, ok := b.ByName("weather.forecast"); ok {
		t.Error("a type is not a name")
	}
	if _, ok := b.Name("weather_forecast"); ok {
		t.Error("a name is not a type")
	}
}

func TestTools_RefusesWithEveryFault(t *testing.T) {
	t.Parallel()
	as := func(s sdk.ServiceTool, name string) sdk.ServiceTool { s.As = name; return s }
	missing := service("x", anyObject)
	missing.Version = "9.0.0"
	_, err := New(sdk.AgentSpec{
		Name: "desk",
		Services: []sdk.ServiceTool{
			service("a.b", anyObject), service("a_b", anyObject), as(service("c", anyObject), "a.b"),
			service("d", `{"type": "array"}`), missing, as(service("e", anyObject), TaskCompletion),
		},
		Builtin: []string{TaskCompletion, "fly"},
	}, []sdk.Tool{inlineOf("a_b"), inlineOf("read_more"), {Definition: sdk.ToolDefinition{Name: "bad", Parameters: json.RawMessage(`{"type": 1}`)}}})
	if err == nil {
		t.Fatal("no error")
	}
	e := sdk.AsError(err)
	want := []string{
		`$.services[1]: expected a tool name of its own, got "a_b" for contract a.b and contract a_b`,
		`$.services[2]: expected a tool name of its own, got "a_b" for contract a.b and contract c`,
		`$.services[3].versions["1.0.0"].accepts: expected a schema of objects: type "object" at its root, got {"type": "array"}`,
		`$.services[4]: expected a tool that can be used, got contract #/x has no version 9.0.0; it has 1.0.0`,
		`$.builtin[0]: expected a tool name of its own, got "task_completion" for contract e and built-in tool task_completion`,
		`$.builtin[1]: expected a built-in tool: task_completion, ask_question, converse, update_plan, ask_parent, answer_child, got string "fly"`,
		`$.inline[0]: expected a tool name of its own, got "a_b" for contract a.b and inline tool a_b`,
		`$.inline[1]: expected a tool name of its own, got "read_more" for the built-in tool that every agent has for its results and inline tool read_more`,
		`$.inline[2].type: expected a value that fits one of the alternatives (anyOf), got number 1`,
		`$.inline[2].type: expected one of "array", "boolean", "integer", "null", "number", "object", "string", got number 1`,
	}
	if diff := cmp.Diff(want, lines(e.Faults)); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	if e.Code != sdk.CodeConfig || !strings.Contains(e.Message, "desk") {
		t.Errorf("error %s: %s", e.Code, e.Message)
	}
}

func TestTools_DefinitionIsSanitised(t *testing.T) {
	t.Parallel()
	const draft4 = "http://json-schema.org/draft-04/schema"
	for _, dialect := range []string{draft4, "http://json-schema.org/draft-07/schema", "https://json-schema.org/draft/2020-12/schema"} {
		id := "$id"
		if dialect == draft4 {
			id = "id"
		}
		accepts := `{"$schema": "` + dialect + `", "` + id + `": "http://example.com/x", "type": "object",
		  "properties": {"parentSubject$$": {"type": "string"}, "n": {"type": "object", "properties": {"parentSubject$$": {}, "id": {}}}},
		  "required": ["parentSubject$$", "n"], "additionalProperties": false}`
		child := tool(t, mustTools(t, sdk.AgentSpec{Services: []sdk.ServiceTool{service("agent", accepts)}}), "agent")
		want := `{"additionalProperties":false,"properties":{"n":{"properties":{"id":{},"parentSubject$$":{}},"type":"object"}},"required":["n"],"type":"object"}`
		if diff := cmp.Diff(want, string(child.Definition.Parameters)); diff != "" {
			t.Errorf("%s: parameters (-want +got):\n%s", dialect, diff)
		}
		if !child.NeedsParentSubject {
			t.Errorf("%s: the parent's subject is not wanted", dialect)
		}
		if _, faults := child.Validate(json.RawMessage(`{"n": {}}`)); len(faults) > 0 {
			t.Errorf("%s: the model is held to what it is not shown: %v", dialect, faults)
		}
		if got := string(child.Contract.Versions["1.0.0"].Accepts); got != accepts {
			t.Errorf("%s: the contract was changed: %s", dialect, got)
		}
	}
	plain := tool(t, mustTools(t, sdk.AgentSpec{Services: []sdk.ServiceTool{service("p",
		`{"type": "object", "properties": {"parentSubject$$": {}}, "required": ["parentSubject$$"]}`)}}), "p")
	if got := string(plain.Definition.Parameters); got != `{"properties":{},"type":"object"}` {
		t.Errorf("parameters %s", got)
	}
}

func TestTools_DefinitionsSurviveTheStore(t *testing.T) {
	t.Parallel()
	spec := sdk.AgentSpec{Name: "a", Services: []sdk.ServiceTool{service("s",
		`{ "type":"object", "properties": {"z": {"maximum": 9223372036854775807}, "a": {"minimum": 1.50}}}`)}}
	digest, data, err := contracts.SpecDigest(spec)
	if err != nil {
		t.Fatal(err)
	}
	var stored sdk.AgentSpec
	if err := json.Unmarshal(data, &stored); err != nil {
		t.Fatal(err)
	}
	again, _, err := contracts.SpecDigest(stored)
	if err != nil || again != digest || !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(digest) {
		t.Errorf("digests %s and %s, %v", digest, again, err)
	}
	if diff := cmp.Diff(mustTools(t, spec).Definitions(), mustTools(t, stored).Definitions()); diff != "" {
		t.Errorf("definitions differ:\n%s", diff)
	}
	if !strings.Contains(string(data), "9223372036854775807") {
		t.Errorf("a bound was rounded: %s", data)
	}
	spec.Limits.Interactions++
	if other, _, err := contracts.SpecDigest(spec); err != nil || other == digest {
		t.Errorf("another spec has the digest %s, %v", other, err)
	}
}

func TestTool_Validate(t *testing.T) {
	t.Parallel()
	b := mustTools(t, sdk.AgentSpec{Services: []sdk.ServiceTool{
		service("book", `{"type": "object", "properties": {
		  "id": {"type": "string"}, "seats": {"type": "integer", "default": 1}, "cabin": {"enum": ["eco", "first"], "default": "eco"}
		}, "required": ["id", "cabin"], "additionalProperties": false}`),
		service("ping", anyObject),
	}})
	tests := []struct {
		tool, args, want string
		faults           []string
	}{
		{"book", `{"seats": 2.0, "id": "x", "cabin": "first"}`, `{"cabin":"first","id":"x","seats":2}`, nil},
		{"book", `{ "id": "é" }`, `{"cabin":"eco","id":"é","seats":1}`, nil},
		{"book", `{"seats": "2", "zoo": 1}`, "", []string{
			`$.id: expected a value (required), got nothing`, `$.seats: expected integer, got string "2"`,
			`$.zoo: expected no such property, got number 1`,
		}},
		{"book", `[]`, "", []string{`$: expected object, got array []`}},
		{"book", `{"id": "x", "id": "y"}`, "", []string{`$.id: expected each name once in an object, got twice`}},
		{"ping", ``, `{}`, nil},
		{"ping", ` `, `{}`, nil},
		{"ping", `null`, "", []string{`$: expected object, got null`}},
	}
	for _, tt := range tests {
		got, faults := tool(t, b, tt.tool).Validate(json.RawMessage(tt.args))
		if string(got) != tt.want {
			t.Errorf("%s: canonical %s, want %s", tt.args, got, tt.want)
		}
		if diff := cmp.Diff(tt.faults, lines(faults)); diff != "" {
			t.Errorf("%s: faults (-want +got):\n%s", tt.args, diff)
		}
	}
	// What has no canonical form must not reach a service, whose parser may read it otherwise.
	for _, args := range []string{`{"a": 1, "a": 2}`, `{"a": 9007199254740993}`, `{"a": "` + "\xff" + `"}`, `{`} {
		if got, faults := tool(t, b, "ping").Validate(json.RawMessage(args)); len(faults) == 0 || got != nil {
			t.Errorf("%q was taken: %s", args, got)
		}
	}
}

func TestTool_Answer(t *testing.T) {
	t.Parallel()
	s := tool(t, mustTools(t, sdk.AgentSpec{Services: []sdk.ServiceTool{service("s", anyObject)}}), "s")
	if faults, unknown := s.Answer("s.done", json.RawMessage(`{"ok": 1}`)); len(faults) > 0 || unknown {
		t.Errorf("%v, %v", faults, unknown)
	}
	if faults, unknown := s.Answer("s.done", json.RawMessage(`{}`)); len(faults) != 1 || unknown {
		t.Errorf("%v, %v", faults, unknown)
	}
	for _, other := range []string{"s", wire.ErrorType("s"), ""} {
		if _, unknown := s.Answer(other, json.RawMessage(`{"ok": 1}`)); !unknown {
			t.Errorf("the contract emits %q", other)
		}
	}
}

// Whatever tools are called, models see names that every provider takes, and different names stay different.
func TestToolName_IsShortUniqueAndStable(t *testing.T) {
	t.Parallel()
	provider := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(
			rapid.StringMatching(`[a-zA-Z0-9_-]{1,40}(\.[a-zA-Z0-9_-]{1,40}){0,3}`), rapid.String(),
		).Draw(t, "name")
		other := rapid.OneOf(
			rapid.Just(name+"x"), rapid.Just(strings.ToUpper(name)), rapid.Just(name+"/"), rapid.String(),
		).Draw(t, "other")
		short := Name(name)
		if !provider.MatchString(short) {
			t.Fatalf("Name(%q) = %q", name, short)
		}
		if again := Name(name); again != short {
			t.Fatalf("%q is %q and %q", name, short, again)
		}
		dotless := strings.ReplaceAll(name, ".", "_")
		if provider.MatchString(dotless) && short != dotless {
			t.Fatalf("%q became %q", name, short)
		}
		if Name(other) == short && strings.ReplaceAll(other, ".", "_") != dotless {
			t.Fatalf("%q and %q are both %q", name, other, short)
		}
	})
}

// Either a set of types is translated without loss in both directions, or it is refused.
func TestTools_TranslationLosesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		types := rapid.SliceOfNDistinct(
			rapid.StringMatching(`[ab]{1,2}([._][ab]{1,70}){0,2}`), 1, 6, rapid.ID[string],
		).Draw(t, "types")
		var spec sdk.AgentSpec
		tokens := map[string]bool{}
		for _, contractType := range types {
			spec.Services = append(spec.Services, service(contractType, anyObject))
			tokens[wire.NameToken(contractType)] = true
		}
		b, err := New(spec, nil)
		if refused := err != nil; refused {
			if len(tokens) == len(types) {
				t.Fatalf("refused without a collision: %v", err)
			}
			return
		}
		for _, contractType := range types {
			name, ok := b.Name(contractType)
			if !ok {
				t.Fatalf("%s has no name", contractType)
			}
			if back, ok := b.ByName(name); !ok || back.Contract.Type != contractType {
				t.Fatalf("%s is %s is %v", contractType, name, back)
			}
		}
	})
}

// airline is where the recorded conversations are, unless AGENTD_TRANSCRIPTS names another place.
const airline = "../../../shared/data/airline"

// The tools of the recorded conversations compile as contracts, and every recorded call is valid.
func TestTools_RecordedAirlineTools(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join(airline, "tools.json"))
	if err != nil {
		t.Skipf("no recorded tools: %v", err)
	}
	var recorded []struct {
		Function sdk.ToolDefinition `json:"function"`
	}
	if err := json.Unmarshal(data, &recorded); err != nil {
		t.Fatal(err)
	}
	var spec sdk.AgentSpec
	for _, r := range recorded {
		s := service("airline."+r.Function.Name, string(r.Function.Parameters))
		s.As, s.Description = r.Function.Name, r.Function.Description
		spec.Services = append(spec.Services, s)
	}
	b := mustTools(t, spec)
	if len(b.All()) != 14 {
		t.Fatalf("%d tools", len(b.All()))
	}
	for i, d := range b.Definitions() {
		want, err := wire.Canonicalize(recorded[i].Function.Parameters)
		if err != nil || d.Name != recorded[i].Function.Name || string(d.Parameters) != string(want) {
			t.Errorf("definition %+v of %s, %v", d, recorded[i].Function.Name, err)
		}
	}
	if calls := replayCalls(t, b); calls != 514 {
		t.Errorf("%d recorded calls", calls)
	}
}

func replayCalls(t *testing.T, b *Toolbox) int {
	f, err := os.Open(filepath.Join(airline, "transcripts.jsonl"))
	if err != nil {
		t.Skipf("no transcripts: %v", err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	calls := 0
	for d := json.NewDecoder(f); d.More(); {
		var record struct {
			Messages []struct {
				ToolCalls []struct {
					Function struct{ Name, Arguments string } `json:"function"`
				} `json:"tool_calls"`
			} `json:"messages"`
		}
		if err := d.Decode(&record); err != nil {
			t.Fatal(err)
		}
		for _, m := range record.Messages {
			for _, c := range m.ToolCalls {
				calls++
				if _, faults := tool(t, b, c.Function.Name).Validate(json.RawMessage(c.Function.Arguments)); len(faults) > 0 {
					t.Errorf("%s %s: %v", c.Function.Name, c.Function.Arguments, faults)
				}
			}
		}
	}
	return calls
}
