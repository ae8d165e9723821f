package catalog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentd/internal/prompt"
	"agentd/internal/runner"
	"agentd/internal/toolbox"
	"agentd/sdk"
)

// turns builds the prompt of each model call.
type turns struct {
	tools    []sdk.ToolDefinition
	sections []*prompt.Template
	hooks    sdk.Hooks
	memory   *sdk.Memory
	count    prompt.Counter
	// plans says that the agent keeps a plan.
	plans bool
	// readMore is the tool that shows more of a result, nil where there is none.
	readMore *toolbox.Tool
}

func newTurns(spec sdk.AgentSpec, hooks sdk.Hooks, tools *toolbox.Toolbox) (*turns, error) {
	t := &turns{
		tools: tools.Definitions(), hooks: hooks, memory: spec.Memory, count: prompt.CounterOf(spec.Model),
		plans: plans(tools), readMore: tools.ReadMore(),
	}
	guidance := spec.Guidance
	if guidance == nil {
		guidance = &sdk.Guidance{}
	}
	for _, part := range []sdk.Section{
		{Name: prompt.Loop, Text: guidance.Loop},
		{Name: prompt.Capabilities, Text: guidance.Capabilities},
		{Name: prompt.Thinking, Text: guidance.Thinking},
	} {
		parsed, err := prompt.Parse(part.Name, part.Text)
		if err != nil {
			return nil, err
		}
		t.sections = append(t.sections, parsed)
	}
	if m := spec.Memory; m != nil && m.Window < 0 {
		return nil, sdk.Errorf(sdk.CodeConfig, "memory: the window has at least one token, not %d", m.Window)
	}
	if m := spec.Memory; m != nil {
		for _, tool := range slices.Sorted(maps.Keys(m.Results)) {
			if of := m.Results[tool]; of < sdk.MinResult || of > sdk.MaxResult {
				return nil, sdk.Errorf(sdk.CodeConfig, "memory: of a result of %s, %d to %d characters are shown, not %d",
					tool, sdk.MinResult, sdk.MaxResult, of)
			}
		}
	}
	return t, nil
}

// build implements runner.Agent's BuildPrompt.
func (t *turns) build(ctx context.Context, in runner.PromptInput) (runner.Prompt, error) {
	out := runner.Prompt{Tools: t.tools}
	cut := false
	if out.Messages, cut = prompt.Cut(in.Messages, t.shown); cut && t.readMore != nil {
		out.Tools = append(slices.Clip(t.tools), t.readMore.Definition)
	}
	data := promptData{Run: in.Run, Tools: t.tools, Interactions: in.Interactions}
	d := json.NewDecoder(bytes.NewReader(in.Input))
	d.UseNumber()
	if err := d.Decode(&data.Input); err != nil {
		return out, fmt.Errorf("decode input: %w", err)
	}
	sections := make([]sdk.Section, len(t.sections))
	for i, s := range t.sections {
		text, err := s.Render(data)
		if err != nil {
			return out, err
		}
		sections[i] = sdk.Section{Name: s.Name(), Text: text}
	}
	out.System = prompt.System(in.System, sections...)
	for _, part := range []struct {
		name string
		hook func(context.Context, sdk.TurnInput) (string, error)
	}{{prompt.Planning, t.hooks.Planning}, {prompt.Retrieval, t.hooks.Retrieval}} {
		text := answered(in.Context, part.name)
		if part.name == prompt.Planning && t.plans {
			text = strings.TrimSpace(planText(in.Plan) + "\n\n" + text)
		}
		if part.hook != nil {
			more, err := part.hook(ctx, sdk.TurnInput{
				Run: in.Run, Input: in.Input, Messages: in.Messages, Interactions: in.Interactions,
			})
			if err != nil {
				return out, fmt.Errorf("build the section %s: %w", part.name, err)
			}
			text = strings.TrimSpace(text + "\n\n" + more)
		}
		if text != "" {
			out.Turn = append(out.Turn, sdk.Section{Name: part.name, Text: text})
		}
	}
	t.fit(&out, in)
	return out, nil
}

// shown is how many characters of a tool's result the model is shown at once.
func (t *turns) shown(tool string) int {
	var of map[string]int
	if t.memory != nil {
		of = t.memory.Results
	}
	return cmp.Or(of[tool], of[sdk.AnyTool], sdk.DefaultResult)
}

// answered is what a service said for a section.
func answered(sections []sdk.Section, name string) string {
	for _, s := range sections {
		if s.Name == name {
			return s.Text
		}
	}
	return ""
}

// fit keeps the prompt within the window.
func (t *turns) fit(out *runner.Prompt, in runner.PromptInput) {
	if t.memory == nil || t.memory.Window == 0 {
		return
	}
	rest := t.memory.Window - t.count(out.System) - t.count.Tools(t.tools)
	for _, s := range out.Turn {
		rest -= t.count(s.Text)
	}
	if t.memory.Compact && t.count.Over(out.Messages, rest-t.memory.Window/5) {
		if older := prompt.Older(out.Messages); t.worthwhile(out.Messages[:older], in.Summarised) {
			out.Compact = older
			out.SummarySystem, out.SummaryMessages = prompt.Summary(in.Messages[:older])
		}
	}
	out.Messages = t.count.Prune(out.Messages, rest)
}

// worthwhile reports whether a summary of the messages, of which the first may be a summary, stands for at least a fifth of the
// window that none stood for before: where prompts never fit, because of what else is in them or of a large result, the model
// would be asked for a summary before every call.
func (t *turns) worthwhile(older []sdk.Message, summarised bool) bool {
	if summarised && len(older) > 0 {
		older = older[1:]
	}
	return len(older) > 0 && t.count.Over(older, t.memory.Window/5-1)
}

// checkWindow refuses an agent whose window has no room for a conversation. Runs that began with such a one go on.
func checkWindow(spec sdk.AgentSpec, tools []sdk.ToolDefinition) error {
	if spec.Memory == nil || spec.Memory.Window == 0 {
		return nil
	}
	count := prompt.CounterOf(spec.Model)
	fixed := count(spec.System) + count.Tools(tools)
	if g := spec.Guidance; g != nil {
		fixed += count(g.Loop) + count(g.Capabilities) + count(g.Thinking)
	}
	if fixed > spec.Memory.Window/2 {
		return sdk.Errorf(sdk.CodeConfig, "memory: tools and system prompt take about %d of the window's %d tokens; want a window of %d at least",
			fixed, spec.Memory.Window, 2*fixed)
	}
	return nil
}
