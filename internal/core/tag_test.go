package core_test

import (
	"errors"
	"fmt"
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
)

// tag is a message about tags: an empty value takes one away.
func (r *rig) tag(id string, pairs ...string) core.Input {
	var tags []core.TagChange
	for i := 0; i < len(pairs); i += 2 {
		c := core.TagChange{Key: pairs[i]}
		if pairs[i+1] != "" {
			c.Value = &pairs[i+1]
		}
		tags = append(tags, c)
	}
	return r.deliver(id, core.TagAsked{ID: id, Tags: tags})
}

// Tags change by their keys, each message counts once whatever came between, and nothing else of the run changes.
func TestTags_ChangeByTheirKeys(t *testing.T) {
	t.Parallel()
	r := newRig(newSpec(service("lookup", 0)))
	begin := started("order 7", "hello")
	begin.Tags = "order=7,tenant=acme"
	mustStep(t, r, r.deliver("init-1", begin))
	first := r.tag("m1", "tenant", "other", "ticket", "1")
	mustStep(t, r, first)
	if got, want := r.state.Tags, "order=7,tenant=other,ticket=1"; got != want || r.state.Status != core.StatusRunning {
		t.Fatalf("the tags are %q, want %q, and the run is %s", got, want, r.state.Status)
	}
	mustStep(t, r, r.drive(r.replied("", sdk.ToolRequest{Name: "lookup", Arguments: `{}`})))
	before := r.state.Head
	change := mustStep(t, r, r.tag("m2", "order", "", "ticket", ""))
	if got, want := r.state.Tags, "tenant=other"; got != want || len(change.Effects) > 0 || r.state.Status != before.Status || len(r.state.Calls) != 1 {
		t.Errorf("the tags are %q, want %q; the run is %s with %+v", got, want, r.state.Status, change.Effects)
	}
	first.Rev = r.state.Rev + 1
	if _, _, err := r.step(first); !errors.Is(err, core.ErrStale) {
		t.Errorf("the first message once more: %v, want that it is stale", err)
	}
	many := []string{}
	for n := range 16 {
		many = append(many, fmt.Sprint("k", n), "v")
	}
	if _, _, err := r.step(r.tag("m3", many...)); !errors.Is(err, &sdk.Error{Code: sdk.CodeMessageRefused}) || r.state.Tags != "tenant=other" {
		t.Errorf("17 tags: %v, and the run has %q", err, r.state.Tags)
	}
	mustStep(t, r, r.tag("m4", "tenant", ""))
	if r.state.Tags != "" || r.state.V != 5 {
		t.Errorf("without tags the run has %q in layout %d; want none, and 5", r.state.Tags, r.state.V)
	}
	mustStep(t, r, r.deliver("cancel", core.CancelAsked{}))
	if _, _, err := r.step(r.tag("m5", "late", "1")); !errors.Is(err, core.ErrStale) {
		t.Errorf("a run that is done is tagged: %v", err)
	}
}
