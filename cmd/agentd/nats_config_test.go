package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/accounts"
	"agentd/internal/llm/mockllm"
	"agentd/internal/requests"
	"agentd/sdk/client"
	"agentd/sdk/service"
	"agentd/test/ports"
)

// guarded is a NATS server with a generated configuration, and programs that connect with a user each.
type guarded struct {
	*system
	// servers are one, or a cluster of several. Programs connect to the first.
	servers    []*server.Server
	address    string
	violations *serverLog
}

// serverLog keeps what the server says of refused subjects.
type serverLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *serverLog) Noticef(string, ...any) {}

func (l *serverLog) Warnf(string, ...any) {}

func (l *serverLog) Fatalf(string, ...any) {}

func (l *serverLog) Debugf(string, ...any) {}

func (l *serverLog) Tracef(string, ...any) {}

func (l *serverLog) Errorf(format string, v ...any) {
	if line := fmt.Sprintf(format, v...); strings.Contains(line, "Violation") {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, line)
	}
}

func (l *serverLog) said() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

const weatherContract = `uri: "#/weather/forecast"
type: weather.forecast
versions: {1.0.0: {accepts: {type: object}, emits: {weather.told: {type: object}}}}
`

// startGuarded starts a server with what nats-config writes for the clerk, provisions it and starts a worker.
func startGuarded(t *testing.T, settings string) *guarded {
	t.Helper()
	return startGuardedWith(t, settings, func(agents string) string { return agents })
}

// startGuardedWith is startGuarded with agents that change makes of the clerk.
func startGuardedWith(t *testing.T, settings string, change func(agents string) string) *guarded {
	t.Helper()
	g := newGuarded(t, settings, change)
	g.work()
	return g
}

// work starts a worker.
func (g *guarded) work() {
	g.t.Helper()
	g.background(&g.out, &g.errors, "serve", "--nats", g.url("worker"))
	g.until(&g.errors, "serving")
}

// newGuarded is startGuardedWith without a worker, with further flags of nats-config.
func newGuarded(t *testing.T, settings string, change func(agents string) string, flags ...string) *guarded {
	t.Helper()
	return newGuardedBy(t, 1, settings, change, flags...)
}

// newGuardedBy is newGuarded on a cluster of servers.
func newGuardedBy(t *testing.T, members int, settings string, change func(agents string) string, flags ...string) *guarded {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	if !strings.Contains(settings, "identity:") {
		settings = "identity: required\n" + settings
	}
	config, script := clerkProject(t, settings)
	dir := filepath.Dir(config)
	write(t, filepath.Join(dir, "weather.yaml"), weatherContract)
	text := strings.Replace(clerk, "services: [{", "services: [{contract: weather.yaml, as: weather}, {", 1)
	write(t, config, settings+change(text))
	g := guard(t, config, script, "worker", "operator", "shop", "ann", "bob", "jane", "svc_local_bank_pay", "svc_local_weather_forecast", "bank")
	out, _ := g.expect(cli.ExitOK, append([]string{
		"nats-config", "--client", "shop", "--person", "ann,bob", "--approver", "jane",
		"--listen", "127.0.0.1:-1", "--store-dir", filepath.Join(dir, "jetstream"),
	}, flags...)...)
	if strings.Contains(out, "secret-of") {
		t.Fatal("a password is printed")
	}
	t.Setenv("AGENTD_REPLICAS", strconv.Itoa(members))
	g.start(out, members)
	g.expect(cli.ExitOK, "provision", "--nats", g.url("operator"))
	return g
}

// guard has a server that does not run yet, a model that answers from script, and the passwords of users in the environment.
func guard(t *testing.T, config, script string, users ...string) *guarded {
	t.Helper()
	conversations, err := mockllm.LoadScript(script)
	if err != nil {
		t.Fatal(err)
	}
	model := httptest.NewServer(mockllm.New(conversations))
	t.Cleanup(model.Close)
	for name, value := range map[string]string{
		"OPENAI_API_KEY": "", "OPENAI_BASE_URL": model.URL + "/v1", "NATS_URL": "", "NATS_CREDS": "", "REDIS_URL": "", "AGENTD_DATA": "", "AGENTD_STORE": "",
	} {
		t.Setenv(name, value)
	}
	for _, user := range users {
		t.Setenv(accounts.PasswordVariable(user), "secret-of-"+user)
	}
	return &guarded{system: &system{t: t, config: config, data: t.TempDir()}, violations: &serverLog{}}
}

// start starts as many servers with a configuration, whose address is that of any port.
func (g *guarded) start(config string, members int) {
	g.t.Helper()
	var clients, routes []string
	for range members {
		clients = append(clients, "127.0.0.1:"+strconv.Itoa(ports.Free(g.t)))
		routes = append(routes, "127.0.0.1:"+strconv.Itoa(ports.Free(g.t)))
	}
	for i := range members {
		own := strings.Replace(config, "127.0.0.1:-1", clients[i], 1)
		if members > 1 {
			own = strings.Replace(own, "jetstream\"\n", fmt.Sprintf("jetstream%d\"\n", i), 1)
			own = fmt.Sprintf("server_name: s%d\ncluster {name: agentd, listen: %q, routes: [%s]}\n%s",
				i, routes[i], `"nats://`+strings.Join(routes, `","nats://`)+`"`, own)
		}
		write(g.t, g.serverFile(i), own)
	}
	g.address = clients[0]
	g.servers = make([]*server.Server, members)
	g.run()
	g.t.Cleanup(g.stop)
}

func (g *guarded) serverFile(member int) string {
	return filepath.Join(filepath.Dir(g.config), fmt.Sprintf("nats%d.conf", member))
}

func (g *guarded) run() {
	g.t.Helper()
	for i := range g.servers {
		options, err := server.ProcessConfigFile(g.serverFile(i))
		if err != nil {
			g.t.Fatal(err)
		}
		options.NoSigs = true
		if g.servers[i], err = server.NewServer(options); err != nil {
			g.t.Fatal(err)
		}
		g.servers[i].SetLoggerV2(g.violations, false, false, false)
		g.servers[i].Start()
	}
	for _, s := range g.servers {
		if !s.ReadyForConnections(wait) {
			g.t.Fatal("a server does not start")
		}
	}
	g.eventually("the leader of the cluster knows all servers", func() bool {
		return len(g.servers) == 1 || slices.ContainsFunc(g.servers, func(s *server.Server) bool { return len(s.JetStreamClusterPeers()) == len(g.servers) })
	})
}

func (g *guarded) stop() {
	for _, s := range g.servers {
		s.Shutdown()
	}
	for _, s := range g.servers {
		s.WaitForShutdown()
	}
}

// restart stops the servers and starts them again, as a crash or an upgrade would.
func (g *guarded) restart() {
	g.t.Helper()
	g.stop()
	g.run()
}

func (g *guarded) url(user string) string {
	return "nats://" + user + ":secret-of-" + user + "@" + g.address
}

// as runs a command as a user of the server.
func (g *guarded) as(user string, args ...string) string {
	g.t.Helper()
	out, _ := g.expect(cli.ExitOK, append(args, "--nats", g.url(user))...)
	return out
}

// serve answers the calls of bank.pay as its own user, until the test ends.
func (g *guarded) serve(paid func()) {
	g.t.Helper()
	g.serveAs("svc_local_bank_pay", paid)
}

// serveAs is serve as a user of the server, with further services that are not called.
func (g *guarded) serveAs(user string, paid func(), others ...*service.Service) {
	g.t.Helper()
	one, err := service.FromFile(filepath.Join(filepath.Dir(g.config), "pay.yaml"))
	if err != nil {
		g.t.Fatal(err)
	}
	service.Handle(one, func(context.Context, service.Call, map[string]any) (json.RawMessage, error) {
		paid()
		return json.RawMessage(`{}`), nil
	})
	g.offer(user, append(others, one)...)
}

// offer runs services as a user of the server, until the test ends.
func (g *guarded) offer(user string, services ...*service.Service) {
	g.t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(g.t.Context()))
	done := make(chan error, 1)
	s := service.Server{URL: g.url(user), Logger: slog.New(slog.NewTextHandler(g.t.Output(), nil))}
	go func() { done <- s.Run(ctx, services...) }()
	g.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			g.t.Error(err)
		}
	})
}

// request waits for the open permission request of a run.
func (g *guarded) request(run string) requests.Item {
	g.t.Helper()
	for deadline := time.Now().Add(wait); time.Now().Before(deadline); {
		var items []requests.Item
		if err := json.Unmarshal([]byte(g.as("jane", "approvals", "list", "-o", "json")), &items); err != nil {
			g.t.Fatal(err)
		}
		for _, i := range items {
			if i.Run == run && i.Kind == requests.KindPermission {
				return i
			}
		}
	}
	g.t.Fatalf("run %s asks for no permission", run)
	return requests.Item{}
}

// rested waits until the worker has done what follows from all init events: a person may see a request before its timer is
// armed.
func (g *guarded) rested(agent string) {
	g.t.Helper()
	nc, err := nats.Connect(g.url("worker"), nats.CustomInboxPrefix("_INBOX_agentd_worker"))
	if err != nil {
		g.t.Fatal(err)
	}
	defer nc.Close()
	g.eventually("all init events are acknowledged", func() bool {
		m, err := nc.Request("$JS.API.CONSUMER.INFO.AGENTD_START.agent_"+agent, nil, wait)
		if err != nil {
			g.t.Fatal(err)
		}
		var info struct {
			Name    string `json:"name"`
			Pending int    `json:"num_pending"`
			Unacked int    `json:"num_ack_pending"`
		}
		if err := json.Unmarshal(m.Data, &info); err != nil || info.Name == "" {
			g.t.Fatalf("%v in %s", err, m.Data)
		}
		return info.Pending == 0 && info.Unacked == 0
	})
}

// refused fails unless the server refuses the user everything named.
func (g *guarded) refused(user string, publish, subscribe []string) {
	g.t.Helper()
	errs := make(chan error, 1)
	nc, err := nats.Connect(g.url(user), nats.CustomInboxPrefix("_INBOX_agentd_"+user),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { errs <- err }))
	if err != nil {
		g.t.Fatal(err)
	}
	defer nc.Close()
	want := func(subject, doing string) {
		g.t.Helper()
		if err := nc.FlushTimeout(wait); err != nil {
			g.t.Fatal(err)
		}
		select {
		case err := <-errs:
			if !strings.Contains(strings.ToLower(err.Error()), "permissions violation for "+doing) || !strings.Contains(err.Error(), `"`+subject+`"`) {
				g.t.Errorf("%s, %s %s: %v", user, doing, subject, err)
			}
		case <-time.After(wait):
			g.t.Errorf("%s may use %s for %s", user, subject, doing)
		}
	}
	for _, subject := range publish {
		if err := nc.Publish(subject, []byte(`{}`)); err != nil {
			g.t.Fatal(err)
		}
		want(subject, "publish to")
	}
	for _, subject := range subscribe {
		if _, err := nc.Subscribe(subject, func(*nats.Msg) {}); err != nil {
			g.t.Fatal(err)
		}
		want(subject, "subscription to")
	}
}

// ended waits as a user for the end of a run.
func (g *guarded) ended(user, name string) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), wait)
	defer cancel()
	c, err := client.Connect(ctx, client.Options{URL: g.url(user), As: user})
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := c.Wait(ctx, client.Run{Agent: "clerk", Name: name}); err != nil && !errors.As(err, new(*client.RunError)) {
		g.t.Error(err)
	}
	if err := c.Close(); err != nil {
		g.t.Error(err)
	}
}

// A whole run with a user for each role, on a server that enforces what nats-config writes. Nobody is refused anything.
func TestNATSConfig_SufficesForEveryRole(t *testing.T) {
	t.Run("one stream for calls", sufficesForEveryRole)
	t.Run("four streams for calls", func(t *testing.T) {
		t.Setenv("AGENTD_PARTITIONS", "4")
		sufficesForEveryRole(t)
	})
}

func sufficesForEveryRole(t *testing.T) {
	g := startGuarded(t, "reconcile: {interval: 1s, older_than: 1s}\nretention: {history: 1s}\n")
	var paid sync.WaitGroup
	paid.Add(1)
	g.serve(paid.Done)
	var chat, problems output
	ctx, stop := context.WithTimeout(context.WithoutCancel(t.Context()), 3*wait)
	done := make(chan int, 1)
	go func() {
		defer stop()
		done <- execute(ctx, g.args("run", "clerk", "-m", "Pay", "--subject", "one", "--answer", "Current", "--nats", g.url("ann")),
			cli.Streams{In: strings.NewReader(""), Out: &chat, Err: &problems})
	}()
	request := g.request("one")
	g.as("jane", "approvals", "show", request.Short)
	contains(t, g.as("jane", "approvals", "approve", request.Short), "allowed; the call goes out")
	if code := <-done; code != cli.ExitOK {
		t.Fatalf("ann's run exits with %d:\n%s\n%s", code, chat.String(), problems.String())
	}
	paid.Wait()
	contains(t, chat.String(), "Paid.")
	g.as("shop", "run", "clerk", "-m", "Pay", "--subject", "two", "-d")
	request = g.request("two")
	for _, user := range []string{"shop", "ann", "operator"} {
		contains(t, g.as(user, "runs", "send", "two", "Take the other account."), "the run has the message")
	}
	g.as("jane", "approvals", "deny", request.Short, "--reason", "no")
	// The first run's history may be gone by now; this one still waits for an answer.
	log := g.as("operator", "approvals", "log", "two", "-o", "json")
	contains(t, log, `"who": "jane"`)
	g.as("operator", "audit", "verify", "two")
	g.as("operator", "runs", "cancel", "two")
	g.ended("shop", "two")
	g.eventually("the removal of a history", func() bool {
		return strings.Contains(g.as("operator", "runs", "list"), "history removed")
	})
	if said := g.violations.said(); len(said) > 0 {
		t.Errorf("the server refused what a role needs:\n%s", strings.Join(said, "\n"))
	}
}

func TestNATSConfig_WritesNoPassword(t *testing.T) {
	config, _ := clerkProject(t, "")
	s := &system{t: t, config: config, data: t.TempDir()}
	t.Setenv(accounts.PasswordVariable("worker"), "hush")
	out, _ := s.expect(cli.ExitOK, "nats-config")
	contains(t, out, `user: "worker", password: $AGENTD_WORKER_PASSWORD`)
	_, problem := s.expect(cli.ExitUsage, "nats-config", "--bcrypt")
	contains(t, problem, "AGENTD_CLIENT_PASSWORD, AGENTD_OPERATOR_PASSWORD, AGENTD_SVC_LOCAL_BANK_PAY_PASSWORD")
	for _, name := range []string{"client", "operator", "svc_local_bank_pay"} {
		t.Setenv(accounts.PasswordVariable(name), "hush")
	}
	hashed, _ := s.expect(cli.ExitOK, "nats-config", "--bcrypt")
	contains(t, hashed, `user: "worker", password: "$2a$`)
	if strings.Contains(out+hashed, "hush") {
		t.Error("a password is printed")
	}
	path := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(path, bytes.ReplaceAll([]byte(hashed), []byte("/data/"), []byte(t.TempDir()+"/")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server.ProcessConfigFile(path); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--person", "ann.b"}, `got "ann.b"`},
		{[]string{"--person", "worker"}, "a name that no other user has"},
		{[]string{"--approver", "jane="}, "want NAME or NAME=DOMAIN"},
		{[]string{"--tls-cert", "c.pem"}, "TLS needs both"},
		{[]string{"--person", "a-b,a_b"}, "in one variable"},
	} {
		_, problem := s.expect(cli.ExitUsage, append([]string{"nats-config"}, c.flags...)...)
		contains(t, problem, c.want)
	}
}
