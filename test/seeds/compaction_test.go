package seeds_test

import (
	"context"
	"encoding/json"
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

// reader is an agent with a small window that reads files of 3,000 characters, as many as calls.
func reader(calls int) (sdk.Agent, *sdktest.Model) {
	a := desk()
	a.Spec.System, a.Spec.Model.ContextWindow, a.Spec.Limits.Interactions = "You read files.", 8000, 60
	a.Tools = []sdk.Tool{{
		Definition: sdk.ToolDefinition{Name: "read", Parameters: []byte(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`)},
		Run: func(_ context.Context, call sdk.ToolCall) (json.RawMessage, error) {
			return json.Marshal(string(call.Args) + strings.Repeat(" words of a file", 180))
		},
	}}
	var replies []sdk.ModelReply
	for i := range calls {
		replies = append(replies, sdktest.Ask(sdktest.Tool("read", map[string]any{"path": fmt.Sprintf("/files/%d", i)})))
	}
	return a, sdktest.Script(append(replies, sdktest.Say("done"))...)
}

// summaries are those of a run, in order.
func summaries(t *testing.T, h *harness.Harness, r harness.Run) []core.Summary {
	t.Helper()
	var all []core.Summary
	for _, e := range h.Parts(r) {
		if e.Summary == nil {
			continue
		}
		equal(t, "kind", e.Kind, core.KindCompacted)
		if n := len(all); n > 0 && (e.Summary.Messages < all[n-1].Messages || e.Summary.Lined <= all[n-1].Lined) {
			t.Errorf("a summary up to %d, in one line up to %d, follows one up to %d and %d", e.Summary.Messages, e.Summary.Lined, all[n-1].Messages, all[n-1].Lined)
		}
		all = append(all, *e.Summary)
	}
	if len(all) == 0 {
		t.Fatal("nothing was shortened")
	}
	return all
}

// ledger is what a context.budget event says.
type ledger struct {
	Total, System, Tools, Summary, Sections, History, Output, Safety, Remaining int
	Final                                                                       bool
}

func ledgers(t *testing.T, events []wire.Live) []ledger {
	t.Helper()
	var all []ledger
	for _, e := range events {
		if e.Type != wire.LiveContextBudget {
			continue
		}
		var l ledger
		if err := json.Unmarshal(e.Data, &l); err != nil {
			t.Fatal(err)
		}
		if sum := l.System + l.Tools + l.Summary + l.Sections + l.History + l.Output + l.Safety + l.Remaining; sum != l.Total {
			t.Errorf("the parts make %d of %d: %+v", sum, l.Total, l)
		}
		all = append(all, l)
	}
	return all
}

// eviction is rows L3, L23, L24, L31, L32 and L51: each round's messages are built anew, the oldest results become one line and then a part of
// the summary in the system prompt, which names the files; the task, the newest messages and every pair of call and result stay. All of
// it is in the journal, for another worker.
func eviction(t *testing.T) {
	const calls = 30
	a, model := reader(calls)
	h := start(t, model, a)
	r, events := watchedRun(t, h, nil)
	all := summaries(t, h, r)
	requests := asked(t, model, calls+1)
	lined := 0
	for i, req := range requests {
		equal(t, "the task", req.Messages[0].PlainText(), "hello")
		pairs := map[string]int{}
		for _, m := range req.Messages {
			for _, c := range m.Content {
				pairs[c.CallID]++
				if c.Kind == sdk.ContentToolResult && strings.HasPrefix(c.Text, `[{"path":"/files/`) && len(c.Text) < 250 {
					lined++
				}
			}
		}
		delete(pairs, "")
		for id, n := range pairs {
			equal(t, "messages of call "+id, n, 2)
		}
		if newest := req.Messages[len(req.Messages)-1]; i > 0 && len(newest.Content[0].Text) < 2500 {
			t.Errorf("of the newest result %d bytes are shown", len(newest.Content[0].Text))
		}
	}
	if lined == 0 {
		t.Error("no result was shown in one line")
	}
	last := requests[calls]
	ordered(t, last.System, "You read files.", "<conversation_summary>", `- read {"path":"/files/`, "→ {\"path\":\"/files/", "Files that were touched: ", "</conversation_summary>")
	newest := all[len(all)-1]
	equal(t, "the first file", newest.Files[0], "/files/0")
	if newest.Messages < 3 || newest.Lined <= newest.Messages || newest.Evicted < 500 {
		t.Errorf("the last summary is %+v", newest)
	}
	equal(t, "messages in the journal", len(h.Messages(r)), 1+2*calls+1)
	equal(t, "summaries that are told of", len(told(events, wire.MilestoneCompacted)), len(all))
	// Another worker knows the summary from the journal alone.
	h.Restart()
	equal(t, "the summary of the state", *h.State(r).Summary, newest)
}

// receipt is row L2: a conversation that is too long when it comes is shortened before the first model call, and the entry says by
// how much.
func receipt(t *testing.T) {
	a := desk()
	a.Spec.Model.ContextWindow = 8000
	a.Hooks.Context = func(context.Context, sdk.ContextInput) (sdk.Context, error) {
		var before []sdk.Message
		for i := range 20 {
			before = append(before, sdk.Text(sdk.RoleAssistant, strings.Repeat("I said. ", 100)), sdk.Text(sdk.RoleUser, fmt.Sprint("Then I asked ", i, strings.Repeat(" and asked", 40))))
		}
		return sdk.Context{Messages: append([]sdk.Message{sdk.Text(sdk.RoleUser, "My first question.")}, append(before, sdk.Text(sdk.RoleUser, "My last question."))...)}, nil
	}
	model := sdktest.Script(sdktest.Say("done"))
	h := start(t, model, a)
	r, events := watchedRun(t, h, nil)
	evicted := summaries(t, h, r)[0].Evicted
	journal := h.Parts(r)
	equal(t, "entries", []string{journal[0].Kind, journal[1].Kind, journal[2].Kind}, []string{core.KindStarted, core.KindCompacted, core.KindReplied})
	if evicted < 1500 || evicted > 10_000 {
		t.Errorf("%d tokens were evicted", evicted)
	}
	ordered(t, told(events, wire.MilestoneCompacted)[0], fmt.Sprintf(`"evicted":%d`, evicted))
	messages := last(t, model).Messages
	equal(t, "the first words", messages[0].PlainText(), "My first question.")
	equal(t, "the last words", messages[len(messages)-1].PlainText(), "My last question.")
	if len(messages) > 25 {
		t.Errorf("%d messages are shown", len(messages))
	}
}

// budgets is rows L5, L34 and L43: each model call is told of with all parts of its window; the definitions of tools are measured, and
// estimates have the seed's two ratios.
func budgets(t *testing.T) {
	a := desk()
	a.Spec.Model.ContextWindow, a.Spec.System = 8000, strings.Repeat("s", 320)
	a.Tools = []sdk.Tool{returning("look", strings.Repeat("r", 278))}
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("look", n(1))), sdktest.Say("done"))
	h := start(t, model, a)
	_, events := watchedRun(t, h, nil)
	got := ledgers(t, events)
	equal(t, "budgets that are told", len(got), 2)
	first := got[0]
	equal(t, "the system prompt of 320 bytes", first.System, 100)
	equal(t, "the window", []int{first.Total, first.Output, first.Safety, first.Summary, first.Sections}, []int{8000, 2000, 768, 0, 0})
	equal(t, "the task", first.History, 4+2)
	call, result := 4+10+2+3, 4+10+100
	equal(t, "call and result of 280 bytes", got[1].History, first.History+call+result)
	equal(t, "what is left", got[1].Remaining, first.Remaining-call-result)
	a.Tools = append(a.Tools, echo("note"))
	_, events = watchedRun(t, start(t, sdktest.Script(sdktest.Say("done")), a), nil)
	more := ledgers(t, events)[0].Tools - first.Tools
	if definition := len(numberInput) + len("A test's note.") + len("note"); more < definition/4 || more > definition/2+10 {
		t.Errorf("another tool of %d bytes takes %d tokens", definition, more)
	}
}

// gate is row L12: where a prompt leaves too little for a round, the model is asked for its final answer, without tools.
func gate(t *testing.T) {
	a := desk()
	a.Spec.Model.ContextWindow = 8000
	a.Tools = []sdk.Tool{echo("note")}
	for _, fits := range []bool{true, false} {
		task := strings.Repeat("x", 8000) // 2,500 tokens of the 5,232 that a prompt may have
		if !fits {
			task = strings.Repeat("x", 12_300) // 3,844 tokens leave less than 1,500
		}
		model := sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1))), sdktest.Say("done"))
		if !fits {
			model = sdktest.Script(sdk.ModelReply{Text: "done", Calls: []sdk.ToolRequest{sdktest.Tool("note", n(1))}})
		}
		h := start(t, model, a)
		l := listen(t, h, t.Name())
		r := h.Run("desk", message(task))
		succeeds(t, h, r, `{"response": "done"}`)
		l.await(t, "run.finished", 1)
		if err := l.stop(); err != nil {
			t.Fatal(err)
		}
		first := ledgers(t, l.all())[0]
		request := model.Requests()[0]
		final := strings.HasPrefix(request.Messages[len(request.Messages)-1].PlainText(), "There is no room left to call tools.")
		equal(t, "what is told", []bool{first.Final, first.Remaining < 1500, final, len(request.Tools) == 0}, []bool{!fits, !fits, !fits, !fits})
	}
}

// exactGate is row L12's number: with 1,500 tokens left a round is made, with 1,499 it is not.
func exactGate(t *testing.T) {
	a := desk()
	a.Spec.Model.ContextWindow, a.Tools = 8000, []sdk.Tool{echo("note")}
	told := func(bytes int) ledger {
		h := start(t, sdktest.Script(sdktest.Say("done")), a)
		l := listen(t, h, t.Name())
		succeeds(t, h, h.Run("desk", message(strings.Repeat("x", bytes))), `{"response": "done"}`)
		l.await(t, "run.finished", 1)
		return ledgers(t, l.all())[0]
	}
	spare := told(3200).Remaining + 1000 // without the task, of which 3.2 bytes are a token
	for left, final := range map[int]bool{1500: false, 1499: true} {
		l := told((spare - left) * 16 / 5)
		equal(t, "what is left, and whether it is the last", []any{l.Remaining, l.Final}, []any{left, final})
	}
}

func gates(t *testing.T) {
	t.Run("what is left", gate)
	t.Run("exactly", exactGate)
	t.Run("with hooks", everyPromptFits)
}

// summarised runs the reader with a model that summarises, and returns what that was asked, by the name of the model.
func summarised(t *testing.T, a sdk.Agent, script *sdktest.Model, say func(system string) (string, error)) (asked map[string][]sdk.ModelRequest, r harness.Run, h *harness.Harness, events []wire.Live) {
	t.Helper()
	var mu sync.Mutex
	asked = map[string][]sdk.ModelRequest{}
	model := sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		if !strings.HasPrefix(req.System, "You keep the memory") {
			return script.Generate(ctx, req, nil)
		}
		mu.Lock()
		defer mu.Unlock()
		asked[req.Model] = append(asked[req.Model], req)
		text, err := say(req.System)
		return sdktest.Say(text), err
	})
	h = start(t, model, a)
	r, events = watchedRun(t, h, nil)
	return asked, r, h, events
}

// toolSummaries is rows F42, F45 and F46: calls and results are summarised in batches, under headings, by the model that is named for it;
// who watches is told of the beginning, the progress, the end and the failure.
func toolSummaries(t *testing.T) {
	a, script := reader(40)
	a.Spec.Memory = &sdk.Memory{Summarizer: &sdk.ModelSpec{Provider: "script", Name: "cheap"}}
	failures := 0
	by, r, h, events := summarised(t, a, script, func(string) (string, error) {
		if failures++; failures == 1 {
			return "", sdk.Errorf(sdk.CodeModel, "no summary today")
		}
		return "**Operations**: I read files.", nil
	})
	if len(by["cheap"]) < 2 || len(by) != 1 {
		t.Fatalf("summaries were asked of %v", by)
	}
	request := by["cheap"][0]
	for _, heading := range []string{"Strategy", "Operations", "Discoveries", "Dead ends", "What worked", "Critical artifacts", "Status (complete, partial or blocked)"} {
		if !strings.Contains(request.System, heading) {
			t.Errorf("the heading %s is missing in %s", heading, request.System)
		}
	}
	ordered(t, request.Messages[0].PlainText(), "The agent's task: hello", `call of read: {"path":"/files/0"}`, "result of read: ")
	equal(t, "tools", len(request.Tools), 0)
	all := summaries(t, h, r)
	ordered(t, all[len(all)-1].Text, `- read {"path":"/files/0"}`, "**Operations**: I read files.") // the first failed
	equal(t, "started", len(told(events, wire.LiveCompacting)), len(all))
	equal(t, "ended", len(told(events, wire.MilestoneCompacted)), len(all))
	ordered(t, told(events, wire.LiveCompactionFailed)[0], `"error":"no summary today"`)
	var progress struct{ Done, Batches, Messages, Evicted int }
	if err := json.Unmarshal([]byte(strings.TrimPrefix(told(events, wire.LiveCompactionProgress)[0], wire.LiveCompactionProgress)), &progress); err != nil {
		t.Fatal(err)
	}
	if progress.Done != 1 || progress.Batches < 1 || progress.Messages < 2 || progress.Evicted < 500 {
		t.Errorf("the progress is %+v", progress)
	}
	var kinds []string
	for _, e := range events {
		if strings.HasPrefix(e.Type, "context.compact") {
			kinds = append(kinds, e.Type)
		}
	}
	failed := slices.Index(kinds, wire.LiveCompactionFailed)
	equal(t, "events of the first that failed", kinds[failed-1:failed+2], []string{wire.LiveCompacting, wire.LiveCompactionFailed, wire.LiveCompactionProgress})
}

// goalBatches is row F44: what people said is summarised in batches of three to six turns, under the headings of a goal.
func goalBatches(t *testing.T) {
	a := desk()
	a.Spec.Model.ContextWindow, a.Spec.Memory = 8000, &sdk.Memory{Compact: true}
	const said = 26
	a.Hooks.Context = func(context.Context, sdk.ContextInput) (sdk.Context, error) {
		messages := []sdk.Message{sdk.Text(sdk.RoleUser, "hello")}
		for i := range said {
			role := []sdk.Role{sdk.RoleAssistant, sdk.RoleUser}[i%2]
			messages = append(messages, sdk.Text(role, fmt.Sprintf("turn %d, %s", i, strings.Repeat("and so on ", 60))))
		}
		return sdk.Context{Messages: messages}, nil
	}
	by, r, h, _ := summarised(t, a, sdktest.Script(sdktest.Say("done")), func(string) (string, error) { return "**Goal**: to go on.", nil })
	requests := by["desk"]
	if len(requests) < 2 {
		t.Fatalf("%d batches", len(requests))
	}
	turns := 0
	for _, request := range requests {
		for _, heading := range []string{"Goal", "What the user asked or decided", "Achieved", "Dead ends", "Lasting constraints", "Key facts", "Open items"} {
			if !strings.Contains(request.System, heading) {
				t.Errorf("the heading %s is missing in %s", heading, request.System)
			}
		}
		n := strings.Count(request.Messages[0].PlainText(), ": turn ")
		if n < 3 || n > 6 {
			t.Errorf("a batch has %d turns", n)
		}
		turns += n
	}
	all := summaries(t, h, r)
	equal(t, "turns that are summarised", turns, all[len(all)-1].Messages-1)
	equal(t, "summaries of batches", strings.Count(all[len(all)-1].Text, "**Goal**: to go on."), len(requests))
	equal(t, "what they cost", h.State(r).Units, sdk.Units(1_000_000*(1+len(requests))))
}

// toolMerge is row L4: services, agentd's own tools and those of MCP servers are offered together, each once, in this order.
func toolMerge(t *testing.T) {
	a := desk(service("shop.find"))
	a.Spec.Builtin = []string{sdk.ToolUpdatePlan}
	a.Tools = []sdk.Tool{echo("note")}
	a.Toolsets = []sdk.Toolset{mcpServer(t, "red"), mcpServer(t, "blue")}
	model := sdktest.Script(sdktest.Say("done"))
	h := start(t, model, a)
	succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
	var names []string
	for _, d := range last(t, model).Tools {
		names = append(names, d.Name)
	}
	equal(t, "tools", names, []string{"shop_find", "update_plan", "note", "red_inc", "blue_inc"})
}

// calibrated sees that what a provider counts makes the estimate more exact.
func calibrated(t *testing.T) {
	a, script := reader(3)
	a.Spec.Model.ContextWindow = 20_000
	used := sdk.Usage{Prompt: 1, Completion: 1}
	var estimates []int
	model := sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		reply, err := script.Generate(ctx, req, nil)
		bytes := 0
		for _, m := range req.Messages {
			for _, c := range m.Content {
				bytes += len(c.Text)
			}
		}
		used.Prompt = int64(bytes / 2) // of this model two bytes are a token
		reply.Usage = used
		return reply, err
	})
	h := start(t, model, a)
	r, events := watchedRun(t, h, nil)
	for _, l := range ledgers(t, events) {
		estimates = append(estimates, l.History)
	}
	if learnt := h.State(r).Calibration; learnt < 1200 || learnt > 1500 {
		t.Errorf("for a thousand tokens the provider counts %d", learnt)
	}
	if grown := slices.IsSorted(estimates); !grown || int64(estimates[3]) < used.Prompt*9/10 || int64(estimates[3]) > used.Prompt*11/10 {
		t.Errorf("the history is estimated at %v tokens; the provider counted %d of the last", estimates, used.Prompt)
	}
}

// uncalibrated sees that nothing is learnt of an estimate from another.
func uncalibrated(t *testing.T) {
	a, script := reader(3)
	model := sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		reply, err := script.Generate(ctx, req, nil)
		reply.Usage, reply.Estimated = sdk.Usage{Prompt: 100_000, Completion: 1}, true
		return reply, err
	})
	h := start(t, model, a)
	r, _ := watchedRun(t, h, nil)
	if learnt := h.State(r).Calibration; learnt != 0 {
		t.Errorf("for a thousand tokens the provider is said to count %d", learnt)
	}
}

// estimates is rows L5, L34 and L43.
func estimates(t *testing.T) {
	t.Run("parts", budgets)
	t.Run("calibration", calibrated)
	t.Run("no calibration", uncalibrated)
}
