package seeds_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// crowded is a run whose tools return much and whose hooks add much, each time so many bytes.
type crowded struct {
	task           string
	results, added []int
	keep           bool
	// reply is how many tokens the hook gives the reply; 0 is those of the agent.
	reply int
}

// crowd plays runs one after the other and looks at each prompt.
type crowd struct {
	mu      sync.Mutex
	run     crowded
	prompts int
	wrong   []string
}

func (c *crowd) now() crowded {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.run
}

// add is the hook: what it adds last is short, and shown whole.
func (c *crowd) add(_ context.Context, s sdk.Snapshot) (sdk.InferenceEffects, error) {
	run := c.now()
	e := sdk.InferenceEffects{MaxTokens: run.reply}
	if s.Interactions < len(run.added) {
		e.Context = append(e.Context, sdk.ContextMessage{Text: strings.Repeat("added – ", run.added[s.Interactions]/8), Keep: run.keep})
	}
	e.Context = append(e.Context, sdk.ContextMessage{Text: "Mind the task."})
	return e, nil
}

// generate reads as often as the run wants it, and answers when it has read all files, or it is offered no tools.
func (c *crowd) generate(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
	run := c.now()
	c.look(run, req)
	reply := sdktest.Say("done")
	if len(req.Tools) > 0 && req.Interactions.Current < len(run.results) {
		reply = sdktest.Ask(sdktest.Tool("read", n(run.results[req.Interactions.Current])))
	}
	reply.Usage.Prompt = int64(tokensOf(req)) // estimates are corrected by what the provider counts
	return reply, nil
}

func (c *crowd) look(run crowded, req sdk.ModelRequest) {
	var window int
	var wrong []string
	if _, err := fmt.Sscanf(req.Model, "w%d", &window); err != nil {
		wrong = append(wrong, err.Error())
	}
	reply := run.reply
	if reply == 0 {
		reply = min(2000, window/4)
	}
	if tokens := tokensOf(req); tokens+reply > window {
		wrong = append(wrong, fmt.Sprintf("a prompt of %d tokens and a reply of %d in a window of %d", tokens, reply, window))
	}
	if first := req.Messages[0].PlainText(); first != run.task {
		wrong = append(wrong, fmt.Sprintf("the task is gone: %.80s", first))
	}
	said, open := "", map[string]bool{}
	for _, m := range req.Messages {
		for _, part := range m.Content {
			said += part.Text
			if !utf8.ValidString(part.Text) {
				wrong = append(wrong, fmt.Sprintf("a character is cut in %.80q", part.Text))
			}
			if part.CallID != "" {
				if open[part.CallID] == (part.Kind == sdk.ContentToolUse) {
					wrong = append(wrong, "a call is parted from its result: "+part.CallID)
				}
				open[part.CallID] = part.Kind == sdk.ContentToolUse
			}
		}
	}
	for call, waits := range open {
		if waits {
			wrong = append(wrong, "a call without a result: "+call)
		}
	}
	if strings.Count(said, "Mind the task.") != 1 {
		wrong = append(wrong, "what the hook added last is not shown")
	}
	if now := req.Interactions.Current; now < len(run.added) && run.added[now] > 0 && !strings.Contains(said, "added – added") {
		wrong = append(wrong, "nothing of what the hook added is shown")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prompts, c.wrong = c.prompts+1, append(c.wrong, wrong...)
}

// tokensOf estimates a request as the seed does: 3.2 bytes of prose and 2.8 of JSON are a token, a message has 4 more and a call 10.
func tokensOf(req sdk.ModelRequest) int {
	estimate := func(text string, each float64) int {
		ascii := len(strings.Map(func(r rune) rune {
			if r >= utf8.RuneSelf {
				return -1
			}
			return r
		}, text))
		return int(float64(ascii)/each) + utf8.RuneCountInString(text) - ascii
	}
	tokens := estimate(req.System, 3.2)
	for _, d := range req.Tools {
		tokens += 10 + estimate(d.Name+d.Description, 3.2) + estimate(string(d.Parameters), 2.8)
	}
	for _, m := range req.Messages {
		tokens += 4
		for _, part := range m.Content {
			switch part.Kind {
			case sdk.ContentToolUse:
				tokens += 10 + estimate(part.Tool, 3.2) + estimate(string(part.Args), 2.8)
			case sdk.ContentToolResult:
				tokens += 10 + estimate(part.Text, 2.8)
			case sdk.ContentText, sdk.ContentThinking, sdk.ContentRedacted, sdk.ContentMedia:
				tokens += estimate(part.Text, 3.2)
			}
		}
	}
	return tokens
}

// everyPromptFits is row L12 for what hooks add: whatever that is, and whatever tools return, the prompt and its reply fit the window,
// with the task, and calls have their results.
func everyPromptFits(t *testing.T) {
	var c crowd
	var agents []sdk.Agent
	windows := []int{2000, 4096, 8000, 32_768}
	for _, window := range windows {
		name := fmt.Sprint("w", window)
		a := agent(name, contract("test."+name, anyObject, textAnswer))
		a.Spec.Model.ContextWindow = window
		a.Tools = []sdk.Tool{internal("read", func(_ context.Context, call sdk.ToolCall) ([]byte, error) {
			var args struct{ N int }
			if err := json.Unmarshal(call.Args, &args); err != nil {
				return nil, err
			}
			return json.Marshal(lines(args.N + 40))
		})}
		a.Hooks.Phases = []sdk.Hook{{Name: "adds", BeforeInference: c.add}}
		agents = append(agents, a)
	}
	h := start(t, sdktest.ModelFunc(c.generate), agents...)
	runs, sizes := 0, rapid.SampledFrom([]int{0, 100, 1000, 6000, 40_000, 400_000})
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		window := rapid.SampledFrom(windows).Draw(rt, "window")
		run := crowded{
			task:    fmt.Sprint("Read it all. ", strings.Repeat("Task. ", rapid.IntRange(0, 60).Draw(rt, "task"))),
			results: rapid.SliceOfN(sizes, 0, 4).Draw(rt, "results"), added: rapid.SliceOfN(sizes, 0, 4).Draw(rt, "added"),
			keep: rapid.Bool().Draw(rt, "keep"), reply: rapid.SampledFrom([]int{0, window / 10, window / 2}).Draw(rt, "reply"),
		}
		c.mu.Lock()
		c.run, c.wrong = run, nil
		c.mu.Unlock()
		name := fmt.Sprint("w", window)
		h.Done(h.Send(name, other(h, name, fmt.Sprint("crowded-", runs), message(run.task))))
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.wrong) > 0 {
			rt.Fatalf("of %+v:\n%s", run, strings.Join(c.wrong, "\n"))
		}
	})
	if c.prompts < 2*runs {
		t.Errorf("%d prompts in %d runs", c.prompts, runs)
	}
}
