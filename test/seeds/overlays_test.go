package seeds_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentd/internal/config"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/prompt"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// firstEntry is row L1: the user's message is durable, with how many tokens it has by estimate, before the model or anything else is
// asked.
func firstEntry(t *testing.T) {
	asked, reply := make(chan struct{}, 1), make(chan struct{})
	model := sdktest.ModelFunc(func(ctx context.Context, _ sdk.ModelRequest) (sdk.ModelReply, error) {
		asked <- struct{}{}
		select {
		case <-reply:
		case <-ctx.Done():
		}
		return sdktest.Say("done"), nil
	})
	h := start(t, model, desk())
	r := h.Run("desk", message(strings.Repeat("word ", 64))) // 320 bytes
	await(t, "the model is asked", func() bool { return len(asked) == 1 })
	entries := h.Parts(r)
	equal(t, "entries before the model has answered", len(entries), 1)
	first := entries[0]
	equal(t, "the first entry", []string{first.Kind, first.Messages[0].PlainText()}, []string{core.KindStarted, strings.Repeat("word ", 64)})
	// 3.2 bytes are a token, and a message has 4 more.
	equal(t, "tokens", first.Tokens, 104)
	equal(t, "checkpoints", first.Checkpoints, []core.Checkpoint{core.CheckpointUserMessage})
	close(reply)
	succeeds(t, h, r, `{"response": "done"}`)
}

func of[T any](v T) *T { return &v }

// sampling is row L52: how freely a model chooses its words depends on what it is asked for, also of a fallback, and hooks have the
// last word.
func sampling(t *testing.T) {
	spec := sdk.ModelSpec{
		Provider: "away", Name: "large", Temperature: of(1.0), TopP: of(0.95), MaxTokens: 500,
		Sampling: &sdk.Sampling{Tools: &sdk.Sample{Temperature: of(0.1), TopP: of(0.2)}, Conversation: &sdk.Sample{Temperature: of(0.7), TopP: of(0.9)}},
		Fallback: []sdk.ModelSpec{{Provider: "spare", Name: "small", ContextWindow: 8000, Sampling: &sdk.Sampling{
			Tools: &sdk.Sample{Temperature: of(0.0)}, Conversation: &sdk.Sample{TopP: of(0.8)}, Summary: &sdk.Sample{Temperature: of(0.5), TopP: of(0.6)},
		}}},
	}
	const none = -1.0
	sampled := func(requests []sdk.ModelRequest) (all [][2]float64) {
		value := func(v *float64) float64 {
			if v == nil {
				return none
			}
			return *v
		}
		for _, r := range requests {
			all = append(all, [2]float64{value(r.Temperature), value(r.TopP)})
		}
		return all
	}
	full := strings.Repeat("x", 12_300) // leaves no room for tools
	hook := sdk.Hook{Name: "calm", BeforeInference: func(context.Context, sdk.Snapshot) (sdk.InferenceEffects, error) {
		return sdk.InferenceEffects{Temperature: of(0.3), MaxTokens: 77}, nil
	}}
	for name, c := range map[string]struct {
		tools         []sdk.Tool
		hooks         []sdk.Hook
		task          string
		large, small  [2]float64
		limit, lesser int
	}{
		"tools":            {tools: []sdk.Tool{echo("note")}, task: "hello", large: [2]float64{0.1, 0.2}, small: [2]float64{0, none}, limit: 500},
		"conversation":     {task: "hello", large: [2]float64{0.7, 0.9}, small: [2]float64{none, 0.8}, limit: 500},
		"summary":          {tools: []sdk.Tool{echo("note")}, task: full, large: [2]float64{1, 0.95}, small: [2]float64{0.5, 0.6}, limit: 500},
		"as hooks want it": {tools: []sdk.Tool{echo("note")}, hooks: []sdk.Hook{hook}, task: "hello", large: [2]float64{0.3, 0.2}, small: [2]float64{0.3, none}, limit: 77, lesser: 77},
	} {
		t.Run(name, func(t *testing.T) {
			away := &flaky{steps: []modelStep{failsWith("model_failed", false)}}
			spare := &flaky{steps: []modelStep{replies(sdktest.Say("done"))}}
			p, _ := models(t, spec, map[string]sdk.Provider{"away": away, "spare": spare}, 0)
			a := desk()
			a.Spec.Model, a.Tools, a.Hooks.Phases = spec, c.tools, c.hooks
			h := start(t, p, a)
			succeeds(t, h, h.Run("desk", message(c.task)), `{"response": "done"}`)
			equal(t, "temperature and top_p", sampled(append(away.requests(), spare.requests()...)), [][2]float64{c.large, c.small})
			equal(t, "the most tokens", []int{away.requests()[0].MaxTokens, spare.requests()[0].MaxTokens}, []int{c.limit, c.lesser})
		})
	}
}

// contextOverlays is row L73: in each turn the model is told the day and what holds now, before the newest input. Nothing of it is
// part of the conversation.
func contextOverlays(t *testing.T) {
	a := desk()
	a.Tools = []sdk.Tool{echo("note")}
	a.Spec.Overlays = &sdk.Overlays{Date: "Pacific/Kiritimati", WorkingContext: "Task {{.Input.message}}, call {{.Interactions.Current}}."}
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1))), sdktest.Say("done"))
	h := start(t, model, a)
	before := time.Now()
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	zone, err := time.LoadLocation("Pacific/Kiritimati")
	if err != nil {
		t.Fatal(err)
	}
	for i, request := range asked(t, model, 2) {
		equal(t, "sections", len(request.Turn), 2)
		equal(t, "working context", request.Turn[1], sdk.Section{Name: "working_context", Text: []string{"Task hello, call 0.", "Task hello, call 1."}[i]})
		// The test may run over midnight.
		days := []string{before.In(zone).Format("Today is Monday, 2006-01-02"), time.Now().In(zone).Format("Today is Monday, 2006-01-02")}
		if s := request.Turn[0]; s.Name != "date" || !strings.HasPrefix(s.Text, days[0]) && !strings.HasPrefix(s.Text, days[1]) {
			t.Errorf("the model is told %v, want %s", s, days[0])
		}
	}
	for _, e := range h.Parts(r) {
		data, err := e.Encode()
		if err != nil || strings.Contains(string(data), "Today is") || strings.Contains(string(data), "Task hello") {
			t.Errorf("entry %d has it: %s %v", e.Rev, data, err)
		}
	}
	equal(t, "the days around a time", prompt.DateText(time.Date(2027, 1, 3, 23, 5, 0, 0, time.FixedZone("Here", -3*3600))),
		"Today is Sunday, 2027-01-03, week 53 of the year. It is 23:05 in Here (UTC-03:00).\n"+
			"Yesterday was Saturday, 2027-01-02. Tomorrow is Monday, 2027-01-04.\n"+
			"This week is from Monday, 2026-12-28 to Sunday, 2027-01-03. The next one is from Monday, 2027-01-04 to Sunday, 2027-01-10.")
}

// projectInstructions is row F55: what an AGENTS.md says follows the system prompt as it is, whole or the parts that the agent names,
// also when the file is another one later.
func projectInstructions(t *testing.T) {
	const file = "# Shop\n\nWe sell.\n\n## Style\n\nSay {{please}}.\n\n```\n# no heading\n```\n\n### Words\n\nShort ones.\n\n## Money\n\nIn euros.\n"
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("AGENTS.md", file)
	for instructions, want := range map[string]string{
		"{file: AGENTS.md}": strings.TrimSpace(file),
		"{file: AGENTS.md, sections: [money, Style]}": "## Money\n\nIn euros.\n\n" +
			"## Style\n\nSay {{please}}.\n\n```\n# no heading\n```\n\n### Words\n\nShort ones.",
	} {
		write("agentd.yaml", "agents: [{name: desk, model: {name: m}, system: Be good., instructions: "+instructions+"}]\n")
		c, err := config.Load(filepath.Join(dir, "agentd.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		model := sdktest.Script(sdktest.Say("done"))
		h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: c.Agents[0]}}, Model: model})
		succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
		equal(t, "system prompt", last(t, model).System, "Be good.\n\n<project_instructions>\n"+want+"\n</project_instructions>")
	}
	write("agentd.yaml", "agents: [{name: desk, model: {name: m}, instructions: {file: AGENTS.md, sections: [Monee]}}]\n")
	if _, err := config.Load(filepath.Join(dir, "agentd.yaml")); err == nil || !strings.Contains(err.Error(), `has no heading "Monee"`) ||
		!strings.Contains(err.Error(), "Money") {
		t.Errorf("a heading that there is not: %v", err)
	}
}
