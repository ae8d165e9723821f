package approval

import (
	"context"

	"agentd/sdk"
)

// GrantStore keeps grants wider than a run. Safe for concurrent use; everything may be repeated.
type GrantStore interface {
	// Record keeps a grant under its id.
	Record(ctx context.Context, g sdk.GrantRecord) error
	// Reserve takes one use of a grant of the initiator for the agent's tool, which meets the check's terms, under the call's
	// id, by compare-and-set, and returns the grant's id: "" if there is none. A call that has a reservation gets the same
	// again, for as long as the grant lasts and meets the check's terms.
	Reserve(ctx context.Context, c sdk.PermissionCheck) (grant string, err error)
}

// NoGrants is a store without grants, for checks that connect to nothing.
type NoGrants struct{}

// Record implements GrantStore.
func (NoGrants) Record(context.Context, sdk.GrantRecord) error { return nil }

// Reserve implements GrantStore.
func (NoGrants) Reserve(context.Context, sdk.PermissionCheck) (string, error) { return "", nil }
