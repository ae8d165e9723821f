package console

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"agentd/internal/core"
)

// recordedJoint is the journal of a run in which the last entry has an answer and the reply to it.
func recordedJoint(t *testing.T) []core.Entry {
	t.Helper()
	data, err := os.ReadFile("../../test/replay/testdata/v9/one_call.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var entries []core.Entry
	for line := range bytes.Lines(data) {
		e, err := core.DecodeEntry(bytes.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return entries
}

// Pages show both facts of an entry that has two: in the timeline when each was, in the journal as rows of one entry, and the conversation
// with the call's result and what came after.
func TestPages_ShowBothPartsOfAnEntry(t *testing.T) {
	t.Parallel()
	entries := recordedJoint(t)
	last := entries[len(entries)-1]
	answered := last.Absorbed.Head.Driver.Since
	var bars []string
	for _, s := range spansOf(entries, &last, last.Rev+1, last.At) {
		bars = append(bars, s.Name)
		if s.Name == "lookup" && s.End != answered {
			t.Errorf("the call ends at %d, and was answered at %d", s.End, answered)
		}
		if s.Name == "model call 2" && (s.Begin != answered || s.End != last.At) {
			t.Errorf("the second model call is from %d to %d, want %d to %d", s.Begin, s.End, answered, last.At)
		}
	}
	if want := []string{"model call 1", "lookup", "model call 2"}; !slices.Equal(bars, want) {
		t.Errorf("the timeline has %v, want %v", bars, want)
	}
	p := &journalPage{}
	var kinds []string
	for _, row := range p.rows(entries)[:2] {
		kinds = append(kinds, row.Kind)
		if row.Revision != last.Rev {
			t.Errorf("%s is in entry %d, want %d", row.Kind, row.Revision, last.Rev)
		}
	}
	if want := []string{core.KindReplied, core.KindAnswered}; !slices.Equal(kinds, want) {
		t.Errorf("the newest rows are %v, want %v", kinds, want)
	}
	if p.Kind = core.KindAnswered; len(p.rows(entries)) != 1 {
		t.Error("the answer is not found by its kind")
	}
	all := said(entries, &last.Head)
	if n := len(all); n < 2 || all[n-2].Call == nil || !all[n-2].Call.Answered || all[n-1].Text == "" {
		t.Errorf("the conversation is %+v", all)
	}
}

// What a page before shows is not shown again, also when the page begins with an entry that has two parts.
func TestSpans_BeginAfterBothPartsOfAnEntry(t *testing.T) {
	t.Parallel()
	entries := recordedJoint(t)
	last := entries[len(entries)-1]
	if spans := spansOf(entries[len(entries)-1:], &last, last.Rev+1, last.At); len(spans) != 0 {
		t.Errorf("%+v", spans)
	}
}
