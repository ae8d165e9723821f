package pipeline

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// Runs have the tags of their init event, and for other keys those of their agent; an operator changes them, and the index says so.
func TestTags_OfEventAgentAndOperator(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Tags = map[string]string{
		"tenant": "input.from.place", "size": "size(input.message)", "order": `"of the agent"`, "by": "initiator", "bad": `"a,b"`,
		"gone": "input.nothing.there", "list": "[1]", "which": `agent + "/" + run`,
	}
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec}}, Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("3"))})
	indexed(t, h)
	init := h.Init("desk", map[string]any{"message": "Add one and two", "from": map[string]string{"place": "Lisbon"}})
	init.Subject, init.Extensions = "seven", map[string]any{wire.TagsAttribute: "order=7"}
	r := h.SendAs("anna", "desk", init)
	h.Suspended(r, 1)
	asking := client.New(h.Conn(), client.Options{Source: "test"})
	run := client.Run{Agent: "desk", Name: "seven"}
	status, err := asking.Status(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"tenant": "Lisbon", "size": "15", "order": "7", "by": "anna", "which": "desk/seven"}
	if diff := cmp.Diff(want, status.Tags); diff != "" {
		t.Errorf("a run begins with (-want +got):\n%s", diff)
	}
	ticket := "4711"
	if heeded, err := asking.Tag(t.Context(), run, map[string]*string{"ticket": &ticket, "which": nil, "size": nil, "by": nil}); err != nil || !heeded {
		t.Fatalf("tag: %v, %v", heeded, err)
	}
	want = map[string]string{"tenant": "Lisbon", "order": "7", "ticket": ticket}
	all := documents(t, h, 1, func(i broker.IndexedRun) bool { return strings.Contains(string(i.Data), ticket) })
	if diff := cmp.Diff(want, decoded(t, all[len(all)-1]).Tags); diff != "" {
		t.Errorf("the index has (-want +got):\n%s", diff)
	}
	h.Call("calc.add").Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "3")
	if got := h.State(r).Tags; got != "order=7,tenant=Lisbon,ticket=4711" {
		t.Errorf("at its end the run has %q", got)
	}
}
