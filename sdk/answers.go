package sdk

import (
	"encoding/json"
	"fmt"
)

// Answers says what is taken for an answer of the model. An empty reply never is; the judges of the other fields look at the texts that the
// model ends with, each as often as its field says: 0 is never. What a judge objects to is kept in the conversation, and the model is told
// once why it is asked again. A text that all judges have objected to as often as they may is accepted.
type Answers struct {
	// Incomplete sends back what says that work is left, or what the model will do next.
	Incomplete int `json:"incomplete,omitempty"`
	// Deflecting sends back what asks or offers instead of going on, of a model that has called a tool and may not ask.
	Deflecting int `json:"deflecting,omitempty"`
	// Unverified sends back what claims a change that no call can have made.
	Unverified int `json:"unverified,omitempty"`
	// Summary makes the last model call that the limit on interactions allows one for a summary, without tools.
	Summary bool `json:"summary,omitempty"`
	// Degraded is the text of the output when the model and all its fallbacks have failed, instead of waiting for them; empty is to wait.
	// The run completes with the code "degraded".
	Degraded string `json:"degraded,omitempty"`
	// Phrases are those by which the judges know a language, in place of those of English, German and French: as JSON, what
	// agents[].answers.phrases of an agentd.yaml has (docs/agentd_yaml.md).
	Phrases json.RawMessage `json:"phrases,omitempty"`
	// Require are the gates that an output must pass, in this order.
	Require []Requirement `json:"require,omitempty"`
}

// Requirement is what an output must be like. It has one of Schema, When and Hook, or the agent has a service that is asked: one of
// AgentSpec.Services that is asked for the section AnswerSection of the name. What it is asked is {"input": object, "output": object}, and its
// answer is {"accepted": boolean, "feedback"?: text}. When it does not answer, or with an error, an optional requirement is passed, and
// else the run ends.
type Requirement struct {
	// Name is told, and unique in the agent.
	Name string `json:"name"`
	// Schema is a JSON Schema of the output.
	Schema json.RawMessage `json:"schema,omitempty"`
	// When is CEL over output, input, run and agent.
	When string `json:"when,omitempty"`
	// Hook names a function of Hooks.Requirements.
	Hook string `json:"hook,omitempty"`
	// Feedback is what the model is told of an output that does not pass; empty is what is wrong with it.
	Feedback string `json:"feedback,omitempty"`
	// Retries is how often an output is sent back; 0 is DefaultRequirementRetries.
	Retries int `json:"retries,omitempty"`
	// Optional accepts the output after that, where otherwise the run ends with CodeNoAnswer.
	Optional bool `json:"optional,omitempty"`
}

// AnswerSection is the section of the service that is asked whether an output satisfies the requirement of that name.
func AnswerSection(requirement string) string { return "answer." + requirement }

// DefaultRequirementRetries is how often an output is sent back that does not pass a gate, and MaxRequirements how many gates an agent may have.
const (
	DefaultRequirementRetries = 3
	MaxRequirements           = 8
)

// AnswersSmallModel is the name of SmallModel in a file: "answers: small-model".
const AnswersSmallModel = "small-model"

// SmallModel is what a model needs that is small, cheap and stops early.
func SmallModel() Answers { return Answers{Incomplete: 10, Deflecting: 3, Summary: true} }

// UnmarshalJSON reads the name of a preset as well.
func (a *Answers) UnmarshalJSON(data []byte) error {
	var preset string
	if json.Unmarshal(data, &preset) == nil {
		if preset != AnswersSmallModel {
			return fmt.Errorf("answers: want %q or a mapping, not %q", AnswersSmallModel, preset)
		}
		*a = SmallModel()
		return nil
	}
	type plain Answers
	return json.Unmarshal(data, (*plain)(a))
}

// RequirementInput is what a gate may look at.
type RequirementInput struct {
	Run    string
	Input  json.RawMessage
	Output json.RawMessage
}
