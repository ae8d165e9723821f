package pipeline

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker"
	"agentd/internal/harness"
	"agentd/internal/milestone"
	"agentd/internal/runner"
	"agentd/internal/state/storetest"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// following collects what one client sees of a run.
type following struct {
	*client.Following
	seen chan wire.Live
	done chan error
}

func (r *rig) follow(conn *broker.Conn, run string, after wire.Mark) *following {
	r.t.Helper()
	f, err := client.New(conn, client.Options{}).Listen(client.Run{Agent: "desk", Name: run})
	r.check("follow", err)
	c := &following{f, make(chan wire.Live, 1000), make(chan error, 1)}
	go func() {
		c.done <- f.Events(r.t.Context(), after, func(l wire.Live) {
			if !l.Ephemeral {
				c.seen <- l
			}
		})
	}()
	return c
}

// upTo returns what the client sees up to the next milestone of that type.
func (c *following) upTo(kind string) (list []wire.Live) {
	for l := range c.seen {
		if list = append(list, l); l.Type == kind {
			break
		}
	}
	return list
}

func (r *rig) milestones(run harness.Run) (list []wire.Live) {
	r.t.Helper()
	entries, err := runner.New(runner.Options{Store: r.store}).Journal(r.t.Context(), wire.NewRunKey(run.Subject))
	r.check("read journal", err)
	for i := range entries {
		list = append(list, milestone.Of(&entries[i])...)
	}
	return list
}

func TestFollow_SeesEveryMilestoneOnceThroughLostConnections(t *testing.T) {
	t.Parallel()
	r := startRig(t, rig{model: twoSteps(nil), specs: []sdk.AgentSpec{desk()}}, 0)
	r.work(0)
	proxy := storetest.NewProxy(t, strings.TrimPrefix(r.server.URL(), "nats://"))
	conn, err := broker.Connect(t.Context(), broker.ConnectOptions{URL: "nats://" + proxy.Addr(), Subjects: wire.DefaultSubjects()})
	r.check("connect", err)
	defer func() { r.check("close", conn.Close()) }()
	f := r.follow(conn, "one", wire.Mark{})
	run := r.begin("one")
	seen := f.upTo(wire.MilestoneSuspended)

	proxy.Mute() // the run goes on, and the client hears nothing of it
	r.answerSums("", nil)
	r.end(run)
	proxy.Heal()
	seen = append(seen, f.upTo(wire.MilestoneFinished)...)
	r.check("follow", <-f.done)
	r.check("close", f.Close())
	all := r.milestones(run)
	if diff := cmp.Diff(all, seen); diff != "" {
		t.Errorf("milestones (-in the journal +seen):\n%s", diff)
	}

	// Who was away altogether continues after what it saw.
	for i, last := range all[:len(all)-1] {
		f := r.follow(r.client, "one", wire.Mark{Revision: last.Revision, Index: last.Index})
		if diff := cmp.Diff(all[i+1:], f.upTo(wire.MilestoneFinished)); diff != "" {
			t.Errorf("after (%d, %d) (-want +got):\n%s", last.Revision, last.Index, diff)
		}
		r.check("follow", <-f.done)
		r.check("close", f.Close())
	}
}
