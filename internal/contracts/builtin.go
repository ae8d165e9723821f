package contracts

import (
	"encoding/json"
	"fmt"

	"agentd/sdk"
)

// The one version of the built-in contracts.
const (
	BuiltinVersion = "1.0.0"
	// PermissionResultVersion is that of permission requests which may be answered with the call's result, or which ask for several calls.
	PermissionResultVersion = "1.1.0"
)

// What an agent accepts and emits that does not say so. They never change: agents that are served are known by the digest of their spec, which
// has them, and the registry keeps a version as it is.
const (
	DefaultAccepts = `{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`
	DefaultEmits   = `{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`
)

// QuestionForm is the property of a question that only tools may add, not models: the schema of a form.
const QuestionForm = "schema"

// Question is the contract of a question to a person.
func Question() sdk.Contract {
	return sdk.Contract{
		URI: "agentd:/agentd/question/ask", Type: sdk.TypeQuestion, Domain: sdk.HumanDomain,
		Description: "Ask a person a question and wait for the answer. Use it when something is missing or unclear that " +
			"only a person can know or decide.",
		Versions: map[string]sdk.ContractVersion{BuiltinVersion: {
			Accepts: json.RawMessage(questionAccepts),
			Emits:   map[string]json.RawMessage{sdk.TypeQuestionAnswered: json.RawMessage(questionAnswered)},
		}},
	}
}

// ParentQuestion is the contract of what an agent asks the one that has called it. The type of its event is that of the caller's own contract.
func ParentQuestion() sdk.Contract {
	return sdk.Contract{
		URI: "agentd:/agentd/parent/ask", Type: sdk.TypeParentQuestion,
		Description: "Ask whoever gave you this task, and wait for the answer. Use it when the task leaves open what only they can know or decide.",
		Versions: map[string]sdk.ContractVersion{BuiltinVersion: {
			Accepts: json.RawMessage(parentQuestionAccepts),
			Emits:   map[string]json.RawMessage{sdk.TypeParentAnswered: json.RawMessage(parentAnswered)},
		}},
	}
}

// Conversation is the contract of a turn to the person that an agent talks to (text mode "converse").
func Conversation() sdk.Contract {
	return sdk.Contract{
		URI: "agentd:/agentd/conversation/turn", Type: sdk.TypeConversationTurn, Domain: sdk.HumanDomain,
		Description: "What an agent says to the person it talks to; the answer is what the person says.",
		Versions: map[string]sdk.ContractVersion{BuiltinVersion: {
			Accepts: json.RawMessage(turnAccepts),
			Emits:   map[string]json.RawMessage{sdk.TypeConversationAnswered: json.RawMessage(turnAnswered)},
		}},
	}
}

// Permission is the contract of permission requests (sdk.PermissionRequest) and their decisions (sdk.PermissionDecision).
func Permission() sdk.Contract {
	return sdk.Contract{
		URI: "agentd:/agentd/permission/request", Type: sdk.TypePermissionRequest, Domain: sdk.HumanDomain,
		Description: "An agent needs a person's permission for a call; the answer is their decision.",
		Versions: map[string]sdk.ContractVersion{
			BuiltinVersion: permissionVersion(permissionOfOneCall, "", decisionOnOneCall),
			PermissionResultVersion: permissionVersion(permissionOfCalls, permissionResultDecision,
				fmt.Sprintf(decisionOnCalls, permissionResultDecision)),
		},
	}
}

// PlanReview is the contract of requests to approve plans (sdk.PermissionRequest) and their decisions (sdk.PermissionDecision).
func PlanReview() sdk.Contract {
	return sdk.Contract{
		URI: "agentd:/agentd/plan/review", Type: sdk.TypePlanReview, Domain: sdk.HumanDomain,
		Description: "An agent needs a person's approval of a plan before it is carried out; the answer is their decision.",
		Versions:    map[string]sdk.ContractVersion{BuiltinVersion: permissionVersion(permissionOfOneCall, "", decisionOnOneCall)},
	}
}

// permissionVersion is a version of that contract by what differs between them: the last members of the request and what is required
// of it, decisions, and the last members of a decision and what is required of it.
func permissionVersion(asked, decisions, decided string) sdk.ContractVersion {
	return sdk.ContractVersion{
		Accepts: json.RawMessage(fmt.Sprintf(permissionAccepts, asked)),
		Emits: map[string]json.RawMessage{
			sdk.TypePermissionDecided: json.RawMessage(fmt.Sprintf(permissionDecided, decisions, decided)),
			sdk.TypePermissionViewed:  json.RawMessage(permissionViewed),
		},
	}
}

// Builtin lists agentd's own contracts.
func Builtin() []sdk.Contract {
	return []sdk.Contract{Question(), Conversation(), Permission(), PlanReview()}
}

const (
	questionAccepts = `{
  "type": "object",
  "properties": {
    "question": {"type": "string", "minLength": 1, "description": "The question, complete in itself."},
    "suggestions": {
      "type": "array", "items": {"type": "string"}, "maxItems": 4,
      "description": "Likely answers to choose from."
    },
    "schema": {"type": "object", "description": "The JSON Schema of the answer's content, when a tool asks for a form."}
  },
  "required": ["question"],
  "additionalProperties": false
}`
	questionAnswered = `{
  "type": "object",
  "properties": {
    "answer": {"type": "string", "description": "The answer, or the content of a form as JSON."},
    "action": {"enum": ["accept", "decline", "cancel"], "description": "Of a form; accept if it is absent."},
    "content": {"type": "object", "description": "The content of a form; it comes before answer."}
  },
  "required": ["answer"]
}`
	parentQuestionAccepts = `{
  "type": "object",
  "properties": {
    "question": {"type": "string", "minLength": 1, "maxLength": 16000, "description": "The question, complete in itself."}
  },
  "required": ["question"],
  "additionalProperties": false
}`
	parentAnswered = `{
  "type": "object",
  "properties": {"answer": {"type": "string"}},
  "required": ["answer"]
}`
	turnAccepts = `{
  "type": "object",
  "properties": {"message": {"type": "string"}},
  "required": ["message"]
}`
	turnAnswered = `{
  "type": "object",
  "properties": {
    "message": {"type": "string"},
    "end": {"type": "boolean", "description": "The person is done: the run completes."}
  },
  "required": ["message"]
}`
	permissionAccepts = `{
  "type": "object",
  "properties": {
    "agent": {"type": "string"},
    "run": {"type": "string"},
    "call": {"type": "string", "description": "The call that needs permission."},
    "tool": {"type": "string"},
    "type": {"type": "string", "description": "The contract's type, for a call of a service."},
    "schema": {"type": "string", "description": "The dataschema of that call."},
    "args": {"type": "object", "description": "The exact arguments."},
    "args_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "parameters": {"type": "object", "description": "The JSON Schema of the arguments."},
    "labels": {"type": "object"},
    "mode": {"enum": ["hold", "retry"]},
    "reason": {"type": "string"},
    "risk": {"type": "string"},
    "rule": {"type": "string"},
    "policy": {"type": "string"},
    "initiator": {"type": "string"},
    "delegated_by": {"type": ["object", "null"]},
    "scopes": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "quorum": {"type": "integer", "minimum": 1},
    "four_eyes": {"type": "boolean"},
    "approvers": {"type": "array", "items": {"type": "string"}},
    "signed": {"type": "boolean"},
    "remind_ms": {"type": "integer", "minimum": 1, "description": "How often whoever is asked is to be reminded."},
    "answer": {"type": "object", "description": "The JSON Schema of the decision."},
    "stage": {"type": "integer", "minimum": 0}%s
}`
	permissionDecided = `{
  "type": "object",
  "properties": {
    "decision": {"enum": ["allow", "deny", "ask"%s]},
    "args_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "That of the request."},
    "scope": {"enum": ["call", "run+tool+pattern", "run+tool", "principal+agent+tool"]},
    "pattern": {"type": "string", "description": "A CEL expression over args."},
    "args": {"type": "object", "description": "Arguments to make the call with instead."},
    "reason": {"type": "string", "description": "Shown to the model; the question, when the decision is ask."},
    "uses": {"type": "integer", "minimum": 1},
    "expires": {"type": "integer", "minimum": 0, "description": "Unix milliseconds."}%s,
  "additionalProperties": false
}`
	permissionOfOneCall = `
  },
  "required": ["agent", "run", "call", "tool", "args", "args_sha256", "mode", "scopes"]`
	permissionOfCalls = `,
    "results": {"type": "boolean", "description": "The decision may give the call its result."},
    "calls": {
      "type": "array", "minItems": 1, "description": "The calls that need permission, in place of one.",
      "items": {
        "type": "object",
        "properties": {
          "call": {"type": "string"},
          "tool": {"type": "string"},
          "type": {"type": "string"},
          "schema": {"type": "string"},
          "args": {"type": "object", "description": "The exact arguments."},
          "args_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
          "parameters": {"type": "object"},
          "labels": {"type": "object"},
          "reason": {"type": "string"},
          "risk": {"type": "string"},
          "rule": {"type": "string"}
        },
        "required": ["call", "tool", "args", "args_sha256"]
      }
    }
  },
  "required": ["agent", "run", "args_sha256", "mode", "scopes"],
  "anyOf": [{"required": ["call", "tool", "args"]}, {"required": ["calls"]}]`
	permissionResultDecision = `, "result"`
	decisionOnOneCall        = `
  },
  "required": ["decision", "args_sha256"]`
	decisionOnCalls = `,
    "result": {"type": "object", "description": "The result of the call, which is not made."},
    "all": {"type": "boolean", "description": "It is on all calls of the request that are open; args_sha256 is the request's."},
    "calls": {
      "type": "array", "minItems": 1, "maxItems": 64, "description": "The calls that it is on.",
      "items": {
        "type": "object",
        "properties": {
          "call": {"type": "string"},
          "args_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "That of the call in the request."},
          "decision": {"enum": ["allow", "deny", "ask"%s]},
          "args": {"type": "object"},
          "result": {"type": "object"},
          "reason": {"type": "string"}
        },
        "required": ["call", "args_sha256"],
        "additionalProperties": false
      }
    }
  },
  "required": ["decision"],
  "anyOf": [{"required": ["args_sha256"]}, {"required": ["calls"]}]`
	permissionViewed = `{
  "type": "object",
  "properties": {
    "args_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "That of the request."}
  },
  "required": ["args_sha256"],
  "additionalProperties": false
}`
)
