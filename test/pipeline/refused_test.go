package pipeline

import (
	"testing"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/internal/harness"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// An init event for an agent that nobody serves is refused, and stays so when the agent comes: nothing is done for it. What is
// sent to the agent afterwards is handled as ever.
func TestRefused_InitStaysSoWhenItsAgentComes(t *testing.T) {
	t.Parallel()
	later := callable("later", desk().Services[0])
	model := sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three"))
	r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: model}, 0)
	first := r.work(0)
	start := func(name string) harness.Run {
		ev := r.init(name)
		r.check("publish init event", r.client.Start(t.Context(), "later", ev))
		return harness.Run{Subject: name, Key: wire.NewRunKey(name), Agent: "later", Init: wire.InitToken(ev.Source, ev.ID)}
	}
	refused := start("too early")
	p := problem(t, r.end(refused))
	if p.Code != sdk.CodeUnknownAgent {
		t.Fatalf("ended with %+v", p)
	}
	r.halt(first)

	r.specs = append(r.specs, later)
	r.agents = append(r.agents, sdk.Agent{Spec: later})
	_, err := provision.Apply(t.Context(), r.client, worker.Plan(r.specs))
	r.check("provision", err)
	r.answerSums("", nil)
	r.work(0)
	if ev := r.end(start("in time")); ev.Type != "later.done" || string(ev.Data) != `{"response":"three"}` {
		t.Fatalf("ended with %s %s", ev.Type, ev.Data)
	}
	r.until("both init events are acked", func() bool {
		floor, err := r.client.AckFloor(t.Context(), streams.AgentConsumers("later")[0])
		r.check("look at consumer", err)
		return floor == 2
	})
	if h := r.head(refused); h.Status != "" {
		t.Errorf("the refused event began a run: %s", h.Status)
	}
	for _, req := range model.Requests() {
		if req.Run == "too early" {
			t.Error("the model was asked for a run that was refused")
		}
	}
	r.check("read dead letters", r.client.Letters(t.Context(), broker.LetterFilter{}, func(l broker.Letter) (bool, error) {
		t.Errorf("dead letter %s of %s", l.Reason, l.Subject)
		return true, nil
	}))
	sound(t, r.client, r.store)
}
