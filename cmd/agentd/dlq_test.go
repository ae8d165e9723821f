package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/internal/follow"
	"agentd/internal/show"
	"agentd/sdk/wire"
)

// stranger publishes what it likes on the server of a running agentd dev.
func (s *system) stranger() *nats.Conn {
	s.t.Helper()
	url, err := os.ReadFile(filepath.Join(s.data, "address"))
	if err != nil {
		s.t.Fatal(err)
	}
	nc, err := nats.Connect(strings.TrimSpace(string(url)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	return nc
}

// post publishes on a stream.
func (s *system) post(nc *nats.Conn, subject string, data []byte) {
	s.t.Helper()
	stored, err := nc.Request(subject, data, wait)
	if err != nil {
		s.t.Fatalf("publish %s: %v", subject, err)
	}
	var ack struct{ Error json.RawMessage }
	if err := json.Unmarshal(stored.Data, &ack); err != nil || ack.Error != nil {
		s.t.Fatalf("publish %s: %v in %s", subject, err, stored.Data)
	}
}

// letters waits until there are n dead letters and returns them.
func (s *system) letters(n int, args ...string) []show.Letter {
	s.t.Helper()
	for deadline := time.Now().Add(wait); ; <-time.After(20 * time.Millisecond) {
		out, _ := s.expect(cli.ExitOK, append([]string{"dlq", "list", "-o", "json"}, args...)...)
		var list []show.Letter
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			s.t.Fatalf("%v in %s", err, out)
		}
		if len(list) == n {
			return list
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("there are %d dead letters; want %d:\n%s", len(list), n, out)
		}
	}
}

func answer(id, parent string, data string) []byte {
	return []byte(`{"specversion":"1.0","id":"` + id + `","source":"clerk","type":"agentd.conversation.answered","subject":"talk",` +
		`"parentid":"` + parent + `","data":` + data + `}`)
}

func TestDLQ_IsListedShownRedrivenAndDropped(t *testing.T) {
	config, script := chatProject(t)
	s := startDev(t, config, script)
	nc := s.stranger()
	out, _ := s.expect(cli.ExitOK, "dlq", "list")
	contains(t, out, "no dead letters")
	out, _ = s.expect(cli.ExitOK, "dlq", "list", "-o", "json")
	contains(t, out, "[]")

	// An init event that is none, an answer to nothing, and one that a person got wrong.
	s.post(nc, "agentd.start.chat", []byte("{not json"))
	s.letters(1)
	nobody := wire.NewRunKey("nobody")
	s.post(nc, wire.DefaultSubjects().Reply(wire.CallAddress{
		Domain: "human_interaction", Type: "agentd_conversation_turn", Agent: "chat", Run: nobody,
		Call: wire.CallID(nobody, "init", 1, 0, "agentd.conversation.turn", []byte(`{}`)),
	}), answer("a1", "", `{"message":"hello","password":"hunter2"}`))
	s.letters(2)
	s.expect(cli.ExitOK, "run", "chat", "-m", "Hello", "--subject", "talk", "--detach")
	call := s.waiting("talk")
	subject := wire.DefaultSubjects().Reply(wire.CallAddress{
		Domain: "human_interaction", Type: "agentd_conversation_turn", Agent: "chat", Run: wire.NewRunKey("talk"), Call: call,
	})
	s.post(nc, subject, answer("a2", call, `{"text":"wrong"}`))
	list := s.letters(3)

	out, _ = s.expect(cli.ExitOK, "dlq", "list")
	contains(t, out, "SEQ", "invalid_event       chat", "agentd.start.chat", "unknown_run         chat", nobody.String(),
		"contract_violation  chat              talk", "agentd.conversation.answered a2")
	s.letters(1, "--run", "talk")
	s.letters(1, "--reason", "unknown_run", "--agent", "chat", "--since", "1h")
	s.letters(0, "--agent", "other")
	s.letters(2, "--after", "1")
	_, more := s.expect(cli.ExitOK, "dlq", "list", "--limit", "2")
	contains(t, more, "go on with: --after 2")
	_, more = s.expect(cli.ExitOK, "dlq", "list", "--limit", "2", "-o", "json")
	contains(t, more, "go on with: --after 2")

	out, _ = s.expect(cli.ExitOK, "dlq", "show", "1")
	contains(t, out, "invalid_event", "message 1 of AGENTD_START", "not an event", "{not json", "must send it anew", "cannot be redriven")
	out, _ = s.expect(cli.ExitOK, "dlq", "show", "2")
	contains(t, out, `"password": "[redacted]"`)
	out, _ = s.expect(cli.ExitOK, "dlq", "show", "2", "--secrets")
	contains(t, out, `"password": "hunter2"`)
	out, _ = s.expect(cli.ExitOK, "dlq", "show", "3")
	contains(t, out, "talk (waiting)", "$.message: expected", "answers      "+call, `"text": "wrong"`,
		"  agentd -c "+s.config+" --data "+s.data+" dlq redrive 3\n", "  agentd -c "+s.config+" --data "+s.data+" dlq drop 3 --yes\n")
	out, _ = s.expect(cli.ExitOK, "dlq", "show", "3", "-o", "json")
	contains(t, out, `"reason": "contract_violation"`, `"run_status": "waiting"`, `"advice"`)

	out, _ = s.expect(cli.ExitOK, "bulk", "redrive", "code:unknown_run agent:chat changed>-1h")
	contains(t, out, "letters 1\n        2\n", "--yes 1")
	out, _ = s.expect(cli.ExitOK, "bulk", "redrive", "code:unknown_run", "--yes", "1")
	contains(t, out, "so far  1 skipped")
	s.letters(3)

	out, problem := s.expect(cli.ExitFailure, "dlq", "redrive", "1", "2", "3")
	contains(t, problem, "1  refused: it still is not an event", "2  refused: run")
	contains(t, out, "3  redriven on "+subject)
	again := s.letters(3)
	if got := again[2]; got.Redrives != 1 || got.Subject != subject || got.Sequence == list[2].Sequence {
		t.Errorf("the redriven answer came back as %+v", got)
	}

	// An answer that counts came since.
	s.post(nc, subject, answer("a3", call, `{"message":"right","end":true}`))
	s.expect(cli.ExitOK, "runs", "follow", "talk", "-q")
	_, problem = s.expect(cli.ExitFailure, "dlq", "redrive", "--run", "talk")
	contains(t, problem, "refused: run talk has ended (stopped)")

	_, problem = s.expect(cli.ExitUsage, "dlq", "drop", "1")
	contains(t, problem, "say so with --yes")
	out, _ = s.expect(cli.ExitOK, "dlq", "drop", "1", "--yes")
	contains(t, out, "1  dropped")
	_, problem = s.expect(cli.ExitFailure, "dlq", "show", "1")
	contains(t, problem, "dead letter 1 does not exist")
	out, _ = s.expect(cli.ExitOK, "dlq", "drop", "--agent", "chat", "--yes", "-o", "json")
	contains(t, out, `"done": "dropped"`)
	s.letters(0)
}

// waiting is the open call of a run.
func (s *system) waiting(run string) string {
	s.t.Helper()
	return s.waitingFor(run, "")
}

// waitingFor is the open call of a tool, whichever it is when empty, that a run waits for.
func (s *system) waitingFor(run, tool string) string {
	s.t.Helper()
	for deadline := time.Now().Add(wait); ; <-time.After(20 * time.Millisecond) {
		out, _ := s.expect(cli.ExitOK, "runs", "list", "--status", "waiting", "-o", "json")
		var rows []show.RunRow
		if err := json.Unmarshal([]byte(out), &rows); err != nil {
			s.t.Fatal(err)
		}
		for _, r := range rows {
			for _, w := range r.Waiting {
				if r.Run == run && (tool == "" || w.Tool == tool) {
					return w.Call
				}
			}
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("run %s does not wait", run)
		}
	}
}

func TestDLQ_InitOfARunThatHasEndedIsRefused(t *testing.T) {
	config, script := chatProject(t)
	s := startDev(t, config, script)
	nc := s.stranger()
	s.expect(cli.ExitOK, "run", "chat", "-m", "Hello", "--subject", "one", "--answer", follow.EndWord)
	// What a worker writes when a run keeps killing it.
	stored, err := nc.Request("$JS.API.STREAM.MSG.GET.AGENTD_START", []byte(`{"seq":1}`), wait)
	if err != nil {
		t.Fatal(err)
	}
	var original struct{ Message struct{ Data []byte } }
	if err := json.Unmarshal(stored.Data, &original); err != nil {
		t.Fatal(err)
	}
	m := &nats.Msg{Subject: "agentd.dlq.poison_run.agentd_start.1", Data: original.Message.Data, Header: nats.Header{
		"agentd-reason": {"poison_run"}, "agentd-subject": {"agentd.start.chat"}, "agentd-detail": {"5 workers in a row stopped"},
	}}
	if _, err := nc.RequestMsg(m, wait); err != nil {
		t.Fatal(err)
	}
	_, problem := s.expect(cli.ExitFailure, "dlq", "redrive", "1")
	contains(t, problem, "run one has ended (stopped), and its terminal event stands", "another subject")
	s.letters(1)
}
