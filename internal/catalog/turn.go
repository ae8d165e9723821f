package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/template"

	"agentd/internal/prompt"
	"agentd/internal/runner"
	"agentd/sdk"
)

// turns builds the prompt of each model call.
type turns struct {
	tools    []sdk.ToolDefinition
	sections []*template.Template
	hooks    sdk.Hooks
	memory   *sdk.Memory
}

func newTurns(spec sdk.AgentSpec, hooks sdk.Hooks, tools []sdk.ToolDefinition) (*turns, error) {
	t := &turns{tools: tools, hooks: hooks, memory: spec.Memory}
	guidance := spec.Guidance
	if guidance == nil {
		guidance = &sdk.Guidance{}
	}
	for _, part := range []sdk.Section{
		{Name: prompt.Loop, Text: guidance.Loop},
		{Name: prompt.Capabilities, Text: guidance.Capabilities},
		{Name: prompt.Thinking, Text: guidance.Thinking},
	} {
		parsed, err := parseTemplate(part.Name, part.Text)
		if err != nil {
			return nil, err
		}
		t.sections = append(t.sections, parsed)
	}
	if m := spec.Memory; m != nil && m.Window < 1 {
		return nil, sdk.Errorf(sdk.CodeConfig, "memory: the window has at least one token, not %d", m.Window)
	}
	return t, nil
}

// build implements runner.Agent's BuildPrompt.
func (t *turns) build(ctx context.Context, in runner.PromptInput) (runner.Prompt, error) {
	out := runner.Prompt{Messages: in.Messages}
	data := promptData{Run: in.Run, Tools: t.tools, Interactions: in.Interactions}
	d := json.NewDecoder(bytes.NewReader(in.Input))
	d.UseNumber()
	if err := d.Decode(&data.Input); err != nil {
		return out, fmt.Errorf("decode input: %w", err)
	}
	sections := make([]sdk.Section, len(t.sections))
	for i, s := range t.sections {
		text, err := render(s, data)
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
	t.fit(&out)
	return out, nil
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
func (t *turns) fit(out *runner.Prompt) {
	if t.memory == nil {
		return
	}
	rest := t.memory.Window - prompt.Tokens(out.System) - prompt.ToolTokens(t.tools)
	for _, s := range out.Turn {
		rest -= prompt.Tokens(s.Text)
	}
	used := 0
	for _, m := range out.Messages {
		used += prompt.MessageTokens(m)
	}
	if t.memory.Compact && used > rest-t.memory.Window/5 {
		if older := prompt.Older(out.Messages); older > 0 {
			out.Compact = older
			out.SummarySystem, out.SummaryMessages = prompt.Summary(out.Messages[:older])
		}
	}
	out.Messages = prompt.Prune(out.Messages, rest)
}
