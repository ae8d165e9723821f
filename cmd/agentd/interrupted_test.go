package main

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// standIn tells how runs are, as workers do, and does nothing of what they are asked.
type standIn struct {
	// requested is that a control message was published, and interrupt what is done when a run is asked for after that: the server has confirmed it.
	requested atomic.Bool
	interrupt atomic.Pointer[context.CancelFunc]
}

func newStandIn(t *testing.T, nc *nats.Conn, agent string, status wire.RunStatus) *standIn {
	t.Helper()
	s := &standIn{}
	subscribe(t, nc, "agentd.>", func(m *nats.Msg) { // in the order in which all of it is published
		if strings.HasPrefix(m.Subject, "agentd.ctl.") {
			s.requested.Store(true)
		}
		if !strings.HasPrefix(m.Subject, "agentd.get.") {
			return
		}
		if stop := s.interrupt.Load(); stop != nil && s.requested.Load() {
			(*stop)()
			return
		}
		var q wire.Query
		_ = json.Unmarshal(m.Data, &q)
		of := status
		of.Run, of.Agent = q.Run, agent
		data, _ := json.Marshal(of)
		_ = m.Respond(data)
	})
	return s
}

// interrupted runs a command, and interrupts it when a request of it is stored.
func (w *standIn) interrupted(s *system, args ...string) (code int, out, problem string) {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	defer stop()
	w.requested.Store(false)
	w.interrupt.Store(&stop)
	defer w.interrupt.Store(nil)
	var o, e output
	code = execute(ctx, s.args(args...), cli.Streams{In: strings.NewReader(""), Out: &o, Err: &e})
	return code, o.String(), e.String()
}

// line is the command line that reaches the system as args do.
func (s *system) line(args ...string) string {
	line := "agentd -c " + show.ShellQuote(s.config) + " --data " + show.ShellQuote(s.data)
	for _, arg := range args {
		line += " " + show.ShellQuote(arg)
	}
	return line
}

// Who interrupts a command that waits for what becomes of a request is told that the request is stored: one that is sent again is another.
func TestRuns_InterruptedAfterTheRequest(t *testing.T) {
	s, nc := provisioned(t)
	worker := newStandIn(t, nc, "travel.desk", wire.RunStatus{Status: wire.StatusRunning, Init: "i"})
	later := "(if it is refused: " + s.line("--nats", nc.ConnectedUrl(), "dlq", "list") + ")\n"
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"send", "trip", "Wait."}, "sent; the run gets the message when a worker has handled it " + later},
		{[]string{"pause", "trip"}, "pause requested; a worker has not handled it yet " + later},
		{[]string{"tag", "trip", "a=b"}, "tag requested; a worker has not handled it yet " + later},
		{[]string{"cancel", "trip"}, "cancel requested; the run ends when a worker has handled it " + later},
	} {
		code, out, problem := worker.interrupted(s, append([]string{"runs", "--nats", nc.ConnectedUrl()}, c.args...)...)
		if code != cli.ExitInterrupted || out != c.want || problem != "" {
			t.Errorf("runs %q ends with %d, %q and %q; want %d and %q", c.args, code, out, problem, cli.ExitInterrupted, c.want)
		}
	}
}

// Of several runs that are to be retried those are named that were asked.
func TestRunsRetry_InterruptedSaysWhatWasAsked(t *testing.T) {
	config, script := coldProject(t, "")
	s := startDev(t, config, script, "--server-only")
	var log output
	stop := s.background(&output{}, &log, "serve")
	s.until(&log, "msg=serving")
	for _, name := range []string{"one", "two"} {
		s.expect(cli.ExitRun, "run", "planner", "-m", "Lisbon", "--subject", name)
	}
	stop()
	nc := s.stranger()
	worker := newStandIn(t, nc, "planner", wire.RunStatus{Status: wire.StatusDone, Reason: wire.ReasonQuota, Init: "i"})

	code, out, problem := worker.interrupted(s, "runs", "retry", "one", "two")
	const want = "RUN  AGENT    REASON              RESULT\none  planner  quota:interactions  requested\n"
	told := "agentd: what is requested no worker has handled yet (if it is refused: " + s.line("dlq", "list") + ")\nagentd: interrupted after 1 of 2 runs\n"
	if code != cli.ExitInterrupted || out != want || problem != told {
		t.Errorf("it ends with %d, %q and %q", code, out, problem)
	}
	code, out, _ = worker.interrupted(s, "runs", "retry", "one", "two", "-o", "json")
	var results []struct{ Run, State string }
	if err := json.Unmarshal([]byte(out), &results); err != nil || code != cli.ExitInterrupted || len(results) != 1 || results[0].Run != "one" || results[0].State != "requested" {
		t.Errorf("as JSON it ends with %d, %v and %s", code, err, out)
	}
}

// What is not undone when the command ends is not said to be done: by its exit code.
func TestRunsUndo_ThatIsNotDoneFails(t *testing.T) {
	s, nc := provisioned(t)
	worker := newStandIn(t, nc, "travel.desk", wire.RunStatus{
		Status: wire.StatusDone, Reason: wire.ReasonQuota, Init: "i", Undoable: []wire.UndoCall{{Call: "c1-0-a", Tool: "book_trip"}},
	})
	undo := []string{"runs", "undo", "trip", "--nats", nc.ConnectedUrl()}
	code, out, _ := worker.interrupted(s, undo...)
	if code != cli.ExitInterrupted || !strings.HasPrefix(out, "requested; a worker takes the run up when one can") {
		t.Errorf("interrupted it ends with %d and %q", code, out)
	}
	out, _ = s.expect(cli.ExitFailure, undo...) // after its patience
	contains(t, out, "requested; a worker takes the run up when one can")
	out, _ = s.expect(cli.ExitFailure, append(undo, "-o", "json")...)
	contains(t, out, `"state": "requested"`)
}

// A run that is interrupted before it is started is not said to have been.
func TestRun_InterruptedBeforeItStarts(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, input := range []string{"--message=Lisbon", `--input={"message":"Lisbon"}`} {
		var out, problem output
		code := execute(ended, []string{"run", "travel.desk", input}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &problem})
		if code != cli.ExitInterrupted || out.String() != "" || problem.String() != "agentd: interrupted\n" {
			t.Errorf("with %s it ends with %d, %q and %q", input, code, out.String(), problem.String())
		}
	}
}

// Whoever is interrupted before a command has done its work is told by its exit code, whatever the command was at.
func TestCommands_InterruptedAreNotSaidToHaveFailed(t *testing.T) {
	s, nc := provisioned(t)
	var interrupt atomic.Pointer[context.CancelFunc]
	subscribe(t, nc, wire.DefaultSubjects().Get("travel.desk"), func(m *nats.Msg) { // a worker that knows no run
		(*interrupt.Load())()
		answer := nats.NewMsg(m.Reply)
		answer.Header.Set("Nats-Service-Error-Code", string(sdk.CodeUnknownRun))
		answer.Header.Set("Nats-Service-Error", "it is not there")
		_ = m.RespondMsg(answer)
	})
	server := []string{"--nats", nc.ConnectedUrl()}
	follow := s.line(append(server, "runs", "follow", "trip", "--agent", "travel.desk")...)
	cancel := s.line(append(server, "runs", "cancel", "trip", "--agent", "travel.desk")...)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "travel.desk", "-m", "Lisbon", "--subject", "trip"}, "\ndetached; the run has not begun:\n  " + follow + "\n  " + cancel + "\n"},
		{[]string{"run", "travel.desk", "-m", "Lisbon", "--subject", "trip", "-d"}, ": interrupted; if it was started all the same: " + follow + "\n"},
		{[]string{"doctor"}, "agentd: interrupted\n"},
	} {
		ctx, stop := context.WithCancel(t.Context())
		interrupt.Store(&stop)
		var out, problem output
		code := execute(ctx, s.args(append(c.args, server...)...), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &problem})
		stop()
		if code != cli.ExitInterrupted || out.String() != "" || !strings.HasSuffix(problem.String(), c.want) {
			t.Errorf("%q ends with %d, %q and %q; want %d, nothing and %q", c.args, code, out.String(), problem.String(), cli.ExitInterrupted, c.want)
		}
	}
}
