package seeds_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"agentd/internal/milestone"
	"agentd/sdk/wire"

	"agentd/internal/llm"
	"agentd/internal/llm/texttools"
	"agentd/internal/prompt"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// flaky is a model server that does its steps in order. Safe for concurrent use.
type flaky struct {
	mu    sync.Mutex
	steps []func(sdk.ModelRequest, func(sdk.Delta)) (sdk.ModelReply, error)
	asked []sdk.ModelRequest
}

func (f *flaky) Generate(_ context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta)) (sdk.ModelReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	step := f.steps[min(len(f.asked), len(f.steps)-1)]
	f.asked = append(f.asked, req)
	return step(req, onDelta)
}

func (f *flaky) requests() []sdk.ModelRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]sdk.ModelRequest(nil), f.asked...)
}

type modelStep = func(sdk.ModelRequest, func(sdk.Delta)) (sdk.ModelReply, error)

func failsWith(code sdk.Code, retryable bool) modelStep {
	return func(sdk.ModelRequest, func(sdk.Delta)) (sdk.ModelReply, error) {
		return sdk.ModelReply{}, &sdk.Error{Code: code, Message: "not now", Retryable: retryable}
	}
}

func replies(reply sdk.ModelReply) modelStep {
	return func(sdk.ModelRequest, func(sdk.Delta)) (sdk.ModelReply, error) { return reply, nil }
}

// models resolves spec over servers by name, with pauses that are only noted.
func models(t *testing.T, spec sdk.ModelSpec, servers map[string]sdk.Provider) (sdk.Provider, *[]time.Duration) {
	t.Helper()
	var slept []time.Duration
	registry, err := llm.New(llm.Config{Custom: servers, Retry: llm.RetryOptions{
		Sleep:  func(ctx context.Context, d time.Duration) error { slept = append(slept, d); return ctx.Err() },
		Random: func() float64 { return 0.5 },
	}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := registry.Provider(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p, &slept
}

// retriesAndFallbacks is row T54: what may pass is asked again after growing, jittered pauses; what does not help is not; and
// the next model is asked by the class of the failure.
func retriesAndFallbacks(t *testing.T) {
	busy := &flaky{steps: []modelStep{
		failsWith(sdk.CodeUnavailable, true), failsWith(sdk.CodeUnavailable, true), replies(sdktest.Ask(sdktest.Tool("note", n(1)))),
		failsWith(sdk.CodeModel, false),
	}}
	unasked := &flaky{steps: []modelStep{replies(sdktest.Say("wrong"))}}
	spare := &flaky{steps: []modelStep{replies(sdktest.Say("done"))}}
	p, slept := models(t, sdk.ModelSpec{Provider: "busy", Name: "large", Fallback: []sdk.ModelSpec{
		{Provider: "unasked", Name: "other", On: []sdk.Code{sdk.CodeRateLimited}},
		{Provider: "spare", Name: "small", On: []sdk.Code{sdk.CodeModel}},
	}}, map[string]sdk.Provider{"busy": busy, "unasked": unasked, "spare": spare})
	a := desk()
	a.Tools = []sdk.Tool{echo("note")}
	h := start(t, p, a)
	_, events := watchedRun(t, h, nil)
	// With the middle of the random numbers a pause is three quarters of its interval.
	equal(t, "pauses", *slept, []time.Duration{375 * time.Millisecond, 750 * time.Millisecond})
	equal(t, "requests", []int{len(busy.requests()), len(unasked.requests()), len(spare.requests())}, []int{4, 0, 1})
	var by []string
	for _, l := range events {
		if l.Type == wire.LiveUsage {
			var used struct{ Model string }
			if err := json.Unmarshal(l.Data, &used); err != nil {
				t.Fatal(err)
			}
			by = append(by, used.Model)
		}
	}
	equal(t, "who answered", by, []string{"large", "small"})
}

// truncation is row T55: a reply that its limit of length cut, or whose connection broke, is gone on with, and is one reply.
func truncation(t *testing.T) {
	cut := sdktest.Say("the answer ")
	cut.Truncated = true
	server := &flaky{steps: []modelStep{
		replies(cut),
		func(_ sdk.ModelRequest, onDelta func(sdk.Delta)) (sdk.ModelReply, error) {
			onDelta(sdk.Delta{Text: "is "})
			return sdk.ModelReply{}, &sdk.Error{Code: sdk.CodeUnavailable, Message: "broke off", Retryable: true}
		},
		replies(sdktest.Say("42")),
	}}
	p, slept := models(t, sdk.ModelSpec{Provider: "a", Name: "m"}, map[string]sdk.Provider{"a": server})
	h := start(t, p, desk())
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "the answer is 42"}`)
	requests := server.requests()
	equal(t, "requests", len(requests), 3)
	shown := requests[2].Messages
	equal(t, "what it goes on with", []string{shown[len(shown)-4].PlainText(), shown[len(shown)-2].PlainText()}, []string{"the answer ", "is "})
	equal(t, "pauses", len(*slept), 0)
	state := h.State(r)
	equal(t, "one interaction with the tokens of both replies", []any{state.Turns, state.Usage.Completion}, []any{1, int64(2)})
	equal(t, "what the run keeps", len(h.Messages(r)), 2)

	endless := &flaky{steps: []modelStep{replies(cut)}}
	p, _ = models(t, sdk.ModelSpec{Provider: "a", Name: "m"}, map[string]sdk.Provider{"a": endless})
	h = start(t, p, desk())
	succeeds(t, h, h.Run("desk", message("hello")), `{"response": "`+strings.Repeat("the answer ", 4)+`"}`)
	equal(t, "requests for a reply without an end", len(endless.requests()), 1+3)
}

// errorClasses is rows F35, F37 and F38: each kind of fault in a call is told as its own class, a bare & is repaired, and a
// reply of more than 10 MiB is refused as one that cannot be parsed.
func errorClasses(t *testing.T) {
	a := desk()
	a.Tools = []sdk.Tool{echo("note"), failing("broken")}
	a.Tools[0].Definition.Parameters = []byte(`{"type": "object", "properties": {"said": {"type": "string"}}}`)
	a.Spec.Builtin, a.Spec.NoToolCall = []string{"task_completion"}, &sdk.NoToolCall{Policy: sdk.NoToolCallRemind, Text: "Use a tool."}
	done := sdktest.Say(`<tool>{"server_name":"local","tool_name":"task_completion","arguments":{"result":"done"}}</tool>`)
	model := sdktest.Script(
		sdktest.Say("Let me think."),
		sdktest.Say("<tool>{oops}</tool>"),
		sdktest.Say(`<tool>{"server_name":"local","arguments":{}}</tool>`),
		writing("local", "nothing", `{}`),
		writing("local", "broken", `{"n":1}`),
		sdktest.Say("<tool><server_name>local</server_name><tool_name>note</tool_name><arguments><said>salt & pepper</said></arguments></tool>"),
		sdktest.Say("<tool>"+strings.Repeat("x", texttools.MaxText)+"</tool>"),
		done)
	h := start(t, inText(t, model), a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	requests := asked(t, model, 8)
	for i, want := range []string{
		1: "Use a tool.", 2: "parse_error", 3: "missing_field", 4: "unknown_tool", 5: string(sdk.CodeTool), 6: `{"said":"salt & pepper"}`, 7: "parse_error",
	} {
		messages := requests[i].Messages
		if got := messages[len(messages)-1].PlainText(); !strings.Contains(got, want) {
			t.Errorf("request %d does not tell of %q: %s", i, want, got)
		}
	}
	state := h.State(r)
	equal(t, "replies that could not be understood", state.Misread, 3)
	reminded := 0
	for _, e := range h.Journal(r) {
		for _, m := range milestone.Of(&e) {
			if m.Type == wire.MilestoneReminded {
				reminded++
			}
		}
	}
	equal(t, "no tool call, or none that can be understood", reminded, 1+3)
}

// frontier is row T60: where the conversation is cut for a summary, no call is parted from its results; of large results the
// summary is made of a preview.
func frontier(t *testing.T) {
	script := sdktest.Script(
		sdktest.Ask(sdktest.Tool("note", n(0)), sdktest.Tool("note", n(1))), sdktest.Ask(sdktest.Tool("note", n(2)), sdktest.Tool("note", n(3))),
		sdktest.Ask(sdktest.Tool("note", n(4))), sdktest.Say("done"))
	var mu sync.Mutex
	var summarised []string
	model := sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		if strings.HasPrefix(req.System, "You keep the memory") {
			mu.Lock()
			defer mu.Unlock()
			summarised = append(summarised, req.Messages[0].PlainText())
			return sdktest.Say("I noted things."), nil
		}
		return script.Generate(ctx, req, nil)
	})
	a := desk()
	a.Spec.Memory = &sdk.Memory{Window: 8000, Compact: true}
	a.Tools = []sdk.Tool{internal("note", func(context.Context, sdk.ToolCall) ([]byte, error) {
		return json.Marshal(strings.Repeat("long ", 2000))
	})}
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	history := h.Messages(r)
	cuts := 0
	for _, e := range h.Journal(r) {
		if e.Summary == nil {
			continue
		}
		cuts++
		if !prompt.Frontier(history, e.Summary.Messages) {
			t.Errorf("the summary of %d messages parts a call from its result", e.Summary.Messages)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if cuts == 0 || len(summarised) != cuts {
		t.Fatalf("%d summaries of %d cuts", len(summarised), cuts)
	}
	ordered(t, summarised[0], "result of note: ", "… (the beginning of 10002 bytes)")
	if len(summarised[0]) > 8000 {
		t.Errorf("a summary is made of %d bytes", len(summarised[0]))
	}
}
