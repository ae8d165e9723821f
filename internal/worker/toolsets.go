package worker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"agentd/internal/catalog"
	"agentd/internal/retry"
	"agentd/sdk"
)

// followToolsets loads the agents anew when a toolset has other tools, for runs that begin from now on and for the turns and
// calls of all, and when one that was away answers. It ends with ctx or stop, which waits for that.
func (w *Worker) followToolsets(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var followers sync.WaitGroup
	seen := map[sdk.Toolset]bool{}
	for _, a := range w.Agents {
		for _, set := range a.Toolsets {
			if c, ok := set.(sdk.ChangingToolset); ok && !seen[set] {
				seen[set] = true
				followers.Go(func() { w.followToolset(ctx, c) })
			}
		}
	}
	followers.Go(func() { w.awaitToolsets(ctx) })
	return func() {
		cancel()
		followers.Wait()
	}
}

func (w *Worker) followToolset(ctx context.Context, set sdk.ChangingToolset) {
	for {
		select {
		case <-set.Changed():
		case <-ctx.Done():
			return
		}
		w.setting.Lock()
		w.refresh()
		w.setting.Unlock()
		w.Logger.Debug("toolset was listed again, as it asked for", "toolset", set.Name())
		if retry.Sleep(ctx, toolsetPauses.First) != nil { // one that asks for it all the time is not listed all the time
			return
		}
	}
}

// toolsetPauses are how long a toolset that is away is left alone. One that says that it has changed is left alone for the first.
var toolsetPauses = retry.Pauses{First: time.Second, Longest: time.Minute}

// awaitToolsets asks toolsets that are away again and again.
func (w *Worker) awaitToolsets(ctx context.Context) {
	pauses := toolsetPauses.Start()
	pause := pauses.Next()
	for {
		var due <-chan time.Time
		if len(w.catalog.Waiting()) > 0 {
			due = time.After(pause)
		}
		select {
		case <-due:
			w.setting.Lock()
			w.refresh()
			w.setting.Unlock()
			pause = pauses.Next()
		case <-ctx.Done():
			return
		}
	}
}

// refresh asks the toolsets again. Its caller holds w.setting.
func (w *Worker) refresh() {
	if err := w.catalog.Refresh(w.Agents); err != nil {
		w.Logger.Error("agents cannot be used with the tools that their toolsets have now; they stay as they are", "error", err)
	}
	w.tellAway()
}

// reason is what is behind an error that only says that a toolset is away.
func reason(err error) string {
	if e, ok := errors.AsType[*sdk.Error](err); ok && errors.Unwrap(e) != nil {
		err = errors.Unwrap(e)
	}
	return strings.TrimSpace(err.Error())
}

// tellAway logs which toolsets are away and which have come back, once for each change. Its caller holds w.setting.
func (w *Worker) tellAway() {
	agents, away := map[string][]string{}, map[string]catalog.Away{}
	for _, a := range w.catalog.Waiting() {
		if former, ok := away[a.Toolset]; !ok || !former.Required {
			away[a.Toolset] = a
		}
		agents[a.Toolset] = append(agents[a.Toolset], a.Agent)
	}
	for _, name := range slices.Sorted(maps.Keys(away)) {
		if _, told := w.away[name]; told {
			continue
		}
		told := w.Logger.With("toolset", name, "agents", strings.Join(agents[name], ","), "error", reason(away[name].Err))
		if away[name].Required {
			told.Warn("required toolset is away: runs of its agents wait; put it right, and they go on without a restart")
		} else {
			told.Warn("toolset is away: its agents are served without its tools; put it right, and they get them without a restart")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.away)) {
		if _, still := away[name]; !still {
			w.Logger.Info("toolset is there: its agents have its tools", "toolset", name, "agents", strings.Join(w.away[name], ","))
		}
	}
	w.away = agents
}
