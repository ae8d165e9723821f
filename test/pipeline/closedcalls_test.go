package pipeline

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/harness"
	"agentd/internal/reconcile"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// readVoids has every service read what there is for it.
func readVoids(t *testing.T, conn *broker.Conn) {
	t.Helper()
	zones, err := conn.Zones(t.Context(), streams.Out)
	if err != nil {
		t.Fatal(err)
	}
	for _, z := range zones {
		readVoidsOn(t, conn, z)
	}
}

func readVoidsOn(t *testing.T, conn *broker.Conn, z streams.Zone) {
	t.Helper()
	stream, err := conn.JetStream().Stream(t.Context(), streams.Name(conn.Subjects(), z))
	if err != nil {
		t.Fatal(err)
	}
	names := stream.ConsumerNames(t.Context())
	for name := range names.Name() {
		if !strings.HasPrefix(name, "svc_") {
			continue
		}
		consumer, err := stream.Consumer(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		batch, err := consumer.FetchNoWait(1000)
		if err != nil {
			t.Fatal(err)
		}
		for m := range batch.Messages() {
			if err := m.DoubleAck(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := names.Err(); err != nil {
		t.Fatal(err)
	}
}

// cleared removes what runs left that have ended, as if it were an hour later.
func cleared(t *testing.T, h *harness.Harness) reconcile.Report {
	t.Helper()
	o, err := h.Worker().Reconciling(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o.Calls, o.Now = sdk.DefaultCallsKept, func() time.Time { return time.Now().Add(time.Hour) }
	o.Found = func(f reconcile.Finding) { t.Errorf("found: %+v", f) }
	for _, a := range o.Agents {
		if err := o.Conn.NoteRefilled(t.Context(), wire.NameToken(a.Name), o.Conn.Server()); err != nil {
			t.Fatal(err)
		}
	}
	report, err := reconcile.Clear(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// A pass goes by the broker's clock, whatever the clock of the machine says that it is made on.
func TestClosedCalls_LeaveByTheBrokersClock(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, start func(harness.Options) (*harness.Harness, vandal)) {
		h, _ := lives(t, start)
		readVoids(t, h.Conn())
		there := onOut(t, h.Conn())
		conn, err := broker.Connect(t.Context(), broker.ConnectOptions{
			InProcess: h, Subjects: h.Conn().Subjects(), Clock: func() time.Time { return time.Now().Add(5 * time.Hour) },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		w, err := worker.New(worker.Options{Conn: conn, Store: h.Worker().Store, Agents: h.Worker().Agents, Models: h.Worker().Models})
		if err != nil {
			t.Fatal(err)
		}
		o, err := w.Reconciling(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		o.Calls = time.Hour
		for _, a := range o.Agents {
			if err := conn.NoteRefilled(t.Context(), wire.NameToken(a.Name), conn.Server()); err != nil {
				t.Fatal(err)
			}
		}
		if report, err := reconcile.Clear(t.Context(), o); err != nil || report.Cleared > 0 {
			t.Errorf("%d runs that had just ended lost their calls: %v", report.Cleared, err)
		}
		if diff := cmp.Diff(there, onOut(t, h.Conn())); diff != "" {
			t.Errorf("calls (-before +after):\n%s", diff)
		}
	})
}

// onOut are the subjects that AGENTD_OUT has.
func onOut(t *testing.T, conn *broker.Conn) []string {
	t.Helper()
	subjects, err := conn.SubjectsUnder(t.Context(), streams.Out, ">")
	if err != nil {
		t.Fatal(err)
	}
	return subjects
}

// TestClosedCalls_LeaveAndNobodyMissesThem: runs that ended in all the ways that there are leave no call, no void and no fired timer, and
// one that waits keeps its own. The audit finds nothing wrong, before and after, and every init event that comes again changes nothing.
func TestClosedCalls_LeaveAndNobodyMissesThem(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, start func(harness.Options) (*harness.Harness, vandal)) {
		h, _ := lives(t, start)
		before := sound(t, h.Conn(), h.Worker().Store)
		call := oneWaits(h)
		readVoids(t, h.Conn())
		sound(t, h.Conn(), h.Worker().Store)
		t.Logf("%d subjects before", len(onOut(t, h.Conn())))
		if report := cleared(t, h); report.Cleared == 0 || report.Cleared > before.Runs {
			t.Errorf("%d of %d runs lost their calls", report.Cleared, before.Runs)
		}
		left := onOut(t, h.Conn())
		for _, subject := range left {
			if !strings.Contains(subject, wire.NewRunKey("waiting").Token) {
				t.Errorf("%s is left", subject)
			}
		}
		if len(left) != 2 {
			t.Errorf("of the run that waits there is %v, want two calls", left)
		}
		after := sound(t, h.Conn(), h.Worker().Store)
		if after.Runs != before.Runs+1 || after.Purged != 0 {
			t.Errorf("looked at %+v, before at %+v", after, before)
		}
		initsAgain(t, h.Conn())
		sound(t, h.Conn(), h.Worker().Store)
		calls := slices.DeleteFunc(onOut(t, h.Conn()), func(subject string) bool {
			return strings.HasPrefix(subject, "agentd.void.") // by the worker's clock the runs have just ended
		})
		if diff := cmp.Diff(left, calls); diff != "" {
			t.Errorf("init events that came again made calls (-before +after):\n%s", diff)
		}
		call.Answer("calc.added", sum(3)) // goes on
		if report := purge(t, h.Worker()); report.Purged != before.Runs {
			t.Errorf("%d histories are removed, want %d", report.Purged, before.Runs)
		}
		sound(t, h.Conn(), h.Worker().Store)
	})
}

// initsAgain publishes every init event once more.
func initsAgain(t *testing.T, conn *broker.Conn) {
	t.Helper()
	var all []broker.Delivery
	err := conn.Deliveries(t.Context(), streams.Start, []string{conn.Subjects().All(wire.KindStart)}, func(d broker.Delivery) bool {
		all = append(all, d)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if _, err := conn.JetStream().Publish(t.Context(), d.Subject(), d.Data()); err != nil {
			t.Fatal(err)
		}
	}
}
