package sdk

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// PermissionMode says what happens to a call that needs permission (docs/approvals.md).
type PermissionMode string

// The permission modes.
const (
	// PermissionHold keeps the call itself waiting: an approval executes exactly that call, a denial is its result.
	PermissionHold PermissionMode = "hold"
	// PermissionRetry tells the model that permission was asked for; after the decision it calls again.
	PermissionRetry PermissionMode = "retry"
)

// GrantScope says how far an approval reaches. The order is from narrow to wide.
type GrantScope string

// The grant scopes.
const (
	// ScopeCall is this call with exactly these arguments, once.
	ScopeCall GrantScope = "call"
	// ScopeToolPattern is calls of the tool in this run whose arguments match a pattern.
	ScopeToolPattern GrantScope = "run+tool+pattern"
	// ScopeTool is every call of the tool in this run.
	ScopeTool GrantScope = "run+tool"
	// ScopePrincipal is every call of the tool by this agent in runs that the same principal started.
	ScopePrincipal GrantScope = "principal+agent+tool"
)

// PermissionVerdict says what a policy makes of one call.
type PermissionVerdict string

// The verdicts. Anything else, the empty one too, counts as deny.
const (
	PermissionAllow PermissionVerdict = "allow"
	PermissionDeny  PermissionVerdict = "deny"
	PermissionAsk   PermissionVerdict = "ask"
)

// PermissionCheck is one call that a policy judges, at the time when it would be executed.
type PermissionCheck struct {
	// Agent is the agent's name, Run the subject of its run, Call the call's id.
	Agent, Run, Call string
	// AccessControl is that of the init event. It is a claim: no policy may allow anything because of it.
	AccessControl string
	// Initiator is the principal that started the run, as the broker enforced it; empty is anonymous.
	Initiator   string
	DelegatedBy *Delegation
	// Tool is the name that the model uses; Type is the contract's type for services, else empty.
	Tool, Type string
	// Schema is the dataschema of a service call.
	Schema string
	Labels ToolLabels
	// Args are the canonical arguments, with defaults applied.
	Args json.RawMessage
	// Parameters is the JSON Schema of the arguments.
	Parameters json.RawMessage
	// Require are tool patterns that this run puts under permission beyond the agent's policy.
	Require []string
	// Terms are those that the call would be asked for under, for Reserve: a grant counts as far as they admit it.
	Terms PermissionTerms
}

// ToolLabels are what a contract or an MCP server says of a tool. They are claims of whoever offers it: a policy may ask
// because of them.
type ToolLabels struct {
	ReadOnly    bool `json:"read_only,omitempty" yaml:"read_only"`
	Destructive bool `json:"destructive,omitempty" yaml:"destructive"`
	OpenWorld   bool `json:"open_world,omitempty" yaml:"open_world"`
}

// PermissionRuling is a policy's answer for one call.
type PermissionRuling struct {
	Verdict PermissionVerdict
	// Reason is shown to the model when the call is denied, and to the approver when it is asked for.
	Reason string
	// Rule names the rule of the policy, for the audit.
	Rule string
	// Terms say how to ask; they are used with PermissionAsk.
	Terms PermissionTerms
}

// PermissionTerms are the terms of a permission request.
type PermissionTerms struct {
	Mode PermissionMode
	// Risk is free text for the approver, such as "high".
	Risk string
	// Scopes are what an approver may choose from, beside ScopeCall, which is always offered.
	Scopes []GrantScope
	// Quorum is how many different principals must allow it; 0 is 1.
	Quorum int
	// FourEyes refuses a decision of the principal that started the run.
	FourEyes bool
	// Approvers are the principals that may decide; empty is whoever the broker lets answer.
	Approvers []string
	// Signed asks for decisions signed with a key of the domain.
	Signed bool
	// RemindMillis is how often those who are asked are reminded until they decide; 0 is never.
	RemindMillis int64
	// Results lets an approver give a call its result instead of having it made, in the mode hold and without a quorum.
	Results bool
	// Batch asks with one request for all calls of a round that are asked for under equal terms.
	Batch bool
	// Stages are whom the request goes to, one after the other; when the last one has not decided in time, the call is
	// denied. There is at least one.
	Stages []PermissionStage
}

// Consent is what people have allowed, as far as terms look at it.
type Consent struct {
	Scope GrantScope
	// By are the principals that allowed it; "" is somebody anonymous. Signed says that all of them signed.
	By     []string
	Signed bool
	// Domains are those that were asked one after the other. Whoever allowed it was asked in the last; nil is unknown.
	Domains []string
}

// Unmet says what the terms demand beyond the consent, of a call in a run of the initiator. It is empty when the consent stands
// for asking about the call: its scope is offered, the same domains are asked up to the one that decided, and everybody whom
// the terms need is among those who allowed it. Else what was allowed under light terms would let a call pass that must be
// asked for under heavier ones.
func (t PermissionTerms) Unmet(c Consent, initiator string) []string {
	var unmet []string
	demand := func(missing bool, format string, args ...any) {
		if missing {
			unmet = append(unmet, fmt.Sprintf(format, args...))
		}
	}
	demand(c.Scope != ScopeCall && !slices.Contains(t.Scopes, c.Scope), "the scope %s is not offered", c.Scope)
	demand(!t.asks(c.Domains), "it must be decided in %s", t.route())
	demand(t.Signed && !c.Signed, "it must be signed")
	by := slices.DeleteFunc(slices.Clone(c.By), func(who string) bool { return who == "" })
	anonymous := len(by) < len(c.By)
	demand(t.Quorum > 1 && len(by) < t.Quorum, "%d people must allow it", t.Quorum)
	demand(len(t.Approvers) > 0 && (len(by) == 0 || anonymous || !within(by, t.Approvers)),
		"only these may decide: %s", strings.Join(t.Approvers, ", "))
	demand(t.FourEyes && (len(by) == 0 || anonymous || slices.Contains(by, initiator)), "whoever started the run may not decide")
	return unmet
}

// OffersResult reports whether a decision under the terms may give the call its result.
func (t PermissionTerms) OffersResult() bool {
	return t.Results && t.Mode == PermissionHold && t.Quorum <= 1
}

// SharesRequest reports whether one request can ask for calls under either terms.
func (t PermissionTerms) SharesRequest(o PermissionTerms) bool {
	return t.Batch && o.Batch && t.Mode == o.Mode && slices.Equal(t.Scopes, o.Scopes) && t.Quorum == o.Quorum && t.FourEyes == o.FourEyes &&
		slices.Equal(t.Approvers, o.Approvers) && t.Signed == o.Signed && t.RemindMillis == o.RemindMillis && t.Results == o.Results &&
		slices.Equal(t.Stages, o.Stages)
}

// asks reports whether a request under the terms goes to the domains, one after the other, before it goes to any other.
func (t PermissionTerms) asks(domains []string) bool {
	if len(domains) == 0 || len(domains) > len(t.Stages) {
		return false
	}
	for i, domain := range domains {
		if t.Stages[i].Domain != domain {
			return false
		}
	}
	return true
}

// route names the domains that are asked.
func (t PermissionTerms) route() string {
	if len(t.Stages) == 0 {
		return "a domain, and none is named"
	}
	route := "the domain " + t.Stages[0].Domain
	for _, s := range t.Stages[1:] {
		route += ", then in " + s.Domain
	}
	return route
}

func within(names, all []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(all, name) })
}

// PermissionStage is one domain that is asked, for a time.
type PermissionStage struct {
	Domain string `json:"domain"`
	// TimeoutMillis is how long until the next stage, or the denial.
	TimeoutMillis int64 `json:"timeout_ms"`
}

// MarshalJSON leaves out of a request for several calls what is of one.
func (r PermissionRequest) MarshalJSON() ([]byte, error) {
	type members PermissionRequest
	if len(r.Calls) == 0 {
		return json.Marshal(members(r))
	}
	return json.Marshal(struct {
		members
		Call   string          `json:"call,omitempty"`
		Tool   string          `json:"tool,omitempty"`
		Args   json.RawMessage `json:"args,omitempty"`
		Labels *ToolLabels     `json:"labels,omitempty"`
	}{members: members(r)})
}

// Decision is what an approver chooses.
type Decision string

// The decisions.
const (
	DecisionAllow Decision = "allow"
	DecisionDeny  Decision = "deny"
	// DecisionAsk asks back: the model is told the question, and the call is not made.
	DecisionAsk Decision = "ask"
	// DecisionResult gives the call its result, which the model is told; the call is not made. Only where the request offers it.
	DecisionResult Decision = "result"
	// DecisionViewed is not a decision: it stands in records where somebody was shown the request.
	DecisionViewed Decision = "viewed"
)

// PermissionDecision is the data of a decision event, of the type TypePermissionDecided.
type PermissionDecision struct {
	Decision Decision `json:"decision"`
	// ArgsHash is the request's: what the approver saw.
	ArgsHash string `json:"args_sha256,omitempty"`
	// Calls are those that it is about, of a request for several calls; All says that it is about all of them that are open.
	Calls []CallDecision `json:"calls,omitempty"`
	All   bool           `json:"all,omitempty"`
	// Scope is one of the request's; empty is ScopeCall.
	Scope GrantScope `json:"scope,omitempty"`
	// Pattern is a CEL expression over args, for ScopeToolPattern.
	Pattern string `json:"pattern,omitempty"`
	// Args replace the arguments of the call, in the mode hold. They are validated like the model's.
	Args json.RawMessage `json:"args,omitempty"`
	// Result is an object, of DecisionResult.
	Result json.RawMessage `json:"result,omitempty"`
	// Reason is shown to the model; it is the question when the decision is ask.
	Reason string `json:"reason,omitempty"`
	// Uses and ExpiresMillis (Unix milliseconds) bound a grant wider than the call; 0 is unbounded.
	Uses          int   `json:"uses,omitempty"`
	ExpiresMillis int64 `json:"expires,omitempty"`
}

// CallDecision is what a decision on a request for several calls says of one of them. What it leaves out is as in the decision.
type CallDecision struct {
	Call string `json:"call"`
	// ArgsHash is the call's: what the approver saw.
	ArgsHash string          `json:"args_sha256"`
	Decision Decision        `json:"decision,omitempty"`
	Args     json.RawMessage `json:"args,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Reason   string          `json:"reason,omitempty"`
}

// Of is the decision on the one call that c names.
func (d PermissionDecision) Of(c CallDecision) PermissionDecision {
	d.Calls, d.All, d.ArgsHash = nil, false, c.ArgsHash
	d.Decision, d.Reason = cmp.Or(c.Decision, d.Decision), cmp.Or(c.Reason, d.Reason)
	d.Args, d.Result = c.Args, c.Result
	return d
}

// On is the decision with the hashes of what the request asks for, where it has none of its own. The error is CodeDecisionRefused: it is
// on other arguments, or does not say on which calls.
func (d PermissionDecision) On(r *PermissionRequest) (PermissionDecision, error) {
	other := Errorf(CodeDecisionRefused, "the decision is on other arguments than those of the request; look at it again")
	named := len(d.Calls) > 0
	switch {
	case len(r.Calls) == 0 && (named || d.All):
		return d, Errorf(CodeDecisionRefused, "the request is for one call; decide on it without naming calls")
	case len(r.Calls) > 0 && named == d.All:
		return d, Errorf(CodeDecisionRefused, "the request is for %d calls; name those that you decide on, or all", len(r.Calls))
	case !named && d.ArgsHash != "" && d.ArgsHash != r.ArgsHash:
		return d, other
	case !named:
		d.ArgsHash = r.ArgsHash
		return d, nil
	}
	d.Calls = slices.Clone(d.Calls)
	for i := range d.Calls {
		c := &d.Calls[i]
		one, ok := r.Of(c.Call)
		switch {
		case !ok:
			return d, Errorf(CodeDecisionRefused, "the request does not ask for the call %q", c.Call)
		case c.ArgsHash != "" && c.ArgsHash != one.ArgsHash:
			return d, other
		}
		c.ArgsHash = one.ArgsHash
	}
	return d, nil
}

// GrantRecord is a decision with a scope wider than a run, for the manager to keep.
type GrantRecord struct {
	// ID is the id of the request: recording it again is harmless.
	ID        string     `json:"id"`
	Agent     string     `json:"agent"`
	Principal string     `json:"principal"`
	Tool      string     `json:"tool"`
	Scope     GrantScope `json:"scope"`
	// By are the principals that allowed it, At when, in Unix milliseconds.
	By []string `json:"by"`
	// Signed says that all of them signed their decisions.
	Signed bool `json:"signed,omitempty"`
	// Domains are those that were asked one after the other, up to the one that decided. Without them the grant covers nothing.
	Domains []string `json:"domains,omitempty"`
	At      int64    `json:"at"`
	Run     string   `json:"run"`
	Uses    int      `json:"uses,omitempty"`
	// Expires is in Unix milliseconds; 0 is never.
	Expires int64 `json:"expires,omitempty"`
}

// KeptGrant is a grant, and what became of it.
type KeptGrant struct {
	GrantRecord
	// Used is how many calls were made under it.
	Used int `json:"used"`
	// Spent says that it allows nothing more: its uses or its time are over.
	Spent bool `json:"spent"`
}

// Consent is what the grant says that people have allowed.
func (g *GrantRecord) Consent() Consent {
	return Consent{Scope: g.Scope, By: g.By, Signed: g.Signed, Domains: g.Domains}
}

// PermissionManager decides which calls of an agent need permission. Everything it does may be repeated after a crash,
// with equal arguments. An error of Check fails closed: the call is not made. Safe for concurrent use.
//
// Grants of a run are not its business: the run keeps them itself.
type PermissionManager interface {
	// Check judges one call.
	Check(ctx context.Context, c PermissionCheck) (PermissionRuling, error)
	// Reserve looks for a grant wider than a run that covers a call which is to be asked for and that leaves nothing of c.Terms
	// unmet, and takes one use of it under the call's id: a call that has one gets the same again, for as long as the
	// grant lasts and leaves nothing unmet. It returns the grant's id, or "".
	Reserve(ctx context.Context, c PermissionCheck) (grant string, err error)
	// Request completes the data of a request before it is kept; it may change what the approver is shown.
	Request(ctx context.Context, c PermissionCheck, r PermissionRequest) (PermissionRequest, error)
	// Record keeps a grant wider than a run, before the run goes on.
	Record(ctx context.Context, g GrantRecord) error
	// Cleanup is told that a run has ended.
	Cleanup(ctx context.Context, run string) error
}

// ArgsHash is what a request and its decision say of the arguments: the SHA-256 of their canonical bytes, in lower-case
// hexadecimal.
func ArgsHash(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

// PermissionPolicy says which calls of an agent need permission, as data. Rules are tried in order and the first that
// matches decides; what none matches is allowed.
type PermissionPolicy struct {
	Rules []PermissionRule `json:"rules"`
	// Terms are those of rules that have none of their own.
	Terms PermissionPolicyTerms `json:"terms"`
}

// PermissionRule is one rule. It matches a call that all of its conditions match; an absent condition matches all.
type PermissionRule struct {
	// Name is shown to approvers and in the audit; empty is "rule <n>".
	Name string `json:"name,omitempty"`
	// Tools are patterns of tool names, of which one must match: "*" stands for any characters.
	Tools []string `json:"tools,omitempty"`
	// When is a CEL expression over args, tool, type, labels, agent and run that must be true. One that fails, because a
	// field is missing for example, counts as true: the rule then asks or denies. A rule that allows fails to match.
	When string `json:"when,omitempty"`
	// Labels are labels of the tool of which one must be set: "read_only", "destructive", "open_world".
	Labels  []string          `json:"labels,omitempty"`
	Verdict PermissionVerdict `json:"verdict"`
	Reason  string            `json:"reason,omitempty"`
	Risk    string            `json:"risk,omitempty"`
	// Terms replace those of the policy where they are set.
	Terms *PermissionPolicyTerms `json:"terms,omitempty"`
}

// PermissionPolicyTerms are how an approver is asked. Zero values are the defaults. In a rule they stand for those of its policy, and a
// list that is empty, and not nil, for none.
type PermissionPolicyTerms struct {
	// Mode is PermissionHold by default.
	Mode PermissionMode `json:"mode,omitempty"`
	// Domain is HumanDomain by default, TimeoutMillis DefaultPermissionTimeout.
	Domain        string `json:"domain,omitempty"`
	TimeoutMillis int64  `json:"timeout_ms,omitempty"`
	// RemindMillis is how often those who are asked are reminded; 0 is never, else at least 1000.
	RemindMillis int64 `json:"remind_ms,omitempty"`
	// Escalate are the domains that are asked after that, one after the other; after the last one the call is denied.
	Escalate []PermissionStage `json:"escalate,omitzero"`
	// Scopes are ScopeCall by default.
	Scopes    []GrantScope `json:"scopes,omitzero"`
	Quorum    int          `json:"quorum,omitempty"`
	FourEyes  bool         `json:"four_eyes,omitempty"`
	Approvers []string     `json:"approvers,omitzero"`
	// Signed asks for decisions signed by a key that is configured for the domain.
	Signed bool `json:"signed,omitempty"`
	// Results lets an approver give a call its result, and Batch asks for several calls with one request; see PermissionTerms.
	Results bool `json:"results,omitempty"`
	Batch   bool `json:"batch,omitempty"`
}

// NeedsIdentity reports whether the terms mean anything only where the broker enforces who somebody is.
func (t PermissionPolicyTerms) NeedsIdentity() bool {
	if t.Quorum > 1 || t.FourEyes || len(t.Approvers) > 0 {
		return true
	}
	for _, s := range t.Scopes {
		if s == ScopePrincipal {
			return true
		}
	}
	return false
}

// DecisionKey is a public key whose signatures on decisions count.
type DecisionKey struct {
	Public ed25519.PublicKey
	// Principal is the only one who may publish what the key signed; empty is anybody who may decide.
	Principal string
}
