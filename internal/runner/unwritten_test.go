package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// impatient is an Env in which models reply at once or, where slow, after all that waits for them has lost its patience.
type impatient struct {
	still
	slow *bool
}

func (e impatient) Beat(f func(), _ time.Duration, beat func() bool) {
	if *e.slow {
		beat()
	}
	f()
}

// talk is a run with an agent that asks a service, and after each answer does what replies say. It notes in steps what is done in which
// order.
type talk struct {
	*testing.T
	agent *runner.Agent
	store *memory.Store
	// replies are what the model says, one after the other; meanwhile is what happens before it says the one with that number, from 1.
	replies   []sdk.ModelReply
	meanwhile map[int]func()
	asked     int
	slow      bool
	steps     []string
	watchers  bool
	// heads is how often the run's head was read, and journals how often entries after a point.
	heads, journals int
	// publishing is what happens while something is published.
	publishing func()
	// overtaken has the next entry refused, as if others had written; away is the store from then on.
	overtaken, away bool
}

func newTalk(t *testing.T, replies ...sdk.ModelReply) *talk {
	t.Helper()
	a := &talk{T: t, agent: newDesk(10, "lookup", "inline").agent(), store: memory.New(), replies: replies, meanwhile: map[int]func(){}}
	a.agent.Phases, a.agent.Model, a.agent.Core.Reviews, a.agent.Core.Hooked, a.agent.Core.NeedsRulings = nil, a, false, false, false
	a.agent.Core.Steering = sdk.SteeringQueue
	a.agent.CheckAnswer = func(_ core.Call, ev wire.Event, _ string) (runner.Answer, *sdk.Error) {
		return runner.Answer{Data: ev.Data}, nil
	}
	a.agent.BuildOutput = func(_ context.Context, in sdk.OutputInput) (json.RawMessage, string, error) {
		data, err := json.Marshal(map[string]string{"response": in.Text})
		return data, "", err
	}
	a.agent.Inline["inline"] = sdk.Tool{Run: func(context.Context, sdk.ToolCall) (json.RawMessage, error) {
		a.step("tool")
		return json.RawMessage(`{}`), nil
	}}
	return a
}

func (a *talk) step(what string) { a.steps = append(a.steps, what) }

// Generate implements sdk.Provider.
func (a *talk) Generate(ctx context.Context, _ sdk.ModelRequest, _ func(sdk.Delta)) (sdk.ModelReply, error) {
	a.asked++
	a.step("model")
	if meanwhile := a.meanwhile[a.asked]; meanwhile != nil {
		meanwhile()
	}
	if err := ctx.Err(); err != nil {
		return sdk.ModelReply{}, err
	}
	return a.replies[min(a.asked, len(a.replies))-1], nil
}

// Watches implements runner.Audience.
func (a *talk) Watches(string, wire.RunKey) bool { return a.watchers }

// noting is the store and the broker of a talk.
type noting struct {
	nowhere
	*memory.Store
	*talk
}

func (n noting) Head(ctx context.Context, run wire.RunKey) (runner.Record, error) {
	n.heads++
	if n.away {
		return runner.Record{}, errors.New("the store cannot be reached")
	}
	return n.Store.Head(ctx, run)
}

func (n noting) Append(ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record) (runner.Version, error) {
	if n.overtaken {
		n.overtaken, n.away = false, true
		n.step("refused")
		return runner.Version{}, runner.ErrConflict
	}
	v, err := n.Store.Append(ctx, run, base, next)
	if err == nil {
		n.step("written")
	} else {
		n.step("refused")
	}
	return v, err
}

func (n noting) Entries(ctx context.Context, run wire.RunKey, after runner.Version) ([]runner.Record, error) {
	n.journals++
	return n.Store.Entries(ctx, run, after)
}

func (n noting) Publish(context.Context, string, wire.Event) error {
	n.step("published")
	if n.publishing != nil {
		n.publishing()
	}
	return nil
}

func (a *talk) worker() *runner.Runner {
	n := noting{Store: a.store, talk: a}
	return runner.New(runner.Options{
		Store: n, Publisher: n, Env: impatient{still{&issued}, &a.slow}, Catalog: only{a.agent}, Audience: a,
		Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
	})
}

// issued makes what all activations of these tests are called different.
var issued atomic.Int64

// begin starts the run, and returns the message that answers its call. sequence tells answers apart.
func (a *talk) begin(r *runner.Runner) *runner.Message {
	a.Helper()
	process(a.T, r, "order 7", starts, `{}`)
	a.steps = nil
	return a.answer(r, 2)
}

func (a *talk) answer(r *runner.Runner, sequence uint64) *runner.Message {
	a.Helper()
	entries := journal(a.T, r, "order 7")
	call := entries[len(entries)-1].Head.Calls[0]
	return &runner.Message{
		Address: wire.Address{
			Kind: wire.KindIn, Agent: wire.NameToken("desk"), Run: wire.NewRunKey("order 7"),
			Call: wire.CallAddress{Domain: "local", Type: wire.NameToken(call.Type), Agent: wire.NameToken("desk"), Run: wire.NewRunKey("order 7"), Call: call.ID},
		},
		Event:     wire.Event{ID: "answer", Source: "lookup", Type: call.Type + ".done", Data: json.RawMessage(`{"n":1}`)},
		Delivered: 1, Received: now, Cause: core.Cause{Stream: "AGENTD_IN", Sequence: sequence, EventID: "answer"},
	}
}

func (a *talk) handle(r *runner.Runner, m *runner.Message, want runner.Settlement) {
	a.Helper()
	if v := r.Process(a.Context(), m); v.Settlement != want {
		a.Errorf("the message is settled with %+v, want %d", v, want)
	}
}

// is checks the kinds of the entries after the first two, joint ones with a plus, and what was done in which order.
func (a *talk) is(r *runner.Runner, kinds, steps string) {
	a.Helper()
	var have []string
	for _, e := range journal(a.T, r, "order 7")[2:] {
		kind := e.Kind
		if e.Absorbed != nil {
			kind = e.Absorbed.Kind + "+" + kind
		}
		have = append(have, kind)
	}
	if got := strings.Join(have, " "); got != kinds {
		a.Errorf("the entries after the first reply are %q, want %q", got, kinds)
	}
	if got := strings.Join(a.steps, " "); got != steps {
		a.Errorf("done was %q, want %q", got, steps)
	}
}

func calls(tool string) sdk.ModelReply {
	return sdk.ModelReply{Calls: []sdk.ToolRequest{{Name: tool, Arguments: `{}`}}}
}

var says = sdk.ModelReply{Text: "done"}

// An answer and a quick reply to it are one entry, and what the reply asks for leaves the worker when that is durable.
func TestJoint_ReplyAtOnce(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		then         sdk.ModelReply
		kinds, steps string
	}{
		"a call":         {calls("lookup"), "answered+replied", "model written published"},
		"the end":        {says, "answered+replied", "model written published"},
		"an inline tool": {calls("inline"), "answered+replied returned replied", "model written tool written model written published"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newTalk(t, calls("lookup"), of.then, says)
			r := a.worker()
			a.handle(r, a.begin(r), runner.Ack)
			a.is(r, of.kinds, of.steps)
		})
	}
}

// A worker that has not driven the run before reads its journal, and joins as the one does that has.
func TestJoint_ByAnotherWorker(t *testing.T) {
	t.Parallel()
	a := newTalk(t, calls("lookup"), calls("lookup"), says)
	r, other := a.worker(), a.worker()
	a.handle(other, a.begin(r), runner.Ack)
	a.handle(r, a.answer(r, 3), runner.Ack)
	a.is(r, "answered+replied answered+replied", "model written published model written published")
}

// Where the model takes long, the answer is written while it works.
func TestJoint_NotWithASlowReply(t *testing.T) {
	t.Parallel()
	a := newTalk(t, calls("lookup"), says)
	r := a.worker()
	answer := a.begin(r)
	a.slow = true
	a.handle(r, answer, runner.Ack)
	a.is(r, "answered replied", "written model written published")
}

// A worker that was overtaken, and then cannot read what others have written, hands back nothing: what it had in hand never was the run's.
func TestJoint_NobodyGoesOnFromWhatWasOvertaken(t *testing.T) {
	t.Parallel()
	for _, slow := range []bool{false, true} {
		a := newTalk(t, calls("lookup"), says)
		r := a.worker()
		answer := a.begin(r)
		a.overtaken, a.slow = true, slow
		a.handle(r, answer, runner.Retry)
		a.away = false
		a.is(r, "", map[bool]string{false: "model refused", true: "refused model"}[slow])
	}
}

// What must be written first, is.
func TestJoint_NotWhereMoreFollows(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*talk, *runner.Message){
		"hooks":            func(a *talk, _ *runner.Message) { a.agent.Phases = []sdk.Hook{{Name: "none"}} },
		"somebody watches": func(a *talk, _ *runner.Message) { a.watchers = true },
		"second delivery":  func(_ *talk, m *runner.Message) { m.Delivered = 2 },
		"large result": func(_ *talk, m *runner.Message) {
			m.Event.Data = json.RawMessage(`{"n":"` + strings.Repeat("x", 40<<10) + `"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newTalk(t, calls("lookup"), says)
			r := a.worker()
			answer := a.begin(r)
			set(a, answer)
			a.handle(r, answer, runner.Ack)
			a.is(r, "answered replied", "written model written published")
		})
	}
}

// A call that whoever rules has to see is ruled on when what it follows from is durable.
func TestJoint_NotBeforeARuling(t *testing.T) {
	t.Parallel()
	a := newTalk(t, calls("lookup"), calls("lookup"))
	a.agent.Core.NeedsRulings = true
	r := a.worker()
	a.handle(r, a.begin(r), runner.Ack)
	a.is(r, "answered replied", "model written written published")
}

// A timer that is due soon must not overtake an answer that came before.
func TestJoint_NotWhenATimerIsDue(t *testing.T) {
	t.Parallel()
	a := newTalk(t, calls("lookup"), says)
	for i := range a.agent.Core.Tools {
		a.agent.Core.Tools[i].Timeout = 900
	}
	r := a.worker()
	a.handle(r, a.begin(r), runner.Ack)
	a.is(r, "answered replied", "written model written published")
}

// control is a control message for the run.
func control(verb wire.ControlVerb, data string) *runner.Message {
	return &runner.Message{
		Address: wire.Address{Kind: wire.KindCtl, Verb: verb, Agent: wire.NameToken("desk"), Run: wire.NewRunKey("order 7")},
		Event:   wire.Event{ID: "m", Source: "ann", Type: "agentd.run." + string(verb), Data: json.RawMessage(data)},
		Cause:   core.Cause{Stream: "AGENTD_IN", Sequence: 9, EventID: "m"}, Delivered: 1, Received: now,
	}
}

// A cancel that comes while the model works ends the run, and what the worker had in hand is nothing.
func TestJoint_CancelledMeanwhile(t *testing.T) {
	t.Parallel()
	a := newTalk(t, calls("lookup"), calls("lookup"))
	r, other := a.worker(), a.worker()
	answer := a.begin(r)
	a.meanwhile[2] = func() { a.handle(other, control(wire.ControlCancel, `{"reason":"enough"}`), runner.Ack) }
	a.handle(r, answer, runner.Ack)
	entries := journal(t, r, "order 7")
	if h := entries[len(entries)-1].Head; h.Status != core.StatusDone || h.Reason != core.ReasonCancelled {
		t.Errorf("the run is %s, %s", h.Status, h.Reason)
	}
	a.is(r, "cancel_asked", "model written published published refused")
}

// A message that comes while the model works is in the conversation before the reply that counts; the answer is absorbed anew.
func TestJoint_MessageMeanwhile(t *testing.T) {
	t.Parallel()
	for name, slow := range map[string]bool{"before the reply": false, "before patience is lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newTalk(t, calls("lookup"), says)
			r, other := a.worker(), a.worker()
			answer := a.begin(r)
			say := func() { a.handle(other, control(wire.ControlMessage, `{"message":"hurry"}`), runner.Ack) }
			if slow {
				say() // of which the worker, which remembers the run, knows nothing
			} else {
				a.meanwhile[2] = say
			}
			a.slow = slow
			a.handle(r, answer, runner.Ack)
			if name := "steered answered reviewed replied"; !slow {
				a.is(r, name, "model written refused written written model written published")
			} else {
				a.is(r, name, "written refused model written written model written published")
			}
		})
	}
}

// A worker that ends while the model works has written nothing, and who has the answer next writes it first: a run that ends its worker
// is found out.
func TestJoint_WorkerEnds(t *testing.T) {
	t.Parallel()
	a := newTalk(t, calls("lookup"), says)
	r, next := a.worker(), a.worker()
	answer := a.begin(r)
	ctx, end := context.WithCancel(t.Context())
	a.meanwhile[2] = end
	if v := r.Process(ctx, answer); v.Settlement != runner.Leave {
		t.Errorf("the answer is settled with %+v", v)
	}
	if n := len(journal(t, next, "order 7")); n != 2 {
		t.Errorf("the run has %d entries", n)
	}
	again := *answer
	again.Delivered = 2
	a.handle(next, &again, runner.Ack)
	a.is(next, "answered replied", "model written model written published")
}

// A worker that is to end hands the answer back as it came.
func TestJoint_Drained(t *testing.T) {
	t.Parallel()
	a := newTalk(t, calls("lookup"), says)
	r := a.worker()
	answer := a.begin(r)
	r.Drain()
	a.handle(r, answer, runner.Retry)
	a.is(r, "", "")
}

// A model that fails ends the run as it did: the answer is written before.
func TestJoint_ModelFails(t *testing.T) {
	t.Parallel()
	a := newTalk(t, calls("lookup"))
	r := a.worker()
	answer := a.begin(r)
	a.agent.Model = failing{a}
	a.handle(r, answer, runner.Ack)
	a.is(r, "answered ended", "model written written published")
}

type failing struct{ *talk }

func (f failing) Generate(context.Context, sdk.ModelRequest, func(sdk.Delta)) (sdk.ModelReply, error) {
	f.step("model")
	return sdk.ModelReply{}, sdk.Errorf(sdk.CodeModel, "no")
}
