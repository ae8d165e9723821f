package core_test

import (
	"encoding/json"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"agentd/internal/core"
	"agentd/sdk"
)

// randomPolicy asks for some tools, and denies one now and then; half of all agents have none.
func randomPolicy(t *rapid.T) policy {
	p := policy{}
	if pick(t, 2, "gated") == 0 {
		return p
	}
	common := randomTerms(t)
	for _, tool := range []string{"lookup", "book", "add", "charge"} {
		switch pick(t, 5, "ruling") {
		case 0:
			p[tool] = core.Ruling{Verdict: core.VerdictDeny, Reason: "never"}
		case 1, 2:
			p[tool] = core.Ruling{Verdict: core.VerdictAsk, Terms: common}
		case 3:
			p[tool] = core.Ruling{Verdict: core.VerdictAsk, Terms: randomTerms(t)}
		}
	}
	return p
}

func randomTerms(t *rapid.T) sdk.PermissionTerms {
	terms := sdk.PermissionTerms{
		Mode:   []sdk.PermissionMode{sdk.PermissionHold, sdk.PermissionHold, sdk.PermissionRetry}[pick(t, 3, "mode")],
		Quorum: pick(t, 3, "quorum"), FourEyes: pick(t, 4, "four eyes") == 0,
		Stages: []sdk.PermissionStage{{Domain: sdk.HumanDomain, TimeoutMillis: minute}},
		Batch:  pick(t, 2, "one request") == 0,
	}
	if pick(t, 2, "scopes") == 0 {
		terms.Scopes = []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeTool}
	}
	if pick(t, 3, "escalate") == 0 {
		terms.Stages = append(terms.Stages, sdk.PermissionStage{Domain: "the.boss", TimeoutMillis: minute})
	}
	return terms
}

// decide makes ev a decision on a request; most count.
func (x *explorer) decide(f core.Effect, ev *core.Answered) {
	if ev.Error {
		ev.Who = fmt.Sprintf("approver-%d", x.pick(4, "who")) // an error counts of whom a decision would count
		return
	}
	asked, hash := x.asked(f)
	gate := asked[0].Permission
	ev.Who = fmt.Sprintf("approver-%d", x.pick(4, "who"))
	d := sdk.PermissionDecision{ArgsHash: hash}
	d.Decision = []sdk.Decision{
		sdk.DecisionAllow, sdk.DecisionAllow, sdk.DecisionAllow, sdk.DecisionDeny, sdk.DecisionAsk,
	}[x.pick(5, "decision")]
	switch x.pick(10, "how") {
	case 0:
		d.ArgsHash = sdk.ArgsHash([]byte("other"))
	case 1:
		d.Scope = sdk.ScopeTool // offered now and then
		d.Uses = x.pick(3, "uses")
	case 2:
		d.Args = json.RawMessage([]string{`{"n":7}`, `{"bad":true}`}[x.pick(2, "edit")])
	case 3:
		ev.Who = ""
	}
	unseen := slices.ContainsFunc(asked, func(c *core.Call) bool { return !c.Closed() && !slices.Contains(c.Permission.Viewed, ev.Who) })
	switch {
	case d.ArgsHash == hash && unseen && x.pick(8, "views") == 0:
		d = sdk.PermissionDecision{ArgsHash: hash, Decision: sdk.DecisionViewed}
	case gate.Batch != "":
		x.name(asked, &d)
	}
	ev.EventID += "-" + ev.Who
	ev.Decision = &d
	ev.Rulings = x.policy.plans(x.rig.spec, &x.rig.state, f, &d)
	for _, p := range ev.Rulings {
		if p.Edit.Call.Refusal == nil && x.pick(4, "edit is ruled on") == 0 {
			p.Edit.Rule([]core.Ruling{{}, {Verdict: core.VerdictDeny}}[x.pick(2, "ruling")])
		}
	}
}

// asked are the requests of an event, and the hash that stands for its arguments.
func (x *explorer) asked(f core.Effect) (asked []*core.Call, hash string) {
	var hashes []string
	for i := range x.rig.state.Calls {
		c := &x.rig.state.Calls[i]
		if c.Permission == nil || c.ID != f.Call && c.Permission.Batch != f.Call || max(c.Attempt, 1) < max(f.Attempt, 1) {
			continue
		}
		asked, hash = append(asked, c), c.Permission.ArgsHash
		hashes = append(hashes, hash)
	}
	if asked[0].Permission.Batch != "" {
		hash = sdk.ArgsHash([]byte(encode(x, hashes)))
	}
	return asked, hash
}

// name has a decision on a batch name its calls: all, one or two of them, or wrongly.
func (x *explorer) name(asked []*core.Call, d *sdk.PermissionDecision) {
	switch x.pick(8, "names") {
	case 0:
		return
	case 1:
		d.Calls = []sdk.CallDecision{{Call: "c1-0-nobody"}}
		return
	case 2, 3, 4:
		d.All = true
		return
	}
	first := x.pick(len(asked), "call")
	for _, c := range asked[first:min(first+2, len(asked))] {
		named := sdk.CallDecision{Call: c.Permission.Call, ArgsHash: c.Permission.ArgsHash, Args: d.Args}
		if x.pick(4, "own decision") == 0 {
			named.Decision = sdk.DecisionDeny
		}
		if x.pick(6, "spoilt") == 0 {
			named.ArgsHash = d.ArgsHash
		}
		d.Calls = append(d.Calls, named)
	}
	d.Args = nil
}

// undecided reports whether ev answers a request that is still open, now that it was absorbed: a decision that did not
// count, or one of several.
func (x *explorer) undecided(ev core.Event) bool {
	answer, ok := ev.(core.Answered)
	if !ok {
		return false
	}
	return slices.ContainsFunc(x.rig.state.Calls, func(c core.Call) bool {
		return c.Permission != nil && !c.Closed() && (c.ID == answer.Ref.ID || c.Permission.Batch == answer.Ref.ID)
	})
}

// permissions checks that nothing that was held is made before a decision allows it.
func (o *oracle) permissions(e *core.Entry) {
	for _, d := range e.Decisions {
		if d.Refused == "" && d.Decision == sdk.DecisionAllow {
			o.allowed[d.Call]++
		}
	}
	for _, c := range e.Head.Calls {
		if c.Held != "" {
			o.held[c.ID] = c.Held
		}
		made := c.Status == core.CallResuming || c.Status == core.CallRunning || c.Kind == core.CallService && c.Sent > 0
		if o.held[c.ID] != "" && c.Held == "" && made && o.allowed[c.ID] == 0 {
			o.Fatalf("entry %d: call %s was held and is made without a decision", e.Rev, c.ID)
		}
	}
	for _, f := range e.Effects {
		if f.Kind == core.EffectCall && o.held[f.Call] != "" && o.allowed[f.Call] == 0 {
			o.Fatalf("entry %d: call %s was held and is sent without a decision", e.Rev, f.Call)
		}
	}
	o.batched(e)
	if h := &e.Head; h.Status == core.StatusDone && len(h.Grants) > 0 {
		o.Fatalf("entry %d: a run that is done keeps %d grants", e.Rev, len(h.Grants))
	}
}

// batched checks that a call which was allowed waits for the other decisions of its round exactly where the agent wants that.
func (o *oracle) batched(e *core.Entry) {
	asked := slices.ContainsFunc(e.Head.Calls, func(c core.Call) bool { return c.Kind == core.CallPermission && !c.Closed() })
	for _, c := range e.Head.Calls {
		if o.held[c.ID] == "" || c.Held != "" || c.Closed() || o.rig.spec.Sequential {
			continue
		}
		if waits := o.rig.spec.Batch && asked; c.Queued != waits && e.Head.Paused == nil {
			o.Fatalf("entry %d: call %s is allowed, and queued: %t; a request is open: %t", e.Rev, c.ID, c.Queued, asked)
		}
		if c.Queued && slices.ContainsFunc(e.Effects, func(f core.Effect) bool { return f.Call == c.ID && f.Kind == core.EffectCall }) {
			o.Fatalf("entry %d: call %s is sent while it waits for decisions", e.Rev, c.ID)
		}
	}
}
