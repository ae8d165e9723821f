package core_test

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"agentd/internal/core"
	"agentd/sdk"
)

// randomControl has the loop of an agent go on and end in other ways than by default.
func randomControl(t *rapid.T, spec *core.Spec) {
	if pick(t, 2, "stop?") == 0 {
		spec.Stop = sdk.StopConditions{
			Errors: pick(t, 4, "errors"), SameError: pick(t, 6, "same error"), Window: 5, Repeats: []int{0, 2, 3}[pick(t, 3, "repeats")],
		}
		if pick(t, 3, "text") == 0 {
			spec.Stop.Text = []string{"hello"}
		}
	}
	if pick(t, 3, "remind") == 0 {
		spec.NoToolCall = core.NoToolCall{Remind: true, Accept: pick(t, 2, "accept") == 0, Limit: 1 + pick(t, 3, "reminders")}
	}
	if pick(t, 2, "budget") == 0 {
		spec.MaxTokens = int64(25 * (1 + pick(t, 20, "tokens")))
		spec.Tools[0].Agent = true // lookup
		if pick(t, 2, "bound") == 0 {
			spec.Tools[0].Tokens = 40
		}
	}
	spec.Steering = []sdk.SteeringPolicy{sdk.SteeringQueue, sdk.SteeringInterrupt, sdk.SteeringReject}[pick(t, 3, "steering")]
	spec.Sequential = pick(t, 3, "sequential") == 0
	spec.Hooked = pick(t, 2, "hooks") == 0
	spec.Reviews, spec.Ends = spec.Hooked, spec.Hooked
}

// steer sends a message into the run.
func (x *explorer) steer() {
	r := x.rig
	in := r.deliver("message", steered(fmt.Sprintf("message %d", r.delivered)))
	switch {
	case r.state.Status == core.StatusDone || r.state.Cancel != nil || len(r.state.Undo) > 0 || r.spec.Steering == sdk.SteeringReject:
		x.refuse(in, &sdk.Error{Code: sdk.CodeMessageRefused})
	case len(r.state.Head.Notes) < core.MaxNotes:
		x.accept(in)
	}
}

// review is what hooks add after a round.
func (x *explorer) review() core.Reviewed {
	ev := x.rig.reviewed()
	if x.pick(2, "hook says") == 0 {
		ev.Messages = []sdk.Message{sdk.Text(sdk.RoleUser, "mind the gap")}
	}
	if x.pick(2, "hook keeps") == 0 {
		ev.Hooks = []core.HookState{{Hook: "counter", Data: fmt.Appendf(nil, "%d", x.rig.state.Rev)}}
	}
	return ev
}

// hooks are what those of an agent that has some do to a reply with calls.
func (x *explorer) hooks(ev *core.Replied) {
	if !x.rig.spec.Hooked {
		return
	}
	switch x.pick(8, "hook") {
	case 0:
		ev.Plan = x.rig.plan(ev.Reply, "add", "lookup") // on which nobody rules
	case 1:
		ev.Context = []sdk.Message{{Role: sdk.RoleUser, Content: sdk.Text(sdk.RoleUser, "by the way").Content, Seen: 1}}
	case 2:
		ev.Hooks = []core.HookState{{Hook: "counter", Data: []byte("1")}, {Hook: "other", Data: []byte("{}")}}
	case 3:
		ev.Notes = []core.Note{{ID: fmt.Sprintf("n-hook-%d", x.rig.state.Rev), Text: "it waits"}}
	case 4:
		if x.pick(4, "terminate") == 0 {
			ev.Terminate = &core.Ending{Reason: core.ReasonTerminated, Code: sdk.CodeTerminated, Message: "enough", Detail: "hook"}
		}
	case 5:
		ev.Plan = x.rig.plan(ev.Reply)
		for i := range ev.Plan.Calls {
			if ev.Plan.Calls[i].NeedsRuling() {
				ev.Plan.Rule(i, []core.Ruling{
					{Verdict: core.VerdictBlock, Reason: "no"}, {Verdict: core.VerdictSet, Result: []byte(`{"set":true}`)},
				}[x.pick(2, "hook rules")])
			}
		}
	}
}

// control checks what the loop is controlled by: messages are said once and in the end all, tokens are never given away
// twice, and counters do not grow with the history.
func (o *oracle) control(before *core.Head, e *core.Entry) {
	h := &e.Head
	if h.V < before.V {
		o.Fatalf("entry %d: layout %d after %d", e.Rev, h.V, before.V)
	}
	for id := range o.notes {
		if o.said[id] == slices.Contains(h.Notes, id) {
			o.Fatalf("entry %d: note %s is said: %t, and waits: %v", e.Rev, id, o.said[id], h.Notes)
		}
	}
	if len(h.Progress.Rounds) > sdk.MaxLoopWindow || len(h.Heard) > 64 || len(h.Notes) > 2*core.MaxNotes {
		o.Fatalf("entry %d: the head grows: %+v", e.Rev, h)
	}
	if h.Status == core.StatusDone && (h.ReasonCode == "" || len(h.Notes) > 0 || len(h.Hooks) > 0 || h.Review) {
		o.Fatalf("entry %d: done with %+v", e.Rev, h)
	}
	o.budget(before, e)
}

// budget checks that no model call was accepted that should not have begun, and that shares fit into what was left.
func (o *oracle) budget(before *core.Head, e *core.Entry) {
	h := &e.Head
	if h.Budget == 0 {
		return
	}
	if h.Turns > before.Turns && before.TokensLeft() <= 0 {
		o.Fatalf("entry %d: a model call with %d tokens left", e.Rev, before.TokensLeft())
	}
	reserved := int64(0)
	for _, c := range h.Calls {
		if c.Opened == 0 || c.Opened == e.Rev {
			reserved += c.Reserved
		}
	}
	own := h.Usage.Prompt + h.Usage.Completion - before.Usage.Prompt - before.Usage.Completion
	if h.Opened == e.Rev && reserved > max(0, before.TokensLeft()-own) {
		o.Fatalf("entry %d reserves %d tokens of %d", e.Rev, reserved, before.TokensLeft()-own)
	}
}
