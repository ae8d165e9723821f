package sdk

// StopConditions end a run that gets nowhere, or that has said what it was to say. They are looked at after each round, when
// all its calls have results, in the order of the fields; the limits on interactions, tokens and time come before them, and a
// tool that the run stops on before all. What they count is part of the run, so a suspended run goes on counting. Zero
// fields are conditions that never hold.
type StopConditions struct {
	// Errors is how many rounds in a row fail altogether until the run ends.
	Errors int `json:"errors,omitempty"`
	// SameError is how many calls in a row fail in the same way (tool and error code) until the run ends.
	SameError int `json:"same_error,omitempty"`
	// Repeats is how often the same calls (tools and arguments) are made, within the last Window rounds, until the run ends.
	Repeats int `json:"repeats,omitempty"`
	// Window is how many rounds Repeats looks at; 0 is MaxLoopWindow.
	Window int `json:"window,omitempty"`
	// Text completes the run, with the reply as its answer, when a reply contains one of these texts.
	Text []string `json:"text,omitempty"`
}

// MaxLoopWindow bounds StopConditions.Window: the rounds it looks at are kept in the run's head.
const MaxLoopWindow = 20

// NoToolCall says what becomes of a reply without a tool call.
type NoToolCall struct {
	Policy NoToolCallPolicy `json:"policy"`
	// Reminders is how many replies in a row are answered with a reminder; 0 is DefaultReminders.
	Reminders int `json:"reminders,omitempty"`
	// Text is the reminder; empty is one that names the tools. The model sees it once, and it is not kept.
	Text string `json:"text,omitempty"`
}

// NoToolCallPolicy is one of the policies below; empty is NoToolCallAccept.
type NoToolCallPolicy string

// The policies.
const (
	// NoToolCallAccept takes text as the agent's answer, or as what it says to the person.
	NoToolCallAccept NoToolCallPolicy = "accept"
	// NoToolCallRemind asks for a tool call, and ends the run when there were too many reminders in a row.
	NoToolCallRemind NoToolCallPolicy = "remind"
	// NoToolCallRemindThenAccept asks for a tool call, and takes the text that comes after that many reminders.
	NoToolCallRemindThenAccept NoToolCallPolicy = "remind_then_accept"
)

// DefaultReminders is how often a model is reminded in a row.
const DefaultReminders = 3

// SteeringPolicy says what becomes of a message that is sent into a run.
type SteeringPolicy string

// The policies.
const (
	// SteeringQueue, the default, shows the message to the model at its next call, once the open calls have results.
	SteeringQueue SteeringPolicy = "queue"
	// SteeringInterrupt gives up the model call in progress and every call that waits for somebody else, so that the model
	// sees the message at once. Inline tools that run are left to end.
	SteeringInterrupt SteeringPolicy = "interrupt"
	// SteeringReject refuses it: it becomes a dead letter.
	SteeringReject SteeringPolicy = "reject"
)

// CallOrder says how the calls of one reply are made.
type CallOrder string

// The orders.
const (
	// CallsParallel, the default, makes all at once.
	CallsParallel CallOrder = "parallel"
	// CallsSequential makes each when the one before has its result.
	CallsSequential CallOrder = "sequential"
)

// ContinuePolicy says when a run goes on with the calls of a reply.
type ContinuePolicy string

// The policies.
const (
	// ContinueAll, the default, calls the model again when every call of the reply has its result.
	ContinueAll ContinuePolicy = "all"
	// ContinueAny calls it again when one has: it is shown that the others are pending, and told their results when they come.
	ContinueAny ContinuePolicy = "any"
)

// DecisionPolicy says when a held call is made that people have allowed. A denial is its call's result at once, always.
type DecisionPolicy string

// The policies.
const (
	// DecisionsImmediate, the default, makes it at once, whatever else of its round is undecided.
	DecisionsImmediate DecisionPolicy = "immediate"
	// DecisionsBatch makes all that were allowed together, when every permission request of the round is decided or has
	// expired. Calls that need no permission do not wait.
	DecisionsBatch DecisionPolicy = "batch"
)
