package show

import (
	"encoding/json"
	"testing"
)

func TestVisible_ShowsWhatCannotBeSeen(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"pay \u202eEMCA":      `pay \u202eEMCA`,
		"a\x1b[2Jb":           `a\u001b[2Jb`,
		"zero\u200bwidth":     `zero\u200bwidth`,
		"two\nlines\tand":     `two\nlines\tand`,
		"bad \xff":            `bad \xff`,
		"tag \U000e0041":      `tag \u{e0041}`,
		"isolate\u2066\u2069": `isolate\u2066\u2069`,
		"filler \u3164":       `filler \u3164`,
		"Grüße, 世界 ✓":         "Grüße, 世界 ✓",
		"no-break\u00a0space": `no-break\u00a0space`,
	} {
		if got := Visible(text); got != want {
			t.Errorf("%q is shown as %q; want %q", text, got, want)
		}
	}
	if got := VisibleLines("two\nlines\r\n"); got != "two\nlines\\u000d\n" {
		t.Errorf("lines are shown as %q", got)
	}
	if got := VisibleJSON(json.RawMessage(`{"to":"` + "\u202e" + `x"}`)); got != "{\n  \"to\": \"\\u202ex\"\n}" {
		t.Errorf("JSON is shown as %q", got)
	}
}

func TestEscapeJSON_IsTheSameJSONInWhichAllIsSeen(t *testing.T) {
	t.Parallel()
	want := "a\u202eb\u007f\U000e0100ü日\u200b\n"
	data, err := json.MarshalIndent(map[string]string{"x\u2066": want}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	escaped := EscapeJSON(data)
	if got := "{\n \"x\\u2066\": \"a\\u202eb\\u007f\\udb40\\udd00ü日\\u200b\\n\"\n}"; string(escaped) != got {
		t.Errorf("escaped: %s; want %s", escaped, got)
	}
	var back map[string]string
	if err := json.Unmarshal(escaped, &back); err != nil || back["x\u2066"] != want {
		t.Errorf("read again: %q, %v", back, err)
	}
}
