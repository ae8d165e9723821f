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

// close gives the call its one result.
func (t *transition) close(c *Call, r Result) {
	t.uncountChild(c)
	t.undid(c, &r)
	t.answers(c, &r)
	t.accepts(c, &r)
	t.forgetQuestions(c)
	c.Status = CallSucceeded
	if r.Error {
		c.Status = CallFailed
	}
	c.RetryAt, c.Reserved, c.Queued, c.Media = 0, 0, false, len(r.Media)
	t.Results = append(t.Results, r)
	t.stepEnded(c, &r)
	t.countResult(c, r)
	t.guardResult(c, &r)
	t.tellLater(c)
}

// void tells whoever was asked that nobody waits for an answer any more.
func (t *transition) void(c *Call) {
	if !c.Awaited() {
		return
	}
	t.voidOthers(c, 0)
}

// settle closes the round when every call has its result, or when the run goes on without some, and suspends the run when all that is open is with others.
func (t *transition) settle() error {
	h := &t.Head
	if h.Paused == nil {
		t.advance()
	}
	if h.RoundOpen() && (!h.openRound() || t.goesOn()) {
		lacks := t.lacks()
		t.closeSteps()
		t.closeRound()
		if lacks != nil {
			return t.finish(*lacks)
		}
	}
	t.forgetClosed()
	switch {
	case h.Stop == restText && !h.openAny():
		t.stopOn("", "")
	case t.waitsForTokens():
		t.stopOn(restText, "")
	}
	switch {
	case h.awaitsCalls(), h.Status == StatusWaiting && h.Held():
		t.suspend()
	case h.Status == StatusWaiting:
		t.take()
	case h.Driver.Owner == "": // handed back
		return t.takeFrom(h.Driver)
	}
	return nil
}

// closeRound appends the results to the history in call order and forgets the calls, but for those that are carried from here on.
func (t *transition) closeRound() {
	h := &t.Head
	calls := h.roundCalls()
	t.checkCalls(calls)
	t.carry()
	if calls[0].Kind == CallContext {
		t.inform(calls)
		t.weigh(calls)
		return
	}
	h.Lifecycle = sdk.LifecycleToolResult
	if calls[0].Kind == CallTurn {
		return // alone in its round; its answer is a message
	}
	for i := range calls {
		c := &calls[i]
		if !c.ofModel() {
			continue
		}
		t.Messages = append(t.Messages, sdk.Message{Role: sdk.RoleUser, Content: []sdk.Content{resultOf(c)}})
		if !h.stopping() && len(h.Undo) == 0 && c.Status == CallSucceeded && t.spec.stopsOn(c.Tool) {
			t.stopOn(c.ID, stopTool)
		}
	}
	if t.hasAnswered(calls) {
		t.stopOn(restText, "")
	}
	t.showMedia(calls)
	h.Review = t.spec.Reviews
	if len(h.Undo) == 0 { // else no model is there to be stopped or guarded
		t.countFailures(calls)
		t.guardRound(calls)
	}
	t.tellDecisions(calls)
	t.Checkpoints = append(t.Checkpoints, CheckpointToolResults)
}

// suspend lets go of the run and sees that something will wake it in time. Only an earlier timer than the armed one is
// armed: an armed one that fires for nothing is absorbed.
func (t *transition) suspend() {
	h := &t.Head
	h.Status, h.Driver = StatusWaiting, nil
	if t.was == StatusRunning {
		t.Checkpoints = append(t.Checkpoints, CheckpointRunFinished)
	}
	due := h.triedAt()
	for i := range h.Calls {
		c := &h.Calls[i]
		for _, at := range []int64{c.Due, c.RetryAt} {
			if !c.Closed() && at > 0 && at < due {
				due = at
			}
		}
	}
	t.arm(due)
	t.tellEnd()
}

// disarm takes back the timer that the entry would arm.
func (t *transition) disarm() {
	t.Effects = slices.DeleteFunc(t.Effects, func(f Effect) bool { return f.Kind == EffectTimer })
}

// arm sees that the run's timer fires at that time or before.
func (t *transition) arm(due int64) {
	if h := &t.Head; h.Timer == 0 || due < h.Timer {
		h.Timer = due
		t.disarm()
		t.Effects = append(t.Effects, Effect{Kind: EffectTimer, Due: due})
	}
}

// finish ends the run with an error event.
func (t *transition) finish(e Ending) error {
	problem := wire.NewProblem(sdk.Errorf(e.Code, "%s", clip.Text(e.Message, maxMessage)))
	if len(t.Head.Undo) > 0 {
		e, problem = t.undone(e, problem)
	}
	data, err := json.Marshal(problem)
	if err != nil {
		return violation(&t.Head, "encode problem: %v", err)
	}
	t.end(e.Reason, cmp.Or(e.Detail, string(e.Code)), Terminal{Type: wire.ErrorType(t.spec.Type), Schema: t.spec.ErrorSchema, Data: data})
	return nil
}

// complete ends the run with its output, or with an error when no event could hold it.
func (t *transition) complete(reason Reason, code string, data json.RawMessage) error {
	if len(data) > wire.MaxData {
		return t.finish(Ending{
			Reason: ReasonError, Code: sdk.CodeTooLarge,
			Message: fmt.Sprintf("the output has %d bytes, more than %d", len(data), wire.MaxData),
		})
	}
	t.end(reason, code, Terminal{Type: t.spec.OutputType, Schema: t.spec.Schema, Data: data})
	return nil
}

// end closes what is open, so that every tool call in the history has a result, and makes the terminal event.
func (t *transition) end(reason Reason, code string, terminal Terminal) {
	h := &t.Head
	left := t.leave(reason)
	t.closeOpen()
	t.flushNotes(nil)
	h.Status, h.Reason, h.Driver, h.Stop, h.Cancel, h.Timer = StatusDone, reason, nil, "", nil, 0
	h.ReasonCode, h.Review, h.Hooks, h.Left = code, false, nil, left
	h.Paused, h.Questions = nil, nil
	h.Nudge, h.Answers, h.Guarded = "", Answers{}, Guarded{}
	t.Terminal = &terminal
	t.disarm()
	t.tellEnd()
	t.Effects = append(t.Effects, Effect{Kind: EffectTerminal})
	t.unpark()
	if t.spec.RulesOn(h) {
		t.Effects = append(t.Effects, Effect{Kind: EffectCleanup})
	}
	h.Grants = nil
	t.Checkpoints = append(t.Checkpoints, CheckpointRunFinished)
}

// closeOpen closes the open round, because the run ends.
func (t *transition) closeOpen() {
	h := &t.Head
	for i := range h.Calls {
		c := &h.Calls[i]
		if c.Closed() {
			continue
		}
		t.void(c)
		t.account(c, -1)
		if c.ofModel() {
			r := failure(c.ID, ResultCancelled, sdk.Errorf(sdk.CodeCancelled, "the run ended first"))
			if c.Status == CallRunning {
				r = OutcomeUnknown(*c)
			}
			t.undid(c, &r)
			t.Results = append(t.Results, r)
		}
		c.Status = CallCancelled
		t.tellLater(c)
	}
	t.checkCalls(h.Calls)
	if h.RoundOpen() {
		t.closeRound()
	}
}

// failure is an error as a tool's result, in the form the model is shown.
func failure(call string, kind ResultKind, e *sdk.Error) Result {
	return Result{Call: call, Kind: kind, Data: FailureData(e), Error: true}
}

// FailureData is what a model is shown of an error: {"error": {"code", "message", "faults"}}.
func FailureData(e *sdk.Error) json.RawMessage {
	type shown struct {
		Code    sdk.Code    `json:"code"`
		Message string      `json:"message"`
		Faults  []sdk.Fault `json:"faults,omitempty"`
	}
	data, err := EncodeJSON(map[string]shown{"error": {e.Code, e.Message, e.Faults}})
	if err != nil {
		return json.RawMessage(`{"error":{"code":"internal","message":"unprintable error"}}`)
	}
	return data
}

// FailureCode is the code in FailureData; what has none is a failure of the tool.
func FailureCode(data json.RawMessage) sdk.Code {
	var shown struct {
		Error struct {
			Code sdk.Code `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(data, &shown) != nil {
		return sdk.CodeTool
	}
	return sdk.Code(clip.Text(string(cmp.Or(shown.Error.Code, sdk.CodeTool)), maxToolName))
}

// Code is the error code of a failed result.
func (r *Result) Code() sdk.Code { return FailureCode(r.Data) }

func (t *transition) began(ev Began) error {
	for _, id := range ev.Calls {
		if t.Head.outrun(id) {
			continue
		}
		i := t.Head.call(id)
		if i < 0 || !t.Head.Calls[i].runnable() || t.Head.Calls[i].Status == CallRunning || t.Head.Calls[i].awaitsRuling() {
			return violation(&t.Head, "cannot begin call %s", id)
		}
		t.Head.Calls[i].Status, t.Head.Calls[i].Begun = CallRunning, t.in.Owner
	}
	t.keep(ev.Hooks)
	return nil
}

func (t *transition) returned(ev Returned) error {
	if err := t.record(ev.Results); err != nil {
		return err
	}
	if err := t.askQuestions(ev.Asks); err != nil {
		return err
	}
	if err := t.passed(ev.Passed); err != nil {
		return err
	}
	t.keep(ev.Hooks)
	return t.settle()
}

// record closes calls of the driver with their results.
func (t *transition) record(results []Result) error {
	for _, r := range results {
		if t.Head.outrun(r.Call) {
			continue
		}
		i := t.Head.call(r.Call)
		if i < 0 || !t.Head.Calls[i].runnable() {
			return violation(&t.Head, "result for call %s", r.Call)
		}
		t.close(&t.Head.Calls[i], r)
	}
	return nil
}
