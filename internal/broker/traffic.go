package broker

import (
	"context"
	"fmt"
	"time"

	"agentd/internal/address"
)

// Traffic is what a connection has sent and got since it was made, in messages and in bytes of what they carry: events, acknowledgements,
// and requests with their answers.
type Traffic struct{ Sent, SentBytes, Received, ReceivedBytes uint64 }

// Traffic counts messages of the connection's programs, and nobody else's.
func (c *Conn) Traffic() Traffic {
	s := c.nc.Stats()
	return Traffic{s.OutMsgs, s.OutBytes, s.InMsgs, s.InBytes}
}

// RoundTrip is how long the server takes to answer when it has nothing to do for that.
func (c *Conn) RoundTrip() (time.Duration, error) { return c.nc.RTT() }

// Monitored is what a server's monitoring port says of it.
type Monitored struct {
	Name string
	// Syncs is whether it writes to disk before it confirms.
	Syncs bool
	// CPU is how much of one processor it uses, in percent, and Cores how many it has.
	CPU   float64
	Cores int
}

// Monitor asks the monitoring port at url, such as http://nats:8222.
func Monitor(ctx context.Context, url string) (Monitored, error) {
	seen, err := lookAtMonitor(ctx, url)
	if err != nil {
		return Monitored{}, fmt.Errorf("ask the monitoring port %s: %w", address.Hide(url), err)
	}
	var load struct {
		CPU   float64 `json:"cpu"`
		Cores int     `json:"cores"`
	}
	if err := monitored(ctx, url, "/varz", &load); err != nil {
		return Monitored{}, fmt.Errorf("ask the monitoring port %s: %w", address.Hide(url), err)
	}
	return Monitored{Name: seen.name, Syncs: seen.syncs, CPU: load.CPU, Cores: load.Cores}, nil
}
