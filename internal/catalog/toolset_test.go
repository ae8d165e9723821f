package catalog_test

import (
	stdcmp "cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/approval"
	"agentd/internal/catalog"
	"agentd/internal/runner"
	"agentd/sdk"
)

// toolset offers the tool "look" and counts what is done to it.
type toolset struct {
	name           string
	listed, closed int
	required       bool
	tool           string // in place of look
	listErr        error
	closeErr       error
}

func (s *toolset) Required() bool { return s.required }

func (s *toolset) Name() string { return s.name }

func (s *toolset) Tools(ctx context.Context) ([]sdk.Tool, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		return nil, errors.New("listing has no deadline")
	}
	s.listed++
	return []sdk.Tool{{Definition: sdk.ToolDefinition{Name: stdcmp.Or(s.tool, "look")}, Run: answer(s.name), AtMostOnce: true}}, s.listErr
}

func (s *toolset) Close() error {
	s.closed++
	return s.closeErr
}

// answer is a tool that says who it is.
func answer(name string) func(context.Context, sdk.ToolCall) (json.RawMessage, error) {
	return func(context.Context, sdk.ToolCall) (json.RawMessage, error) { return json.Marshal(name) }
}

// specs is a SpecStore of one spec.
type specs []byte

func (s specs) Spec(context.Context, string) ([]byte, error) { return s, nil }

func noModel(sdk.ModelSpec) (sdk.Provider, error) { return nil, nil }

func desk(sets ...sdk.Toolset) sdk.Agent {
	object := json.RawMessage(`{"type": "object"}`)
	return sdk.Agent{Toolsets: sets, Spec: sdk.AgentSpec{
		Name: "desk", Version: "1.0.0", Contract: sdk.Contract{
			URI: "#/desk", Type: "desk", Versions: map[string]sdk.ContractVersion{
				"1.0.0": {Accepts: object, Emits: map[string]json.RawMessage{"desk.done": object}},
			},
		},
	}}
}

func current(t *testing.T, c *catalog.Catalog) *runner.Agent {
	t.Helper()
	a, ok := c.Current("desk")
	if !ok {
		t.Fatal("agent desk is missing")
	}
	return a
}

// says runs an inline tool of an agent.
func says(t *testing.T, a *runner.Agent, tool string) string {
	t.Helper()
	data, err := a.Inline[tool].Run(t.Context(), sdk.ToolCall{})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestSet_OffersTheToolsOfToolsetsUnderTheirNames(t *testing.T) {
	t.Parallel()
	c := catalog.New(specs{}, noModel, approval.Options{})
	a := desk(&toolset{name: "web"}, &toolset{name: "disk"})
	a.Tools = []sdk.Tool{{Definition: sdk.ToolDefinition{Name: "look"}, Run: answer("own")}}
	if err := c.Set([]sdk.Agent{a}); err != nil {
		t.Fatal(err)
	}
	compiled := current(t, c)
	for tool, want := range map[string]string{"look": `"own"`, "web_look": `"web"`, "disk_look": `"disk"`} {
		if got := says(t, compiled, tool); got != want {
			t.Errorf("%s says %s, want %s", tool, got, want)
		}
	}
	for _, tool := range compiled.Core.Tools {
		if tool.AtMostOnce != (tool.Name != "look" && tool.Name != sdk.ToolReadMore) {
			t.Errorf("tool %s: at most once is %t", tool.Name, tool.AtMostOnce)
		}
	}
	var spec sdk.AgentSpec
	if err := json.Unmarshal(compiled.SpecJSON, &spec); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"tool:look", "toolset:disk", "toolset:web"}, spec.Code); diff != "" {
		t.Errorf("code (-want +got):\n%s", diff)
	}
}

func TestSet_ClosesWhatIsNoLongerUsed(t *testing.T) {
	t.Parallel()
	gone, stays, comes, refused := &toolset{name: "a"}, &toolset{name: "b"}, &toolset{name: "c"}, &toolset{name: "d"}
	gone.closeErr = errors.New("broken pipe")
	c := catalog.New(specs{}, noModel, approval.Options{})
	second := desk(stays)
	second.Spec.Name, second.Spec.Contract.Type = "second", "second"
	broken := desk(stays, refused)
	broken.Spec.Version = "9.9.9"
	for _, agents := range [][]sdk.Agent{{desk(gone, stays), second}, {desk(stays, comes)}} {
		if err := c.Set(agents); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Set([]sdk.Agent{broken}); err == nil {
		t.Fatal("an agent without its contract's version was taken")
	}
	closed := func() []int { return []int{gone.closed, stays.closed, comes.closed, refused.closed} }
	if diff := cmp.Diff([]int{1, 0, 0, 1}, closed()); diff != "" {
		t.Errorf("closed before the end (-want +got):\n%s", diff)
	}
	if err := c.Close(); err == nil || !strings.Contains(err.Error(), "broken pipe") {
		t.Errorf("what went wrong with closing is reported as %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
	if diff := cmp.Diff([]int{1, 1, 1, 1}, closed()); diff != "" {
		t.Errorf("closed at the end (-want +got):\n%s", diff)
	}
}

// byValue is a toolset that cannot be told from another.
type byValue struct{ _ []string }

func (byValue) Name() string                              { return "value" }
func (byValue) Tools(context.Context) ([]sdk.Tool, error) { return nil, nil }
func (byValue) Close() error                              { return nil }

func TestSet_RefusesToolsetsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	wrong := &toolset{name: "wrong", listErr: sdk.Errorf(sdk.CodeConfig, "no such host")}
	err := catalog.New(specs{}, noModel, approval.Options{}).Set([]sdk.Agent{desk(wrong, byValue{})})
	for _, want := range []string{"agent desk", "toolset wrong", "no such host", "toolset value"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error %v does not say %q", err, want)
		}
	}
	if wrong.closed != 1 {
		t.Errorf("the toolset was closed %d times, want once", wrong.closed)
	}
}

// An agent whose required toolset is away keeps no other from being served, and is served when the toolset has answered,
// then for good.
func TestSet_AgentOfARequiredToolsetThatIsAwayWaits(t *testing.T) {
	t.Parallel()
	away, here := &toolset{name: "away", required: true, listErr: errors.New("connection refused")}, &toolset{name: "here"}
	other := desk(here)
	other.Spec.Name, other.Spec.Contract.Type, other.Spec.Contract.URI = "other", "other", "#/other"
	agents := []sdk.Agent{desk(away, here), other}
	c := catalog.New(specs{}, noModel, approval.Options{})
	if err := c.Set(agents); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Current("other"); !ok {
		t.Error("an agent whose toolset is there is not served")
	}
	if _, ok := c.Current("desk"); ok {
		t.Error("an agent is served without a part of its tools")
	}
	if _, err := c.Version(t.Context(), "desk", "any"); !errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
		t.Errorf("a run of the agent goes on: %v", err)
	}
	waiting := c.Waiting()
	if len(waiting) != 1 || waiting[0].Agent != "desk" || waiting[0].Toolset != "away" || waiting[0].Err == nil {
		t.Errorf("waiting %+v", waiting)
	}
	if c.Silence() == 0 || here.listed != 1 {
		t.Errorf("one pass asks a toolset %d times", here.listed)
	}
	for _, listErr := range []error{nil, errors.New("gone again")} {
		away.listErr = listErr
		if err := c.Refresh(agents); err != nil {
			t.Fatal(err)
		}
		agent, ok := c.Current("desk")
		if !ok || len(agent.Definitions) < 2 || len(c.Waiting()) > 0 {
			t.Errorf("listing ends with %v: served %t, waiting %v", listErr, ok, c.Waiting())
		}
	}
}

// An agent is served without the tools of a toolset that is away, also by a former spec, and says so of each of them.
func TestSet_AgentOfAToolsetThatIsAwayHasTheOthers(t *testing.T) {
	t.Parallel()
	away, here := &toolset{name: "away"}, &toolset{name: "here"}
	agents := []sdk.Agent{desk(away, here)}
	agents[0].Spec.StopOn = []string{"away_look"}
	whole := catalog.New(specs{}, noModel, approval.Options{})
	if err := whole.Set(agents); err != nil {
		t.Fatal(err)
	}
	away.listErr = errors.New("connection refused")
	c := catalog.New(specs(current(t, whole).SpecJSON), noModel, approval.Options{})
	if err := c.Set(agents); err != nil {
		t.Fatal(err)
	}
	if current(t, c).Core.Digest != current(t, whole).Core.Digest {
		t.Error("runs that begin while the toolset is away have another spec")
	}
	then, err := c.Version(t.Context(), "desk", "former")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []*runner.Agent{current(t, c), then} {
		if len(a.Definitions) != 1 || a.Definitions[0].Name != "here_look" || says(t, a, "here_look") != `"here"` {
			t.Errorf("the tools are %+v", a.Definitions)
		}
		if e := a.Core.Away("away_look"); e == nil || e.Code != sdk.CodeUnavailable || a.Core.Away("here_look") != nil || a.Core.Away("far_look") != nil {
			t.Errorf("of its tool is said %v", e)
		}
	}
	if waiting := c.Waiting(); len(waiting) != 1 || waiting[0].Required {
		t.Errorf("waiting %+v", waiting)
	}
	away.listErr = nil
	if err := c.Refresh(agents); err != nil {
		t.Fatal(err)
	}
	if a := current(t, c); len(a.Definitions) != 2 || a.Core.Away("away_nothing") != nil || len(c.Waiting()) > 0 {
		t.Errorf("back, it has the tools %+v; waiting is %v", a.Definitions, c.Waiting())
	}
}

// A toolset that lists a tool under the name of another's harms the agents that have both. All others have what their toolsets list now.
func TestRefresh_AnAgentThatCannotBeUsedStaysAsItIs(t *testing.T) {
	t.Parallel()
	web, eu, disk := &toolset{name: "web"}, &toolset{name: "web_eu"}, &toolset{name: "disk"}
	other := desk(web, disk)
	other.Spec.Name, other.Spec.Contract.Type, other.Spec.Contract.URI = "other", "other", "#/other"
	agents := []sdk.Agent{desk(web, eu), other}
	c := catalog.New(specs{}, noModel, approval.Options{})
	if err := c.Set(agents); err != nil {
		t.Fatal(err)
	}
	offered := func(agent string) []string {
		t.Helper()
		a, ok := c.Current(agent)
		if !ok {
			t.Fatalf("agent %s is not served", agent)
		}
		var names []string
		for _, d := range a.Definitions {
			names = append(names, d.Name)
		}
		return names
	}
	web.tool, disk.tool = "eu_look", "see"
	want := `agent desk: config: the tools of agent desk cannot be used; $.inline[1]: expected a tool name of its own, ` +
		`got "web_eu_look" for toolset web and toolset web_eu`
	if err := c.Refresh(agents); err == nil || err.Error() != want {
		t.Errorf("refresh: %v\nwant:    %s", err, want)
	}
	if diff := cmp.Diff([]string{"web_look", "web_eu_look"}, offered("desk")); diff != "" {
		t.Errorf("the agent with both has other tools (-want +got):\n%s", diff)
	}
	if got := says(t, current(t, c), "web_eu_look"); got != `"web_eu"` {
		t.Errorf("a tool of web_eu is that of %s", got)
	}
	if diff := cmp.Diff([]string{"web_eu_look", "disk_see"}, offered("other")); diff != "" {
		t.Errorf("the agent that has one of them (-want +got):\n%s", diff)
	}
	web.tool = "see"
	if err := c.Refresh(agents); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"web_see", "web_eu_look"}, offered("desk")); diff != "" {
		t.Errorf("once they differ again (-want +got):\n%s", diff)
	}
}

// What is wrong with the agent itself is said also while its toolset is away.
func TestSet_RefusesAWrongAgentWhoseToolsetIsAway(t *testing.T) {
	t.Parallel()
	a := desk(&toolset{name: "away", listErr: errors.New("connection refused")})
	a.Spec.StopOn = []string{"away_look", "nothing"}
	err := catalog.New(specs{}, noModel, approval.Options{}).Set([]sdk.Agent{a})
	if err == nil || !strings.Contains(err.Error(), "nothing") || strings.Contains(err.Error(), "away_look") {
		t.Errorf("error %v", err)
	}
}

func TestVersion_FormerSpecKeepsItsToolsets(t *testing.T) {
	t.Parallel()
	before := catalog.New(specs{}, noModel, approval.Options{})
	if err := before.Set([]sdk.Agent{desk(&toolset{name: "web"})}); err != nil {
		t.Fatal(err)
	}
	former := current(t, before)

	after := catalog.New(specs(former.SpecJSON), noModel, approval.Options{})
	changed := desk(&toolset{name: "web"}, &toolset{name: "disk"})
	if err := after.Set([]sdk.Agent{changed}); err != nil {
		t.Fatal(err)
	}
	kept, err := after.Version(t.Context(), "desk", former.Core.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if says(t, kept, "web_look") != `"web"` || len(kept.Inline) != 2 { // and read_more
		t.Errorf("the former version has the tools %v", kept.Inline)
	}
	if err := after.Set([]sdk.Agent{desk(&toolset{name: "disk"})}); err != nil {
		t.Fatal(err)
	}
	if _, err := after.Version(t.Context(), "desk", former.Core.Digest); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		t.Errorf("without the toolset, the former version is %v, want a configuration error", err)
	}
}

func TestCheck_ConnectsToNothing(t *testing.T) {
	t.Parallel()
	set := &toolset{name: "web"}
	a := desk(set)
	a.Spec.StopOn = []string{"web_look"}
	if err := catalog.Check(a, approval.Options{}); err != nil || set.listed != 0 {
		t.Errorf("check: %v, listed %d times", err, set.listed)
	}
	a.Spec.StopOn = []string{"disk_look"}
	if err := catalog.Check(a, approval.Options{}); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		t.Errorf("a stop-on tool of no toolset: %v", err)
	}
}

// A policy on a tool that the toolset does not have: the agent is refused, or waits where the toolset has lost it.
func TestSet_RefusesAPolicyOnAToolThatTheToolsetDoesNotHave(t *testing.T) {
	set := &toolset{name: "eye"}
	agent := desk(set)
	agent.Spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{{Tools: []string{"eye_look"}, Verdict: sdk.PermissionDeny}}}
	c := catalog.New(specs(nil), noModel, approval.Options{})
	if err := c.Set([]sdk.Agent{agent}); err != nil {
		t.Fatal(err)
	}
	digest := current(t, c).Core.Digest
	set.tool = "see"
	want := `agent desk: toolset eye: config: the agent names tools or arguments that do not exist; $.permissions.rules[0].tools[0]: ` +
		`expected a tool of the agent, got "eye_look"; there is eye_see`
	if err := c.Set([]sdk.Agent{agent}); err == nil || err.Error() != want {
		t.Errorf("set:  %v\nwant: %s", err, want)
	}
	if current(t, c).Core.Digest != digest {
		t.Error("another agent is served")
	}
	if err := c.Refresh([]sdk.Agent{agent}); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Current("desk"); ok || len(c.Waiting()) != 1 {
		t.Errorf("runs begin under a policy that protects nothing; waiting %v", c.Waiting())
	}
	if _, err := c.Version(t.Context(), "desk", digest); !errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
		t.Errorf("runs go on: %v", err)
	}
	set.tool = ""
	if err := c.Refresh([]sdk.Agent{agent}); err != nil {
		t.Fatal(err)
	}
	if current(t, c).Core.Digest != digest || len(c.Waiting()) != 0 {
		t.Errorf("the agent is not served again; waiting %v", c.Waiting())
	}
}

func (s specs) PutSpec(context.Context, string, []byte) error { return nil }
