package replay

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/outbox"
	"agentd/sdk/wire"
)

// TestJournals_PublishAsRecorded: whoever carries out the effects of a recorded entry publishes the same bytes for ever, each
// event on its subject. testdata/v<layout>/<story>.events has both, a line each.
func TestJournals_PublishAsRecorded(t *testing.T) {
	t.Parallel()
	for _, file := range journals(t) {
		t.Run(strings.TrimSuffix(file, ".jsonl"), func(t *testing.T) {
			t.Parallel()
			have := events(t, specOf(file), read(t, file))
			recorded := strings.TrimSuffix(file, ".jsonl") + ".events"
			want, err := os.ReadFile(recorded)
			if os.IsNotExist(err) && *update {
				want, err = []byte(have), os.WriteFile(recorded, []byte(have), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(have, "\n")); diff != "" {
				t.Errorf("-recorded +now:\n%s", diff)
			}
		})
	}
}

// events are what the effects of a journal publish, in order.
func events(t *testing.T, spec *core.Spec, entries []core.Entry) string {
	t.Helper()
	var b strings.Builder
	for i := range entries {
		for _, f := range entries[i].Effects {
			for _, m := range published(t, spec, entries, i, f) {
				data, err := m.Event.Encode()
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "%s\n%s\n", m.Subject, data)
			}
		}
	}
	return b.String()
}

// published are the events of an effect of the i-th entry.
func published(t *testing.T, spec *core.Spec, entries []core.Entry, i int, f core.Effect) []outbox.Message {
	t.Helper()
	s, e := wire.DefaultSubjects(), &entries[i]
	switch f.Kind {
	case core.EffectCall:
		opened := e
		if f.Opened > 0 {
			opened = &entries[f.Opened-1]
		}
		calls, err := outbox.Calls(s, e, f, opened)
		if err != nil {
			t.Fatal(err)
		}
		return calls
	case core.EffectVoid:
		return outbox.Voids(s, e, f)
	case core.EffectTerminal:
		terminal, _, err := outbox.Terminal(s, spec, e, nil)
		if err != nil {
			t.Fatal(err)
		}
		return []outbox.Message{terminal}
	case core.EffectTimer, core.EffectGrant, core.EffectCleanup, core.EffectRunEnd, core.EffectPark, core.EffectAnswer:
	}
	return nil
}
