package seeds_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// complete is a reply that completes the task with a result.
func complete(result any) sdk.ModelReply {
	return sdktest.Ask(sdktest.Tool("task_completion", map[string]any{"result": result}))
}

// failing is a tool that never works.
func failing(name string) sdk.Tool {
	return internal(name, func(context.Context, sdk.ToolCall) ([]byte, error) {
		return nil, sdk.Errorf(sdk.CodeTool, "it does not work")
	})
}

// stopConditions is rows T43, T52 and F36: each condition ends the run with its own reason, when the calls of the round have results.
func stopConditions(t *testing.T) {
	note := func(args ...int) sdk.ModelReply {
		var calls []sdk.ToolRequest
		for _, a := range args {
			calls = append(calls, sdktest.Tool("note", n(a)))
		}
		return sdktest.Ask(calls...)
	}
	broken := func(i int) sdk.ModelReply { return sdktest.Ask(sdktest.Tool("broken", n(i))) }
	for _, c := range []struct {
		name, reason string
		replies      []sdk.ModelReply
		set          func(*sdk.AgentSpec)
		calls        int
	}{
		{
			name: "interactions", reason: "quota:interactions", replies: []sdk.ModelReply{note(1), note(2)}, calls: 2,
			set: func(s *sdk.AgentSpec) { s.Limits.Interactions = 2 },
		},
		{
			name: "tokens", reason: "quota:tokens", replies: []sdk.ModelReply{note(1), note(2)}, calls: 2,
			set: func(s *sdk.AgentSpec) { s.Limits.Tokens = 3 }, // 2 for each reply
		},
		{
			name: "errors", reason: "stalled:errors", replies: []sdk.ModelReply{broken(1), note(2), broken(3), broken(4)}, calls: 4,
			set: func(s *sdk.AgentSpec) { s.Stop.Errors = 2 },
		},
		{
			name: "same error", reason: "stalled:same_error", replies: []sdk.ModelReply{broken(1), broken(2), note(3), broken(4), broken(5), broken(6)},
			calls: 6, set: func(s *sdk.AgentSpec) { s.Stop.SameError = 3 },
		},
		{
			name: "loop", reason: "stalled:loop", replies: []sdk.ModelReply{note(1), note(2, 3), note(4), note(3, 2), note(5)}, calls: 6,
			set: func(s *sdk.AgentSpec) { s.Stop.Repeats = 2 },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := desk()
			a.Tools = []sdk.Tool{echo("note"), failing("broken")}
			c.set(&a.Spec)
			h := start(t, sdktest.Script(c.replies...), a)
			r := h.Run("desk", message("hello"))
			equal(t, "reason", reason(h, r), c.reason)
			results(t, h.Messages(r), c.calls)
		})
	}
	t.Run("text", func(t *testing.T) {
		a := desk()
		a.Tools = []sdk.Tool{echo("note")}
		a.Spec.Stop.Text = []string{"FINISHED"}
		last := note(1)
		last.Text = "All FINISHED."
		h := start(t, sdktest.Script(last), a)
		r := h.Run("desk", message("hello"))
		succeeds(t, h, r, `{"response": "All FINISHED."}`)
		equal(t, "reason", reason(h, r), "stopped:text")
		results(t, h.Messages(r), 1)
	})
}

// countersPersist is row T56: whatever a run counts, its next worker goes on counting.
func countersPersist(t *testing.T) {
	child := callable("child")
	for name, c := range map[string]struct {
		reason  string
		set     func(*sdk.AgentSpec)
		replies []sdk.ModelReply
	}{
		"errors":     {"stalled:errors", func(s *sdk.AgentSpec) { s.Stop.Errors = 3 }, []sdk.ModelReply{find(1), find(2), find(3)}},
		"same error": {"stalled:same_error", func(s *sdk.AgentSpec) { s.Stop.SameError = 3 }, []sdk.ModelReply{find(1), find(2), find(3)}},
		"loop":       {"stalled:loop", func(s *sdk.AgentSpec) { s.Stop.Repeats = 3 }, []sdk.ModelReply{find(1), find(1), find(1)}},
		// Each reply has two tokens, and so has the child's.
		"tokens": {"quota:tokens", func(s *sdk.AgentSpec) { s.Limits.Tokens = 6 }, []sdk.ModelReply{find(1), find(2), find(3)}},
		"tokens of agents": {
			"quota:tokens", func(s *sdk.AgentSpec) { s.Limits.Tokens = 6 },
			[]sdk.ModelReply{sdktest.Ask(sdktest.Tool("test_child", message("look"))), find(1)},
		},
		"interactions": {"quota:interactions", func(s *sdk.AgentSpec) { s.Limits.Interactions = 3 }, []sdk.ModelReply{find(1), find(2), find(3)}},
	} {
		t.Run(name, func(t *testing.T) {
			a := desk(service("shop.find"), calling(child))
			c.set(&a.Spec)
			h := start(t, byModel(map[string]*sdktest.Model{
				"desk": sdktest.Script(append(c.replies, sdktest.Say("never"))...), "child": sdktest.Script(sdktest.Say("found")),
			}), a, child)
			r := h.Run("desk", message("hello"))
			for _, reply := range c.replies {
				if reply.Calls[0].Name != "shop_find" {
					continue
				}
				call := h.Call("shop.find")
				h.Suspended(r, 1)
				h.Restart()
				call.Fail(wire.Problem{ErrorName: "no", ErrorMessage: "not today", Code: sdk.CodeTool})
			}
			equal(t, "reason", reason(h, r), c.reason)
		})
	}
	t.Run("reminders", remindersPersist)
}

// remindersPersist is row T56 for replies without a call, between which a run waits only where somebody pauses it.
func remindersPersist(t *testing.T) {
	asked, goOn := make(chan struct{}), make(chan struct{})
	script := sdktest.Script(sdktest.Say("Hm."), sdktest.Say("Hm."), complete(map[string]any{"response": "never"}))
	model := sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		if req.Interactions.Current == 0 {
			close(asked)
			<-goOn
		}
		return script.Generate(ctx, req, nil)
	})
	a := desk()
	a.Spec.Builtin, a.Spec.NoToolCall = []string{"task_completion"}, &sdk.NoToolCall{Policy: sdk.NoToolCallRemind, Reminders: 1}
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	<-asked
	operate(h, r, wire.ControlPause)
	h.Until(r, "paused", func(s core.State) bool { return s.Paused != nil })
	close(goOn)
	h.Until(r, "reminded", func(s core.State) bool { return s.Turns == 1 })
	h.Restart()
	operate(h, r, wire.ControlResume)
	equal(t, "reason", reason(h, r), "stalled:no_tool_call")
}

// budgetPassedDown: an agent that is called gets what is left of the tokens, and what it does not need comes back.
func budgetPassedDown(t *testing.T) {
	child := callable("child")
	parent := desk(calling(child))
	parent.Spec.Limits.Tokens = 20
	parent.Spec.Services[0].Agent = true
	child.Tools = []sdk.Tool{echo("note")}
	scripts := map[string]*sdktest.Model{
		"desk": sdktest.Script(sdktest.Ask(sdktest.Tool("test_child", message("look"))), sdktest.Ask(sdktest.Tool("test_child", message("again"))),
			sdktest.Say("told")),
		"child": sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1))), sdktest.Say("found")),
	}
	h := start(t, byModel(scripts), parent, child)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "told"}`)
	s := h.State(r)
	equal(t, "tokens of both", []int64{s.TokensUsed(), s.Delegated}, []int64{3*2 + 2*2*2, 2 * 2 * 2})
	var reserved []int64
	for _, e := range h.Parts(r) {
		for _, c := range e.Head.Calls {
			if e.Kind == "replied" {
				reserved = append(reserved, c.Reserved)
			}
		}
	}
	equal(t, "shares", reserved, []int64{20 - 2, 20 - 2 - 4 - 2})

	parent.Spec.Limits.Tokens = 5 // the child gets 3, and uses 4
	h = start(t, byModel(scripts), parent, child)
	r = h.Run("desk", message("hello"))
	equal(t, "reason", reason(h, r), "quota:tokens")
}

// breakingTools is rows F19, F20, F21, F22, F23 and F60: task_completion ends the run, only when it succeeds; ask_question and
// converse suspend it, a question with no more than four suggestions; and the results of all are in the conversation, which the model
// sees from its next call on.
func breakingTools(t *testing.T) {
	a := agent("desk", contract(deskType, anyObject, numberAnswer))
	a.Spec.Builtin = []string{"task_completion", "ask_question", "converse"}
	suggesting := func(answers ...string) sdk.ModelReply {
		return sdktest.Ask(sdktest.Tool("ask_question", map[string]any{"question": "How many?", "suggestions": answers}))
	}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("task_completion", map[string]any{})),
		suggesting("1", "2", "3", "4", "5"), suggesting("1", "2", "3", "4"),
		sdktest.Ask(sdktest.Tool("ask_question", map[string]any{"question": "Really?"})),
		sdktest.Ask(sdktest.Tool("converse", message("As you like."))),
		complete(map[string]any{"answer": 2}))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	question := h.Call(sdk.TypeQuestion)
	equal(t, "suggestions", question.Data()["suggestions"], any([]any{"1", "2", "3", "4"}))
	question.Answer("agentd.question.answered", map[string]any{"answer": "2"})
	h.Call(sdk.TypeQuestion).Answer("agentd.question.answered", map[string]any{"answer": "Yes."})
	said := h.Call(sdk.TypeConversationTurn)
	equal(t, "what is said", said.Data()["message"], any("As you like."))
	said.Answer("agentd.conversation.answered", map[string]any{"message": "Thanks.", "end": true})
	succeeds(t, h, r, `{"answer": 2}`)
	equal(t, "reason", reason(h, r), "stopped:tool")
	told := results(t, last(t, model).Messages, 5) // as the model sees them
	equal(t, "a completion that failed", problem(t, told[0]).Code, sdk.CodeContractViolation)
	equal(t, "five suggestions", problem(t, told[1]).Code, sdk.CodeContractViolation)
	equalJSON(t, "answer", []byte(told[2].Text), `{"answer": "2"}`)
	equalJSON(t, "answer to a question without suggestions", []byte(told[3].Text), `{"answer": "Yes."}`)
	equalJSON(t, "what the person said", []byte(told[4].Text), `{"message": "Thanks.", "end": true}`)
	kept := results(t, h.Messages(r), 6)
	equal(t, "what is kept of what the model saw", kept[:5], told)
	equalJSON(t, "result", []byte(kept[5].Text), `{"answer": 2}`)
}

// noToolCall is rows F26, F29 and F34: a reply without a call is answered with a reminder, which is in the next request alone and is not kept.
func noToolCall(t *testing.T) {
	reminded := func(policy sdk.NoToolCallPolicy, replies ...sdk.ModelReply) (*harness.Harness, harness.Run, *sdktest.Model) {
		a := desk()
		a.Tools, a.Spec.Builtin = []sdk.Tool{echo("note")}, []string{"task_completion"}
		a.Spec.NoToolCall = &sdk.NoToolCall{Policy: policy, Reminders: 1, Text: "Use a tool."}
		model := sdktest.Script(replies...)
		h := start(t, model, a)
		return h, h.Run("desk", message("hello")), model
	}
	h, r, model := reminded(sdk.NoToolCallRemind,
		sdktest.Say("Hm."), sdktest.Ask(sdktest.Tool("note", n(1))), complete(map[string]any{"response": "done"}))
	succeeds(t, h, r, `{"response": "done"}`)
	requests := asked(t, model, 3)
	equal(t, "lifecycle", requests[1].Lifecycle, sdk.LifecycleReminder)
	equal(t, "reminder", lastSaid(requests[1]), "Use a tool.")
	for i, times := range []int{0, 1, 0} {
		equal(t, fmt.Sprint("reminders in request ", i), said(requests[i].Messages, "Use a tool."), times)
	}
	for _, m := range h.Messages(r) {
		equal(t, "the reminder is kept", strings.Contains(m.PlainText(), "Use a tool."), false)
	}

	h, r, _ = reminded(sdk.NoToolCallRemind, sdktest.Say("Hm."), sdktest.Say("Hm."))
	equal(t, "reason", reason(h, r), "stalled:no_tool_call")
	h, r, _ = reminded(sdk.NoToolCallRemindThenAccept, sdktest.Say("Hm."), sdktest.Say("Well then."))
	succeeds(t, h, r, `{"response": "Well then."}`)
}

// send sends a message into a run.
func send(t *testing.T, h *harness.Harness, r harness.Run, id, text string) {
	t.Helper()
	h.Publish(h.Conn().Subjects().Control(wire.ControlMessage, r.Agent, r.Key)+".ann", wire.Event{
		ID: id, Source: "com.test.person", Type: "agentd.run.message", Subject: r.Subject, Data: mustJSON(t, message(text)),
	})
}

// steering is row T67: a message into a waiting or a working run is seen by the next model call, once, whatever crashes; under
// interrupt it does not wait, and under reject it is a dead letter.
func steering(t *testing.T) {
	t.Run("queue", func(t *testing.T) {
		model := sdktest.Script(find(1), sdktest.Say("done"))
		h := start(t, model, desk(service("shop.find")))
		r := h.Run("desk", message("hello"))
		h.Suspended(r, 1)
		send(t, h, r, "m1", "look in Paris")
		send(t, h, r, "m1", "look in Paris")
		h.Until(r, "told", func(s core.State) bool { return len(s.Head.Notes) == 1 })
		h.Restart()
		h.Call("shop.find").Answer("shop.find.done", value("it"))
		succeeds(t, h, r, `{"response": "done"}`)
		second := asked(t, model, 2)[1]
		equal(t, "lifecycle", second.Lifecycle, sdk.LifecycleUserMessage)
		equal(t, "last message", second.Messages[len(second.Messages)-1].PlainText(), "look in Paris")
		equal(t, "said once", said(h.Messages(r), "look in Paris"), 1)
		for _, e := range h.Parts(r) {
			for _, note := range e.Notes {
				equal(t, "who sent it", note.Who, "ann")
			}
		}
		send(t, h, r, "m2", "too late")
		equal(t, "a run that is done", h.DeadLetter().Reason, string(sdk.CodeMessageRefused))
	})
	t.Run("working", func(t *testing.T) {
		for policy, interrupted := range map[sdk.SteeringPolicy]bool{sdk.SteeringQueue: false, sdk.SteeringInterrupt: true} {
			steerWorking(t, policy, interrupted)
		}
	})
	t.Run("interrupt a waiting run", func(t *testing.T) {
		a := desk(service("shop.find"))
		a.Spec.Steering = sdk.SteeringInterrupt
		h := start(t, sdktest.Script(find(1), sdktest.Say("done")), a)
		r := h.Run("desk", message("hello"))
		h.Suspended(r, 1)
		send(t, h, r, "m1", "never mind")
		succeeds(t, h, r, `{"response": "done"}`)
		h.Void("shop.find")
		equal(t, "the call", problem(t, results(t, h.Messages(r), 1)[0]).Code, sdk.CodeCancelled)
	})
	t.Run("reject", func(t *testing.T) {
		a := desk(service("shop.find"))
		a.Spec.Steering = sdk.SteeringReject
		h := start(t, sdktest.Script(find(1), sdktest.Say("done")), a)
		r := h.Run("desk", message("hello"))
		h.Suspended(r, 1)
		send(t, h, r, "m1", "hello?")
		equal(t, "dead letter", h.DeadLetter().Reason, string(sdk.CodeMessageRefused))
	})
}

// steerWorking sends a message while the model works on its answer.
func steerWorking(t *testing.T, policy sdk.SteeringPolicy, interrupted bool) {
	t.Helper()
	calling, release := make(chan struct{}, 1), make(chan struct{})
	var ended atomic.Bool
	var asked atomic.Int64
	model := sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		if asked.Add(1) == 1 {
			calling <- struct{}{}
			select {
			case <-ctx.Done():
				ended.Store(true)
				return sdk.ModelReply{}, ctx.Err()
			case <-release:
			}
			return sdktest.Say("an answer to the wrong question"), nil
		}
		return sdktest.Say("as you say: " + req.Messages[len(req.Messages)-1].PlainText()), nil
	})
	a := desk()
	a.Spec.Steering = policy
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	<-calling
	send(t, h, r, "m1", "the other one")
	h.Until(r, "told", func(s core.State) bool { return len(s.Heard) == 1 })
	if !interrupted {
		close(release)
	}
	succeeds(t, h, r, `{"response": "as you say: the other one"}`)
	equal(t, "the model call was given up", ended.Load(), interrupted)
	equal(t, "said once", said(h.Messages(r), "the other one"), 1)
}

func said(messages []sdk.Message, text string) int {
	return len(slices.DeleteFunc(slices.Clone(messages), func(m sdk.Message) bool {
		return m.Role != sdk.RoleUser || m.PlainText() != text
	}))
}

func TestHooks_AreCalledInTheirOrder(t *testing.T) { hookOrder(t) }

func TestHooks_KeepStateOverRestarts(t *testing.T) { hookState(t) }

func TestBudget_IsPassedDownAndComesBack(t *testing.T) { budgetPassedDown(t) }
