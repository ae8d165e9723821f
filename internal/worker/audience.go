package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/sdk/wire"
)

// mostWatched is how many runs an audience keeps by name, about 200 bytes each: whoever watches a further one is told of all runs of
// its agent.
const mostWatched = 10_000

// audience implements runner.Audience: who has announced, within wire.WatchLasts, that they read live events. Where it cannot know,
// somebody does: a live event too many costs a message, one too few is missed.
type audience struct {
	// agents are the tokens of the agents that the worker serves; others are none of its business.
	agents map[string]bool
	now    func() time.Time
	// unread reports whether announcements have come that are not in the table yet.
	unread func() bool

	mu sync.Mutex
	// asking is how often watchers were asked that may not have answered yet.
	asking int
	// everything, whole and runs are until when everything, agents (by token) and runs are watched.
	everything time.Time
	whole      map[string]time.Time
	runs       map[watchedRun]time.Time
	// swept is when what has ended was last removed.
	swept time.Time
}

type watchedRun struct{ agent, run string }

// newAudience is one of which nothing is known: everything is watched until it has been asked.
func newAudience(agents map[string]bool) *audience {
	return &audience{
		agents: agents, now: time.Now, unread: func() bool { return false }, asking: 1,
		whole: map[string]time.Time{}, runs: map[watchedRun]time.Time{},
	}
}

// Watches implements runner.Audience.
func (a *audience) Watches(agent string, run wire.RunKey) bool {
	if a.unread() {
		return true
	}
	agent = wire.NameToken(agent)
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asking > 0 || now.Before(a.everything) || now.Before(a.whole[agent]) || now.Before(a.runs[watchedRun{agent, run.Token}])
}

// heard notes an announcement; see broker.Conn.OnWatch.
func (a *audience) heard(agent string, run wire.RunKey) {
	now := a.now()
	until := now.Add(wire.WatchLasts)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case agent == "":
		a.everything = until
		return
	case !a.agents[agent]:
		return
	case run == wire.RunKey{}:
		a.whole[agent] = until
		return
	}
	if now.Sub(a.swept) >= wire.WatchEvery {
		a.swept = now
		for run, until := range a.runs {
			if !now.Before(until) {
				delete(a.runs, run)
			}
		}
	}
	watched := watchedRun{agent, run.Token}
	if _, known := a.runs[watched]; !known && len(a.runs) >= mostWatched {
		a.whole[agent] = until
		return
	}
	a.runs[watched] = until
}

// lost notes that announcements were dropped: whoever made them makes them again within wire.WatchLasts.
func (a *audience) lost() { a.heard("", wire.RunKey{}) }

// listen begins to hear announcements, and asks for those that were made before, whenever the connection is new.
func (a *audience) listen(ctx context.Context, conn *broker.Conn, logger *slog.Logger) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	unread, unsubscribe, err := conn.OnWatch(a.heard, a.lost)
	if err != nil {
		cancel()
		return nil, err
	}
	a.unread = unread
	ask := func() {
		if err := conn.AskWatchers(ctx); err != nil {
			logger.WarnContext(ctx, "live events of all runs are told, because it cannot be known who watches; make the server's "+
				"configuration anew: agentd nats-config", "error", err)
			return
		}
		a.ask(-1)
	}
	var asking sync.WaitGroup
	asking.Go(ask)
	forget := conn.OnReconnect(func() {
		a.ask(1)
		ask()
	})
	return func() error {
		forget()
		cancel()
		asking.Wait()
		return unsubscribe()
	}, nil
}

func (a *audience) ask(more int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asking += more
}
