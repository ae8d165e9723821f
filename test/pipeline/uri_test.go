package pipeline

import (
	"testing"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// deskAt is desk whose contract has that URI.
func deskAt(uri string) sdk.AgentSpec {
	spec := desk()
	spec.Contract.URI = uri
	return spec
}

// The short and the absolute form of a contract's URI are one identity: a run that began under one goes on, and ends, under it on a
// worker whose agent has the other, and clients, services and the registry may name either.
func TestURI_ShortAndAbsoluteFormsAreOneIdentity(t *testing.T) {
	t.Parallel()
	const short, absolute = "#/agent/desk", "agentd:/agent/desk"
	if wire.AgentURI("desk") != absolute {
		t.Fatalf("the contract of an agent without one is %s", wire.AgentURI("desk"))
	}
	server := startRig(t, rig{}, 0)
	with := func(uri string) *harness.Harness {
		return harness.Start(t, harness.Options{
			URL: server.server.URL(), Agents: []sdk.Agent{{Spec: deskAt(uri)}},
			Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")),
		})
	}
	before := with(short)
	before.PublishContract(deskAt(short).Contract)
	ev := before.Init("desk", hello())
	ev.DataSchema = absolute + "/1.0.0"
	waiting := before.Send("desk", ev)
	call := before.Call("calc.add")
	before.Suspended(waiting, 1)
	before.StopWorkers()

	after := with(absolute)
	after.PublishContract(deskAt(absolute).Contract)
	call.Event.DataSchema = "agentd:/calc.add/1.0.0" // the service has the other form, too
	call.Answer("calc.added", sum(3))
	end := after.Done(waiting)
	wantResponse(t, end, "three")
	if want := short + "/1.0.0"; end.DataSchema != want {
		t.Errorf("the run that had begun ends with dataschema %s, want %s", end.DataSchema, want)
	}
	ev = again(after, "desk", "another")
	ev.DataSchema = short + "/1.0.0"
	r := after.Send("desk", ev)
	after.Call("calc.add") // the one of before
	after.Call("calc.add").Answer("calc.added", sum(3))
	end = after.Done(r)
	wantResponse(t, end, "three")
	if want := absolute + "/1.0.0"; end.DataSchema != want {
		t.Errorf("the run that began afterwards ends with dataschema %s, want %s", end.DataSchema, want)
	}
	ev = again(after, "desk", "strange")
	ev.DataSchema = "#/agent/other/1.0.0"
	wantProblem(t, after.Done(after.Send("desk", ev)), "desk", sdk.CodeContractViolation)
	registry, err := after.Conn().Registry().Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{short, absolute, "desk"} {
		p, err := registry.Resolve(ref, "^1")
		if err != nil || p.Contract.URI != short {
			t.Errorf("the registry has %s for %s, want what was published first: %v", p.Contract.URI, ref, err)
		}
	}
	if n := len(registry.List()); n != 1 {
		t.Errorf("the registry has %d versions, want 1", n)
	}
	after.NoDeadLetter()
}
