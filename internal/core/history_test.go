package core_test

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"agentd/internal/core"
	"agentd/sdk"
)

// ownChoice says that the flags of rapid were set by whoever runs the tests.
var ownChoice bool

// defaultHistories are enough to see every transition of the documents.
const defaultHistories = "1000"

// TestMain makes the property tests of this package reproducible. For more histories, and others:
//
//	go test ./internal/core -run TestHistories -rapid.checks=200000 -rapid.seed=42
func TestMain(m *testing.M) {
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { ownChoice = ownChoice || strings.HasPrefix(f.Name, "rapid.") })
	if !ownChoice {
		for name, value := range map[string]string{"rapid.checks": defaultHistories, "rapid.seed": "1"} {
			if err := flag.Set(name, value); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}

// TestHistories_KeepTheInvariants lets anything happen to runs of any agent. What must hold is in oracle; which changes
// of status there are is in docs/state_machine.md.
func TestHistories_KeepTheInvariants(t *testing.T) {
	runs, calls := transitions{}, transitions{}
	histories, entries := 0, 0
	seen := func(x *explorer) {
		runs.add(x.runs)
		calls.add(x.calls)
		histories++
		entries += len(x.rig.entries)
	}
	rapid.Check(t, func(t *rapid.T) { seen(explore(t)) })
	rapid.Check(t, func(t *rapid.T) { seen(exploreOf(t, withContext(t))) })
	t.Logf("%d histories, %d entries", histories, entries)
	rarities(t, runs, calls)
	document, err := os.ReadFile("../../docs/state_machine.md")
	if err != nil {
		t.Fatal(err)
	}
	documented(t, "Runs", table(string(document), "Runs"), runs)
	documented(t, "Calls", table(string(document), "Calls"), calls)
}

// rarities are stories that random histories reach by luck alone: a run ends because nobody could decide, while its driver begins
// a tool; and one is cancelled, or interrupted, while an allowed tool waits for the other decisions.
func rarities(t *testing.T, runs, calls transitions) {
	t.Helper()
	held := func(tools ...string) (r *rig, opened *core.Entry, happen func(core.Input) *core.Entry) {
		spec := newSpec(service("book", 30*second), inline("charge", true))
		spec.NeedsRulings, spec.Batch = true, true
		r = newRig(spec)
		happen = func(in core.Input) *core.Entry {
			t.Helper()
			before := r.state.Head
			_, e, err := r.step(in)
			if err != nil {
				t.Fatal(err)
			}
			runs.run(&before, e)
			calls.callsOf(&before, e)
			return e
		}
		happen(r.deliver("init-1", started("order 7", "hello")))
		asks := core.Ruling{Verdict: core.VerdictAsk, Terms: sdk.PermissionTerms{
			Mode: sdk.PermissionHold, Stages: []sdk.PermissionStage{{Domain: sdk.HumanDomain, TimeoutMillis: minute}},
		}}
		p := policy{}
		for _, tool := range tools {
			p[tool] = asks
		}
		reply := r.replied("", sdk.ToolRequest{Name: "book", Arguments: "{}"}, sdk.ToolRequest{Name: "charge", Arguments: "{}"})
		p.rule(reply.Admission)
		return r, happen(r.drive(reply)), happen
	}

	r, opened, happen := held("book")
	answer := r.answer(opened.Effect(core.EffectCall, opened.Requests[0].ID), 0, `{}`)
	answer.Error = true
	happen(r.deliver("nobody", answer))
	happen(r.drive(core.Began{Calls: []string{opened.Head.Calls[1].ID}}))

	for _, end := range []core.Event{core.CancelAsked{}, steered("stop that")} {
		r, opened, happen = held("book", "charge")
		r.spec.Steering = sdk.SteeringInterrupt
		answer = r.answer(opened.Effect(core.EffectCall, opened.Requests[1].ID), 0, `{}`)
		answer.Decision = &sdk.PermissionDecision{Decision: sdk.DecisionAllow, ArgsHash: sdk.ArgsHash([]byte("{}"))}
		happen(r.deliver("allowed", answer))
		happen(r.deliver("end", end))
	}
}

// documented compares a table with what was seen. A few random histories do not reach the rarest transitions.
func documented(t *testing.T, heading string, table, seen transitions) {
	t.Helper()
	for _, row := range seen.sorted() {
		if !slices.Contains(table.sorted(), row) {
			t.Errorf("docs/state_machine.md, %s, lacks %s", heading, row)
		}
	}
	if ownChoice || defaultHistories != "5000" {
		return
	}
	for _, row := range table.sorted() {
		if !slices.Contains(seen.sorted(), row) {
			t.Errorf("docs/state_machine.md, %s, has %s, which was never reached", heading, row)
		}
	}
}

// TestRound_OrderOfAnswersDoesNotMatter lets the calls of one round be answered in two orders.
func TestRound_OrderOfAnswersDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := randomSpec(t)
		spec.Converse, spec.Continues, spec.MaxTurns, spec.RunDeadline, spec.Contexts = false, false, 9, 60*minute, nil
		var calls []sdk.ToolRequest
		for i := range 2 + pick(t, 4, "calls") {
			name := spec.Tools[pick(t, len(spec.Tools), "tool")].Name
			calls = append(calls, sdk.ToolRequest{Name: name, Arguments: fmt.Sprintf(`{"n":%d}`, i)})
		}
		var orders [2]core.State
		for i := range orders {
			orders[i] = answerAll(t, spec, calls)
		}
		a, b := orders[0].Messages(), orders[1].Messages()
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatalf("another order of the answers gives another history:\n%s", diff)
		}
		if a, b := withoutDriver(orders[0].Head), withoutDriver(orders[1].Head); !reflect.DeepEqual(a, b) {
			t.Fatalf("another order of the answers gives another head:\n%s", cmp.Diff(a, b))
		}
	})
}

// withoutDriver leaves out who drives, and what is armed, which depend on when the last answer came.
func withoutDriver(h core.Head) core.Head {
	h.Driver, h.Fence, h.Timer = nil, 0, 0
	return h
}

// answerAll opens a round and lets its calls be answered in any order, until it is closed.
func answerAll(t *rapid.T, spec *core.Spec, calls []sdk.ToolRequest) core.State {
	x := newExplorer(t, spec)
	x.accept(x.rig.deliver("init-1", started("order 7", "hello")))
	x.accept(x.rig.drive(x.rig.replied("", calls...)))
	for len(x.rig.state.Calls) > 0 {
		open := x.open()
		n := pick(t, len(open)+1, "next")
		if n == len(open) {
			next, ok := x.rig.next().(core.RunTools)
			if !ok {
				continue
			}
			ev := x.tools(next)
			if returned, ok := ev.(core.Returned); ok {
				for i := range returned.Results { // whether a tool fails is not what this is about
					returned.Results[i].Error = false
				}
			}
			x.accept(x.rig.drive(ev))
			continue
		}
		ev := x.rig.answer(open[n], 0, fmt.Sprintf(`{"answer":%q}`, open[n].Call))
		x.accept(x.rig.deliver(ev.EventID, ev))
	}
	x.history()
	return x.rig.state
}
