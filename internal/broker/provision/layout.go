package provision

import (
	"context"
	"errors"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/streams"
	"agentd/sdk"
)

// laidOut is a plan with the partitions and the persistence that there are, or would be. problem says that the plan has other partitions.
func (t *target) laidOut(ctx context.Context, p Plan) (laid Plan, problem *sdk.Error, err error) {
	if p.Partitions != 0 {
		if _, err := streams.NewLayout(p.Partitions); err != nil {
			return p, nil, err
		}
	}
	there, err := t.Layout(ctx)
	if p.Unreconciled || !t.Refillable() {
		p.PersistMode = streams.PersistDefault
	}
	switch {
	case errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}): // whoever looks at the streams says so
		p.Partitions = max(p.Partitions, 1)
		return p, nil, nil
	case err != nil:
		return p, nil, err
	case there == streams.Layout{}: // nothing is provisioned
		p.Partitions = max(p.Partitions, 1)
		return p, nil, nil
	}
	if p.Partitions != 0 && p.Partitions != there.Partitions() {
		problem = otherPartitions(there.Partitions(), p.Partitions)
	}
	p.Partitions = there.Partitions()
	if p.PersistMode == "" {
		p.PersistMode, err = t.persistModeOf(ctx, there)
	}
	return p, problem, err
}

// persistModeOf is that of the streams that there are; it is empty where there are none.
func (t *target) persistModeOf(ctx context.Context, l streams.Layout) (streams.PersistMode, error) {
	for _, z := range streams.Rebuildable {
		s, err := t.js.Stream(ctx, streams.Name(t.subjects, l.Zones(z)[0]))
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}): // whoever looks at it says so
		case err != nil:
			return "", err
		default:
			return streams.PersistModeOf(s.CachedInfo().Config), nil
		}
	}
	return "", nil
}

// sameLayout reports that a stream was made for another layout.
func sameLayout(got, want jetstream.StreamConfig) error {
	have, err := streams.LayoutIn(got)
	if err != nil {
		return err
	}
	wanted, err := streams.LayoutIn(want)
	if err == nil && have != wanted {
		return otherPartitions(have.Partitions(), wanted.Partitions())
	}
	return err
}

// otherPartitions says that the number is for ever.
func otherPartitions(have, want int) *sdk.Error {
	return sdk.Errorf(sdk.CodeConfig, "the streams were provisioned with %s, and nats.partitions is %d: their number is for ever; %s",
		countPartitions(have), want, remedyPartitions)
}

const remedyPartitions = "to have more, begin anew under another nats.root (docs/operations.md, \"Partitions\")"

func countPartitions(n int) string {
	if n == 1 {
		return "1 partition"
	}
	return strconv.Itoa(n) + " partitions"
}
