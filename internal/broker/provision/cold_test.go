package provision

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/streams"
	"agentd/internal/finding"
)

// TestApply_ArchivesStay: a plan without archives makes no stream for them, and loses none.
func TestApply_ArchivesStay(t *testing.T) {
	t.Parallel()
	c := alone(t)
	provision := func(p Plan) []Change {
		t.Helper()
		changes, err := Apply(t.Context(), c, p)
		if err != nil {
			t.Fatal(err)
		}
		return changes
	}
	there := func() *jetstream.StreamInfo {
		t.Helper()
		s, err := c.JetStream().Stream(t.Context(), streams.Name(c.Subjects(), streams.Cold))
		if err != nil {
			return nil
		}
		return s.CachedInfo()
	}
	provision(Plan{})
	if there() != nil {
		t.Error("a stream of archives was made for nobody")
	}
	if diff := cmp.Diff([]Change{{Kind: "stream", Name: "AGENTD_COLD", Action: actionCreated}}, provision(Plan{Cold: true})); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	cfg := there().Config
	got := map[string]any{
		"subjects": cfg.Subjects, "age": cfg.MaxAge, "messages a subject": cfg.MaxMsgsPerSubject, "rollup": cfg.AllowRollup,
		"delete": !cfg.DenyDelete, "purge": !cfg.DenyPurge, "storage": cfg.Storage, "async": cfg.PersistMode == jetstream.AsyncPersistMode,
	}
	want := map[string]any{
		"subjects": []string{"agentd.cold.>"}, "age": cfg.MaxAge * 0, "messages a subject": int64(-1), "rollup": true,
		"delete": false, "purge": true, "storage": jetstream.FileStorage, "async": false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stream (-want +got):\n%s", diff)
	}
	if _, err := c.JetStream().Publish(t.Context(), "agentd.cold.001.run", []byte("archive")); err != nil {
		t.Fatal(err)
	}
	created := there().Created
	for _, p := range []Plan{{Cold: true}, {}, {Cold: true, PersistMode: streams.PersistAsync}, {PersistMode: streams.PersistAsync, Index: true}} {
		provision(p)
		if s := there(); s == nil || !s.Created.Equal(created) || s.State.Msgs != 1 {
			t.Errorf("after %+v: %+v", p, s)
		}
	}
	// What somebody changed is put right, also when no more is archived.
	changed := there().Config
	changed.AllowRollup = false
	if _, err := c.JetStream().UpdateStream(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	provision(Plan{})
	if !there().Config.AllowRollup {
		t.Error("no archive can replace another")
	}
	findings, err := Verify(t.Context(), c, Plan{Cold: true})
	if err != nil || len(findings) > 0 {
		t.Errorf("findings: %+v, %v", findings, err)
	}
	if err := c.JetStream().DeleteStream(t.Context(), "AGENTD_COLD"); err != nil {
		t.Fatal(err)
	}
	findings, err = Verify(t.Context(), c, Plan{Cold: true})
	if err != nil || len(findings) != 1 || findings[0].Severity != finding.SeverityError || findings[0].Remedy != streams.Remedy {
		t.Errorf("findings: %+v, %v", findings, err)
	}
}
