package mockllm_test

import (
	"strings"
	"testing"
	"time"

	"agentd/internal/llm/mockllm"
)

func TestParseScript_JSON(t *testing.T) {
	t.Parallel()
	script, err := mockllm.ParseScript([]byte("{\n\t\"conversations\": [\n\t\t{\"match\": {\"contains\": \"a\\u00e9\"}, " +
		"\"replies\": [{\"text\": \"b\", \"delay\": \"2s\", \"calls\": [{\"name\": \"f\", \"arguments\": {\"z\": 1.50, \"a\": [true]}}]}]}\n\t]\n}"))
	if err != nil {
		t.Fatal(err)
	}
	c := script.Conversations[0]
	if c.Name != "conversation 1" || c.Match.Contains != "aé" || time.Duration(c.Replies[0].Delay) != 2*time.Second {
		t.Errorf("got %+v", c)
	}
	if got := c.Replies[0].Calls[0].Arguments; got != `{"z":1.50,"a":[true]}` {
		t.Errorf("arguments %s", got)
	}
}

func TestParseScript_YAMLValues(t *testing.T) {
	t.Parallel()
	script, err := mockllm.ParseScript([]byte(`
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
`, []string{"line 3: field reply", "line 5: field texts", `line 6: "200" is not a duration`, "line 8"}},
		{"content", `
conversations:
  - name: a
  - replies:
      - finish: later
        calls: [{arguments: {}}]
        faults: [{status: 200}, {}, {cut: true, status: 500}]
`, []string{"a: no replies", `conversation 2: reply 1: unknown finish "later"`, "has no name", "either a status"}},
		{"expect", `
conversations:
  - expect: [{role: user, content: 7}]
`, []string{"line 3: content"}},
		{"empty", ``, []string{"no conversations"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := mockllm.ParseScript([]byte(tc.script))
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
