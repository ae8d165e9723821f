package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"agentd/internal/schema"
	"agentd/sdk"
)

// asked is something that a server wants to know of a person.
type asked struct {
	// Key names the request in the newer protocol; in the older one it is what is asked.
	Key    string          `json:"key"`
	Params elicitParams    `json:"params"`
	Fault  string          `json:"fault,omitempty"`
	Answer json.RawMessage `json:"answer,omitempty"`
}

type elicitParams struct {
	Mode    string          `json:"mode,omitempty"`
	Message string          `json:"message"`
	Schema  json.RawMessage `json:"requestedSchema,omitempty"`
	URL     string          `json:"url,omitempty"`
}

// answered is an answer for a question that a server of the older protocol asks again when its call is made again.
type answered struct {
	Key    string          `json:"key"`
	Answer json.RawMessage `json:"answer"`
}

// kept is what a call that asks needs to go on, hours later and anywhere: the state of the tool call.
type kept struct {
	// State is the server's own, which it gets back as it is. Modern says that there are input responses to send.
	State  *string `json:"state,omitempty"`
	Modern bool    `json:"modern,omitempty"`
	Asked  []asked `json:"asked,omitempty"`
	// Answered are in the order in which they were asked (older protocol).
	Answered []answered `json:"answered,omitempty"`
}

// resume reads what a call was left with, and enters the answer to its question.
func resume(answer *sdk.ToolAnswer) (*kept, error) {
	k := &kept{}
	if answer == nil {
		return k, nil
	}
	if err := json.Unmarshal(answer.State, k); err != nil {
		return nil, sdk.Errorf(sdk.CodeTool, "the call cannot go on: what it kept cannot be read").WithCause(err)
	}
	for i := range k.Asked {
		a := &k.Asked[i]
		if a.Answer != nil {
			continue
		}
		a.Answer, a.Fault = a.Params.response(answer)
		if a.Fault == "" && !k.Modern {
			k.Answered = append(k.Answered, answered{a.Key, a.Answer})
			k.Asked = nil
		}
		break
	}
	return k, nil
}

// open reports whether something is not answered yet.
func (k *kept) open() bool {
	return slices.ContainsFunc(k.Asked, func(a asked) bool { return a.Answer == nil })
}

// ask is the question for the first that is not answered.
func (k *kept) ask() error {
	state, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("encode what a call keeps: %w", err)
	}
	for _, a := range k.Asked {
		if a.Answer == nil {
			return sdk.AskPerson(a.question(), state)
		}
	}
	return sdk.Errorf(sdk.CodeInternal, "there is nothing to ask")
}

// require notes what a server of the newer protocol asks for.
func (k *kept) require(r *inputRequired) error {
	k.Modern, k.State, k.Asked = true, r.RequestState, nil
	for _, key := range slices.Sorted(maps.Keys(r.InputRequests)) {
		request := r.InputRequests[key]
		if request.Method != string(mcp.MethodElicitationCreate) {
			return sdk.Errorf(sdk.CodeTool, "the MCP server asks for %s, which is not offered to it", request.Method)
		}
		a := asked{Key: key}
		if err := json.Unmarshal(request.Params, &a.Params); err != nil {
			return sdk.Errorf(sdk.CodeTool, "the MCP server asks a question that cannot be read").WithCause(err)
		}
		k.Asked = append(k.Asked, a)
	}
	return nil
}

// parameters are what a call that goes on has beside its own.
func (k *kept) parameters() map[string]any {
	if !k.Modern {
		return nil
	}
	responses, p := map[string]json.RawMessage{}, map[string]any{}
	for _, a := range k.Asked {
		responses[a.Key] = a.Answer
	}
	if len(responses) > 0 {
		p["inputResponses"] = responses
	}
	if k.State != nil {
		p["requestState"] = *k.State
	}
	return p
}

// question is how a person is asked.
func (a *asked) question() sdk.Question {
	q := sdk.Question{Question: a.Params.Message}
	if a.Fault != "" {
		q.Question = fmt.Sprintf("%s\n\nThe answer before does not do: %s", q.Question, a.Fault)
	}
	if a.Params.URL != "" {
		q.Question += "\n\nOpen " + a.Params.URL + " and answer when you are done."
		return q
	}
	names, fields := a.Params.fields()
	if len(names) == 1 {
		q.Suggestions = fields[names[0]].suggestions()
	}
	if len(names) > 0 {
		q.Schema = a.Params.Schema
	}
	if len(names) > 1 {
		q.Question += "\n\nAnswer with a JSON object that has: " + strings.Join(names, ", ") + "."
	}
	return q
}

type field struct {
	Type string   `json:"type"`
	Enum []string `json:"enum"`
}

// suggestions are likely answers; a question has four at most.
func (f field) suggestions() []string {
	switch {
	case f.Type == "boolean":
		return []string{"true", "false"}
	case len(f.Enum) <= 4:
		return f.Enum
	}
	return nil
}

func (p *elicitParams) fields() ([]string, map[string]field) {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(p.Schema, &schema) != nil {
		return nil, nil
	}
	fields := map[string]field{}
	for name, raw := range schema.Properties {
		var f field
		_ = json.Unmarshal(raw, &f) // a field of a form that is not known is plain text
		fields[name] = f
	}
	return slices.Sorted(maps.Keys(fields)), fields
}

const (
	actionAccept  = "accept"
	actionDecline = "decline"
	actionCancel  = "cancel"
)

type elicitResult struct {
	Action  string          `json:"action"`
	Content json.RawMessage `json:"content,omitempty"`
}

// response is what the server is told, or the fault that the person is asked again with. Nobody's answer is a cancel.
func (p *elicitParams) response(answer *sdk.ToolAnswer) (response json.RawMessage, fault string) {
	var given struct {
		Answer  string          `json:"answer"`
		Action  string          `json:"action"`
		Content json.RawMessage `json:"content"`
	}
	result := elicitResult{Action: actionAccept}
	switch {
	case answer.Failed || json.Unmarshal(answer.Data, &given) != nil:
		result.Action = actionCancel
	case given.Action == actionDecline || given.Action == actionCancel:
		result.Action = given.Action
	case p.URL == "":
		if result.Content, fault = p.content(given.Answer, given.Content); fault != "" {
			return nil, fault
		}
	}
	data, err := json.Marshal(result)
	if err != nil {
		return nil, "it cannot be sent"
	}
	return data, ""
}

// content makes the content of a form from an answer: the content itself, the value of the only field, or JSON.
func (p *elicitParams) content(text string, content json.RawMessage) (json.RawMessage, string) {
	names, fields := p.fields()
	switch {
	case len(content) > 0:
	case len(names) == 0:
		content = json.RawMessage(`{}`)
	case len(names) == 1 && !strings.HasPrefix(strings.TrimSpace(text), "{"):
		data, err := json.Marshal(map[string]any{names[0]: fields[names[0]].value(text)})
		if err != nil {
			return nil, "it cannot be sent"
		}
		content = data
	default:
		content = json.RawMessage(text)
	}
	if len(p.Schema) == 0 {
		return content, ""
	}
	schema, err := schema.Compile(p.Schema)
	if err != nil {
		return nil, "the form has a schema that cannot be used"
	}
	if !json.Valid(content) {
		return nil, "it is not JSON"
	}
	if content, err = schema.ApplyDefaults(content); err != nil {
		return nil, sdk.AsError(err).Message
	}
	if faults := schema.Validate(content); len(faults) > 0 {
		return nil, (&sdk.Error{Code: sdk.CodeContractViolation, Faults: faults}).Error()
	}
	return content, ""
}

// value reads an answer in the type of the field; what does not fit it is left to the schema to refuse.
func (f field) value(text string) any {
	text = strings.TrimSpace(text)
	switch f.Type {
	case "boolean":
		switch strings.ToLower(text) {
		case "yes", "y", "true":
			return true
		case "no", "n", "false":
			return false
		}
	case "integer", "number":
		if _, err := strconv.ParseFloat(text, 64); err == nil && json.Valid([]byte(text)) {
			return json.Number(text)
		}
	}
	return text
}

// elicitation answers servers of the older protocol, which ask while a call runs. A worker cannot keep a call open until a
// person has time: it is given up, and made again with the answer.
type elicitation struct{ c *connection }

var (
	errAsked     = errors.New("the call is given up until a person has answered, and then made again")
	errParted    = errors.New("the call is given up until it is alone: several of them asked, and the protocol does not say which asked what")
	errAmbiguous = errors.New("several calls run, and the protocol does not say which of them asks")
	// errKept is errAmbiguous where calls go on that are not made twice; one of them may wait for the answer.
	errKept = errors.New("several calls run, and some of them cannot be made again")
)

// Elicit implements client.ElicitationHandler.
func (e elicitation) Elicit(ctx context.Context, request mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	a, err := newAsked(request.Params)
	if err != nil {
		return nil, err
	}
	x, err := e.c.asks(ctx)
	if errors.Is(err, errKept) {
		return cancelled(), nil
	}
	if err != nil {
		return nil, err
	}
	defer e.c.mu.Unlock()
	if x.asked != nil {
		return nil, errAsked // one question ends the attempt
	}
	if i := slices.IndexFunc(x.answered, func(given answered) bool { return given.Key == a.Key }); i >= 0 {
		var given elicitResult
		if err := json.Unmarshal(x.answered[i].Answer, &given); err != nil {
			return nil, fmt.Errorf("read the answer: %w", err)
		}
		x.answered = slices.Delete(slices.Clone(x.answered), i, i+1)
		result := &mcp.ElicitationResult{}
		result.Action = mcp.ElicitationResponseAction(given.Action)
		if len(given.Content) > 0 {
			result.Content = given.Content
		}
		return result, nil
	}
	if x.once {
		return cancelled(), nil // it may not be made twice
	}
	x.asked = a
	x.cancel(errAsked)
	return nil, errAsked
}

func cancelled() *mcp.ElicitationResult {
	result := &mcp.ElicitationResult{}
	result.Action = mcp.ElicitationResponseActionCancel
	return result
}

func newAsked(p mcp.ElicitationParams) (*asked, error) {
	schema, err := json.Marshal(p.RequestedSchema)
	if err != nil {
		return nil, fmt.Errorf("read the schema of a form: %w", err)
	}
	a := &asked{Params: elicitParams{Mode: p.Mode, Message: p.Message, URL: p.URL}}
	if p.RequestedSchema != nil {
		a.Params.Schema = schema
	}
	key, err := json.Marshal(a.Params)
	if err != nil {
		return nil, fmt.Errorf("read a question: %w", err)
	}
	a.Key = string(key)
	return a, nil
}
