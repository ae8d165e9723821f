// Package recorded reads conversations of a real model, for tests that play them again.
package recorded

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"agentd/internal/llm/mockllm"
)

// Record is a recorded conversation of a real model.
type Record struct {
	TaskID   int               `json:"task_id"`
	Trial    int               `json:"trial"`
	Messages []mockllm.Message `json:"messages"`
}

// Run is what the subject of a run that plays r must end in.
func (r Record) Run() string { return fmt.Sprintf("airline-%d-%d", r.TaskID, r.Trial) }

// LoadTranscripts reads dir/transcripts.jsonl, one record a line.
func LoadTranscripts(dir string) ([]Record, error) {
	path := filepath.Join(dir, "transcripts.jsonl")
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read transcripts: %w", err)
	}
	defer func() { _ = f.Close() }() // opened for reading only
	var records []Record
	lines := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read transcripts: %w", err)
		}
		if len(line) > 0 {
			var r Record
			if err := json.Unmarshal(line, &r); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, n, err)
			}
			records = append(records, r)
		}
		if err != nil {
			return records, nil
		}
	}
}

// LoadToolNames reads the names from a file of OpenAI function definitions.
func LoadToolNames(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read tools: %w", err)
	}
	var tools []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := json.Unmarshal(data, &tools); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var names []string
	for _, t := range tools {
		names = append(names, t.Function.Name)
	}
	return names, nil
}

// Script is the strict script of records: each answers the runs whose subject ends in Record.Run, and expects
// every tool result as {"result": <recorded content>}. Requests must offer exactly tools.
func Script(records []Record, tools []string) (*mockllm.Script, error) {
	script := &mockllm.Script{}
	for _, r := range records {
		c := mockllm.Conversation{Name: r.Run(), Match: mockllm.Match{Run: r.Run()}, Tools: tools}
		for _, m := range r.Messages {
			switch m.Role {
			case "tool":
				result, err := json.Marshal(map[string]string{"result": m.Text})
				if err != nil {
					return nil, fmt.Errorf("record %s: %w", r.Run(), err)
				}
				m.Text = string(result)
			case "assistant":
				reply := mockllm.Reply{Text: m.Text}
				for _, call := range m.Calls {
					reply.Calls = append(reply.Calls, mockllm.ReplyCall{Name: call.Name, Arguments: mockllm.Arguments(call.Arguments)})
				}
				c.Replies = append(c.Replies, reply)
			}
			c.Expect = append(c.Expect, m)
		}
		if len(c.Replies) == 0 {
			return nil, fmt.Errorf("record %s: the model says nothing", r.Run())
		}
		script.Conversations = append(script.Conversations, c)
	}
	return script, nil
}
