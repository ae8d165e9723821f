package worker

import (
	"context"
	"sync"

	"agentd/sdk"
)

// changing is a toolset that says when it has other tools.
type changing interface {
	sdk.Toolset
	Changed() <-chan struct{}
}

// followToolsets loads the agents anew when a toolset has other tools, for runs that begin from now on and for the calls
// of all. It ends with ctx or stop, which waits for that.
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
