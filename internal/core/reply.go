package core

import (
	"encoding/json"

	"agentd/sdk"
)

func (t *transition) replied(ev Replied) error {
	h := &t.Head
	if len(h.Calls) > 0 || h.Stop != "" {
		return violation(h, "a reply while a round is open")
	}
	t.count(ev.Reply)
	t.Checkpoints = append(t.Checkpoints, CheckpointAssistantTurn)
	switch {
	case len(ev.Reply.Calls) > 0:
		return t.openRound(ev.Reply)
	case t.spec.Converse:
		return t.converse(ev.Reply.Text)
	case ev.Output == nil:
		return violation(h, "a reply of text without its output")
	case ev.Output.Fault != "":
		t.correct(ev.Reply.Text, ev.Output.Fault)
		return nil
	}
	t.Messages = append(t.Messages, sdk.Text(sdk.RoleAssistant, string(ev.Output.Data)))
	t.complete(ReasonCompleted, ev.Output.Data)
	return nil
}

// count adds what a model call cost.
func (t *transition) count(reply sdk.ModelReply) {
	h := &t.Head
	h.Interactions++
	h.Units += reply.Units
	h.Usage.Prompt += reply.Usage.Prompt
	h.Usage.Completion += reply.Usage.Completion
}

// correct tells the model what is wrong with its answer (self-correction, seed 000).
func (t *transition) correct(said, fault string) {
	t.Messages = append(t.Messages, sdk.Text(sdk.RoleAssistant, said), sdk.Text(sdk.RoleUser, fault))
	t.Head.Lifecycle = sdk.LifecycleOutputErrorFeedback
}

// openRound makes the calls of the highest priority among those asked for (seed 000); the rest are dropped.
func (t *transition) openRound(reply sdk.ModelReply) error {
	t.Head.Step++
	t.Head.Opened = t.in.Rev
	var content []sdk.Content
	if reply.Text != "" {
		content = append(content, sdk.Content{Kind: sdk.ContentText, Text: reply.Text})
	}
	highest := t.priority(reply.Calls[0].Name)
	for _, c := range reply.Calls[1:] {
		highest = max(highest, t.priority(c.Name))
	}
	for _, request := range reply.Calls {
		if t.priority(request.Name) < highest {
			t.Dropped = append(t.Dropped, request.Name)
			continue
		}
		content = append(content, t.openCall(len(t.Head.Calls), request))
	}
	t.Messages = append(t.Messages, sdk.Message{Role: sdk.RoleAssistant, Content: content, Seen: 1})
	return t.settle()
}

func (t *transition) priority(tool string) int {
	if spec := t.spec.tool(tool); spec != nil {
		return spec.Priority
	}
	return 0
}

// openCall adds a call to the round. One that cannot be made is closed at once with an error for the model.
func (t *transition) openCall(index int, request sdk.ToolRequest) sdk.Content {
	tool := t.spec.tool(request.Name)
	var args json.RawMessage
	var refusal *sdk.Error
	if tool == nil {
		refusal = sdk.Errorf(sdk.CodeUnknownTool, "there is no tool %q", request.Name)
	} else if canonical, faults := tool.Validate(request.Arguments); len(faults) > 0 {
		refusal = &sdk.Error{Code: sdk.CodeContractViolation, Message: "the arguments do not fit the tool", Faults: faults}
	} else {
		args = canonical
	}
	if refusal != nil {
		args = asWritten(request.Arguments)
	}
	h := &t.Head
	id := sdk.CallID(h.Key(), h.Init.Token, h.Step, index, request.Name, args)
	h.Calls = append(h.Calls, Call{ID: id, Kind: CallInline, Tool: request.Name, Status: CallNew})
	c := &h.Calls[len(h.Calls)-1]
	switch {
	case refusal != nil:
		t.close(c, failure(id, ResultRefused, refusal))
	case tool.Kind == CallService:
		t.send(c, tool)
	}
	return sdk.Content{Kind: sdk.ContentToolUse, CallID: id, Tool: request.Name, Args: args}
}

// send makes c a call over the broker.
func (t *transition) send(c *Call, tool *Tool) {
	c.Kind, c.Status, c.Type, c.Domains = CallService, CallSuspended, tool.Type, tool.Domains
	if tool.Timeout > 0 {
		c.Due = t.in.At + tool.Timeout
	}
	t.Effects = append(t.Effects, Effect{
		Kind: EffectCall, Call: c.ID, Type: tool.Type, Domains: tool.Domains, Schema: tool.Schema,
		ParentSubject: tool.ParentSubject,
	})
}

// asWritten keeps arguments that are no canonical JSON as a JSON string.
func asWritten(arguments string) json.RawMessage {
	quoted, err := json.Marshal(arguments) // replaces invalid UTF-8
	if err != nil {
		return json.RawMessage(`""`)
	}
	if canonical, err := sdk.Canonicalize(quoted); err == nil {
		return canonical
	}
	return quoted
}

// turnMessage and TurnAnswer are the data of a conversation turn and of its answer (docs/wire.md).
type turnMessage struct {
	Message string `json:"message"`
}

// TurnAnswer is what a person answers to a turn. End completes the run.
type TurnAnswer struct {
	Message string `json:"message"`
	End     bool   `json:"end"`
}

// TurnData is the data of the event that carries a turn to a person.
func TurnData(text string) (json.RawMessage, error) { return json.Marshal(turnMessage{Message: text}) }

// converse sends text to the person and waits for their answer.
func (t *transition) converse(text string) error {
	h := &t.Head
	if text == "" {
		t.correct(text, "Your reply was empty. Say something to the person, or call a tool.")
		return nil
	}
	h.Step++
	h.Opened = t.in.Rev
	data, err := TurnData(text)
	if err != nil {
		return violation(h, "encode turn: %v", err)
	}
	canonical, err := sdk.Canonicalize(data)
	if err != nil {
		return violation(h, "canonical turn: %v", err)
	}
	tool := Tool{
		Type: sdk.TypeConversationTurn, Schema: t.spec.TurnSchema, Domains: []string{sdk.HumanDomain},
		Timeout: t.spec.TurnTimeout,
	}
	id := sdk.CallID(h.Key(), h.Init.Token, h.Step, 0, sdk.TypeConversationTurn, canonical)
	h.Calls = []Call{{ID: id}}
	t.send(&h.Calls[0], &tool)
	h.Calls[0].Kind = CallTurn
	t.Messages = append(t.Messages, sdk.Text(sdk.RoleAssistant, text))
	return t.settle()
}

func (t *transition) turnAnswered(c *Call, ev Answered, r Result) error {
	var answer TurnAnswer
	r.Data = nil
	if ev.Error {
		t.close(c, r)
		return t.finish(Ending{Reason: ReasonError, Code: sdk.CodeUnavailable, Message: "the conversation could not go on"})
	}
	if err := json.Unmarshal(ev.Data, &answer); err != nil {
		return ErrOrphan // the shell checks the contract before: only a bug gets here
	}
	t.close(c, r)
	t.Messages = append(t.Messages, sdk.Text(sdk.RoleUser, answer.Message))
	t.Checkpoints = append(t.Checkpoints, CheckpointUserMessage)
	if answer.End {
		t.Head.Stop = c.ID
	}
	return t.settle()
}

func (t *transition) built(ev Built) error {
	if t.Head.Stop == "" {
		return violation(&t.Head, "an output that nothing asked for")
	}
	if ev.Output.Fault != "" {
		t.Head.Stop = ""
		t.Messages = append(t.Messages, sdk.Text(sdk.RoleUser, ev.Output.Fault))
		t.Head.Lifecycle = sdk.LifecycleOutputErrorFeedback
		return nil
	}
	t.complete(ReasonStopped, ev.Output.Data)
	return nil
}
