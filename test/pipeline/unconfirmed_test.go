package pipeline

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// eavesdropped is a store in which something is appended just before the first journal is read. It keeps up to which revision it was
// asked to confirm what had been read.
type eavesdropped struct {
	runner.Store
	before    func()
	confirmed *confirmed
}

type confirmed struct {
	sync.Mutex
	read atomic.Bool
	rev  uint64
}

func (s eavesdropped) Entries(ctx context.Context, run wire.RunKey, after runner.Version) ([]runner.Record, error) {
	if s.confirmed.read.CompareAndSwap(false, true) {
		s.before()
	}
	return s.Store.Entries(ctx, run, after)
}

func (s eavesdropped) Barrier(ctx context.Context, run wire.RunKey, v runner.Version) error {
	err := s.Store.Barrier(ctx, run, v)
	s.confirmed.Lock()
	defer s.confirmed.Unlock()
	if err == nil {
		s.confirmed.rev = max(s.confirmed.rev, v.Rev)
	}
	return err
}

// A decision that another worker appends while a driver reads the journal may be forgotten by a failover until the driver has
// confirmed it. No tool runs by it before.
func TestDecision_IsDurableBeforeItsToolRuns(t *testing.T) {
	t.Parallel()
	heard := &confirmed{}
	confirmedAt := map[string]uint64{}
	pay := func(name string) sdk.Tool {
		return tool(name, func(context.Context, sdk.ToolCall) (json.RawMessage, error) {
			heard.Lock()
			defer heard.Unlock()
			confirmedAt[name] = heard.rev
			return json.RawMessage(`{}`), nil
		})
	}
	spec := desk()
	spec.Permissions = asking(sdk.PermissionPolicyTerms{}, "pay_*")
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("pay_one", struct{}{}), sdktest.Tool("pay_two", struct{}{})), sdktest.Say("paid"))
	r := startRig(t, rig{model: model, specs: []sdk.AgentSpec{spec}, slots: 1}, 2*time.Second)
	r.agents[0].Tools = []sdk.Tool{pay("pay_one"), pay("pay_two")}
	first := r.work(0)
	run := r.begin("run")
	r.until("the run waits for both decisions", func() bool { return r.head(run).Status == core.StatusWaiting && len(r.requests()) == 2 })
	r.halt(first)
	requests := r.requests()

	revision := func() uint64 {
		last, err := r.store.Head(t.Context(), run.Key)
		r.check("read the head", err)
		return last.Rev
	}
	var decided uint64 // the revision of the second decision
	r.openStore = func(conn *broker.Conn) runner.Store {
		return eavesdropped{natsStore(conn), func() {
			r.openStore = nil
			r.work(0)
			before := revision()
			r.allow(requests[1])
			r.until("another worker has appended the decision", func() bool {
				decided = revision()
				return decided > before
			})
		}, heard}
	}
	r.work(0)
	r.allow(requests[0])
	wantResponse(t, r.end(run), "paid")
	heard.Lock()
	defer heard.Unlock()
	if at := min(confirmedAt["pay_one"], confirmedAt["pay_two"]); decided == 0 || at < decided {
		t.Errorf("tools ran when entries were confirmed up to revision %v; the second decision is that of revision %d", confirmedAt, decided)
	}
	sound(t, r.client, r.store)
}
