package core_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"agentd/internal/core"
	"agentd/sdk"
)

// family is a run with the agents that it calls, which call agents themselves, all with one budget.
type family struct {
	*rapid.T
	// used are the tokens of all model calls so far, over those by which model calls went beyond what their run had left.
	used, over int64
	runs       int
}

// TestBudget_IsExceededByOneModelCallAtMost lets random families work, and checks that they use no more tokens than the first run
// has, but for the model calls in which a run used its last ones up.
func TestBudget_IsExceededByOneModelCallAtMost(t *testing.T) {
	t.Parallel()
	exhausted := 0
	rapid.Check(t, func(t *rapid.T) {
		f := &family{T: t}
		limit := int64(1 + pick(t, 600, "limit"))
		r := f.play(limit, 0)
		if f.used > limit+f.over {
			t.Fatalf("%d runs used %d tokens of %d, %d of them beyond what was left", f.runs, f.used, limit, f.over)
		}
		// Of an agent that was too slow nobody knows by how much it went beyond its share.
		if told := r.state.TokensUsed(); told < f.used-f.over {
			t.Fatalf("the first run tells of %d tokens; %d were used", told, f.used)
		}
		if f.over > 0 {
			exhausted++
		}
	})
	if exhausted == 0 {
		t.Error("no family used its tokens up")
	}
}

// play brings one run, which may use that many tokens, to its end.
func (f *family) play(budget int64, depth int) *rig {
	spec := newSpec(service("clerk", minute), service("expert", minute), inline("add", false))
	spec.Tools[0].Agent, spec.Tools[1].Agent, spec.Tools[1].Tokens = true, true, 60
	r := newRig(spec)
	f.runs++
	begin := started(fmt.Sprintf("run %d", f.runs), "work")
	begin.Budget = budget
	f.step(r, r.deliver("init-1", begin))
	for r.state.Status != core.StatusDone {
		if r.state.Status == core.StatusWaiting {
			f.answer(r, depth)
			continue
		}
		switch next := r.next().(type) {
		case core.CallModel:
			f.step(r, r.drive(f.reply(r, depth)))
		case core.RunTools:
			var ev core.Returned
			for _, c := range next.Run {
				ev.Results = append(ev.Results, core.Result{Call: c.ID, Kind: core.ResultInline, Data: []byte(`{}`)})
			}
			f.step(r, r.drive(ev))
		case core.End:
			f.step(r, r.drive(core.Ended{Ending: next.Ending}))
		default:
			f.Fatalf("nothing to do: %T", next)
		}
	}
	return r
}

func (f *family) step(r *rig, in core.Input) {
	if _, _, err := r.step(in); err != nil {
		f.Fatalf("%T: %v", in.Event, err)
	}
}

// reply is a model call of random size.
func (f *family) reply(r *rig, depth int) core.Replied {
	left := r.state.TokensLeft()
	if left <= 0 {
		f.Fatalf("a model call with %d tokens left", left)
	}
	var calls []sdk.ToolRequest
	for i := range pick(f.T, 4, "calls") {
		tool := []string{"clerk", "expert", "add"}[pick(f.T, 3, "tool")]
		if depth == 3 {
			tool = "add"
		}
		calls = append(calls, sdk.ToolRequest{Name: tool, Arguments: fmt.Sprintf(`{"n":%d}`, i)})
	}
	ev := r.replied(`{"response":"done"}`, calls...)
	ev.Reply.Usage = sdk.Usage{Prompt: int64(pick(f.T, 40, "prompt")), Completion: int64(1 + pick(f.T, 20, "completion"))}
	if len(calls) > 0 {
		ev.Admission = r.plan(ev.Reply)
	}
	size := ev.Reply.Usage.Prompt + ev.Reply.Usage.Completion
	f.used += size
	f.over += max(0, size-left)
	return ev
}

// answer has an agent work on the first call that waits; now and then it is too slow, whatever it has used by then.
func (f *family) answer(r *rig, depth int) {
	for _, c := range r.state.Calls {
		if c.Closed() {
			continue
		}
		child := f.play(c.Reserved, depth+1)
		if pick(f.T, 5, "slow") == 0 {
			r.now = r.state.Timer
			f.step(r, r.deliver("fire", core.Fired{Now: r.now, Due: r.state.Timer}))
			return
		}
		ev := r.answer(r.effect(r.state.Opened, c.ID), 0, `{}`)
		ev.Tokens = child.state.TokensUsed()
		f.step(r, r.deliver(ev.EventID, ev))
		return
	}
}

// What model calls cost that came to nothing counts with whatever their driver does next, also where the run was cancelled meanwhile; of
// nobody else's inputs it does.
func TestSpent_CountsWithWhateverTheDriverDoes(t *testing.T) {
	t.Parallel()
	spent := sdk.ModelReply{Units: 3, Usage: sdk.Usage{Prompt: 1000, Completion: 10, CacheRead: 5}}
	for name, event := range map[string]core.Event{
		"parked":   core.Parked{Why: core.ParkModel, Key: "model"},
		"released": core.Released{},
		"ended":    core.Ended{Ending: core.Ending{Reason: core.ReasonError, Code: sdk.CodeModel}},
	} {
		for _, cancelled := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", cancelled), func(t *testing.T) {
				t.Parallel()
				r := newRig(newSpec())
				mustStep(t, r, r.deliver("init-1", started("run", "work")))
				if cancelled {
					in := r.deliver("cancel", core.CancelAsked{})
					in.Spent = spent
					mustStep(t, r, in)
				}
				in := r.drive(event)
				in.Spent = spent
				mustStep(t, r, in)
				if r.state.Usage != spent.Usage || r.state.Units != spent.Units {
					t.Errorf("the run has used %+v and %d units, want %+v and %d", r.state.Usage, r.state.Units, spent.Usage, spent.Units)
				}
			})
		}
	}
}
