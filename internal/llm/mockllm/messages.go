package mockllm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// messagesProtocol is Anthropic's: only streamed, which is all that a client needs.
type messagesProtocol struct{}

// messagesRequest is a request, as far as an answer depends on it.
type messagesRequest struct {
	Model     string          `json:"model"`
	MaxTokens int64           `json:"max_tokens"`
	Stream    bool            `json:"stream"`
	System    json.RawMessage `json:"system"`
	Messages  []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Name string `json:"name"`
	} `json:"tools"`
}

// The kinds of blocks, and fields of events.
const (
	partCall     = "tool_use"
	partResult   = "tool_result"
	partThinking = "thinking"
	fieldType    = "type"
	fieldIndex   = "index"
	fieldDelta   = "delta"
	fieldMessage = "message"
)

// part is a block of content.
type part struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	Signature string          `json:"signature"`
}

// read refuses what Anthropic's own server refuses and clients get wrong: roles that do not alternate, calls without
// their results in the next message, thinking that was not signed here, and no limit.
func (*messagesProtocol) read(body io.Reader) (chatRequest, error) {
	var in messagesRequest
	if err := json.NewDecoder(body).Decode(&in); err != nil {
		return chatRequest{}, err
	}
	if in.MaxTokens < 1 || !in.Stream {
		return chatRequest{}, errors.New("max_tokens and stream are required")
	}
	req := chatRequest{Model: in.Model, Stream: true}
	if system, err := parts(in.System); err != nil {
		return chatRequest{}, err
	} else if len(system) > 0 {
		req.Messages = append(req.Messages, Message{Role: roleSystem, Text: joinText(system)})
	}
	for _, t := range in.Tools {
		tool := offeredTool{}
		tool.Function.Name = t.Name
		req.Tools = append(req.Tools, tool)
	}
	var open []string
	for i, m := range in.Messages {
		content, err := parts(m.Content)
		if err == nil && i > 0 && m.Role == in.Messages[i-1].Role {
			err = errors.New("roles must alternate")
		}
		if err == nil {
			open, err = answered(open, content)
		}
		if err != nil {
			return chatRequest{}, fmt.Errorf("message %d: %w", i, err)
		}
		req.Messages = append(req.Messages, chatMessages(m.Role, content)...)
	}
	return req, nil
}

// answered checks that content begins with the results of the open calls, and returns the calls that it opens.
func answered(open []string, content []part) (calls []string, err error) {
	for i, p := range content {
		switch p.Type {
		case partResult:
			if i >= len(open) {
				return nil, fmt.Errorf("result %d is of no call", i+1)
			}
		case partCall:
			calls = append(calls, p.ID)
		case partThinking:
			if p.Signature != signature {
				return nil, errors.New("thinking has a signature of somebody else")
			}
		case partText:
			if p.Text == "" {
				return nil, errors.New("a text is empty")
			}
		}
	}
	if len(open) == 0 {
		return calls, nil
	}
	results := map[string]bool{}
	for _, p := range content {
		results[p.ToolUseID] = p.Type == partResult
	}
	for _, id := range open {
		if !results[id] {
			return nil, fmt.Errorf("call %s has no result in the message that follows it", id)
		}
	}
	return calls, nil
}

// parts reads content: a text, or a list of blocks.
func parts(content json.RawMessage) ([]part, error) {
	var text string
	if len(content) == 0 {
		return nil, nil
	}
	if json.Unmarshal(content, &text) == nil {
		return []part{{Type: partText, Text: text}}, nil
	}
	var list []part
	err := json.Unmarshal(content, &list)
	return list, err
}

// chatMessages is a message in the form of chat completions: each result is a message of its own.
func chatMessages(role string, content []part) []Message {
	var out []Message
	rest := Message{Role: role}
	for _, p := range content {
		switch p.Type {
		case partResult:
			result, err := parts(p.Content)
			if err != nil {
				result = []part{{Type: partText, Text: string(p.Content)}}
			}
			out = append(out, Message{Role: roleTool, CallID: p.ToolUseID, Text: joinText(result)})
		case partCall:
			rest.Calls = append(rest.Calls, Call{ID: p.ID, Name: p.Name, Arguments: string(p.Input)})
		case "image", "document":
			data, err := json.Marshal(p)
			if err == nil {
				rest.Media = append(rest.Media, string(data))
			}
		}
	}
	rest.Text = joinText(content)
	if rest.Text != "" || len(rest.Calls)+len(rest.Media) > 0 || len(out) == 0 {
		out = append(out, rest)
	}
	return out
}

func joinText(content []part) string {
	var texts []string
	for _, p := range content {
		if p.Type == partText {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

func (*messagesProtocol) refuse(w http.ResponseWriter, status int, message string) {
	kind := "api_error"
	switch {
	case status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case status == 529: // which has no name in net/http
		kind = "overloaded_error"
	case status < http.StatusInternalServerError:
		kind = "invalid_request_error"
	}
	writeJSON(w, status, map[string]any{fieldType: "error", "error": map[string]string{fieldType: kind, fieldMessage: message}})
}

// signature is how this server signs what a scripted model thinks.
const signature = "c2lnbmVkIGJ5IHRoZSBtb2Nr"

// answer sends an answer as the protocol's events. With cut it breaks the connection half-way.
func (*messagesProtocol) answer(w http.ResponseWriter, a answer, cut bool) {
	var events []map[string]any
	add := func(kind string, fields map[string]any) {
		fields[fieldType] = kind
		events = append(events, fields)
	}
	add("message_start", map[string]any{fieldMessage: map[string]any{
		"id": vendorID("msg_"), fieldType: fieldMessage, "role": roleAssistant, "model": a.model, "content": []any{},
		"stop_reason": nil, "usage": map[string]any{"input_tokens": a.usage.Prompt, "output_tokens": 1},
	}})
	index := 0
	block := func(start map[string]any, kind, field, text string) {
		add("content_block_start", map[string]any{fieldIndex: index, "content_block": start})
		for _, s := range split(text) {
			add("content_block_delta", map[string]any{fieldIndex: index, fieldDelta: map[string]any{fieldType: kind, field: s}})
		}
		if start[fieldType] == partThinking {
			add("content_block_delta", map[string]any{
				fieldIndex: index, fieldDelta: map[string]any{fieldType: "signature_delta", "signature": signature},
			})
		}
		add("content_block_stop", map[string]any{fieldIndex: index})
		index++
	}
	if t := a.reply.Thinking; t != "" {
		block(map[string]any{fieldType: partThinking, partThinking: "", "signature": ""}, "thinking_delta", partThinking, t)
	}
	if a.reply.Text != "" {
		block(map[string]any{fieldType: partText, partText: ""}, "text_delta", partText, a.reply.Text)
	}
	for _, c := range a.calls {
		block(map[string]any{fieldType: partCall, "id": c.ID, "name": c.Function.Name, "input": map[string]any{}},
			"input_json_delta", "partial_json", c.Function.Arguments)
	}
	add("message_delta", map[string]any{
		fieldDelta: map[string]any{"stop_reason": stopReason(a.finish)}, "usage": map[string]any{"output_tokens": a.usage.Completion},
	})
	add("message_stop", map[string]any{})
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	if cut {
		events = events[:len(events)/2]
	}
	for _, e := range events {
		writeEvent(w, e)
	}
	if cut {
		abort(w)
	}
}

func stopReason(finish string) string {
	return cmp.Or(map[string]string{
		finishStop: "end_turn", finishCalls: partCall, finishLength: "max_tokens", finishFilter: "refusal",
	}[finish], finish)
}

func writeEvent(w http.ResponseWriter, event map[string]any) {
	data, err := json.Marshal(event)
	if err != nil {
		return // texts and numbers always encode
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "event: %s\ndata: %s\n\n", event[fieldType], data)
	_, _ = w.Write(out.Bytes()) // a client that went away needs no error
	flush(w)
}
