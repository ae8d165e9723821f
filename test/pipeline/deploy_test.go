package pipeline

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// A new version of an agent is rolled out while 100 runs wait: other prompt, other model, other tools. All of them are
// resumed by its workers and end as what they began as; runs that begin later are of the new version.
func TestDeploy_RunsThatWaitGoOnAsTheyBegan(t *testing.T) {
	t.Parallel()
	const waiting = 100
	var mu sync.Mutex
	asked := map[string]int{}
	model := sdktest.ModelFunc(func(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		mu.Lock()
		defer mu.Unlock()
		asked[fmt.Sprintf("%s to %s, with %d tools", req.System, req.Model, len(req.Tools))]++
		if req.Interactions.Current == 0 {
			return sdktest.Ask(add(1, 2)), nil
		}
		return sdktest.Say("three"), nil
	})
	old := desk()
	old.System = "old"
	r := startRig(t, rig{specs: []sdk.AgentSpec{old}, model: model}, 0)
	before := r.work(0)
	var runs []harness.Run
	for i := range waiting {
		runs = append(runs, r.begin(fmt.Sprint("run ", i)))
	}
	for _, run := range runs {
		r.until(run.Subject+" waits", func() bool { return r.head(run).Status == core.StatusWaiting })
	}

	next := desk()
	next.Version, next.System, next.Model.Name = "2.0.0", "new", "next"
	next.Services = append(next.Services, sdk.ServiceTool{
		Version: version, TimeoutMillis: 60_000, Contract: contract("calc.sub", "", `{"type":"object"}`, "calc.subtracted", `{"type":"object"}`),
	})
	next.Contract.Versions = maps.Clone(next.Contract.Versions)
	next.Contract.Versions["2.0.0"] = next.Contract.Versions[version]
	r.agents = []sdk.Agent{{Spec: next}}
	r.work(0)
	r.halt(before)
	r.answerSums("", nil)
	for _, run := range runs {
		wantResponse(t, r.end(run), "three")
	}
	wantResponse(t, r.end(r.begin("later")), "three")
	want := map[string]int{"old to test, with 1 tools": 2 * waiting, "new to next, with 2 tools": 2}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("what models were asked (-want +got):\n%s", diff)
	}
	sound(t, r.client, r.store)
}
