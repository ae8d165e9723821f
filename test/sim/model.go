package sim

import (
	"context"
	"slices"
	"strings"

	"agentd/internal/audit"
	"agentd/internal/core"
	"agentd/sdk"
)

// models is what the simulator knows of model calls: each reply has a number as its cost, so that the journal shows
// which replies were accepted, and every prompt must be a part of the run's history as the journal tells it.
type models struct {
	*simulation
	replies  sdk.Units
	accepted map[sdk.Units]bool
	states   map[sdk.RunKey]core.State
}

func newModels(s *simulation) *models {
	return &models{simulation: s, accepted: map[sdk.Units]bool{}, states: map[sdk.RunKey]core.State{}}
}

// committed follows the journal and sees that no reply is accepted twice.
func (m *models) committed(key sdk.RunKey, e *core.Entry) {
	former := m.states[key]
	state, err := core.Apply(former, e)
	if err != nil {
		m.violate("I6", "entry %d of %s cannot be applied: %v", e.Rev, key, err)
		return
	}
	m.states[key] = state
	if cost := state.Units - former.Units; cost != 0 {
		if m.accepted[cost] {
			m.violate("I2", "run %s: entry %d accepts reply %d again", key, e.Rev, cost)
		}
		m.accepted[cost] = true
	}
}

func (m *models) executed(run sdk.RunKey, call string, atMostOnce bool) {
	m.trace("tool    %s of %s", call, run)
	m.audit.Executed(audit.Execution{Run: run, Call: call, AtMostOnce: atMostOnce})
}

// model is a provider that says anything at all.
type model struct{ *models }

// Generate implements sdk.Provider.
func (m *model) Generate(ctx context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta)) (sdk.ModelReply, error) {
	if err := m.enter(ctx, "model"); err != nil {
		return sdk.ModelReply{}, err
	}
	key := sdk.NewRunKey(req.Run)
	m.audit.Generated(key)
	m.compare(key, req.Messages)
	m.replies++
	reply := sdk.ModelReply{Units: m.replies, Usage: sdk.Usage{Prompt: 1, Completion: 1}}
	m.trace("model   reply %d for %s", reply.Units, req.Run)
	if err := m.catalog.work(ctx); err != nil {
		return sdk.ModelReply{}, err
	}
	onDelta(sdk.Delta{Text: "…"})
	switch k := m.pick(10); {
	case m.chance(m.mix.broken / 4):
		return sdk.ModelReply{}, sdk.Errorf(sdk.CodeModel, "the model refuses")
	case k < 3:
		reply.Text = m.text()
	default:
		reply.Calls = m.calls()
		if m.chance(0.3) {
			reply.Text = m.text()
		}
	}
	return reply, nil
}

func (m *model) text() string {
	switch {
	case m.chance(m.mix.broken / 3):
		return "a bad answer"
	case m.chance(m.mix.broken / 3):
		return ""
	case m.chance(m.mix.broken / 3):
		return "broken \xff text"
	case m.chance(m.mix.large):
		return strings.Repeat("a long answer ", 20_000) // larger than an entry may be: it becomes a blob
	}
	return "well <then>"
}

func (m *model) calls() []sdk.ToolRequest {
	names := [...]string{
		"book", "book", "pay", "ask", childAgent, "add", "add", "charge", "charge", "finish", "nosuch", "no\xffsuch",
	}
	arguments := [...]string{`{}`, `{ "n" : 1.0 }`, `{"n":2,"m":[]}`, `{"bad":true}`, `{"n":`, `[]`}
	requests := make([]sdk.ToolRequest, 1+m.pick(4))
	for i := range requests {
		odd := m.chance(m.mix.broken)
		r := &requests[i]
		r.Name, r.Arguments = names[m.pick(len(names)-2)], arguments[m.pick(3)]
		if odd {
			r.Name, r.Arguments = names[m.pick(len(names))], arguments[m.pick(len(arguments))]
		}
	}
	return requests
}

// compare sees that a prompt is the beginning of the run's history. It is all of it, unless the worker lost the run.
func (m *models) compare(key sdk.RunKey, prompt []sdk.Message) {
	history := m.states[key].History
	if len(prompt) > len(history) {
		m.violate("I6", "run %s: a prompt has %d messages, the journal %d", key, len(prompt), len(history))
		return
	}
	for i := range prompt {
		if !sameMessage(&prompt[i], &history[i].Message) {
			m.violate("I6", "run %s: message %d of a prompt is %+v, in the journal %+v", key, i, prompt[i], history[i].Message)
			return
		}
	}
}

func sameMessage(a, b *sdk.Message) bool {
	return a.Role == b.Role && slices.EqualFunc(a.Content, b.Content, func(x, y sdk.Content) bool {
		return x.Kind == y.Kind && x.Text == y.Text && x.CallID == y.CallID && x.Tool == y.Tool &&
			string(x.Args) == string(y.Args) && x.IsError == y.IsError
	})
}
