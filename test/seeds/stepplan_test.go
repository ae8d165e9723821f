package seeds_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// The models of an agent that plans.
const (
	plannerModel     = "planner"
	routerModel      = "router"
	synthesizerModel = "writer"
)

// cast plays the models of an agent that plans: the planner and the writer say one thing after the other, and so does the router for each
// step, by the beginning of what it is asked.
type cast struct {
	plans, answers []string
	// loop are the replies of the agent's own model.
	loop   []sdk.ModelReply
	routes map[string][]sdk.ModelReply

	mu       sync.Mutex
	requests []sdk.ModelRequest
}

func (c *cast) Generate(_ context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta)) (sdk.ModelReply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, req)
	next := func(texts *[]string) (sdk.ModelReply, error) {
		if len(*texts) == 0 {
			return sdk.ModelReply{}, sdk.Errorf(sdk.CodeModel, "%s is asked too often", req.Model)
		}
		text := (*texts)[0]
		*texts = (*texts)[1:]
		onDelta(sdk.Delta{Text: text})
		return repliedBy(req, sdktest.Say(text)), nil
	}
	switch req.Model {
	case plannerModel:
		return next(&c.plans)
	case synthesizerModel:
		return next(&c.answers)
	case routerModel:
		for step, replies := range c.routes {
			if strings.HasPrefix(req.Messages[0].PlainText(), "Step: "+step) && len(replies) > 0 {
				c.routes[step] = replies[1:]
				return repliedBy(req, replies[0]), nil
			}
		}
	default:
		if len(c.loop) > 0 {
			reply := c.loop[0]
			c.loop = c.loop[1:]
			return repliedBy(req, reply), nil
		}
	}
	return sdk.ModelReply{}, sdk.Errorf(sdk.CodeModel, "nobody knows what to say to %s: %s", req.Model, req.Messages[0].PlainText())
}

// repliedBy is a reply with what it cost, of the model that was asked.
func repliedBy(req sdk.ModelRequest, reply sdk.ModelReply) sdk.ModelReply {
	reply.Model = req.Model
	return reply
}

// of are the requests to a model.
func (c *cast) of(model string) []sdk.ModelRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.requests), func(r sdk.ModelRequest) bool { return r.Model != model })
}

// planning is a desk that plans, with a service, and two inline tools.
func planning(services ...sdk.ServiceTool) sdk.Agent {
	a := desk(services...)
	a.Spec.Mode = sdk.ModePlan
	role := func(name string) *sdk.ModelSpec { return &sdk.ModelSpec{Provider: "script", Name: name} }
	a.Spec.Plan = &sdk.PlanSpec{Planner: role(plannerModel), Router: role(routerModel), Synthesizer: role(synthesizerModel)}
	a.Tools = []sdk.Tool{echo("note"), internal("break", func(context.Context, sdk.ToolCall) ([]byte, error) {
		return nil, sdk.Errorf(sdk.CodeTool, "it is broken")
	})}
	return a
}

func route(tool string, number int) []sdk.ModelReply {
	return []sdk.ModelReply{sdktest.Ask(sdktest.Tool(tool, n(number)))}
}

// stepsOf are the steps of a run's plan, each in one line.
func stepsOf(h *harness.Harness, r harness.Run) []string {
	var steps []string
	for _, s := range h.State(r).Plan.Steps {
		line := fmt.Sprintf("%d %s: %s", s.Number, s.Status, s.Text)
		if s.Called != "" {
			line += " with " + s.Called
		}
		if s.Fault != "" {
			line += " (" + s.Fault + ")"
		}
		steps = append(steps, line)
	}
	return steps
}

// made are the tools of the calls of a run, in their order.
func made(entries []core.Entry) []string {
	var tools []string
	for i := range entries {
		for _, m := range entries[i].Messages {
			for _, c := range m.Content {
				if c.Kind == sdk.ContentToolUse {
					tools = append(tools, c.Tool)
				}
			}
		}
	}
	return tools
}

// plannedRun is rows L6, L7, L10, L61, L64 and L67: with mode: plan the planner makes a plan without calling tools, the router chooses
// a call for each step, in the light of what it refers to, steps that need nothing of each other are made together, and the synthesizer
// writes the answer, without tools. A worker that takes over goes on from the plan as it is.
func plannedRun(t *testing.T) {
	models := &cast{
		plans: []string{`plan.add_step(step=1, tool="shop_find", text="Find the hat")
plan.add_step(step=2, text="Note the date")
plan.add_step(step=3, tool="note", text="Note what step 1 has found")
plan.done()`},
		routes:  map[string][]sdk.ModelReply{"Find the hat": route("shop_find", 1), "Note the date": route("note", 2), "Note what": route("note", 3)},
		answers: []string{"It is a hat."},
	}
	h := start(t, models, planning(service("shop.find")))
	r, events := watchedRun(t, h, func() {
		h.Restart()
		h.Call("shop.find").Answer(done("shop.find"), value("a red hat"))
	})
	succeeds(t, h, r, `{"response": "It is a hat."}`)
	equal(t, "entries", kinds(h.Parts(r)), []string{"started", "planned", "routed", "returned", "answered", "routed", "returned", "replied"})
	equal(t, "steps", stepsOf(h, r), []string{
		"1 done: Find the hat with shop_find", "2 done: Note the date with note", "3 done: Note what step 1 has found with note",
	})
	equal(t, "calls", made(h.Parts(r)), []string{"shop_find", "note", "note"})
	equal(t, "requests to the planner", len(models.of(plannerModel)), 1)
	equal(t, "tools of the planner", offers(models.of(plannerModel)[0]), []string(nil))
	equal(t, "what the planner is told of tools", strings.Contains(models.of(plannerModel)[0].System, "- note: A test's note.\n- break: A test's break."), true)
	routers := models.of(routerModel)
	equal(t, "requests to the router", len(routers), 3)
	equal(t, "tools of the router", offers(routers[2]), []string{"shop_find", "note", "break"})
	equal(t, "what the third step is told", routers[2].Messages[0].PlainText(), `Step: Note what step 1 has found

It is part of this request: hello

Result of step 1 (Find the hat): {"value":"a red hat"}

Result of step 2 (Note the date): {"n":2}`)
	equal(t, "what the first step is told", strings.Contains(routers[0].Messages[0].PlainText(), "Result of"), false)
	writer := models.of(synthesizerModel)
	equal(t, "requests to the synthesizer", len(writer), 1)
	equal(t, "tools of the synthesizer", offers(writer[0]), []string(nil))
	equal(t, "what is streamed", told(events, wire.LiveDelta), []string{`model.delta {"text":"It is a hat."}`})
	var types []string
	for _, line := range told(events, wire.MilestonePlanned, wire.MilestoneStep, wire.MilestoneStepEnded) {
		kind, _, _ := strings.Cut(line, " ")
		types = append(types, kind)
	}
	equal(t, "told", types, []string{
		"plan.created", "step.executing", "step.executing", "step.completed", "step.completed", "step.executing", "step.completed",
	})
}

// executePhase is row L9: the router makes one call for a step, and is offered the tools that fit the step or that the plan names. They are
// chosen once, with the plan: another worker that goes on offers the same, and asks for no embeddings.
func executePhase(t *testing.T) {
	models := struct {
		*cast
		*vectors
	}{
		&cast{
			plans: []string{`plan.add_step(step=1, text="Find a kitten")
plan.add_step(step=2, after=[1], text="Paint the kitchen", tool="close_account")
plan.add_step(step=3, after=[2], text="Feed the kitten")`},
			routes: map[string][]sdk.ModelReply{
				"Find a":    {sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_find", n(2)))},
				"Paint the": route("paint_wall", 3), "Feed the": route("feed_cat", 4),
			},
			answers: []string{"done"},
		},
		&vectors{},
	}
	planner, many := planning(), manyTools(&sdk.Selection{Top: 1, Embeddings: &sdk.EmbeddingModel{Provider: "script", Name: "vectors"}})
	many.Spec.Mode, many.Spec.Plan = planner.Spec.Mode, planner.Spec.Plan
	h := start(t, models, many)
	r := h.Run("desk", message("hello"))
	call := h.Call("shop.find")
	h.StopWorkers()
	models.goAway()
	h.Restart()
	call.Answer(done("shop.find"), value("a kitten"))
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "calls", made(h.Parts(r)), []string{"shop_find", "paint_wall", "feed_cat"})
	var offered [][]string
	for _, req := range models.of(routerModel) {
		offered = append(offered, offers(req))
	}
	equal(t, "offered", offered, [][]string{{"feed_cat"}, {"close_account", "paint_wall"}, {"feed_cat"}})
	equal(t, "texts that embeddings were asked for", models.askedFor(), []int{1, 42, 1, 1}) // one for each step, and the tools
	by := sdk.SelectedByEmbeddings
	equal(t, "in the journal", h.Parts(r)[1].StepOffers, []core.StepOffer{
		{Step: 1, By: by, Tools: []string{"feed_cat", sdk.ToolFindTools}},
		{Step: 2, By: by, Tools: []string{"paint_wall", sdk.ToolFindTools}},
		{Step: 3, By: by, Tools: []string{"feed_cat", sdk.ToolFindTools}},
	})
}

// loopInstead is row L11: without a plan that can be read, with an agent that does not plan, or when no step can be done, the model is asked
// in a loop. What was done is in its conversation, and is not done again.
func loopInstead(t *testing.T) {
	t.Run("off", func(t *testing.T) {
		models := &cast{loop: []sdk.ModelReply{sdktest.Say("done")}}
		a := planning(service("shop.find"))
		a.Spec.Mode, a.Spec.Plan = "", nil
		h := start(t, models, a)
		r := h.Run("desk", message("hello"))
		succeeds(t, h, r, `{"response": "done"}`)
		equal(t, "entries", kinds(h.Parts(r)), []string{"started", "replied"})
	})
	t.Run("unread", func(t *testing.T) {
		models := &cast{plans: []string{"I would look for a hat.", "Really."}, loop: []sdk.ModelReply{sdktest.Say("done")}}
		h := start(t, models, planning(service("shop.find")))
		r, events := watchedRun(t, h, nil)
		succeeds(t, h, r, `{"response": "done"}`)
		equal(t, "entries", kinds(h.Parts(r)), []string{"started", "planned", "replied"})
		equal(t, "told", told(events, wire.MilestoneUnplanned), []string{`plan.abandoned {"reason":"no step of a plan could be read"}`})
		equal(t, "why", h.State(r).Plan.Fault, "no step of a plan could be read")
	})
	t.Run("after a step", func(t *testing.T) {
		models := &cast{
			plans:  []string{`plan.add_step(text="Find the hat") plan.add_step(text="Break it")`, "No.", "No."},
			routes: map[string][]sdk.ModelReply{"Find the hat": route("shop_find", 1), "Break it": route("break", 1)},
			loop:   []sdk.ModelReply{find(1), sdktest.Say("done")},
		}
		h := start(t, models, planning(service("shop.find")))
		r := h.Run("desk", message("hello"))
		h.Call("shop.find").Answer(done("shop.find"), value("a hat"))
		succeeds(t, h, r, `{"response": "done"}`) // nobody answers a second call of the service
		equal(t, "calls", made(h.Parts(r)), []string{"shop_find", "break", "shop_find"})
		loop := models.of("desk")
		equal(t, "results in the conversation", results(t, loop[1].Messages, 3)[2].Text, `{"value":"a hat"}`)
	})
}

// failedStep is row L65: a step that fails gives up exactly those that refer to it, by number, a plan for what is left is made, and what was
// done is not done again. When no further plan may be made, the answer reports what has failed.
func failedStep(t *testing.T) {
	models := &cast{
		plans: []string{
			`plan.add_step(step=1, text="Break it") plan.add_step(step=2, after=[1], text="Note it") plan.add_step(step=3, text="Find the hat")
plan.add_step(step=10, after=[3], text="Note the hat")`,
			`plan.add_step(step=5, text="Break it again", after=[3])`,
		},
		routes: map[string][]sdk.ModelReply{
			"Break it again": route("break", 2), "Break it": route("break", 1), "Find the hat": route("shop_find", 1), "Note the hat": route("note", 3),
		},
		answers: []string{"Two things failed."},
	}
	a := planning(service("shop.find"))
	one := 1
	a.Spec.Plan.Replans = &one
	models.routes["Break it\n"] = models.routes["Break it"]
	delete(models.routes, "Break it")
	h := start(t, models, a)
	r := h.Run("desk", message("hello"))
	h.Call("shop.find").Answer(done("shop.find"), value("a hat"))
	succeeds(t, h, r, `{"response": "Two things failed."}`)
	equal(t, "steps", stepsOf(h, r), []string{
		"1 failed: Break it with break (tool_failed: it is broken)", "3 done: Find the hat with shop_find", "4 done: Note the hat with note",
		"5 failed: Break it again with break (tool_failed: it is broken)",
	})
	second := models.of(plannerModel)[1].System
	for _, want := range []string{"Step 1 has failed: Break it", "Step 3 is done: Find the hat\n  Result: {\"value\":\"a hat\"}", "Number them from 5 on"} {
		if !strings.Contains(second, want) {
			t.Errorf("the planner is not told %q:\n%s", want, second)
		}
	}
	writer := models.of(synthesizerModel)[0]
	told := writer.Messages[len(writer.Messages)-1].PlainText()
	if !strings.Contains(told, "Step 5 has failed (tool_failed: it is broken): Break it again") {
		t.Errorf("the synthesizer is told\n%s", told)
	}
}

// stepRetries is row L66: a router that makes no call that can be made is asked three times, the last times with what is wrong and an
// example; a text that names one tool is taken for its call then, and else the step has failed.
func stepRetries(t *testing.T) {
	models := &cast{
		plans: []string{`plan.add_step(text="Note one") plan.add_step(text="Note two") plan.add_step(text="Note three")`, "No.", "No."},
		routes: map[string][]sdk.ModelReply{
			"Note one": {sdktest.Say("Gladly."), sdktest.Ask(sdktest.Tool("note", map[string]any{"n": "x"})), sdktest.Ask(sdktest.Tool("note", n(1)))},
			"Note two": {sdktest.Say("No."), sdktest.Say("No."), sdktest.Say(`Call note with text="two".`)},
			"Note thr": {sdktest.Say("No."), sdktest.Say("No."), sdktest.Say("note or break")},
		},
		loop: []sdk.ModelReply{sdktest.Say("done")},
	}
	a := planning()
	a.Tools[0].Definition.Parameters = []byte(`{"type":"object","properties":{"n":{"type":"integer"},"text":{"type":"string"}},"additionalProperties":false}`)
	h := start(t, models, a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "calls", made(h.Parts(r)), []string{"note", "note"})
	equal(t, "steps", stepsOf(h, r), []string{"1 done: Note one with note", "2 done: Note two with note", "3 failed: Note three (no call was chosen for it)"})
	equal(t, "requests to the router", len(models.of(routerModel)), 9)
	again := 0
	for _, req := range models.of(routerModel) {
		for _, m := range req.Messages[1:] {
			if m.Role == sdk.RoleUser {
				again++
				if !strings.HasSuffix(m.PlainText(), `Make one call of one tool, such as note, break, with its arguments as a JSON object. For example: {"name": "note", "arguments": {}}`) {
					t.Errorf("a router is asked again with %s", m.PlainText())
				}
			}
		}
	}
	equal(t, "what routers are told that made no call", again, 9)
}

// planParser is row L61: plans are read as calls, and else as JSON that is repaired, and an answer is taken where no steps are needed.
func planParser(t *testing.T) {
	for name, c := range map[string]struct {
		plan  string
		calls sdk.ToolCallMode
		// form is the beginning of the example that the planner is shown, and output whether it is asked for structured output.
		form   string
		output bool
	}{
		"calls": {calls: sdk.ToolCallsBracket, form: "Form:\nplan.add_step(step=1", plan: "Here:\n```\nplan.add_step(step=1, server='shop', description='Note one')\nplan.add_step(step=2, after=[1], text=\"Note \\\"two\\\"\")\n```"},
		"json":  {calls: sdk.ToolCallsNative, form: "Form:\n{\"steps\": [", output: true, plan: `Sure: {"needs_tools": true, "steps": [{"step_number": 1, "description": "Note one", "expected_server": "shop"}, {"step_number": 2, "description": "Note \"two\"", "depends_on": [1]},]}`},
	} {
		t.Run(name, func(t *testing.T) {
			models := &cast{
				plans: []string{c.plan}, answers: []string{"done"},
				routes: map[string][]sdk.ModelReply{"Note one": route("note", 1), `Note "two"`: route("note", 2)},
			}
			agent := planning()
			agent.Spec.Plan.Planner.ToolCalls = c.calls
			h := start(t, models, agent)
			r := h.Run("desk", message("hello"))
			succeeds(t, h, r, `{"response": "done"}`)
			equal(t, "entries", kinds(h.Parts(r)), []string{"started", "planned", "routed", "returned", "routed", "returned", "replied"})
			asked := models.of(plannerModel)[0]
			equal(t, "the form is told", strings.Contains(asked.System, c.form), true)
			equal(t, "structured output is asked for", strings.Contains(string(asked.Output), `"steps"`), c.output)
		})
	}
	t.Run("answer", func(t *testing.T) {
		models := &cast{plans: []string{`plan.respond(message="Hello to you.")`}}
		h := start(t, models, planning())
		r := h.Run("desk", message("hello"))
		succeeds(t, h, r, `{"response": "Hello to you."}`)
		equal(t, "entries", kinds(h.Parts(r)), []string{"started", "replied"})
	})
}

// planTemplates is row L62: a request with a word of each group of a template has its plan, and no planner is asked.
func planTemplates(t *testing.T) {
	models := &cast{answers: []string{"done"}, routes: map[string][]sdk.ModelReply{"Note it": route("note", 1), "Note that": route("note", 2)}}
	a := planning()
	a.Spec.Plan.Templates = []sdk.PlanTemplate{
		{Name: "other", Keywords: [][]string{{"note"}, {"cat"}}, Steps: []sdk.TemplateStep{{Text: "Feed it"}}},
		{Name: "memo", Keywords: [][]string{{"note", "write"}, {"date", "day"}}, Steps: []sdk.TemplateStep{
			{Text: "Note it", Tool: "note"}, {Text: "Note that", After: []int{1}},
		}},
	}
	h := start(t, models, a)
	r := h.Run("desk", message("Please note the day."))
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "entries", kinds(h.Parts(r)), []string{"started", "planned", "routed", "returned", "routed", "returned", "replied"})
	equal(t, "requests to the planner", len(models.of(plannerModel)), 0)
	equal(t, "made by", h.State(r).Plan.By, "memo")
	equal(t, "steps", stepsOf(h, r), []string{"1 done: Note it with note", "2 done: Note that with note"})
}

// underDecomposed is row L63: a request for several things that is planned as one step is planned again, once; a longer plan is taken.
func underDecomposed(t *testing.T) {
	twice := []string{`plan.add_step(text="Note it twice")`, `plan.add_step(text="Note it") plan.add_step(text="Note it again")`}
	for name, c := range map[string]struct {
		request string
		plans   []string
		steps   int
	}{
		"longer":     {"Note it and then note it again", twice, 2},
		"also":       {"Note it and also note it again", twice, 2},
		"semicolon":  {"Note it; note it again", twice, 2},
		"send":       {"Find the hat and send it", twice, 2},
		"delete":     {"List the files and delete the old ones", twice, 2},
		"as before":  {"Note it and then note it again", []string{`plan.add_step(text="Note it")`, "What?"}, 1},
		"an answer":  {"Note it and then note it again", []string{`plan.add_step(text="Note it")`, `plan.respond(message="No.")`}, 1},
		"not joined": {"Note it", []string{`plan.add_step(text="Note it")`}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			models := &cast{
				plans: c.plans, answers: []string{"done"},
				routes: map[string][]sdk.ModelReply{"Note it": {route("note", 1)[0], route("note", 2)[0]}},
			}
			h := start(t, models, planning())
			r := h.Run("desk", message(c.request))
			succeeds(t, h, r, `{"response": "done"}`)
			equal(t, "steps", len(stepsOf(h, r)), c.steps)
			equal(t, "requests to the planner", len(models.of(plannerModel)), len(c.plans))
		})
	}
}
