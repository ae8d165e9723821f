package toolbox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"agentd/internal/contracts"
	"agentd/sdk"
)

// The built-in tools of an agent.
const (
	// TaskCompletion ends the run with its argument as the result.
	TaskCompletion = "task_completion"
	// AskQuestion asks a person and waits for the answer.
	AskQuestion = "ask_question"
	// Converse says something to the person that the agent talks to, and waits for what they say.
	Converse = "converse"
)

// BuiltinNames are the names that sdk.AgentSpec.Builtin may have.
func BuiltinNames() []string {
	return []string{TaskCompletion, AskQuestion, Converse, sdk.ToolUpdatePlan, sdk.ToolAskParent, sdk.ToolAnswerChild}
}

// builtinTool returns the built-in tool of that name.
func builtinTool(name string, limits sdk.Limits) (*Tool, error) {
	switch name {
	case TaskCompletion:
		return newTool(&Tool{
			Name: name, Kind: Builtin, Timeout: sdk.DefaultToolTimeout,
			Definition: sdk.ToolDefinition{Description: completionDescription},
		}, json.RawMessage(completionParameters))
	case sdk.ToolUpdatePlan:
		return newTool(&Tool{
			Name: name, Kind: Builtin, Timeout: sdk.DefaultToolTimeout,
			Definition: sdk.ToolDefinition{Description: planDescription},
		}, json.RawMessage(planParameters))
	case sdk.ToolReadMore:
		return newTool(&Tool{
			Name: name, Kind: Builtin, Timeout: sdk.DefaultToolTimeout,
			Definition: sdk.ToolDefinition{Description: readMoreDescription},
		}, json.RawMessage(readMoreParameters))
	case sdk.ToolAnswerChild:
		return newTool(&Tool{
			Name: name, Kind: Builtin, Timeout: sdk.DefaultToolTimeout,
			Definition: sdk.ToolDefinition{Description: answerChildDescription},
		}, json.RawMessage(answerChildParameters))
	case sdk.ToolAskParent:
		return serviceTool(sdk.ServiceTool{
			Contract: contracts.ParentQuestion(), Version: contracts.BuiltinVersion, As: name,
			TimeoutMillis: cmp.Or(limits.QuestionTimeoutMillis, sdk.DefaultQuestionTimeout.Milliseconds()),
		})
	case AskQuestion, Converse:
		contract := contracts.Question()
		var err error
		if contract.Versions, err = modelQuestion(); err != nil {
			return nil, err
		}
		s := sdk.ServiceTool{
			Contract: contract, Version: contracts.BuiltinVersion, As: name,
			TimeoutMillis: cmp.Or(limits.QuestionTimeoutMillis, sdk.DefaultQuestionTimeout.Milliseconds()),
		}
		if name == Converse {
			s.Contract, s.Description = contracts.Conversation(), converseDescription
		}
		return serviceTool(s)
	default:
		return nil, &sdk.Error{Code: sdk.CodeConfig, Faults: []sdk.Fault{{
			Path: "$", Expected: "a built-in tool: " + strings.Join(BuiltinNames(), ", "), Got: fmt.Sprintf("string %q", name),
		}}}
	}
}

// modelQuestion are the versions of the contract of questions as models are shown it: they ask for no forms. Nobody may change them.
var modelQuestion = sync.OnceValues(func() (map[string]sdk.ContractVersion, error) {
	question := contracts.Question()
	version, err := contracts.CompileVersion(question, contracts.BuiltinVersion)
	if err != nil {
		return nil, err
	}
	accepts, _ := version.Accepts.WithoutProperty(contracts.QuestionForm)
	emits := question.Versions[contracts.BuiltinVersion].Emits
	return map[string]sdk.ContractVersion{contracts.BuiltinVersion: {Accepts: accepts, Emits: emits}}, nil
})

const (
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
	converseDescription = "Say something to the person you talk to, and wait for what they say. When the answer has end, they " +
		"are done: finish."
	answerChildDescription = "Answer what an agent that you called asks you, so that it can go on."
	answerChildParameters  = `{
  "type": "object",
  "properties": {
    "question": {"type": "string", "minLength": 1, "maxLength": 64, "description": "The question, as the message with it names it."},
    "answer": {"type": "string", "minLength": 1, "maxLength": 16000}
  },
  "required": ["question", "answer"],
  "additionalProperties": false
}`
	readMoreParameters = `{
  "type": "object",
  "properties": {
    "result": {"type": "string", "minLength": 1, "maxLength": 128, "description": "The result, as the notice in it names it."},
    "offset": {"type": "integer", "minimum": 0, "description": "Where to read on, in bytes."}
  },
  "required": ["result", "offset"],
  "additionalProperties": false
}`
	readMoreDescription   = "Read more of a result that was shown to you in part. Each piece says where the next one begins."
	completionDescription = "End the task and hand over its result. Call it once, alone, when everything is done."
)

const planDescription = "Write down your plan, or change it. You are shown it before every reply. Give all of it each time: the " +
	"goal, every step with what came of it, and the step that you work on."

// planParameters are bounded, because the plan is part of every prompt.
const planParameters = `{
  "type": "object",
  "properties": {
    "goal": {"type": "string", "minLength": 1, "maxLength": 1000},
    "steps": {
      "type": "array", "minItems": 1, "maxItems": 32,
      "items": {
        "type": "object",
        "properties": {
          "description": {"type": "string", "minLength": 1, "maxLength": 500},
          "completed": {"type": "boolean"},
          "result": {"type": "string", "maxLength": 500, "description": "What came of it."}
        },
        "required": ["description"],
        "additionalProperties": false
      }
    },
    "current": {"type": "integer", "minimum": 1, "maximum": 32, "description": "The number of the step that you work on, from 1."}
  },
  "required": ["goal", "steps"],
  "additionalProperties": false
}`
