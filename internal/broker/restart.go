package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// Server names the process of the server that the connection is to: one that is started again is another. It is empty while there is none,
// and in a cluster, where others have what one of them forgets.
func (c *Conn) Server() string { return serverOf(c.nc) }

func serverOf(nc *nats.Conn) string {
	if nc.ConnectedClusterName() != "" {
		return ""
	}
	return nc.ConnectedServerId()
}

// Refilled says up to which process of the server an agent's streams have been refilled, and when that process was last seen, in Unix
// milliseconds. What the server has forgotten since it confirmed it is younger than that. The zero value is that nobody has.
type Refilled struct {
	Server string `json:"server"`
	At     int64  `json:"at"`
}

// refilledFor is how long the server keeps a Refilled: without one, the last hours are looked at.
const refilledFor = firedTTL

func (c *Conn) refilledSubject(agent string) string { return c.leaseSubject("refilled_" + agent) }

// Refilled reads what was noted for an agent, by its token.
func (c *Conn) Refilled(ctx context.Context, agent string) (r Refilled, err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	m, err := c.Last(ctx, c.refilledSubject(agent))
	if errors.Is(err, ErrNotStored) {
		return Refilled{}, nil
	}
	if err == nil {
		err = json.Unmarshal(m.Data, &r)
	}
	if err != nil {
		return Refilled{}, fmt.Errorf("read up to which server streams were refilled: %w", err)
	}
	return r, nil
}

// NoteRefilled notes that an agent's streams have been refilled up to a process of the server, and that it is there now.
func (c *Conn) NoteRefilled(ctx context.Context, agent, server string) error {
	body, err := json.Marshal(Refilled{server, c.Now()})
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	return c.keepLast(ctx, c.refilledSubject(agent), body, refilledFor)
}
