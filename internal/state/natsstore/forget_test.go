package natsstore

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/runner"
	"agentd/internal/state/storetest"
	"agentd/sdk"
	"agentd/sdk/wire"
)

func TestStore_AmbiguousPurgeIsRepeated(t *testing.T) {
	t.Parallel()
	s, proxy := openProxied(t, 2*time.Second)
	storetest.AmbiguousPurge(t, s, proxy)
}

// TestStore_TombstoneCountsWhateverIsBeforeIt: a server that is killed may have the tombstone and still have what it
// replaces.
func TestStore_TombstoneCountsWhateverIsBeforeIt(t *testing.T) {
	t.Parallel()
	s, run := open(t), wire.NewRunKey("trip")
	records := storetest.AppendN(t, s, run, runner.Version{}, 2*batchEntries+1)
	keep := storetest.NextRecord(runner.Version{}, "tombstone")
	m := s.message(run, keep)
	m.Header.Set(headerTombstone, "true")
	var err error
	if keep.Position, err = s.publish(t.Context(), m, records[len(records)-1].Position); err != nil {
		t.Fatal(err)
	}
	storetest.CheckJournal(t, s, run, []runner.Record{keep})
	for _, after := range []int{0, batchEntries, len(records) - 1} {
		if rest, err := s.Entries(t.Context(), run, records[after].Version); err != nil || len(rest) != 0 {
			t.Errorf("entries after %d: %d, %v, want none", after+1, len(rest), err)
		}
	}
	if err := s.Remove(t.Context(), run, keep.Version); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Head(t.Context(), run); !errors.Is(err, runner.ErrNotFound) {
		t.Errorf("head after remove: %v", err)
	}
}

// TestStore_PurgeNeedsRollup: a stream of an older version must be provisioned again; nothing is lost until then.
func TestStore_PurgeNeedsRollup(t *testing.T) {
	t.Parallel()
	ns := startServer(t, t.TempDir(), func(c *jetstream.StreamConfig) { c.AllowRollup = false })
	s, run := openOn(t, ns), wire.NewRunKey("trip")
	records := storetest.AppendN(t, s, run, runner.Version{}, 2)
	_, err := s.Purge(t.Context(), run, records[1].Version, storetest.NextRecord(runner.Version{}, "tombstone"))
	if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		t.Errorf("purge: %v", err)
	}
	storetest.CheckJournal(t, s, run, records)
}
