package main

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"agentd/internal/broker"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// conn is a connection as a user, until the test ends.
func (g *guarded) conn(user string) *broker.Conn {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), wait)
	defer cancel()
	c, err := broker.Connect(ctx, broker.ConnectOptions{URL: g.url(user), Who: user, Subjects: wire.DefaultSubjects()})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			g.t.Error(err)
		}
	})
	return c
}

// Who may read live events has workers tell them, at once and when a worker asks. Nobody is refused anything.
func TestNATSConfig_WatchersAreHeard(t *testing.T) {
	g := newGuarded(t, "", func(agents string) string { return agents })
	worker := g.conn("worker")
	heard := make(chan string, 100)
	_, stop, err := worker.OnWatch(func(agent string, run wire.RunKey) { heard <- agent + "." + run.String() }, func() {})
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"shop", "ann", "jane", "operator"} {
		run := wire.NewRunKey("the run of " + user)
		end, err := g.conn(user).AnnounceWatch("clerk", run, func() {})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := <-heard, "clerk."+run.String(); got != want {
			t.Errorf("%s announces %s, want %s", user, got, want)
		}
		if err := worker.AskWatchers(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := <-heard, "clerk."+run.String(); got != want {
			t.Errorf("%s answers %s, want %s", user, got, want)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if said := g.violations.said(); len(said) > 0 {
		t.Errorf("the server refused what a role needs:\n%s", strings.Join(said, "\n"))
	}
}

// On a server with the rights of an older version nobody may announce anything: workers tell live events always, and say why.
func TestNATSConfig_WithoutRightsToWatchAllIsTold(t *testing.T) {
	g := newGuarded(t, "", func(agents string) string { return agents })
	now, err := os.ReadFile(g.serverFile(0))
	if err != nil {
		t.Fatal(err)
	}
	older := slices.DeleteFunc(strings.SplitAfter(string(now), "\n"), func(line string) bool { return strings.Contains(line, "agentd.watch.") })
	write(t, g.serverFile(0), strings.Join(older, ""))
	g.restart()
	g.work()
	g.until(&g.errors, "live events of all runs are told, because it cannot be known who watches")
	shop := client.New(g.conn("shop"), client.Options{As: "shop"})
	run := client.Run{Agent: "clerk", Name: "one"}
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	following, err := shop.Listen(run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shop.Start(ctx, client.Request{Agent: "clerk", Input: json.RawMessage(`{"message":"Pay"}`), Name: "one"}); err != nil {
		t.Fatal(err)
	}
	told, stop := context.WithCancel(ctx)
	defer stop()
	err = following.Events(told, wire.Mark{}, func(l wire.Live) {
		if l.Type == wire.LiveTurnStarted { // nobody could ask for it
			stop()
		}
	})
	if ctx.Err() != nil {
		t.Errorf("no live events: %v", err)
	}
	if err := following.Close(); err != nil {
		t.Error(err)
	}
}
