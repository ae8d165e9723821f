package core

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"agentd/internal/clip"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// ContextProvider is a service that is asked for a section of the prompt before model calls.
type ContextProvider struct {
	// Section names it: an agent has one provider a section.
	Section string
	Service Tool
	// Once asks it before the run's first model call alone, else before each.
	Once bool
	// Required ends the run when it does not answer, or with an error; else the model is told that the section is missing.
	Required bool
	// Gone says why it cannot be asked any more; nil is that it can.
	Gone *sdk.Error
	// Gate says that it is asked whether an output is the run's answer, rather than for a section.
	Gate *AnswerGate
}

// Inquiry is what a context provider is asked for a section: the data of the call's event, unless it could not be asked.
type Inquiry struct {
	ID      string          `json:"id"`
	Section string          `json:"section"`
	Data    json.RawMessage `json:"data"`
}

// Informed says which answer is the text of a section.
type Informed struct {
	Section string `json:"section"`
	Call    string `json:"call"`
	// Turns is how many model calls there had been when it was asked for.
	Turns int `json:"interactions"`
}

// What a question to context providers has of the conversation, and how much of an answer comes into the prompt; sizes in
// bytes.
const (
	maxTask        = 16 << 10
	maxSaid        = 4 << 10
	lastSaid       = 8
	maxContextText = 64 << 10
)

// dueContexts are the providers that have to be asked before the model is called.
func (s *Spec) dueContexts(h *Head) []*ContextProvider {
	var due []*ContextProvider
	for i := range s.Contexts {
		p := &s.Contexts[i]
		if p.Gate != nil {
			continue
		}
		asked := slices.IndexFunc(h.Informed, func(in Informed) bool { return in.Section == p.Section })
		if asked < 0 || !p.Once && h.Informed[asked].Turns < h.Turns {
			due = append(due, p)
		}
	}
	return due
}

func (s *Spec) context(section string) *ContextProvider {
	for i := range s.Contexts {
		if s.Contexts[i].Section == section {
			return &s.Contexts[i]
		}
	}
	return nil
}

// callee is what a call over the broker is sent to: a tool of the model, a context provider, or people. Nil: the agent has it no
// longer.
func (s *Spec) callee(c *Call) *Tool {
	switch c.Kind {
	case CallService, CallInline:
		return s.tool(c.Tool)
	case CallTurn:
		return &Tool{Type: sdk.TypeConversationTurn, Schema: s.TurnSchema, Domains: []string{sdk.HumanDomain}, Timeout: s.TurnTimeout}
	case CallQuestion:
		return &Tool{Type: sdk.TypeQuestion, Schema: s.QuestionSchema, Domains: []string{sdk.HumanDomain}, Timeout: s.TurnTimeout}
	case CallPermission:
		return &Tool{
			Type: c.Type, Schema: s.schemaOf(c), Domains: c.Domains,
			Timeout: cmp.Or(c.Permission.Timeout, s.TurnTimeout, s.RunDeadline),
		}
	case CallContext:
		if p := s.context(c.Section()); p != nil && p.Gone == nil {
			return &p.Service
		}
	}
	return nil
}

// said is a piece of the conversation in a question: a text, or with Tool a call's arguments or result.
type said struct {
	Role string `json:"role"`
	Tool string `json:"tool,omitempty"`
	Text string `json:"text"`
}

// ContextQuestion is what context providers are asked of the run (docs/wire.md): its task, and what was said last. It is
// canonical JSON.
func ContextQuestion(s *State) (json.RawMessage, error) {
	question := struct {
		Task         string `json:"task"`
		Messages     []said `json:"messages"`
		Interactions int    `json:"interactions"`
	}{Task: clip.Text(string(s.Input), maxTask), Messages: []said{}, Interactions: s.Turns}
	if len(s.History) > 0 {
		if text := s.History[0].PlainText(); text != "" {
			question.Task = clip.Text(text, maxTask)
		}
	}
	for i := len(s.History) - 1; i >= 0 && len(question.Messages) < lastSaid; i-- {
		content := s.History[i].Content
		for j := len(content) - 1; j >= 0 && len(question.Messages) < lastSaid; j-- {
			if piece, ok := saidIn(s.History[i].Role, &content[j]); ok {
				question.Messages = append(question.Messages, piece)
			}
		}
	}
	slices.Reverse(question.Messages)
	data, err := EncodeJSON(question)
	if err == nil {
		data, err = wire.Canonicalize(data)
	}
	if err != nil {
		return nil, fmt.Errorf("question for context of run %s: %w", s.Run, err)
	}
	return data, nil
}

func saidIn(role sdk.Role, c *sdk.Content) (said, bool) {
	switch c.Kind {
	case sdk.ContentText:
		return said{Role: string(role), Text: clip.Text(c.Text, maxSaid)}, c.Text != ""
	case sdk.ContentToolUse:
		return said{Role: string(role), Tool: c.Tool, Text: clip.Text(string(c.Args), maxSaid)}, true
	case sdk.ContentToolResult:
		return said{Role: "tool", Tool: c.Tool, Text: clip.Text(c.Text, maxSaid)}, true
	case sdk.ContentMedia, sdk.ContentThinking, sdk.ContentRedacted:
	}
	return said{}, false
}

// inquired asks the context providers that are due, all at once: a round of its own, which the model does not see.
func (t *transition) inquired(ev Inquired) error {
	h := &t.Head
	due := t.spec.dueContexts(h)
	if h.RoundOpen() || h.stopping() || len(due) == 0 {
		return violation(h, "a question for context that nothing asked for")
	}
	return t.inquire(due, ev.Question)
}

// inquire opens a round of questions to services.
func (t *transition) inquire(due []*ContextProvider, question json.RawMessage) error {
	h := &t.Head
	h.Round++
	h.Opened = t.in.Rev
	part := t.contextPart(due)
	h.Calls = append(make([]Call, len(due)), h.Calls...)
	for i, p := range due {
		data, refusal := p.question(question)
		c := &h.Calls[i]
		*c = Call{
			ID:   wire.CallID(h.Key(), h.Init.Token, h.Round, i, p.Section, data),
			Kind: CallContext, Tool: p.Section, Status: CallNew,
		}
		t.Inquiries = append(t.Inquiries, Inquiry{ID: c.ID, Section: p.Section, Data: data})
		if refusal == nil && p.Service.Agent {
			c.Reserved, refusal = h.share(&p.Service, part)
		}
		if refusal != nil {
			t.close(c, failure(c.ID, ResultRefused, refusal))
			continue
		}
		t.send(c, &p.Service)
	}
	return t.settle()
}

// question is what the provider is asked, or why it cannot be.
func (p *ContextProvider) question(question json.RawMessage) (json.RawMessage, *sdk.Error) {
	if p.Gone != nil {
		return question, p.Gone
	}
	if len(question) > MaxArguments {
		return json.RawMessage(`{}`), sdk.Errorf(sdk.CodeTooLarge, "the question has %d bytes, more than %d", len(question), MaxArguments)
	}
	data, faults := p.Service.Validate(string(question))
	if len(faults) > 0 {
		return question, &sdk.Error{Code: sdk.CodeContractViolation, Message: "the question does not fit the contract", Faults: faults}
	}
	return data, nil
}

// contextPart is the part of the tokens that are left for each agent which is asked for context: of equal ones, one stays for the
// model call that follows.
func (t *transition) contextPart(due []*ContextProvider) int64 {
	parts := int64(1)
	for _, p := range due {
		if p.Service.Agent {
			parts++
		}
	}
	return max(t.Head.TokensLeft(), 0) / parts
}

// lacks is how the run ends because a required context provider failed it in the round that is complete, or nil. When a part
// of the round was given up, all that is lacking is asked for again.
func (t *transition) lacks() *Ending {
	var lacks *Ending
	for i := range t.Head.Calls {
		c := &t.Head.Calls[i]
		if c.Kind == CallContext && c.Status == CallCancelled {
			return nil
		}
		if t.spec.failedRequired(c) && lacks == nil {
			lacks = &Ending{
				Reason: ReasonError, Code: sdk.CodeUnavailable, Detail: c.Section(),
				Message: fmt.Sprintf("the service that is asked for %s gave no answer", c.Section()),
			}
		}
	}
	if lacks == nil {
		return t.unaccepted()
	}
	return lacks
}

func (s *Spec) failedRequired(c *Call) bool {
	if c.Kind != CallContext || c.Status != CallFailed {
		return false
	}
	p := s.context(c.Section())
	return p != nil && p.Required
}

// inform notes whose answers the sections of the next prompt are.
func (t *transition) inform(calls []Call) {
	h := &t.Head
	for i := range calls {
		c := &calls[i]
		if c.Status == CallCancelled || t.spec.failedRequired(c) {
			continue
		}
		h.Informed = slices.DeleteFunc(h.Informed, func(in Informed) bool { return in.Section == c.Section() })
		h.Informed = append(h.Informed, Informed{Section: c.Section(), Call: c.ID, Turns: h.Turns})
	}
}

// absorb takes the texts of sections from the results of the round that e closes.
func (s *State) absorb(e *Entry) {
	for _, in := range e.Head.Informed {
		r := s.result(in.Call)
		if r == nil {
			continue // of a round before
		}
		section := sdk.Section{Name: in.Section, Text: clip.Text(contextText(r), maxContextText)}
		s.Context = slices.DeleteFunc(slices.Clone(s.Context), func(o sdk.Section) bool { return o.Name == in.Section })
		s.Context = append(s.Context, section)
	}
}

// contextText is the text of an answer, or all of it as JSON when it has none.
func contextText(r *Result) string {
	if r.Error {
		return fmt.Sprintf("This is missing, because whoever was asked for it did not give it (%s).", r.Code())
	}
	var answer struct {
		Text *string `json:"text"`
	}
	if json.Unmarshal(r.Data, &answer) == nil && answer.Text != nil {
		return *answer.Text
	}
	return string(r.Data)
}
