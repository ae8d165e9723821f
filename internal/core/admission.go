package core

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentd/internal/clip"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Admission says what becomes of every call of a reply, and is decided once: Admit makes it, whoever drives the run has the
// calls ruled on with Rule, and Step opens the round as it says. A call that nobody ruled on is denied.
type Admission struct {
	// Calls are those that are opened, in the order of the reply.
	Calls []AdmittedCall
	// Dropped names the tools of calls that are not opened, because others of the reply have a higher priority, or
	// because they are far beyond MaxRound.
	Dropped []string

	// turn, requests and usage are what it was made for.
	turn     modelCall
	requests []sdk.ToolRequest
	usage    sdk.Usage
	// grants are those of the run that are left after the calls which were ruled on.
	grants grants
	// most is how many agents the run may call, 0 any number, and children how many it has called.
	most, children int
}

// AdmittedCall is a call with its id.
type AdmittedCall struct {
	ID, Tool string
	// Args are canonical and valid, unless there is a Refusal.
	Args json.RawMessage
	// Refusal says why the call cannot be made, whatever anybody rules.
	Refusal *sdk.Error

	// place is that of the call in the reply.
	place int
	// tool is nil where the reply names none, or does not fit it.
	tool *Tool
	// correction is what of the call is not as the model wrote it.
	correction Correction
	// same is Call.Same, and repeats the call whose result is known to be that of this one; empty is none.
	same, repeats string
	// done says that a step of the plan has made the call that it repeats: nobody is asked whether it may be made.
	done   bool
	ruling Ruling
	// request is the data of the permission request, decision the record of a grant that decided the call.
	request  json.RawMessage
	decision *Decision
	// granted says that a grant of the run decided the call.
	granted bool
	// until is when the grant that allowed the call expires, in Unix milliseconds; 0 is never.
	until int64
}

// modelCall names a model call of a run. What an admission depends on does not change between the call's beginning and its reply, but for grants:
// no calls of the run, and so decisions on them, are open then but those that are carried.
type modelCall struct {
	run, token   string
	round, turns int
}

func (h *Head) turn() modelCall { return modelCall{h.Run, h.Init.Token, h.Round, h.Turns} }

// Admit says what becomes of the calls of a reply to the run with that head and input, at now (Unix milliseconds). hidden are the tools that the
// model was not shown.
func Admit(spec *Spec, head *Head, input json.RawMessage, reply sdk.ModelReply, hidden []string, now int64) *Admission {
	admission := &Admission{
		turn: head.turn(), requests: reply.Calls, usage: reply.Usage,
		grants:   spec.grants(head, now),
		children: head.Children,
	}
	if len(head.Undo) == 0 { // what was done may always be undone
		admission.most = spec.MaxChildren
	}
	p := admitter{spec: spec, head: head, input: input, reply: &reply, hidden: hidden}
	wanted, highest := p.wanted()
	for i, w := range wanted {
		if w.priority() < highest || len(admission.Calls) == 2*MaxRound {
			admission.drop(reply.Calls[i].Name)
			continue
		}
		call := p.admit(len(admission.Calls), reply.Calls[i], w)
		call.place = i
		admission.Calls = append(admission.Calls, call)
	}
	admission.refusePending(head)
	admission.guard(spec, head, now)
	admission.done(head)
	admission.afford(head)
	judged := spec.RulesOn(head)
	for i := range admission.Calls {
		if c := &admission.Calls[i]; !judged || c.tool != nil && c.tool.Recalls {
			c.ruling.Verdict = VerdictAllow
		}
	}
	admission.restrict()
	return admission
}

// madeFor reports whether the admission is of that reply to the run with that head.
func (p *Admission) madeFor(h *Head, reply *sdk.ModelReply) bool {
	return p != nil && p.turn == h.turn() && p.usage == reply.Usage && slices.Equal(p.requests, reply.Calls)
}

// NeedsRulings reports whether a call is to be judged before it is made.
func (p *Admission) NeedsRulings() bool {
	return slices.ContainsFunc(p.Calls, func(c AdmittedCall) bool { return c.NeedsRuling() })
}

// NeedsRuling reports whether the call is to be judged before it is made.
func (c *AdmittedCall) NeedsRuling() bool { return c.Refusal == nil && c.ruling.Verdict == "" }

// Waits reports whether the call will be suspended: a service answers it, or it is held for a decision.
func (c *AdmittedCall) Waits() bool {
	switch {
	case c.Refusal != nil:
		return false
	case c.asks():
		return c.ruling.Terms.Mode != sdk.PermissionRetry
	}
	return c.ruling.Verdict == VerdictAllow && c.tool.Kind == CallService && c.repeats == ""
}

// asks reports whether people are asked for the call.
func (c *AdmittedCall) asks() bool { return c.ruling.Verdict == VerdictAsk && !c.done }

// restrict refuses the calls of agents that are more than the run may make, when it is known which of those before them are made.
func (p *Admission) restrict() {
	if p.most == 0 {
		return
	}
	left := p.most - p.children
	for i := range p.Calls {
		c := &p.Calls[i]
		switch undecided := c.NeedsRuling() && c.repeats == ""; {
		case !c.ofAgent() || !undecided && !c.Waits():
		case left <= 0:
			c.Refusal = sdk.Errorf(sdk.CodeQuotaExhausted, "the run has called as many agents as it may (%d); go on without %s", p.most, c.Tool)
		case c.Waits():
			left--
		}
	}
}

// afford refuses the calls of agents when the reply leaves no tokens for them.
func (p *Admission) afford(head *Head) {
	left := head.TokensLeft() - sum(p.usage.Prompt, p.usage.Completion)
	for i := range p.Calls {
		if c := &p.Calls[i]; c.ofAgent() {
			_, c.Refusal = head.share(c.tool, left)
		}
	}
}

// part is an equal part of the tokens that the run has left, for each agent that is called, and one for the run where its own model may be
// called before they have answered.
func (p *Admission) part(spec *Spec, head *Head) int64 {
	parts := int64(0)
	if spec.Continues || spec.Answers {
		parts = 1
	}
	for i := range p.Calls {
		if c := &p.Calls[i]; c.ofAgent() && c.Waits() {
			parts++
		}
	}
	return max(head.TokensLeft(), 0) / max(parts, 1)
}

func (c *AdmittedCall) ofAgent() bool { return c.Refusal == nil && c.tool.Agent }

func (p *Admission) drop(tool string) {
	if len(p.Dropped) < maxDropped {
		p.Dropped = append(p.Dropped, clip.Text(tool, maxToolName))
	}
}

// admitter looks at the calls of one reply.
type admitter struct {
	spec   *Spec
	head   *Head
	input  json.RawMessage
	reply  *sdk.ModelReply
	hidden []string
}

// wanted is the tool of a request, nil where there is none, and what its name means.
type wanted struct {
	tool    *Tool
	meaning Meaning
}

func (w *wanted) priority() int {
	if w.tool == nil {
		return 0
	}
	return w.tool.Priority
}

// wanted are the tools of the reply's calls, and the highest of their priorities.
func (p *admitter) wanted() (all []wanted, highest int) {
	looked := 0
	for i := range p.reply.Calls {
		var w wanted
		w.tool, w.meaning = p.spec.named(&p.reply.Calls[i], &looked)
		if priority := w.priority(); i == 0 || priority > highest {
			highest = priority
		}
		all = append(all, w)
	}
	return all, highest
}

func (p *admitter) admit(index int, request sdk.ToolRequest, w wanted) AdmittedCall {
	c := AdmittedCall{Tool: clip.Text(request.Name, maxToolName)}
	if c.Args, c.correction, c.Refusal = p.arguments(w, index, request); c.Refusal != nil {
		c.Args = asWritten(request.Arguments)
	} else {
		c.tool = w.tool
	}
	if w.tool != nil && w.tool.Name != request.Name {
		c.correction.Name, c.correction.How = c.Tool, w.meaning.How
		c.Tool = w.tool.Name
	}
	if request.Written != "" {
		c.correction.Written = clip.Text(request.Written, maxQuoted)
		c.correction.Repairs = append([]string{request.Repair}, c.correction.Repairs...)
	}
	c.ID = wire.CallID(p.head.Key(), p.head.Init.Token, p.head.Round+1, index, c.Tool, c.Args)
	c.correction.Call = c.ID
	c.correction.tell(c.Tool)
	return c
}

// arguments returns the canonical arguments of a call that can be made, or why it cannot.
func (p *admitter) arguments(w wanted, index int, request sdk.ToolRequest) (json.RawMessage, Correction, *sdk.Error) {
	switch {
	case w.tool == nil:
		return nil, Correction{}, p.unknown(request.Name, w.meaning.Closest)
	case w.tool.Reviews != nil:
		return nil, Correction{}, p.unknown(request.Name, nil)
	case slices.Contains(p.hidden, w.tool.Name):
		return nil, Correction{}, sdk.Errorf(sdk.CodeUnknownTool, "%s cannot be used in this step", w.tool.Name)
	case index >= MaxRound:
		return nil, Correction{}, sdk.Errorf(sdk.CodeTooLarge, "at most %d calls are made at once; make this one when those have returned", MaxRound)
	case len(request.Arguments) > MaxArguments:
		return nil, Correction{}, sdk.Errorf(sdk.CodeTooLarge, "the arguments have %d bytes, more than %d", len(request.Arguments), MaxArguments)
	}
	return p.spec.read(w.tool, p.head, p.input, p.reply, request.Arguments)
}

// Away says why a tool cannot be called before its toolset answers; nil for every other.
func (s *Spec) Away(tool string) *sdk.Error {
	if s.Missing == nil || s.tool(tool) != nil {
		return nil
	}
	return s.Missing(tool)
}

// unknown says that a tool does not exist, and which are most like it of those that can be used.
func (p *admitter) unknown(tool string, closest []string) *sdk.Error {
	if away := p.spec.Away(tool); away != nil {
		return away
	}
	var likely []string
	for _, name := range closest {
		if !slices.Contains(p.hidden, name) {
			likely = append(likely, fmt.Sprintf("%q", name))
		}
	}
	suggestion := ""
	if len(likely) > 0 {
		suggestion = "; did you mean " + strings.Join(likely, " or ") + "?"
	}
	return sdk.Errorf(sdk.CodeUnknownTool, "tool %q does not exist%s%s", clip.Text(tool, maxToolName), suggestion, p.spec.toolNames())
}

// toolNames lists the tools that there are, in their order, for a model that named another.
func (s *Spec) toolNames() string {
	var names string
	for i := range s.Tools {
		if len(names) > maxToolNames {
			return "; there is " + names[2:] + ", …"
		}
		if !s.Tools[i].Recalls {
			names += ", " + s.Tools[i].Name
		}
	}
	if names == "" {
		return "; there are none"
	}
	return "; there is " + names[2:]
}

func unfit(faults []sdk.Fault) *sdk.Error {
	return &sdk.Error{Code: sdk.CodeContractViolation, Message: "the arguments do not fit the tool", Faults: faults}
}
