package main

import (
	"path/filepath"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker/datafolder"
)

// second is an agent beside others.
const second = `  - name: second
    model: {name: gpt-4o-mini}
    text: converse
`

// A run that is well is not said to be lost, nor to begin yet, where another agent was asked for it.
func TestRuns_OfAnotherAgentThanTheOneThatIsAsked(t *testing.T) {
	config, script := chatProject(t)
	write(t, config, chat+second)
	s := startDev(t, config, script)
	s.expect(cli.ExitOK, "run", "chat", "-m", "Hello", "--subject", "talk", "--detach")
	s.waitingFor("talk", "")
	for _, command := range [][]string{{"send", "talk", "Wait."}, {"follow", "talk"}, {"cancel", "talk"}} {
		args := append([]string{"runs"}, command...)
		_, problem := s.expect(cli.ExitFailure, append(args, "--agent", "second")...)
		contains(t, problem, "agentd: run talk is one of agent chat\n")
		_, problem = s.expect(cli.ExitFailure, append(args, "--agent", "chta")...)
		contains(t, problem, "run talk is one of agent chat\n")
		args[2] = "tolk"
		_, problem = s.expect(cli.ExitFailure, append(args, "--agent", "chta")...)
		contains(t, problem, `the server has no consumers for agent chta; did you mean "chat"?`)
	}

	address, err := datafolder.ReadAddress(s.data)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := chatProject(t)
	write(t, other, "agents:\n"+second)
	elsewhere := &system{t: t, config: other, data: t.TempDir()}
	out, _ := elsewhere.expect(cli.ExitOK, "runs", "send", "talk", "Wait.", "--nats", address)
	contains(t, out, "the run has the message")
	out, _ = elsewhere.expect(cli.ExitOK, "runs", "cancel", "talk", "--nats", address)
	contains(t, out, "cancelled")
}

// Who may not read the store, nor see timers, stores no cancel under an agent that the run is not of.
func TestRunsCancel_OfAnotherAgentByAClient(t *testing.T) {
	g := startGuardedWith(t, "", func(agents string) string { return agents + second })
	g.as("shop", "run", "clerk", "-m", "Pay", "--subject", "one", "-d")
	g.request("one")
	_, problem := g.expect(cli.ExitFailure, "runs", "cancel", "one", "--agent", "second", "--nats", g.url("shop"))
	contains(t, problem, "agentd: run one is one of agent clerk\n")

	none := filepath.Join(t.TempDir(), "agentd.yaml")
	write(t, none, "identity: required\n")
	_, problem = (&system{t: t, config: none, data: t.TempDir()}).expect(cli.ExitUsage, "runs", "list", "--nats", g.url("shop"))
	contains(t, problem, "this user may not read the store of runs, and no agents are configured whose workers could be asked; name their configuration with --config")
}

// The name of a run that was refused may be given to another: that one is waited for, and cancelled.
func TestRuns_ThatAreSentAnewAfterARefusal(t *testing.T) {
	s := startDev(t, example+"/agentd.yaml", example+"/script.yaml")
	s.serve()
	for _, name := range []string{"five", "six"} {
		s.expect(cli.ExitRun, "run", "travel.desk", "--input", `{"message": 5}`, "--subject", name, "-d")
	}
	s.expect(cli.ExitOK, "agents", "pause", "travel.desk")
	for _, name := range []string{"five", "six"} {
		s.expect(cli.ExitOK, "run", "travel.desk", "-m", "Two nights in Lisbon", "--subject", name, "-d")
	}
	out, _ := s.expect(cli.ExitOK, "runs", "cancel", "six", "--agent", "travel.desk")
	contains(t, out, "cancel requested; the run has not begun")
	var followed, progress output
	s.background(&followed, &progress, "runs", "follow", "five", "--agent", "travel.desk", "--answer", "Yes, book both")
	s.until(&progress, "travel.desk is paused; the run begins when it is resumed")
	s.expect(cli.ExitOK, "agents", "resume", "travel.desk")
	s.until(&followed, "TRIP-TP-533-casa-do-rio")
	s.eventually(cli.ExitOK, "done (cancelled", "runs", "list")
}
