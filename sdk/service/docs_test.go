package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
	"agentd/test/natsserver"
)

const servicesDoc = "../../docs/services.md"

// docBlock is the code block of docs/services.md that contains text.
func docBlock(t *testing.T, language, text string) string {
	t.Helper()
	doc, err := os.ReadFile(servicesDoc)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(string(doc), -1) {
		if strings.Contains(m[1], text) {
			return m[1]
		}
	}
	t.Fatalf("docs/services.md has no block with %q", text)
	return ""
}

func docService(t *testing.T) *Service {
	t.Helper()
	s, err := Parse("weather.yaml", []byte(docBlock(t, "yaml", "weather.forecast")))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The program in the docs is built and answers.
func TestDocs_GoProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "weather")
	for path, text := range map[string]string{
		source: docBlock(t, "go", "func main"), filepath.Join(dir, "weather.yaml"): docBlock(t, "yaml", "weather.forecast"),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	w := newWorld(t, embedded.Options{Listen: true})
	s := docService(t)
	w.provision(s)
	program := exec.CommandContext(context.WithoutCancel(t.Context()), binary)
	program.Dir, program.Env = dir, append(os.Environ(), "NATS_URL="+w.server.URL())
	var output bytes.Buffer
	program.Stdout, program.Stderr = &output, &output
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Process.Kill() }) // it has ended unless the test failed
	got := w.answer(w.call(s, `{"city":"Bern"}`))
	if want := `{"text":"sunny in Bern"}`; got.Type != "weather.forecast.done" || string(got.Data) != want {
		t.Errorf("got %s %s, want %s", got.Type, got.Data, want)
	}
	if p := w.problem(w.call(s, `{"city":"Atlantis"}`)); p.ErrorMessage != "the weather is unknown in Atlantis" {
		t.Errorf("got %+v", p)
	}
	if err := program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := program.Wait(); err != nil {
		t.Errorf("the program ended with %v:\n%s", err, output.String())
	}
}

// secured is a server with the permissions of the docs, and a user who may do everything.
type secured struct {
	*world
	url string
	s   *Service
}

func newSecured(t *testing.T, keep func(line string) bool) *secured {
	t.Helper()
	var lines []string
	for line := range strings.SplitSeq(docBlock(t, "conf", "permissions"), "\n") {
		if keep(line) {
			lines = append(lines, line)
		}
	}
	config := strings.Replace(strings.Join(lines, "\n"), "$WEATHER_PASSWORD", "cold", 1)
	config = strings.Replace(config, "users = [", "users = [\n{user: worker, password: hot}", 1)
	dir := t.TempDir()
	path := filepath.Join(dir, "nats.conf")
	config += fmt.Sprintf("\nhost: 127.0.0.1\nport: -1\njetstream {store_dir: %q}\n", dir)
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ns := natsserver.Start(t, *options)
	e := &secured{world: &world{t: t, log: &logBuffer{}, ackWait: ackWait}, url: strings.TrimPrefix(ns.ClientURL(), "nats://"), s: docService(t)}
	e.conn = e.as("worker:hot")
	e.provision(e.s)
	return e
}

func (e *secured) as(user string) *broker.Conn {
	e.t.Helper()
	c, err := broker.Connect(e.context(), broker.ConnectOptions{
		URL: "nats://" + user + "@" + e.url, Subjects: wire.DefaultSubjects(), Logger: e.log.logger(),
	})
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			e.t.Error(err)
		}
	})
	return c
}

func everyLine(string) bool { return true }

func TestDocs_PermissionsSufficeForThisPackage(t *testing.T) {
	t.Parallel()
	e := newSecured(t, everyLine)
	g := newGate("sunny")
	Handle(e.s, g.handle)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	// Of what a request across accounts brings, only the first message arrives: one that asks for more would lose time.
	var many atomic.Int64
	stop, err := e.conn.Tail("$JS.API.CONSUMER.MSG.NEXT.AGENTD_OUT.svc_local_weather_forecast", func(_ string, _ map[string][]string, request []byte) {
		var asked struct{ Batch, Expires int }
		if json.Unmarshal(request, &asked) == nil && asked.Batch > 2 {
			many.Add(1)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := many.Load(); n > 0 {
			t.Errorf("%d requests across accounts ask for more than two messages", n)
		}
	}()
	service := Server{conn: e.as("weather:cold"), Logger: e.log.logger(), heartbeat: ackWait / 10}
	go func() { done <- service.Run(ctx, e.s) }()
	t.Cleanup(func() {
		cancel()
		if err := receive(t, "the end of Run", done); err != nil {
			t.Error(err)
		}
	})
	answered := e.call(e.s, `{"city":"Bern"}`)
	receive(t, "the call", g.entered)
	other := wire.Event{ID: "a", Source: "another", Type: forecastDone, Subject: answered.event.Subject, Data: []byte(`{"text":"rain"}`)}
	if err := e.conn.Publish(e.context(), e.conn.Subjects().Reply(answered.address), other); err != nil {
		t.Fatal(err)
	}
	voided := e.call(e.s, `{"city":"Oslo"}`)
	receive(t, "the call", g.entered)
	e.void(voided)
	if err := receive(t, "the end of the handler's context", g.ended); !errors.Is(err, errVoided) {
		t.Errorf("the context ended with %v", err)
	}
	if _, err := e.conn.JetStream().Publish(e.context(), e.conn.Subjects().Call(e.newCall(e.s, `{}`).address), nil); err != nil {
		t.Fatal(err)
	}
	close(g.open)
	e.wantText(e.call(e.s, `{"city":"Rome"}`), "sunny")
	e.wantText(answered, "rain")
	e.first(streams.DLQ, "agentd.dlq.>")
	e.settled(e.s)
	e.again(e.s) // what is dead-lettered, or answered, for the second time is compared with what is there
	e.settled(e.s)
	if e.log.contains("Permissions Violation") {
		t.Error("the service was refused something")
	}
}

// Without the lines that only this package needs, a program in any language can serve, and can do nothing else.
func TestDocs_PermissionsSufficeForAnyClient(t *testing.T) {
	t.Parallel()
	e := newSecured(t, func(line string) bool { return !strings.Contains(line, "# sdk/service") })
	refused := make(chan error, 8)
	nc, err := nats.Connect("nats://weather:cold@"+e.url, nats.CustomInboxPrefix("_INBOX_agentd_weather"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	c := e.call(e.s, `{"city":"Bern"}`)
	consumer, err := js.Consumer(e.context(), "AGENTD_OUT", "svc_local_weather_forecast")
	if err != nil {
		t.Fatal(err)
	}
	m, err := consumer.Next(jetstream.FetchMaxWait(deadline))
	if err != nil {
		t.Fatal(err)
	}
	reply := strings.Replace(m.Subject(), ".out.", ".in.", 1)
	answer := fmt.Appendf(nil, `{"specversion":"1.0","id":"1","source":"s","type":"weather.forecast.done","parentid":%q,"data":{"text":"x"}}`, c.event.ID)
	for range 2 {
		_, err = js.Publish(e.context(), reply, answer, jetstream.WithExpectLastSequencePerSubject(0))
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); !ok || api.ErrorCode != 10071 {
		t.Errorf("the second answer: got %v", err)
	}
	if err := m.DoubleAck(e.context()); err != nil {
		t.Fatal(err)
	}
	e.wantText(c, "x")
	e.settled(e.s)
	select {
	case err := <-refused:
		t.Errorf("refused: %v", err)
	default:
	}
	for _, subject := range []string{
		"agentd.in.human_interaction.agentd_permission_request.a", "agentd.out.local.weather_forecast.a",
		"$JS.API.CONSUMER.CREATE.AGENTD_OUT.mine", "$JS.API.STREAM.MSG.GET.AGENTD_IN", "$JS.API.STREAM.PURGE.AGENTD_OUT",
	} {
		if err := nc.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		if err := receive(t, "the refusal of "+subject, refused); !strings.Contains(err.Error(), subject) {
			t.Errorf("%s: got %v", subject, err)
		}
	}
	for _, subject := range []string{"agentd.>", "_INBOX_agentd.>", "$JS.ACK.>"} {
		if _, err := nc.Subscribe(subject, func(*nats.Msg) {}); err != nil {
			t.Fatal(err)
		}
		if err := receive(t, "the refusal of "+subject, refused); !strings.Contains(err.Error(), subject) {
			t.Errorf("%s: got %v", subject, err)
		}
	}
}

func TestDocs_OptionsAreThoseOfThePackage(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(servicesDoc)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf("| `service.Concurrency(n)` | calls handled at once | %d |", DefaultConcurrency),
		fmt.Sprintf("| `service.Timeout(d)` | for a handler, when the call has no deadline | %d s |", DefaultTimeout/time.Second),
		fmt.Sprintf("delivered again %v seconds later", streams.CallWait.Seconds()),
	} {
		if !strings.Contains(strings.Join(strings.Fields(string(doc)), " "), want) {
			t.Errorf("docs/services.md does not say %q", want)
		}
	}
}
