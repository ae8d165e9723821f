package seeds_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// manager is a permission manager of an agent's author: it asks for the tools that it names, and remembers what it was told.
type manager struct {
	terms sdk.PermissionTerms
	tools []string
	// reserved is the grant that covers every call that would be asked for.
	reserved string

	// ended holds the runs that were cleaned up after. A run is, once its terminal event is out.
	ended chan string

	mu      sync.Mutex
	checks  []sdk.PermissionCheck
	records []sdk.GrantRecord
	built   []string
}

func (m *manager) Check(_ context.Context, c sdk.PermissionCheck) (sdk.PermissionRuling, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.checks = append(m.checks, c)
	if !slices.Contains(m.tools, c.Tool) {
		return sdk.PermissionRuling{Verdict: sdk.PermissionAllow}, nil
	}
	return sdk.PermissionRuling{Verdict: sdk.PermissionAsk, Rule: "named", Reason: "it is named", Terms: m.terms}, nil
}

func (m *manager) Reserve(context.Context, sdk.PermissionCheck) (string, error) {
	return m.reserved, nil
}

func (m *manager) Request(_ context.Context, _ sdk.PermissionCheck, r sdk.PermissionRequest) (sdk.PermissionRequest, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.built = append(m.built, r.Tool)
	r.Reason = "built: " + r.Reason
	return r, nil
}

func (m *manager) Record(_ context.Context, g sdk.GrantRecord) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = append(m.records, g)
	return nil
}

func (m *manager) Cleanup(ctx context.Context, run string) error {
	select {
	case m.ended <- run:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// told is what the manager was told so far: the checks, the grants to record, and the tools whose requests it built.
func (m *manager) told() (checks []sdk.PermissionCheck, records []sdk.GrantRecord, built []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.checks), slices.Clone(m.records), slices.Clone(m.built)
}

// asks is a manager that asks people for the tools.
func asks(mode sdk.PermissionMode, tools ...string) *manager {
	return &manager{tools: tools, ended: make(chan string, 16), terms: sdk.PermissionTerms{
		Mode: mode, Stages: []sdk.PermissionStage{{Domain: sdk.HumanDomain, TimeoutMillis: 3600_000}},
		Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeToolPattern, sdk.ScopeTool, sdk.ScopePrincipal},
	}}
}

// gated is a desk whose calls the manager rules on.
func gated(m *manager, services ...sdk.ServiceTool) sdk.Agent {
	a := desk(services...)
	a.Hooks.Permissions = m
	return a
}

func request(t *testing.T, h *harness.Harness) *harness.Call {
	t.Helper()
	return h.Call(sdk.TypePermissionRequest)
}

// decide answers a permission request.
func decide(c *harness.Call, d sdk.PermissionDecision) {
	d.ArgsHash, _ = c.Data()["args_sha256"].(string)
	c.Answer(sdk.TypePermissionDecided, d)
}

var allow = sdk.PermissionDecision{Decision: sdk.DecisionAllow}

func find(number int) sdk.ModelReply { return sdktest.Ask(sdktest.Tool("shop_find", n(number))) }

// permissionContext is rows A7 and A17: what a check is told is the same before and after a suspension.
func permissionContext(t *testing.T) {
	m := asks(sdk.PermissionHold)
	h := start(t, sdktest.Script(find(1), find(2), sdktest.Say("done")), gated(m, service("shop.find")))
	ev := h.Init("desk", message("hello"))
	ev.AccessControl = "tenant:acme"
	r := h.Send("desk", ev)
	h.Suspended(r, 1)
	h.Restart()
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	checks, _, _ := m.told()
	equal(t, "checks", len(checks), 2)
	for _, c := range checks {
		equal(t, "context", []string{c.Run, c.AccessControl, c.Agent, c.Tool}, []string{r.Subject, "tenant:acme", "desk", "shop_find"})
	}
}

// permissionPolicy is rows A8, A25 and A26: the manager rules tool by tool; without a policy nothing is asked for.
func permissionPolicy(t *testing.T) {
	script := func() *sdktest.Model {
		return sdktest.Script(
			sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_buy", n(2))), sdktest.Say("done"))
	}
	m := asks(sdk.PermissionHold, "shop_buy")
	h := start(t, script(), gated(m, service("shop.find"), service("shop.buy")))
	r := h.Run("desk", message("hello"))
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	asked := request(t, h)
	equal(t, "asked for", asked.Data()["tool"], "shop_buy")
	decide(asked, allow)
	h.Call("shop.buy").Answer("shop.buy.done", value("bought"))
	succeeds(t, h, r, `{"response": "done"}`)
	var ruled []string
	checks, _, _ := m.told()
	for _, c := range checks {
		ruled = append(ruled, c.Tool)
	}
	equal(t, "ruled on, and once more when it is made", ruled, []string{"shop_find", "shop_buy", "shop_buy"})

	h = start(t, script(), desk(service("shop.find"), service("shop.buy")))
	r = h.Run("desk", message("hello"))
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	h.Call("shop.buy").Answer("shop.buy.done", value("bought"))
	succeeds(t, h, r, `{"response": "done"}`)
	h.NoCall(sdk.TypePermissionRequest)
}

// permissionResponse is rows A12 and B11: a decision is kept, for the rest of the run and wider, before anything else runs.
func permissionResponse(t *testing.T) {
	m := asks(sdk.PermissionHold, "shop_find")
	model := sdktest.Script(find(1), find(2), sdktest.Say("done"))
	h := start(t, model, gated(m, service("shop.find")))
	r := h.Run("desk", message("hello"))
	decide(request(t, h), sdk.PermissionDecision{Decision: sdk.DecisionAllow, Scope: sdk.ScopeTool})
	call := h.Call("shop.find")
	var kept bool
	for _, e := range h.Parts(r) {
		// The entry that absorbs the decision has the grant in its head, and sends the call.
		kept = kept || len(e.Head.Grants) == 1 && e.Effect(core.EffectCall, call.Event.ID).Kind == core.EffectCall
	}
	equal(t, "the grant is kept with the call", kept, true)
	call.Answer("shop.find.done", value("it"))
	h.Call("shop.find").Answer("shop.find.done", value("it")) // covered by the grant
	succeeds(t, h, r, `{"response": "done"}`)
	h.NoCall(sdk.TypePermissionRequest)
}

// permissionFailure is row A13.
func permissionFailure(t *testing.T) {
	h := start(t, sdktest.Script(find(1)), gated(asks(sdk.PermissionHold, "shop_find"), service("shop.find")))
	r := h.Run("desk", message("hello"))
	request(t, h).Fail(wire.NewProblem(sdk.Errorf(sdk.CodeUnavailable, "the desk burnt down")))
	equal(t, "code", fails(t, h, r, deskType).Code, sdk.CodeUnavailable)
	h.NoCall("shop.find")
}

// answerAsText is rows A16 and A29: the blocked call's result says that permission was asked for, and the decision comes as
// a text. It lets that call be made, and no other.
func answerAsText(t *testing.T) {
	model := sdktest.Script(find(1), find(1), find(2), sdktest.Say("done"))
	h := start(t, model, gated(asks(sdk.PermissionRetry, "shop_find"), service("shop.find")))
	r := h.Run("desk", message("hello"))
	asked := request(t, h)
	h.NoCall("shop.find")
	decide(asked, sdk.PermissionDecision{Decision: sdk.DecisionAllow, Reason: "go ahead"})
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	decide(request(t, h), sdk.PermissionDecision{Decision: sdk.DecisionDeny, Reason: "no more"})
	succeeds(t, h, r, `{"response": "done"}`)
	h.NoCall("shop.find")
	told := model.Requests()[1].Messages
	equal(t, "blocked", problem(t, results(t, told, 1)[0]).Code, sdk.CodePermissionNeeded)
	text := told[len(told)-1]
	if text.Role != sdk.RoleUser || !strings.Contains(text.PlainText(), "go ahead") {
		t.Errorf("the decision reaches the model as %+v", text)
	}
}

// requestEvent is row A34: a request for each blocked call, built by the manager's builder; or where the policy says so one for all.
func requestEvent(t *testing.T) {
	m := asks(sdk.PermissionHold, "shop_find", "shop_buy")
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_buy", n(2))), sdktest.Say("done"))
	h := start(t, model, gated(m, service("shop.find"), service("shop.buy")))
	r := h.Run("desk", message("hello"))
	for range 2 {
		asked := request(t, h)
		equal(t, "reason", asked.Data()["reason"], "built: it is named")
		decide(asked, sdk.PermissionDecision{Decision: sdk.DecisionDeny})
	}
	succeeds(t, h, r, `{"response": "done"}`)
	_, _, built := m.told()
	equal(t, "built for", built, []string{"shop_find", "shop_buy"})
	select {
	case run := <-m.ended:
		equal(t, "cleaned up after", run, r.Subject)
	case <-time.After(harness.Patience):
		t.Error("the run was not cleaned up after")
	}
	requestForAll(t)
}

// requestIsACall is row A35.
func requestIsACall(t *testing.T) {
	h := start(t, sdktest.Script(find(1), sdktest.Say("done")), gated(asks(sdk.PermissionHold, "shop_find"), service("shop.find")))
	r := h.Run("desk", message("hello"))
	asked := request(t, h)
	state := h.Suspended(r, 2) // the held call and its request
	ref, ok := wire.ParseCallRef(asked.Event.ID)
	equal(t, "the request has a call's id of its own", ok && ref.ID != state.Calls[0].ID && ref.ID == state.Calls[1].ID, true)
	equal(t, "domain", asked.Event.Domain, sdk.HumanDomain)
	decide(asked, allow)
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
}

// approvalCache is row B10: what one run's approval allows for its principal is not asked for in another, and what a decision on a batch
// allows for the run is not asked for again.
func approvalCache(t *testing.T) {
	a := desk(service("shop.find"))
	a.Spec.Permissions = &sdk.PermissionPolicy{
		Rules: []sdk.PermissionRule{{Tools: []string{"shop_find"}, Verdict: sdk.PermissionAsk}},
		Terms: sdk.PermissionPolicyTerms{Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopePrincipal}},
	}
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{a}, Model: sdktest.Script(find(1), sdktest.Say("done")), Identity: true,
	})
	first := h.SendAs("anna", "desk", h.Init("desk", message("one")))
	asked := request(t, h)
	d := sdk.PermissionDecision{Decision: sdk.DecisionAllow, Scope: sdk.ScopePrincipal, Uses: 1}
	d.ArgsHash, _ = asked.Data()["args_sha256"].(string)
	h.PublishAs("boss", asked, asked.Response(sdk.TypePermissionDecided, d))
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, first, `{"response": "done"}`)

	again := h.Init("desk", message("two"))
	again.ID, again.Subject = again.ID+"-2", again.Subject+"-2"
	second := h.SendAs("anna", "desk", again)
	h.Call("shop.find").Answer("shop.find.done", value("it")) // not asked for
	succeeds(t, h, second, `{"response": "done"}`)

	used := h.Init("desk", message("three"))
	used.ID, used.Subject = used.ID+"-3", used.Subject+"-3"
	third := h.SendAs("anna", "desk", used)
	asked = request(t, h) // its one use is used up
	d.ArgsHash, _ = asked.Data()["args_sha256"].(string)
	h.PublishAs("boss", asked, asked.Response(sdk.TypePermissionDecided, sdk.PermissionDecision{
		Decision: sdk.DecisionDeny, ArgsHash: d.ArgsHash,
	}))
	succeeds(t, h, third, `{"response": "done"}`)
	batchOfApprovals(t)
}

// gateOutcomes is rows T31, T32 and T33: a blocked, a suspended and impossible calls in one round, of which one is out of scope.
func gateOutcomes(t *testing.T) {
	a := desk(service("shop.find"), service("shop.buy"))
	a.Tools = []sdk.Tool{echo("later")}
	a.Spec.Rules = []sdk.HookRule{{Name: "first", When: "interactions == 0", Hide: []string{"later"}}}
	a.Spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{
		{Tools: []string{"shop_buy"}, Verdict: sdk.PermissionDeny, Reason: "closed"},
		{Tools: []string{"shop_find"}, Verdict: sdk.PermissionAsk},
	}}
	model := sdktest.Script(sdktest.Ask(
		sdktest.Tool("shop_buy", n(1)), sdktest.Tool("shop_find", n(2)), sdktest.Tool("shop_find", map[string]any{"n": "x"}),
		sdktest.Tool("nothing", n(3)), sdktest.Tool("later", n(4)),
	), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	state := h.Suspended(r, 2) // the held call and its request are open
	var statuses []core.CallStatus
	for _, c := range state.Calls[:5] {
		statuses = append(statuses, c.Status)
	}
	equal(t, "outcomes", statuses, []core.CallStatus{core.CallFailed, core.CallSuspended, core.CallFailed, core.CallFailed, core.CallFailed})
	decide(request(t, h), allow)
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	told := results(t, last(t, model).Messages, 5)
	for i, want := range map[int]sdk.Code{
		0: sdk.CodePermissionDenied, 2: sdk.CodeContractViolation, 3: sdk.CodeUnknownTool, 4: sdk.CodeUnknownTool,
	} {
		equal(t, "code", problem(t, told[i]).Code, want)
	}
}

// allModes is row L68.
func allModes(t *testing.T) {
	t.Run("once, edit, reject, session", resumeModes)
	t.Run("always", func(t *testing.T) { show(t, permissionStore) })
}

// resumeModes is row L68: the call is made as asked, or with an approver's arguments, or not at all; and an approval for the rest of the
// run.
func resumeModes(t *testing.T) {
	model := sdktest.Script(find(1), find(2), find(5), find(3), find(4), sdktest.Say("done"))
	h := start(t, model, gated(asks(sdk.PermissionHold, "shop_find"), service("shop.find")))
	r := h.Run("desk", message("hello"))
	carried := func(want string) {
		t.Helper()
		call := h.Call("shop.find")
		equalJSON(t, "arguments", call.Event.Data, want)
		call.Answer("shop.find.done", value("it"))
	}
	decide(request(t, h), allow)
	carried(`{"n": 1}`)
	decide(request(t, h), sdk.PermissionDecision{Decision: sdk.DecisionAllow, Args: json.RawMessage(`{"n":20}`)})
	carried(`{"n": 20}`)
	decide(request(t, h), sdk.PermissionDecision{Decision: sdk.DecisionDeny, Reason: "no"})
	decide(request(t, h), sdk.PermissionDecision{Decision: sdk.DecisionAllow, Scope: sdk.ScopeTool})
	carried(`{"n": 3}`)
	carried(`{"n": 4}`)
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "rejected", problem(t, results(t, h.Messages(r), 5)[2]).Code, sdk.CodePermissionDenied)
}

// permissionRules is row T63: rules allow, ask and deny, in order, and remember.
func permissionRules(t *testing.T) {
	a := desk(service("shop.find"), service("shop.buy"), service("shop.wipe"))
	a.Spec.Permissions = &sdk.PermissionPolicy{
		Rules: []sdk.PermissionRule{
			{Tools: []string{"shop_find"}, Verdict: sdk.PermissionAllow},
			{Tools: []string{"shop_buy"}, When: "args.n > 10", Verdict: sdk.PermissionAsk},
			{Verdict: sdk.PermissionDeny},
		},
		Terms: sdk.PermissionPolicyTerms{Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeToolPattern}},
	}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_buy", n(5)), sdktest.Tool("shop_buy", n(50)), sdktest.Tool("shop_wipe", n(1))),
		sdktest.Ask(sdktest.Tool("shop_buy", n(60))), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	decide(request(t, h), sdk.PermissionDecision{Decision: sdk.DecisionAllow, Scope: sdk.ScopeToolPattern, Pattern: "args.n < 100"})
	for range 2 { // the second is remembered
		h.Call("shop.buy").Answer("shop.buy.done", value("bought"))
	}
	succeeds(t, h, r, `{"response": "done"}`)
	told := results(t, model.Requests()[1].Messages, 4)
	for _, i := range []int{1, 3} {
		equal(t, "code", problem(t, told[i]).Code, sdk.CodePermissionDenied)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
