package runner_test

import (
	"context"
	"log/slog"
	"testing"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// looking is a store that counts how often heads are read.
type looking struct {
	*memory.Store
	heads int
}

func (l *looking) Head(ctx context.Context, run wire.RunKey) (runner.Record, error) {
	l.heads++
	return l.Store.Head(ctx, run)
}

// beginning is a run that a worker begins, and how often the agent's hooks saw one begin.
type beginning struct {
	*talk
	store  *looking
	starts int
}

func newBeginning(t *testing.T) *beginning {
	t.Helper()
	return &beginning{talk: newTalk(t, calls("lookup")), store: &looking{Store: memory.New()}}
}

// hooked has the agent's hooks count.
func (b *beginning) hooked() {
	b.agent.Phases = []sdk.Hook{{Name: "counts", RunStart: func(context.Context, sdk.Snapshot) (sdk.StateEffects, error) {
		b.starts++
		return sdk.StateEffects{}, nil
	}}}
}

func (b *beginning) worker() *runner.Runner {
	n := noting{Store: memory.New(), talk: b.talk}
	return runner.New(runner.Options{
		Store: b.store, Publisher: n, Env: impatient{still{&issued}, &b.slow}, Catalog: only{b.agent}, Audience: b,
		Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
	})
}

func (b *beginning) init(sequence uint64) *runner.Message {
	to := starts
	to.Agent, to.Run = wire.NameToken("desk"), wire.NewRunKey("order 7")
	return &runner.Message{
		Address: to, Run: "order 7", Delivered: 1, Received: now, Cause: core.Cause{Stream: string(to.Kind), Sequence: sequence, EventID: "order 7"},
		Event: wire.Event{ID: "order 7", Source: "web", Type: "shop.desk", Subject: "order 7", Data: []byte(`{}`)},
	}
}

// A run that begins, and is answered to its worker, is written without that the store is read; what may be there is looked at.
func TestHead_IsNotReadForWhatIsNew(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		set   func(*beginning, *runner.Message)
		reads int
	}{
		"new":                       {func(*beginning, *runner.Message) {}, 0},
		"delivered again":           {func(_ *beginning, m *runner.Message) { m.Delivered = 2 }, 1},
		"published before it began": {func(_ *beginning, m *runner.Message) { m.Backlog = true }, 1},
		"of an agent with hooks":    {func(b *beginning, _ *runner.Message) { b.hooked() }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBeginning(t)
			r, m := b.worker(), b.init(1)
			of.set(b, m)
			b.handle(r, m, runner.Ack)
			if b.store.heads != of.reads {
				t.Errorf("the head was read %d times, want %d", b.store.heads, of.reads)
			}
			b.are(r, "started replied")
		})
	}
}

// are checks the kinds of the run's entries.
func (b *beginning) are(r *runner.Runner, want string) {
	b.Helper()
	var have string
	for i, e := range journal(b.T, r, "order 7") {
		if i > 0 {
			have += " "
		}
		have += e.Kind
	}
	if have != want {
		b.Errorf("the entries are %q, want %q", have, want)
	}
}

// A second init event of a run is found out by the store, which is read then; hooks do not see it.
func TestHead_IsReadForASecondInit(t *testing.T) {
	t.Parallel()
	for _, hooks := range []bool{false, true} {
		b := newBeginning(t)
		if hooks {
			b.hooked()
		}
		r, other := b.worker(), b.worker()
		b.handle(r, b.init(1), runner.Ack)
		b.store.heads = 0
		b.handle(other, b.init(2), runner.Ack)
		b.are(other, "started replied")
		if want := map[bool]int{true: 1}[hooks]; b.store.heads != 1 || b.starts != want {
			t.Errorf("the head was read %d times, and hooks saw %d beginnings, want %d", b.store.heads, b.starts, want)
		}
	}
}
