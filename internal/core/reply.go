package core

import (
	"cmp"
	"encoding/json"
	"slices"

	"agentd/internal/clip"
	"agentd/sdk"
	"agentd/sdk/wire"
)

func (t *transition) replied(ev Replied) error {
	h := &t.Head
	if h.RoundOpen() || len(h.Undo) > 0 || h.stopping() || len(t.spec.dueContexts(h)) > 0 {
		return violation(h, "a reply while a round is open or calls are undone, or without its context")
	}
	if ev.opensRound() && !ev.Admission.madeFor(h, &ev.Reply) {
		return violation(h, "a reply with calls needs the admission that was made for it")
	}
	if h.Plan != nil && h.Plan.Phase != PhaseLoop || h.Plan == nil && t.spec.Planning != nil {
		t.answersPlan()
	}
	t.count(ev.Reply)
	h.calibrate(ev.Estimated, ev.Reply.Usage.Prompt)
	t.keep(ev.Hooks)
	t.reminded(ev.Reminded)
	t.Messages = append(t.Messages, ev.Context...)
	t.Checkpoints = append(t.Checkpoints, CheckpointAssistantTurn)
	empty := Empty(&ev.Reply)
	if !empty {
		h.Answers.Empty = 0
	}
	switch {
	case ev.Terminate != nil:
		return t.terminated(ev)
	case ev.Reply.Fault != nil:
		t.misread(ev.Reply)
		return nil
	case ev.opensRound():
		if t.spec.finalText(ev.Reply.Text) {
			t.stopOn(stopText, "text")
		}
		return t.openRound(saidBefore(&ev.Reply), ev.Admission, ev.Notes)
	case t.hasLastWord(&ev):
		return t.conclude(&ev)
	case len(h.Notes) > 0:
		t.overtaken(ev.Reply.Text)
		return nil
	case t.spec.Converse && t.spec.finalText(ev.Reply.Text):
		return t.rest(ev.Reply.Text, stopText, "text")
	case h.openAny() && (empty || !t.spec.Converse):
		return t.rest(ev.Reply.Text, restText, "")
	case !ev.Final && t.remind(ev.Reply.Text):
		return nil
	case empty:
		return t.emptied(ev.Results)
	}
	return t.conclude(&ev)
}

// conclude takes a text for the answer, or as a turn of a conversation, unless something is against it. With an answer, calls that are carried
// are waited for.
func (t *transition) conclude(ev *Replied) error {
	if done, err := t.object(ev); done || err != nil {
		return err
	}
	switch {
	case t.spec.Converse:
		return t.converse(ev.Reply.Text)
	case ev.Output == nil:
		return violation(&t.Head, "a reply of text without its output")
	case ev.Output.Fault != "":
		t.correct(ev.Reply.Text, ev.Output.Fault)
		return nil
	case ev.Question != nil:
		return t.askGates(ev)
	case t.Head.carries():
		return t.rest(ev.Reply.Text, stopText, answerCode)
	}
	t.Messages = append(t.Messages, sdk.Text(sdk.RoleAssistant, string(ev.Output.Data)))
	return t.complete(ReasonCompleted, answerCode, ev.Output.Data)
}

// opensRound reports whether calls of the reply are opened, so that it needs an admission.
func (ev *Replied) opensRound() bool {
	return ev.Terminate == nil && ev.Reply.Fault == nil && len(ev.Reply.Calls) > 0
}

// count adds a model call. What it was nudged with is not said again.
func (t *transition) count(reply sdk.ModelReply) {
	t.Head.Turns++
	t.Head.Nudge = ""
	t.cost(reply)
}

// cost adds what a model call cost. Nothing is given back: what is less than nothing would let a run go on without end.
func (t *transition) cost(reply sdk.ModelReply) {
	h := &t.Head
	h.Units.Add(reply.Units)
	h.Usage.Add(reply.Usage)
}

// correct tells the model what is wrong with its answer, so that it corrects itself.
func (t *transition) correct(said, fault string) {
	t.Messages = append(t.Messages, sdk.Text(sdk.RoleAssistant, said), sdk.Text(sdk.RoleUser, fault))
	t.Head.Lifecycle = sdk.LifecycleOutputErrorFeedback
}

// saidBefore is what a reply has before its calls.
func saidBefore(reply *sdk.ModelReply) []sdk.Content {
	said := slices.Clip(reply.Thinking)
	if reply.Text != "" {
		said = append(said, sdk.Content{Kind: sdk.ContentText, Text: reply.Text})
	}
	return said
}

// openRound makes the calls that are admitted, asks for those that need permission, and suspends or goes on. content is what is said
// before them.
func (t *transition) openRound(content []sdk.Content, admission *Admission, notes []Note) error {
	t.countRound(admission)
	t.Head.Round++
	t.Head.Opened = t.in.Rev
	granted := admission.grants.standIn(&t.Head)
	if granted {
		t.Head.Grants = slices.Clone(admission.grants.left)
	}
	t.Dropped = admission.Dropped
	part := admission.part(t.spec, &t.Head)
	carried := t.Head.Calls
	t.Head.Calls = nil
	for i := range admission.Calls {
		p := &admission.Calls[i]
		content = append(content, sdk.Content{Kind: sdk.ContentToolUse, CallID: p.ID, Tool: p.Tool, Args: p.Args})
		t.Head.Calls = append(t.Head.Calls, Call{ID: p.ID, Kind: CallInline, Tool: p.Tool, Status: CallNew})
		if p.granted && !granted {
			p = p.withoutGrant()
		}
		t.openCall(&t.Head.Calls[i], p, part)
		if p.correction.Note != "" {
			t.Corrections = append(t.Corrections, p.correction)
		}
	}
	t.Head.Calls = append(t.Head.Calls, carried...)
	for _, calls := range admission.asked(t.Head.Calls) {
		batch := t.batchID(admission, calls)
		for _, i := range calls {
			t.ask(i, &admission.Calls[i], batch)
		}
	}
	t.Messages = append(t.Messages, sdk.Message{Role: sdk.RoleAssistant, Content: content, Seen: 1})
	t.takeNotes(notes)
	return t.settle()
}

// openCall lets a call of a new round be made, or closes it. One that people are asked for is left to ask. part is how many tokens an agent may
// use.
func (t *transition) openCall(c *Call, p *AdmittedCall, part int64) {
	if p.tool != nil && p.tool.Kind == CallService {
		c.Kind, c.Type, c.Domains = CallService, t.Head.addressee(p.tool), p.tool.Domains
	}
	if p.Refusal != nil {
		t.close(c, failure(c.ID, ResultRefused, p.Refusal))
		return
	}
	if p.until > 0 && p.until <= t.in.At && p.ruling.Verdict == VerdictAllow {
		// Others were ruled on meanwhile, which may have taken long.
		t.close(c, failure(c.ID, ResultDenied, denial(c.Tool, "its permission expired before it could be made; call it again to ask for it")))
		return
	}
	if p.Waits() && p.tool.Agent {
		reserved, refusal := t.Head.share(p.tool, part)
		if refusal != nil {
			t.close(c, failure(c.ID, ResultRefused, refusal))
			return
		}
		c.Reserved = reserved
		t.countChild(p.tool)
	}
	if p.decision != nil {
		t.Decisions = append(t.Decisions, *p.decision)
	}
	if p.asks() {
		c.Same = p.same
		return
	}
	switch r := &p.ruling; r.Verdict {
	case VerdictAllow, VerdictAsk:
		if p.repeats != "" {
			t.reuse(c, p.repeats)
			return
		}
		c.Same = p.same
		t.begin(c, p.tool)
	case VerdictSet:
		t.close(c, Result{Call: c.ID, Kind: ResultSet, Data: r.Result})
	case VerdictBlock:
		t.close(c, failure(c.ID, ResultBlocked, sdk.Errorf(sdk.CodeBlocked, "%s", cmp.Or(clip.Text(r.Reason, maxMessage), c.Tool+" is blocked"))))
	case VerdictDeny:
		t.close(c, failure(c.ID, ResultDenied, denial(c.Tool, r.Reason)))
	default:
		t.close(c, failure(c.ID, ResultDenied, denial(c.Tool, "nothing ruled on the call")))
	}
}

// countChild counts a call that an agent answers, where the run may make so many.
func (t *transition) countChild(tool *Tool) {
	if t.spec.MaxChildren > 0 && tool.Agent {
		t.Head.Children++
	}
}

// uncountChild takes back that a call counts which an agent was to answer, because it ends without having been made. One of a new round
// did not count.
func (t *transition) uncountChild(c *Call) {
	made := c.Status == CallSuspended && c.Held == "" && !c.Queued
	if made || !c.ofModel() || t.Head.openedBy(c) == t.in.Rev {
		return
	}
	if tool := t.spec.tool(c.Tool); tool != nil && tool.Agent && t.spec.MaxChildren > 0 {
		t.Head.Children = max(t.Head.Children-1, 0)
	}
}

// begin lets a call of the round be made: a service's is sent, an inline tool's is left to the driver. In a sequential round
// it waits for its turn, and in a run that is paused until it is resumed.
func (t *transition) begin(c *Call, tool *Tool) {
	switch {
	case t.spec.Sequential || t.Head.Paused != nil:
		c.Queued = true
	case tool.Kind == CallService:
		t.send(c, tool)
	}
}

// advance makes queued calls whose turn has come: of a sequential round one, if those before it have their results.
func (t *transition) advance() {
	for i := range t.Head.Calls {
		c := &t.Head.Calls[i]
		if !c.ofModel() || c.Closed() {
			continue
		}
		if c.Queued && c.Held == "" && !t.awaitsDecisions(c) {
			t.unqueue(c)
		}
		if t.spec.Sequential && !c.Closed() {
			return
		}
	}
}

// awaitsDecisions reports whether a call that was held waits until all permission requests of the round are closed.
func (t *transition) awaitsDecisions(c *Call) bool {
	h := &t.Head
	return t.spec.Batch && h.open(func(k *Call) bool { return k.Permission != nil }) &&
		slices.ContainsFunc(h.Calls, func(k Call) bool { return k.Permission != nil && k.Permission.Call == c.ID })
}

// unqueue lets a call be made: a service's is sent, an inline tool's and one that is to be ruled on once more are left to the driver.
func (t *transition) unqueue(c *Call) {
	c.Queued = false
	tool := t.spec.tool(c.Tool)
	if t.Head.openedBy(c) != t.in.Rev && t.spec.RulesOn(&t.Head) && (tool == nil || !tool.Recalls) {
		c.Status = CallResuming // it was ruled on when its round was planned, which may be long ago
	}
	if c.Kind == CallInline || c.Status == CallResuming {
		return
	}
	if tool != nil {
		t.send(c, tool)
		return
	}
	t.close(c, failure(c.ID, ResultDenied, missing(c.Tool)))
}

// send makes c a call over the broker.
func (t *transition) send(c *Call, tool *Tool) {
	c.Status, c.Type, c.Domains = CallSuspended, t.Head.addressee(tool), tool.Domains
	if tool.Timeout > 0 {
		c.Due = t.in.At + tool.Timeout
	}
	f := Effect{
		Kind: EffectCall, Call: c.ID, Type: c.Type, Domains: tool.Domains, Schema: tool.Schema,
		ParentSubject: tool.ParentSubject, Caller: t.spec.callerType(tool),
	}
	if opened := t.Head.openedBy(c); opened != t.in.Rev {
		c.Sent = t.in.Rev
		f.Opened = cmp.Or(c.Edited, opened)
	}
	t.Effects = append(t.Effects, f)
}

// asWritten keeps arguments that are not canonical JSON as a JSON string, of large ones the beginning.
func asWritten(arguments string) json.RawMessage {
	if len(arguments) > MaxArguments {
		arguments = clip.Text(arguments, maxQuoted)
	}
	quoted, err := json.Marshal(arguments) // replaces invalid UTF-8
	if err != nil {
		return json.RawMessage(`""`)
	}
	if canonical, err := wire.Canonicalize(quoted); err == nil {
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

// turnData is the data of the event that carries a turn to a person.
func turnData(text string) (json.RawMessage, error) { return json.Marshal(turnMessage{Message: text}) }

// converse sends text to the person and waits for their answer.
func (t *transition) converse(text string) error {
	h := &t.Head
	data, err := turnData(text)
	if err != nil {
		return violation(h, "encode turn: %v", err)
	}
	canonical, err := wire.Canonicalize(data)
	if err != nil {
		return violation(h, "canonical turn: %v", err)
	}
	if len(canonical) > MaxArguments {
		t.correct(clip.Text(text, maxQuoted), "Your reply was too long to be sent. Say it in fewer words.")
		return nil
	}
	h.Round++
	h.Opened = t.in.Rev
	id := wire.CallID(h.Key(), h.Init.Token, h.Round, 0, sdk.TypeConversationTurn, canonical)
	h.Calls = slices.Insert(h.Calls, 0, Call{ID: id, Kind: CallTurn})
	t.send(&h.Calls[0], t.spec.callee(&h.Calls[0]))
	t.Messages = append(t.Messages, sdk.Text(sdk.RoleAssistant, text))
	return t.settle()
}

func (t *transition) turnAnswered(c *Call, ev Answered, r Result) error {
	var answer TurnAnswer
	r.Data = nil
	if ev.Error {
		t.close(c, r)
		return t.interrupt(Ending{Reason: ReasonError, Code: sdk.CodeUnavailable, Message: "the conversation could not go on"})
	}
	if err := json.Unmarshal(ev.Data, &answer); err != nil {
		return ErrOrphan // the shell checks the contract before: only a bug gets here
	}
	t.close(c, r)
	t.Head.Guarded.heard()
	t.Messages = append(t.Messages, sdk.Text(sdk.RoleUser, answer.Message))
	t.spoken()
	t.Checkpoints = append(t.Checkpoints, CheckpointUserMessage)
	if answer.End {
		t.stopOn(c.ID, "conversation")
	}
	return t.settle()
}

// stopOn has the run complete with the text of what on names; nothing takes that back.
func (t *transition) stopOn(on, code string) { t.Head.Stop, t.Head.ReasonCode = on, code }

func (t *transition) built(ev Built) error {
	if !t.Head.stopping() {
		return violation(&t.Head, "an output that nothing asked for")
	}
	if ev.Output.Fault != "" {
		t.stopOn("", "")
		t.Messages = append(t.Messages, sdk.Text(sdk.RoleUser, ev.Output.Fault))
		t.Head.Lifecycle = sdk.LifecycleOutputErrorFeedback
		return nil
	}
	if t.Head.ReasonCode == answerCode {
		return t.complete(ReasonCompleted, answerCode, ev.Output.Data)
	}
	return t.complete(ReasonStopped, cmp.Or(t.Head.ReasonCode, stopTool), ev.Output.Data)
}
