package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"text/template"

	"agentd/sdk"
)

// promptData is what templates see.
type promptData struct {
	// Input is the data of the init event, Run its subject.
	Input any
	Run   string
	Tools []sdk.ToolDefinition
	// Interactions are known to guidance only.
	Interactions sdk.Interactions
	// DelegatedBy is nil unless another agent called this one.
	DelegatedBy *sdk.Delegation
}

// prompts builds a conversation's beginning from templates.
type prompts struct {
	system, first *template.Template
}

func parsePrompts(spec sdk.AgentSpec) (*prompts, error) {
	var p prompts
	var err error
	if p.system, err = parseTemplate("system", spec.System); err != nil {
		return nil, err
	}
	if p.first, err = parseTemplate("prompt", spec.Prompt); err != nil {
		return nil, err
	}
	return &p, nil
}

func parseTemplate(name, text string) (*template.Template, error) {
	t, err := template.New(name).Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeConfig, "%s template: %s", name, err)
	}
	return t, nil
}

// build is the default context builder (seed 000): the templates, or without a prompt template the input's message, or
// the input as JSON.
func (p *prompts) build(_ context.Context, in sdk.ContextInput) (sdk.Context, error) {
	data := promptData{Run: in.Run, Tools: in.Tools, DelegatedBy: in.DelegatedBy}
	d := json.NewDecoder(bytes.NewReader(in.Input))
	d.UseNumber()
	if err := d.Decode(&data.Input); err != nil {
		return sdk.Context{}, fmt.Errorf("decode input: %w", err)
	}
	system, err := render(p.system, data)
	if err != nil {
		return sdk.Context{}, err
	}
	first, err := render(p.first, data)
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

func render(t *template.Template, data promptData) (string, error) {
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		return "", fmt.Errorf("render %s: %w", t.Name(), err)
	}
	return b.String(), nil
}
