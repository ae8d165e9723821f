package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"agentd/internal/approval"
	"agentd/internal/broker"
	"agentd/internal/catalog"
	"agentd/internal/contractlint"
	"agentd/internal/contracts"
	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Resolve looks up what the agents have from the registry. The error is CodeContractMissing when a contract is not there (yet), and
// CodeConflict when the registry has other content for a version that an agent brings itself: its services answer the other one.
func Resolve(ctx context.Context, conn *broker.Conn, agents []sdk.Agent) ([]sdk.Agent, error) {
	uses := slices.ContainsFunc(agents, func(a sdk.Agent) bool { return contracts.UsesRegistry(a.Spec) })
	registry, err := conn.Registry().Read(ctx)
	if errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) && !uses {
		return agents, nil // who follows the registry says so
	}
	if err != nil {
		return nil, err
	}
	resolved := slices.Clone(agents)
	var faults []error
	for i := range resolved {
		spec, err := contracts.Bind(resolved[i].Spec, registry)
		if err != nil {
			faults = append(faults, err)
		}
		if err := contractlint.AgentConflicts(registry, spec); err != nil {
			faults = append(faults, fmt.Errorf("agent %s: %w", spec.Name, err))
		}
		resolved[i].Spec = spec
	}
	return resolved, errors.Join(faults...)
}

const (
	// settled is how long the registry must rest before its changes take effect: contracts are published several at once.
	settled = 200 * time.Millisecond
	// firstRead is how long a starting worker waits for the registry's state.
	firstRead = 5 * time.Second
	// readAgain is how long after the registry could not be followed it is tried again.
	readAgain = 30 * time.Second
)

// followRegistry applies changes of the registry until ctx ends. ready is closed when its state is known, or cannot be.
func (w *Worker) followRegistry(ctx context.Context, ready chan<- struct{}) {
	states := make(chan *contracts.Registry)
	go func() {
		defer close(states)
		w.readRegistry(ctx, states)
	}()
	var latest *contracts.Registry
	var rest <-chan time.Time
	first := true
	for {
		select {
		case state, ok := <-states:
			if !ok {
				return
			}
			latest, rest = state, time.After(settled)
			if first {
				w.adopt(latest)
				rest, first = nil, false
				close(ready)
			}
		case <-rest:
			rest = nil
			w.adopt(latest)
		}
	}
}

// readRegistry sends the states of the registry until ctx ends, an empty one without a registry.
func (w *Worker) readRegistry(ctx context.Context, states chan<- *contracts.Registry) {
	known := false
	send := func(state *contracts.Registry) {
		known = true
		select {
		case states <- state:
		case <-ctx.Done():
		}
	}
	for {
		err := w.Conn.Registry().Follow(ctx, send)
		if ctx.Err() != nil {
			return
		}
		w.Logger.Warn("the registry of contracts cannot be followed; trying again", "error", err)
		if !known { // else what it was stays in force
			send(&contracts.Registry{})
		}
		if retry.Sleep(ctx, readAgain) != nil {
			return
		}
	}
}

// adopt brings the agents in line with the registry. Versions that were removed are withdrawn; agents with a range that
// means another version by now are loaded anew, for runs that begin from now on. One that cannot be used with it stays as
// it is.
func (w *Worker) adopt(registry *contracts.Registry) {
	w.setting.Lock()
	defer w.setting.Unlock()
	removed := map[string]bool{}
	for _, p := range registry.List() {
		if p.Removed {
			removed[wire.AbsoluteURI(sdk.SchemaRef(p.Contract.URI, p.Version))] = true
		}
	}
	w.catalog.Withdraw(removed)
	agents := slices.Clone(w.Agents)
	w.tellConflicts(registry)
	var changed []string
	for i := range agents {
		if w.rebind(&agents[i], registry) {
			changed = append(changed, agents[i].Spec.Name)
		}
		for _, s := range agents[i].Spec.Services {
			if ref := sdk.SchemaRef(s.Contract.URI, s.Version); s.Range != "" && removed[wire.AbsoluteURI(ref)] {
				w.Logger.Warn("agent uses a contract version that was removed from the registry; its calls fail",
					"agent", agents[i].Spec.Name, "version", ref, "range", s.Range)
			}
		}
	}
	if len(changed) == 0 {
		return
	}
	if err := w.catalog.Set(agents); err != nil {
		w.Logger.Error("agents cannot be used with the contracts that the registry has now; they stay as they are",
			"agents", changed, "error", err)
		return
	}
	w.Agents = agents
	w.Logger.Info("agents use other contract versions for new runs", "agents", changed)
}

// tellConflicts logs, once, that the registry got other content for a version that an agent brings itself.
func (w *Worker) tellConflicts(registry *contracts.Registry) {
	for _, a := range w.Agents {
		err := contractlint.AgentConflicts(registry, a.Spec)
		if err == nil || w.conflicts[err.Error()] {
			continue
		}
		if w.conflicts == nil {
			w.conflicts = map[string]bool{}
		}
		w.conflicts[err.Error()] = true
		w.Logger.Error("agent has a contract with other content than the registry; this worker will not start with it again",
			"agent", a.Spec.Name, "error", err)
	}
}

// rebind resolves what an agent has from the registry anew, and reports whether it is another agent then.
func (w *Worker) rebind(a *sdk.Agent, registry *contracts.Registry) bool {
	if !contracts.UsesRegistry(a.Spec) {
		return false
	}
	next := *a
	var err error
	if next.Spec, err = contracts.Bind(a.Spec, registry); err == nil {
		if !slices.EqualFunc(a.Spec.Services, next.Spec.Services, sameVersion) {
			err = catalog.Check(next, approval.Options{Grants: approval.NoGrants{}, Identity: w.Identity, Keys: w.Keys})
		} else {
			return false
		}
	}
	if err != nil {
		w.Logger.Error("agent cannot be used with the contracts that the registry has now; it stays as it is",
			"agent", a.Spec.Name, "error", err)
		return false
	}
	*a = next
	return true
}

// sameVersion reports whether two tools have the same contract version; its content never changes.
func sameVersion(a, b sdk.ServiceTool) bool {
	return wire.SameURI(a.Contract.URI, b.Contract.URI) && a.Version == b.Version
}
