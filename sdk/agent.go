package sdk

import (
	"cmp"
	"context"
	"encoding/json"
	"time"
)

// TextMode says what a reply of plain text means.
type TextMode string

// The text modes.
const (
	// TextOutput takes text as the agent's answer.
	TextOutput TextMode = "output"
	// TextConverse takes text as a turn to the person: the run suspends until they answer.
	TextConverse TextMode = "converse"
)

// StateLoss says what becomes of a run that had begun and that the store lost.
type StateLoss string

// What becomes of lost runs.
const (
	// StateLossFail ends the run with an error event of code CodeStateLost.
	StateLossFail StateLoss = "fail"
	// StateLossRestart begins the run anew from its init event: for agents whose tools may be called twice.
	StateLossRestart StateLoss = "restart"
)

// LivePolicy says when live events are told.
type LivePolicy string

// The policies.
const (
	// LiveWatched, the default, tells those of runs that somebody has announced to watch, as clients of agentd do.
	LiveWatched LivePolicy = "watched"
	// LiveAlways tells those of all runs, for listeners that announce nothing.
	LiveAlways LivePolicy = "always"
)

// Defaults of an agent's limits.
const (
	DefaultInteractions    = 20
	DefaultRunDeadline     = 30 * 24 * time.Hour
	DefaultCallTimeout     = 5 * time.Minute
	DefaultQuestionTimeout = 7 * 24 * time.Hour
	DefaultModelTimeout    = 2 * time.Minute
	DefaultToolTimeout     = time.Minute
	// DefaultPermissionTimeout is how long a domain has to decide on a permission request.
	DefaultPermissionTimeout = 24 * time.Hour
	DefaultBackoff           = time.Second
	DefaultMaxBackoff        = time.Minute
)

// AgentSpec is everything about an agent that is data. A run keeps the spec it started with, by digest, so the JSON form
// is durable: fields are added, never changed. Zero limits mean the defaults above.
type AgentSpec struct {
	// Name addresses the agent in subjects and is unique on a server.
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Contract and Version are what the agent itself accepts and emits.
	Contract Contract  `json:"contract"`
	Version  string    `json:"version"`
	Model    ModelSpec `json:"model"`
	// System is the system prompt: text/template over .Input, .Tools and .Run.
	System string `json:"system,omitempty"`
	// Prompt is the first user message: text/template like System. Empty is the default message: .message of the input
	// when the contract's input has one as a string, else the JSON of the input.
	Prompt string   `json:"prompt,omitempty"`
	Text   TextMode `json:"text,omitempty"`
	// Mode is how the agent goes about its work; empty is ModeLoop. Plan is for ModePlan alone.
	Mode Mode      `json:"mode,omitempty"`
	Plan *PlanSpec `json:"plan,omitempty"`
	// Guidance is what follows the system prompt, built anew before each model call.
	Guidance *Guidance `json:"guidance,omitempty"`
	// Instructions are those of the project that the agent works in, such as of its AGENTS.md: text as it is, not a template. They
	// follow System.
	Instructions string `json:"instructions,omitempty"`
	// Overlays are what the model is told in each turn anew, and what is not kept; nil is nothing.
	Overlays *Overlays `json:"overlays,omitempty"`
	// Memory bounds what of the conversation the model is shown; nil is all of it.
	Memory *Memory `json:"memory,omitempty"`
	// Services are the contract-based tools, in the order shown to the model, and those that are asked for context.
	Services []ServiceTool `json:"services,omitempty"`
	// Builtin names agentd's own tools: task_completion, ask_question, converse, update_plan, ask_parent, answer_child.
	Builtin []string `json:"builtin,omitempty"`
	// Selection offers the model some of the tools, where there are many; nil offers all.
	Selection *Selection `json:"selection,omitempty"`
	// Aliases are further names by which models may call tools: the name, and the tool that it stands for.
	Aliases map[string]string `json:"aliases,omitempty"`
	// Arguments are arguments that the agent sets, by the tool's name and their own, whatever the model writes, which is not shown them.
	// Texts in them are text/template over .Input and .Run. Approvers and policies see them, and no edit changes them.
	Arguments map[string]map[string]json.RawMessage `json:"arguments,omitempty"`
	// Undo says how calls are undone, by the names of their tools. It is done when an operator wants it, after the run has ended.
	Undo map[string]Undo `json:"undo,omitempty"`
	// Corrections say which calls are made that models did not write quite right; nil is none beyond other names of tools.
	Corrections *Corrections `json:"corrections,omitempty"`
	// StopOn names tools (as the model knows them) whose successful result completes the run.
	StopOn []string `json:"stop_on,omitempty"`
	// History puts the whole conversation beside the output.
	History bool `json:"history,omitempty"`
	// Tags are by which people find runs of the agent that were started without them: the keys, and CEL over input, run, agent and initiator
	// for the values. One that yields neither text, number nor boolean, or what a tag cannot be, is left out.
	Tags map[string]string `json:"tags,omitempty"`
	// Live is when live events are told; empty is LiveWatched.
	Live LivePolicy `json:"live,omitempty"`
	// Permissions say which calls a person must allow; nil is none.
	Permissions *PermissionPolicy `json:"permissions,omitempty"`
	Limits      Limits            `json:"limits"`
	// Stop ends runs that get nowhere, beside the limits and StopOn.
	Stop StopConditions `json:"stop,omitzero"`
	// Guards correct a model whose calls lead nowhere; nil has none.
	Guards *Guards `json:"guards,omitempty"`
	// Constraints bound what calls may do where nobody watches; nil does not.
	Constraints *Constraints `json:"constraints,omitempty"`
	// NoToolCall says what becomes of replies without a tool call; nil accepts them.
	NoToolCall *NoToolCall `json:"no_tool_call,omitempty"`
	// Answers says what is taken for an answer; nil is every text.
	Answers *Answers `json:"answers,omitempty"`
	// Steering is what becomes of messages that are sent into a run; empty is SteeringQueue.
	Steering SteeringPolicy `json:"steering,omitempty"`
	// Order is how the calls of one reply are made; empty is CallsParallel.
	Order CallOrder `json:"order,omitempty"`
	// Continue is when the model is called again after a reply with calls; empty is ContinueAll.
	Continue ContinuePolicy `json:"continue,omitempty"`
	// Decisions is when held calls that were allowed are made; empty is DecisionsImmediate.
	Decisions DecisionPolicy `json:"decisions,omitempty"`
	// Rules are hooks without code.
	Rules []HookRule `json:"rules,omitempty"`
	// OnStateLoss is StateLossFail when empty.
	OnStateLoss StateLoss `json:"on_state_loss,omitempty"`
	// Code names what of the agent is written in Go: "context", "planning", "retrieval", "output", "tool:<name>". Workers
	// fill it in, so that a run is left to a worker that has its code.
	Code []string `json:"code,omitempty"`
}

// Undo is the call that undoes another (compensation): that of a tool of the same agent.
type Undo struct {
	Tool string `json:"tool"`
	// Args are its arguments. Texts in them are text/template over .Args and .Result, of the call that is undone, and .Input and .Run.
	Args map[string]json.RawMessage `json:"args,omitempty"`
}

// Corrections say what of a model's calls is put right, for models that need it. The model is told what was, and so are the journal
// and whoever watches.
type Corrections struct {
	// Names takes a name that no tool has for the one that it is most like. A tool that acts must be one slip of the pen away.
	Names bool `json:"names,omitempty"`
	// Arguments reads arguments that are not quite JSON.
	Arguments bool `json:"arguments,omitempty"`
}

// Overlays are sections of the current turn: what holds now, before the newest input. They are not part of the conversation.
type Overlays struct {
	// Date is a time zone by its IANA name, such as "Europe/Berlin": the model is told the time and the days around it there. Empty
	// tells nothing.
	Date string `json:"date,omitempty"`
	// WorkingContext is text/template like Guidance.
	WorkingContext string `json:"working_context,omitempty"`
}

// Memory says how much of a conversation the model is shown.
type Memory struct {
	// Window is about how many tokens a prompt may have, tools and system prompt included; 0 is what the model's window holds.
	Window int `json:"window,omitempty"`
	// Compact has the model write the summary of what is left out. Without, and where that fails, it is made of the first words of
	// each message.
	Compact bool `json:"compact,omitempty"`
	// Summarizer is the model that writes it, such as a cheaper one; nil is the agent's own. It implies Compact.
	Summarizer *ModelSpec `json:"summarizer,omitempty"`
	// Gate is how many tokens a prompt must leave free so that tools may be called; with fewer the model is asked for its final
	// answer. 0 is DefaultGate; no more than a third of the window counts.
	Gate int `json:"gate,omitempty"`
	// Results is how many characters of a result the model is shown at once, by the name of the tool or for AnyTool; 0 and absent
	// are DefaultResult.
	Results map[string]int `json:"results,omitempty"`
}

// What of a result a model is shown, in characters. The rest is read with ToolReadMore.
const (
	DefaultResult = 6000
	MinResult     = 200
	MaxResult     = 50_000
)

// The window of a model that nobody knows, and what a round needs of it, in tokens.
const (
	DefaultWindow = 32_768
	DefaultGate   = 1500
)

// AnyTool stands for all tools that are not named.
const AnyTool = "*"

// ModelSpec names a model.
type ModelSpec struct {
	Provider    string   `json:"provider"`
	Name        string   `json:"name"`
	Temperature *float64 `json:"temperature,omitempty"`
	// TopP chooses among the likeliest tokens that have that probability together; nil is the vendor's default.
	TopP      *float64 `json:"top_p,omitempty"`
	MaxTokens int      `json:"max_tokens,omitempty"`
	// Sampling replaces Temperature and TopP in turns of a kind; nil is in none.
	Sampling *Sampling `json:"sampling,omitempty"`
	// ContextWindow is how many tokens a prompt and its reply may have together. 0 is what the provider publishes of the model, and
	// DefaultWindow for one that agentd does not know.
	ContextWindow int `json:"context_window,omitempty"`
	// MaxBytes bounds a response of the provider, in bytes after decompression; 0 is 64 MiB. One event of a stream, or a response
	// that is not streamed, may have an eighth of it.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// UnitsPerPromptToken and UnitsPerCompletionToken price a call; both zero means one unit a token.
	UnitsPerPromptToken     Units `json:"units_per_prompt_token,omitempty"`
	UnitsPerCompletionToken Units `json:"units_per_completion_token,omitempty"`
	// Thinking lets a model think before it answers, where its provider has that: "adaptive", or at most how many tokens
	// (from 1024, fewer than MaxTokens); empty is not at all.
	Thinking string `json:"thinking,omitempty"`
	// ToolCalls is how the model calls tools; empty is natively.
	ToolCalls ToolCallMode `json:"tool_calls,omitempty"`
	// On are the kinds of failure of the model before for which this one is asked: CodeRateLimited, CodeUnavailable,
	// CodeModel, CodeConfig. Empty is all; it is of fallbacks only.
	On []Code `json:"on,omitempty"`
	// Fallback models are asked in order when the one before cannot answer.
	Fallback []ModelSpec `json:"fallback,omitempty"`
	// Park are the kinds of failure after which, when no fallback answers either, a run waits for its model rather than ends:
	// CodeUnavailable, CodeRateLimited, CodeConfig. Nil is all of them, and none where it is empty. It is not of fallbacks.
	Park []Code `json:"park,omitzero"`
	// Follow is which model a run asks after its agent has got another; empty is FollowStart. It is not of fallbacks.
	Follow Follow `json:"follow,omitempty"`
}

// Sampling is how freely a model chooses its words, by the kind of turn. What is nil is that of the ModelSpec.
type Sampling struct {
	// Tools is for turns in which the model may call tools, Conversation for those in which it has none to call, and Summary for those
	// in which it is asked for its final answer, without tools.
	Tools        *Sample `json:"tools,omitempty"`
	Conversation *Sample `json:"conversation,omitempty"`
	Summary      *Sample `json:"summary,omitempty"`
}

// Sample is how freely a model chooses its words: Temperature from 0 to 2, and TopP above 0, up to 1.
type Sample struct {
	Temperature *float64 `json:"temperature,omitempty"`
	TopP        *float64 `json:"top_p,omitempty"`
}

// Sampled is how the model chooses its words in a turn of that kind.
func (m *ModelSpec) Sampled(kind TurnKind) Sample {
	s := Sample{Temperature: m.Temperature, TopP: m.TopP}
	if m.Sampling == nil {
		return s
	}
	of := map[TurnKind]*Sample{TurnTools: m.Sampling.Tools, TurnConversation: m.Sampling.Conversation, TurnSummary: m.Sampling.Summary}[kind]
	if of == nil {
		return s
	}
	return Sample{Temperature: cmp.Or(of.Temperature, s.Temperature), TopP: cmp.Or(of.TopP, s.TopP)}
}

// Follow says which model a run asks.
type Follow string

// What a run may follow.
const (
	// FollowStart is the model of the spec that the run started with.
	FollowStart Follow = "start"
	// FollowCurrent is the model that the agent has when it is asked, with all its settings.
	FollowCurrent Follow = "current"
)

// ParkCodes are the kinds of failure that ModelSpec.Park chooses from.
var ParkCodes = []Code{CodeUnavailable, CodeRateLimited, CodeConfig}

// ToolCallMode says how a model calls tools.
type ToolCallMode string

// ToolCallModes are all of them, in the order in which they are told of.
var ToolCallModes = []ToolCallMode{ToolCallsNative, ToolCallsText, ToolCallsPythonic, ToolCallsBracket}

// The modes.
const (
	// ToolCallsNative uses the provider's own form of calls.
	ToolCallsNative ToolCallMode = "native"
	// ToolCallsText has the model write calls into its text, for models that know no other way.
	ToolCallsText ToolCallMode = "text"
	// ToolCallsPythonic has it write two lines, "Tool: name" and "Arguments: {…}".
	ToolCallsPythonic ToolCallMode = "pythonic"
	// ToolCallsBracket has it write lists of calls, [name(key="value")].
	ToolCallsBracket ToolCallMode = "bracket"
)

// ServiceTool makes a contract a tool of the agent.
type ServiceTool struct {
	// Contract is the contract itself, or with nothing but a Type or a URI one in the registry, which workers look up when
	// they load the agent.
	Contract Contract `json:"contract"`
	// Version is the exact version that calls are made with. For a contract in the registry it may be a range, such as
	// "^1"; empty is the newest.
	Version string `json:"version"`
	// Range is set by workers: what Version was of a contract that they looked up. Such a contract is looked up again when
	// the registry changes.
	Range string `json:"range,omitempty"`
	// As is the name shown to the model; empty is the contract's type with dots as underscores.
	As          string `json:"as,omitempty"`
	Description string `json:"description,omitempty"`
	// Priority: of one reply's calls only those of the highest priority are made.
	Priority int `json:"priority,omitempty"`
	// TimeoutMillis is the deadline of one attempt at a call; 0 is DefaultCallTimeout.
	TimeoutMillis int64 `json:"timeout_ms,omitempty"`
	// Retry makes further attempts where one was answered with a retryable error or not in time; nil is one attempt.
	Retry *Retry `json:"retry,omitempty"`
	// Domains are the routing lanes of the call, one event each; empty is the contract's own, else local.
	Domains []string `json:"domains,omitempty"`
	// Agent says that an agent answers: each call gets a share of what is left of the run's tokens, and what it did not need
	// comes back with its answer. A call that is not answered has used up its share.
	Agent bool `json:"agent,omitempty"`
	// Tokens bounds the share of one call; 0 leaves it to what the run has. It implies Agent.
	Tokens int64 `json:"tokens,omitempty"`
	// Context makes it a service that is asked for a section of the prompt; nil is a tool.
	Context *ContextUse `json:"context,omitempty"`
}

// Retry says how often a service call is tried. All attempts have one idempotency key, the call id; the first answer to any
// of them is the result.
type Retry struct {
	// Attempts is how many there are in all, 1 to MaxAttempts.
	Attempts int `json:"attempts"`
	// BackoffMillis is the pause after the first attempt; each further one is twice as long, at most MaxBackoffMillis. 0 are
	// DefaultBackoff and DefaultMaxBackoff. Up to a quarter is added, so that calls refused together do not return together.
	BackoffMillis    int64 `json:"backoff_ms,omitempty"`
	MaxBackoffMillis int64 `json:"max_backoff_ms,omitempty"`
}

// MaxAttempts bounds Retry.Attempts: every attempt is an event of its own.
const MaxAttempts = 100

// Limits bound a run.
type Limits struct {
	// Interactions is the most model calls of a run.
	Interactions int `json:"interactions,omitempty"`
	// Tokens is how many tokens, of prompts and replies, the run and the agents that it calls may use in all; 0 is any number.
	// No model call begins when they are used up, so a run goes beyond them by one model call at most.
	Tokens int64 `json:"tokens,omitempty"`
	// Children is how many calls of agents the run may make; 0 is any number. Those that are refused at once do not count.
	Children int `json:"children,omitempty"`
	// DeadlineMillis bounds the run from its start.
	DeadlineMillis int64 `json:"deadline_ms,omitempty"`
	// ModelTimeoutMillis bounds one model call with its retries. Each fallback has as long again.
	ModelTimeoutMillis int64 `json:"model_timeout_ms,omitempty"`
	// QuestionTimeoutMillis is how long a person has to answer a question or a turn.
	QuestionTimeoutMillis int64 `json:"question_timeout_ms,omitempty"`
}

// Delegation says who called an agent as a tool.
type Delegation struct {
	// Agent is the name of the caller, Run the subject of its run, Call its call.
	Agent string `json:"agent"`
	Run   string `json:"run"`
	Call  string `json:"call"`
}

// ContextInput is what a context builder may use.
type ContextInput struct {
	Lifecycle     Lifecycle
	Run           string
	Input         json.RawMessage
	Tools         []ToolDefinition
	AccessControl string
	DelegatedBy   *Delegation
}

// Context is how a conversation begins.
type Context struct {
	System   string
	Messages []Message
	// Require are tool patterns that this run puts under permission, beyond the agent's policy.
	Require []string
}

// TurnInput is what a context provider may use. It must not be modified.
type TurnInput struct {
	Run   string
	Input json.RawMessage
	// Messages are what the model is about to be shown.
	Messages     []Message
	Interactions Interactions
}

// OutputInput is what an output builder may use: the text of a reply.
type OutputInput struct {
	Run   string
	Text  string
	Input json.RawMessage
}

// Hooks are an agent's functions in Go. Any may be nil. They may be called again after a crash, so they must not have
// effects of their own.
type Hooks struct {
	// Context builds system prompt and first messages when a run starts; nil uses the spec's templates. An error fails
	// the run.
	Context func(ctx context.Context, in ContextInput) (Context, error)
	// Planning and Retrieval add sections to the current turn: what is planned, and what was looked up for it.
	// They are asked before each model call; an empty text makes no section, and an error ends the run.
	Planning  func(ctx context.Context, in TurnInput) (string, error)
	Retrieval func(ctx context.Context, in TurnInput) (string, error)
	// Output turns a reply into data of the agent's contract; nil parses JSON, or wraps text as {"response": text}. The
	// message of an error goes back to the model, which corrects itself.
	Output func(ctx context.Context, in OutputInput) (json.RawMessage, error)
	// Requirements are the functions that Answers.Require names. The message of an error is what is wrong with an output.
	Requirements map[string]func(ctx context.Context, in RequirementInput) error
	// Permissions rules on calls beside the spec's policy: the stricter of both counts. Nil is the spec's policy alone.
	Permissions PermissionManager
	// Phases are called at the phases of a run, in the order that their Before and After ask for, else in this one.
	Phases []Hook
}

// Agent is a spec with what only Go can say.
type Agent struct {
	Spec  AgentSpec
	Hooks Hooks
	// Tools run inside the worker.
	Tools []Tool
	// Toolsets are sources of further inline tools, such as MCP servers.
	Toolsets []Toolset
}

// Tool runs inside the worker. It may be run again with the same call id after a crash: the call id is its idempotency
// key.
type Tool struct {
	Definition ToolDefinition
	Priority   int
	// Timeout bounds one run of it; 0 is DefaultToolTimeout.
	Timeout time.Duration
	// AtMostOnce never runs the tool twice for one call: after a crash in between, the model is told that the outcome is
	// unknown.
	AtMostOnce bool
	Labels     ToolLabels
	// Run returns JSON. An error becomes a failed result that the model sees; it never ends the run.
	Run func(ctx context.Context, call ToolCall) (json.RawMessage, error)
}

// ToolCall is one call of an inline tool.
type ToolCall struct {
	ID   string
	Run  string
	Tool string
	// Args are canonical JSON and valid by the tool's parameters.
	Args        json.RawMessage
	TraceParent string
	// Answer is set when the tool asked a question (AskPerson), and this is the same call again, perhaps hours later and on
	// another worker.
	Answer *ToolAnswer
}

// Toolset is a source of inline tools that is connected for an activation and released on every way out: the interface
// that MCP clients implement. An agent is served without the tools of one that does not answer, unless the toolset has a
// method Required() bool that says otherwise. Safe for concurrent use. See ChangingToolset for tools that come and go.
type Toolset interface {
	Name() string
	// Tools lists what the source offers, in a stable order.
	Tools(ctx context.Context) ([]Tool, error)
	Close() error
}

// ChangingToolset is a Toolset whose tools come and go while agents are at work. It is listed again when Changed has a value, at most once
// a second: further values may be dropped. From then on model calls are offered the tools that it has, also those of runs that are under
// way; a call of a tool that is gone fails, and says so to the model.
type ChangingToolset interface {
	Toolset
	Changed() <-chan struct{}
}
