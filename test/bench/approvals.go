package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"agentd/internal/bench"
	"agentd/internal/desk"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

const (
	// pendingApprovals wait for one person, who allows one after the other.
	pendingApprovals = 1000
	// window is how many decisions at each end are compared, and slower how much slower the last ones may be.
	window = 100
	slower = 1.5
)

// approvals measures whether the human desk stays as fast as it was, however many requests there were: from the decision to
// the moment when the run has taken it.
func approvals(ctx context.Context) (err error) {
	spec := bench.Agent()
	spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{{
		Name: "all", Tools: []string{bench.ToolName}, Verdict: sdk.PermissionAsk,
	}}}
	s, err := openSystem(ctx, "", spec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	d, err := desk.Open(ctx, desk.Options{Conn: s.Control})
	if err != nil {
		return err
	}
	defer d.Close()
	if err := s.ask(ctx, d); err != nil {
		return err
	}
	took := make([]time.Duration, 0, pendingApprovals)
	for _, i := range d.List() {
		began := time.Now()
		o, err := d.Decide(ctx, i.ID, "", sdk.PermissionDecision{Decision: sdk.DecisionAllow})
		if err != nil {
			return err
		}
		if o.State != client.OutcomeCounted {
			return fmt.Errorf("decision on %s: %+v", i.ID, o)
		}
		took = append(took, time.Since(began))
	}
	first, last := middle(took[:window]), middle(took[len(took)-window:])
	ratio := float64(last) / float64(first)
	fmt.Printf("\n%d pending approvals, one by one: p50 of the first %d %.1f ms, of the last %d %.1f ms (x %.2f)\n",
		pendingApprovals, window, ms(first), window, ms(last), ratio)
	if ratio > slower {
		return fmt.Errorf("approvals get slower: x %.2f is more than x %.1f", ratio, slower)
	}
	return nil
}

// ask starts the runs, and waits until all of them ask.
func (s *system) ask(ctx context.Context, d *desk.Desk) error {
	for n := range pendingApprovals {
		subject := fmt.Sprintf("approval-%d", n)
		err := s.Control.Start(ctx, bench.AgentName, wire.Event{
			ID: subject, Source: "bench.client", Type: bench.AgentName, Subject: subject, Data: []byte(`{"message":"1 1"}`),
		})
		if err != nil {
			return err
		}
	}
	for {
		after := d.Number()
		if len(d.List()) == pendingApprovals {
			return nil
		}
		if _, _, err := d.Changes(ctx, after); err != nil {
			return err
		}
	}
}

// middle is the p50.
func middle(took []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[len(sorted)/2]
}
