package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"agentd/internal/prompt"
	"agentd/sdk"
)

// prompts builds a conversation's beginning from templates.
type prompts struct {
	system, first *prompt.Template
}

func parsePrompts(spec sdk.AgentSpec) (*prompts, error) {
	var p prompts
	var err error
	if p.system, err = prompt.Parse("system", spec.System); err != nil {
		return nil, err
	}
	if p.first, err = prompt.Parse("prompt", spec.Prompt); err != nil {
		return nil, err
	}
	return &p, nil
}

// build is the default context builder: the templates, or without a prompt template the input's message, or
// the input as JSON.
func (p *prompts) build(_ context.Context, in sdk.ContextInput) (sdk.Context, error) {
	data := prompt.Data{Run: in.Run, Tools: in.Tools, DelegatedBy: in.DelegatedBy}
	d := json.NewDecoder(bytes.NewReader(in.Input))
	d.UseNumber()
	if err := d.Decode(&data.Input); err != nil {
		return sdk.Context{}, fmt.Errorf("decode input: %w", err)
	}
	system, err := p.system.Render(data)
	if err != nil {
		return sdk.Context{}, err
	}
	first, err := p.first.Render(data)
	if err != nil {
		return sdk.Context{}, err
	}
	if first == "" {
		first = inputMessage(data.Input)
	}
	built := sdk.Context{System: system}
	if first != "" {
		built.Messages = []sdk.Message{sdk.Text(sdk.RoleUser, first)}
	}
	return built, nil
}

// inputMessage is the input's message, if it has one.
func inputMessage(input any) string {
	fields, ok := input.(map[string]any)
	if !ok {
		return ""
	}
	message, ok := fields["message"].(string)
	if !ok {
		return ""
	}
	return message
}
