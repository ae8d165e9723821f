package sdk

import (
	"encoding/json"
	"strings"
)

// PermissionRequest is the data of a request event, of the type TypePermissionRequest (docs/permissions.md). Its deadline is
// the event's "expirytime". One that asks for several calls has them in Calls, in place of Call, Tool, Type, Schema, Args, Parameters,
// Labels, Reason, Risk and Rule; Each is what it asks for in either form.
type PermissionRequest struct {
	Agent string `json:"agent"`
	Run   string `json:"run"`
	// Call is the call that needs permission; the request has an id of its own, the event's.
	Call string `json:"call"`
	Tool string `json:"tool"`
	// Type and Schema are the contract's type and the dataschema of a service call.
	Type   string          `json:"type,omitempty"`
	Schema string          `json:"schema,omitempty"`
	Args   json.RawMessage `json:"args"`
	// ArgsHash is ArgsHash(Args), or CallsHash of several calls. A decision repeats it.
	ArgsHash   string           `json:"args_sha256"`
	Parameters json.RawMessage  `json:"parameters,omitempty"`
	Labels     ToolLabels       `json:"labels"`
	Calls      []PermissionCall `json:"calls,omitempty"`
	Mode       PermissionMode   `json:"mode"`
	Reason     string           `json:"reason,omitempty"`
	Risk       string           `json:"risk,omitempty"`
	Rule       string           `json:"rule,omitempty"`
	// Policy is the digest of the agent spec whose policy asks.
	Policy      string       `json:"policy"`
	Initiator   string       `json:"initiator,omitempty"`
	DelegatedBy *Delegation  `json:"delegated_by,omitempty"`
	Scopes      []GrantScope `json:"scopes"`
	Quorum      int          `json:"quorum"`
	FourEyes    bool         `json:"four_eyes,omitempty"`
	Approvers   []string     `json:"approvers,omitempty"`
	Signed      bool         `json:"signed,omitempty"`
	// RemindMillis is how often whoever is asked is to be reminded; 0 is never.
	RemindMillis int64 `json:"remind_ms,omitempty"`
	// Results says that the decision may be DecisionResult.
	Results bool `json:"results,omitempty"`
	// Answer is the JSON Schema of the decision: of what can count, as far as the terms say.
	Answer json.RawMessage `json:"answer,omitempty"`
	// Stage counts the domains that were asked before.
	Stage int `json:"stage"`
}

// PermissionCall is one of the calls that a request asks for.
type PermissionCall struct {
	Call string `json:"call"`
	Tool string `json:"tool"`
	// Type and Schema are the contract's type and the dataschema of a service call.
	Type   string          `json:"type,omitempty"`
	Schema string          `json:"schema,omitempty"`
	Args   json.RawMessage `json:"args"`
	// ArgsHash is ArgsHash(Args). A decision that names the call repeats it.
	ArgsHash   string          `json:"args_sha256"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
	Labels     ToolLabels      `json:"labels"`
	Reason     string          `json:"reason,omitempty"`
	Risk       string          `json:"risk,omitempty"`
	Rule       string          `json:"rule,omitempty"`
}

// Each are the calls that the request asks for.
func (r *PermissionRequest) Each() []PermissionCall {
	if len(r.Calls) > 0 {
		return r.Calls
	}
	return []PermissionCall{{
		Call: r.Call, Tool: r.Tool, Type: r.Type, Schema: r.Schema, Args: r.Args, ArgsHash: r.ArgsHash, Parameters: r.Parameters,
		Labels: r.Labels, Reason: r.Reason, Risk: r.Risk, Rule: r.Rule,
	}}
}

// Of is the request as if it asked for that one of its calls alone; ok is false when it does not ask for it.
func (r *PermissionRequest) Of(call string) (one PermissionRequest, ok bool) {
	for _, c := range r.Each() {
		if c.Call == call {
			one = *r
			one.Calls = nil
			one.Call, one.Tool, one.Type, one.Schema, one.Args, one.ArgsHash = c.Call, c.Tool, c.Type, c.Schema, c.Args, c.ArgsHash
			one.Parameters, one.Labels, one.Reason, one.Risk, one.Rule = c.Parameters, c.Labels, c.Reason, c.Risk, c.Rule
			return one, true
		}
	}
	return PermissionRequest{}, false
}

// Batched is one request for the calls of all, which are requests of the same terms; what they share is that of the first.
func Batched(all []PermissionRequest) PermissionRequest {
	batch := all[0]
	hashes := make([]string, len(all))
	batch.Calls = make([]PermissionCall, len(all))
	for i := range all {
		batch.Calls[i] = all[i].Each()[0]
		hashes[i] = all[i].ArgsHash
	}
	batch.ArgsHash = CallsHash(hashes)
	batch.Call, batch.Tool, batch.Type, batch.Schema, batch.Args, batch.Parameters = "", "", "", "", nil, nil
	batch.Labels, batch.Reason, batch.Risk, batch.Rule = ToolLabels{}, "", "", ""
	return batch
}

// CallsHash is what a request for several calls and a decision on all of them say of the arguments, whose hashes are in the order of
// the request's calls: the ArgsHash of those hashes as a JSON array.
func CallsHash(hashes []string) string {
	return ArgsHash([]byte(`["` + strings.Join(hashes, `","`) + `"]`))
}
