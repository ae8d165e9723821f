package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// bossDomain is asked when nobody decides in the first domain.
const bossDomain = "the.boss"

var gatedTools = []string{payTool, transferTool}

// terms are those of all that people are asked for.
func terms() sdk.PermissionPolicyTerms {
	patience := 3 * time.Second
	return sdk.PermissionPolicyTerms{
		TimeoutMillis: patience.Milliseconds(),
		Escalate:      []sdk.PermissionStage{{Domain: bossDomain, TimeoutMillis: patience.Milliseconds()}},
	}
}

// policy has a person decide on every call of the gated tools.
func policy() *sdk.PermissionPolicy {
	return &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{{Tools: gatedTools, Verdict: sdk.PermissionAsk}}, Terms: terms()}
}

// ruling is what the policy makes of a call, or of a plan, for the audit.
func ruling(_, tool string, _ json.RawMessage) sdk.PermissionRuling {
	if !slices.Contains(gatedTools, tool) && tool != sdk.ToolReviewPlan {
		return sdk.PermissionRuling{Verdict: sdk.PermissionAllow}
	}
	return sdk.PermissionRuling{Verdict: sdk.PermissionAsk, Terms: sdk.PermissionTerms{
		Stages: []sdk.PermissionStage{{Domain: sdk.HumanDomain}, {Domain: bossDomain}},
	}}
}

// approvers decide on permission requests: mostly soon, now and then late, twice, differently a second time, or not at all.
// Like services they are clients of the broker, apart from all workers.
type approvers struct {
	*world
	mu  sync.Mutex
	rng *rand.Rand
}

// decide goes on until ctx ends; what is decided later is the background's.
func (p *approvers) decide(ctx context.Context, background *sync.WaitGroup) {
	p.conn.Consume(ctx, broker.ConsumeOptions{
		Consumers: p.layout.Consumers(
			streams.ServiceConsumer(sdk.HumanDomain, sdk.TypePermissionRequest),
			streams.ServiceConsumer(bossDomain, sdk.TypePermissionRequest),
			streams.ServiceConsumer(sdk.HumanDomain, sdk.TypePlanReview),
			streams.ServiceConsumer(bossDomain, sdk.TypePlanReview),
		),
		Slots: 64, Grace: time.Second,
		Handle: func(_ context.Context, d broker.Delivery) { p.handle(ctx, d, background) },
	})
}

// opinion is what an approver makes of a request: decisions in the order in which they are sent, each after its delay.
type opinion struct {
	decisions []sdk.Decision
	delays    []time.Duration
}

func (p *approvers) opinion() opinion {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := opinion{[]sdk.Decision{sdk.DecisionAllow}, []time.Duration{time.Duration(p.rng.IntN(300)) * time.Millisecond}}
	if p.rng.IntN(4) == 0 {
		o.decisions[0] = sdk.DecisionDeny
	}
	switch p.rng.IntN(12) {
	case 0:
		return opinion{}
	case 1: // about when the request goes on to others, or is over
		o.delays[0] = time.Duration(2500+p.rng.IntN(4000)) * time.Millisecond
	case 2, 3:
		other := sdk.DecisionDeny
		if o.decisions[0] == other {
			other = sdk.DecisionAllow
		}
		o.decisions = append(o.decisions, other)
		o.delays = append(o.delays, time.Duration(p.rng.IntN(2000))*time.Millisecond)
	case 4: // the same again
		o.decisions, o.delays = append(o.decisions, o.decisions[0]), append(o.delays, 0)
	}
	return o
}

func (p *approvers) handle(ctx context.Context, d broker.Delivery, background *sync.WaitGroup) {
	address, err := subjects.Parse(d.Subject())
	if err != nil || address.Kind == wire.KindVoid {
		_ = d.Ack() // a lost ack is another delivery
		return
	}
	asked, err := wire.DecodeEvent(d.Headers(), d.Data())
	var request sdk.PermissionRequest
	if err == nil {
		err = json.Unmarshal(asked.Data, &request)
	}
	if err != nil {
		p.record.violate("a permission request cannot be decoded: %s: %v", d.Subject(), err)
		return
	}
	_ = d.Ack() // whoever decides a second time, because the ack was lost, decides in vain
	o := p.opinion()
	background.Go(func() {
		for i, decision := range o.decisions {
			pause(ctx, o.delays[i])
			p.publish(ctx, subjects.Reply(address.Call), decided(asked, request, decision))
		}
	})
}

// decided is the event of a decision. Equal decisions are one event, sent again.
func decided(asked wire.Event, request sdk.PermissionRequest, decision sdk.Decision) wire.Event {
	return wire.Event{
		ID: fmt.Sprintf("d-%s-%s", asked.ID, decision), Source: "approver", Type: sdk.TypePermissionDecided, Subject: asked.Subject,
		ParentID: asked.ID, Data: json.RawMessage(fmt.Sprintf(`{"decision":%q,"args_sha256":%q}`, decision, request.ArgsHash)),
	}
}

// countDecisions counts what became of permission requests, and finds calls that were made though nobody allowed them. The
// checker does, too; this is told by the last word of the journal on each call alone.
func (r *report) countDecisions() {
	made := map[string]bool{}
	for _, n := range r.record.notes {
		if n.Kind == noteExecuted {
			made[n.Call] = true
		}
	}
	for _, m := range r.messages[streams.Out] {
		if address, err := subjects.Parse(m.Subject); err == nil && address.Kind == wire.KindOut {
			ref, _ := wire.ParseCallRef(address.Call.Call) // a worker's own
			made[ref.ID] = true
		}
	}
	for _, journal := range r.journals {
		for i := range journal {
			r.countEntry(&journal[i], made)
		}
	}
}

func (r *report) countEntry(e *core.Entry, made map[string]bool) {
	r.decisions["permission requests"] += len(e.Requests)
	for _, d := range e.Decisions {
		switch {
		case d.Refused != "":
			r.decisions["decisions refused"]++
			continue
		case d.Event == "":
			r.decisions["requests that nobody decided in time"]++
		case d.Decision == sdk.DecisionAllow:
			r.decisions["calls allowed"]++
			continue
		default:
			r.decisions["calls denied"]++
		}
		if made[d.Call] {
			r.deniedRan++
			r.violate("call %s of run %s was made, and %s: %s", d.Call, e.Head.Run, d.Decision, d.Reason)
		}
	}
}
