package worker

import (
	"context"
	"sync"
	"time"

	"agentd/sdk"
)

// changing is a toolset that says when it has other tools.
type changing interface {
	sdk.Toolset
	Changed() <-chan struct{}
}

// followToolsets loads the agents anew when a toolset has other tools, for runs that begin from now on and for the calls
// of all, and when a toolset that kept an agent from being served answers. It ends with ctx or stop, which waits for that.
func (w *Worker) followToolsets(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var followers sync.WaitGroup
	seen := map[sdk.Toolset]bool{}
	for _, a := range w.Agents {
		for _, set := range a.Toolsets {
			if c, ok := set.(changing); ok && !seen[set] {
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

func (w *Worker) followToolset(ctx context.Context, set changing) {
	for {
		select {
		case <-set.Changed():
		case <-ctx.Done():
			return
		}
		w.setting.Lock()
		if err := w.catalog.Refresh(w.Agents); err != nil {
			w.Logger.Error("agents cannot be used with the tools that a toolset has now; they stay as they are",
				"toolset", set.Name(), "error", err)
		} else {
			w.Logger.Info("agents use the tools that a toolset has now", "toolset", set.Name())
		}
		w.setting.Unlock()
	}
}

const (
	// firstPause and longestPause bound how long a toolset that is away is left alone; the pause doubles.
	firstPause   = time.Second
	longestPause = time.Minute
)

// awaitToolsets asks toolsets that are away again and again. Their agents are served when all of theirs have answered.
func (w *Worker) awaitToolsets(ctx context.Context) {
	pause := firstPause
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
			pause = min(2*pause, longestPause)
		case <-w.replaced:
			pause = firstPause
		case <-ctx.Done():
			return
		}
	}
}

// refresh asks the toolsets again, and says whose agents are served now.
func (w *Worker) refresh() {
	before := w.catalog.Waiting()
	if err := w.catalog.Refresh(w.Agents); err != nil {
		w.Logger.Error("agents cannot be used with the tools that their toolsets have now", "error", err)
		return
	}
	w.warnOfWaiting()
	waiting := map[string]bool{}
	for _, away := range w.catalog.Waiting() {
		waiting[away.Agent] = true
	}
	for _, away := range before {
		if !waiting[away.Agent] {
			waiting[away.Agent] = true // said once
			w.Logger.Info("agent is served now", "agent", away.Agent)
		}
	}
}

func (w *Worker) warnOfWaiting() {
	for _, away := range w.catalog.Waiting() {
		w.Logger.Warn("agent is not served here before its toolset answers; its runs wait", "agent", away.Agent,
			"toolset", away.Toolset, "error", away.Err)
	}
}
