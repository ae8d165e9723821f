package mockllm_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"agentd/internal/llm/mockllm"
)

// The reference has a script that is read, with every member.
func TestDocs_TheScriptOfTheReferenceHasEveryMember(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(# script.yaml\n.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/cli.md has no script")
	}
	if _, err := mockllm.ParseScript("script.yaml", block[1]); err != nil {
		t.Error(err)
	}
	schema, err := os.ReadFile("script.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	members := regexp.MustCompile(`"([a-z_]+)": \{("type"|"description"|"enum"|"\$ref"|\}|\n)`).FindAllSubmatch(schema, -1)
	if len(members) < 20 {
		t.Errorf("%d members are found in the schema", len(members))
	}
	for _, member := range members {
		name := string(member[1])
		if slices.Contains([]string{"properties", "items", "definitions", "conversation", "reply", "fault", "duration", "expect", "role"}, name) {
			continue
		}
		if !regexp.MustCompile(`\b` + name + `:`).Match(block[1]) {
			t.Errorf("%s is not in the script of docs/cli.md", name)
		}
	}
}

func TestParseScript_JSON(t *testing.T) {
	t.Parallel()
	script, err := mockllm.ParseScript("script.yaml", []byte("{\n\t\"conversations\": [\n\t\t{\"match\": {\"contains\": \"a\\u00e9\"}, "+
		"\"replies\": [{\"text\": \"b\", \"delay\": \"2s\", \"calls\": [{\"name\": \"f\", \"arguments\": {\"z\": 1.50, \"a\": [true]}}]}]}\n\t]\n}"))
	if err != nil {
		t.Fatal(err)
	}
	c := script.Conversations[0]
	if c.Name != "conversation 1" || c.Match.Contains != "aé" || c.Replies[0].Delay != 2*time.Second {
		t.Errorf("got %+v", c)
	}
	if got := c.Replies[0].Calls[0].Arguments; got != `{"z":1.50,"a":[true]}` {
		t.Errorf("arguments %s", got)
	}
}

func TestParseScript_YAMLValues(t *testing.T) {
	t.Parallel()
	script, err := mockllm.ParseScript("script.yaml", []byte(`
conversations:
  - replies:
      - calls:
          - name: f
            arguments: {hex: 0x1F, day: 2026-01-02, at: &t "12:30", same: *t, none: ~, quoted: "7", big: 123456789012345678901}
          - name: g
`))
	if err != nil {
		t.Fatal(err)
	}
	calls := script.Conversations[0].Replies[0].Calls
	want := `{"hex":31,"day":"2026-01-02","at":"12:30","same":"12:30","none":null,"quoted":"7","big":123456789012345678901}`
	if got := string(calls[0].Arguments); got != want || calls[1].Arguments != "" {
		t.Errorf("got %s\nand %q", got, calls[1].Arguments)
	}
}

func TestParseScript_ReportsEveryFault(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, script string
		says         []string
	}{
		{"form", `
conversations:
  - reply: []
    replies:
      - texts: a
      - delay: 200
      - delay: 1s
        usage: {prompt: many}
`, []string{
			`script.yaml:3:5: unknown key "reply"`, `script.yaml:5:9: unknown key "texts"; did you mean "text"?`,
			"script.yaml:6:16: conversations[0].replies[1].delay: expected a duration such as 200ms, got number 200",
			"script.yaml:8:25: conversations[0].replies[2].usage.prompt: expected integer",
		}},
		{"content", `
conversations:
  - name: a
  - replies:
      - finish: later
        calls: [{arguments: {}}]
        faults: [{status: 200}, {}, {cut: true, status: 500}]
`, []string{
			"script.yaml:3:5: the model says nothing", `script.yaml:5:17: conversations[1].replies[0].finish: expected one of "stop"`,
			`script.yaml:6:17: missing key "name": the tool`, "script.yaml:7:27: conversations[1].replies[0].faults[0].status: expected at least 400",
			`script.yaml:7:33: missing key "status"`, "script.yaml:7:37: conversations[1].replies[0].faults[2]: expected either a status or cut",
		}},
		{"last", `
conversations:
  - match: {last: a}
    replies: [{text: b}, {text: c}]
`, []string{"script.yaml:3:5: what is matched by its last message has one reply, and nothing to expect"}},
		{"expect", `
conversations:
  - expect: [{role: user, content: 7}]
`, []string{"script.yaml:3:14: content: "}},
		{"nothing", `conversations: []`, []string{"script.yaml:1:16: conversations: expected at least 1 item"}},
		{"empty", ``, []string{"script.yaml:1:1: the file is empty"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := mockllm.ParseScript("script.yaml", []byte(tc.script))
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range tc.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}
