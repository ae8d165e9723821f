package pipeline

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/core"
	"agentd/internal/index"
	"agentd/internal/reconcile"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// dyingStore names the environment variable that has a worker in a process of its own be killed when a run's last entry is written.
const dyingStore = "AGENTD_TEST_DYING_STORE"

// dying is a store whose program is killed as soon as the end of a run is written: nothing that follows from it is published.
type dying struct{ runner.Store }

func (s dying) Append(ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record) (runner.Version, error) {
	v, err := s.Store.Append(ctx, run, base, next)
	if e, problem := core.DecodeEntry(next.Data); err == nil && problem == nil && e.Head.Status == core.StatusDone {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // it cannot be refused
		select {}
	}
	return v, err
}

// A worker that is killed between the entry and the document leaves an index that is behind. What comes after it mends that.
func TestIndex_IsMendedAfterAWorkerWasKilled(t *testing.T) {
	t.Parallel()
	r := startRig(t, rig{specs: []sdk.AgentSpec{burning().Spec}, model: sdktest.Script(sdktest.Say("hi"))}, shortLease)
	if _, err := provision.Apply(t.Context(), r.client, provision.Plan{Index: true}); err != nil {
		t.Fatal(err)
	}
	r.agents = []sdk.Agent{burning()}
	run := r.begin("one")
	program, err := os.Executable()
	r.check("find the test's program", err)
	child := exec.CommandContext(t.Context(), program)
	child.Env = append(os.Environ(), mortalWorker+"="+r.server.URL(), dyingStore+"=1")
	child.Stderr = os.Stderr
	err = child.Run()
	if status, ok := child.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the worker was not killed: %v", err)
	}
	last, err := r.store.Head(t.Context(), run.Key)
	r.check("read the run", err)
	before := r.indexed()
	if before.Done() || before.Run != run.Subject || before.Rev >= last.Rev {
		t.Fatalf("the index has %+v, and the run %d entries: nothing was lost", before, last.Rev)
	}

	w := r.work(0)
	wantResponse(t, r.end(run), "hi")
	o, err := w.Reconciling(t.Context())
	r.check("reconcile", err)
	o.OlderThan, o.History = time.Nanosecond, time.Hour
	report, err := reconcile.Run(t.Context(), o)
	r.check("reconcile", err)
	t.Logf("a pass finds %v", report.Found)
	r.until("the index says that the run has ended", func() bool { d := r.indexed(); return d.Done() && d.Rev == last.Rev })
	if report.Unrepaired != 0 {
		t.Errorf("%+v", report)
	}
	if report, err = reconcile.Run(t.Context(), o); err != nil || len(report.Found) != 0 {
		t.Errorf("a second pass finds %v: %v", report.Found, err)
	}
}

// indexed is the newest document of the index.
func (r *rig) indexed() *index.Document {
	r.t.Helper()
	state, err := r.client.IndexState(r.t.Context())
	r.check("look at the index", err)
	var newest index.Document
	err = r.client.TailIndex(r.t.Context(), 1, func(i broker.IndexedRun, _ uint64) error {
		newest, err = index.Decode(i.Data)
		if err == nil && i.Sequence >= state.Last {
			return errEnough
		}
		return err
	})
	if !errors.Is(err, errEnough) {
		r.t.Fatal(err)
	}
	return &newest
}
