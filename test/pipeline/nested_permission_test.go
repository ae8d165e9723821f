package pipeline

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// A tool of the same name needs permission in an agent, in one that it calls, and in another run of the latter that that
// calls. The requests are decided from the outside in, one with a denial: each call is made by its own decision, once.
func TestPermission_EqualNamesThroughTwoLevelsOfAgents(t *testing.T) {
	t.Parallel()
	child := callable("child", desk().Services[0])
	child.Services = append(child.Services, calling(child))
	parent := callable("parent", calling(child), desk().Services[0])
	child.Permissions = asking(sdk.PermissionPolicyTerms{}, "calc_add")
	parent.Permissions = child.Permissions
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: parent}, {Spec: child}}, Model: models(map[string]sdk.Provider{
		"parent": sdktest.Script(sdktest.Ask(tell("child", "first"), add(1, 1)), sdktest.Say("parent is done")),
		"child": sdktest.ModelFunc(func(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
			switch {
			case req.Interactions.Current > 0:
				return sdktest.Say("done"), nil
			case req.Messages[0].PlainText() == "first":
				return sdktest.Ask(tell("child", "second"), add(2, 2)), nil
			}
			return sdktest.Ask(add(3, 3)), nil
		}),
	})})
	r := h.Run("parent", hello())
	requests := map[float64]*harness.Call{}
	for range 3 {
		c := h.Call(sdk.TypePermissionRequest)
		args, _ := c.Data()["args"].(map[string]any)
		a, _ := args["a"].(float64)
		requests[a] = c
	}
	if len(requests) != 3 {
		t.Fatalf("there are requests for %d calls, want 3", len(requests))
	}
	h.NoCall("calc.add")
	h.Restart()
	decide(requests[1], sdk.PermissionDecision{Decision: sdk.DecisionAllow})
	decide(requests[2], sdk.PermissionDecision{Decision: sdk.DecisionDeny, Reason: "not twice"})
	decide(requests[3], sdk.PermissionDecision{Decision: sdk.DecisionAllow})
	made := map[string]bool{}
	for range 2 {
		call := h.Call("calc.add")
		made[string(call.Event.Data)+" of depth "+depth(call)] = true
		call.Answer("calc.added", sum(3))
	}
	want := map[string]bool{`{"a":1,"b":1} of depth 0`: true, `{"a":3,"b":3} of depth 2`: true}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if end := h.Done(r); end.Type != "parent.done" || string(end.Data) != `{"response":"parent is done"}` {
		t.Errorf("ended with %s %s", end.Type, end.Data)
	}
	h.NoCall("calc.add")
	h.NoDeadLetter()
	sound(t, h.Conn(), natsStore(h.Conn()))
}

// depth is how many agents are above the run that makes a call: names of child runs hold the names of those above.
func depth(c *harness.Call) string {
	return string('0' + rune(strings.Count(c.Event.Subject, "/")))
}
