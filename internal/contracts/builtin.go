package contracts

import (
	"encoding/json"
	"strings"

	"agentd/sdk"
)

// The built-in tools of an agent.
const (
	// ToolTaskCompletion ends the run with its argument as the result.
	ToolTaskCompletion = "task_completion"
	// ToolAskQuestion asks a person and waits for the answer.
	ToolAskQuestion = "ask_question"
)

// BuiltinTools are the names that sdk.AgentSpec.Builtin may have.
func BuiltinTools() []string { return []string{ToolTaskCompletion, ToolAskQuestion} }

// The one version of the built-in contracts, and the types of their answers.
const (
	BuiltinVersion           = "1.0.0"
	TypeQuestionAnswered     = "agentd.question.answered"
	TypeConversationAnswered = "agentd.conversation.answered"
)

// Question is the contract of a question to a person.
func Question() sdk.Contract {
	return sdk.Contract{
		URI: "#/agentd/question/ask", Type: sdk.TypeQuestion, Domain: sdk.HumanDomain,
		Description: "Ask a person a question and wait for the answer. Use it when something is missing or unclear that " +
			"only a person can know or decide.",
		Versions: map[string]sdk.ContractVersion{BuiltinVersion: {
			Accepts: json.RawMessage(questionAccepts),
			Emits:   map[string]json.RawMessage{TypeQuestionAnswered: json.RawMessage(questionAnswered)},
		}},
	}
}

// Conversation is the contract of a turn to the person that an agent talks to (text mode "converse").
func Conversation() sdk.Contract {
	return sdk.Contract{
		URI: "#/agentd/conversation/turn", Type: sdk.TypeConversationTurn, Domain: sdk.HumanDomain,
		Description: "What an agent says to the person it talks to; the answer is what the person says.",
		Versions: map[string]sdk.ContractVersion{BuiltinVersion: {
			Accepts: json.RawMessage(turnAccepts),
			Emits:   map[string]json.RawMessage{TypeConversationAnswered: json.RawMessage(turnAnswered)},
		}},
	}
}

// Builtin lists agentd's own contracts.
func Builtin() []sdk.Contract { return []sdk.Contract{Question(), Conversation()} }

const (
	questionAccepts = `{
  "type": "object",
  "properties": {
    "question": {"type": "string", "minLength": 1, "description": "The question, complete in itself."},
    "suggestions": {
      "type": "array", "items": {"type": "string"}, "maxItems": 4,
      "description": "Likely answers to choose from."
    }
  },
  "required": ["question"],
  "additionalProperties": false
}`
	questionAnswered = `{
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
	completionParameters = `{
  "type": "object",
  "properties": {
    "result": {
      "type": ["object", "string"],
      "description": "The result: an object in the form that was asked for, or text."
    }
  },
  "required": ["result"],
  "additionalProperties": false
}`
	completionDescription = "End the task and hand over its result. Call it once, alone, when everything is done."
)

// builtinTool returns the built-in tool of that name.
func builtinTool(name string, limits sdk.Limits) (*Tool, error) {
	switch name {
	case ToolTaskCompletion:
		return newTool(&Tool{
			Name: name, Kind: ToolBuiltin, Timeout: sdk.DefaultToolTimeout,
			Definition: sdk.ToolDefinition{Description: completionDescription},
		}, json.RawMessage(completionParameters))
	case ToolAskQuestion:
		timeout := limits.QuestionTimeoutMillis
		if timeout == 0 {
			timeout = sdk.DefaultQuestionTimeout.Milliseconds()
		}
		return serviceTool(sdk.ServiceTool{
			Contract: Question(), Version: BuiltinVersion, As: name, TimeoutMillis: timeout,
		})
	default:
		return nil, &sdk.Error{Code: sdk.CodeConfig, Faults: []sdk.Fault{{
			Path: "$", Expected: "a built-in tool: " + strings.Join(BuiltinTools(), " or "), Got: show(name),
		}}}
	}
}
