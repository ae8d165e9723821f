package sim

import (
	"context"
	"slices"
	"strings"
	"time"

	"agentd/internal/audit"
	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// models is what the simulator knows of model calls: each reply has a number as its cost, so that the journal shows
// which replies were accepted, and every prompt must be a part of the run's history as the journal tells it.
type models struct {
	*simulation
	replies sdk.Units
	// prompts are those of replies that were made before what they are about was written.
	prompts map[sdk.Units][]sdk.Message
	// steps counts those that planners have written, so that each has a text of its own.
	steps int
	// accepted are the replies in journals, costs and calls what each journal adds up to.
	accepted map[sdk.Units]bool
	costs    map[wire.RunKey]sdk.Units
	calls    map[wire.RunKey]int64
}

func newModels(s *simulation) *models {
	return &models{
		simulation: s, accepted: map[sdk.Units]bool{}, prompts: map[sdk.Units][]sdk.Message{}, costs: map[wire.RunKey]sdk.Units{},
		calls: map[wire.RunKey]int64{},
	}
}

// committed sees that no reply is accepted twice, and that no run ends because its model is away, or because of what others did
// to its workers.
func (m *models) committed(key wire.RunKey, e *core.Entry) {
	if e.Head.ReasonCode == string(sdk.CodePoison) && key != m.poison && !m.lethal && m.deaths <= core.MaxDeaths {
		m.violate("I11", "run %s: entry %d ends it as poison, and %d had died", key, e.Rev, m.deaths)
	}
	if e.Head.ReasonCode == string(sdk.CodeUnavailable) && e.Terminal != nil && strings.Contains(string(e.Terminal.Data), "the model") {
		m.violate("I11", "run %s: entry %d ends it because its model is away", key, e.Rev)
	}
	cost, calls := e.Head.Units-m.costs[key], e.Head.Usage.Prompt-m.calls[key]
	m.costs[key], m.calls[key] = e.Head.Units, e.Head.Usage.Prompt
	if cost == 0 || calls > 1 { // of several, some came to nothing, and nobody can tell which
		return
	}
	if m.accepted[cost] {
		m.violate("I2", "run %s: entry %d accepts reply %d again", key, e.Rev, cost)
	}
	m.accepted[cost] = true
	if prompt, early := m.prompts[cost]; early && e.Kind == core.KindReplied {
		m.wasShown(key, e, prompt)
	}
}

// wasShown sees that a prompt is the run's whole history before the reply that an entry has.
func (m *models) wasShown(key wire.RunKey, e *core.Entry, prompt []sdk.Message) {
	var state core.State
	parts := e.Parts()
	for _, d := range m.store.journals[key].decoded[:e.Rev] {
		before, err := m.store.whole(d)
		if err == nil && d.Rev == e.Rev {
			if len(parts) == 1 {
				break
			}
			part := *parts[0]
			before = &part
		}
		if err == nil {
			state, err = core.Apply(state, before)
		}
		if err != nil {
			m.violate("I6", "entry %d of a journal cannot be applied: %v", d.Rev, err)
			return
		}
	}
	shown := len(state.Conversation().Messages)
	if !m.shows(&state, prompt) || len(prompt) < shown {
		m.violate("I6", "run %s: the reply in entry %d is to another history than the journal's: %+v", key, e.Rev, prompt)
	}
}

// model is a provider that says anything at all, within what its agent can do.
type model struct {
	*models
	tools []string
	width int
	// chooses says that the model is offered what a choice in the journal says.
	chooses bool
}

// Generate implements sdk.Provider.
func (m *model) Generate(ctx context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta)) (sdk.ModelReply, error) {
	if err := m.enter(ctx, atModel); err != nil {
		return sdk.ModelReply{}, err
	}
	if m.running.knowsPause() {
		m.violate("paused", "the model is called for %s, whose agent is known to be paused", req.Run)
	}
	key := wire.NewRunKey(req.Run)
	if key == m.poison {
		m.doom()
	}
	if reply, plans := m.plans(req); plans {
		err := m.work(ctx)
		if err == nil && m.strikes(modelAway) {
			err = m.away()
		}
		return reply, err
	}
	m.replies++
	if !isSummary(req) {
		unwritten := m.asked(key)
		if n := len(req.Messages) - 1; synthesizes(req.Messages[n].PlainText()) {
			req.Messages = req.Messages[:n] // it is not kept
		}
		if n := len(req.Messages); req.Lifecycle == sdk.LifecycleReminder {
			req.Messages = req.Messages[:n-1] // the reminder is not kept
		}
		if unwritten {
			m.prompts[m.replies] = req.Messages
		} else {
			m.compare(key, req.Messages)
		}
		if m.chooses {
			m.offered(key, req.Tools)
		}
	}
	reply := sdk.ModelReply{Units: m.replies, Usage: sdk.Usage{Prompt: 1, Completion: 1}}
	m.trace("model   reply %d for %s", reply.Units, req.Run)
	if err := m.think(ctx); err != nil {
		return sdk.ModelReply{}, err
	}
	if onDelta != nil {
		onDelta(sdk.Delta{Text: "…"})
	}
	if m.strikes(modelAway) {
		return sdk.ModelReply{}, m.away()
	}
	if m.strikes(modelFails) {
		return sdk.ModelReply{}, sdk.Errorf(sdk.CodeModel, "the model refuses")
	}
	if len(m.tools) == 0 || isSummary(req) || m.pick(3) == 0 {
		reply.Text = m.text()
		return reply, nil
	}
	reply.Calls = m.calls()
	if m.pick(3) == 0 {
		reply.Text = m.text()
	}
	return reply, nil
}

// away is a failure that may pass, though an operator may have to see to it.
func (m *model) away() error {
	return []*sdk.Error{
		{Code: sdk.CodeUnavailable, Message: "the model is away", Retryable: true},
		{Code: sdk.CodeRateLimited, Message: "the model wants fewer calls", Retryable: true, RetryAfter: 2 * time.Minute},
		{Code: sdk.CodeConfig, Message: "the model refuses the key"},
	}[m.pick(3)]
}

// asked tells the audit that the model of a run is asked, and reports whether that is about what is not written yet: the activation has
// written nothing.
func (m *models) asked(key wire.RunKey) (unwritten bool) {
	a := m.running.activation()
	if unwritten = !a.written[key]; unwritten {
		m.running.at = atModelUnwritten
		m.audit.GeneratedUnwritten(key, a.message)
		return true
	}
	m.audit.Generated(key)
	return false
}

// think is work of a model, half of which reply at once.
func (m *model) think(ctx context.Context) error {
	if m.pick(2) == 0 {
		return m.running.worker.Sleep(ctx, time.Duration(m.pick(quick))*time.Millisecond)
	}
	return m.work(ctx)
}

// quick is how long a model takes at most, in milliseconds, that replies at once.
const quick = 400

// work takes some time, now and then more than a lease, than its timeout, or than a worker may be silent.
func (s *simulation) work(ctx context.Context) error {
	d := time.Duration(s.pick(3000)) * time.Millisecond
	switch {
	case s.strikes(hang):
		d, s.hung = 2*silence*time.Millisecond, true
		if s.pick(2) == 0 {
			ctx = context.WithoutCancel(ctx) // it does not notice that its time is over
		}
	case s.strikes(modelSlow):
		d = 2 * ackWait * time.Millisecond
	}
	return s.running.worker.Sleep(ctx, d)
}

func (m *model) text() string {
	if m.strikes(large) {
		return strings.Repeat("a long answer ", 20_000) // larger than an entry may be: it becomes a blob
	}
	if m.strikes(modelOdd) {
		return [...]string{"a bad answer", "", "broken \xff text"}[m.pick(3)]
	}
	if m.pick(5) == 0 {
		return "it is done"
	}
	return "well <then>"
}

func (m *model) calls() []sdk.ToolRequest {
	requests := make([]sdk.ToolRequest, 1+m.pick(m.width))
	for i := range requests {
		r := &requests[i]
		r.Name = m.tools[m.pick(len(m.tools))]
		r.Arguments = [...]string{`{}`, `{ "n" : 1.0 }`, `{"n":2,"m":[]}`}[m.pick(3)]
		if m.strikes(modelOdd) {
			r.Arguments = [...]string{`{"bad":true}`, `{"n":`, `[]`}[m.pick(3)]
		}
		if m.strikes(modelOdd) {
			r.Name = [...]string{"nosuch", "no\xffsuch"}[m.pick(2)]
		}
	}
	return requests
}

// compare sees that a prompt is the beginning of the run's history. It is all of it, unless the worker lost the run; and
// it may be of a history that a failover forgot, if the worker has not noticed yet.
func (m *models) compare(key wire.RunKey, prompt []sdk.Message) {
	j := m.store.journals[key]
	if !m.begins(prompt, j.decoded) && !slices.ContainsFunc(j.deposed, func(p past) bool { return m.begins(prompt, p.decoded) }) {
		m.violate("I6", "run %s: a prompt is not the beginning of the history in the journal: %+v", key, prompt)
	}
}

func (m *models) begins(prompt []sdk.Message, entries []decoded) bool {
	var state core.State
	for _, d := range entries {
		e, err := m.store.whole(d)
		if err == nil && e.Summary != nil && m.shows(&state, prompt) {
			return true
		}
		if err == nil {
			state, err = core.Apply(state, e)
		}
		if err != nil {
			m.violate("I6", "entry %d of a journal cannot be applied: %v", d.Rev, err)
			return false
		}
		if state.Nudge != "" && m.shows(&state, prompt) {
			return true // a driver that is one no more may ask with a nudge that the run has left behind
		}
	}
	return m.shows(&state, prompt)
}

// shows reports whether a prompt is the beginning of what the model is shown of a run: its conversation, and the nudge that it has then,
// which is not kept.
func (m *models) shows(s *core.State, prompt []sdk.Message) bool {
	nudge := sdk.Text(sdk.RoleUser, s.Nudge)
	if last := len(prompt) - 1; s.Nudge != "" && last >= 0 && sameMessage(&prompt[last], &nudge) {
		prompt = prompt[:last]
	}
	return beginning(prompt, s.Conversation().Messages)
}

func beginning(prompt, conversation []sdk.Message) bool {
	if len(prompt) > len(conversation) {
		return false
	}
	for i := range prompt {
		if !sameMessage(&prompt[i], &conversation[i]) {
			return false
		}
	}
	return true
}

func sameMessage(a, b *sdk.Message) bool {
	return a.Role == b.Role && slices.EqualFunc(a.Content, b.Content, func(x, y sdk.Content) bool {
		return x.Kind == y.Kind && x.Text == y.Text && x.CallID == y.CallID && x.Tool == y.Tool &&
			string(x.Args) == string(y.Args) && x.IsError == y.IsError
	})
}

func (m *models) executed(call sdk.ToolCall, atMostOnce bool) {
	m.trace("tool    %s of %s", call.ID, call.Run)
	m.audit.Executed(audit.Execution{
		Run: wire.NewRunKey(call.Run), Call: call.ID, AtMostOnce: atMostOnce, Args: call.Args,
	})
}
