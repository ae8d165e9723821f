package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"testing"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// sums is the contract of calc.add with the given versions, whose input differs: each has a property of its own name.
func sums(versions ...string) sdk.Contract {
	c := desk().Services[0].Contract
	one := c.Versions[version]
	c.Versions = map[string]sdk.ContractVersion{}
	for _, v := range versions {
		c.Versions[v] = sdk.ContractVersion{
			Accepts: json.RawMessage(`{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"},"only in ` + v +
				`":{"type":"string"}},"required":["a","b"]}`),
			Emits: maps.Clone(one.Emits),
		}
	}
	return c
}

// referring is desk with its service from the registry.
func referring(rangeExpr string) sdk.AgentSpec {
	spec := desk()
	spec.Services[0].Contract = sdk.Contract{Type: "calc.add"}
	spec.Services[0].Version = rangeExpr
	return spec
}

func startReferring(t *testing.T, rangeExpr string, published sdk.Contract, model sdk.Provider) *harness.Harness {
	t.Helper()
	return harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: referring(rangeExpr)}}, Contracts: []sdk.Contract{published}, Model: model,
	})
}

// remove takes a version back, as `agentd contracts remove` does before it answers open calls.
func remove(t *testing.T, h *harness.Harness, v string) {
	t.Helper()
	if found, err := h.Conn().Registry().Remove(t.Context(), "calc.add", v); err != nil || !found {
		t.Fatalf("remove version %s: %t, %v", v, found, err)
	}
}

// again is an init event for another run.
func again(h *harness.Harness, agent, subject string) wire.Event {
	ev := h.Init(agent, hello())
	ev.ID, ev.Subject = subject, subject
	return ev
}

func TestRegistry_NewRunsUseANewVersionAndOthersKeepTheirs(t *testing.T) {
	t.Parallel()
	model := sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Ask(add(3, 4)), sdktest.Say("done"))
	h := startReferring(t, "^1", sums("1.0.0"), model)
	before := h.Run("desk", hello())
	first := h.Call("calc.add")
	h.PublishContract(sums("1.1.0"))
	after := nextRunWith(t, h, "desk", "#/calc.add/1.1.0")
	first.Answer("calc.added", sum(3))
	second := h.Call("calc.add")
	if want := "#/calc.add/1.0.0"; first.Event.DataSchema != want || second.Event.DataSchema != want || second.Event.Subject != before.Subject {
		t.Errorf("the run that was there calls %s and then %s of %s, want %s", first.Event.DataSchema, second.Event.DataSchema,
			second.Event.Subject, want)
	}
	second.Answer("calc.added", sum(7))
	wantResponse(t, h.Done(before), "done")
	after.Answer("calc.added", sum(3))
	h.Call("calc.add").Answer("calc.added", sum(7))
	wantResponse(t, h.Done(harness.Run{
		Subject: after.Event.Subject, Key: wire.NewRunKey(after.Event.Subject), Agent: "desk",
		Init: wire.InitToken("com.test.client", after.Event.Subject),
	}), "done")
}

// nextRunWith starts runs until one calls with that version, and returns its call: the worker takes a new version up when
// the registry has come to rest.
func nextRunWith(t *testing.T, h *harness.Harness, agent, dataschema string) *harness.Call {
	t.Helper()
	for i := range 1000 {
		subject := t.Name() + strconv.Itoa(i)
		h.Send(agent, again(h, agent, subject))
		call := h.Call("calc.add")
		if call.Event.DataSchema == dataschema {
			return call
		}
		h.Cancel(harness.Run{Subject: subject, Key: wire.NewRunKey(subject), Agent: agent}, "too early")
	}
	t.Fatalf("no run calls with %s", dataschema)
	return nil
}

func TestRegistry_AVersionThatCannotBeUsedIsPassedOver(t *testing.T) {
	t.Parallel()
	witness := referring("latest")
	witness.Name, witness.Contract.Type, witness.Contract.URI = "witness", "witness", "#/witness"
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: referring("^1")}, {Spec: witness}}, Contracts: []sdk.Contract{sums("1.0.0")},
		Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")),
	})
	// A record that nobody published through agentd, with a schema that does not compile.
	h.PublishRaw("$KV.AGENTD_CONTRACTS.calc_add.1_1_0", []byte(`{"uri":"#/calc.add","type":"calc.add","versions":{"1.1.0":{
		"accepts":{"type":"nothing"},"emits":{"calc.added":{"type":"object"}}}}}`))
	h.PublishContract(sums("2.0.0"))
	nextRunWith(t, h, "witness", "#/calc.add/2.0.0") // the worker has read both
	r := h.Run("desk", hello())
	call := h.Call("calc.add")
	if want := "#/calc.add/1.0.0"; call.Event.DataSchema != want || call.Event.Agent != "desk" {
		t.Errorf("%s calls %s, want %s", call.Event.Agent, call.Event.DataSchema, want)
	}
	call.Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "three")
}

// Who answers calls of one type may publish versions of that contract, with whatever in them. Calls of another go where they went, whether
// their agent names its type or its URI, and none of its versions is withdrawn.
func TestRegistry_NoContractPassesForAnother(t *testing.T) {
	t.Parallel()
	byType, byURI, witness := referring("^1"), referring("^1"), referring("latest")
	byURI.Services[0].Contract = sdk.Contract{URI: "#/calc.add"}
	byURI.Name, byURI.Contract.Type, byURI.Contract.URI = "by.uri", "by.uri", "#/by.uri"
	witness.Name, witness.Contract.Type, witness.Contract.URI = "witness", "witness", "#/witness"
	for _, spec := range []*sdk.AgentSpec{&byType, &byURI, &witness} {
		spec.Services[0].As = "calc_add"
	}
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: byType}, {Spec: byURI}, {Spec: witness}}, Contracts: []sdk.Contract{sums("1.0.0")},
		Model: sdktest.ModelFunc(func(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
			if len(req.Messages) > 1 {
				return sdktest.Say("three"), nil
			}
			return sdktest.Ask(add(1, 2)), nil
		}),
	})
	for version, uri := range map[string]string{"1.0.0": "#/calc.add", "1.8.0": "agentd:/calc.add", "1.9.0": "calc.add"} {
		forged := sums(version)
		forged.Type, forged.URI = "weather.forecast", uri
		h.PublishContract(forged)
	}
	if found, err := h.Conn().Registry().Remove(t.Context(), "weather.forecast", "1.0.0"); err != nil || !found {
		t.Fatalf("%t, %v", found, err)
	}
	h.PublishContract(sums("2.0.0"))
	nextRunWith(t, h, "witness", "#/calc.add/2.0.0") // the worker has read all of it
	for start := range 2 {
		for _, agent := range []string{"desk", "by.uri"} {
			r := h.Send(agent, again(h, agent, fmt.Sprintf("%s of start %d", agent, start)))
			call := h.Call("calc.add")
			if want := "#/calc.add/1.0.0"; call.Event.DataSchema != want || call.Event.Agent != agent {
				t.Errorf("%s calls %s of %s, want %s", call.Event.Agent, call.Event.Type, call.Event.DataSchema, want)
			}
			call.Answer("calc.added", sum(3))
			wantResponse(t, h.Done(r), "three")
		}
		h.Restart() // a worker starts all the same
	}
}

func TestRegistry_AnswersOfARemovedVersionAreRefused(t *testing.T) {
	t.Parallel()
	h := startReferring(t, "^1", sums("1.0.0"), sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Ask(add(3, 4)), sdktest.Say("done")))
	r := h.Run("desk", hello())
	call := h.Call("calc.add")
	h.Suspended(r, 1)
	remove(t, h, "1.0.0")
	h.Restart() // a worker knows the registry before it takes messages
	call.Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "done")
	for i, what := range []string{"the answer", "the next call"} {
		if c := h.Messages(r)[2+2*i].Content[0]; !c.IsError || !containsCode(c.Text, sdk.CodeContractMissing) {
			t.Errorf("%s became %s", what, c.Text)
		}
	}
	h.NoCall("calc.add")

	h.PublishContract(sums("1.0.0")) // it comes back
	h.Restart()
	back := h.Send("desk", again(h, "desk", "back"))
	for range 2 {
		h.Call("calc.add").Answer("calc.added", sum(3))
	}
	wantResponse(t, h.Done(back), "done")
}

func TestRegistry_ARunningWorkerNoticesThatAVersionIsRemoved(t *testing.T) {
	t.Parallel()
	asked, removed := make(chan struct{}, 1), make(chan struct{})
	model := sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		if req.Interactions.Current == 0 && req.Run == t.Name() {
			asked <- struct{}{}
			<-removed
			return sdktest.Ask(add(1, 2)), nil
		}
		if len(req.Messages) > 1 {
			return sdktest.Say(req.Messages[len(req.Messages)-1].Content[0].Text), nil
		}
		return sdktest.Ask(add(1, 2)), nil
	})
	h := startReferring(t, "^1", sums("1.0.0"), model)
	r := h.Run("desk", hello())
	<-asked
	remove(t, h, "1.0.0")
	for i := 0; ; i++ { // until the worker has noticed
		subject := fmt.Sprintf("%s-%d", t.Name(), i)
		probe := h.Send("desk", again(h, "desk", subject))
		s := h.Until(probe, "waiting or done", func(s core.State) bool { return s.Status != core.StatusRunning })
		if s.Status == core.StatusDone {
			break
		}
		h.Call("calc.add")
	}
	close(removed)
	// This run's call went out although the version is gone. Its answer is refused all the same.
	call := h.Call("calc.add")
	call.Answer("calc.added", sum(3))
	ended := h.Done(r)
	if s := h.State(r); len(s.Messages()) < 3 || !containsCode(s.Messages()[2].Content[0].Text, sdk.CodeContractMissing) {
		t.Errorf("the run ended with %s", ended.Data)
	}
}

func TestRegistry_AContractOfTheAgentsOwnIsNotConcerned(t *testing.T) {
	t.Parallel()
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: desk()}}, Contracts: []sdk.Contract{desk().Services[0].Contract},
		Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")),
	})
	remove(t, h, version)
	h.Restart()
	r := h.Run("desk", hello())
	h.Call("calc.add").Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "three")
}
