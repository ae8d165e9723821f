package e2e

import (
	"encoding/json"
	"fmt"
	"strings"

	"agentd/internal/llm/mockllm"
	"agentd/sdk"
	"agentd/sdk/wire"
	"agentd/test/e2e/recorded"
)

const (
	agentName = "airline"
	stopTool  = "transfer_to_human_agents"
	// recordedReplies is where the recorder cut conversations.
	recordedReplies = 30
	endMarker       = "###STOP###"
)

// checkEnd compares how a run ended with how its record does.
func checkEnd(r recorded.Record, done wire.Event) []string {
	last := r.Messages[len(r.Messages)-1]
	switch {
	case last.Role == "user" && strings.HasSuffix(strings.TrimSpace(last.Text), endMarker):
		var output struct {
			Response string `json:"response"`
		}
		if err := json.Unmarshal(done.Data, &output); err != nil || done.Type != agentName+".done" || output.Response != lastSaid(r) {
			return []string{fmt.Sprintf("ends with %s %s, not with the last thing the agent said", done.Type, done.Data)}
		}
	case last.Role == "tool" && calledLast(r) == stopTool:
		if done.Type != agentName+".done" {
			return []string{fmt.Sprintf("ends with %s %s, not by its stop-on tool", done.Type, done.Data)}
		}
	case replies(r) == recordedReplies:
		var p wire.Problem
		if err := json.Unmarshal(done.Data, &p); err != nil || p.Code != sdk.CodeQuotaExhausted {
			return []string{fmt.Sprintf("ends with %s %s, not with the quota", done.Type, done.Data)}
		}
	default:
		return []string{"the record ends in no known way"}
	}
	return nil
}

func lastSaid(r recorded.Record) string {
	said := ""
	for _, m := range r.Messages {
		if m.Role == "assistant" && m.Text != "" {
			said = m.Text
		}
	}
	return said
}

func calledLast(r recorded.Record) string {
	name := ""
	for _, m := range r.Messages {
		for _, c := range m.Calls {
			name = c.Name
		}
	}
	return name
}

// checkHistory compares a run's history with its record, message by message.
func checkHistory(r recorded.Record, history []sdk.Message) []string {
	want := r.Messages[1:] // the first is the system prompt
	var problems []string
	for i := range max(len(want), len(history)) {
		switch {
		case i >= len(history):
			return append(problems, fmt.Sprintf("the history has %d messages, the record %d", len(history), len(want)))
		case i >= len(want):
			return append(problems, fmt.Sprintf("the history has %d messages, the record %d", len(history), len(want)))
		}
		if difference := compare(want[i], history[i]); difference != "" {
			problems = append(problems, fmt.Sprintf("message %d: %s", i, difference))
		}
	}
	return problems
}

func compare(want mockllm.Message, got sdk.Message) string {
	if want.Role == "tool" {
		result, err := json.Marshal(map[string]string{"result": want.Text})
		if err != nil {
			return err.Error()
		}
		c := got.Content[0]
		if got.Role != sdk.RoleUser || c.Kind != sdk.ContentToolResult || c.IsError || !equalJSON(result, []byte(c.Text)) {
			return fmt.Sprintf("want the result %s, got %+v", result, got)
		}
		return ""
	}
	if string(got.Role) != want.Role || got.PlainText() != want.Text {
		return fmt.Sprintf("want %s %q, got %s %q", want.Role, want.Text, got.Role, got.PlainText())
	}
	var calls []sdk.Content
	for _, c := range got.Content {
		if c.Kind == sdk.ContentToolUse {
			calls = append(calls, c)
		}
	}
	if len(calls) != len(want.Calls) {
		return fmt.Sprintf("want %d calls, got %d", len(want.Calls), len(calls))
	}
	for i, c := range want.Calls {
		if calls[i].Tool != c.Name || !equalJSON([]byte(c.Arguments), calls[i].Args) {
			return fmt.Sprintf("want the call %s %s, got %s %s", c.Name, c.Arguments, calls[i].Tool, calls[i].Args)
		}
	}
	return ""
}
