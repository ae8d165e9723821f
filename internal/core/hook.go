package core

import (
	"slices"

	"agentd/internal/clip"
	"agentd/sdk"
)

// keep replaces what hooks keep in the run.
func (t *transition) keep(states []HookState) {
	h := &t.Head
next:
	for _, s := range states {
		for i := range h.Hooks {
			if h.Hooks[i].Hook == s.Hook {
				h.Hooks[i] = s
				continue next
			}
		}
		h.Hooks = append(h.Hooks, s)
	}
}

// HookState is what the hook of that name keeps; nil is nothing.
func (h *Head) HookState(name string) []byte {
	for _, s := range h.Hooks {
		if s.Hook == name {
			return s.Data
		}
	}
	return nil
}

// tellEnd has hooks told that the run has ended or is suspended: before anybody else can know, so that they see the phases of a
// run in their order.
func (t *transition) tellEnd() {
	if t.spec.Ends {
		t.Effects = slices.Insert(t.Effects, 0, Effect{Kind: EffectRunEnd})
	}
}

// terminated ends the run as hooks want, before any call of the reply is made.
func (t *transition) terminated(ev Replied) error {
	if ev.Reply.Text != "" {
		t.Messages = append(t.Messages, sdk.Text(sdk.RoleAssistant, ev.Reply.Text))
	}
	for _, c := range ev.Reply.Calls {
		if len(t.Dropped) < maxDropped {
			t.Dropped = append(t.Dropped, clip.Text(c.Name, maxToolName))
		}
	}
	return t.finish(*ev.Terminate)
}
