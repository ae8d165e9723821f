package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/internal/follow"
	"agentd/test/ports"
)

func TestDev_RunsTheExampleToItsAnswer(t *testing.T) {
	s := startDev(t, filepath.Join(example, "agentd.yaml"), filepath.Join(example, "script.yaml"))
	s.serve()
	out, progress := s.expect(cli.ExitOK, "run", "travel.desk", "--message", "Two nights in Lisbon", "--subject", "trip 1", "--answer", "Yes, book both")
	var got, want map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("the result is not JSON: %v\n%s", err, out)
	}
	want = map[string]any{
		"summary":   "You fly to Lisbon with TAP on 4 December at 09:40 and stay two nights at the Casa do Rio.",
		"reference": "TRIP-TP-533-casa-do-rio", "total_eur": 399.0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	contains(t, progress, "calls     search_flights", "calls     search_hotels", "asks      TAP flies at 09:40",
		"answer    Yes, book both", "result    book_trip", "finished  completed")

	out, _ = s.expect(cli.ExitOK, "runs", "list")
	contains(t, out, "trip 1", "travel.desk", "done (completed)")
	out, _ = s.expect(cli.ExitOK, "runs", "show", "trip 1")
	contains(t, out, "4 calls", "book_trip", "TRIP-TP-533-casa-do-rio", "journal (9), times in ")
	out, progress = s.expect(cli.ExitOK, "runs", "follow", "trip 1", "-o", "json")
	contains(t, out, `"type": "travel.desk.done"`)
	if !regexp.MustCompile(`"executionunits": \d{3,4}\n`).MatchString(out) { // one for each token; in millionths it has nine or ten digits
		t.Errorf("the run costs, in execution units:\n%s", out)
	}
	contains(t, progress, "asks      TAP flies at 09:40", "finished  completed")
	out, _ = s.expect(cli.ExitOK, "provision")
	contains(t, out, "nothing to change")
	out, _ = s.expect(cli.ExitOK, "doctor")
	contains(t, out, "nothing found")
	s.until(&s.out, "finished  completed") // dev shows the same
}

// Who follows a run while dev is away is told so, and sees the end of the run when dev is started again.
func TestDev_IsWhereItWasWhenItIsStartedAgain(t *testing.T) {
	config, script := chatProject(t)
	s := startDev(t, config, script, "--server-only") // which has the usual port, unless another program does
	s.data = t.TempDir()
	var first, second, followed, told, unread output
	port, console := strconv.Itoa(ports.Free(t)), "127.0.0.1:"+strconv.Itoa(ports.Free(t))
	stop := s.background(&first, &unread, "dev", "--port", port, "--console", console)
	s.until(&first, "\nready")
	s.background(&followed, &told, "run", "chat", "-m", "Hello", "--subject", "one")
	s.until(&told, "asks      How can I help?")
	stop()
	s.until(&told, "waits     the connection to NATS is lost")
	s.background(&second, &unread, "dev")
	s.until(&second, "\nready")
	contains(t, second.String(), "console   http://"+console+"/\n", "nats      nats://127.0.0.1:"+port+"\n")
	s.until(&told, "note      the connection to NATS is back")
	s.expect(cli.ExitOK, "runs", "follow", "one", "--answer", follow.EndWord)
	s.until(&told, "finished  stopped")
	if n := strings.Count(told.String(), "is lost"); n != 1 {
		t.Errorf("it is said %d times that the connection is lost:\n%s", n, told.String())
	}
	s.until(&followed, "How can I help?")
}

func TestRun_TellsWhatIsWrong(t *testing.T) {
	s := startDev(t, filepath.Join(example, "agentd.yaml"), filepath.Join(example, "script.yaml"))
	_, problem := s.expect(cli.ExitRun, "run", "no.such.agent", "-m", "hello")
	contains(t, problem, "unknown_agent")
	for _, follows := range []string{"--timeout=1m", "--detach"} {
		_, problem = s.expect(cli.ExitRun, "run", "travel.dsk", "-m", "hello", follows)
		contains(t, problem, `no agent "travel_dsk" is served here; did you mean "travel.desk"?`)
	}
	_, problem = s.expect(cli.ExitRun, "run", "travel.desk", "--input", `{"message": 5}`)
	contains(t, problem, "contract_violation", "$.message: expected string, got number 5")
	out, _ := s.expect(cli.ExitRun, "run", "travel.desk", "--input", `{"message": 5}`, "-o", "json")
	contains(t, out, `"code": "contract_violation"`)
	_, problem = s.expect(cli.ExitUsage, "run", "travel.desk", "-m", "hello", "--subject", "a\tb")
	contains(t, problem, "$.subject: expected text without control characters")
	for _, constraints := range []string{`{"deny": ["book_*"]} {}`, `{"forbid": []}`, `[`} {
		_, problem = s.expect(cli.ExitUsage, "run", "travel.desk", "-m", "hello", "--constraints", constraints)
		contains(t, problem, "--constraints: want JSON with allow, deny, read_only or files")
	}
	_, problem = s.expect(cli.ExitFailure, "run", "travel.desk", "-m", strings.Repeat("a", 2<<20))
	contains(t, problem, "larger than the broker takes (1048576 bytes)")
	// Subjects are never part of a NATS subject, so they may hold anything else.
	s.expect(cli.ExitFailure, "run", "travel.desk", "-m", "Lisbon", "--subject", "trip *.> ü", "--timeout", "300ms")
	s.waiting("trip *.> ü")
	_, problem = s.expect(cli.ExitFailure, "run", "travel.desk", "-m", "Lisbon", "--subject", "trip *.> ü")
	contains(t, problem, "exists and is waiting", "runs follow 'trip *.> ü'")
	for _, verb := range []string{"show", "follow", "cancel"} {
		_, problem = s.expect(cli.ExitFailure, "runs", verb, "no such run")
		contains(t, problem, `run "no such run" does not exist`)
	}
}

func TestRun_DetachesAndIsFollowedAndCancelled(t *testing.T) {
	s := startDev(t, filepath.Join(example, "agentd.yaml"), filepath.Join(example, "script.yaml"))
	s.serve()
	for _, name := range []string{"one", "two"} {
		out, _ := s.expect(cli.ExitOK, "run", "travel.desk", "-m", "Lisbon", "--subject", name, "--detach")
		if out != name+"\n" {
			t.Errorf("detach prints %q", out)
		}
	}
	s.waitingFor("one", "ask_question")
	_, problem := s.expect(cli.ExitFailure, "runs", "follow", "one", "--timeout", "3s")
	contains(t, problem, "asks      TAP flies at 09:40", "for somebody to answer", "the run goes on")
	out, _ := s.expect(cli.ExitOK, "runs", "list", "--status", "waiting", "-o", "json")
	contains(t, out, `"run": "one"`, `"tool": "ask_question"`)
	out, _ = s.expect(cli.ExitOK, "runs", "follow", "one", "--answer", "Yes")
	contains(t, out, "TRIP-TP-533-casa-do-rio")

	out, _ = s.expect(cli.ExitOK, "runs", "cancel", "two", "--reason", "no time")
	contains(t, out, "cancelled")
	_, problem = s.expect(cli.ExitRun, "runs", "follow", "two")
	contains(t, problem, "cancelled", "no time")
	_, problem = s.expect(cli.ExitFailure, "runs", "cancel", "two")
	contains(t, problem, "done already")
}

const (
	chat = `agents:
  - name: chat
    model: {name: gpt-4o-mini}
    text: converse
`
	chatScript = `conversations:
  - replies: [{text: "How can I help?"}, {text: "Anything else?"}, {text: Goodbye.}]
`
)

// chatProject is a folder with an agent that converses.
func chatProject(t *testing.T) (config, script string) {
	t.Helper()
	dir := t.TempDir()
	config, script = filepath.Join(dir, "agentd.yaml"), filepath.Join(dir, "script.yaml")
	write(t, config, chat)
	write(t, script, chatScript)
	return config, script
}

func TestRun_Converses(t *testing.T) {
	config, script := chatProject(t)
	s := startDev(t, config, script)
	out, progress := s.expect(cli.ExitOK, "run", "chat", "-m", "Hello", "--answer", "With a trip", "--answer", follow.EndWord)
	if out != "Anything else?\n" {
		t.Errorf("the result is %q", out)
	}
	contains(t, progress, "asks      How can I help?", "answer    With a trip", "asks      Anything else?", "finished  stopped")
}

func TestDev_ReloadsTheConfiguration(t *testing.T) {
	config, script := chatProject(t)
	s := startDev(t, config, script)
	write(t, config, "agents:\n  - nam: chat\n")
	s.until(&s.errors, "the configuration before stays in use")
	contains(t, s.errors.String(), "agentd.yaml:2:5: unknown key \"nam\"")
	s.expect(cli.ExitUsage, "run", "second", "-m", "Hello") // other commands refuse it too
	write(t, config, chat+"  - name: second\n    model: {name: gpt-4o-mini}\n")
	s.until(&s.errors, "configuration reloaded")
	out, _ := s.expect(cli.ExitOK, "run", "second", "-m", "Hello")
	if out != "How can I help?\n" {
		t.Errorf("the new agent says %q", out)
	}
}
