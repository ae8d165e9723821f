package core_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"agentd/internal/core"
	"agentd/sdk/wire"
)

// TestJoint_IsWhatTwoEntriesAre: a run is the same to whoever reads its journal, whether answers and replies are in one entry or not.
func TestJoint_IsWhatTwoEntriesAre(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	joint := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		apart, _ := play(t, archive, false)
		joins, _ := play(t, archive, true)
		if joins.unwritten != nil {
			if _, err := joins.write(*joins.unwritten); err != nil {
				t.Fatal(err)
			}
		}
		want, wantTold, err := apart.written()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		have, haveTold, err := joins.written()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want.Messages(), have.Messages()); diff != "" {
			t.Errorf("%s: history -apart +joint:\n%s", name, diff)
		}
		if diff := cmp.Diff(withoutPlaces(wantTold), withoutPlaces(haveTold)); diff != "" {
			t.Errorf("%s: milestones -apart +joint:\n%s", name, diff)
		}
		if a, b := want.Head, have.Head; a.Status != b.Status || a.Turns != b.Turns || a.Usage != b.Usage || a.Fence != b.Fence || a.Round != b.Round {
			t.Errorf("%s: the run is %+v, and with joint entries %+v", name, a, b)
		}
		undo := map[string]bool{"lookup": true, "book": true, "add": true, "charge": true}
		if diff := cmp.Diff(undoable(apart, undo), undoable(joins, undo)); diff != "" {
			t.Errorf("%s: calls that can be undone -apart +joint:\n%s", name, diff)
		}
		for i := range joins.entries {
			e := &joins.entries[i]
			if e.Absorbed == nil {
				continue
			}
			joint++
			if e.V < 9 || joins.entries[len(joins.entries)-1].V != e.V {
				t.Errorf("%s: entry %d has layout %d, the last one %d", name, e.Rev, e.V, joins.entries[len(joins.entries)-1].V)
			}
		}
		if len(apart.lines)-len(joins.lines) != count(joins.entries) {
			t.Errorf("%s has %d entries in place of %d, of which %d are joint", name, len(joins.lines), len(apart.lines), count(joins.entries))
		}
	}
	if joint < 20 {
		t.Errorf("the transcripts have %d joint entries", joint)
	}
}

func count(entries []core.Entry) (joint int) {
	for i := range entries {
		joint += len(entries[i].Parts()) - 1
	}
	return joint
}

// withoutPlaces are milestones with the names of entries taken out of what they say.
func withoutPlaces(told []wire.Live) []string {
	var lines []string
	for _, l := range told {
		lines = append(lines, l.Type+" "+string(l.Data))
	}
	return lines
}

func undoable(r *rig, tools map[string]bool) []string {
	stack := core.NewUndoStack(tools)
	for i := range r.entries {
		stack.Add(&r.entries[i])
	}
	var calls []string
	for _, c := range stack.Calls() {
		calls = append(calls, c.ID+string(c.Result.Data))
	}
	return calls
}

// TestJoinable_LeavesWhatOthersWaitFor: a decision, an answer with effects and an answer to a run that is driven are entries of their own.
func TestJoinable_LeavesWhatOthersWaitFor(t *testing.T) {
	t.Parallel()
	waiting := core.Head{Status: core.StatusWaiting}
	answered := func(change func(*core.Change)) *core.Change {
		c := &core.Change{Kind: core.KindAnswered, Head: core.Head{Status: core.StatusRunning, Driver: &core.Driver{}}}
		change(c)
		return c
	}
	if !answered(func(*core.Change) {}).Joinable(&waiting) {
		t.Error("an answer that lets a run go on is not joinable")
	}
	for what, c := range map[string]*core.Change{
		"a decision":     answered(func(c *core.Change) { c.Decisions = []core.Decision{{}} }),
		"a void":         answered(func(c *core.Change) { c.Effects = []core.Effect{{Kind: core.EffectVoid}} }),
		"a timer":        answered(func(c *core.Change) { c.Kind = core.KindFired }),
		"the end":        answered(func(c *core.Change) { c.Head.Cancel = &core.Ending{} }),
		"an urgent note": answered(func(c *core.Change) { c.Head.Urgent = true }),
		"one that waits": answered(func(c *core.Change) { c.Head.Status = core.StatusWaiting }),
	} {
		if c.Joinable(&waiting) {
			t.Errorf("%s is joinable", what)
		}
	}
	if answered(func(*core.Change) {}).Joinable(&core.Head{Status: core.StatusRunning}) {
		t.Error("an answer to a run that is driven is joinable")
	}
}

// TestParts_AreNotTakenForEntries: what was absorbed is dated when the driver took the run, and neither part has another in it.
func TestParts_AreNotTakenForEntries(t *testing.T) {
	t.Parallel()
	e := core.Entry{V: core.LayoutVersion, Rev: 7, At: 2000, Change: core.Change{Kind: core.KindReplied}.After(&core.Change{
		Kind: core.KindAnswered, Head: core.Head{Driver: &core.Driver{Since: 1000}},
	})}
	var kinds []string
	for _, part := range core.InParts([]core.Entry{e}) {
		kinds = append(kinds, part.Kind)
		if part.Rev != e.Rev || part.Absorbed != nil {
			t.Errorf("%s is a part with revision %d, which has absorbed %v", part.Kind, part.Rev, part.Absorbed)
		}
		if want := map[string]int64{core.KindAnswered: 1000, core.KindReplied: 2000}[part.Kind]; part.At != want {
			t.Errorf("%s is dated %d, want %d", part.Kind, part.At, want)
		}
	}
	if !slices.Equal(kinds, []string{core.KindAnswered, core.KindReplied}) {
		t.Errorf("the parts are %v", kinds)
	}
	if _, err := core.ApplyRest(core.State{Rev: 6}, &e); err == nil {
		t.Error("the rest of an entry is applied to a state without the first part")
	}
}

// TestJoint_KeepsALaterLayout: what a version before cannot read is in the run's journal from then on.
func TestJoint_KeepsALaterLayout(t *testing.T) {
	t.Parallel()
	for before, want := range map[int]int{1: 9, 10: 10} {
		if got := (core.Change{Head: core.Head{V: before}}).After(&core.Change{}).Head.V; got != want {
			t.Errorf("a joint entry of a run of layout %d has layout %d, want %d", before, got, want)
		}
	}
}
