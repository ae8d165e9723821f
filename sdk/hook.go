package sdk

import (
	"context"
	"encoding/json"
)

// Phase is a moment in a run that hooks are called at.
type Phase string

// The phases, in the order of a run.
const (
	PhaseRunStart          Phase = "RunStart"
	PhaseStepStart         Phase = "StepStart"
	PhaseBeforeInference   Phase = "BeforeInference"
	PhaseAfterInference    Phase = "AfterInference"
	PhaseStepEnd           Phase = "StepEnd"
	PhaseBeforeToolExecute Phase = "BeforeToolExecute"
	PhaseAfterToolExecute  Phase = "AfterToolExecute"
	PhaseRunEnd            Phase = "RunEnd"
)

// Hook is code of an agent's author that is called at the phases of its runs. What it may do in a phase is what the phase's
// function can return. Any function may be nil.
//
// A hook may be called again for the same moment: what it returned counts when the entry it belongs to is durable, and after a
// crash before that the phase is run again, perhaps by another worker. So it must not have effects of its own that may not be
// repeated, and keeps what it has to remember in its State. An error of a hook ends the run, except in BeforeToolExecute,
// where it blocks the call, and in RunEnd, where it is logged.
type Hook struct {
	// Name is unique among the agent's hooks and stays the same for as long as runs have its State.
	Name string
	// Before and After name hooks that this one is called before and after.
	Before, After []string

	// RunStart is called once, when the conversation was built and before it is kept.
	RunStart func(ctx context.Context, s Snapshot) (StateEffects, error)
	// StepStart is called before BeforeInference.
	StepStart func(ctx context.Context, s Snapshot) (StateEffects, error)
	// BeforeInference is called before each model call. What it adds counts in the window of the model: where the conversation has
	// to be shortened for it, that is done first, and StepStart and BeforeInference are called again.
	BeforeInference func(ctx context.Context, s Snapshot) (InferenceEffects, error)
	// AfterInference is called with each reply, and with the failure of a model call, which ends the run whatever it returns.
	AfterInference func(ctx context.Context, r Inferred) (TurnEffects, error)
	// StepEnd is called after AfterInference, before the reply is kept.
	StepEnd func(ctx context.Context, s Snapshot) (StateEffects, error)
	// BeforeToolExecute is called for each call of a reply that could be made, before permission is asked for; and again for a
	// call that was held and is allowed, before it is made.
	BeforeToolExecute func(ctx context.Context, c ToolAttempt) (Gate, error)
	// AfterToolExecute is called for each call of a reply when its round is complete, whatever became of it; and with
	// OutcomeSuspended when a call has to wait.
	AfterToolExecute func(ctx context.Context, o ToolOutcome) (ToolEffects, error)
	// RunEnd is called when the run ends or is suspended, once the entry that says so is durable: Snapshot.Status and Reason
	// tell which. It cannot change the run any more.
	RunEnd func(ctx context.Context, s Snapshot) error
}

// Snapshot is what a hook sees of a run. It must not be modified.
type Snapshot struct {
	Agent, Run string
	Phase      Phase
	// Step counts the rounds of calls so far, Interactions the model calls.
	Step, Interactions int
	Usage              Usage
	Units              Units
	Lifecycle          Lifecycle
	// Status is running, waiting or done; Reason says why a run is done, as in TerminationReason.
	Status, Reason string
	// Constraints are those that whoever started the run gave it, beside the agent's; nil is none.
	Constraints *Constraints
	// Input is the data of the init event; it is absent in RunEnd, like Messages.
	Input json.RawMessage
	// Messages are the conversation.
	Messages []Message
	// State is what this hook kept last; nil at first.
	State json.RawMessage
}

// StateEffects are what every phase but RunEnd may do.
type StateEffects struct {
	// State replaces what the hook keeps in the run, as JSON of at most MaxHookState bytes; nil leaves it as it is.
	State json.RawMessage
}

// MaxHookState bounds in bytes what a hook may keep in a run: it is written with every entry.
const MaxHookState = 4 << 10

// InferenceEffects are what BeforeInference may do.
type InferenceEffects struct {
	StateEffects
	// Context are messages that the model is shown after the conversation.
	Context []ContextMessage
	// Only, unless nil, are the tools that the model may use in this step; Hide are those that it may not. Both are names, in
	// which * stands for any characters. A call of another tool is refused as unknown.
	Only, Hide []string
	// Temperature and MaxTokens, unless zero, are used instead of those of the agent, in this step.
	Temperature *float64
	MaxTokens   int
	// Terminate ends the run instead of calling the model, with this as the message of the error; empty goes on.
	Terminate string
}

// ContextMessage is a text that a hook shows the model.
type ContextMessage struct {
	Text string
	// Keep makes it part of the conversation; else the model sees it in this step only.
	Keep bool
	// Key makes it a reminder, of at most MaxReminderKey bytes: of messages with one key the model is shown the first in a step. A run
	// remembers the last MaxReminders keys.
	Key string
	// Cooldown is in how many steps after the one in which it was shown the reminder is not shown again, unless its text has changed.
	Cooldown int
	// Once shows the reminder no second time in the run, whatever its text is then.
	Once bool
}

// Bounds of the reminders that a run keeps: they are written with every entry.
const (
	MaxReminders   = 64
	MaxReminderKey = 128
)

// Inferred is what AfterInference sees.
type Inferred struct {
	Snapshot
	Reply ModelReply
	// Err is why the model refused the request, which ends the run; nil if it answered. A model that is away is asked again,
	// and hooks with it, from StepStart on.
	Err error
}

// TurnEffects are what AfterInference may do.
type TurnEffects struct {
	StateEffects
	// Terminate ends the run before any call of the reply is made, with this as the message of the error; empty goes on.
	Terminate string
}

// ToolAttempt is a call that is about to be made.
type ToolAttempt struct {
	Snapshot
	Call, Tool string
	// Args are canonical JSON and valid by the tool's parameters.
	Args json.RawMessage
	// Resumed says that the call was held, and a person allowed it.
	Resumed bool
}

// GateVerdict is what BeforeToolExecute says of a call.
type GateVerdict string

// The verdicts, the strictest first: where several hooks and the agent's permissions judge a call, the strictest counts, and
// among equals the first.
const (
	// GateBlock refuses the call: the model sees the reason as its failure.
	GateBlock GateVerdict = "block"
	// GateSuspend holds the call until a person decides, like a permission policy that asks. A call that was held and allowed is
	// not held again: it is blocked.
	GateSuspend GateVerdict = "suspend"
	// GateResult gives the call its result without making it.
	GateResult GateVerdict = "result"
	// GateAllow lets the call be made.
	GateAllow GateVerdict = ""
)

// Gate is what BeforeToolExecute may do.
type Gate struct {
	StateEffects
	Verdict GateVerdict
	// Reason is of GateBlock and GateSuspend.
	Reason string
	// Terms are of GateSuspend: who is asked. Without stages it is the human domain, for DefaultPermissionTimeout.
	Terms PermissionTerms
	// Result is of GateResult: JSON.
	Result json.RawMessage
}

// Outcome is what became of a call.
type Outcome string

// The outcomes.
const (
	OutcomeSucceeded Outcome = "succeeded"
	OutcomeFailed    Outcome = "failed"
	// OutcomeBlocked: a hook, the agent's permissions or a person kept the call from being made.
	OutcomeBlocked Outcome = "blocked"
	// OutcomeSuspended: the call waits for whoever was asked.
	OutcomeSuspended Outcome = "suspended"
)

// ToolOutcome is what AfterToolExecute sees.
type ToolOutcome struct {
	Snapshot
	Call, Tool string
	Args       json.RawMessage
	Outcome    Outcome
	// Result is what the model is shown; nil while the call is suspended.
	Result json.RawMessage
}

// ToolEffects are what AfterToolExecute may do.
type ToolEffects struct {
	StateEffects
	// Messages become part of the conversation after the results of the round.
	Messages []string
}

// HookRule is a hook without code: before each model call for which When holds it does what the other fields say.
type HookRule struct {
	Name string `json:"name"`
	// When is a CEL expression over step, interactions, tokens, units, lifecycle, input, run, agent; empty always holds.
	When string `json:"when,omitempty"`
	// Message is shown to the model; Keep makes it part of the conversation.
	Message string `json:"message,omitempty"`
	Keep    bool   `json:"keep,omitempty"`
	// Cooldown and Once make the message a reminder, whose key is the rule's name; see ContextMessage.
	Cooldown int  `json:"cooldown,omitempty"`
	Once     bool `json:"once,omitempty"`
	// Only and Hide are as in InferenceEffects.
	Only []string `json:"only,omitempty"`
	Hide []string `json:"hide,omitempty"`
	// Terminate is as in InferenceEffects.
	Terminate string `json:"terminate,omitempty"`
}
