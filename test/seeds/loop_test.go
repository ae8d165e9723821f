package seeds_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"agentd/internal/core"
	"agentd/internal/llm"
	"agentd/internal/llm/mockllm"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// reasonActLoop is row A18.
func reasonActLoop(t *testing.T) {
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("note", n(1))), sdktest.Ask(sdktest.Tool("note", n(2))),
		sdktest.Ask(sdktest.Tool("shop_find", n(3))), sdktest.Say("done"))
	a := desk(service("shop.find"))
	a.Tools = []sdk.Tool{echo("note")}
	short := agent("short", contract("test.short", anyObject, textAnswer), service("shop.find"))
	short.Tools, short.Spec.Limits.Interactions = a.Tools, 2
	h := start(t, model, a, short)

	r := h.Run("desk", message("hello"))
	h.Suspended(r, 1)
	asked(t, model, 3)
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	asked(t, model, 4)

	limited := h.Send("short", other(h, "short", "limited", message("hello")))
	equal(t, "code at the limit", fails(t, h, limited, "test.short").Code, sdk.CodeQuotaExhausted)
	asked(t, model, 4+2)
}

// lifecyclePassed is row A19.
func lifecyclePassed(t *testing.T) {
	a := agent("desk", contract(deskType, anyObject, numberAnswer), service("shop.find"))
	a.Tools = []sdk.Tool{echo("note")}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("note", n(1))), sdktest.Say("no number"),
		sdktest.Ask(sdktest.Tool("shop_find", n(1))), sdktest.Say(`{"answer": 1}`))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 1)
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"answer": 1}`)
	equal(t, "lifecycles", lifecycles(model.Requests()), []sdk.Lifecycle{
		sdk.LifecycleInit, sdk.LifecycleToolResult, sdk.LifecycleOutputErrorFeedback, sdk.LifecycleToolResult,
	})
}

// executionUnits is row A20.
func executionUnits(t *testing.T) {
	costs := func(reply sdk.ModelReply, units sdk.Units) sdk.ModelReply {
		reply.Units = units
		return reply
	}
	a := desk(service("shop.find"))
	a.Tools = []sdk.Tool{echo("note")}
	h := start(t, sdktest.Script(
		costs(sdktest.Ask(sdktest.Tool("note", n(1))), 1_500_000),
		costs(sdktest.Ask(sdktest.Tool("shop_find", n(1))), 250_000),
		costs(sdktest.Say("done"), 1)), a)
	r := h.Run("desk", message("hello"))
	equal(t, "units of the suspended run", h.Suspended(r, 1).Units, sdk.Units(1_750_000))
	h.Restart()
	call := h.Call("shop.find")
	equal(t, "units so far, in the call", call.Event.ExecutionUnits, sdk.Units(1_750_000))
	call.Answer("shop.find.done", value("it"))
	equal(t, "units in the output", succeeds(t, h, r, `{"response": "done"}`).ExecutionUnits, sdk.Units(1_750_001))
	equal(t, "units of the run that is done", h.State(r).Units, sdk.Units(1_750_001))
}

// interactionCounter is row A21.
func interactionCounter(t *testing.T) {
	a := desk(service("shop.find"))
	a.Spec.Limits.Interactions = 3
	find := sdktest.Ask(sdktest.Tool("shop_find", n(1)))
	model := sdktest.Script(find, find, sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	for made := range 2 {
		equal(t, "interactions of the suspended run", h.Suspended(r, 1).Turns, made+1)
		h.Restart()
		h.Call("shop.find").Answer("shop.find.done", value("it"))
		h.Until(r, "told what the model says to the answer", func(s core.State) bool { return s.Turns == made+2 })
	}
	succeeds(t, h, r, `{"response": "done"}`)
	var counted []sdk.Interactions
	for _, request := range model.Requests() {
		counted = append(counted, request.Interactions)
	}
	equal(t, "interactions that the model is told", counted,
		[]sdk.Interactions{{Current: 0, Max: 3}, {Current: 1, Max: 3}, {Current: 2, Max: 3, Exhausted: true}})
	equal(t, "interactions at the end", h.State(r).Turns, 3)
}

// seenCountUpdate is row A22.
func seenCountUpdate(t *testing.T) {
	a := desk(service("shop.find"))
	a.Tools = []sdk.Tool{echo("note")}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("note", n(1))), sdktest.Ask(sdktest.Tool("shop_find", n(1))), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 1)
	h.Restart()
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	var counts [][]int
	for _, request := range model.Requests() {
		counts = append(counts, seen(request.Messages))
	}
	// What the model wrote starts at 1, everything else at 0.
	equal(t, "seen counts in each request", counts, [][]int{{0}, {1, 1, 0}, {2, 2, 1, 1, 0}})
	equal(t, "seen counts at the end", seen(h.Messages(r)), []int{3, 3, 2, 2, 1, 1})
}

// recorder keeps the bodies of the requests that it passes on.
type recorder struct {
	next   http.Handler
	mu     sync.Mutex
	bodies []string
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.bodies = append(r.bodies, string(body))
	r.mu.Unlock()
	req.Body = io.NopCloser(bytes.NewReader(body))
	r.next.ServeHTTP(w, req)
}

const mediaScript = `{"conversations": [{"replies": [
	{"calls": [{"name": "note", "arguments": {"n": 1}}]}, {"text": "a cat"}
]}]}`

// allMedia is row A23.
func allMedia(t *testing.T) {
	t.Run("of a conversation", mediaMasking)
	t.Run("of tools", mediaOfTools)
	t.Run("of services", mediaOfServices)
}

// mediaMasking is row A23.
func mediaMasking(t *testing.T) {
	const picture = "aGVsbG8gcGljdHVyZQ=="
	script, err := mockllm.ParseScript("script.yaml", []byte(mediaScript))
	if err != nil {
		t.Fatal(err)
	}
	recorded := &recorder{next: mockllm.New(script)}
	server := httptest.NewServer(recorded)
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	model, err := llm.NewOpenAI(llm.OpenAIOptions{BaseURL: server.URL + "/v1", HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	a := desk()
	a.Tools = []sdk.Tool{echo("note")}
	a.Hooks.Context = func(context.Context, sdk.ContextInput) (sdk.Context, error) {
		return sdk.Context{Messages: []sdk.Message{{Role: sdk.RoleUser, Content: []sdk.Content{
			{Kind: sdk.ContentText, Text: "What is this?"},
			{Kind: sdk.ContentMedia, Media: &sdk.Media{MIME: "image/png", Name: "photo.png", Data: picture}},
		}}}}, nil
	}
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "a cat"}`)

	recorded.mu.Lock()
	defer recorded.mu.Unlock()
	if len(recorded.bodies) != 2 {
		t.Fatalf("the model was asked %d times, want twice", len(recorded.bodies))
	}
	if !strings.Contains(recorded.bodies[0], picture) {
		t.Error("the first request does not show the picture")
	}
	if second := recorded.bodies[1]; strings.Contains(second, picture) || !strings.Contains(second, "photo.png") {
		t.Errorf("the second request does not name the picture alone: %s", second)
	}
	if kept := contents(t, h.Messages(r), sdk.ContentMedia, 1); kept[0].Media.Data != picture {
		t.Errorf("the run's history does not keep the picture: %v", kept)
	}
}

// priorityBatches is row A24.
func priorityBatches(t *testing.T) {
	high, alsoHigh := service("shop.pay"), service("shop.refund")
	high.Priority, alsoHigh.Priority = 5, 5
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_pay", n(2)), sdktest.Tool("note", n(3)),
			sdktest.Tool("shop_refund", n(4))),
		sdktest.Ask(sdktest.Tool("shop_find", n(5))), sdktest.Say("done"))
	noted := false
	a := desk(service("shop.find"), high, alsoHigh)
	a.Tools = []sdk.Tool{internal("note", func(context.Context, sdk.ToolCall) ([]byte, error) {
		noted = true
		return []byte(`{}`), nil
	})}
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 2)
	h.Call("shop.pay").Answer("shop.pay.done", value("paid"))
	h.Call("shop.refund").Answer("shop.refund.done", value("refunded"))
	h.Until(r, "in the next round", func(s core.State) bool { return s.Round == 2 && s.Status == core.StatusWaiting })

	var made []string
	for _, c := range uses(t, asked(t, model, 2)[1].Messages, 2) {
		made = append(made, c.Tool)
	}
	equal(t, "calls that the model sees", made, []string{"shop_pay", "shop_refund"})
	var dropped []string
	for _, e := range h.Parts(r) {
		dropped = append(dropped, e.Dropped...)
	}
	equal(t, "dropped calls", dropped, []string{"shop_find", "note"})
	if noted {
		t.Error("an internal tool of lower priority was run")
	}
	// Alone in its reply, it is of the highest priority.
	find := h.Call("shop.find")
	equal(t, "arguments of the one call of shop.find", find.Data(), map[string]any{"n": 5.0})
	find.Answer("shop.find.done", value("found"))
	succeeds(t, h, r, `{"response": "done"}`)
}

// syncOnlyRound is row A38.
func syncOnlyRound(t *testing.T) {
	a := desk(service("shop.find"))
	a.Tools = []sdk.Tool{echo("note"), echo("memo")}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("note", n(1)), sdktest.Tool("memo", n(2)), sdktest.Tool("shop_find", "invalid")),
		sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "lifecycles", lifecycles(model.Requests()), []sdk.Lifecycle{sdk.LifecycleInit, sdk.LifecycleToolResult})
	entries := h.Parts(r)
	if waits(entries) {
		t.Errorf("a round without a service call suspended the run: %v", statuses(entries))
	}
	for _, e := range entries {
		for _, f := range e.Effects {
			if f.Kind != core.EffectTerminal {
				t.Errorf("a round without a service call has the effect %+v", f)
			}
		}
	}
}

// quotaExhausted is row A42.
func quotaExhausted(t *testing.T) {
	a := desk()
	a.Spec.Limits.Interactions = 2
	a.Tools = []sdk.Tool{echo("note")}
	note := sdktest.Ask(sdktest.Tool("note", n(1)))
	model := sdktest.Script(note, note, sdktest.Say("too late"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	p := fails(t, h, r, deskType)
	equal(t, "problem", []any{p.Code, p.ErrorName, p.Retryable}, []any{sdk.CodeQuotaExhausted, "quota_exhausted", false})
	if !strings.Contains(p.ErrorMessage, "2 interactions") {
		t.Errorf("the message %q does not tell the limit", p.ErrorMessage)
	}
	requests := asked(t, model, 2)
	if requests[0].Interactions.Exhausted || !requests[1].Interactions.Exhausted {
		t.Error("the model is not told that the second request is the last, and only then")
	}
	equal(t, "reason", h.State(r).Reason, core.ReasonQuota)
}
