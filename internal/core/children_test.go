package core_test

import (
	"strings"
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
)

// callingAgents is a run that may call so many agents, of two that there are, and whose calls are ruled on.
func callingAgents(t *testing.T, most int) *rig {
	t.Helper()
	spec := newSpec(service("scout", minute), service("guide", minute))
	spec.Tools[0].Agent, spec.Tools[1].Agent = true, true
	spec.MaxChildren, spec.NeedsRulings = most, true
	return begun(t, spec)
}

var (
	allowed = core.Ruling{Verdict: core.VerdictAllow}
	denied  = core.Ruling{Verdict: core.VerdictDeny}
	held    = core.Ruling{Verdict: core.VerdictAsk, Terms: sdk.PermissionTerms{
		Mode: sdk.PermissionHold, Stages: []sdk.PermissionStage{{Domain: sdk.HumanDomain, TimeoutMillis: minute}},
	}}
)

// calls has the model call the agents, each of which is ruled on, and returns what became of each call: "sent", "held", or the code of its
// result.
func (r *rig) calls(t *testing.T, agents []string, rulings ...core.Ruling) []string {
	t.Helper()
	var requests []sdk.ToolRequest
	for _, name := range agents {
		requests = append(requests, sdk.ToolRequest{Name: name, Arguments: `{}`})
	}
	ev := r.replied("", requests...)
	for i := range ev.Admission.Calls {
		if ev.Admission.Calls[i].NeedsRuling() && ev.Admission.Rule(i, rulings[i]) {
			ev.Admission.Ask(i, []byte(`{"tool":"it"}`))
		}
	}
	e := mustStep(t, r, r.drive(ev))
	var became []string
	for _, planned := range ev.Admission.Calls {
		result := ""
		for i := range e.Results {
			if e.Results[i].Call == planned.ID {
				result = string(e.Results[i].Code())
			}
		}
		switch c := e.Head.Call(planned.ID); {
		case result != "":
		case c != nil && c.Held != "":
			result = "held"
		default:
			result = "sent"
		}
		became = append(became, result)
	}
	return became
}

// Only calls that are made, or about to be, take the place of others where a run may call so many agents.
func TestChildren_CountWhereTheyAreCalled(t *testing.T) {
	t.Parallel()
	both := []string{"scout", "guide"}
	for name, c := range map[string]struct {
		rulings  []core.Ruling
		want     string
		children int
	}{
		"both are allowed":               {[]core.Ruling{allowed, allowed}, "sent quota_exhausted", 1},
		"the first is denied":            {[]core.Ruling{denied, allowed}, "permission_denied sent", 1},
		"people are asked for the first": {[]core.Ruling{held, allowed}, "held quota_exhausted", 1},
		"both are denied":                {[]core.Ruling{denied, denied}, "permission_denied permission_denied", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := callingAgents(t, 1)
			if got := strings.Join(r.calls(t, both, c.rulings...), " "); got != c.want {
				t.Errorf("the calls are %s, want %s", got, c.want)
			}
			if r.state.Children != c.children {
				t.Errorf("%d calls of agents count, want %d", r.state.Children, c.children)
			}
		})
	}
}

// A call that is not made after all leaves its place to another.
func TestChildren_GiveTheirPlaceBack(t *testing.T) {
	t.Parallel()
	for _, verdict := range []string{"deny", "ask"} {
		t.Run(verdict, func(t *testing.T) {
			r := callingAgents(t, 1)
			r.calls(t, []string{"scout"}, held)
			request := r.state.Calls[1]
			decision := &sdk.PermissionDecision{Decision: sdk.Decision(verdict), ArgsHash: request.Permission.ArgsHash}
			ev := r.answer(r.effect(r.state.Rev, request.ID), 0, `{}`)
			ev.Decision, ev.Received = decision, r.now
			mustStep(t, r, r.deliver("decision", ev))
			if got := r.calls(t, []string{"guide"}, allowed); got[0] != "sent" {
				t.Errorf("after a call that was not made, another is %s, want it sent", got[0])
			}
			if r.state.Children != 1 {
				t.Errorf("%d calls of agents count, want 1", r.state.Children)
			}
		})
	}
}

// A call that is held when its run is taken up again counts once, not once more for the request that holds it.
func TestChildren_CountOnceWhenTheRunIsTakenUp(t *testing.T) {
	t.Parallel()
	r := callingAgents(t, 2)
	r.calls(t, []string{"scout"}, held)
	r.now = r.state.Deadline
	mustStep(t, r, r.deliver("fire", core.Fired{Now: r.now, Due: r.state.Timer}))
	mustStep(t, r, r.deliver("retry-1", retriedBy("retry-1")))
	if r.state.Children != 1 {
		t.Errorf("%d calls of agents count, want 1: %+v", r.state.Children, r.state.Head)
	}
}

// Each agent that is called has an equal part of the tokens that are left: those that are not called have none.
func TestChildren_ShareTokensWhereTheyAreCalled(t *testing.T) {
	t.Parallel()
	r := callingAgents(t, 1)
	r.spec.MaxTokens = 1025
	r = begun(t, r.spec)
	if got := strings.Join(r.calls(t, []string{"scout", "guide"}, allowed, allowed), " "); got != "sent quota_exhausted" {
		t.Fatalf("the calls are %s", got)
	}
	if got := r.state.Calls[0].Reserved; got != 1000 {
		t.Errorf("the agent may use %d tokens, want the 1000 that are left", got)
	}
}
