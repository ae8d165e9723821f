package seeds_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"agentd/internal/harness"
	"agentd/internal/llm"
	"agentd/internal/milestone"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
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

// models resolves spec over servers by name, with pauses that are only noted. The random numbers come one after the other.
func models(t *testing.T, spec sdk.ModelSpec, servers map[string]sdk.Provider, random ...float64) (sdk.Provider, *[]time.Duration) {
	t.Helper()
	var slept []time.Duration
	registry, err := llm.New(llm.Config{Custom: servers, Retry: llm.RetryOptions{
		Sleep:  func(ctx context.Context, d time.Duration) error { slept = append(slept, d); return ctx.Err() },
		Random: func() float64 { return random[len(slept)%len(random)] },
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

// retriesAndFallbacks is row T54: what may pass is asked again, after pauses that double, are jittered, and are longer where the
// server limits the rate; what does not help is not asked again; and which model is asked next depends on how the one before failed.
func retriesAndFallbacks(t *testing.T) {
	limited := func(sdk.ModelRequest, func(sdk.Delta)) (sdk.ModelReply, error) {
		return sdk.ModelReply{}, &sdk.Error{Code: "rate_limited", Message: "slowly", Retryable: true}
	}
	busy := &flaky{steps: []modelStep{
		failsWith("unavailable", true), failsWith("unavailable", true), failsWith("unavailable", true), limited,
		replies(sdktest.Ask(sdktest.Tool("note", n(1)))),
		failsWith("model_failed", false),
	}}
	unasked := &flaky{steps: []modelStep{replies(sdktest.Say("wrong"))}}
	spare := &flaky{steps: []modelStep{replies(sdktest.Say("done"))}}
	p, slept := models(t, sdk.ModelSpec{Provider: "busy", Name: "large", Fallback: []sdk.ModelSpec{
		{Provider: "unasked", Name: "other", On: []sdk.Code{"rate_limited"}},
		{Provider: "spare", Name: "small", On: []sdk.Code{"model_failed"}},
	}}, map[string]sdk.Provider{"busy": busy, "unasked": unasked, "spare": spare}, 0, 0.5, 0.25, 0)
	a := desk()
	a.Tools = []sdk.Tool{echo("note")}
	h := start(t, p, a)
	_, events := watchedRun(t, h, nil)
	// Of intervals of 0.5, 1 and 2 seconds, and of 2 seconds for who limits the rate, half is waited and a random part of the rest.
	equal(t, "pauses", *slept, []time.Duration{250 * time.Millisecond, 750 * time.Millisecond, 1250 * time.Millisecond, time.Second})
	equal(t, "requests", []int{len(busy.requests()), len(unasked.requests()), len(spare.requests())}, []int{6, 0, 1})
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

	away := &flaky{steps: []modelStep{failsWith("unavailable", true)}}
	spare = &flaky{steps: []modelStep{replies(sdktest.Say("done"))}}
	p, slept = models(t, sdk.ModelSpec{Provider: "away", Name: "large", Fallback: []sdk.ModelSpec{{Provider: "spare", Name: "small"}}},
		map[string]sdk.Provider{"away": away, "spare": spare}, 0)
	h = start(t, p, desk())
	succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
	equal(t, "requests before another model is asked", []int{len(away.requests()), len(*slept)}, []int{6, 5})
}

// breaks is a server whose connection breaks after some text.
func breaks(text string) modelStep {
	return func(_ sdk.ModelRequest, onDelta func(sdk.Delta)) (sdk.ModelReply, error) {
		onDelta(sdk.Delta{Text: text})
		return sdk.ModelReply{}, &sdk.Error{Code: "unavailable", Message: "broke off", Retryable: true}
	}
}

// truncation is row T55: a reply that its limit of length cut is gone on with, three times at most; one whose connection broke
// twice at most, then it is begun anew after a pause. The parts are one reply.
func truncation(t *testing.T) {
	cut := sdktest.Say("the answer ")
	cut.Truncated = true
	run := func(random float64, steps ...modelStep) (server *flaky, slept *[]time.Duration, h *harness.Harness, r harness.Run) {
		server = &flaky{steps: steps}
		p, slept := models(t, sdk.ModelSpec{Provider: "a", Name: "m"}, map[string]sdk.Provider{"a": server}, random)
		h = start(t, p, desk())
		return server, slept, h, h.Run("desk", message("hello"))
	}
	server, slept, h, r := run(0, replies(cut), breaks("is "), replies(sdktest.Say("42")))
	succeeds(t, h, r, `{"response": "the answer is 42"}`)
	requests := server.requests()
	equal(t, "requests", len(requests), 3)
	shown := requests[2].Messages
	equal(t, "what it goes on with", []string{shown[len(shown)-4].PlainText(), shown[len(shown)-2].PlainText()}, []string{"the answer ", "is "})
	equal(t, "pauses", len(*slept), 0)
	state := h.State(r)
	equal(t, "one interaction with the tokens of both replies", []any{state.Turns, state.Usage.Completion}, []any{1, int64(2)})
	equal(t, "what the run keeps", len(h.Messages(r)), 2)

	server, _, h, r = run(0, replies(cut))
	succeeds(t, h, r, `{"response": "the answer the answer the answer the answer "}`)
	equal(t, "requests for a reply without an end", len(server.requests()), 4)

	server, slept, h, r = run(0, breaks("a "), breaks("b "), breaks("c "), replies(sdktest.Say("whole")))
	succeeds(t, h, r, `{"response": "whole"}`)
	var messages []int
	for _, request := range server.requests() {
		messages = append(messages, len(request.Messages))
	}
	equal(t, "messages in the requests: begun, gone on with twice, and begun anew", messages, []int{1, 3, 3, 1})
	equal(t, "pauses before it is begun anew", *slept, []time.Duration{250 * time.Millisecond})
}

// payloadCap is row F38: of a reply of 10 MiB the call is made, of one with a byte more it is not.
func payloadCap(t *testing.T) {
	call := `<tool>{"server_name":"local","tool_name":"note","arguments":{"n":1}}</tool>`
	sized := func(size int) sdk.ModelReply {
		return sdktest.Say("A note:" + strings.Repeat(" ", size-len("A note:"+call)) + call)
	}
	ran := 0
	a := desk()
	a.Tools = []sdk.Tool{internal("note", func(context.Context, sdk.ToolCall) ([]byte, error) {
		ran++
		return []byte(`{"noted":true}`), nil
	})}
	model := sdktest.Script(sized(10*1024*1024), sized(10*1024*1024+1), sdktest.Say("done"))
	h := start(t, inText(t, model), a)
	succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
	requests := asked(t, model, 3)
	told := func(i int) string { return requests[i].Messages[len(requests[i].Messages)-1].PlainText() }
	ordered(t, told(1), `status="success"`, `{"noted":true}`)
	ordered(t, told(2), "parse_error", "10485761 bytes")
	equal(t, "calls that were made", ran, 1)
}

// errorClasses is rows F35 and F37: each kind of fault in a call is told as its own class, and a bare & is repaired.
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
		done)
	h := start(t, inText(t, model), a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	requests := asked(t, model, 7)
	for i, want := range []string{
		1: "Use a tool.", 2: "parse_error", 3: "missing_field", 4: "unknown_tool", 5: string(sdk.CodeTool), 6: `{"said":"salt & pepper"}`,
	} {
		messages := requests[i].Messages
		if got := messages[len(messages)-1].PlainText(); !strings.Contains(got, want) {
			t.Errorf("request %d does not tell of %q: %s", i, want, got)
		}
	}
	state := h.State(r)
	equal(t, "replies that could not be understood", state.Misread, 2)
	reminded := 0
	for _, e := range h.Parts(r) {
		for _, m := range milestone.Of(&e) {
			if m.Type == wire.MilestoneReminded {
				reminded++
			}
		}
	}
	equal(t, "no tool call, or none that can be understood", reminded, 1+2)
}
