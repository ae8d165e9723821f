package policies

import (
	"encoding/json"
	"fmt"
	"slices"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// about is a call as the evaluator sees it.
func (w *world) about(agent, run, id, tool string, data json.RawMessage) call {
	var all, args map[string]any
	if err := json.Unmarshal(data, &all); err != nil {
		w.violate("call %s of %s: %v", id, tool, err)
	}
	for _, name := range []string{"sum", "to"} {
		if value, there := all[name]; there {
			if args == nil {
				args = map[string]any{}
			}
			args[name] = value
		}
	}
	raw, err := json.Marshal(args)
	if err != nil {
		w.violate("call %s of %s: %v", id, tool, err)
	}
	return call{id: id, agent: agent, run: run, initiator: initiator(run), tool: tool, label: labels[tool], args: args, raw: string(raw)}
}

// demands are the terms of all that were in force since a time, and whether one of them denies the call. What a hook suspends it lets
// pass when it is resumed.
func (w *world) demands(c call, since int64, resumed bool) (asks []terms, denied bool) {
	a := w.agent(c.agent)
	var suspended *terms
	if !resumed && a.gate(c.tool, c.args) == sdk.GateSuspend {
		suspended = &terms{stages: []stage{{sdk.HumanDomain, sdk.DefaultPermissionTimeout.Milliseconds()}}}
	}
	for i, v := range a.versions {
		last := i == len(a.versions)-1
		if !last && a.versions[i+1].since <= since {
			continue
		}
		more, no := demand(c, []policy{a.versions[w.pinned[c.run]].policy, v.policy}, w.required[c.run], suspended)
		asks, denied = append(asks, more...), denied || no
	}
	return asks, denied
}

// check is told of every call at the moment at which it is made.
func (w *world) check(agent, run, id, tool string, data json.RawMessage) {
	c := w.about(agent, run, id, tool, data)
	if w.made[id] {
		return // once more, under the same id
	}
	w.made[id] = true
	since, held := w.now, false
	for _, q := range w.requests {
		if q.id == id {
			since, held = q.sent[0].timeout, true
		}
	}
	asks, denied := w.demands(c, since, held)
	gate := w.agent(agent).gate(tool, c.args)
	by := "policy"
	w.trace("made  %s %s(%s) of %s", id, tool, c.raw, run)
	switch {
	case denied:
		w.violate("%s %s(%s) of %s is made, and the policy denies it", id, tool, c.raw, run)
	case gate == sdk.GateBlock || gate == sdk.GateResult:
		w.violate("%s %s(%s) of %s is made, and a hook keeps it from being made", id, tool, c.raw, run)
	case held || len(asks) > 0:
		var allowed bool
		if allowed, by = w.may(c, asks, w.now); !allowed {
			w.violate("%s %s(%s) of %s is made, and nobody who may has allowed it: %+v", id, tool, c.raw, run, asks)
		}
	}
	w.tally.add("made by " + by)
	w.tally.add("made: " + agent + " " + tool)
}

// asked are people who see a permission request.
func (w *world) asked(address wire.CallAddress, ev wire.Event) {
	var r sdk.PermissionRequest
	if err := json.Unmarshal(ev.Data, &r); err != nil {
		w.violate("permission request %s: %v", ev.ID, err)
		return
	}
	var asked []*request
	for _, of := range r.Each() {
		c := w.about(r.Agent, r.Run, of.Call, of.Tool, of.Args)
		i := slices.IndexFunc(w.requests, func(q *request) bool { return q.id == c.id })
		if i < 0 {
			q := &request{call: c, retry: r.Mode == sdk.PermissionRetry}
			q.terms, _ = w.demands(c, w.now, false)
			i, w.requests = len(w.requests), append(w.requests, q)
		}
		q := w.requests[i]
		q.sent = append(q.sent, stage{ev.Domain, w.now})
		asked = append(asked, q)
		w.trace("asked %s for %s %s(%s) of %s: %+v", ev.Domain, c.id, c.tool, c.raw, c.run, q.terms)
	}
	w.tally.add(fmt.Sprintf("requests for several calls: %t", len(asked) > 1))
	alike := w.decision(r)
	for range w.IntN(5) * len(asked) {
		d := w.decision(r)
		if w.one(2) { // several who agree
			d.verdict, d.scope, d.edited, d.pattern, d.uses, d.expires = alike.verdict, alike.scope, alike.edited, alike.pattern, alike.uses, alike.expires
		}
		on := asked
		if len(asked) > 1 && w.one(2) {
			on = []*request{pick(w.draw, asked...)}
		}
		at := address
		if w.one(10) {
			at.Domain = wire.DomainToken(pick(w.draw, people, finance))
		}
		stage := len(on[0].sent) - 1
		w.later(int64(w.IntN(100))*second, func() { w.decide(on, stage, at, ev, r, d) })
	}
}

// decision draws one that mostly counts.
func (w *world) decision(r sdk.PermissionRequest) decision {
	d := decision{who: pick(w.draw, principals...), verdict: pick(w.draw, "allow", "allow", "allow", "allow", "deny", "ask"), scope: "call", seen: !w.one(12)}
	if w.one(2) {
		d.scope = string(pick(w.draw, r.Scopes...))
	}
	if w.one(12) {
		d.scope = string(pick(w.draw, sdk.ScopeToolPattern, sdk.ScopeTool, sdk.ScopePrincipal))
	}
	if d.scope == string(sdk.ScopeToolPattern) {
		for d.pattern.field == "" {
			d.pattern = w.condition()
		}
	}
	if d.scope != "call" {
		d.uses = w.IntN(3)
		if w.one(3) {
			d.expires = w.now + int64(w.IntN(240))*second
		}
	}
	if w.one(4) {
		d.edited = w.args()
	}
	return d
}

// decide publishes a decision on requests that were sent together.
func (w *world) decide(on []*request, stage int, address wire.CallAddress, ev wire.Event, r sdk.PermissionRequest, d decision) {
	d.at, d.domain = w.now, address.Domain
	for _, domain := range []string{people, finance} {
		if wire.DomainToken(domain) == address.Domain {
			d.domain = domain
		}
	}
	decided := sdk.PermissionDecision{
		Decision: sdk.Decision(d.verdict), ArgsHash: r.ArgsHash, Scope: sdk.GrantScope(d.scope), Pattern: d.pattern.cel(), Uses: d.uses,
		ExpiresMillis: d.expires, Args: json.RawMessage(d.edited),
	}
	if !d.seen {
		decided.ArgsHash = sdk.ArgsHash([]byte("others"))
	}
	if len(r.Calls) > 0 {
		decided = w.naming(on, r, decided)
	}
	published := make([]*decision, len(on))
	for i, q := range on {
		own := d
		own.stage = stage
		published[i], q.decisions = &own, append(q.decisions, &own)
		w.trace("decided on %s: %+v", q.id, own)
	}
	data, err := json.Marshal(decided)
	if err != nil {
		panic(fmt.Sprintf("policies: decision: %v", err))
	}
	answer := wire.Event{
		ID: fmt.Sprintf("d-%d", w.Uint64()), Source: "desk", Type: sdk.TypePermissionDecided, Subject: ev.Subject, ParentID: ev.ID, Data: data,
	}
	w.published[answer.ID] = published
	w.send("AGENTD_IN", subjects.Reply(address)+"."+d.who, answer)
}

// naming is a decision that names its calls, or all of them.
func (w *world) naming(on []*request, r sdk.PermissionRequest, d sdk.PermissionDecision) sdk.PermissionDecision {
	if d.All = len(on) == len(r.Calls) && len(d.Args) == 0 && w.one(2); d.All {
		return d
	}
	for _, q := range on {
		one := sdk.CallDecision{Call: q.id, ArgsHash: d.ArgsHash, Args: d.Args}
		for _, c := range r.Calls {
			if c.Call == q.id && d.ArgsHash == r.ArgsHash {
				one.ArgsHash = c.ArgsHash
			}
		}
		d.Calls = append(d.Calls, one)
	}
	d.ArgsHash, d.Args = "", nil
	return d
}
