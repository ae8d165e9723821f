package seeds_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// judgedDesk is an agent whose answers are judged, with a service that lists and a tool that moves.
func judgedDesk(answers sdk.Answers) sdk.Agent {
	a := desk(service("list.files"))
	a.Tools = []sdk.Tool{echo("move_file")}
	a.Spec.Answers = &answers
	return a
}

// listed runs an agent whose model lists files first, and then says that.
func listed(t *testing.T, answers sdk.Answers, replies ...sdk.ModelReply) (*harness.Harness, harness.Run, *sdktest.Model, *listener) {
	t.Helper()
	model := sdktest.Script(append([]sdk.ModelReply{sdktest.Ask(sdktest.Tool("list_files", n(1)))}, replies...)...)
	h := start(t, model, judgedDesk(answers))
	r, l := heardRun(t, h)
	h.Call("list.files").Answer("list.files.done", value("a.png, b.png"))
	return h, r, model, l
}

// incompleteReply is rows L25, L26 and L27: a text that says that work is left is withdrawn, kept as what the assistant said, and the
// model goes on. What it is told is not kept; and how often it was is counted across a suspension and another worker.
func incompleteReply(t *testing.T) {
	h, r, model, l := listed(t, sdk.Answers{Incomplete: 2},
		sdktest.Say("I have renamed a.png. There is 1 file remaining."), sdktest.Ask(sdktest.Tool("list_files", n(2))),
		sdktest.Say("I'll continue with b.png."), sdktest.Say("I will now process b.png."))
	second := h.Call("list.files")
	h.StopWorkers()
	h.Restart()
	second.Answer("list.files.done", value("b.png"))
	succeeds(t, h, r, `{"response": "I will now process b.png."}`)
	requests := asked(t, model, 5)
	equal(t, "what the model is told", lastSaid(requests[2]), `Your reply is not an answer yet, because it says that work is left: "1 file remaining". `+
		"You stopped before you were done. Go on now with what is left: call the next tool. Answer when all of it is done, or say what cannot be "+
		"done and why.")
	said := requests[2].Messages[len(requests[2].Messages)-2]
	equal(t, "what it had said", []string{string(said.Role), said.PlainText()}, []string{"assistant", "I have renamed a.png. There is 1 file remaining."})
	for _, m := range h.Messages(r) {
		if m.Role == sdk.RoleUser && len(m.PlainText()) > 40 {
			t.Errorf("the nudge is kept: %s", m.PlainText())
		}
	}
	l.await(t, "run.finished", 1)
	equal(t, "told", append(l.heard("answer.judged"), l.heard("message.cleared")...), []string{
		`answer.judged {"judge":"incomplete","found":"1 file remaining","times":1}`,
		`answer.judged {"judge":"incomplete","found":"i'll continue","times":2}`,
		`answer.judged {"judge":"incomplete","found":"i will now process","times":3,"accepted":true}`,
		`message.cleared {"judge":"incomplete"}`, `message.cleared {"judge":"incomplete"}`,
	})
}

// incompletePhrases is row L25 for what says in other ways that work is left: a part of what there is, and what has not been done yet. That each
// is found by its own rule, and not by what was learned, is for the tests of internal/judge.
func incompletePhrases(t *testing.T) {
	h, r, model, _ := listed(t, sdk.Answers{Incomplete: 9}, sdktest.Say("I have renamed 3 of the 8 files."),
		sdktest.Say("I renamed a.png, b.png has not been renamed yet."), sdktest.Say("All files have been renamed."))
	succeeds(t, h, r, `{"response": "All files have been renamed."}`)
	asked(t, model, 4)
}

func allIncomplete(t *testing.T) {
	t.Run("counted", func(t *testing.T) { show(t, incompleteReply) })
	t.Run("phrases", incompletePhrases)
}

// shortQuestion is row L28 for a question without any of the phrases.
func shortQuestion(t *testing.T) {
	h, r, model, _ := listed(t, sdk.Answers{Deflecting: 3}, sdktest.Say("By name or by date?"), sdktest.Say("Two files."))
	succeeds(t, h, r, `{"response": "Two files."}`)
	asked(t, model, 3)
}

func allDeflecting(t *testing.T) {
	t.Run("phrases", func(t *testing.T) { show(t, deflectingReply) })
	t.Run("short question", shortQuestion)
}

// deflectingReply is rows L28 and L29: a question that nobody answers is sent back three times, and then accepted.
func deflectingReply(t *testing.T) {
	equal(t, "the preset", sdk.SmallModel(), sdk.Answers{Incomplete: 10, Deflecting: 3, Summary: true})
	question := sdktest.Say("What would you like me to do with them?")
	h, r, model, _ := listed(t, sdk.Answers{Deflecting: 3}, sdktest.Say("I don't have access to the files."), question, question, question)
	succeeds(t, h, r, `{"response": "What would you like me to do with them?"}`)
	requests := asked(t, model, 5)
	equal(t, "what the model is told", lastSaid(requests[2]), `Your reply is not an answer: "i don't have access". Nobody can reply to you. Do not `+
		"ask and do not offer. Go on with the task, with the tools that you have and the most sensible assumption, and name the assumption in "+
		"your answer.")
	equal(t, "how often", h.Parts(r)[len(h.Parts(r))-1].Judged, &core.Judged{
		Judge: "deflecting", Found: "what would you like me", Times: 4, Accepted: true,
	})
}

// completionOverrides is row L30: what says that all is done is an answer, whatever else it says; and so is everything where no judge is on.
func completionOverrides(t *testing.T) {
	for text, answers := range map[string]sdk.Answers{
		"All files have been renamed. I will continue with nothing else.": sdk.SmallModel(),
		"There are 4 files remaining. Shall I go on?":                     {},
	} {
		h, r, model, _ := listed(t, answers, sdktest.Say(text))
		succeeds(t, h, r, `{"response": "`+text+`"}`)
		asked(t, model, 2)
	}
}

// unverifiedClaim is row L50: what no call can have done is not an answer, unless a call has done it.
func unverifiedClaim(t *testing.T) {
	h, r, model, _ := listed(t, sdk.Answers{Unverified: 3},
		sdktest.Say("I have moved the files."), sdktest.Ask(sdktest.Tool("move_file", n(1))), sdktest.Say("I have moved the files."))
	succeeds(t, h, r, `{"response": "I have moved the files."}`)
	equal(t, "what the model is told", lastSaid(asked(t, model, 4)[2]), `Your reply claims what no call has done: "i have moved". Make the call `+
		"that does it, or answer without the claim.")
}

// requirements is row F53: an output that does not pass a schema, a condition or a function is sent back with what is wrong, three times
// unless the agent says otherwise; then the run fails, or the output is accepted where the requirement is optional.
func requirements(t *testing.T) {
	t.Run("service", requiredByService)
	short := sdktest.Say("no")
	for name, c := range map[string]struct {
		of    sdk.Requirement
		nudge string
		ends  string
	}{
		"schema": {
			sdk.Requirement{Name: "shape", Schema: json.RawMessage(`{"type":"object","properties":{"response":{"minLength":4}}}`)},
			`Your answer is not accepted: $.response: expected at least 4 characters, got 2 characters. Give it again, corrected.`, "no_answer",
		},
		"condition": {
			sdk.Requirement{Name: "long", When: "size(output.response) > 3", Feedback: "Say more."},
			"Your answer is not accepted: Say more. Give it again, corrected.", "no_answer",
		},
		"function": {
			sdk.Requirement{Name: "sane", Hook: "sane", Optional: true},
			"Your answer is not accepted: too short. Give it again, corrected.", "",
		},
	} {
		a := desk()
		a.Spec.Answers = &sdk.Answers{Require: []sdk.Requirement{c.of}}
		a.Hooks.Requirements = map[string]func(context.Context, sdk.RequirementInput) error{
			"sane": func(_ context.Context, in sdk.RequirementInput) error {
				if len(in.Output) < 20 {
					return errors.New("too short")
				}
				return nil
			},
		}
		model := sdktest.Script(short, short, short, short)
		h := start(t, model, a)
		r := h.Run("desk", message("hello"))
		if c.ends == "" {
			succeeds(t, h, r, `{"response": "no"}`)
		} else {
			equal(t, name, string(fails(t, h, r, deskType).Code), c.ends)
		}
		equal(t, name, lastSaid(asked(t, model, 4)[3]), c.nudge)

		model = sdktest.Script(short, sdktest.Say("yes, certainly"))
		h = start(t, model, a)
		succeeds(t, h, h.Run("desk", message("hello")), `{"response": "yes, certainly"}`)
		asked(t, model, 2)
	}
}

// reviewed is an agent whose outputs a service is asked about.
func reviewed(r sdk.Requirement) sdk.Agent {
	reviewer := sdk.ServiceTool{
		Contract: contract("test.review", anyObject, `{"type":"object","properties":{"accepted":{"type":"boolean"},"feedback":{"type":"string"}},"required":["accepted"]}`),
		Version:  version, Context: &sdk.ContextUse{Section: sdk.AnswerSection(r.Name)},
	}
	a := desk(reviewer)
	a.Spec.Answers = &sdk.Answers{Require: []sdk.Requirement{{Name: "some", When: "size(output.response) > 0"}, r}}
	return a
}

// requiredByService is of a requirement that a service is asked about: the run is suspended meanwhile, the model is told what is wrong, and it
// counts over workers. Without its word a run ends, unless the requirement is optional.
func requiredByService(t *testing.T) {
	no := map[string]any{"accepted": false, "feedback": "Name the price."}
	answer := func(h *harness.Harness, data map[string]any) { h.Call("test.review").Answer("test.review.done", data) }

	model := sdktest.Script(sdktest.Say("a room"), sdktest.Say("a cheap room"), sdktest.Say("a room for 80"))
	h := start(t, model, reviewed(sdk.Requirement{Name: "legal"}))
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 1)
	h.Restart()
	call := h.Call("test.review")
	equalJSON(t, "what the service is asked", call.Event.Data, `{"input": {"message": "hello"}, "output": {"response": "a room"}}`)
	call.Answer("test.review.done", no)
	answer(h, no)
	h.Call("test.review").Answer("test.review.done", map[string]any{"accepted": true})
	event := succeeds(t, h, r, `{"response": "a room for 80"}`)
	equal(t, "why it ended", event.Extensions[wire.TerminationReason], "completed:answer")
	requests := asked(t, model, 3)
	equal(t, "tools that the model is offered", len(requests[0].Tools), 0)
	equal(t, "what the model is told", lastSaid(requests[2]), "Your answer is not accepted: Name the price. Give it again, corrected.")
	equal(t, "what is kept", len(h.Messages(r)), 4)
	equal(t, "layout", h.Parts(r)[0].V, 6)

	for _, optional := range []bool{false, true} {
		for name, end := range map[string]func(h *harness.Harness){
			"no_answer": func(h *harness.Harness) { answer(h, no); answer(h, no); answer(h, no) },
			"unavailable": func(h *harness.Harness) {
				h.Call("test.review").Fail(wire.NewProblem(sdk.Errorf(sdk.CodeTool, "nobody is in")))
			},
		} {
			h := start(t, sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) {
				return sdktest.Say("a room"), nil
			}), reviewed(sdk.Requirement{Name: "legal", Retries: 2, Optional: optional}))
			r := h.Run("desk", message("hello"))
			end(h)
			if optional {
				succeeds(t, h, r, `{"response": "a room"}`)
				continue
			}
			equal(t, "code", string(fails(t, h, r, deskType).Code), name)
		}
	}

	h = start(t, sdktest.Script(sdktest.Say("a room"), sdktest.Say("two rooms")), reviewed(sdk.Requirement{Name: "legal"}))
	r = h.Run("desk", message("hello"))
	late := h.Call("test.review")
	send(t, h, r, "m1", "Make it two.")
	h.Until(r, "the message waits", func(s core.State) bool { return len(s.Head.Notes) == 1 })
	late.Answer("test.review.done", map[string]any{"accepted": true})
	answer(h, map[string]any{"accepted": true})
	succeeds(t, h, r, `{"response": "two rooms"}`)

	a := reviewed(sdk.Requirement{Name: "legal"})
	a.Spec.Steering = sdk.SteeringInterrupt
	h = start(t, sdktest.Script(sdktest.Say("a room"), sdktest.Say("two rooms")), a)
	r = h.Run("desk", message("hello"))
	h.Call("test.review") // is nobody's any more with the message
	send(t, h, r, "m1", "Make it two.")
	answer(h, map[string]any{"accepted": true})
	succeeds(t, h, r, `{"response": "two rooms"}`)
}

// degradedAnswer is row L41: when no model answers, the run completes with the agent's own text, which is told as such and is not part of
// the conversation.
func degradedAnswer(t *testing.T) {
	a := desk()
	a.Spec.Answers = &sdk.Answers{Degraded: "Nobody can answer now."}
	h := start(t, sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) {
		return sdk.ModelReply{}, sdk.Errorf(sdk.CodeUnavailable, "no route to the model")
	}), a)
	r := h.Run("desk", message("hello"))
	event := succeeds(t, h, r, `{"response": "Nobody can answer now."}`)
	equal(t, "why it ended", event.Extensions[wire.TerminationReason], "completed:degraded")
	equal(t, "messages that are kept", len(h.Messages(r)), 1)
}
