package docs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"agentd/internal/broker"
	"agentd/internal/llm/mockllm"
	"agentd/internal/state/redistest"
	"agentd/sdk/wire"
	"agentd/test/missing"
	"agentd/test/ports"
)

// findings is the exit code of commands that found what they look for.
const findings = 4

func freePort(t *testing.T) string {
	t.Helper()
	return strconv.Itoa(ports.Free(t))
}

// scripted has agents asked a scripted model.
func (s *shell) scripted(script string) {
	s.t.Helper()
	conversations, err := mockllm.LoadScript(filepath.Join(s.dir, script))
	if err != nil {
		s.t.Fatal(err)
	}
	model := httptest.NewServer(mockllm.New(conversations))
	s.t.Cleanup(model.Close)
	s.env = append(s.env, "OPENAI_BASE_URL="+model.URL+"/v1", "OPENAI_API_KEY=none")
}

// dev starts agentd dev on the shell's folder.
func (s *shell) dev(flags string) {
	s.t.Helper()
	s.goesOn["agentd dev"] = "\nready"
	s.typed("agentd dev " + flags)
}

// conn is a connection to the running agentd dev.
func (s *shell) conn() *broker.Conn {
	s.t.Helper()
	address, err := os.ReadFile(filepath.Join(s.dir, ".agentd", "address"))
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := broker.Connect(s.t.Context(), broker.ConnectOptions{URL: strings.TrimSpace(string(address)), Subjects: wire.DefaultSubjects()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return conn
}

// repository is the folder of the example in something like a clone of this repository that was built.
func repository(t *testing.T) *shell {
	t.Helper()
	s := newShell(t)
	s.folder("agentd")
	if err := os.Symlink(programs(t).dir, filepath.Join(s.dir, "bin")); err != nil {
		t.Fatal(err)
	}
	s.folder("examples/traveldesk", "examples/traveldesk")
	return s
}

// travelDesk is for who starts each part of the example by hand.
func travelDesk(t *testing.T) *shell {
	s := repository(t)
	port := freePort(t)
	s.instead("--script script.yaml", "--script script.yaml --listen 127.0.0.1:"+port)
	s.instead("127.0.0.1:4380", "127.0.0.1:"+port)
	s.instead("Lisbon, please'", "Lisbon, please' --subject trip --answer 'Yes, book both'")
	s.instead("RUN", "trip")
	s.goesOn = map[string]string{"mock-llm": "listens on", "agentd dev": "\nready", "bin/traveldesk": "", "events tail": ""}
	return s
}

// withDesk is the folder of the example, with agentd dev running.
func withDesk(t *testing.T) *shell {
	t.Helper()
	s := repository(t)
	s.scripted("script.yaml")
	s.dev("")
	return s
}

// clerk is for who decides what a run asks.
func clerk(t *testing.T) *shell {
	s := newShell(t)
	s.folder("clerk")
	s.write("agentd.yaml", `agents:
  - name: clerk
    model: {name: gpt-4o-mini}
    tools:
      services: [{contract: pay.yaml, as: pay}]
      builtin: [ask_question]
    permissions:
      rules: [{name: money, tools: [pay], risk: high}]
      scopes: [call, run+tool]
`)
	s.write("pay.yaml", `uri: "#/bank/pay"
type: bank.pay
versions:
  1.0.0:
    accepts: {type: object, properties: {amount: {type: number}, to: {type: string}}}
    emits: {bank.paid: {type: object}}
`)
	s.write("script.yaml", `conversations:
  - replies:
      - calls:
          - {name: pay, arguments: {amount: 120.5, to: "ACME \u202e.dtL"}}
          - {name: ask_question, arguments: {question: "Which account shall I use?"}}
      - text: Paid.
`)
	s.scripted("script.yaml")
	s.dev("")
	s.typed("agentd run clerk --message Pay --subject invoice-1 --detach")
	var waiting []struct{ Kind, Short string }
	s.eventually("agentd approvals list -o json", func(out string) bool {
		return json.Unmarshal([]byte(out), &waiting) == nil && len(waiting) == 2
	})
	for _, item := range waiting {
		if item.Kind == "permission" {
			s.instead("ID", item.Short)
		}
	}
	s.like["c7euxw"], s.like["a3v27v"] = `\w+`, `\w+`
	return s
}

// production is a folder with agents whose servers are somewhere else.
func production(t *testing.T) *shell {
	s := repository(t)
	s.env = append(s.env, "OPENAI_API_KEY=none")
	server := natsServer(s, "")
	s.instead("nats://nats:4222", server)
	s.instead("redis://redis:6379/0", redistest.Start(t))
	s.instead("--http :8080", "--http 127.0.0.1:"+freePort(t))
	s.goesOn["agentd serve"] = "serving"
	return s
}

// natsServer starts a NATS server that keeps what it confirms, and returns its address.
func natsServer(s *shell, more string) string {
	s.t.Helper()
	port := freePort(s.t)
	s.write("nats.conf", fmt.Sprintf("host: 127.0.0.1\nport: %s\njetstream {store_dir: %q, sync_interval: always}\n%s", port, s.t.TempDir(), more))
	s.goesOn["nats-server"] = "Server is ready"
	s.typed("nats-server -c nats.conf")
	return "nats://127.0.0.1:" + port
}

// monitored is for who examines a system whose NATS server has a monitoring port.
func monitored(t *testing.T) *shell {
	s := repository(t)
	s.env = append(s.env, "OPENAI_API_KEY=none")
	monitor := freePort(t)
	s.env = append(s.env, "NATS_URL="+natsServer(s, "http: 127.0.0.1:"+monitor+"\n"))
	s.typed("agentd provision")
	s.instead("http://nats:8222", "http://127.0.0.1:"+monitor)
	return s
}

func openssl(t *testing.T) *shell {
	if _, err := exec.LookPath("openssl"); err != nil {
		missing.Optional(t, "openssl is not installed")
	}
	return newShell(t)
}

func keys(t *testing.T) *shell {
	s := newShell(t)
	s.instead("/run/secrets/k1", "k1")
	return s
}

// contractsInGit is a working copy with a contract that was changed since the branch main.
func contractsInGit(t *testing.T) *shell {
	if _, err := exec.LookPath("git"); err != nil {
		missing.Optional(t, "git is not installed")
	}
	s := newShell(t)
	const version = `
  %s:
    accepts: {type: object, properties: {nights: {type: integer, maximum: %d}}}
    emits: {bookings.booked: {type: object}}`
	head := "uri: \"#/book\"\ntype: bookings.book\nversions:"
	s.write("contracts/book.yaml", head+fmt.Sprintf(version, "1.0.0", 30)+"\n")
	s.typed("git -c init.defaultBranch=main init --quiet && git add . && " +
		"git -c user.name=docs -c user.email=docs@example.com commit --quiet --message old")
	s.write("contracts/book.yaml", head+fmt.Sprintf(version, "1.0.0", 30)+fmt.Sprintf(version, "1.1.0", 20)+"\n")
	s.exits["contracts diff"] = findings
	return s
}

// deadLetters is a system with two of them.
func deadLetters(t *testing.T) *shell {
	s := withDesk(t)
	conn := s.conn()
	publish := func(subject string, data []byte) {
		t.Helper()
		if _, err := conn.JetStream().Publish(context.WithoutCancel(t.Context()), subject, data); err != nil {
			t.Fatal(err)
		}
	}
	count := func(n int) func(string) bool {
		return func(out string) bool {
			var all []any
			return json.Unmarshal([]byte(out), &all) == nil && len(all) == n
		}
	}
	s.typed("agentd run travel.desk --message Lisbon --subject trip-7 --detach")
	publish("agentd.start.travel_desk", []byte("no event"))
	s.eventually("agentd dlq list -o json", count(1))
	s.eventually("agentd runs show trip-7", func(out string) bool { return strings.Contains(out, "waiting") })
	calls, err := conn.JetStream().Stream(t.Context(), "AGENTD_OUT")
	if err != nil {
		t.Fatal(err)
	}
	call, err := calls.GetLastMsgForSubject(t.Context(), "agentd.out.*.hotels_search.>")
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(map[string]any{
		"specversion": "1.0", "id": "h-311", "source": "hotels", "type": "hotels.found", "subject": "trip-7",
		"parentid": "of-another-call", "data": map[string]any{"hotels": []any{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	publish(strings.Replace(call.Subject, ".out.", ".in.", 1), body)
	s.eventually("agentd dlq list -o json", count(2))
	return s
}

// lostRun is a system that has lost a run that waits.
func lostRun(t *testing.T) *shell {
	s := withDesk(t)
	s.typed("agentd run travel.desk --message Lisbon --subject trip-7 --detach")
	s.eventually("agentd runs show trip-7", func(out string) bool { return strings.Contains(out, "waiting") })
	ctx := context.WithoutCancel(t.Context())
	journals, err := s.conn().JetStream().Stream(ctx, "AGENTD_RUN")
	if err != nil {
		t.Fatal(err)
	}
	if err := journals.Purge(ctx); err != nil {
		t.Fatal(err)
	}
	s.instead("--older-than 1m", "--older-than 1s")
	s.exits["agentd reconcile"] = findings
	s.eventually("agentd reconcile --store-lost --dry-run --older-than 1s", func(out string) bool {
		return strings.Contains(out, "run_lost") && strings.Contains(out, "call_orphaned")
	})
	s.like["AGENTD_START 42"] = `AGENTD_START \d+`
	s.like["agentd.out.local.bookings_book.travel_desk.172.vs5c….c1-0-4dfm…"] = `agentd\.out\.\S+`
	s.like["2 init events, 0 runs and 1 call examined: 2 found"] = `\d+ init events?, \d+ runs? and \d+ calls? examined: \d+ found`
	return s
}

// finishedTrip is a system in which a run has ended.
func finishedTrip(t *testing.T) *shell {
	s := withDesk(t)
	s.goesOn["traveldesk"] = ""
	s.typed("../../bin/traveldesk")
	delete(s.goesOn, "traveldesk")
	s.typed("agentd run travel.desk --message Lisbon --subject trip-7 --answer 'Yes, book both'")
	s.like["0f4c"] = `[0-9a-f]`
	s.like["14 entries, 9 records"] = `\d+ entries, \d+ records`
	return s
}

// roles is for who sets up a server on which every program has a user of its own.
func roles(t *testing.T) *shell {
	s := repository(t)
	s.env = append(s.env, "OPENAI_API_KEY=none")
	port := freePort(t)
	s.instead("agentd nats-config", "agentd nats-config --store-dir "+t.TempDir())
	s.change = append(s.change, change{"nats-server -c nats.conf", func() string {
		config, err := os.ReadFile(filepath.Join(s.dir, "nats.conf"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\$(AGENTD_\w+_PASSWORD)`).FindAllStringSubmatch(string(config), -1) {
			s.env = append(s.env, name[1]+"=secret")
		}
		return "nats-server -c nats.conf -a 127.0.0.1 -p " + port
	}})
	s.instead("…@HOST", "secret@127.0.0.1:"+port)
	s.goesOn["nats-server"], s.goesOn["agentd serve"] = "Server is ready", "serving"
	return s
}

// quickstart is for who follows docs/quickstart.md. Its program is built in this module, as it is in a clone.
func quickstart(t *testing.T) *shell {
	s := newShell(t)
	port := freePort(t)
	s.instead(`export PATH="$PWD/bin:$PATH"`, "true")
	s.folder("refunds")
	s.files("docs/quickstart.md")
	s.folder("..")
	s.instead("mkdir refunds", "true")
	s.instead("--script script.yaml", "--script script.yaml --listen 127.0.0.1:"+port)
	s.instead("127.0.0.1:4380", "127.0.0.1:"+port)
	shop := filepath.Join(s.dir, "shop")
	cmd := exec.Command("go", "build", "-o", shop, filepath.Join(s.dir, "refunds", "main.go"))
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the program of the page: %v\n%s", err, out)
	}
	s.instead("go run .", shop)
	s.change = append(s.change, change{"approve ID", func() string {
		var waiting []struct{ Short string }
		s.eventually("agentd approvals list -o json", func(out string) bool {
			return json.Unmarshal([]byte(out), &waiting) == nil && len(waiting) == 1
		})
		return "approve " + waiting[0].Short
	}})
	s.goesOn = map[string]string{"mock-llm": "listens on", "agentd dev": "ready", "/shop": "euros"}
	s.like["nats://127.0.0.1:4222"], s.like["h2k4pd"] = `nats://127\.0\.0\.1:\d+`, `\w+`
	s.like["http://127.0.0.1:4280/"] = `http://127\.0\.0\.1:\d+/` // a free one where another dev has it
	return s
}

// ownModule is a program that imports agentd, beside a checkout, with the go.mod of docs/go.md.
func ownModule(t *testing.T) *shell {
	s := newShell(t)
	checkout, err := filepath.Abs(root)
	if err == nil {
		err = os.Symlink(checkout, filepath.Join(s.dir, "agentd"))
	}
	if err != nil {
		t.Fatal(err)
	}
	s.folder("desk")
	s.files("docs/go.md")
	s.write("main.go", "package main\n\nimport _ \"agentd/sdk/worker\"\n\nfunc main() {}\n")
	return s
}
