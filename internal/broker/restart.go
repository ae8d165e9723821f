package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

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

// Unserved stands, where streams are refilled agent by agent, for all agents that nobody serves. It is no agent's token.
const Unserved = ""

func refilledNote(agent string) string { return "refilled_" + agent }

// Refilled reads what was noted for an agent, by its token, or for Unserved.
func (c *Conn) Refilled(ctx context.Context, agent string) (r Refilled, err error) {
	noted, err := c.Note(ctx, refilledNote(agent))
	if err == nil && noted != nil {
		err = json.Unmarshal(noted, &r)
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
	return c.SetNote(ctx, refilledNote(agent), body)
}

const purgedNote = "purged"

// Purged implements runner.Publisher.
func (c *Conn) Purged(ctx context.Context) (by int64, err error) {
	noted, err := c.Note(ctx, purgedNote)
	if err == nil && noted != nil {
		err = json.Unmarshal(noted, &by)
	}
	if err != nil {
		return 0, fmt.Errorf("read whose calls may have been removed: %w", err)
	}
	return by, nil
}

// NotePurged notes, before any are removed, that calls of runs that have ended by a time in Unix milliseconds may be removed. An earlier time
// than is noted changes nothing. A server that forgets it has such calls given up again, which does no harm.
func (c *Conn) NotePurged(ctx context.Context, by int64) error {
	noted, err := c.Purged(ctx)
	if err != nil || noted >= by {
		return err
	}
	return c.SetNote(ctx, purgedNote, strconv.AppendInt(nil, by, 10))
}
