package catalog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	// instructions are the project's, sections the guidance.
	instructions sdk.Section
	sections     []*prompt.Template
	overlays     overlays
	// readsInput says that one of the templates may look at the run's input.
	readsInput bool
	hooks      sdk.Hooks
	model      sdk.ModelSpec
	memory     *sdk.Memory
	count      prompt.Counter
	window     prompt.Window
	// plans says that the agent keeps a plan.
	plans bool
	// readMore is the tool that shows more of a result, nil where there is none.
	readMore *toolbox.Tool
}

func newTurns(spec sdk.AgentSpec, hooks sdk.Hooks, tools *toolbox.Toolbox) (*turns, error) {
	t := &turns{
		hooks: hooks, model: spec.Model, memory: spec.Memory, count: prompt.CounterOf(spec.Model),
		window: prompt.WindowOf(spec.Model, spec.Memory, 0), plans: plans(tools), readMore: tools.ReadMore(),
		instructions: sdk.Section{Name: prompt.Instructions, Text: spec.Instructions},
	}
	var err error
	if t.overlays, err = newOverlays(spec.Overlays); err != nil {
		return nil, err
	}
	t.readsInput = t.overlays.working != nil && t.overlays.working.ReadsInput()
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
		t.readsInput = t.readsInput || parsed.ReadsInput()
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
func (t *turns) build(ctx context.Context, in runner.PromptInput) (prompt.Fitted, error) {
	data := prompt.Data{Run: in.Run, Tools: in.Tools, Interactions: in.Interactions}
	if t.readsInput {
		d := json.NewDecoder(bytes.NewReader(in.Input))
		d.UseNumber()
		if err := d.Decode(&data.Input); err != nil {
			return prompt.Fitted{}, fmt.Errorf("decode input: %w", err)
		}
	}
	sections := append(make([]sdk.Section, 0, 1+len(t.sections)), t.instructions)
	for _, s := range t.sections {
		text, err := s.Render(data)
		if err != nil {
			return prompt.Fitted{}, err
		}
		sections = append(sections, sdk.Section{Name: s.Name(), Text: text})
	}
	turn, err := t.overlays.build(in.Now, data)
	if err != nil {
		return prompt.Fitted{}, err
	}
	for _, part := range []struct {
		name string
		hook func(context.Context, sdk.TurnInput) (string, error)
	}{{prompt.Planning, t.hooks.Planning}, {prompt.Retrieval, t.hooks.Retrieval}} {
		text := answered(in.Context, part.name)
		if part.name == prompt.Planning && t.plans {
			text = strings.TrimSpace(planText(in.Plan) + "\n\n" + text)
		}
		if part.hook != nil {
			shown, _ := prompt.Cut(in.Conversation.Messages, t.shown)
			more, err := part.hook(ctx, sdk.TurnInput{
				Run: in.Run, Input: in.Input, Messages: shown, Interactions: in.Interactions,
			})
			if err != nil {
				return prompt.Fitted{}, fmt.Errorf("build the section %s: %w", part.name, err)
			}
			text = strings.TrimSpace(text + "\n\n" + more)
		}
		if text != "" {
			turn = append(turn, sdk.Section{Name: part.name, Text: text})
		}
	}
	parts := prompt.Parts{
		System: prompt.System(in.System, sections...), Tools: in.Tools, Sections: turn, Shown: t.shown,
		Added: in.Added, Messages: in.Conversation.Messages, Task: in.Conversation.Task, Kept: in.Conversation.Kept, Lined: in.Conversation.Lined,
	}
	if t.readMore != nil {
		parts.ReadMore = &t.readMore.Definition
	}
	if s := in.Conversation.Summary; s != nil {
		parts.Summary = prompt.Remembered(s.Text, s.Files)
	}
	window := t.window
	if in.MaxTokens > 0 {
		window = prompt.WindowOf(t.model, t.memory, in.MaxTokens)
	}
	return prompt.Fit(t.count.Calibrated(in.Calibration), window, parts)
}

// estimate is how many tokens messages have.
func (t *turns) estimate(messages []sdk.Message) int {
	n := 0
	for i := range messages {
		n += t.count.Message(&messages[i])
	}
	return n
}

// remember puts what came next under a summary.
func (t *turns) remember(summary, next string) string {
	return prompt.Append(t.count, summary, next, t.window.SummaryTokens())
}

// shown is how many characters of a tool's result the model is shown at once.
func (t *turns) shown(tool string) int {
	var of map[string]int
	if t.memory != nil {
		of = t.memory.Results
	}
	if tool == sdk.ToolReadMore {
		return 2 * sdk.MaxResult // a piece is as long as its tool's results may be, and is JSON
	}
	return t.window.Result(cmp.Or(of[tool], of[sdk.AnyTool], sdk.DefaultResult))
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

// checkWindow refuses an agent whose window has no room for a conversation. Runs that began with such a one go on.
func checkWindow(spec sdk.AgentSpec, tools []sdk.ToolDefinition) error {
	room := prompt.WindowOf(spec.Model, spec.Memory, 0).Prompt()
	if fixedPart(prompt.AtMost(), spec, tools) <= room/2 { // most agents, for which nobody has to decode a vocabulary
		return nil
	}
	fixed := fixedPart(prompt.CounterOf(spec.Model), spec, tools)
	if fixed <= room/2 {
		return nil
	}
	return sdk.Errorf(sdk.CodeConfig, "memory: tools and system prompt take about %d of the window's %d tokens; want a window of %d at least "+
		"(memory.window, or the model's context_window)", fixed, room, 2*fixed)
}

// fixedPart is how many tokens of each prompt are there before any conversation.
func fixedPart(count prompt.Counter, spec sdk.AgentSpec, tools []sdk.ToolDefinition) int {
	n := count.Prose(spec.System) + count.Prose(spec.Instructions) + count.Tools(tools)
	if g := spec.Guidance; g != nil {
		n += count.Prose(g.Loop) + count.Prose(g.Capabilities) + count.Prose(g.Thinking)
	}
	return n
}

// checkTemplates refuses an agent whose templates name what there never is. Runs that began with such a one go on.
func checkTemplates(spec sdk.AgentSpec) error {
	texts := map[string]string{"system": spec.System, "prompt": spec.Prompt}
	if g := spec.Guidance; g != nil {
		texts[prompt.Loop], texts[prompt.Capabilities], texts[prompt.Thinking] = g.Loop, g.Capabilities, g.Thinking
	}
	if o := spec.Overlays; o != nil {
		texts[prompt.WorkingContext] = o.WorkingContext
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		for _, f := range prompt.Check[prompt.Data](texts[name], spec.Contract.Versions[spec.Version].Accepts) {
			faults = append(faults, sdk.Errorf(sdk.CodeConfig, "%s template, line %d, column %d: %s", name, f.Line, f.Column, f.Message))
		}
	}
	return errors.Join(faults...)
}
