package reconcile_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"agentd/internal/broker/streams"
	"agentd/internal/reconcile"
	"agentd/internal/runner"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/wire"
)

var errNoRoom = errors.New("no room")

// fullPublisher has nothing published.
type fullPublisher struct{ runner.Publisher }

func (fullPublisher) Publish(context.Context, string, wire.Event) error { return errNoRoom }
func (fullPublisher) Restore(context.Context, string, wire.Event) error { return errNoRoom }

// forgottenRefusal has an init event refused for a reason, and the broker forget that.
func (r *rig) forgottenRefusal(agent, subject string, reason sdk.Code) {
	r.t.Helper()
	ev := wire.Event{
		ID: "refused", Source: "com.test.client", Type: agent, Subject: subject, Time: time.UnixMilli(1_790_000_000_000), Data: []byte(`{"message":"say"}`),
	}
	r.check("start a run", r.conn.Start(r.context(), agent, ev))
	b := begun{agent, subject, wire.InitToken(ev.Source, ev.ID), wire.NewRunKey(subject)}
	if code := r.done(b); code != reason {
		r.t.Fatalf("the run ended with %q, want %q", code, reason)
	}
	r.settled()
	r.delete(r.conn.Subjects().Done(b.agent, b.key, b.init))
}

// A refusal that is not there and cannot be made is not taken for one that was: no other pass looks for it.
func TestRefill_RefusalsThatCannotBeMade(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		refused func(*rig)
		refill  func(context.Context, reconcile.Options, time.Time) (reconcile.Report, error)
		want    string
	}{
		"of an agent": {func(r *rig) {
			r.later(-time.Hour) // what the run has had published is not looked for
			waits := r.begin("add")
			r.waiting(waits, 1)
			r.settled()
			r.later(time.Hour)
			r.forgottenRefusal("desk", waits.subject, sdk.CodeRunExists)
		}, reconcile.Refill, "refill desk: refuse AGENTD_START 2: it could not be handled"},
		"of nobody": {func(r *rig) {
			r.forgottenRefusal("ghost", "unknown", sdk.CodeUnknownAgent)
		}, reconcile.RefillUnserved, "refill (those that nobody serves): refuse AGENTD_START 1: no room"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			of.refused(r)
			r.stop()
			since := time.Now().Add(-time.Minute)
			w, err := worker.New(worker.Options{
				Conn: r.conn, Store: r.store, Agents: r.agents, Logger: r.log, Env: clock{r}, Publisher: fullPublisher{},
				Models: func(sdk.ModelSpec) (sdk.Provider, error) { return r.model, nil },
			})
			r.check("new worker", err)
			o, err := w.Reconciling(r.context())
			r.check("options", err)
			if _, err := of.refill(r.context(), o, since); err == nil || err.Error() != of.want {
				t.Errorf("refilled: %v, want %s", err, of.want)
			}
			if n := len(r.messages(streams.Done, wire.KindDone)); n != 0 {
				t.Errorf("%d terminal events are there", n)
			}
		})
	}
}
