package replay

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
)

// TestTombstone_IsAsRecorded: a message that is delivered again next month meets what was written today.
func TestTombstone_IsAsRecorded(t *testing.T) {
	t.Parallel()
	journal, err := os.ReadFile("testdata/v1/one_call.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSuffix(journal, []byte("\n")), []byte("\n"))
	end := lines[len(lines)-1]
	last, err := core.DecodeEntry(end)
	if err != nil {
		t.Fatal(err)
	}
	tombstone, err := core.Tombstone(&last, core.Digest(end), "tombstone", last.At+1)
	if err != nil {
		t.Fatal(err)
	}
	have, err := tombstone.Encode()
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/v1/purged.jsonl"
	want, err := os.ReadFile(file)
	if os.IsNotExist(err) && *update {
		want = append(have, '\n')
		err = os.WriteFile(file, want, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(have)+"\n"); diff != "" {
		t.Errorf("-recorded +now:\n%s", diff)
	}
}

// kinds are those of entries, as the core names them.
func kinds(t *testing.T) []string {
	t.Helper()
	source, err := os.ReadFile("../../internal/core/input.go")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, match := range regexp.MustCompile(`(?m)^\tKind\w+ += "(\w+)"`).FindAllSubmatch(source, -1) {
		all = append(all, string(match[1]))
	}
	return all
}

// TestJournals_HaveEveryKind of entry that there is, and docs/journal.md lists them all.
func TestJournals_HaveEveryKind(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/journal.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(document), "\n### Kinds\n")
	table, _, _ = strings.Cut(table, "\n### ")
	recorded := map[string]bool{}
	for _, file := range journals(t) {
		for _, e := range read(t, file) {
			recorded[e.Kind] = true
		}
	}
	listed := map[string]bool{}
	for line := range strings.Lines(table) {
		if _, rest, ok := strings.Cut(line, "| `"); ok {
			kind, _, _ := strings.Cut(rest, "`")
			listed[kind] = true
		}
	}
	want := kinds(t)
	if len(want) == 0 {
		t.Fatal("the core names no kinds")
	}
	for _, kind := range want {
		if !recorded[kind] {
			t.Errorf("no entry of kind %s is recorded", kind)
		}
		if !listed[kind] {
			t.Errorf("docs/journal.md does not list the kind %s", kind)
		}
	}
	if len(listed) != len(want) {
		t.Errorf("%d kinds are documented, and there are %d: %v", len(listed), len(want), want)
	}
}

// TestJournalDoc_ShowsARealJournal compares the example of docs/journal.md with the recorded journal that it explains.
func TestJournalDoc_ShowsARealJournal(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/journal.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/v1/one_call.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var have bytes.Buffer
	for _, block := range strings.Split(string(document), "```json\n")[1:] {
		shown, _, _ := strings.Cut(block, "```")
		if err := json.Compact(&have, []byte(shown)); err != nil {
			t.Fatal(err)
		}
		have.WriteByte('\n')
	}
	if diff := cmp.Diff(string(want), have.String()); diff != "" {
		t.Errorf("-recorded +shown:\n%s", diff)
	}
}
