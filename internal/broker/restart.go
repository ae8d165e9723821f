package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

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

// ErrAhead is that consumers are ahead of their stream, and could not be set back.
var ErrAhead = errors.New("a consumer is ahead of its stream, whose end the server has lost, and passes over what comes next")

// PutBack has the consumers of a zone deliver what has been published since a time when the server had not been started yet, where they are
// ahead of their stream, and names them. A server that has lost what its index of a stream says is there may find that out when it has loaded
// the consumers, and have the stream end before what they have delivered: they would pass over what is published next. It is to be done
// before much is: consumers that the stream has caught up with cannot be told from others. It needs a server of 2.14. Errors: ErrAhead, of
// each that could not be set back; or that it is not known of all whether they are ahead.
func (c *Conn) PutBack(ctx context.Context, z Zone, since time.Time) (back []string, err error) {
	layout, err := c.Layout(ctx)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, part := range layout.Zones(z) {
		some, err := c.putBack(ctx, part, since)
		back = append(back, some...)
		if err != nil && !errors.Is(err, ErrAhead) {
			return back, err
		}
		problems = append(problems, err)
	}
	return back, errors.Join(problems...)
}

// putBack is PutBack of one stream.
func (c *Conn) putBack(ctx context.Context, part Zone, since time.Time) (back []string, err error) {
	readers, err := c.Readers(ctx, part)
	if err != nil {
		return nil, err
	}
	s, err := c.stream(ctx, part) // it is looked at last: what they had delivered by then has been stored by then
	if err != nil {
		return nil, err
	}
	last := s.CachedInfo().State.LastSeq
	readers = slices.DeleteFunc(readers, func(r Reader) bool { return r.Delivered <= last })
	if len(readers) == 0 {
		return nil, nil
	}
	first, err := c.SequenceAt(ctx, part, since)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, r := range readers {
		name, to := StreamName(c.subjects, part)+"."+r.Name, min(r.Floor+1, first)
		bounded, explain, stop := c.refusals.until(ctx, "$JS.API.CONSUMER.RESET."+name)
		_, err := s.ResetConsumerToSequence(bounded, r.Name, to)
		stop()
		if err != nil {
			problems = append(problems, fmt.Errorf("%w: set %s back to sequence %d: %w", ErrAhead, name, to, explain(err)))
			continue
		}
		back = append(back, name)
	}
	return back, errors.Join(problems...)
}
