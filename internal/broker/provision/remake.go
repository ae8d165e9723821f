package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/streams"
	"agentd/sdk"
)

// Remake is a stream that may be made anew, with what a plan decides of it and Apply cannot change.
type Remake struct {
	Name string
	// There is the stream's configuration, nil where there is none.
	There *jetstream.StreamConfig
	// persistence is as the plan has it; replicas are 0 where it leaves them as they are.
	persistence jetstream.PersistModeType
	replicas    int
}

// Made is how a stream is to be that was otherwise.
func (r Remake) Made(was jetstream.StreamConfig) jetstream.StreamConfig {
	next := was
	next.PersistMode, next.Replicas = r.persistence, cmp.Or(r.replicas, was.Replicas)
	if next.Replicas > 1 {
		next.PersistMode = jetstream.DefaultPersistMode // the server has no other with replicas
	}
	return next
}

// Stays reports whether the stream is there as it should be.
func (r Remake) Stays() bool {
	return r.There != nil && r.Made(*r.There).PersistMode == r.There.PersistMode
}

// Change says what making the stream anew changes, of one that was.
func (r Remake) Change(was jetstream.StreamConfig) Change {
	return Change{Kind: kindStream, Name: r.Name, Action: actionRebuilt, What: differences(was, r.Made(was))}
}

// Remakes looks at the streams of zones that are streams.Rebuildable.
func Remakes(ctx context.Context, b Broker, p Plan, zones ...streams.Zone) ([]Remake, error) {
	t := on(b)
	p, other, err := t.laidOut(ctx, p)
	if err == nil && other != nil {
		err = other
	}
	if err != nil {
		return nil, err
	}
	planned := p.Streams(t.subjects)
	var all []Remake
	for _, zone := range zones {
		if !slices.Contains(streams.Rebuildable, zone) {
			return nil, sdk.Errorf(sdk.CodeConfig, "stream %s is not one that is rebuilt: these are %v", streams.Name(t.subjects, zone), streams.Rebuildable)
		}
		for _, part := range p.Layout().Zones(zone) {
			name := streams.Name(t.subjects, part)
			want := planned[slices.IndexFunc(planned, func(s jetstream.StreamConfig) bool { return s.Name == name })]
			r := Remake{Name: name, persistence: want.PersistMode, replicas: p.Replicas}
			have, err := t.js.Stream(ctx, name)
			if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				return nil, fmt.Errorf("look at stream %s: %w", name, err)
			}
			if err == nil {
				got := have.CachedInfo().Config
				r.There = &got
			}
			all = append(all, r)
		}
	}
	return all, nil
}
