package runner_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk/wire"
)

// stopping is a store whose reader or writer stands still when it has its answer.
type stopping struct {
	*memory.Store
	wrote, read func()
}

func (s *stopping) Append(ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record) (runner.Version, error) {
	v, err := s.Store.Append(ctx, run, base, next)
	if s.wrote != nil && next.Rev == 2 {
		s.wrote()
	}
	return v, err
}

func (s *stopping) Entries(ctx context.Context, run wire.RunKey, after runner.Version) ([]runner.Record, error) {
	records, err := s.Store.Entries(ctx, run, after)
	if s.read != nil {
		s.read()
	}
	return records, err
}

// all keeps the names of the calls that are published, for the first time or again.
type all struct{ recorded }

func (r all) Restore(ctx context.Context, subject string, event wire.Event) error {
	return r.Publish(ctx, subject, event)
}

// A worker writes that a call is to be made, or reads so, and stands still for longer than calls are kept. Another ends the run meanwhile, and
// its calls leave the stream. When the first one goes on it makes no call: it has the message delivered again, and finds the run done.
func TestCarryOut_NotAfterStandingStill(t *testing.T) {
	t.Parallel()
	for name, writes := range map[string]bool{"since it wrote": true, "since it read": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls []string
			var clock time.Duration
			store := &stopping{Store: memory.New()}
			issued := &atomic.Int64{}
			agent := newDesk(10, "lookup").agent()
			agent.Core.Reviews, agent.Core.Hooked = false, false // it waits at once
			worker := func(kept runner.Store) *runner.Runner {
				return runner.New(runner.Options{
					Store: kept, Publisher: all{recorded{calls: &calls}}, Env: passing{still{issued}, &clock}, Catalog: only{agent},
					Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
				})
			}
			other := worker(store.Store)
			ends := func() {
				store.wrote, store.read = nil, nil
				calls = nil
				clock = time.Hour
				entries := journal(t, other, "order 7")
				other.Process(t.Context(), &runner.Message{
					Address: wire.Address{Kind: wire.KindFire, Agent: wire.NameToken("desk"), Run: wire.NewRunKey("order 7")},
					Due:     entries[len(entries)-1].Head.Timer, Delivered: 1, Received: now + clock.Milliseconds(),
					Cause: core.Cause{Stream: "AGENTD_TMR", Sequence: 1, EventID: "fired"}, Event: wire.Event{Data: json.RawMessage(`{}`)},
				})
				if h := journal(t, other, "order 7"); h[len(h)-1].Head.Status != core.StatusDone {
					t.Fatalf("the run is %s, want it ended by the timer", h[len(h)-1].Head.Status)
				}
				clock += time.Hour
			}
			stood := worker(store)
			if writes {
				store.wrote = ends
				if v := stood.Process(t.Context(), begun(1)); v.Settlement == runner.Ack {
					t.Errorf("the init event is settled with %+v, want it to come again", v)
				}
			} else {
				stood.Process(t.Context(), begun(1))
				if len(calls) != 1 {
					t.Fatalf("made were the calls %v, want one", calls)
				}
				store.read = ends
				if v := stood.Process(t.Context(), begun(2)); v.Settlement == runner.Ack {
					t.Errorf("the init event is settled with %+v, want it to come again", v)
				}
			}
			if v := stood.Process(t.Context(), begun(3)); v != (runner.Verdict{}) {
				t.Errorf("the init event is settled with %+v when it comes again", v)
			}
			if len(calls) != 0 {
				t.Errorf("the calls %v are made, of a run that has ended", calls)
			}
		})
	}
}
