package core

import (
	"encoding/json"
	"fmt"
	"slices"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// Decides reports whether a message to the address answers a request for somebody's decision: on a call, or on a plan.
func Decides(address wire.Address) bool {
	asked := []string{wire.NameToken(sdk.TypePermissionRequest), wire.NameToken(sdk.TypePlanReview)}
	return address.Kind == wire.KindIn && slices.Contains(asked, address.Call.Type)
}

// PermissionState is what a permission request asks, as far as its decision needs it.
type PermissionState struct {
	// Call is the call that needs permission.
	Call string `json:"call"`
	// Batch names the event that asks for several calls together, this one among them; empty is an event of its own.
	Batch    string             `json:"batch,omitempty"`
	Mode     sdk.PermissionMode `json:"mode"`
	ArgsHash string             `json:"args_sha256"`
	Scopes   []sdk.GrantScope   `json:"scopes,omitempty"`
	// Quorum is how many must allow it (0: one), Allowed who did so far.
	Quorum  int      `json:"quorum,omitempty"`
	Allowed []string `json:"allowed,omitempty"`
	// Keys and Events are the keys, and digests of the event ids, of the decisions that allowed it: each counts once, whoever
	// publishes it.
	Keys   []string `json:"keys,omitempty"`
	Events []string `json:"events,omitempty"`
	// Agreed is the wider grant that all of them want; nil is this one call.
	Agreed    *Agreement `json:"agreed,omitempty"`
	FourEyes  bool       `json:"four_eyes,omitempty"`
	Approvers []string   `json:"approvers,omitempty"`
	// Signed asks for decisions signed with a key of the domain.
	Signed bool `json:"signed,omitempty"`
	// Timeout is how long the domain that is asked has, in milliseconds; 0 is not known.
	Timeout int64 `json:"timeout,omitempty"`
	// Results offers to give the call's result.
	Results bool `json:"results,omitempty"`
	// Stages are those that are asked when nobody has decided in time, Passed the domains of those where nobody has.
	Stages []sdk.PermissionStage `json:"stages,omitempty"`
	Passed []string              `json:"passed,omitempty"`
	// Viewed are the principals that were shown it; "" is anybody anonymous.
	Viewed []string `json:"viewed,omitempty"`
	// Heard are digests of the messages about it, views and decisions: one that is delivered again does not count twice.
	Heard []string `json:"heard,omitempty"`
	// Refusals counts decisions that did not count.
	Refusals int `json:"refusals,omitempty"`
	// Told says that the model is told of the decision when the round closes.
	Told bool `json:"told,omitempty"`
}

// Agreement is how far beyond its call several people want to allow a request. Stage counts the domains that were asked before
// them: people of two domains agree on no more than the call.
type Agreement struct {
	Stage   int            `json:"stage,omitempty"`
	Scope   sdk.GrantScope `json:"scope"`
	Pattern string         `json:"pattern,omitempty"`
	Uses    int            `json:"uses,omitempty"`
	Expires int64          `json:"expires,omitempty"`
}

// Grant is what a person allowed or denied for the rest of a run.
type Grant struct {
	// Request is the id of the request that it was decided on.
	Request string         `json:"request"`
	Tool    string         `json:"tool"`
	Scope   sdk.GrantScope `json:"scope"`
	// ArgsHash is of ScopeCall, Pattern of ScopeToolPattern.
	ArgsHash string `json:"args_sha256,omitempty"`
	Pattern  string `json:"pattern,omitempty"`
	Deny     bool   `json:"deny,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// By are the principals that allowed it, none for somebody anonymous; Signed says that all of them signed.
	By     []string `json:"by,omitempty"`
	Signed bool     `json:"signed,omitempty"`
	// Domains are those that were asked one after the other, up to the one that decided. A grant without them allows nothing.
	Domains []string `json:"domains,omitempty"`
	// Uses are left; 0 is unbounded. Expires is in Unix milliseconds; 0 is never.
	Uses    int   `json:"uses,omitempty"`
	Expires int64 `json:"expires,omitempty"`
}

// Request is the data of a permission request's event.
type Request struct {
	ID   string          `json:"id"`
	Data json.RawMessage `json:"data"`
}

// Decision is one entry of a request's audit.
type Decision = wire.DecisionRecord

// Edit is the canonical arguments that a call is made with instead of the model's.
type Edit struct {
	Call string          `json:"call"`
	Args json.RawMessage `json:"args"`
}

// MaxGrants bounds the grants of a run: beyond, every call is asked for. MaxRefusals bounds the refused decisions that a
// request records, and MaxViews the principals that were shown it: later ones are dead-lettered.
const (
	MaxGrants   = 256
	MaxRefusals = 16
	MaxViews    = 32
)

// askedDomains are those that a permission request went to, up to the one that may decide it now; nil when that is not known.
func (c *Call) askedDomains() []string {
	if len(c.Permission.Passed) != c.attempt()-1-c.Repeated {
		return nil // an older version of agentd did not keep them
	}
	return append(slices.Clip(c.Permission.Passed), c.Domains...)
}

// Consent is what the grant says that people have allowed.
func (g *Grant) Consent() sdk.Consent {
	return sdk.Consent{Scope: g.Scope, By: g.By, Signed: g.Signed, Domains: g.Domains}
}

func denial(tool, reason string) *sdk.Error {
	if reason == "" {
		return sdk.Errorf(sdk.CodePermissionDenied, "%s is not allowed", tool)
	}
	return sdk.Errorf(sdk.CodePermissionDenied, "%s is not allowed: %s", tool, reason)
}

// ask requests permission for the index-th call of the round, alone or in a batch. The call is held, or the model is told to call again.
func (t *transition) ask(index int, p *AdmittedCall, batch string) {
	h, terms := &t.Head, &p.ruling.Terms
	asks := sdk.TypePermissionRequest
	if p.tool.Reviews != nil {
		asks = sdk.TypePlanReview
	}
	id := wire.CallID(h.Key(), h.Init.Token, h.Round, index, asks, p.Args)
	call := &h.Calls[index]
	if terms.Mode == sdk.PermissionRetry {
		t.close(call, failure(call.ID, ResultDenied, sdk.Errorf(sdk.CodePermissionNeeded,
			"%s needs permission; it was asked for. Call it again when you are told that it is allowed", call.Tool)))
	} else {
		call.Status, call.Held, call.Queued = CallSuspended, id, t.spec.Sequential || t.spec.Batch
	}
	first := terms.Stages[0]
	h.Calls = append(h.Calls, Call{
		ID: id, Kind: CallPermission, Tool: call.Tool, Status: CallSuspended, Type: asks,
		Domains: []string{first.Domain}, Due: t.in.At + first.TimeoutMillis,
		Permission: &PermissionState{
			Call: call.ID, Batch: batch, Mode: terms.Mode, ArgsHash: sdk.ArgsHash(p.Args), Scopes: terms.Scopes, Quorum: terms.Quorum,
			FourEyes: terms.FourEyes, Approvers: terms.Approvers, Signed: terms.Signed, Timeout: first.TimeoutMillis,
			Stages:  terms.Stages[1:],
			Results: terms.OffersResult(), Told: terms.Mode == sdk.PermissionRetry,
		},
	})
	t.Requests = append(t.Requests, Request{ID: id, Data: p.request})
	asked := &h.Calls[len(h.Calls)-1]
	t.emit(Effect{
		Kind: EffectCall, Call: asked.Event(), Type: asked.Type, Domains: asked.Domains, Schema: t.spec.schemaOf(asked),
	})
}

// tellDecisions appends what the model is to know of decisions, as texts after the results of the round.
func (t *transition) tellDecisions(calls []Call) {
	for i := range calls {
		if c := &calls[i]; c.Permission != nil && c.Permission.Told && c.Closed() && c.Status != CallCancelled {
			t.Messages = append(t.Messages, sdk.Message{Role: sdk.RoleUser, Content: []sdk.Content{{
				Kind: sdk.ContentText, CallID: c.ID, Tool: c.Tool,
			}}})
		}
	}
}

// scopeTold is the scope of the decision in what told returned.
func scopeTold(data json.RawMessage) sdk.GrantScope {
	var shown struct {
		Permission struct {
			Scope sdk.GrantScope `json:"scope"`
		} `json:"permission"`
	}
	if json.Unmarshal(data, &shown) != nil {
		return ""
	}
	return shown.Permission.Scope
}

// told is what the model is shown of a decision.
func told(tool string, d sdk.PermissionDecision, note string) json.RawMessage {
	type permission struct {
		Tool     string          `json:"tool"`
		Decision sdk.Decision    `json:"decision"`
		Scope    sdk.GrantScope  `json:"scope,omitempty"`
		Reason   string          `json:"reason,omitempty"`
		Args     json.RawMessage `json:"args,omitempty"`
		Note     string          `json:"note,omitempty"`
	}
	data, err := EncodeJSON(map[string]permission{"permission": {tool, d.Decision, d.Scope, d.Reason, d.Args, note}})
	if err != nil {
		return json.RawMessage(fmt.Sprintf(`{"permission":{"decision":%q}}`, d.Decision))
	}
	return data
}
