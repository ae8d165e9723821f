package core_test

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
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
	if pick(t, 2, "children?") == 0 {
		spec.MaxChildren, spec.Tools[0].Agent = 1+pick(t, 3, "children"), true
	}
	spec.Steering = []sdk.SteeringPolicy{sdk.SteeringQueue, sdk.SteeringInterrupt, sdk.SteeringReject}[pick(t, 3, "steering")]
	spec.Sequential = pick(t, 3, "sequential") == 0
	spec.Hooked = pick(t, 2, "hooks") == 0
	spec.Reviews, spec.Ends = spec.Hooked, spec.Hooked
}

// steer sends a message into the run.
func (x *explorer) steer() {
	r := x.rig
	ev := steered(fmt.Sprintf("message %d", r.delivered))
	ev.Note.Urgent = x.pick(3, "urgent") == 0
	in := r.deliver("message", ev)
	switch {
	case r.state.Status == core.StatusDone || r.state.Cancel != nil || len(r.state.Undo) > 0 || r.spec.Steering == sdk.SteeringReject || x.exhausted():
		x.refuse(in, &sdk.Error{Code: sdk.CodeMessageRefused})
	case len(r.state.Head.Notes) < core.MaxNotes:
		x.accept(in)
	}
}

// exhausted reports whether the model has made all its calls, or used all tokens with the agents that have answered.
func (o *oracle) exhausted() bool {
	h := &o.rig.state.Head
	return o.turns(h) >= o.rig.spec.MaxTurns || h.Budget > 0 && h.Usage.Prompt+h.Usage.Completion+h.Delegated >= h.Budget
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
		ev.Admission = x.rig.plan(ev.Reply, "add", "lookup") // on which nobody rules
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
		ev.Admission = x.rig.plan(ev.Reply)
		for i := range ev.Admission.Calls {
			if ev.Admission.Calls[i].NeedsRuling() {
				ev.Admission.Rule(i, []core.Ruling{
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
	o.family(e)
	o.urgent(e)
}

// family checks that a generation calls no more agents than it may, unless to undo what was done, and that those count which it has called, or
// is about to, and no others.
func (o *oracle) family(e *core.Entry) {
	spec := o.rig.spec
	if most := spec.MaxChildren; most == 0 || len(e.Head.Undo) > 0 {
		return
	}
	for _, f := range e.Effects {
		if f.Kind == core.EffectCall && f.Type == spec.Tools[0].Type {
			o.children[e.Head.Generation().Token+wire.CallPlace(f.Call)] = true
		}
	}
	called := 0
	for child := range o.children {
		if strings.HasPrefix(child, e.Head.Generation().Token) {
			called++
		}
	}
	if called > spec.MaxChildren {
		o.Fatalf("entry %d: %d agents were called, and %d may be", e.Rev, called, spec.MaxChildren)
	}
	if e.Head.Status == core.StatusDone {
		return
	}
	for _, c := range e.Head.Calls {
		if c.Kind == core.CallService && c.Tool == spec.Tools[0].Name && !c.Closed() && (c.Status != core.CallSuspended || c.Held != "" || c.Queued) {
			called++
		}
	}
	if called != e.Head.Children {
		o.Fatalf("entry %d: %d agents were called or are about to be, and %d count: %+v", e.Rev, called, e.Head.Children, e.Head.Calls)
	}
}

// urgent checks that urgent messages are before all others, where they wait and where they are said.
func (o *oracle) urgent(e *core.Entry) {
	first := 0
	for _, id := range e.Head.Notes {
		if o.hurried[id] {
			first++
		}
	}
	if first != e.Head.Ahead || !slices.IsSortedFunc(e.Head.Notes, o.before) {
		o.Fatalf("entry %d: of %v, the first %d are urgent", e.Rev, e.Head.Notes, e.Head.Ahead)
	}
	var said []string
	for _, m := range e.Messages {
		for _, c := range m.Content {
			if _, note := o.notes[c.CallID]; note || c.Kind == sdk.ContentText && c.Pending {
				said = append(said, c.CallID)
			}
		}
	}
	if !slices.IsSortedFunc(said, o.before) {
		o.Fatalf("entry %d says %v, urgent are %v", e.Rev, said, o.hurried)
	}
}

// before orders notes: urgent ones are first.
func (o *oracle) before(a, b string) int {
	switch {
	case o.hurried[a] == o.hurried[b]:
		return 0
	case o.hurried[a]:
		return -1
	}
	return 1
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
