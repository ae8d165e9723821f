package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentd/internal/core"
	"agentd/internal/prompt"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// bound draws what ends an agent's runs early, and how they take messages.
func (s *simulation) bound(spec *core.Spec) {
	spec.Steering = [...]sdk.SteeringPolicy{
		"", sdk.SteeringQueue, sdk.SteeringInterrupt, sdk.SteeringInterrupt, sdk.SteeringReject,
	}[s.pick(5)]
	spec.Sequential, spec.Batch = s.pick(6) == 0, s.pick(3) == 0
	spec.Continues = !spec.Sequential && !spec.Batch && s.pick(2) == 0
	s.informs(spec)
	if s.pick(4) == 0 {
		spec.Stop = sdk.StopConditions{Errors: s.pick(3), SameError: s.pick(3), Repeats: s.pick(3), Window: s.pick(4)}
	}
	if s.pick(6) == 0 {
		spec.Stop.Text = []string{"done"}
	}
	if s.pick(5) == 0 {
		spec.MaxTokens = int64(1 + s.pick(10)) // a reply is 2
	}
	if s.pick(6) == 0 {
		spec.MaxChildren = 1 + s.pick(3)
	}
	if !spec.Converse && s.pick(8) == 0 {
		spec.NoToolCall = core.NoToolCall{Remind: true, Accept: s.pick(2) == 0, Limit: 1 + s.pick(2), Text: "call a tool"}
	}
}

// speak plans messages into a run, now and then such as no agent takes.
func (s *simulation) speak(name string, i int, start int64) {
	for n := range 1 + s.pick(3) {
		ev := wire.Event{
			ID: fmt.Sprintf("message-%d-%d", i, n), Source: "client", Type: "message",
			Data: json.RawMessage(fmt.Sprintf(`{"message":"by the way, %d","urgent":%t}`, n, s.pick(3) == 0)),
		}
		if s.strikes(personWrong) {
			ev.Data = json.RawMessage(`{"message":""}`)
		}
		at := s.soon(start)
		for range s.times(duplicate) {
			s.later(at, func() { s.broker.send(subjects.Control(wire.ControlMessage, deskAgent, wire.NewRunKey(name)), ev) })
		}
	}
}

// kept is what a tool that asks wants to be handed with the answer.
const kept = `{"kept":1}`

// ask is a tool's question as its error, or nil when it has none.
func (s *simulation) ask(call sdk.ToolCall) error {
	if a := call.Answer; a != nil && (string(a.State) != kept || len(a.Data) == 0) {
		s.violate("I2", "call %s asked, and is handed the answer %s with the state %s", call.ID, a.Data, a.State)
	}
	if !s.strikes(asks) {
		return nil
	}
	state := json.RawMessage(kept)
	if s.strikes(toolFails) {
		state = json.RawMessage(`{"kept":`)
	}
	return sdk.AskPerson(sdk.Question{Question: "which one?"}, state)
}

// isSummary reports whether a model call shortens a conversation.
func isSummary(req sdk.ModelRequest) bool {
	return strings.HasPrefix(req.System, "You keep the memory")
}

// prompts shortens a conversation now and then. It sees that every prompt has the context that the agent is to have.
func (s *simulation) prompts(spec *core.Spec) func(context.Context, runner.PromptInput) (prompt.Fitted, error) {
	return func(_ context.Context, in runner.PromptInput) (prompt.Fitted, error) {
		if len(in.Context) != len(spec.Contexts) {
			s.violate("I8", "run %s: a prompt has %d sections of context, want %d", in.Run, len(in.Context), len(spec.Contexts))
		}
		c := in.Conversation
		p := prompt.Fitted{System: in.System, Messages: slices.Concat(c.Messages, in.Added), Tools: in.Tools}
		if rest := c.Messages[c.Kept:]; len(rest) > 1 && s.strikes(shortened) {
			n := 1 + s.pick(len(rest)-1)
			p.Compaction = &prompt.Compaction{Messages: n, Lined: n + s.pick(len(rest)-n), Large: true, Turns: [][]sdk.Message{rest[:n]}}
		}
		return p, nil
	}
}

// informs has services asked for context, now and then.
func (s *simulation) informs(spec *core.Spec) {
	if s.pick(6) > 0 {
		return
	}
	for _, section := range [][]string{{sdk.SectionPlanning}, {sdk.SectionRetrieval}, {sdk.SectionPlanning, sdk.SectionRetrieval}}[s.pick(3)] {
		service := s.service(section, "")
		service.Retry.Attempts = min(service.Retry.Attempts, 2)
		spec.Contexts = append(spec.Contexts, core.ContextProvider{
			Section: section, Service: service, Once: s.pick(2) == 0, Required: s.pick(4) == 0,
		})
	}
}
