package sdk

// The sections of a prompt that a service can be asked for.
const (
	SectionPlanning  = "planning"
	SectionRetrieval = "retrieval"
)

// ContextAsk says when a service is asked for its section of the prompt.
type ContextAsk string

// When it is asked.
const (
	// AskEveryCall asks before each model call.
	AskEveryCall ContextAsk = "every_call"
	// AskOnce asks before the first model call of a run; later ones are shown the same.
	AskOnce ContextAsk = "once"
)

// ContextFailure says what becomes of a run whose context cannot be had.
type ContextFailure string

// What becomes of it.
const (
	// ContextContinue goes on: the model is told that the section is missing, and why.
	ContextContinue ContextFailure = "continue"
	// ContextFail ends the run with an error.
	ContextFail ContextFailure = "fail"
)

// ContextUse makes a service one that is asked for a section of the prompt, in place of a tool. The question is made by
// agentd, not by the model, and neither hooks nor permissions see it.
type ContextUse struct {
	// Section is SectionPlanning or SectionRetrieval; an agent has one service for each. AnswerSection makes it one that is asked about
	// outputs instead, each time.
	Section string `json:"section"`
	// Ask is AskEveryCall when empty.
	Ask ContextAsk `json:"ask,omitempty"`
	// OnFailure is ContextContinue when empty.
	OnFailure ContextFailure `json:"on_failure,omitempty"`
}

// ToolUpdatePlan is the built-in tool that keeps an agent's plan: its result is the plan, which every further prompt shows.
const ToolUpdatePlan = "update_plan"

// ToolAskParent is the built-in tool by which an agent asks the agent that has called it, and waits for the answer. Models are shown it in runs
// whose caller has ToolAnswerChild, by which its model answers, and which models are shown while such a question is open.
const (
	ToolAskParent   = "ask_parent"
	ToolAnswerChild = "answer_child"
)

// ToolReadMore is the built-in tool that shows more of a result than the model was shown. Every agent with tools has it, so no
// tool of its own may have the name; models are offered it once a result was cut.
const ToolReadMore = "read_more"
