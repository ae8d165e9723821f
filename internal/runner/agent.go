package runner

import (
	"context"
	"encoding/json"
	"time"

	"agentd/internal/core"
	"agentd/internal/judge"
	"agentd/internal/prompt"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Agent is a compiled agent spec: the core's view of it and what the shell needs to carry its actions out. It must not
// be modified once it is in a Catalog.
type Agent struct {
	Core *core.Spec
	// SpecJSON is the canonical JSON whose digest is Core.Digest.
	SpecJSON []byte
	Model    sdk.Provider
	// Changing says that the agent's tools may come and go while a run is under way.
	Changing bool
	// ModelKey names what is missing when the model, with its fallbacks, cannot be asked: a token of a subject. Parks are the codes of
	// failures after which a run waits for it rather than ends: see sdk.ModelSpec.Park.
	ModelKey string
	Parks    []sdk.Code
	// ModelName goes into every request.
	ModelName string
	// MaxTokens is how long the first model's reply may be, where no hook says otherwise, and is told live; 0 is not known.
	MaxTokens int
	// ModelTimeout bounds one model call with its retries and its fallbacks.
	ModelTimeout time.Duration
	Definitions  []sdk.ToolDefinition
	// Selection chooses which of Definitions the model is offered; nil offers all.
	Selection *Selection
	// OutputSchema is shown to the model; nil asks for free text.
	OutputSchema json.RawMessage
	// Inline are the tools that run in the worker, by the name the model uses.
	Inline map[string]sdk.Tool
	// Shown is how many characters of a tool's result the model is shown at once.
	Shown func(tool string) int
	// History puts the conversation beside the output.
	History bool
	// Live tells live events also when nobody has announced that they read them.
	Live bool

	// Phases are the hooks in the order in which they are called.
	Phases []sdk.Hook

	// CheckConstraints says what is wrong with constraints of a run; nil is an agent without any that a run's could narrow.
	CheckConstraints func(*sdk.Constraints) []string

	// Permissions rules on every call of a run that needs rulings. Describe is what a check says of a tool itself.
	Permissions sdk.PermissionManager
	Describe    func(tool string) sdk.PermissionCheck

	// BuildContext begins a conversation.
	BuildContext func(context.Context, sdk.ContextInput) (sdk.Context, error)
	// Estimate is how many tokens messages have, by estimate.
	Estimate func([]sdk.Message) int
	// BuildPrompt builds the prompt of a model call; nil is the system prompt and the conversation as they are.
	BuildPrompt func(context.Context, PromptInput) (prompt.Fitted, error)
	// Remember puts a summary of what came next under a summary.
	Remember func(summary, next string) string
	// Summarizer writes summaries, SummarizerName is its name; nil is that they are made without a model.
	Summarizer     sdk.Provider
	SummarizerName string
	// Planning is how the agent plans; nil does not.
	Planning *Planning
	// BuildOutput makes contract-conforming data of a text, or says what is wrong with it in words for the model.
	BuildOutput func(context.Context, sdk.OutputInput) (data json.RawMessage, fault string, err error)
	// Judge says what is to be objected to in a text, in the order of the judges, and CheckOutput in an output; nil is nothing. An error is
	// a failure of a check itself, which ends the run.
	Judge       func(judge.Reply) []core.Objection
	CheckOutput func(context.Context, sdk.RequirementInput) ([]core.Objection, error)
	// Degraded is the text of the output when no model has answered; empty is that the run waits for one, or fails.
	Degraded string
	// Identity refuses whoever starts a run or decides without a principal that the broker enforced.
	Identity bool
	// CheckInput validates an init event against the agent's contract and returns its data with defaults applied.
	CheckInput func(wire.Event) (json.RawMessage, *sdk.Error)
	// Tags are by which people find a run that was started without them; nil has none.
	Tags func(input json.RawMessage, run, initiator string) map[string]string
	// CheckAnswer validates a response to a call, published by the principal who, against the called contract. problem is
	// set when it is refused altogether.
	CheckAnswer func(call core.Call, ev wire.Event, who string) (answer Answer, problem *sdk.Error)
}

// PromptInput is what the prompt of a model call is built from.
type PromptInput struct {
	Run          string
	System       string
	Input        json.RawMessage
	Conversation core.Conversation
	// Calibration is how many tokens the provider counts for a thousand that are estimated; 0 is a thousand.
	Calibration int
	// Context is what services answered that were asked for sections.
	Context []sdk.Section
	// Plan is what the agent has written down with sdk.ToolUpdatePlan; nil is nothing.
	Plan         json.RawMessage
	Interactions sdk.Interactions
	// Tools are what the model is offered now, and Added what it is told after the conversation, this time.
	Tools []sdk.ToolDefinition
	Added []sdk.Message
	// MaxTokens is how long the reply may be; 0 is what the model's spec says.
	MaxTokens int
	// Now is in Unix milliseconds.
	Now int64
}

// Answer is what a response to a call comes to: data for the model, which may be an error, and whether another attempt
// may succeed where this one failed.
type Answer struct {
	Data      json.RawMessage
	Error     bool
	Retryable bool
	// Decision is what a permission request was answered with.
	Decision *sdk.PermissionDecision
	// Key is the fingerprint of the key that signed the decision, where the request wants a signature.
	Key string
	// Refused says why the decision cannot count, whatever the request's terms.
	Refused string
}

// Catalog knows the agents of this worker. Agents are named by their subject token. Safe for concurrent use.
type Catalog interface {
	// Current is the agent that new runs start with.
	Current(agent string) (*Agent, bool)
	// Version is the agent as it was when a run with that spec digest started; its Go hooks are this worker's. The error
	// says what is missing here when the run has to be left to another worker.
	Version(ctx context.Context, agent, digest string) (*Agent, error)
}
