package seeds_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// numbered is a tool whose results are long and begin with their number.
func numbered(name string, bytes int) sdk.Tool {
	return internal(name, func(_ context.Context, c sdk.ToolCall) ([]byte, error) {
		var args struct{ N int }
		if err := json.Unmarshal(c.Args, &args); err != nil {
			return nil, err
		}
		return json.Marshal(fmt.Sprint(args.N, " ", strings.Repeat("x", bytes)))
	})
}

// shownRounds are the numbers of the results among messages, in their order.
func shownRounds(messages []sdk.Message) string {
	var numbers []string
	for _, m := range messages {
		for _, c := range toolResults(m) {
			number, _, _ := strings.Cut(strings.TrimLeft(c.Text, `"[`), " ")
			numbers = append(numbers, number)
		}
	}
	return strings.Join(numbers, " ")
}

// unpaired are the calls without their result, and the results without their call.
func unpaired(messages []sdk.Message) []string {
	open := map[string]int{}
	for _, m := range messages {
		for _, c := range m.Content {
			if c.Kind == sdk.ContentToolUse {
				open[c.CallID]++
			}
			if c.Kind == sdk.ContentToolResult {
				open[c.CallID]--
			}
		}
	}
	var ids []string
	for id, n := range open {
		if n != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// boundedMemory is row F30: a prompt that is too large loses its oldest messages; the system prompt and the task stay, and so does
// every call with its result.
func boundedMemory(t *testing.T) {
	var replies []sdk.ModelReply
	for i := range 7 {
		replies = append(replies, sdktest.Ask(sdktest.Tool("note", n(2*i)), sdktest.Tool("note", n(2*i+1))))
	}
	a := desk()
	a.Spec.System, a.Spec.Memory = "Remember.", &sdk.Memory{Window: 1200}
	a.Tools = []sdk.Tool{numbered("note", 330)}
	model := sdktest.Script(append(replies, sdktest.Say("done"))...)
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	// About 330 tokens a round of two calls, of 1200 with a system prompt and a tool, of which 500 stay free: the newest round fits.
	var shown []string
	for _, req := range asked(t, model, 8) {
		ordered(t, req.System, "Remember.")
		equal(t, "calls and results that lost each other", len(unpaired(req.Messages)), 0)
		rounds := shownRounds(req.Messages)
		if said(req.Messages, "hello") > 0 {
			rounds = "hello " + rounds
		}
		shown = append(shown, strings.TrimSpace(rounds))
	}
	equal(t, "what the model is shown", shown, []string{
		"hello", "hello 0 1", "hello 2 3", "hello 4 5", "hello 6 7", "hello 8 9", "hello 10 11", "hello 12 13",
	})
	equal(t, "what the run keeps", shownRounds(h.Messages(r)), "0 1 2 3 4 5 6 7 8 9 10 11 12 13")
}

// safeFrontier is row T60: what is summarised ends where no call is parted from its results; of a large result the summary is made
// of 1600 characters, two thirds of them from its beginning.
func safeFrontier(t *testing.T) {
	pair := func(i int) sdk.ModelReply {
		return sdktest.Ask(sdktest.Tool("note", n(i)), sdktest.Tool("note", n(i+1)))
	}
	script := sdktest.Script(pair(0), pair(2), pair(4), pair(6), sdktest.Say("done"))
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
	a.Spec.Memory = &sdk.Memory{Window: 7000, Compact: true}
	a.Tools = []sdk.Tool{numbered("note", 9_998)}
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	history := h.Messages(r)
	cuts := 0
	for _, e := range h.Parts(r) {
		if e.Summary == nil {
			continue
		}
		cuts++
		equal(t, "calls and results that the summary parts", len(unpaired(history[:e.Summary.Messages])), 0)
	}
	for _, req := range script.Requests() {
		equal(t, "calls and results that lost each other", len(unpaired(req.Messages)), 0)
	}
	mu.Lock()
	defer mu.Unlock()
	if cuts == 0 || len(summarised) == 0 {
		t.Fatalf("%d summaries of %d cuts", len(summarised), cuts)
	}
	_, preview, _ := strings.Cut(summarised[0], "result of note: ")
	preview, _, _ = strings.Cut(preview, "\n")
	equal(t, "what the summary is made of", preview, "0 "+strings.Repeat("x", 1065)+"… (10000 bytes in all) …"+strings.Repeat("x", 533))
}
