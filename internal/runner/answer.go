package runner

import (
	"encoding/json"
	"fmt"
	"slices"

	"agentd/internal/core"
	"agentd/sdk"
)

// schema is as much of a JSON Schema as the answer to a request needs.
type schema struct {
	Type       string            `json:"type,omitempty"`
	Enum       any               `json:"enum,omitempty"`
	Const      any               `json:"const,omitempty"`
	Properties map[string]schema `json:"properties,omitempty"`
	Required   []string          `json:"required,omitempty"`
	Items      *schema           `json:"items,omitempty"`
	// Closed refuses other properties.
	Closed *bool `json:"additionalProperties,omitempty"`
}

// Members of a decision: what was decided, and the hash of the arguments that it is on.
const (
	decisionMember = "decision"
	hashMember     = "args_sha256"
)

// object is the schema of an object with no other members than those.
func object(members map[string]schema, required ...string) schema {
	return schema{Type: "object", Properties: members, Required: required, Closed: new(bool)}
}

// answerSchema is the JSON Schema of the decisions on a request that can count, or on the batch that it becomes a part of.
func answerSchema(r *sdk.PermissionRequest, batch bool) (json.RawMessage, error) {
	anObject, text := schema{Type: "object"}, schema{Type: "string"}
	decisions := []sdk.Decision{sdk.DecisionAllow, sdk.DecisionDeny, sdk.DecisionAsk}
	if r.Results {
		decisions = append(decisions, sdk.DecisionResult)
	}
	// What is of one call: in a batch, it is said where the decision names it.
	ofCall := map[string]schema{decisionMember: {Enum: decisions}, hashMember: {Const: r.ArgsHash}, "reason": text}
	if r.Mode == sdk.PermissionHold && r.Quorum <= 1 {
		ofCall["args"] = anObject // the tool's own schema is in the request
	}
	if r.Results {
		ofCall["result"] = anObject
	}
	members, required := ofCall, []string{decisionMember, hashMember}
	if batch {
		ofCall["call"], ofCall[hashMember] = text, text
		named := object(ofCall, "call", hashMember)
		members, required = map[string]schema{
			decisionMember: ofCall[decisionMember], "reason": text,
			"calls": {Type: "array", Items: &named}, "all": {Const: true}, hashMember: text,
		}, []string{decisionMember}
	}
	members["scope"] = schema{Enum: r.Scopes}
	if slices.ContainsFunc(r.Scopes, func(s sdk.GrantScope) bool { return s != sdk.ScopeCall }) {
		members["uses"], members["expires"] = schema{Type: "integer"}, schema{Type: "integer"}
	}
	if slices.Contains(r.Scopes, sdk.ScopeToolPattern) {
		members["pattern"] = text
	}
	encoded, err := core.EncodeJSON(object(members, required...))
	if err != nil {
		return nil, fmt.Errorf("encode the schema of decisions on %s: %w", r.Call, err)
	}
	return encoded, nil
}
