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

// Reminded is a reminder that the model is shown at the next model call.
func (h *Head) Reminded(key, text string) Reminder { return Reminder{key, h.Turns, eventDigest(text)} }

// Due reports whether the reminder is to be shown, by when it was shown before.
func (h *Head) Due(r Reminder, cooldown int, once bool) bool {
	i := slices.IndexFunc(h.Reminders, func(shown Reminder) bool { return shown.Key == r.Key })
	switch {
	case i < 0:
		return true
	case once:
		return false
	}
	shown := &h.Reminders[i]
	return shown.Text != r.Text || h.Turns > shown.Turn+cooldown
}

// reminded keeps what the model was reminded of, the latest last.
func (t *transition) reminded(shown []Reminder) {
	h := &t.Head
	for _, r := range shown {
		h.Reminders = slices.DeleteFunc(slices.Clone(h.Reminders), func(before Reminder) bool { return before.Key == r.Key })
		h.Reminders = append(h.Reminders, r)
	}
	h.Reminders = h.Reminders[max(0, len(h.Reminders)-sdk.MaxReminders):]
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
