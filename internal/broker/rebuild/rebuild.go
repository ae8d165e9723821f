// Package rebuild makes streams anew whose persistence is to change, or that are to get replicas which the server gives to no such stream: it
// backs up each of them to files, deletes it, and restores it with another configuration. Messages keep their sequences, and consumers their
// places. Whatever ends it on the way, the backup is there, and the next attempt goes on with it.
package rebuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker"
	"agentd/internal/broker/leader"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const (
	// DefaultPatience is how long workers may take to have gone: one that was killed has its last requests open for some seconds, and what it had in
	// hand counts for a minute. look is how often it is looked.
	DefaultPatience = 75 * time.Second
	look            = 500 * time.Millisecond
	// attempts is how often a stream is backed up to which somebody still publishes.
	attempts = 5
)

// Options say what is rebuilt.
type Options struct {
	Conn *broker.Conn
	// Plan decides which persistence and how many replicas the streams get; its agents have their streams refilled by the next worker.
	Plan  provision.Plan
	Zones []streams.Zone
	// Dir is the folder of the backups: one for each stream, until it is restored. It needs room for the largest of them.
	Dir string
	// Patience is how long workers may take to have gone; 0 is DefaultPatience.
	Patience time.Duration
	// Tell is told what is being done, a sentence at a time.
	Tell func(string)
}

// Streams rebuilds those streams of the zones that are not as the plan says, one after the other, and returns what it has changed. It fails
// with CodeUnavailable while a worker runs. It may be repeated after any failure, with the same folder.
func Streams(ctx context.Context, o Options) ([]provision.Change, error) {
	remakes, err := provision.Remakes(ctx, o.Conn, o.Plan, o.Zones...)
	if err != nil {
		return nil, err
	}
	var changes []provision.Change
	for _, r := range remakes {
		change, err := o.stream(ctx, r)
		if err != nil {
			return changes, err
		}
		if change.Action != "" {
			changes = append(changes, change)
		}
	}
	if len(changes) == 0 {
		return nil, nil
	}
	// A worker that ended while its stream was backed up may have published something afterwards.
	return changes, o.forgetRefilled(ctx)
}

// forgetRefilled has workers that start refill the streams of the plan's agents, and of those that nobody serves, as after a restart of the
// server.
func (o *Options) forgetRefilled(ctx context.Context) error {
	for _, a := range o.Plan.Agents {
		if err := o.Conn.NoteRefilled(ctx, wire.NameToken(a.Name), ""); err != nil {
			return err
		}
	}
	return o.Conn.NoteRefilled(ctx, broker.Unserved, "")
}

// Planned says what Streams would change.
func Planned(ctx context.Context, o Options) ([]provision.Change, error) {
	remakes, err := provision.Remakes(ctx, o.Conn, o.Plan, o.Zones...)
	if err != nil {
		return nil, err
	}
	var changes []provision.Change
	for _, r := range remakes {
		backup, err := readManifest(filepath.Join(o.Dir, r.Name))
		switch {
		case err != nil:
			return nil, err
		case r.There != nil && !r.Stays():
			changes = append(changes, r.Change(*r.There))
		case r.There == nil && backup != nil:
			changes = append(changes, r.Change(backup.Config))
		}
	}
	return changes, nil
}

// stream rebuilds a stream, and says what it has changed; the zero value is nothing.
func (o *Options) stream(ctx context.Context, r provision.Remake) (none provision.Change, err error) {
	dir := filepath.Join(o.Dir, r.Name)
	backup, err := readManifest(dir)
	if err != nil {
		return none, err
	}
	switch {
	case r.There == nil && backup == nil: // provisioning makes it
		return none, nil
	case r.Stays() && backup == nil:
		return none, nil
	case r.Stays():
		return none, o.restored(ctx, r.Name, dir, backup)
	}
	if err := o.unused(ctx); err != nil {
		return none, err
	}
	if r.There != nil {
		if backup != nil { // one that somebody has made anew is not to take its place
			if err := o.holds(ctx, r.Name, dir, backup); err != nil {
				return none, err
			}
		}
		if backup, err = o.backUp(ctx, r, dir); err != nil {
			return none, err
		}
		if err := remove(ctx, o.Conn.JetStream(), r.Name); err != nil {
			return none, err
		}
	}
	o.Tell(fmt.Sprintf("restoring %s from %s", r.Name, dir))
	if err := restore(ctx, o.Conn.JetStream(), r.Made(backup.Config), dir); err != nil {
		return none, fmt.Errorf("%w; the backup stays there, and the command goes on with it when it is run again", err)
	}
	if err := o.restored(ctx, r.Name, dir, backup); err != nil {
		return none, err
	}
	return r.Change(backup.Config), nil
}

// remove deletes a stream, if it is there.
func remove(ctx context.Context, js jetstream.JetStream, name string) error {
	return leader.Patiently(ctx, js, "stream "+name, func(ctx context.Context) error {
		if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("delete stream %s: %w", name, err)
		}
		return nil
	})
}

// unused waits until no worker reads anything.
func (o *Options) unused(ctx context.Context) error {
	patience := cmp.Or(o.Patience, DefaultPatience)
	for began, told := time.Now(), false; ; told = true {
		consumer, err := o.Conn.Working(ctx)
		if err != nil || consumer == "" {
			return err
		}
		if time.Since(began) > patience {
			return sdk.Errorf(sdk.CodeUnavailable, "a worker reads %s: stop all workers, and run the command again", consumer)
		}
		if !told {
			o.Tell(fmt.Sprintf("waiting until no worker reads %s, for %s at most; stop the workers", consumer, patience))
		}
		if err := retry.Sleep(ctx, look); err != nil {
			return err
		}
	}
}

// backUp backs up a stream to which nobody publishes any more. Timers that fire meanwhile are in it as they were before, and fire again.
func (o *Options) backUp(ctx context.Context, r provision.Remake, dir string) (*manifest, error) {
	for range attempts {
		o.Tell(fmt.Sprintf("backing up %s to %s", r.Name, dir))
		backup, err := back(ctx, o.Conn.JetStream(), r.Name, dir)
		if err != nil {
			return nil, err
		}
		o.Tell(fmt.Sprintf("backed up %s; messages: %d", r.Name, backup.State.Messages))
		stream, err := o.Conn.JetStream().Stream(ctx, r.Name)
		if err != nil {
			return nil, fmt.Errorf("look at stream %s: %w", r.Name, err)
		}
		if r.There.AllowMsgSchedules || stream.CachedInfo().State.LastSeq == backup.State.LastSequence {
			return backup, nil
		}
	}
	return nil, sdk.Errorf(sdk.CodeUnavailable, "somebody publishes to stream %s: stop all workers, and run the command again", r.Name)
}

// holds returns nil for a stream that has got as far as its backup, or what a person is to decide.
func (o *Options) holds(ctx context.Context, name, dir string, backup *manifest) error {
	stream, err := o.Conn.JetStream().Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", name, err)
	}
	if last := stream.CachedInfo().State.LastSeq; last < backup.State.LastSequence {
		return sdk.Errorf(sdk.CodeConfig, "stream %s was made anew by somebody else: its last sequence is %d, that of the backup in %s is %d; "+
			"delete the stream to have the backup restored, or the backup to go on without it", name, last, dir, backup.State.LastSequence)
	}
	return nil
}

// restored removes the backup of a stream that has what was in it.
func (o *Options) restored(ctx context.Context, name, dir string, backup *manifest) error {
	if err := o.holds(ctx, name, dir, backup); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the backup of stream %s: %w", name, err)
	}
	_ = os.Remove(o.Dir) // unless there are others in it
	return nil
}
