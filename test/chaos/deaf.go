package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"agentd/sdk/wire"
	"agentd/test/cluster"
)

// What the report calls it, and what is to come of it.
const (
	readsNothing = "a subscriber of everything that reads nothing"
	wasGivenUp   = "subscribers that read nothing and were given up"
)

const (
	// deafFor is how long a client reads nothing: longer than it takes until the buffers on the way are full, and the 10 s that a server then
	// waits for it.
	deafFor = 25 * time.Second
	// deafBuffer is how many bytes are on their way to it at most, as far as the system lets it choose.
	deafBuffer = 4 << 10
)

// deaf has a client subscribe to all that there is, announce that it reads all live events, and read nothing, as a browser does that somebody
// has stopped. The server is to give it up, and workers and clients are to notice nothing.
func (n *nemesis) deaf(ctx context.Context, c *cluster.Cluster, rng *rand.Rand) error {
	stop, err := n.conn.AnnounceWatch("", wire.RunKey{}, func() {})
	if err != nil {
		return err
	}
	conn, err := listen(ctx, c.Nodes[rng.IntN(len(c.Nodes))].Direct())
	if err != nil {
		return errors.Join(err, stop())
	}
	pause(ctx, deafFor)
	if givenUp(conn) {
		n.record.count(wasGivenUp, 1)
	}
	return errors.Join(conn.Close(), stop())
}

func listen(ctx context.Context, server string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", server[len("nats://"):])
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		err = tcp.SetReadBuffer(deafBuffer)
	}
	if err == nil {
		_, err = fmt.Fprint(conn, `CONNECT {"verbose":false,"name":"deaf"}`+"\r\nSUB > 1\r\n")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("subscribe to everything: %w", err), conn.Close())
	}
	return conn, nil
}

// givenUp reports whether the other end has closed a connection: it refuses what it is told then. What is on its way may be megabytes, which
// who was deaf for long reads slowly.
func givenUp(conn net.Conn) bool {
	err := conn.SetDeadline(time.Now().Add(10 * time.Second))
	if err == nil {
		_, err = fmt.Fprint(conn, "PING\r\n")
	}
	if err == nil {
		_, err = io.Copy(io.Discard, conn)
	}
	return !errors.Is(err, os.ErrDeadlineExceeded)
}
