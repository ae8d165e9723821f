package audit_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"agentd/internal/audit"
	"agentd/internal/core"
)

// exported is a trail of two entries and three records.
func exported(t *testing.T) (trail []byte, digest string) {
	t.Helper()
	var b bytes.Buffer
	w, err := audit.NewTrail(&b, "trip <7>")
	if err != nil {
		t.Fatal(err)
	}
	type record struct {
		Entry string `json:"entry"`
		Who   string `json:"who"`
	}
	steps := []func() error{
		func() error { return w.Entry(&core.Entry{Rev: 1, At: 5}, "aa") },
		func() error { return w.Record(record{"aa", "jane"}) },
		func() error { return w.Record(record{"aa", "joe & co"}) },
		func() error { return w.Entry(&core.Entry{Rev: 2, Prev: "aa", At: 6}, "bb") },
		func() error { return w.Record(record{"bb", "ann"}) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if digest, err = w.End(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), digest
}

func TestTrail_VerifiesAsExported(t *testing.T) {
	t.Parallel()
	trail, digest := exported(t)
	got, err := audit.VerifyTrail(bytes.NewReader(trail))
	if err != nil {
		t.Fatal(err)
	}
	if want := (audit.TrailSummary{Run: "trip <7>", Entries: 2, Records: 3, SHA256: digest}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestTrail_EveryChangedByteIsFound(t *testing.T) {
	t.Parallel()
	trail, _ := exported(t)
	for i := range trail {
		for _, bit := range []byte{1, 0x20} {
			changed := bytes.Clone(trail)
			changed[i] ^= bit
			if _, err := audit.VerifyTrail(bytes.NewReader(changed)); err == nil {
				t.Errorf("byte %d changed to %q is not found: %s", i, changed[i], changed)
			}
		}
	}
}

func TestTrail_MissingMovedAndAddedLinesAreFound(t *testing.T) {
	t.Parallel()
	trail, _ := exported(t)
	lines := strings.SplitAfter(strings.TrimSuffix(string(trail), "\n"), "\n")
	lines[len(lines)-1] += "\n"
	wrong := map[string][]string{"nothing": nil, "twice": append(slices.Clone(lines), lines...)}
	for i := range lines {
		wrong["without line "+lines[i]] = slices.Delete(slices.Clone(lines), i, i+1)
		wrong["twice the line "+lines[i]] = slices.Insert(slices.Clone(lines), i, lines[i])
		if i > 0 {
			swapped := slices.Clone(lines)
			swapped[i-1], swapped[i] = swapped[i], swapped[i-1]
			wrong["moved "+lines[i]] = swapped
		}
	}
	for name, l := range wrong {
		if _, err := audit.VerifyTrail(strings.NewReader(strings.Join(l, ""))); err == nil {
			t.Errorf("%s: not found", name)
		}
	}
}
