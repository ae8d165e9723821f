package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentd/internal/core"
	"agentd/internal/prompt"
	"agentd/internal/toolbox"
	"agentd/internal/toolcall"
	"agentd/sdk"
)

// readCalls says how the core reads the calls of models: the names of tools, arguments, and which the agent sets.
func readCalls(s *core.Spec, spec sdk.AgentSpec, tools *toolbox.Toolbox, describe func(string) sdk.PermissionCheck) error {
	corrections := sdk.Corrections{}
	if spec.Corrections != nil {
		corrections = *spec.Corrections
	}
	var known []toolcall.Tool
	for i, t := range tools.Callable() {
		known = append(known, toolcall.Tool{
			Name: t.Name, Server: t.Definition.Server, Type: t.Contract.Type, ReadOnly: describe(t.Name).Labels.ReadOnly,
		})
		if len(t.Set) == 0 {
			continue
		}
		set, err := newSetArguments(t.Name, t.Arguments(), spec.Arguments[t.Name])
		if err != nil {
			return err
		}
		s.Tools[i].Sets = &core.SetArguments{Names: t.Set, Values: set.ofRun}
	}
	if err := readUndo(s, spec, tools); err != nil {
		return err
	}
	names := toolcall.NewNames(known, spec.Aliases, corrections.Names)
	s.Meaning = func(name string) core.Meaning {
		m := names.Meaning(name)
		return core.Meaning{Tool: m.Tool, How: string(m.How), Closest: m.Closest}
	}
	if corrections.Arguments {
		s.Repair = repair
	}
	return nil
}

// readUndo says how calls are undone.
func readUndo(s *core.Spec, spec sdk.AgentSpec, tools *toolbox.Toolbox) error {
	for _, name := range slices.Sorted(maps.Keys(spec.Undo)) {
		undo := spec.Undo[name]
		var arguments json.RawMessage
		if t, ok := tools.ByName(undo.Tool); ok { // else its toolset is away, and it is not called until that is back
			arguments = t.Arguments()
		}
		set, err := newSetArguments(undo.Tool, arguments, undo.Args)
		if err != nil {
			return fmt.Errorf("the call that undoes %s: %w", name, err)
		}
		if s.Undo == nil {
			s.Undo = map[string]core.UndoTool{}
		}
		s.Undo[name] = core.UndoTool{Tool: undo.Tool, Args: set.ofCall}
	}
	return nil
}

func repair(arguments string, whole bool) (repaired string, done []string, ok bool) {
	repaired, steps, ok := toolcall.Repair(arguments, whole)
	for _, s := range steps {
		done = append(done, string(s))
	}
	return repaired, done, ok
}

// setArguments are arguments that an agent sets, of one tool.
type setArguments map[string]setArgument

// setArgument is a JSON value of which the texts are templates.
type setArgument struct {
	value any
	// texts are the templates of the value's texts.
	texts map[string]*prompt.Template
	// other says that the tool takes no text for it: what a template makes is JSON.
	other bool
}

// newSetArguments reads the templates of arguments of a tool with that name and schema.
func newSetArguments(tool string, arguments json.RawMessage, set map[string]json.RawMessage) (setArguments, error) {
	var schema struct {
		Properties map[string]struct {
			Type json.RawMessage `json:"type"`
		} `json:"properties"`
	}
	_ = json.Unmarshal(arguments, &schema) // what says nothing of a type takes texts
	all := setArguments{}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		of := schema.Properties[name].Type
		a := setArgument{texts: map[string]*prompt.Template{}, other: len(of) > 0 && !bytes.Contains(of, []byte(`"string"`))}
		var err error
		if a.value, err = decoded(set[name]); err == nil {
			err = a.parse(tool+"."+name, a.value)
		}
		if err != nil {
			return nil, fmt.Errorf("the argument %s of %s: %w", name, tool, err)
		}
		all[name] = a
	}
	return all, nil
}

func decoded(data json.RawMessage) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	err = d.Decode(&value)
	return value, err
}

// parse reads the templates of a value.
func (a *setArgument) parse(name string, value any) (err error) {
	switch value := value.(type) {
	case string:
		a.texts[value], err = prompt.Parse(name, value)
	case []any:
		for _, item := range value {
			if err := a.parse(name, item); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if err := a.parse(name, value[key]); err != nil {
				return err
			}
		}
	}
	return err
}

// ofRun are the arguments of a run with that subject and input.
func (s setArguments) ofRun(run string, input json.RawMessage) (map[string]json.RawMessage, error) {
	data := prompt.Data{Run: run}
	var err error
	if data.Input, err = decoded(input); err != nil {
		return nil, fmt.Errorf("decode input: %w", err)
	}
	return s.values(data)
}

// ofCall are the arguments of the call that undoes one which was made with args and returned result.
func (s setArguments) ofCall(run string, input, args, result json.RawMessage) (json.RawMessage, error) {
	data := prompt.UndoData{Run: run}
	for _, part := range []struct {
		of   json.RawMessage
		into *any
	}{{args, &data.Args}, {result, &data.Result}, {input, &data.Input}} {
		var err error
		if *part.into, err = decoded(part.of); err != nil {
			return nil, fmt.Errorf("decode what the call was made with: %w", err)
		}
	}
	values, err := s.values(data)
	if err != nil {
		return nil, err
	}
	return core.EncodeJSON(values)
}

// values are the arguments, with data in the templates.
func (s setArguments) values(data any) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		a := s[name]
		made, err := a.render(a.value, data)
		if err != nil {
			return nil, err
		}
		text, isText := made.(string)
		if isText && a.other && json.Valid([]byte(text)) {
			out[name] = json.RawMessage(strings.TrimSpace(text))
			continue
		}
		if out[name], err = core.EncodeJSON(made); err != nil {
			return nil, fmt.Errorf("encode the argument %s: %w", name, err)
		}
	}
	return out, nil
}

// render makes a value with its templates filled in.
func (a *setArgument) render(value, data any) (any, error) {
	switch value := value.(type) {
	case string:
		return a.texts[value].Render(data)
	case []any:
		out := make([]any, len(value))
		for i, item := range value {
			var err error
			if out[i], err = a.render(item, data); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := map[string]any{}
		for key, item := range value {
			var err error
			if out[key], err = a.render(item, data); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return value, nil
}

// checkFollow refuses what a model may not follow.
func checkFollow(spec sdk.AgentSpec) error {
	models := []sdk.ModelSpec{spec.Model}
	if spec.Memory != nil && spec.Memory.Summarizer != nil {
		models = append(models, *spec.Memory.Summarizer)
	}
	for role, m := range spec.Plan.Models() {
		if m.Follow != "" {
			return sdk.Errorf(sdk.CodeConfig, "plan: %s: follow: a model of planning is that of the run's beginning; leave it out", role)
		}
	}
	for _, m := range models {
		switch m.Follow {
		case "", sdk.FollowStart, sdk.FollowCurrent:
		default:
			return sdk.Errorf(sdk.CodeConfig, "model %q: follow: want start or current, got %q", m.Name, m.Follow)
		}
		for _, f := range m.Fallback {
			if f.Follow != "" {
				return sdk.Errorf(sdk.CodeConfig, "model %q: follow: a fallback follows the model that it stands in for; say it of that one", f.Name)
			}
		}
	}
	return nil
}
