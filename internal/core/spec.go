package core

import (
	"encoding/json"
	"slices"

	"agentd/sdk"
)

// Spec is a compiled agent spec. Its functions are pure.
type Spec struct {
	Name   string
	Digest string
	// Type is the agent's contract type; OutputType the event type of its answer; Schema the dataschema of both.
	Type, OutputType, Schema, ErrorSchema string

	Converse bool
	// StopOn names the tools whose success completes the run.
	StopOn   []string
	MaxTurns int
	// RunDeadline and TurnTimeout are in milliseconds.
	RunDeadline, TurnTimeout int64
	// TurnSchema is the dataschema of conversation turns, QuestionSchema that of questions that tools ask. Both are answered
	// within TurnTimeout.
	TurnSchema, QuestionSchema string
	// StaleAfter is how long, in milliseconds, a driver may commit nothing before a timer or a control message takes over: the
	// longest turn, or summary of the conversation, and two AckWaits.
	StaleAfter int64
	// NeedsRulings says that every call needs a ruling of the permission policy: one without is denied. So does a run that requires
	// permissions of its own.
	NeedsRulings bool
	// PermissionSchema is the dataschema of permission requests, PermissionResultSchema of those that offer to give the
	// call's result, or that ask for several calls.
	PermissionSchema, PermissionResultSchema string
	// ReviewSchema is the dataschema of requests to review plans.
	ReviewSchema string
	// Matches reports whether arguments match the pattern of a grant, and whether that is known: the pattern may say nothing of them.
	Matches func(pattern string, args json.RawMessage) (matches, known bool)
	// Tools are looked up by the name the model uses.
	Tools []Tool
	// Undo says how calls are undone, by the names of their tools, also of those whose toolset is away.
	Undo map[string]UndoTool
	// Missing says why a tool that is none of Tools cannot be called now, because its toolset is away; nil where it is just not
	// there.
	Missing func(tool string) *sdk.Error
	// Meaning finds the tool that is meant by a name which no tool has; nil is none for any name.
	Meaning func(name string) Meaning
	// Repair makes JSON of arguments that are almost so, and says what it did, in words. whole says that the reply was not cut off. Nil
	// leaves arguments as they are.
	Repair func(arguments string, whole bool) (repaired string, done []string, ok bool)

	// MaxTokens bounds the run and the agents that it calls; 0 does not. So does MaxChildren how many agents it calls.
	MaxTokens   int64
	MaxChildren int
	Stop        sdk.StopConditions
	// Guards correct a model whose calls lead nowhere.
	Guards     sdk.Guards
	NoToolCall NoToolCall
	// Judged says that texts are judged, and Summary that the last model call which the limit allows is for a summary.
	Judged, Summary bool
	Steering        sdk.SteeringPolicy
	// Sequential makes each call of a round when the one before has its result.
	Sequential bool
	// Batch makes the held calls of a round that were allowed together, when all its permission requests are closed.
	Batch bool
	// Continues has the run go on with a round when any of its calls has its result: the others are carried.
	Continues bool
	// Answers says that agents which a run has called may ask it something.
	Answers bool
	// Contexts are asked for sections of the prompt before model calls.
	Contexts []ContextProvider
	// Selects says that the model is offered some of the tools, chosen for what people have said.
	Selects bool
	// Planning says that the agent plans; nil is that its model is asked in a loop.
	Planning *Planning
	// Hooked says that the agent has hooks; Reviews that some see the results of rounds, and Ends that some see the run's end.
	Hooked, Reviews, Ends bool
}

// layoutCounts is the first layout that counts what stop conditions look at, and that has hooks, contexts, budgets and messages.
const layoutCounts = 2

// layoutParks is the first layout of runs that are parked, paused and retried.
const layoutParks = 3

// layoutCancels is the first layout of runs whose replies are judged, whose agents set arguments of tools, and whose drivers know that a
// call may have its result before its tool returns; of those whose end is told under the subject that their init event asks for; and of
// those where one event asks for several calls.
const layoutCancels = 4

// layoutUndoes is the first layout of runs whose calls are undone, of those that are offered some of their tools, and of those with tags.
const layoutUndoes = 5

// layoutPlans is the first layout of runs that plan, of those that go on while calls of a round are open, of those that may call so many
// agents and no more, of those whose urgent messages come first, of those that agents ask which they call, of those with constraints of
// their own, and of those whose outputs services judge.
const layoutPlans = 6

// layoutBranches is the first layout of runs whose plans have conditions, steps for each element of a list, or are reviewed.
const layoutBranches = 7

// layoutJoint is the first layout of runs with an entry that has what a message did and what the driver did next.
const layoutJoint = 9

// layoutBeside is the first layout of runs with an entry whose inquiries or notes are stored as blobs.
const layoutBeside = 10

// layout is the V that entries of a run with that head need: what an older version does not know it would get wrong.
func (s *Spec) layout(h *Head) int {
	if h.Plan.branches() || s.reviewTool() != nil {
		return max(h.V, layoutBranches)
	}
	if s.Continues || s.Answers || h.Init.Caller != "" || h.Constraints != nil || len(s.gates()) > 0 {
		return max(h.V, layoutPlans)
	}
	if s.Planning != nil || h.Plan != nil || s.MaxChildren > 0 || h.Ahead > 0 {
		return max(h.V, layoutPlans)
	}
	if len(h.Undo) > 0 || h.Tags != "" || len(h.Tagged) > 0 || s.Selects {
		return max(h.V, layoutUndoes)
	}
	if h.Nudge != "" || !h.Answers.zero() || !h.Guarded.empty() || h.Init.Reply == nil && h.Init.ReplySubject != "" || s.setsArguments() ||
		h.open((*Call).batched) {
		return max(h.V, layoutCancels)
	}
	if h.Parked != nil || h.Paused != nil || h.Heeded != nil || h.Retry != nil {
		return max(h.V, layoutParks)
	}
	agents := slices.ContainsFunc(s.Tools, func(t Tool) bool { return t.Tokens > 0 })
	counts := s.Stop.Errors > 0 || s.Stop.SameError > 0 || s.Stop.Repeats > 0 || len(s.Stop.Text) > 0
	if h.V > 1 || agents || counts || s.NoToolCall.Remind || s.Sequential || s.Batch || s.Hooked ||
		len(s.Contexts) > 0 || h.Budget > 0 || len(h.Heard) > 0 {
		return max(h.V, layoutCounts)
	}
	return 1
}

// schemaOf is the dataschema of a permission request.
func (s *Spec) schemaOf(c *Call) string {
	g := c.Permission
	if c.Type == sdk.TypePlanReview {
		return s.ReviewSchema
	}
	if g.Results || g.Batch != "" {
		return s.PermissionResultSchema
	}
	return s.PermissionSchema
}

// Tool is a tool as the core sees it.
type Tool struct {
	Name string
	// Kind is CallService or CallInline.
	Kind       CallKind
	Priority   int
	AtMostOnce bool
	// Timeout of one attempt at a service call in milliseconds.
	Timeout int64
	Retry   Retry
	// Type, Schema and Domains address a service call; no domain is the local lane.
	Type, Schema  string
	Domains       []string
	ParentSubject bool
	// Agent says that an agent answers, which gets a share of the run's tokens: at most Tokens, unless 0.
	Agent  bool
	Tokens int64
	// AsksCaller says that the agent which has called this one answers, whatever its type.
	AsksCaller bool
	// ReadOnly says that a call changes nothing, and Changing that another one with the same arguments may have another result all the
	// same. Both count for guards alone.
	ReadOnly, Changing bool
	// Recalls says that a call shows the model nothing but what the run has already: nobody rules on it.
	Recalls bool
	// Reviews reads the plan that a call of it is, which people review, with what its expressions refer to; nil is any other tool. No model
	// calls it, and its result is the plan that was approved.
	Reviews func(plan json.RawMessage) (json.RawMessage, error)
	// Validate returns the canonical arguments with defaults filled in, or every fault.
	Validate func(arguments string) (json.RawMessage, []sdk.Fault)
	// Sets are arguments that the agent sets; nil is none.
	Sets *SetArguments
}

// UndoTool makes the call that undoes another.
type UndoTool struct {
	// Tool is called with the arguments that Args makes of the run's subject and input, and of what the call was made with and returned.
	Tool string
	Args func(run string, input, args, result json.RawMessage) (json.RawMessage, error)
}

// SetArguments are arguments of a tool that the agent sets in place of the model, which is not shown them.
type SetArguments struct {
	// Names are in order.
	Names []string
	// Values are made of the run's subject and input.
	Values func(run string, input json.RawMessage) (map[string]json.RawMessage, error)
}

// Retry is how often a service call is tried, and how long after an attempt the next one follows: Pause after the first,
// twice as long after each further one, at most Longest; both in milliseconds. No Attempts is one.
type Retry struct {
	Attempts       int
	Pause, Longest int64
}

// setsArguments reports whether the agent sets arguments of any tool.
func (s *Spec) setsArguments() bool {
	return slices.ContainsFunc(s.Tools, func(t Tool) bool { return t.Sets != nil })
}

func (s *Spec) tool(name string) *Tool {
	for i := range s.Tools {
		if s.Tools[i].Name == name {
			return &s.Tools[i]
		}
	}
	return nil
}

// SentAt is when the attempt at a service call that was sent last was sent, in Unix milliseconds: 0 where no answer is
// awaited, or where attempts have no deadline.
func (s *Spec) SentAt(c *Call) int64 {
	tool := s.tool(c.Tool)
	if c.Kind != CallService || tool == nil || tool.Timeout == 0 || c.Due == 0 {
		return 0
	}
	return c.Due - tool.Timeout
}

// reviewTool is the tool of plans that people review; nil is that nobody does.
func (s *Spec) reviewTool() *Tool {
	i := slices.IndexFunc(s.Tools, func(t Tool) bool { return t.Reviews != nil })
	if i < 0 {
		return nil
	}
	return &s.Tools[i]
}

func (s *Spec) stopsOn(tool string) bool {
	for _, name := range s.StopOn {
		if name == tool {
			return true
		}
	}
	return false
}
