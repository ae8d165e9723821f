package replay

import (
	"bytes"
	"encoding/json"
	"os"
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

// TestJournals_HaveEveryKind of entry that docs/journal.md lists.
func TestJournals_HaveEveryKind(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/journal.md")
	if err != nil {
		t.Fatal(err)
	}
	_, kinds, _ := strings.Cut(string(document), "\n### Kinds\n")
	kinds, _, _ = strings.Cut(kinds, "\n### ")
	recorded := map[string]bool{}
	for _, file := range journals(t) {
		for _, e := range read(t, file) {
			recorded[e.Kind] = true
		}
	}
	listed := 0
	for line := range strings.Lines(kinds) {
		if _, rest, ok := strings.Cut(line, "| `"); ok {
			kind, _, _ := strings.Cut(rest, "`")
			if listed++; !recorded[kind] {
				t.Errorf("no entry of kind %s is recorded", kind)
			}
		}
	}
	if listed != len(recorded) {
		t.Errorf("%d kinds are documented, and %d are recorded: %v", listed, len(recorded), recorded)
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
