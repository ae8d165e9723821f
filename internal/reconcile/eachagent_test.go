package reconcile_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentd/internal/broker/streams"
	"agentd/internal/reconcile"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// away is a toolset that an agent is not served without, and that does not answer.
type away struct{}

func (away) Name() string                              { return "away" }
func (away) Required() bool                            { return true }
func (away) Tools(context.Context) ([]sdk.Tool, error) { return nil, errors.New("nobody answers") }
func (away) Close() error                              { return nil }

// forgottenCalls begins runs of agents in turns, which wait for a call that the broker then forgets, and stops the worker. It returns the subjects
// of the calls by agent.
func (r *rig) forgottenCalls(agents ...string) map[string][]string {
	r.t.Helper()
	calls := map[string][]string{}
	for _, agent := range agents {
		b := r.beginOf(agent, "add")
		r.waiting(b, 1)
		calls[agent] = append(calls[agent], r.conn.Subjects().Call(r.call(b)))
	}
	r.settled()
	r.stop()
	for _, subjects := range calls {
		for _, subject := range subjects {
			r.delete(subject)
		}
	}
	return calls
}

// refills has streams refilled until a line of the log has a text, and returns that line.
func (r *rig) refills(o reconcile.Options, until string) string {
	r.t.Helper()
	log := &lines{want: until, seen: make(chan string, 1)}
	o.Refuse, o.Logger = nil, slog.New(slog.NewTextHandler(log, nil))
	ctx, stop := context.WithCancel(r.context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reconcile.AfterRestarts(ctx, o)
	}()
	defer func() {
		stop()
		<-ended
	}()
	select {
	case line := <-log.seen:
		return line
	case <-ctx.Done():
		r.t.Fatalf("it never says %q", until)
		return ""
	}
}

// there is how many of some subjects have a call.
func (r *rig) there(subjects []string) (n int) {
	r.t.Helper()
	stored := r.messages(streams.Out, wire.KindOut)
	for _, subject := range subjects {
		n += stored[subject]
	}
	return n
}

// An agent whose tools are away is refilled when they are back; no other waits for it.
func TestAfterRestarts_AnAgentThatCannotBeRefilledKeepsNoOther(t *testing.T) {
	t.Parallel()
	r := start(t)
	calls := r.forgottenCalls("desk", "clerk", "desk", "clerk", "desk", "clerk")
	r.agents[0].Toolsets = []sdk.Toolset{away{}}
	for _, agent := range []string{"desk", "clerk"} {
		r.check("note another server", r.conn.NoteRefilled(r.context(), agent, "another"))
	}
	told := r.refills(r.options(), "the server was started again")
	if !strings.Contains(told, "agents=[clerk]") {
		t.Errorf("refilled is %s", told)
	}
	if desk, clerk := r.there(calls["desk"]), r.there(calls["clerk"]); desk != 0 || clerk != 3 {
		t.Errorf("of the agent that cannot be refilled there are %d calls, want 0; of the other %d, want 3", desk, clerk)
	}
	told = r.refills(r.options(), "it is not known whether the server has forgotten anything")
	if !strings.Contains(told, "agent=desk") || !strings.Contains(told, "before its toolset away is put right") {
		t.Errorf("of the agent that cannot be refilled it is told: %s", told)
	}
}

// Each attempt for an agent whose tools stay away reads the heads of all runs, so it is made less and less often.
func TestAfterRestarts_AnAgentThatCannotBeRefilledIsTriedLessAndLess(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.forgottenCalls("desk")
	r.agents[0].Toolsets = []sdk.Toolset{away{}}
	r.check("note another server", r.conn.NoteRefilled(r.context(), "desk", "another"))
	o := r.options()
	o.Agents = o.Agents[:1]
	store := listings{o.Store, new(atomic.Int64)}
	o.Store = store
	if told := r.refills(o, "in=10s"); !strings.Contains(told, "agent=desk") {
		t.Errorf("it is told: %s", told)
	}
	if n := store.begun.Load(); n != 2 {
		t.Errorf("all runs were listed %d times before that, want twice", n)
	}
}

// What an agent misses since long ago is not looked for of another that was seen a moment ago.
func TestAfterRestarts_EachAgentIsLookedAtFromItsOwnTimeOn(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.later(-5 * time.Hour)
	calls := r.forgottenCalls("desk", "clerk")
	r.later(5 * time.Hour)
	r.check("note another server", r.conn.NoteRefilled(r.context(), "desk", "another"))
	r.check("note another server", r.conn.SetNote(r.context(), "refilled_clerk", []byte(`{"server":"another","at":1}`)))
	o := r.options()
	o.Now = r.now
	told := r.refills(o, "the server was started again")
	if !strings.Contains(told, "agents=\"[desk clerk]\"") || !strings.Contains(told, "runs=1") {
		t.Errorf("it is told: %s", told)
	}
	if desk, clerk := r.there(calls["desk"]), r.there(calls["clerk"]); desk != 0 || clerk != 1 {
		t.Errorf("there are %d calls of who was seen after them, want 0, and %d of the other, want 1", desk, clerk)
	}
}
