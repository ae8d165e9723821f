package core

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentd/internal/clip"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Meaning is what a name means that no tool has.
type Meaning struct {
	// Tool is the tool that is meant for certain; empty is none. How says how that is known.
	Tool, How string
	// Closest are tools that may be meant.
	Closest []string
}

// Correction says what of a call is not as the model wrote it.
type Correction struct {
	Call string `json:"call"`
	// Name is the name that the model wrote in place of the tool's, and How says how it was understood.
	Name string `json:"name,omitempty"`
	How  string `json:"how,omitempty"`
	// Written are the arguments as the model wrote them, of long ones the beginning, and Repairs what was done to read them.
	Written string   `json:"written,omitempty"`
	Repairs []string `json:"repairs,omitempty"`
	// Overruled names arguments of the model's in whose place are those that the agent sets.
	Overruled []string `json:"overruled,omitempty"`
	// Note is what the model is told of it, with the call's result.
	Note string `json:"note"`
}

// tell writes the note, unless nothing was corrected.
func (c *Correction) tell(tool string) {
	var notes []string
	if c.Name != "" {
		notes = append(notes, fmt.Sprintf("%q is not a tool; %s was taken for it (%s)", c.Name, tool, c.How))
	}
	if len(c.Repairs) > 0 {
		notes = append(notes, "the arguments were not written correctly and were read as they must be meant: "+strings.Join(c.Repairs, ", "))
	}
	if len(c.Overruled) > 0 {
		notes = append(notes, "what you gave for "+strings.Join(c.Overruled, ", ")+" was left out, because it is not yours to set")
	}
	if len(notes) > 0 {
		c.Note = "Note: " + strings.Join(notes, "; ") + "."
	}
}

// named finds the tool that a request is for. It looks for what is meant where no tool has the name, so many times in a reply as calls
// of it are made.
func (s *Spec) named(request *sdk.ToolRequest, looked *int) (*Tool, Meaning) {
	tool := s.tool(request.Name)
	if tool != nil || s.Meaning == nil || *looked == MaxRound || s.Away(request.Name) != nil {
		return tool, Meaning{}
	}
	*looked++
	meaning := s.Meaning(request.Name)
	return s.tool(meaning.Tool), meaning
}

// read returns the canonical arguments of a call that fit its tool, with those that the agent sets, and what had to be corrected.
func (s *Spec) read(tool *Tool, head *Head, input json.RawMessage, reply *sdk.ModelReply, written string) (json.RawMessage, Correction, *sdk.Error) {
	var c Correction
	text := written
	if s.Repair != nil {
		if repaired, steps, ok := s.Repair(text, !reply.Truncated); ok {
			text, c.Written, c.Repairs = repaired, clip.Text(written, maxQuoted), steps
		}
	}
	if tool.Sets != nil {
		set, overruled, err := tool.set(text, head.Run, input)
		if err != nil {
			return nil, c, err
		}
		text, c.Overruled = set, overruled
	}
	args, faults := tool.Validate(text)
	if len(faults) > 0 {
		return nil, c, tool.unfit(faults)
	}
	return args, c, nil
}

// set puts the arguments that the agent sets into those that the model wrote. overruled are the names of the model's that they replace.
func (t *Tool) set(written, run string, input json.RawMessage) (whole string, overruled []string, problem *sdk.Error) {
	args := members(written)
	if args == nil {
		return written, nil, nil // Validate says what is wrong with it
	}
	own, err := t.Sets.Values(run, input)
	if err != nil {
		return "", nil, sdk.Errorf(sdk.CodeConfig, "%s cannot be called, because the arguments that the agent sets could not be made; whoever runs the agent has to see to it", t.Name).WithCause(err)
	}
	for _, name := range t.Sets.Names {
		if _, given := args[name]; given {
			overruled = append(overruled, name)
		}
		args[name] = own[name]
	}
	data, err := EncodeJSON(args)
	if err != nil {
		return "", nil, sdk.Errorf(sdk.CodeInternal, "the arguments of %s cannot be encoded", t.Name).WithCause(err)
	}
	return string(data), overruled, nil
}

// members are those of an object that a model wrote; nil is what is not one.
func members(written string) map[string]json.RawMessage {
	if strings.TrimSpace(written) == "" {
		return map[string]json.RawMessage{}
	}
	canonical, err := wire.Canonicalize([]byte(written))
	var args map[string]json.RawMessage
	if err != nil || json.Unmarshal(canonical, &args) != nil {
		return nil
	}
	return args
}

// unfit is what is wrong with arguments. Of those that the agent sets the model learns no more than that somebody else has to mend them.
func (t *Tool) unfit(faults []sdk.Fault) *sdk.Error {
	if t.Sets != nil {
		for _, f := range faults {
			if slices.ContainsFunc(t.Sets.Names, func(name string) bool { return within(f.Path, name) }) {
				return sdk.Errorf(sdk.CodeConfig, "%s cannot be called, because an argument that the agent sets does not fit it; whoever runs the agent has to see to it", t.Name)
			}
		}
	}
	return unfit(faults)
}

// within reports whether the path of a fault leads into that argument.
func within(path, argument string) bool {
	rest, ok := strings.CutPrefix(path, "$."+argument)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// keepsSet reports whether an approver's arguments have what the agent sets as the call has it.
func (t *Tool) keepsSet(edited, held json.RawMessage) (changed string, ok bool) {
	if t.Sets == nil {
		return "", true
	}
	var now, was map[string]json.RawMessage
	if json.Unmarshal(edited, &now) != nil || json.Unmarshal(held, &was) != nil {
		return strings.Join(t.Sets.Names, ", "), false
	}
	for _, name := range t.Sets.Names {
		if string(now[name]) != string(was[name]) {
			return name, false
		}
	}
	return "", true
}

// Shown are messages as the model is shown them: its calls without the arguments that the agent sets. It does not modify messages.
func (s *Spec) Shown(messages []sdk.Message) []sdk.Message {
	if !s.setsArguments() {
		return messages
	}
	shown := make([]sdk.Message, len(messages))
	copy(shown, messages)
	for i := range shown {
		for j := range shown[i].Content {
			c := &shown[i].Content[j]
			if c.Kind != sdk.ContentToolUse {
				continue
			}
			tool := s.tool(c.Tool)
			if tool == nil || tool.Sets == nil {
				continue
			}
			var args map[string]json.RawMessage
			if json.Unmarshal(c.Args, &args) != nil {
				continue // what could not be read is only the model's
			}
			for _, name := range tool.Sets.Names {
				delete(args, name)
			}
			if data, err := EncodeJSON(args); err == nil {
				shown[i].Content = slices.Clone(shown[i].Content)
				shown[i].Content[j].Args = data
			}
		}
	}
	return shown
}

// correction is that of a call of the open round; nil is none.
func (s *State) correction(call string) *Correction {
	for i := range s.Corrections {
		if s.Corrections[i].Call == call {
			return &s.Corrections[i]
		}
	}
	return nil
}
