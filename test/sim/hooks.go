package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// hooks sees that what hooks do counts once, however often workers that called them died before they could write it down.
type hooks struct {
	*simulation
	// counting are the specs with the hooks of hook, by digest.
	counting map[string]bool
	// remarked is how often each call was remarked on in the journal, by call.
	remarked map[string]int
}

func newHooks(s *simulation) *hooks {
	return &hooks{simulation: s, counting: map[string]bool{}, remarked: map[string]int{}}
}

const (
	countHook = "count"
	remark    = "remark on "
)

// hook gives an agent, now and then, hooks that count replies and remark on every call.
func (h *hooks) hook(a *runner.Agent) {
	if h.pick(4) > 0 {
		return
	}
	h.counting[a.Core.Digest] = true
	a.Core.Hooked, a.Core.Reviews = true, true
	a.Phases = append(a.Phases, sdk.Hook{Name: countHook, AfterInference: h.count, AfterToolExecute: h.remark})
}

// count keeps how many replies there are.
func (h *hooks) count(ctx context.Context, in sdk.Inferred) (sdk.TurnEffects, error) {
	n := 0
	if in.State != nil {
		if err := json.Unmarshal(in.State, &n); err != nil {
			return sdk.TurnEffects{}, err
		}
	}
	var e sdk.TurnEffects
	if in.Err == nil {
		e.State = fmt.Appendf(nil, "%d", n+1)
	}
	return e, h.enter(ctx, atHook)
}

// remark has the model told of every call that has its result.
func (h *hooks) remark(ctx context.Context, o sdk.ToolOutcome) (sdk.ToolEffects, error) {
	if o.Outcome == sdk.OutcomeSuspended {
		return sdk.ToolEffects{}, nil
	}
	return sdk.ToolEffects{Messages: []string{remark + o.Call}}, h.enter(ctx, atHook)
}

// committed sees that the journal counts what it has: the state of the hook is that of its last reply, and a call is remarked
// on once.
func (h *hooks) committed(key wire.RunKey, e *core.Entry) {
	if !h.counting[e.Head.Spec] || e.Head.Purged != nil {
		return
	}
	counted := string(e.Head.HookState(countHook))
	if want := fmt.Sprint(e.Head.Turns); e.Head.Status != core.StatusDone && e.Head.Turns > 0 && counted != want {
		h.violate("I2", "run %s: entry %d: a hook has counted %s replies of %s", key, e.Rev, counted, want)
	}
	for _, m := range e.Messages {
		call, ok := strings.CutPrefix(m.PlainText(), remark)
		if !ok {
			continue
		}
		if h.remarked[call]++; h.remarked[call] > 1 {
			h.violate("I2", "run %s: entry %d remarks on call %s again", key, e.Rev, call)
		}
	}
}
