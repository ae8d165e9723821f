package reconcile

import (
	"context"
	"time"
)

// ByPartition has a pass do what it does when streams are too large to be listed at once.
func ByPartition(o *Options) { o.byPartition = true }

// Scheduled makes the passes that are due, as Periodic does.
var Scheduled = scheduled

// Refill is refillAgents since one time.
func Refill(ctx context.Context, o Options, since time.Time) (Report, error) {
	return refillAgents(ctx, o, sinceOfAll(o, since)).joined()
}

// RefillUnserved is refillUnserved since a time.
func RefillUnserved(ctx context.Context, o Options, since time.Time) (Report, error) {
	return refillUnserved(ctx, o, sinceOfAll(o, since)).joined()
}
