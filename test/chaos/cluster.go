package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"agentd/internal/broker/streams"
	"agentd/test/cluster"
	"agentd/test/proxy"
)

// calm lies between two faults of a cluster, so that what one costs is not put down to the next.
const calm = 12 * time.Second

// clusterFault is something that is done to the servers of a cluster. It returns when they are all there again.
type clusterFault struct {
	name string
	// crashes are the crash points that it is.
	crashes []string
	harm    func(ctx context.Context, c *cluster.Cluster, rng *rand.Rand) error
}

// clusterFaults are done in turn, beginning anywhere.
func (n *nemesis) clusterFaults() []clusterFault {
	faults := append(n.processFaults(), clusterFault{readsNothing, nil, n.deaf})
	if cluster.ClocksMove() {
		faults = append(faults, clusterFault{clockJumps, nil, n.jump})
	}
	return faults
}

// clockJumps is what the report calls it.
const clockJumps = "the clock of a leader jumps"

// A clock jumps by so much: less than lies between what workers trust and what they remove, a minute each.
const leastJump, mostJump = 5 * time.Second, 45 * time.Second

// jump has the clock of a server that dates or fires what runs wait for jump ahead or back, and be set right later.
func (n *nemesis) jump(ctx context.Context, _ *cluster.Cluster, rng *rand.Rand) error {
	zones := []streams.Zone{streams.Timer, streams.Start, streams.Run}
	node, err := n.leader(ctx, zones[rng.IntN(len(zones))])
	if err != nil {
		return err
	}
	ahead, set := (leastJump + time.Duration(rng.Int64N(int64(mostJump-leastJump)))).Round(time.Second), "ahead"
	if rng.IntN(2) == 0 {
		ahead, set = -ahead, "back"
	}
	n.record.fault("a clock is set " + set)
	if err := node.SetClock(ahead); err != nil {
		return err
	}
	pause(ctx, time.Duration(15+rng.IntN(15))*time.Second)
	return node.SetClock(0)
}

// processFaults are what is done to the servers' processes, disks and routes.
func (n *nemesis) processFaults() []clusterFault {
	return []clusterFault{
		{"SIGKILL to the leader of the cluster", []string{"C26"}, n.killMeta},
		{"SIGKILL to the leader of the journals", []string{"C25"}, n.killJournals},
		{"SIGKILL to the leader of another stream", []string{"C26"}, n.killOther},
		{"SIGSTOP to the leader of the journals", []string{"C25"}, n.freezeJournals},
		{"the leader of the journals cut off from the others", []string{"C25"}, n.cutOffJournals},
		{"rolling restart", []string{"C26"}, n.restartAll},
		{"disk of a server deleted", []string{"C25"}, n.loseDisk},
		{"two of three servers away", []string{"C26"}, n.leaveOne},
	}
}

func kill(ctx context.Context, node *cluster.Node) error {
	node.Kill()
	pause(ctx, calm)
	return node.Begin()
}

func (n *nemesis) killMeta(ctx context.Context, c *cluster.Cluster, _ *rand.Rand) error {
	node, err := c.Meta(ctx)
	if err != nil {
		return err
	}
	return kill(ctx, node)
}

func (n *nemesis) killJournals(ctx context.Context, _ *cluster.Cluster, _ *rand.Rand) error {
	node, err := n.leader(ctx, streams.Run)
	if err != nil {
		return err
	}
	return kill(ctx, node)
}

func (n *nemesis) killOther(ctx context.Context, _ *cluster.Cluster, rng *rand.Rand) error {
	zones := []streams.Zone{streams.Start, streams.In, streams.Out, streams.Done, streams.Timer}
	node, err := n.leader(ctx, zones[rng.IntN(len(zones))])
	if err != nil {
		return err
	}
	return kill(ctx, node)
}

func (n *nemesis) freezeJournals(ctx context.Context, _ *cluster.Cluster, rng *rand.Rand) error {
	node, err := n.leader(ctx, streams.Run)
	if err != nil {
		return err
	}
	node.Freeze()
	pause(ctx, time.Duration(10+rng.IntN(10))*time.Second)
	node.Thaw()
	return nil
}

func (n *nemesis) cutOffJournals(ctx context.Context, _ *cluster.Cluster, rng *rand.Rand) error {
	node, err := n.leader(ctx, streams.Run)
	if err != nil {
		return err
	}
	node.CutOff()
	pause(ctx, time.Duration(20+rng.IntN(10))*time.Second)
	node.Rejoin()
	return nil
}

// restartAll restarts one server after the other.
func (n *nemesis) restartAll(ctx context.Context, c *cluster.Cluster, _ *rand.Rand) error {
	for _, node := range c.Nodes {
		node.Terminate()
		if err := node.Begin(); err != nil {
			return err
		}
		if err := c.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (n *nemesis) loseDisk(ctx context.Context, c *cluster.Cluster, rng *rand.Rand) error {
	node := c.Nodes[rng.IntN(len(c.Nodes))]
	node.Kill()
	pause(ctx, calm) // until the others have all that was confirmed, and leaders
	if err := node.LoseDisk(); err != nil {
		return err
	}
	return node.Begin()
}

// leaveOne leaves one server, without a majority.
func (n *nemesis) leaveOne(ctx context.Context, c *cluster.Cluster, rng *rand.Rand) error {
	left := rng.IntN(len(c.Nodes))
	var away []*cluster.Node
	for i, node := range c.Nodes {
		if i != left {
			node.Kill()
			away = append(away, node)
		}
	}
	pause(ctx, time.Duration(5+rng.IntN(10))*time.Second)
	for _, node := range away {
		if err := node.Begin(); err != nil {
			return err
		}
	}
	return nil
}

// leader is the server that leads the first of the streams that a zone is divided into.
func (w *world) leader(ctx context.Context, z streams.Zone) (*cluster.Node, error) {
	stream, err := w.conn.JetStream().Stream(ctx, streams.Name(subjects, w.layout.Zones(z)[0]))
	if err != nil {
		return nil, err
	}
	return w.cluster.Node(stream.CachedInfo().Cluster.Leader)
}

// servers hurts the servers of the cluster, one fault after the other.
func (n *nemesis) servers(rng *rand.Rand) {
	faults := n.clusterFaults()
	for i := rng.IntN(len(faults)); ; i++ {
		pause(n.hurting, calm)
		if n.hurting.Err() != nil {
			return
		}
		f := faults[i%len(faults)]
		n.record.fault(f.name)
		for _, crash := range f.crashes {
			n.record.cover(crash, 1)
		}
		began := time.Now()
		all := context.WithoutCancel(n.hurting) // a fault that has begun is carried through
		err := f.harm(all, n.cluster, rng)
		if err == nil {
			err = n.cluster.Ready(all)
		}
		if err != nil {
			n.record.violate("%s: %v", f.name, err)
			return
		}
		pause(all, calm)
		n.hurts.note(f.name, began, time.Now().Add(-calm))
	}
}

// networks cuts and silences connections of workers to one server or another.
func (n *nemesis) networks(rng *rand.Rand) {
	n.cuts("a server of the cluster", rng, func() *proxy.Proxy { return n.cluster.Nodes[rng.IntN(len(n.cluster.Nodes))].Clients() })
}

// openCluster starts the servers, and returns their URLs for the driver.
func (w *world) openCluster(ctx context.Context) (string, error) {
	var err error
	if w.cluster, err = cluster.Start(ctx, w.dir); err != nil {
		return "", fmt.Errorf("start the cluster: %w", err)
	}
	w.closers = append(w.closers, func() error {
		w.cluster.Close()
		return nil
	})
	return w.cluster.Direct(), nil
}
