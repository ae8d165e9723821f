package pipeline

import (
	"slices"
	"testing"
	"time"

	"agentd/internal/audit/live"
	"agentd/internal/broker/streams"
	"agentd/internal/harness"
	"agentd/internal/reconcile"
	"agentd/internal/worker"
	"agentd/sdk/wire"
)

// purge removes the histories of all runs that are done, as if they had been for longer than they are kept.
func purge(t *testing.T, w *worker.Worker) reconcile.Report {
	t.Helper()
	o, err := w.Reconciling(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o.History, o.OlderThan = time.Nanosecond, time.Nanosecond
	o.Found = func(f reconcile.Finding) { t.Errorf("found: %+v", f) }
	report, err := reconcile.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestAudit_TakesTombstonesForWhatTheyAre: runs that ended in all the ways that there are, and one that waits.
func TestAudit_TakesTombstonesForWhatTheyAre(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, start func(harness.Options) (*harness.Harness, vandal)) {
		h, _ := lives(t, start)
		before := sound(t, h.Conn(), h.Worker().Store)
		call := oneWaits(h)
		report := purge(t, h.Worker())
		if report.Purged != before.Runs || report.Unrepaired != 0 {
			t.Errorf("purged %+v, want %d", report, before.Runs)
		}
		counts := sound(t, h.Conn(), h.Worker().Store)
		if counts.Purged != before.Runs || counts.Runs != before.Runs+1 {
			t.Errorf("looked at %+v", counts)
		}
		if again := purge(t, h.Worker()); again.Purged != 0 {
			t.Errorf("purged again: %+v", again)
		}
		call.Answer("calc.added", sum(3)) // goes on
		run, conn := wire.NewRunKey("desk run"), h.Conn()
		done := conn.Subjects().Done("desk", run, wire.InitToken("com.test.client", "init of desk"))
		if err := erase(t.Context(), conn, streams.Done, done); err != nil {
			t.Fatal(err)
		}
		found, _ := auditAll(t, conn, h.Worker().Store)
		if !slices.ContainsFunc(found, func(v live.Violation) bool { return v.Invariant == "R3" && v.Run == run.String() }) {
			t.Errorf("a terminal event is gone, and the audit found %v", found)
		}
	})
}
