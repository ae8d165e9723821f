package redisstore

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// mostFlights is how many pipelines are under way at once: while one waits for the server's disk, another is on its way, and commands that
// come meanwhile are sent together as soon as one is back.
const mostFlights = 2

// gatherer sends the commands of runs that go on at the same time in one pipeline: one write, one read, and mostly one sync of the server's
// disk, in place of as many as there are commands. A command that comes alone is sent at once.
//
// It is for one server. Of a cluster, a server that does not answer would hold up what is for the others.
type gatherer struct {
	mu      sync.Mutex
	waiting []waiting
	flights int
}

// waiting is a command that is to be sent.
type waiting struct {
	cmd redis.Cmder
	// done is closed when the command has its outcome.
	done chan struct{}
}

// do sends a command and waits for its outcome. When ctx ends first, a command that is under way may be carried out yet, and must not be
// touched.
func (g *gatherer) do(ctx context.Context, client *redis.Client, cmd redis.Cmder) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := waiting{cmd, make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, w)
	if g.flights < mostFlights {
		g.flights++
		go g.fly(context.WithoutCancel(ctx), client) // the client's own timeouts bound it
	}
	g.mu.Unlock()
	select {
	case <-w.done:
		return cmd.Err()
	case <-ctx.Done():
		g.leave(w)
		return ctx.Err()
	}
}

// leave takes back a command that was not sent yet.
func (g *gatherer) leave(w waiting) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = slices.DeleteFunc(g.waiting, func(o waiting) bool { return o.done == w.done })
}

// fly sends what waits, until nothing does. Where there is more than one command, goroutines that can run have their turn before: they may have
// some too.
func (g *gatherer) fly(ctx context.Context, client *redis.Client) {
	for {
		if g.shared() {
			runtime.Gosched()
		}
		batch := g.board()
		if len(batch) == 0 {
			return
		}
		send(ctx, client, batch)
		for _, w := range batch {
			close(w.done)
		}
	}
}

// shared reports whether there is more than one command, under way or waiting.
func (g *gatherer) shared() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.flights > 1 || len(g.waiting) > 1
}

// board takes what waits. If nothing does, the flight is over.
func (g *gatherer) board() []waiting {
	g.mu.Lock()
	defer g.mu.Unlock()
	batch := g.waiting
	g.waiting = nil
	if len(batch) == 0 {
		g.flights--
	}
	return batch
}

// send carries out commands. Each has its own error.
func send(ctx context.Context, client *redis.Client, batch []waiting) {
	if len(batch) == 1 {
		_ = client.Process(ctx, batch[0].cmd)
		return
	}
	_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, w := range batch {
			_ = p.Process(ctx, w.cmd)
		}
		return nil
	})
}
