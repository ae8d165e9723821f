package interop

import (
	"cmp"
	"encoding/json"
	"testing"

	"agentd/internal/conformance"
)

// A program of the standard library alone keeps to the wire too; SIGTERM ends it, as it ends every program that does not care.
func TestConformance_ByHand(t *testing.T) {
	t.Parallel()
	c := pythonCommand(t)
	report, err := conformance.Run(t.Context(), conformance.Options{
		Contract: docContract(t), Command: c.args, Output: t.Output(),
		Data: json.RawMessage(`{"city":"Bern"}`), Fail: json.RawMessage(`{"city":"Atlantis"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]conformance.Outcome{
		"drain": conformance.Advised, "invalid-data": conformance.Advised, // it leaves checking data to agentd
		"other-run": conformance.Advised, "room-voided": conformance.Advised, // it hashes nothing, and remembers no voids
		"deadline": conformance.Skipped, "voided": conformance.Skipped, "heartbeat": conformance.Skipped,
		"unsendable": conformance.Skipped,
	}
	for _, r := range report.Results {
		if r.Outcome != cmp.Or(want[r.Case], conformance.Passed) {
			t.Errorf("%s: %s: %s", r.Case, r.Outcome, r.Why)
		}
	}
}

// The services of our packages in other languages keep to all of the wire.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]struct {
		service    func(*testing.T) command
		partitions int
	}{
		"python": {pythonSDKCommand, 1}, "node": {nodeSDKCommand, 1},
		"python, calls divided": {pythonSDKCommand, 4}, "node, calls divided": {nodeSDKCommand, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := try.service(t)
			report, err := conformance.Run(t.Context(), conformance.Options{
				Partitions: try.partitions, Contract: docContract(t), Command: c.args, Environ: c.env, Output: t.Output(),
				Data: json.RawMessage(`{"city":"Bern"}`), Fail: json.RawMessage(`{"city":"Atlantis"}`), Slow: json.RawMessage(`{"city":"Limbo"}`),
				Unsendable: json.RawMessage(`{"city":"Babel"}`),
			})
			if err != nil {
				t.Fatal(err)
			}
			if want := len(conformance.Names()); len(report.Results) != want || report.Count(conformance.Failed) > 0 || report.Count(conformance.Skipped) > 0 {
				t.Errorf("%d cases, want %d, none failed and none skipped", len(report.Results), want)
			}
			for _, r := range report.Results {
				// Without the optional packages that check contracts, the agent's check is the only one.
				if r.Outcome != conformance.Passed && r.Case != "invalid-data" {
					t.Errorf("%s: %s: %s", r.Case, r.Outcome, r.Why)
				}
			}
		})
	}
}

// So do their clients.
func TestClientConformance(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(*testing.T) command{
		"python": func(t *testing.T) command { return pythonSDKClient(t, "client_conformance.py") },
		"node":   func(t *testing.T) command { return nodeSDKClient(t, "client_conformance.mjs") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := client(t)
			report, err := conformance.RunClient(t.Context(), conformance.ClientOptions{
				Command: c.args, Environ: c.env, Output: t.Output(), Patience: 4 * conformance.DefaultPatience,
			})
			if err != nil {
				t.Fatal(err)
			}
			if want := len(conformance.ClientNames()); len(report.Results) != want {
				t.Errorf("%d cases, want %d", len(report.Results), want)
			}
			for _, r := range report.Results {
				if r.Outcome != conformance.Passed {
					t.Errorf("%s: %s: %s", r.Case, r.Outcome, r.Why)
				}
			}
		})
	}
}
