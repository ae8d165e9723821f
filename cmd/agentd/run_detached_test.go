package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker/datafolder"
	"agentd/internal/broker/embedded"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Whoever has the name of a run may ask for it at once: it is there when the command ends.
func TestRunDetached_EndsWhenTheRunHasBegun(t *testing.T) {
	s, nc := provisioned(t)
	var asked atomic.Int32
	subscribe(t, nc, wire.DefaultSubjects().Get("travel.desk"), func(m *nats.Msg) {
		answer := nats.NewMsg(m.Reply)
		if asked.Add(1) < 3 {
			answer.Header.Set("Nats-Service-Error-Code", string(sdk.CodeUnknownRun))
			answer.Header.Set("Nats-Service-Error", "it is not there yet")
		} else {
			answer.Data, _ = json.Marshal(wire.RunStatus{Agent: "travel.desk", Status: "running"})
		}
		_ = m.RespondMsg(answer)
	})
	out, problem := s.expect(cli.ExitOK, "run", "travel.desk", "-m", "Lisbon", "-d", "--nats", nc.ConnectedUrl())
	if asked.Load() != 3 || strings.Count(out, "\n") != 1 || problem != "" {
		t.Errorf("after %d questions it prints %q and %q, want 3, a name, and nothing", asked.Load(), out, problem)
	}
}

func TestRunDetached_SaysWhatTheRunWaitsFor(t *testing.T) {
	s, nc := provisioned(t)
	run := func() (out, problem string) {
		return s.expect(cli.ExitOK, "run", "travel.desk", "-m", "Lisbon", "-d", "--nats", nc.ConnectedUrl())
	}
	out, problem := run()
	if strings.Count(out, "\n") != 1 {
		t.Errorf("it prints %q, want a name", out)
	}
	contains(t, problem, "no worker serves travel.desk now; the event is stored, and handled when one starts")
	subscribe(t, nc, wire.DefaultSubjects().Get("travel.desk"), func(m *nats.Msg) {
		answer := nats.NewMsg(m.Reply)
		answer.Header.Set("Nats-Service-Error-Code", string(sdk.CodeUnknownRun))
		_ = m.RespondMsg(answer)
	})
	_, problem = run()
	contains(t, problem, "the run has not begun yet; its event is stored, and handled when a worker has time for it")
}

func TestRunDetached_FailsWhenItsInitIsRefused(t *testing.T) {
	s := startDev(t, filepath.Join(example, "agentd.yaml"), filepath.Join(example, "script.yaml"))
	out, problem := s.expect(cli.ExitRun, "run", "travel.desk", "--input", `{"message": 5}`, "--subject", "five", "-d")
	if out != "five\n" {
		t.Errorf("it prints %q, want the name", out)
	}
	contains(t, problem, `run "five" never began; its init event was refused: contract_violation`, "$.message: expected string, got number 5")
	_, problem = s.expect(cli.ExitRun, "run", "travel.desk", "--input", `{"message": 5}`, "--subject", "six", "-d", "-o", "json")
	contains(t, problem, `"code":"contract_violation"`)

	address, err := datafolder.ReadAddress(s.data)
	if err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "agentd.yaml")
	write(t, none, "log: {level: info}\n")
	for _, config := range []string{s.config, none} { // an agent that is not configured has the name of its contract's type
		here := &system{t: t, config: config, data: t.TempDir()}
		out, _ = here.expect(cli.ExitOK, "runs", "list", "--status", "refused", "--nats", address)
		contains(t, out, "five  travel.desk  refused (contract_violation)")
	}
}

// What has not begun is not said never to have been, nor to go on: it can be followed and cancelled by whoever names its agent.
func TestRun_ThatHasNotBegun(t *testing.T) {
	s := startDev(t, filepath.Join(example, "agentd.yaml"), filepath.Join(example, "script.yaml"))
	s.serve()
	s.expect(cli.ExitOK, "agents", "pause", "travel.desk")
	_, told := s.expect(cli.ExitOK, "run", "travel.desk", "-m", "Two nights in Lisbon", "--subject", "one", "-d")
	contains(t, told, "travel.desk is paused; the run begins when it is resumed: "+s.line("agents", "resume", "travel.desk")+"\n")
	_, problem := s.expect(cli.ExitFailure, "run", "travel.desk", "-m", "Two nights in Lisbon", "--subject", "two", "--timeout", "300ms")
	contains(t, problem, "no end after 300ms; the run has not begun:", "runs follow two --agent travel.desk", "runs cancel two --agent travel.desk")
	for _, verb := range []string{"show", "follow", "cancel"} {
		_, problem = s.expect(cli.ExitFailure, "runs", verb, "one")
		contains(t, problem, `run "one" does not exist, or no worker has begun it yet`)
	}
	var followed, progress, asked, cancelling output
	s.background(&followed, &progress, "runs", "follow", "one", "--agent", "travel.desk", "--answer", "Yes, book both")
	s.until(&progress, "for the run to begin, if somebody has started it")
	s.background(&asked, &cancelling, "runs", "cancel", "two", "--agent", "travel.desk")
	s.until(&progress, "travel.desk is paused")
	s.expect(cli.ExitOK, "agents", "resume", "travel.desk")
	s.until(&followed, "TRIP-TP-533-casa-do-rio")
	s.eventually(cli.ExitOK, "done (cancelled", "runs", "list")
}

// A run that never begins is not waited for.
func TestFollow_SaysWhyARunNeverBegan(t *testing.T) {
	s := startDev(t, filepath.Join(example, "agentd.yaml"), filepath.Join(example, "script.yaml"))
	s.expect(cli.ExitOK, "agents", "pause", "travel.desk")
	s.expect(cli.ExitOK, "run", "travel.desk", "--input", `{"message": 5}`, "--subject", "five", "-d")
	var out, progress output
	ended := make(chan int, 1)
	ctx, stop := context.WithTimeout(t.Context(), wait)
	defer stop()
	go func() {
		ended <- execute(ctx, s.args("runs", "follow", "five", "--agent", "travel.desk"), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &progress})
	}()
	s.until(&progress, "for the run to begin, if somebody has started it")
	s.expect(cli.ExitOK, "agents", "resume", "travel.desk")
	if code := <-ended; code != cli.ExitRun {
		t.Errorf("it exits with %d, want %d\n%s", code, cli.ExitRun, progress.String())
	}
	contains(t, progress.String(), "run five ended with an error: contract_violation")
}

// A name that is misspelt is not one that no worker serves now.
func TestRunDetached_FailsWhenThereIsNoSuchAgent(t *testing.T) {
	s := startDev(t, filepath.Join(example, "agentd.yaml"), filepath.Join(example, "script.yaml"))
	_, problem := s.expect(cli.ExitRun, "run", "travel.dsk", "-m", "Lisbon", "--subject", "misspelt", "-d")
	contains(t, problem, `run "misspelt" never began; its init event was refused: unknown_agent`)
}

// provisioned is a server that has what the example needs, and no worker.
func provisioned(t *testing.T) (*system, *nats.Conn) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	for _, name := range []string{"NATS_URL", "REDIS_URL", "AGENTD_DATA", "AGENTD_STORE"} {
		t.Setenv(name, "")
	}
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: true, Port: -1, PortOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &system{t: t, config: filepath.Join(example, "agentd.yaml"), data: t.TempDir()}
	s.expect(cli.ExitOK, "provision", "--nats", server.URL())
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return s, nc
}

func subscribe(t *testing.T, nc *nats.Conn, subject string, handle nats.MsgHandler) {
	t.Helper()
	_, err := nc.Subscribe(subject, handle)
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}
